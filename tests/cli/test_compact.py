"""`flightrec compact`."""


def test_one_file_per_table_is_left(run, store, incidents):
    before = run("ls", "--json").json
    assert run("compact", "--json").json == {"store": store.url, "incidents": 3}
    assert len(list((store.root / "catalog" / "stats").rglob("*.parquet"))) == 1
    assert run("ls", "--json").json == before
    assert "of 3 incidents" in run("compact").out


def test_a_store_that_cannot_be_written(run, store, incidents):
    for path in sorted((store.root / "catalog").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (store.root / "catalog").rmdir()
    (store.root / "catalog").write_text("in the way")
    assert run("compact").code == 4
