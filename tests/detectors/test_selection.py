"""Choosing detectors by name, without a name, and by instance."""

from dataclasses import dataclass

import pytest

from flightrec.detectors import config_of, from_config, name_of, select
from flightrec.detectors.loss_spike import LossSpike
from flightrec.detectors.nonfinite import NonFinite
from flightrec.errors import UnknownPluginError, UsageError


@dataclass(frozen=True, kw_only=True)
class Always:
    """A stranger's detector."""

    often: int = 3

    def check(self, window):
        yield from ()


def names(selection):
    return [name_of(one) for one in select(selection)]


def test_names_select():
    assert names(["loss_spike", "nonfinite"]) == ["nonfinite", "loss_spike"]


def test_minus_drops_from_the_defaults():
    assert "loss_spike" not in names(["-loss_spike"])
    assert len(names(["-loss_spike"])) == len(names(None)) - 1


def test_plus_adds_to_the_defaults_once():
    assert names(["+loss_spike"]) == names(None)


def test_instance_replaces_the_default_of_its_class():
    given = LossSpike(ratio=50)
    assert select([given]) == (given,)
    chosen = select([given, "-zeroed"])
    assert [one for one in chosen if isinstance(one, LossSpike)] == [given]
    assert any(isinstance(one, NonFinite) for one in chosen)


def test_nothing_selected_is_nothing():
    assert select([]) == ()


@pytest.mark.parametrize("word", ["loss_spiek", "-loss_spiek", "+loss_spiek"])
def test_unknown_name_lists_the_known_ones(word):
    with pytest.raises(UnknownPluginError, match=r"'loss_spiek' among the detectors.*nonfinite"):
        select([word])


def test_names_and_changes_do_not_mix():
    with pytest.raises(UsageError, match="either names, or -name and \\+name"):
        select(["nonfinite", "-zeroed"])


def test_strangers_detector_is_described_but_not_made_again():
    config = config_of(Always(often=4))
    assert config["name"].endswith(":Always")
    assert config["configuration"] == {"often": 4}
    with pytest.raises(UnknownPluginError):
        from_config(config)
