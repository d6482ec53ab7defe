"""Cases that are not reached yet, by name, each with the reason.

Strict: a case that passes although it is listed here fails the build, so the list only shrinks.
A case whose bad value is made in the data, in a parameter or in the forward pass may not stand
in `CULPRIT`; a test sees to that.
"""

from __future__ import annotations

CULPRIT: dict[str, str] = {}
"""Kind, phase, step, module, operator or sample is not named as it should be."""

REPLAY: dict[str, str] = {}
"""The replay is not bit-exact."""
