"""The verdict as JSON, for other programs."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

from replay.verdict import to_json

if TYPE_CHECKING:
    from flightrec.types import Verdict


def render(verdict: Verdict, incident: Any, out: IO[str]) -> None:  # noqa: ARG001 - a reporter's signature
    """Write the fields of the verdict, in their order, as one indented object."""
    out.write(json.dumps(to_json(verdict), indent=2, allow_nan=False) + "\n")
