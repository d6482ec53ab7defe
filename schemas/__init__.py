"""The contract between recorder and replay, as data files that travel inside the wheel."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any


def text(name: str) -> str:
    """Return the text of the data file `name`; raises `FileNotFoundError` naming it."""
    return files(__name__).joinpath(name).read_text(encoding="utf-8")


@cache
def load(name: str) -> Any:
    """Return the parsed JSON file `name`, read once; callers must not change it."""
    return json.loads(text(name))
