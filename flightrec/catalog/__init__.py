"""The index over many incidents: Parquet rows beside them, and SQL views over the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flightrec.stores import Store


def compact(store: Store) -> None:
    """Put the rows of a store's incidents into few files, which are quicker to read.

    Raises `StoreError` where the store cannot be written.
    """
    store.compact()
