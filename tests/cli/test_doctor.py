"""`flightrec doctor`."""


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


def test_without_a_store_the_installation_is_checked(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLIGHTREC_STORE", raising=False)
    found = run("doctor", "--json")
    assert found.code == 0
    assert not (tmp_path / "incidents").exists()


def test_a_loose_file(run, store, incidents, tmp_path):
    loose = tmp_path / "copy.h5"
    loose.write_bytes(store.path(incidents[0].id).read_bytes()[:-100])
    found = run("doctor", loose, "--json")
    assert found.code == 1
    assert [check["name"] for check in wrong(found)] == ["copy"]
