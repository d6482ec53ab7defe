"""What runs afterwards: rebuild, re-execute, compare, locate, explain."""

from __future__ import annotations

from replay.replayer import Replayer, load

__all__ = ["Replayer", "load"]
