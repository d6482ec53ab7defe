"""Recorded settings are in force during a replay, and gone after it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from flightrec import environment
from replay import determinism
from replay.determinism import Recorded, machine_capability, reexec_environment
from replay.switches import SETTERS

HERE = environment.collect().as_json()
CPU = torch.device("cpu")
OTHER = {
    "deterministic": True,
    "fill_uninitialized_memory": False,
    "flush_denormal": True,
    "default_dtype": "float64",
    "float32_matmul_precision": "high",
    "anomaly": True,
    "autocast.cpu": "float16",
    "autocast.cache": False,
    "cudnn.enabled": False,
    "cudnn.benchmark": True,
    "cudnn.deterministic": True,
    "sdp.flash": False,
    "sdp.math": False,
    "sdp.mem_efficient": False,
    "mkldnn.enabled": False,
    "nnpack.enabled": False,
}


def recorded(**changes):
    """Return this machine's environment with parts changed, `flags` merged."""
    made = {**HERE, **changes}
    made["flags"] = {**HERE["flags"], **changes.get("flags", {})}
    return made


def incident(**changes):
    return SimpleNamespace(manifest={"environment": recorded(**changes)})


def flags():
    return environment.collect().as_json()["flags"]


def test_every_flag_that_is_recorded_can_be_set():
    assert set(SETTERS) == set(HERE["flags"])


@pytest.mark.parametrize("name", OTHER)
def test_a_flag_is_set_and_put_back(name):
    before = flags()
    assert before[name] != OTHER[name]
    with Recorded(recorded(flags={name: OTHER[name]})).applied() as refused:
        assert flags()[name] == OTHER[name]
    assert refused == ()
    assert flags() == before


def test_all_at_once_and_after_an_exception():
    before = flags()
    with Recorded(recorded(flags=OTHER)).applied():
        assert flags() | OTHER == flags()
    assert flags() == before
    with pytest.raises(ZeroDivisionError), Recorded(recorded(flags=OTHER)).applied():
        raise ZeroDivisionError
    assert flags() == before


def test_deterministic_algorithms_are_switched_off_where_they_were_off():
    torch.use_deterministic_algorithms(True)
    try:
        with Recorded(recorded(flags={"deterministic": False})).applied():
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_threads():
    before = torch.get_num_threads()
    threads = {**HERE["threads"], "intra": before + 1}
    with Recorded(recorded(threads=threads)).applied():
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("nonsense", ["load", 7, [], {"$": "x"}, "a" * 999])
def test_values_that_make_no_sense_are_refused(nonsense):
    before = flags()
    names = ("default_dtype", "float32_matmul_precision", "autocast.cpu", "unknown")
    with Recorded(recorded(flags=dict.fromkeys(names, nonsense))).applied() as refused:
        assert flags() == before
    assert set(refused) == set(names[:3])


def test_an_environment_of_an_older_build():
    with Recorded({}).applied() as refused:
        assert refused == ()
    assert variables({}) is None


def test_nothing_differs_here():
    assert Recorded(HERE).differences(CPU) == []
    assert reexec_environment(incident()) is None


def test_differences_that_change_numbers_are_told():
    texts = Recorded(recorded(torch="2.6.0", platform="another", machine="another")).differences(
        CPU
    )
    assert texts == [f"torch: recorded 2.6.0, here {torch.__version__}"]
    texts = Recorded(recorded(flags={"cudnn.benchmark": None})).differences(CPU)
    assert texts == []
    texts = Recorded(recorded(cpu={**HERE["cpu"], "capability": "SVE256"})).differences(CPU)
    assert texts == [f"cpu.capability: recorded SVE256, here {HERE['cpu']['capability']}"]
    gpu = {"type": "cuda", "index": 0, "name": "NVIDIA H200", "capability": "9.0"}
    texts = Recorded(recorded(devices=[gpu])).differences(CPU)
    assert texts == ["recorded on NVIDIA H200, replayed on the CPU"]


def variables(environment):
    return determinism.variables_for(environment)


def test_threads_take_a_new_process():
    threads = {**HERE["threads"], "intra": torch.get_num_threads() + 1}
    wanted = str(torch.get_num_threads() + 1)
    assert variables(recorded(threads=threads)) == {
        "OMP_NUM_THREADS": wanted,
        "MKL_NUM_THREADS": wanted,
    }


def test_known_variables_take_a_new_process(monkeypatch):
    made = recorded(
        variables={
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
            "MKL_CBWR": "AVX2",
            "LD_PRELOAD": "/tmp/evil.so",
            "ONEDNN_MAX_CPU_ISA": "a b; c",
        }
    )
    assert variables(made) == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "MKL_CBWR": "AVX2"}
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    assert variables(made) is None


def capability(name, monkeypatch, *, machine, here, chosen=False):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    monkeypatch.setattr(determinism, "machine_capability", lambda: machine)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: here)
    known = {"ATEN_CPU_CAPABILITY": name.lower()} if chosen else {}
    return variables(recorded(cpu={**HERE["cpu"], "capability": name}, variables=known))


def test_a_lesser_instruction_set_is_chosen(monkeypatch):
    assert capability("AVX2", monkeypatch, machine="AVX512", here="AVX512") == {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }


def test_a_lesser_instruction_set_that_was_chosen_binds_torch_alone(monkeypatch):
    found = capability("AVX2", monkeypatch, machine="AVX512", here="AVX512", chosen=True)
    assert found == {"ATEN_CPU_CAPABILITY": "avx2"}


def test_an_instruction_set_that_is_not_here_is_never_chosen(monkeypatch):
    assert capability("AVX512", monkeypatch, machine="AVX2", here="AVX2") is None
    made = incident(cpu={**HERE["cpu"], "capability": "AVX512"}, torch="2.6.0")
    assert determinism.unreachable(made) == [
        "this processor has no AVX512, only AVX2",
        f"recorded with torch 2.6.0, this is {torch.__version__}",
    ]


def test_a_set_that_was_narrowed_here_is_widened(monkeypatch):
    found = capability("AVX512", monkeypatch, machine="AVX512", here="DEFAULT")
    assert found == {"ATEN_CPU_CAPABILITY": "avx512"}


def test_the_processor_has_at_least_what_torch_uses():
    order = determinism.CAPABILITIES
    here = torch.backends.cpu.get_cpu_capability()
    if here in order:
        assert order.index(machine_capability()) >= order.index(here)
