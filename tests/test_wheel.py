"""Does the wheel carry everything that the installed packages read?"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from a copy of what is committed or new; return its file names."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("not a clone: what belongs to the project is not known")
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), "."],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        return set(archive.namelist())


@pytest.mark.slow
def test_schemas_and_types_travel(wheel):
    wanted = {
        f"{package}/{path.relative_to(ROOT / package).as_posix()}"
        for package in ("schemas", "flightrec", "replay")
        for path in (ROOT / package).rglob("*")
        if path.suffix in (".py", ".json", ".sql", ".md", ".typed")
    }
    assert wanted <= wheel
    assert "schemas/incident.schema.json" in wheel
    assert "schemas/trusted.json" in wheel


@pytest.mark.slow
def test_nothing_else_travels(wheel):
    tops = {name.split("/")[0] for name in wheel if not name.startswith("torch_flightrec-")}
    assert tops == {"schemas", "flightrec", "replay"}
    assert any(name.endswith("/licenses/LICENSE") for name in wheel)
