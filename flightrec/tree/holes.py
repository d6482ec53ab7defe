"""Values that cannot exist yet: tuples that, by way of something else, contain themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Hole:
    """Stands for a value until everything else is there; `fill` makes it, once."""

    __slots__ = ("_done", "_make", "_value")

    def __init__(self, make: Callable[[], Any]) -> None:
        """Remember how the value is made."""
        self._make = make
        self._done = False
        self._value: Any = None

    def fill(self) -> Any:
        """Return the value, the same one every time."""
        if not self._done:
            self._value = self._make()
            self._done = True
        return self._value


def filled(items: list[Any], build: Callable[[list[Any]], Any]) -> Any:
    """Return `build(items)`, or a hole for it where one of the items is a hole itself."""
    if not any(type(item) is Hole for item in items):
        return build(items)
    return Hole(lambda: build([item.fill() if type(item) is Hole else item for item in items]))
