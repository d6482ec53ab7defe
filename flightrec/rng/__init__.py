"""Every random generator a step may draw from: found once, read cheaply, restored to the bit."""

from __future__ import annotations

from flightrec.rng.generators import Generators, RngState

__all__ = ["Generators", "RngState"]
