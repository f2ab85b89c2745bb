"""Chains of data pipes."""

from __future__ import annotations

import pickle

import pytest

from engine.random import Generator
from engine.utils.data import DataLoader, IterableDataset, IterDataPipe, functional_datapipe
from engine.utils.data.datapipes.iter import IterableWrapper
from engine.utils.data.graph_settings import apply_random_seed, apply_shuffle_settings


def _double(x: int) -> int:
    return 2 * x


def _is_even(x: int) -> bool:
    return x % 2 == 0


def test_a_chain() -> None:
    pipe = IterableWrapper(range(7)).map(_double).batch(3)
    assert list(pipe) == [[0, 2, 4], [6, 8, 10], [12]] and len(pipe) == 3
    assert list(IterableWrapper(range(7)).filter(_is_even).batch(3, drop_last=True)) == [[0, 2, 4]]
    assert isinstance(pipe, IterableDataset)
    assert list(pickle.loads(pickle.dumps(pipe))) == list(pipe)


def test_map_on_columns() -> None:
    assert list(IterableWrapper([(1, 2)]).map(_double, input_col=1)) == [(1, 4)]
    assert list(IterableWrapper([(1, 2)]).map(_double, input_col=0, output_col=-1)) == [(1, 2, 2)]
    assert list(IterableWrapper([{"a": 3}]).map(_double, input_col="a")) == [{"a": 6}]


def test_shuffling_follows_the_seed_and_can_be_switched_off() -> None:
    pipe = IterableWrapper(range(50)).shuffle(buffer_size=10)
    first = list(apply_random_seed(pipe, Generator().manual_seed(3)))
    assert sorted(first) == list(range(50)) and first != list(range(50))
    assert list(apply_random_seed(pipe, Generator().manual_seed(3))) == first
    assert list(apply_shuffle_settings(pipe.map(_double), False)) == [2 * x for x in range(50)]


def test_a_loader_reads_a_pipe() -> None:
    batches = [batch.tolist() for batch in DataLoader(IterableWrapper(range(5)), batch_size=2)]
    assert batches == [[0, 1], [2, 3], [4]]


def test_own_pipes_get_a_method() -> None:
    @functional_datapipe("thrice_for_this_test")
    class Thrice(IterDataPipe):
        def __init__(self, source: IterDataPipe) -> None:
            self.source = source

        def __iter__(self):
            return (3 * x for x in self.source)

    try:
        assert list(IterableWrapper([1, 2]).thrice_for_this_test()) == [3, 6]
        with pytest.raises(Exception, match="already taken"):
            functional_datapipe("thrice_for_this_test")(Thrice)
    finally:
        del IterDataPipe.functions["thrice_for_this_test"]
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        IterableWrapper([]).nothing  # noqa: B018
    with pytest.raises(TypeError, match="functional_datapipe"):
        functional_datapipe("x")(int)
