"""`flightrec show`."""

from dataclasses import replace

from flightrec.testing.captures import make_capture
from flightrec.testing.store_contract import make_verdict

RAISED = {
    "type": "IndexError",
    "message": "index 5 is out of range\nfor size 3",
    "traceback": [{"file": "train.py", "line": 12, "function": "main", "code": "    x = t[i]"}],
}


def test_everything_that_matters_is_shown(run, store, incidents):
    store.add_verdict(make_verdict(incidents[0].id), command="bisect")
    out = run("show", incidents[0].id).out
    for words in (
        f"{incidents[0].id}: nan in step 7",
        "encoder.0, output",
        "2026-03-01 12:00:00 UTC",
        "2 tensors",
        "night (pid 4): train.py",
        "findings\n  step 7: output of encoder.0 has 3 NaN (nonfinite)",
        "weights: weights='none'; replay needs --model",
        "torch 2.13.0, python 3.11.7, cpu AVX2",
        "bisect: reproduced: nan made in encoder.0, aten.sqrt.default",
        f"flightrec bisect {incidents[0].id}\n",
    ):
        assert words in out
    (loss,) = [line.split()[1] for line in out.splitlines() if line.split()[:1] == ["7"]]
    assert loss == "nan"


def test_the_newest_is_the_default(run, store, incidents):
    assert incidents[-1].id in run("show").out
    assert "outside every module" in run("show").out


def test_an_exception_is_shown_with_its_line(run, store):
    segment = make_capture().manifest["segment"] | {"exception": RAISED}
    store.put(make_capture(kind="exception", segment=segment))
    out = run("show").out
    assert "raised    IndexError: index 5 is out of range for size 3" in out
    assert "train.py:12 x = t[i]" in out


def frame(file, line, code="f()"):
    return {"file": file, "line": line, "function": "f", "code": code}


def test_the_users_own_line_comes_first(run, store):
    torch_frames = [frame(f"/x/lib/python3.11/site-packages/torch/nn/f{n}.py", n) for n in range(9)]
    own = frame("work/train.py", 77, "  y = net(x)")
    raised = RAISED | {"traceback": [frame("work/main.py", 3), own, *torch_frames]}
    store.put(
        make_capture(
            kind="exception", segment=make_capture().manifest["segment"] | {"exception": raised}
        )
    )
    lines = run("show").out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  raised"))
    assert lines[at + 1] == "  your line work/train.py:77 y = net(x)"
    assert [line.split()[0].rpartition("/")[2] for line in lines[at + 2 : at + 5]] == [
        "f6.py:6",
        "f7.py:7",
        "f8.py:8",
    ]


def test_long_messages_are_cut_in_text_only(run, store):
    raised = RAISED | {"message": "long " * 1000}
    segment = make_capture().manifest["segment"] | {"exception": raised}
    store.put(make_capture(kind="exception", reason="long " * 1000, segment=segment))
    assert max(map(len, run("show").out.splitlines())) < 400
    assert run("show", "--json").json["exception"]["message"] == raised["message"]


def test_a_culprit_without_a_module_has_a_place(run, store, incidents):
    verdict = replace(make_verdict(incidents[0].id), kind="inf", phase="loss", module=None, op=None)
    store.add_verdict(verdict, command="bisect")
    assert "bisect: reproduced: inf made outside every module\n" in run("show", incidents[0].id).out


def test_json_leaves_out_what_is_bulky(run, store, incidents):
    found = run("show", "--json").json
    assert found["id"] == incidents[-1].id
    assert found["own"] is False
    assert found["steps"][-1]["step"] == 7
    assert "segment" not in found
    assert "storages" not in found


def test_a_file_outside_every_store(run, store, incidents, tmp_path):
    loose = tmp_path / "copy.h5"
    loose.write_bytes(store.path(incidents[0].id).read_bytes())
    out = run("show", loose, "--store", tmp_path / "none").out
    assert f"flightrec replay {loose}\n" in out


def test_the_commands_to_go_on_name_the_store(run, store, incidents, monkeypatch):
    monkeypatch.delenv("FLIGHTREC_STORE")
    out = run("show", "--store", store.url).out
    assert f"flightrec bisect {incidents[-1].id} --store {store.url}" in out


def test_long_lists_are_counted(run, store):
    store.put(make_capture(notes=[f"note {n}" for n in range(40)]))
    out = run("show").out
    assert "note 11" in out
    assert "note 12" not in out
    assert "and 28 more (--json has all)" in out


def test_an_incident_without_steps(run, store):
    capture = make_capture(steps=[], sites=[])
    store.put(
        type(capture)(
            id=capture.id,
            manifest=capture.manifest,
            storages=capture.storages,
            tensors=capture.tensors,
        )
    )
    assert run("show").code == 0


def test_damaged_and_ambiguous(run, store, incidents):
    store.path(incidents[0].id).write_bytes(b"no")
    assert run("show", incidents[0].id).code == 3
    found = run("show", incidents[0].id[:4])
    assert found.code == 2
    assert incidents[1].id in found.err


def test_what_an_attacker_wrote_is_printed_without_effect(run, store):
    evil = "\x1b]0;pwned\x07\u202e[bold]"
    capture = make_capture(reason=evil, notes=[evil], kind=evil)
    capture.manifest["run"]["argv"] = [evil, "\n  flightrec rm everything"]
    capture.manifest["environment"]["platform"] = evil
    store.put(capture)
    out = run("show").out
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[bold]" in out
    assert "\\n  flightrec rm" in out
