"""Parquet files: where they lie, how they are folded, and that no row is lost or seen twice."""

import json
import os
import stat

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from flightrec.catalog import files as files_module
from flightrec.catalog.files import CatalogFiles, damaged, folder_name, incident_of
from flightrec.catalog.lock import locked
from flightrec.catalog.rows import rows_of


@pytest.fixture
def files(tmp_path):
    return CatalogFiles(tmp_path / "store" / "catalog")


@pytest.fixture
def add(files, make):
    def added(*ids, **changes):
        for id in ids:
            files.write(rows_of(make(id, **changes), f"{id}.h5"), id)

    return added


def ids(files, table="incidents"):
    column = "id" if table == "incidents" else "incident_id"
    return [id for path in files.listing(table) for id in pq.read_table(path)[column].to_pylist()]


def test_rows_lie_by_day_and_run(files, add):
    add("a")
    path = files.folder / "stats" / "date=2026-03-01" / "run=run-a" / "a.parquet"
    assert files.listing("stats") == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(files.folder.glob("**/*.tmp"))


def test_writing_again_replaces(files, add):
    add("a", "a")
    assert ids(files) == ["a"]


def test_small_files_are_folded_at_the_limit(files, add, monkeypatch):
    monkeypatch.setattr(files_module, "FOLD_AT", 4)
    add("a", "b", "c")
    assert len(files.listing("incidents")) == 3
    add("d", run="run-b")
    (folded,) = files.listing("incidents")
    assert folded.name.startswith("folded-")
    assert sorted(ids(files)) == ["a", "b", "c", "d"]
    assert stat.S_IMODE(folded.stat().st_mode) == 0o600
    add("e")
    assert len(files.listing("incidents")) == 2


def test_compact_leaves_one_file_per_table_in_order(files, add):
    add("c", "a", "b")
    files.compact()
    for table in ("incidents", "steps", "stats", "findings", "tensors", "environment"):
        assert len(files.listing(table)) == 1
    assert ids(files) == ["a", "b", "c"]
    files.compact()
    assert ids(files) == ["a", "b", "c"]
    assert files.listing("verdicts") == []


def test_rows_of_large_tables_are_streamed(files, add, monkeypatch):
    monkeypatch.setattr(files_module, "ROW_GROUP", 4)
    add(*"abcdefg")
    files.compact()
    (path,) = files.listing("stats")
    metadata = pq.read_metadata(path)
    assert metadata.num_rows == 21
    assert metadata.num_row_groups > 2


def test_drop_clears_small_and_folded_files(files, add):
    add("a", "b")
    files.compact()
    add("c", "d")
    files.drop({"a", "c"})
    for table in ("incidents", "stats"):
        assert set(ids(files, table)) == {"b", "d"}
    files.drop({"b", "d"})
    assert not list(files.folder.glob("**/*.parquet"))


def test_a_replacement_cut_short_shows_no_row_twice(files, add):
    add("a", "b")
    small = files.listing("incidents")
    merged = pa.concat_tables([pq.read_table(path) for path in small])
    folded = files.folder / "incidents" / "folded-1.parquet"
    listed = [path.relative_to(files.folder).as_posix() for path in small]
    folded.with_suffix(".json").write_text(json.dumps(listed))
    assert ids(files) == ["a", "b"]  # the list alone hides nothing
    pq.write_table(merged, folded)
    assert files.listing("incidents") == [folded]
    add("c")
    files.compact()
    assert ids(files) == ["a", "b", "c"]
    assert not any(path.exists() for path in small)
    assert not list(files.folder.glob("**/*.json"))


def test_older_and_newer_columns_are_joined(files, add, tmp_path):
    add("a")
    path = files.listing("incidents")[0]
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["machine"]), path.with_name("old.parquet"))
    pq.write_table(table.append_column("later", pa.array(["x"])), path.with_name("later.parquet"))
    files.compact()
    (merged,) = files.listing("incidents")
    found = pq.read_table(merged)
    assert found.num_rows == 3
    assert sorted(found["machine"].to_pylist(), key=str) == [None, "node-3", "node-3"]
    assert found["later"].to_pylist().count("x") == 1


def test_damaged_files_are_left_where_they_are(files, add):
    add("a", "b", "c")
    broken = files.listing("incidents")[1]
    broken.write_bytes(b"PAR1 nonsense")
    assert damaged(broken)
    files.compact()
    assert broken.exists()
    assert sorted(
        id
        for path in files.listing("incidents")
        if path != broken
        for id in pq.read_table(path)["id"].to_pylist()
    ) == ["a", "c"]


def test_a_damaged_page_is_seen(files, add):
    add("a")
    path = files.listing("stats")[0]
    content = bytearray(path.read_bytes())
    content[4:200] = bytes(196)
    path.write_bytes(content)
    assert damaged(path)


def test_links_are_passed_over(files, add, tmp_path):
    add("a")
    path = files.listing("incidents")[0]
    outside = tmp_path / "outside.parquet"
    os.link(path, outside)
    path.with_name("b.parquet").symlink_to(outside)
    assert files.listing("incidents") == [path]


def test_clear_keeps_verdicts(files, add):
    add("a")
    table = pa.table({"incident_id": ["a"], "run": ["run-a"], "date": ["2026-03-01"]})
    files.write({"verdicts": table}, "a@1")
    files.clear()
    assert ids(files) == []
    assert ids(files, "verdicts") == ["a"]
    files.drop({"a"})
    assert ids(files, "verdicts") == []


def test_folding_waits_for_nobody(files, add):
    add("a", "b")
    with locked(files.folder) as mine:
        assert mine
        files.fold("incidents")
    assert len(files.listing("incidents")) == 2
    files.fold("incidents")
    assert len(files.listing("incidents")) == 1


def test_a_crash_while_folding_leaves_the_rows(files, add, monkeypatch):
    add("a", "b")

    def fail(*args, **kwargs):
        raise OSError("disk full")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        files.compact()
    assert ids(files) == ["a", "b"]
    assert not list(files.folder.glob("**/*.tmp"))
    assert not list(files.folder.glob("**/folded-*"))


def test_any_run_name_is_a_folder_name():
    assert folder_name("a/b:c%") == "a%2Fb%3Ac%25"
    assert len(folder_name("ö" * 300)) < 110
    assert folder_name("ö" * 300) != folder_name("ö" * 301)


def test_the_incident_of_a_file(tmp_path):
    assert incident_of(tmp_path / "x@123.parquet") == "x"
    assert incident_of(tmp_path / "x.parquet") == "x"
