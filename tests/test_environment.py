"""What is recorded of a machine, at what price, and what two machines differ in."""

import json
import os
import subprocess
import sys
import time

import pytest
import torch

from flightrec.environment import FLAGS, VARIABLES, Environment, collect, differences


@pytest.fixture
def here():
    return collect().as_json()


def changed(node, **entries):
    """A copy in which dotted entries have other values."""
    copy = json.loads(json.dumps(node))
    for name, value in entries.items():
        group, _, key = name.partition("__")
        copy[group][key] = value
    return copy


def test_is_plain_json_of_the_promised_shape(here):
    assert json.loads(json.dumps(here)) == here
    assert here["torch"] == torch.__version__
    assert here["packages"]["torch" if "torch" in here["packages"] else "numpy"]
    assert here["cpu"]["capability"] == torch.backends.cpu.get_cpu_capability()
    assert here["threads"]["intra"] == torch.get_num_threads()
    assert {"inter", "OMP_NUM_THREADS", "MKL_NUM_THREADS"} <= set(here["threads"])
    assert isinstance(here["devices"], list)


def test_flags_follow_torch():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        flags = collect().flags
    finally:
        torch.use_deterministic_algorithms(False)
    assert (flags["deterministic"], flags["deterministic_warn_only"]) == (True, True)
    assert collect().flags["deterministic"] is False
    assert flags["default_dtype"] == "float32"


def test_most_switches_exist_in_this_build(here):
    missing = [name for name in FLAGS if here["flags"][name] is None]
    assert len(missing) <= 4, missing


def test_flushing_of_denormals_is_noticed():
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush")
    try:
        assert collect().flags["flush_denormal"] is True
    finally:
        torch.set_flush_denormal(False)
    assert collect().flags["flush_denormal"] is False


def test_new_and_old_names_of_tf32_used_together_do_not_matter():
    program = (
        "import torch; from flightrec.environment import collect\n"
        "torch.backends.cuda.matmul.allow_tf32 = True\n"
        "assert collect().flags['cuda.matmul.tf32'] in (True, 'tf32')\n"
        "if hasattr(torch.backends.cudnn, 'conv'):\n"
        "    torch.backends.cudnn.conv.fp32_precision = 'ieee'\n"
        "    assert collect().flags['cudnn.conv.tf32'] == 'ieee'\n"
    )
    words = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_listed_variables_are_read(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    found = collect().as_json()
    assert "hunter2" not in json.dumps(found)
    assert found["variables"]["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert set(found["variables"]) <= set(VARIABLES)
    assert not any("KEY" in name or "TOKEN" in name or "PASS" in name for name in VARIABLES)


def test_is_quick_and_starts_nothing(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    monkeypatch.setattr(os, "system", None)
    collect()
    best = min(_seconds() for _ in range(5))
    assert best < 0.03
    assert not torch.cuda.is_initialized()


def _seconds():
    started = time.perf_counter()
    collect()
    return time.perf_counter() - started


def test_equal_environments_do_not_differ(here):
    assert differences(here, here) == ()


def test_differences_say_what_can_change_numbers(here):
    other = changed(here, threads__intra=7, flags__anomaly=True) | {"machine": "elsewhere"}
    found = {one.name: one for one in differences(here, other)}
    assert set(found) == {"threads.intra", "flags.anomaly", "machine"}
    assert found["threads.intra"].here == 7
    assert found["threads.intra"].recorded == here["threads"]["intra"]
    assert [found[name].numbers for name in sorted(found)] == [True, False, True]


def test_devices_are_compared_one_by_one(here):
    one = here | {"devices": [{"type": "cuda", "index": 0, "name": "A"}]}
    two = here | {"devices": [{"type": "cuda", "index": 0, "name": "B"}]}
    (found,) = differences(one, two)
    assert (found.name, found.recorded, found.here) == ("devices.0.name", "A", "B")
    assert {found.name for found in differences(here, one)} >= {"devices.0.name"}


def test_entries_of_one_side_only_are_null_on_the_other(here):
    found = differences(changed(here, flags__new_switch=True), here)
    assert [(one.name, one.here) for one in found] == [("flags.new_switch", None)]


def test_environment_is_frozen():
    assert isinstance(collect(), Environment)
    with pytest.raises(AttributeError):
        collect().torch = "3.0"
