"""Listing without importing, importing on request, and what happens when something is missing."""

import sys
from importlib import metadata

import pytest

from flightrec import registry
from flightrec.errors import MissingExtraError, UnknownPluginError
from flightrec.registry import KINDS, Registry, pip_command


@pytest.fixture
def planets(tmp_path, monkeypatch):
    """A package of plug-ins that lies outside the project."""
    folder = tmp_path / "solar_system" / "planets"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "earth.py").write_text("Detector = 'blue'\n")
    (folder / "_moon.py").write_text("raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(KINDS, "detectors", ("solar_system.planets", "Detector"))
    yield folder
    for name in [name for name in sys.modules if name.startswith("solar_system")]:
        del sys.modules[name]


def point(monkeypatch, name, value):
    entry = metadata.EntryPoint(name, value, "flightrec.detectors")
    monkeypatch.setattr(
        registry.metadata,
        "entry_points",
        lambda group: (entry,) if group == "flightrec.detectors" else (),
    )


def test_names_are_listed_without_importing(planets):
    assert Registry("detectors").names() == ("earth",)
    assert "solar_system" not in sys.modules


def test_dropping_a_file_in_is_enough(planets):
    (planets.parent / "__init__.py").write_text("")
    assert Registry("detectors").load("earth") == "blue"
    (planets / "mars.py").write_text("Detector = 'red'\n")
    assert "mars" in Registry("detectors")
    assert Registry("detectors").load("mars") == "red"


def test_unknown_name_lists_the_names_there_are(planets):
    with pytest.raises(UnknownPluginError, match=r"'pluto' among the detectors; there are: earth"):
        Registry("detectors").load("pluto")


def test_unknown_kind_lists_the_kinds_there_are():
    with pytest.raises(UnknownPluginError, match=r"'comets'; there are .*detectors"):
        Registry("comets")


def test_file_without_the_attribute_is_named(planets):
    (planets.parent / "__init__.py").write_text("")
    (planets / "dust.py").write_text("")
    with pytest.raises(UnknownPluginError, match=r"planets\.dust .* does not define 'Detector'"):
        Registry("detectors").load("dust")


def test_missing_package_gives_the_pip_command(planets):
    (planets.parent / "__init__.py").write_text("")
    (planets / "venus.py").write_text("import no_such_package_at_all.inner\n")
    with pytest.raises(MissingExtraError, match="pip install no_such_package_at_all"):
        Registry("detectors").load("venus")


def test_missing_module_of_ours_is_not_called_a_missing_extra(planets):
    (planets.parent / "__init__.py").write_text("")
    (planets / "venus.py").write_text("import flightrec.no_such_module\n")
    with pytest.raises(ModuleNotFoundError):
        Registry("detectors").load("venus")


def test_extra_is_named_where_one_holds_the_package(monkeypatch):
    lines = ["torch>=2.6", 'Fancy_Store>=1; extra == "remote"']
    monkeypatch.setattr(registry.metadata, "requires", lambda name: lines)
    assert pip_command("fancy-store") == "pip install 'torch-flightrec[remote]'"
    assert pip_command("torch") == "pip install torch"


def test_entry_point_may_name_a_module_or_an_object(planets, monkeypatch):
    (planets.parent / "__init__.py").write_text("")
    point(monkeypatch, "sun", "solar_system.planets.earth")
    assert Registry("detectors").names() == ("earth", "sun")
    assert Registry("detectors").load("sun") == "blue"
    point(monkeypatch, "sun", "solar_system.planets.earth:Detector")
    assert Registry("detectors").load("sun") == "blue"


def test_file_of_the_project_wins_over_an_entry_point(planets, monkeypatch):
    (planets.parent / "__init__.py").write_text("")
    point(monkeypatch, "earth", "json:dumps")
    assert Registry("detectors").load("earth") == "blue"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_can_be_listed(kind):
    assert isinstance(Registry(kind).names(), tuple)
