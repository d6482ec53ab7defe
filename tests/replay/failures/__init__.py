"""Small failures with known culprits: three healthy steps, then one that goes wrong."""

from tests.replay.failures import (
    attention,
    exceptions,
    functions,
    given,
    gradients,
    places,
    zeros,
)
from tests.replay.failures.base import CASES, FAILING

__all__ = [
    "CASES",
    "FAILING",
    "attention",
    "exceptions",
    "functions",
    "given",
    "gradients",
    "places",
    "zeros",
]
