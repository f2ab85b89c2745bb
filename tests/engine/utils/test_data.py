"""engine.utils.data: data sets, samplers, collating."""

from collections import Counter, OrderedDict, namedtuple
from itertools import chain

import numpy as np
import pytest

import engine
from engine.utils import data

Point = namedtuple("Point", ["x", "y"])


def generator(seed=0):
    return engine.Generator().manual_seed(seed)


def test_datasets():
    x, y = engine.arange(6.0).view(3, 2), engine.arange(3)
    tensors = data.TensorDataset(x, y)
    assert len(tensors) == 3 and tensors[1][0].tolist() == [2, 3] and tensors[-1][1].item() == 2
    both = tensors + data.TensorDataset(x + 10, y)
    assert isinstance(both, data.ConcatDataset) and len(both) == 6
    assert both[4][0].tolist() == [12, 13] and both[-6][0].tolist() == [0, 1]
    subset = data.Subset(both, [5, 0])
    assert subset[0][0].tolist() == [14, 15] and len(subset) == 2
    stack = data.StackDataset(image=range(3), label=["a", "b", "c"])
    assert stack[1] == {"image": 1, "label": "b"} and len(stack) == 3
    assert data.StackDataset(range(3), range(3, 6))[2] == (2, 5)
    with pytest.raises(AssertionError, match="Size mismatch"):
        data.TensorDataset(x, engine.arange(4))
    with pytest.raises(ValueError, match="Size mismatch"):
        data.StackDataset(range(3), range(4))
    with pytest.raises(ValueError, match="absolute value of index"):
        both[-7]
    with pytest.raises(AssertionError, match="empty iterable"):
        data.ConcatDataset([])
    with pytest.raises(NotImplementedError):
        data.Dataset()[0]


class Stream(data.IterableDataset):
    def __init__(self, *items):
        self.items = items

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return len(self.items)


def test_streams():
    chained = Stream(1, 2) + Stream(3)
    assert isinstance(chained, data.ChainDataset)
    assert list(chained) == [1, 2, 3] and len(chained) == 3
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        data.ConcatDataset([Stream(1)])
    assert [b.tolist() for b in data.DataLoader(chained, batch_size=2)] == [[1, 2], [3]]
    assert [b.tolist() for b in data.DataLoader(chained, batch_size=2, drop_last=True)] == [[1, 2]]
    assert list(data.DataLoader(chained, batch_size=None)) == [1, 2, 3]


def test_random_split():
    parts = data.random_split(range(10), [7, 3], generator=generator())
    assert [len(p) for p in parts] == [7, 3]
    assert sorted([*parts[0], *parts[1]]) == list(range(10))
    again = data.random_split(range(10), [7, 3], generator=generator())
    assert list(again[0]) == list(parts[0])
    assert [len(p) for p in data.random_split(range(10), [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match="Sum of input lengths does not equal"):
        data.random_split(range(10), [7, 4])
    with pytest.warns(UserWarning, match="index 1 is 0"):
        data.random_split(range(2), [1.0, 0.0])


def test_samplers():
    assert list(data.SequentialSampler(range(3))) == [0, 1, 2]
    assert sorted(data.RandomSampler(range(40))) == list(range(40))
    drawn = list(data.RandomSampler(range(3), replacement=True, num_samples=100))
    assert len(drawn) == 100 and set(drawn) == {0, 1, 2}
    more = list(data.RandomSampler(range(3), num_samples=7))
    assert len(more) == 7 and set(Counter(more).values()) <= {2, 3}
    assert sorted(data.SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    assert set(data.WeightedRandomSampler([0.0, 1.0, 3.0], 50)) == {1, 2}
    assert sorted(data.WeightedRandomSampler([1.0, 1.0], 2, replacement=False)) == [0, 1]
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, False)
    assert list(batches) == [[0, 1], [2, 3], [4]] and len(batches) == 3
    batches = data.BatchSampler(data.SequentialSampler(range(5)), 2, True)
    assert list(batches) == [[0, 1], [2, 3]] and len(batches) == 2
    assert not list(data.RandomSampler([]))
    for wrong in (
        lambda: data.BatchSampler([], 0, False),
        lambda: data.BatchSampler([], 1, 0),
        lambda: data.WeightedRandomSampler([1.0], 0),
        lambda: data.WeightedRandomSampler([[1.0]], 1),
        lambda: data.RandomSampler([1], num_samples=-1),
    ):
        with pytest.raises(ValueError, match="should be"):
            wrong()


def test_distributed_sampler():
    def shares(**options):
        return [list(data.distributed.DistributedSampler(range(10), 4, rank, **options)) for rank in range(4)]

    assert shares(shuffle=False) == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert shares(shuffle=False, drop_last=True) == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert set(chain(*shares(seed=3))) == set(range(10))
    sampler = data.DistributedSampler(range(10), 1, 0)
    first = list(sampler)
    assert list(sampler) == first
    sampler.set_epoch(1)
    assert list(sampler) != first and len(sampler) == 10
    with pytest.raises(ValueError, match="Invalid rank 4"):
        data.DistributedSampler(range(10), 4, 4)


def test_collate():
    from engine.utils.data._utils.collate import default_collate as same

    assert data.default_collate is same is data.dataloader.default_collate
    items = [
        {"t": engine.ones(2) * i, "n": i, "f": i / 2, "s": str(i), "p": Point(i, np.ones(2) * i), "l": [i, (i, True)]}
        for i in range(3)
    ]
    batch = data.default_collate(items)
    assert batch["t"].tolist() == [[0, 0], [1, 1], [2, 2]]
    assert batch["n"].dtype == engine.int64 and batch["f"].dtype == engine.float64
    assert batch["s"] == ["0", "1", "2"]
    assert type(batch["p"]) is Point and batch["p"].y.shape == (3, 2)
    assert batch["l"][0].tolist() == [0, 1, 2] and batch["l"][1][1].dtype == engine.bool
    scalars = data.default_collate([np.float32(1), np.float32(2)])
    assert scalars.dtype == engine.float32 and scalars.tolist() == [1, 2]
    assert type(data.default_collate([OrderedDict(a=1)])) is OrderedDict
    with pytest.raises(RuntimeError, match="should be of equal size"):
        data.default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="batch must contain tensors, numpy arrays, numbers"):
        data.default_collate([object()])
    with pytest.raises(TypeError, match="found <U1"):
        data.default_collate([np.array(["a"])])


def test_convert():
    converted = data.default_convert({"a": np.arange(2), "b": (np.float64(3), "text"), "c": 4})
    assert converted["a"].tolist() == [0, 1] and converted["b"][0].item() == 3
    assert converted["b"][1] == "text" and converted["c"] == 4


def test_a_sampler_of_ones_own():
    class Backwards(data.Sampler):
        def __iter__(self):
            return iter((3, 1, 0))

        def __len__(self):
            return 3

    loader = data.DataLoader(list("abcd"), sampler=Backwards(), batch_size=2)
    assert list(loader) == [["d", "b"], ["a"]] and len(loader) == 2
