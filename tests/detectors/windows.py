"""Builds step records and windows for the tests of the detectors."""

from collections import deque

import numpy as np

from flightrec.detectors import EARLY
from flightrec.types import Site, Stat, StepRecord, Window

HISTORY = 128
"""Records in a window, as a recorder keeps them."""


def stats(**columns):
    """One row of statistics: `nan=2, absmax=1.0`; the rest not measured."""
    row = np.full(len(Stat), np.nan)
    for name, value in columns.items():
        row[Stat[name.upper()]] = value
    return row


def output(absmax=1.0, *, module="", leaf="", call=0, numel=8, low=None, high=None, nan=0, inf=0):
    """An output as a recorder fills it."""
    low = -absmax if low is None else low
    high = absmax if high is None else high
    row = stats(nan=nan, inf=inf, min=low, max=high, absmax=absmax, numel=numel)
    return Site(module=module, kind="output", leaf=leaf, call=call), row


def bad_output(*, module="", nan=0, inf=0, low=np.nan, high=np.nan, call=0):
    """An output that holds NaN or infinity."""
    return output(np.nan, module=module, nan=nan, inf=inf, low=low, high=high, call=call)


def gradient(norm=1.0, *, module="fc", leaf="weight", nan=0, inf=0):
    """The gradient of a parameter as a recorder fills it."""
    absmax = 0.0 if norm == 0 else np.nan
    row = stats(nan=nan, inf=inf, l2=norm, absmax=absmax, numel=8)
    return Site(module=module, kind="param_grad", leaf=leaf), row


def held(kind, *, module="norm", leaf="running_var", nan=0, inf=0):
    """A buffer or parameter as a recorder fills it."""
    return Site(module=module, kind=kind, leaf=leaf), stats(nan=nan, inf=inf, numel=8)


def lost(value, *, call=0):
    """The loss as a recorder fills it."""
    row = stats(nan=np.isnan(value), inf=np.isinf(value), mean=value, numel=1)
    return Site(module="", kind="loss", call=call), row


def record(step, *rows, loss=None, norm=None, updated=True):
    """A step with these sites, in this order."""
    sites = tuple(site for site, _ in rows)
    matrix = np.stack([row for _, row in rows]) if rows else np.empty((0, len(Stat)))
    return StepRecord(
        step=step, loss=loss, grad_norm=norm, updated=updated, sites=sites, stats_SK=matrix
    )


def window(*steps, early=(), known_bad=(), **facts):
    """A window in which a backward and an update happened, unless `facts` say otherwise."""
    facts = {"backward": True, "update": True, **facts}
    return Window(
        steps=tuple(steps), facts=facts, known_bad=frozenset(known_bad), early=tuple(early)
    )


def rolling(records, *, history=HISTORY, early=EARLY, facts=None):
    """The windows a recorder would show for these steps, one after the other."""
    kept = deque(maxlen=history)
    first = []
    for number, newest in enumerate(records):
        wanted = {} if facts is None else facts[number]
        yield window(*kept, newest, early=first, **wanted)
        kept.append(newest)
        if len(first) < early:
            first.append(newest)


def findings(detector, records, **options):
    """Everything a detector says about a run."""
    return [found for one in rolling(records, **options) for found in detector.check(one)]


def series(losses=None, norms=None):
    """Steps that have a loss and a gradient norm and nothing else."""
    number = len(losses if losses is not None else norms)
    return [
        StepRecord(
            step=step,
            loss=None if losses is None else float(losses[step]),
            grad_norm=None if norms is None else float(norms[step]),
            updated=True,
        )
        for step in range(number)
    ]
