"""The user's line, not one of torch, Python or this project."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from replay.frames import innermost, nearest, source_line
from replay.raised import Frame

HERE = str(Path(__file__))


def test_nearest_frame_of_the_user_is_this_one():
    place = nearest(sys._getframe())
    assert place is not None
    assert place[0] == HERE
    assert source_line(place).code == "place = nearest(sys._getframe())"


def test_frames_of_torch_are_passed_over():
    seen = []

    class Peek(torch.nn.Module):
        def forward(self, x):
            seen.append(nearest(sys._getframe().f_back))
            return x

    torch.nn.Sequential(Peek())(1)  # the line
    assert Path(seen[0][0]) == Path(HERE)
    assert source_line(seen[0]).code.endswith("# the line")


def test_walk_ends_at_the_engine():
    engine = str(Path(sys.modules["replay.frames"].__file__).with_name("rerun.py"))
    code = compile("found = look(frame())", engine, "exec")
    space = {"look": nearest, "frame": lambda: sys._getframe(1)}
    exec(code, space)
    assert space["found"] is None


def test_path_is_relative_to_the_repository():
    line = source_line((HERE, 3))
    assert line.file == "tests/replay/test_frames.py"
    assert line.code == "from __future__ import annotations"
    assert source_line(None) is None


def test_innermost_frame_of_an_exception():
    frames = [
        Frame(file="/srv/x/train.py", line=3, function="main"),
        Frame(file="/srv/x/model.py", line=8, function="forward"),
        Frame(file=torch.__file__, line=1, function="linear"),
    ]
    assert innermost(frames) == ("/srv/x/model.py", 8)
    assert innermost(frames[2:]) is None
