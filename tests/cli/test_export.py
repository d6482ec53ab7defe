"""`flightrec export`."""

import json


def test_files_are_written_and_listed(run, store, incidents, tmp_path):
    found = run("export", incidents[0].id, "--to", tmp_path / "out", "--json").json
    assert [path["path"].rpartition("/")[2] for path in found] == [
        "weights.safetensors",
        "step.safetensors",
        "incident.json",
    ]
    manifest = json.loads((tmp_path / "out" / "incident.json").read_text())
    assert manifest["id"] == incidents[0].id
    assert manifest["exported"][0] == {
        "tensor": 0,
        "file": "weights.safetensors",
        "key": "encoder.0.weight",
    }


def test_the_default_prints_paths(run, store, incidents, tmp_path):
    out = run("export", "--to", tmp_path / "out").out
    assert str(tmp_path / "out" / "incident.json") in out
    assert run("export", "--to", tmp_path / "out").code == 2


def test_a_folder_that_cannot_be_made(run, store, incidents, tmp_path):
    (tmp_path / "file").write_text("")
    assert run("export", "--to", tmp_path / "file" / "out").code == 4
    assert run("export", "--to", tmp_path / "file").code == 2
