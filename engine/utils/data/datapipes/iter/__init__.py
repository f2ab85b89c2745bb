"""The commonest pipes of streams: wrap, map, filter, batch, shuffle."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.random import default_generator
from engine.utils.data.dataloader import default_collate
from engine.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe

__all__ = ["Batcher", "Collator", "Filter", "IterDataPipe", "IterableWrapper", "Mapper", "Shuffler"]


class IterableWrapper(IterDataPipe):
    """A pipe of an iterable's values; a copy of it, unless deepcopy is False."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable, self.deepcopy = iterable, deepcopy

    def __iter__(self) -> Iterator[Any]:
        source = self.iterable
        if self.deepcopy:
            try:
                source = copy.deepcopy(source)
            except TypeError:  # a generator
                source = self.iterable
        yield from source

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]


@functional_datapipe("map")
class Mapper(IterDataPipe):
    """fn(x) of every x; of the column `input_col` of it, put into `output_col`."""

    def __init__(self, datapipe: Any, fn: Callable[..., Any], input_col: Any = None, output_col: Any = None) -> None:
        self.datapipe, self.fn, self.input_col, self.output_col = datapipe, fn, input_col, output_col
        if input_col is None and output_col is not None:
            raise ValueError("`output_col` must be None when `input_col` is None.")

    def _one(self, x: Any) -> Any:
        column = self.input_col
        if column is None:
            return self.fn(x)
        found = self.fn(*(x[c] for c in column)) if isinstance(column, list | tuple) else self.fn(x[column])
        target = self.output_col
        if target is None:
            target = column[0] if isinstance(column, list | tuple) else column
        values: Any = dict(x) if isinstance(x, dict) else list(x)
        if target == -1 and not isinstance(x, dict):
            values.append(found)
        else:
            values[target] = found
        return tuple(values) if isinstance(x, tuple) else values

    def __iter__(self) -> Iterator[Any]:
        return map(self._one, self.datapipe)

    def __len__(self) -> int:
        return len(self.datapipe)


@functional_datapipe("filter")
class Filter(IterDataPipe):
    """The values for which filter_fn(x), or of its column `input_col`, is true."""

    def __init__(self, datapipe: Any, filter_fn: Callable[..., Any], input_col: Any = None) -> None:
        self.datapipe, self.filter_fn, self.input_col = datapipe, filter_fn, input_col

    def __iter__(self) -> Iterator[Any]:
        column = self.input_col
        return (x for x in self.datapipe if self.filter_fn(x if column is None else x[column]))


@functional_datapipe("batch")
class Batcher(IterDataPipe):
    """Lists of `batch_size` values."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = list) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe, self.batch_size, self.drop_last, self.wrapper_class = (
            datapipe,
            batch_size,
            drop_last,
            wrapper_class,
        )

    def __iter__(self) -> Iterator[Any]:
        batch: list[Any] = []
        for x in self.datapipe:
            batch.append(x)
            if len(batch) == self.batch_size:
                yield self.wrapper_class(batch)
                batch = []
        if batch and not self.drop_last:
            yield self.wrapper_class(batch)

    def __len__(self) -> int:
        more = 0 if self.drop_last else self.batch_size - 1
        return (len(self.datapipe) + more) // self.batch_size


@functional_datapipe("collate")
class Collator(Mapper):
    """collate_fn(x) of every x."""

    def __init__(self, datapipe: Any, collate_fn: Callable[..., Any] = default_collate) -> None:
        super().__init__(datapipe, collate_fn)


@functional_datapipe("shuffle")
class Shuffler(IterDataPipe):
    """The values in random order, from a buffer of `buffer_size`."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise ValueError("buffer_size should be larger than 0")
        if unbatch_level:
            raise NotImplementedError("shuffle(unbatch_level=...) is not supported")
        self.datapipe, self.buffer_size = datapipe, buffer_size
        self._enabled, self._seed = True, None

    def set_shuffle(self, shuffle: bool = True) -> Shuffler:
        """Return whether the order is changed."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Shuffler:
        """The seed of the next pass."""
        self._seed = seed
        return self

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        seed, self._seed = self._seed, None
        if seed is None:
            from engine.ops import functions as torch

            seed = int(torch.randint(0, 2**62, (), generator=default_generator))
        chance = random.Random(seed)
        buffer: list[Any] = []
        for x in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(x)
                continue
            place = chance.randrange(len(buffer))
            yield buffer[place]
            buffer[place] = x
        chance.shuffle(buffer)
        yield from buffer

    def __len__(self) -> int:
        return len(self.datapipe)


ShufflerIterDataPipe = Shuffler
