import numpy as np

from flightrec.types import Site, Stat
from replay.update import spoiled_by_update

GRAD = Site(module="a", kind="param_grad", leaf="weight")
SITES = (GRAD, Site(module="", kind="loss"))


def stats(bad=0):
    made = np.full((2, 2, len(Stat)), np.nan)
    made[:, 0, [Stat.NAN, Stat.INF]] = 0
    made[0, 0, Stat.NAN] = bad
    return made


def manifest(*found, step=1):
    findings = [{"site": str(site), "step": at} for site, at in found]
    return {"step": step, "steps": [{"step": 0}, {"step": 1}], "findings": findings}


def param(module, leaf="weight"):
    return Site(module=module, kind="param", leaf=leaf)


def test_a_parameter_found_bad_after_good_gradients_blames_the_update():
    spoiled = spoiled_by_update(manifest((param("a"), 0), (GRAD, 1)), SITES, stats())
    assert (spoiled.step, spoiled.module) == (0, "a")
    assert "step 0 a.weight" in spoiled.evidence.text


def test_the_first_of_several_is_named_and_the_others_are_counted():
    found = manifest((param("a"), 0), (param("b"), 0))
    spoiled = spoiled_by_update(found, SITES, stats())
    assert spoiled.module == "a"
    assert "a.weight and 1 more" in spoiled.evidence.text


def test_bad_gradients_acquit_the_update():
    assert spoiled_by_update(manifest((param("a"), 0)), SITES, stats(bad=3)) is None


def test_nothing_is_said_without_an_earlier_finding_or_its_numbers():
    assert spoiled_by_update(manifest((param("a"), 1)), SITES, stats()) is None
    assert spoiled_by_update(manifest((GRAD, 0)), SITES, stats()) is None
    assert spoiled_by_update(manifest((param("a"), 0)), SITES[1:], stats()[:, 1:]) is None
    late = manifest((param("a"), 0))
    late["steps"] = late["steps"][1:]
    assert spoiled_by_update(late, SITES, stats()[1:]) is None
