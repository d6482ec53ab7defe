"""What runs inside the user's process, the incident format, the store, the command line."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from flightrec.errors import FlightrecError, IncidentError
    from flightrec.recorder import FlightRecorder
    from flightrec.stores import open_store
    from flightrec.watch import watch

__version__ = "0.1.0"

_WHERE = {
    "FlightRecorder": "flightrec.recorder",
    "FlightrecError": "flightrec.errors",
    "IncidentError": "flightrec.errors",
    "open_store": "flightrec.stores",
    "watch": "flightrec.watch",
}
"""Public name -> module; loaded when first asked for, so that listing needs no torch."""

__all__ = [
    "FlightRecorder",
    "FlightrecError",
    "IncidentError",
    "__version__",
    "open_store",
    "watch",
]


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name not in _WHERE:
        raise AttributeError(f"module 'flightrec' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value
