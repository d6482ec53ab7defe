"""`flightrec doctor`."""

import os


def wrong(found):
    return [check for check in found.json if not check["ok"]]


def test_all_is_well(run, store, incidents, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    found = run("doctor", "--json")
    assert (found.code, wrong(found)) == (0, [])
    areas = [check["area"] for check in found.json]
    assert areas.count("incident") == 3
    assert {check["name"] for check in found.json if check["area"] == "installation"} >= {
        "torch",
        "HDF5",
        "key",
        "shuffle and zstd",
    }
    out = run("doctor").out
    assert out.startswith("ok    installation python: 3.")


def test_a_changed_byte_is_found(run, store, incidents):
    path = store.path(incidents[1].id)
    content = bytearray(path.read_bytes())
    content[-20] ^= 255
    path.write_bytes(content)
    found = run("doctor", "--json")
    assert found.code == 1
    assert [check["name"] for check in wrong(found)] == [incidents[1].id]
    assert run("doctor", incidents[0].id).code == 0
    assert run("doctor", incidents[1].id).code == 1


def test_the_catalog_is_compared_and_mended(run, store, incidents):
    store.path(incidents[0].id).unlink()
    for path in (store.root / "catalog" / "incidents").rglob(f"{incidents[1].id}.parquet"):
        path.unlink()
    found = run("doctor", "--json")
    assert found.code == 1
    assert len(wrong(found)) == 2
    assert run("doctor", "--fix").code == 0
    assert [row["kind"] for row in run("ls", "--json").json] == ["zeroed", "manual"]


def test_a_key_that_others_can_read(run, store, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "flightrec").mkdir()
    (tmp_path / "flightrec" / "key").write_text("00" * 32)
    (tmp_path / "flightrec" / "key").chmod(0o644)
    found = run("doctor", "--json")
    assert found.code == 1
    assert [check["name"] for check in wrong(found)] == ["key"]


def test_a_store_that_is_not_there(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLIGHTREC_STORE", raising=False)
    for words in ((), ("--fix",), ("--json",)):
        found = run("doctor", *words)
        assert (found.code, found.err) == (4, run("ls").err)
    assert not (tmp_path / "incidents").exists()


def test_what_was_mended_is_said(run, store, incidents, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    part = store.path(incidents[0].id).with_name(".x@another-host@77.part")
    part.write_bytes(b"half")
    os.utime(part, (0, 0))
    store.path(incidents[1].id).unlink()
    for rows in (store.root / "catalog" / "incidents").rglob(f"{incidents[2].id}.parquet"):
        rows.unlink()
    found = run("doctor", "--fix")
    assert found.code == 0
    fixed = [line for line in found.out.splitlines() if line.startswith("ok    fixed")]
    assert len(fixed) == 3
    assert f"{part.name} was left by a process that died; removed it" in fixed[0]
    assert "is missing from the catalog; added it" in fixed[1]
    assert "whose file is gone; removed it" in fixed[2]
    assert not part.exists()
    assert "fixed" not in run("doctor", "--fix").out


def test_a_loose_file(run, store, incidents, tmp_path):
    loose = tmp_path / "copy.h5"
    loose.write_bytes(store.path(incidents[0].id).read_bytes()[:-100])
    found = run("doctor", loose, "--json")
    assert found.code == 1
    assert [check["name"] for check in wrong(found)] == ["copy"]
