"""Getting items from a data set by index, or from a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["create_fetcher"]


class _MapDatasetFetcher:
    """Items by index: `fetch(index)`, or `fetch(list of indices)` for a batch."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any]) -> None:
        self.dataset, self.auto_collation, self.collate_fn = dataset, auto_collation, collate_fn

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The collated item or batch."""
        if not self.auto_collation:
            return self.collate_fn(self.dataset[possibly_batched_index])
        many = getattr(self.dataset, "__getitems__", None)
        if many:
            return self.collate_fn(many(possibly_batched_index))
        return self.collate_fn([self.dataset[i] for i in possibly_batched_index])


class _IterableDatasetFetcher:
    """Items of a stream: only the number of indices counts.  StopIteration at the end."""

    def __init__(self, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.auto_collation, self.collate_fn, self.drop_last = auto_collation, collate_fn, drop_last
        self.items = iter(dataset)
        self.ended = False

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The next collated item or batch."""
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return self.collate_fn(next(self.items))
        indices: Sequence[Any] = possibly_batched_index
        batch = []
        for _ in indices:
            try:
                batch.append(next(self.items))
            except StopIteration:
                self.ended = True
                break
        if not batch or (self.drop_last and len(batch) < len(indices)):
            raise StopIteration
        return self.collate_fn(batch)


def create_fetcher(
    iterable: bool, dataset: Any, auto_collation: bool, collate_fn: Callable[[Any], Any], drop_last: bool
) -> Any:
    """The fetcher for a data set of either kind."""
    if iterable:
        return _IterableDatasetFetcher(dataset, auto_collation, collate_fn, drop_last)
    return _MapDatasetFetcher(dataset, auto_collation, collate_fn)
