"""A script gives its definitions without being run."""

from __future__ import annotations

import sys
import textwrap

import pytest
import torch

from flightrec.errors import CannotRebuildError, CodeMissingError
from flightrec.script import load_script, loose_statement


def load(text, *wanted, **options):
    return load_script(textwrap.dedent(text), filename="train.py", wanted=wanted, **options)


TRAINING = '''
from __future__ import annotations
"""Docstring in the wrong place."""
import os, sys
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader

sys.path.append(os.path.join(os.path.dirname(__file__), "lib"))
torch.manual_seed(0)
torch.backends.cudnn.benchmark = True
print("side effect one")
DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CHARS = "abc"
STOI = {c: i for i, c in enumerate(CHARS)}
SIZES = [2]
SIZES.append(3)
HIDDEN, DEPTH = 4, len(CHARS)
args = parse(sys.argv)
data = load_everything()
if torch.cuda.is_available():
    print("side effect two")
    DTYPE = torch.bfloat16
else:
    DTYPE = torch.float32
try:
    import not_there_at_all
except ImportError:
    not_there_at_all = None

def act(x):
    return F.relu(x) * DEPTH

def other(x):
    return data[x]

class Block(nn.Module):
    size = HIDDEN
    def __init__(self, n=len(CHARS), act=nn.ReLU()):
        super().__init__()
    @torch.no_grad()
    def peek(self):
        return args.value
    @property
    def table(self):
        return STOI, SIZES, DTYPE, DEVICE, not_there_at_all
    def forward(self, x):
        return act(x)

model = Block().to(DEVICE)
for step in range(10):
    raise SystemExit("the script was run")
if __name__ == "__main__":
    raise SystemExit("the script was run")
'''


def test_definitions_come_without_a_run(capsys):
    before = list(sys.path)
    module = load(TRAINING, "Block")
    assert capsys.readouterr().out == ""
    block = module.Block.__new__(module.Block)
    torch.nn.Module.__init__(block)
    assert torch.equal(block(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 6.0]))
    stoi, sizes, dtype, device, absent = block.table
    assert stoi == {"a": 0, "b": 1, "c": 2}
    assert sizes == [2, 3]
    assert dtype is (torch.bfloat16 if torch.cuda.is_available() else torch.float32)
    assert isinstance(device, torch.device)
    assert absent is None
    assert block.size == 4
    assert not hasattr(module, "model")
    assert not hasattr(module, "DataLoader")
    sys.path[:] = before


def test_names_that_only_a_run_gives_complain_when_touched():
    module = load(TRAINING, "Block", "other")
    block = module.Block.__new__(module.Block)
    with pytest.raises(CannotRebuildError, match=r"args of train\.py.*line 20.*parse"):
        block.peek()
    with pytest.raises(CannotRebuildError, match="data"):
        module.other(0)


def test_the_module_has_a_name_of_its_own():
    module = load(TRAINING, "Block")
    assert module.__name__ != "__main__"
    assert module.Block.__module__ == module.__name__
    assert sys.modules[module.__name__] is module


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Net = make()", "calls make"),
        ("class Net(make()): pass", "calls make"),
        ("class Net:\n    print('x')", "runs code"),
        ("def now(f):\n    f()\n    return f\n@now\nclass Net: pass", "decorator"),
        ("@(lambda c: c())\nclass Net: pass", "decorator"),
        ("class Meta(type): pass\nclass Net(metaclass=Meta): pass", "metaclass"),
        (
            "class Base:\n    def __init_subclass__(cls): exit(3)\nclass Net(Base): pass",
            "__init_subclass__",
        ),
        ("with open('f') as f:\n    class Net: pass", "runs code"),
        ("if __name__ == '__main__':\n    class Net: pass", "runs only as a script"),
        ("for i in range(3):\n    class Net: pass", "runs code"),
        ("base = make()\nclass Net(base): pass", "base"),
        ("class Net:\n    if exit(3): x = 1", "calls exit"),
    ],
)
def test_what_would_run_code_is_refused(text, why):
    with pytest.raises(CodeMissingError, match=why) as caught:
        load(text, "Net")
    assert "--model" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("class Net:\n    y = open('f')", "calls open"),
        ("import os\nclass Net:\n    y = os.system('exit 3')", "calls os.system"),
        ("import os\nclass Net:\n    y = [os.remove(f) for f in 'ab']", "calls os.remove"),
        ("x = [1]\nx += list(map(exit, x))\nclass Net:\n    y = x", "calls map"),
        ("f = f'{exit(3)}'\nclass Net:\n    y = f", "calls exit"),
        ("class Config:\n    def __init__(self): exit(3)\nclass Net:\n    y = Config()", "Config"),
        ("import os\nget = os.environ\nclass Net:\n    y = get.pop('PATH')", "pop"),
        ("import argparse as a\nargs = a.parse_args()\nclass Net:\n    y = args.n", "parse_args"),
        ("from dataclasses import dataclass\n@dataclass\nclass Net:\n    y: int = exit(3)", "exit"),
    ],
)  # fmt: skip
def test_class_attributes_that_need_a_run_complain_when_touched(text, why):
    net = load(text, "Net").Net
    with pytest.raises(CannotRebuildError, match=why):
        net.y + 1


def test_defaults_that_need_a_run_complain_when_touched():
    text = "class Net:\n    def f(self, x=exit(3), *, y=exit(4)): return x + 1"
    net = load(text, "Net").Net()
    assert net.f(1) == 2
    with pytest.raises(CannotRebuildError, match="calls exit"):
        net.f()


DEFINITIONS = """
from dataclasses import dataclass, field
@dataclass
class Config:
    n: int = 3
    m: list = field(default_factory=list)
CFG = Config(n=4)
class Net:
    cfg = CFG
---
from typing import NamedTuple
class Point(NamedTuple):
    x: int
class Net:
    origin = Point(0)
---
from collections import namedtuple
Point = namedtuple("Point", "x y")
class Net(Point): pass
---
import functools
def timed(f):
    @functools.wraps(f)
    def inner(*a):
        print(a)
        return f(*a)
    return inner
class Net:
    @timed
    def f(self): return 1
---
def times(n):
    def deco(f):
        def inner(*a):
            return n * f(*a)
        return inner
    return deco
class Net:
    @times(2)
    def f(self): return 1
---
REGISTRY = {}
def register(c):
    REGISTRY[c.__name__] = c
    return c
@register
class Net: pass
---
from enum import Enum
class Mode(Enum):
    A = 1
class Net:
    m = Mode.A
---
from abc import ABC, ABCMeta, abstractmethod
class Base(metaclass=ABCMeta):
    @abstractmethod
    def f(self): ...
class Net(Base):
    def f(self): return 1
---
from pathlib import Path
HERE = Path(__file__).parent / "x"
class Net:
    y = HERE.name
---
class Net:
    @property
    def a(self): return 1
    @a.setter
    def a(self, v): pass
---
import torch
from torch import nn
class Net(nn.Module):
    act = nn.GELU()
    w = torch.tensor([1.0])
---
from __future__ import annotations
import argparse
args = argparse.ArgumentParser().parse_args()
class Net:
    def f(self, x: args.kind) -> args: ...
"""


@pytest.mark.parametrize("text", DEFINITIONS.split("---\n"))
def test_what_only_defines_is_loaded(text):
    assert load(text, "Net").Net.__name__ == "Net"


def test_a_missing_name_is_named():
    with pytest.raises(CodeMissingError, match=r"train\.py has no Net"):
        load("class Other: pass", "Net")


def test_text_that_is_not_python_is_refused():
    with pytest.raises(CodeMissingError, match="not Python"):
        load("class Net(:", "Net")


def test_a_failing_import_is_told():
    with pytest.raises(CodeMissingError, match="no_such_package"):
        load("import no_such_package\nclass Net(no_such_package.Base): pass", "Net")


def test_loose_statements():
    assert loose_statement("import os\nX = 3\n\nclass A:\n    pass\n") is None
    assert loose_statement("def f(): pass\nif __name__ == '__main__':\n    f()\n") is None
    assert "line 2" in loose_statement("def f(): pass\nf()\n")
    assert "line 1" in loose_statement("import os; os.remove('x')\n")
    assert loose_statement("not python(") is not None
