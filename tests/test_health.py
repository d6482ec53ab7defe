"""What the doctor looks at."""

from importlib import metadata

from flightrec import health
from flightrec.stores import open_store
from flightrec.testing.captures import make_capture


def wrong(checks):
    return [check for check in checks if not check.ok]


def test_this_installation_is_whole(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    checks = list(health.check_installation())
    assert wrong(checks) == []
    assert not (tmp_path / "flightrec").exists()


def test_a_missing_package_is_named(monkeypatch):
    def version(name):
        if name == "duckdb":
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(health.metadata, "version", version)
    assert [check.found for check in wrong(health.check_installation())] == [
        "not installed: pip install duckdb"
    ]


def test_filters_that_change_numbers_are_found(monkeypatch):
    monkeypatch.setattr(health.codec, "unshuffle", lambda numbers, out: None)
    assert [check.name for check in wrong(health.check_installation())] == ["shuffle and zstd"]


def test_a_store_is_counted(tmp_path):
    store = open_store(tmp_path)
    assert [check.found for check in health.check_store(store)] == ["0 incidents, all in order"]
    store.put(make_capture())
    assert [check.found for check in health.check_store(store)] == ["1 incident, all in order"]


def test_damage_is_one_line(tmp_path):
    store = open_store(tmp_path)
    path = store.put(make_capture())
    assert wrong(health.check_incidents([path])) == []
    path.write_bytes(path.read_bytes()[:-200])
    (check,) = wrong(health.check_incidents([path]))
    assert (check.name, "\n" in check.found) == (path.stem, False)
