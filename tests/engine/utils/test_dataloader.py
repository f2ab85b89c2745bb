"""engine.utils.data.DataLoader in this process and with workers."""

import os
import time
from itertools import chain

import numpy as np
import pytest

import engine
from engine.utils import data


class Squares(data.Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        return {"x": engine.full((2,), float(i)), "y": i * i}


class Broken(Squares):
    def __getitem__(self, i):
        if i == 2:
            raise KeyError("no item two")
        return i


class Dying(Squares):
    def __getitem__(self, i):
        os._exit(3)


class Slow(Squares):
    def __getitem__(self, i):
        time.sleep(0.3 if i == 0 else 0)
        return i


class Sleeping(Squares):
    def __getitem__(self, i):
        time.sleep(30)


class Who(Squares):
    def __getitem__(self, i):
        info = data.get_worker_info()
        return info.id, info.num_workers, info.seed, len(info.dataset), os.getpid()


class Draws(Squares):
    def __getitem__(self, i):
        return engine.rand(1).item(), np.random.rand(), os.environ.get("ENGINE_TEST_WORKER", "")


class Shared(data.IterableDataset):
    """0 .. count - 1, worker k the items k, k + n, ..."""

    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.count, step))


def mark(worker):
    os.environ["ENGINE_TEST_WORKER"] = f"w{worker}"


def as_is(batch):
    return batch


def seeded(**options):
    return data.DataLoader(
        Squares(10), batch_size=3, shuffle=True, generator=engine.Generator().manual_seed(5), **options
    )


def values(loader):
    return [b["y"].tolist() for b in loader]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_order(workers):
    loader = data.DataLoader(Squares(7), batch_size=3, num_workers=workers)
    assert len(loader) == 3
    batches = list(loader)
    assert [b["y"].tolist() for b in batches] == [[0, 1, 4], [9, 16, 25], [36]]
    assert batches[0]["x"].shape == (3, 2)
    assert values(loader) == [[0, 1, 4], [9, 16, 25], [36]]
    assert values(data.DataLoader(Squares(7), 3, num_workers=workers, drop_last=True)) == [[0, 1, 4], [9, 16, 25]]


def test_seeded_order_does_not_depend_on_workers():
    loader = seeded()
    first, second = values(loader), values(loader)
    assert first != second and sorted(chain(*first)) == [i * i for i in range(10)]
    other = seeded(num_workers=2)
    assert [values(other), values(other)] == [first, second]
    engine.manual_seed(3)
    a = values(data.DataLoader(Squares(10), shuffle=True))
    engine.manual_seed(3)
    assert values(data.DataLoader(Squares(10), shuffle=True)) == a


def test_slow_worker_keeps_order():
    loader = data.DataLoader(Slow(6), batch_size=1, num_workers=3, prefetch_factor=1)
    assert [b.item() for b in loader] == list(range(6))
    loader = data.DataLoader(Slow(6), batch_size=1, num_workers=2, in_order=False)
    assert sorted(b.item() for b in loader) == list(range(6))


def test_spawn():
    loader = data.DataLoader(
        Draws(4), num_workers=2, multiprocessing_context="spawn", worker_init_fn=mark, collate_fn=as_is
    )
    assert [batch[0][2] for batch in loader] == ["w0", "w1", "w0", "w1"]


def test_worker_info_and_seeds():
    assert data.get_worker_info() is None
    rows = list(data.DataLoader(Who(4), batch_size=None, num_workers=2))
    assert [r[:2] for r in rows] == [[0, 2], [1, 2]] * 2
    assert rows[1][2] == rows[0][2] + 1 and rows[0][3] == 4
    assert len({r[4] for r in rows}) == 2 and os.getpid() not in {r[4] for r in rows}

    def draws():
        options = {"num_workers": 2, "batch_size": None, "generator": engine.Generator().manual_seed(1)}
        return [row[:2] for row in data.DataLoader(Draws(4), **options)]

    first = draws()
    assert first == draws()
    assert len({row[0] for row in first}) == 4 and len({row[1] for row in first}) == 4


def test_persistent_workers():
    loader = data.DataLoader(Who(4), batch_size=None, num_workers=2, persistent_workers=True)
    pids = [{row[4] for row in loader} for _ in range(3)]
    assert pids[0] == pids[1] == pids[2]
    next(iter(loader))  # left early
    assert len(list(loader)) == 4
    fresh = data.DataLoader(Who(4), batch_size=None, num_workers=2)
    assert {row[4] for row in fresh}.isdisjoint({row[4] for row in fresh})
    stream = data.DataLoader(Shared(7), batch_size=2, num_workers=2, persistent_workers=True)
    for _ in range(2):
        assert sorted(chain(*(b.tolist() for b in stream))) == list(range(7))
    next(iter(stream))
    assert sorted(chain(*(b.tolist() for b in stream))) == list(range(7))


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_streams(workers):
    loader = data.DataLoader(Shared(10), batch_size=2, num_workers=workers)
    assert sorted(chain(*(b.tolist() for b in loader))) == list(range(10))
    assert not list(data.DataLoader(Shared(0), num_workers=workers))


@pytest.mark.parametrize("workers", [0, 2])
def test_errors_of_items(workers):
    loader = data.DataLoader(Broken(5), batch_size=1, num_workers=workers)
    items = iter(loader)
    assert [next(items).item(), next(items).item()] == [0, 1]
    with pytest.raises(KeyError, match="no item two") as caught:
        next(items)
    if workers:
        assert "Caught KeyError in DataLoader worker process 0" in str(caught.value)
        assert "__getitem__" in str(caught.value)
        assert next(items).item() == 3


def test_unpicklable_items():
    loader = data.DataLoader(Squares(2), num_workers=1, collate_fn=lambda batch: lambda: batch)
    with pytest.raises((AttributeError, RuntimeError), match="in DataLoader worker process 0"):
        next(iter(loader))


def test_dead_worker(monkeypatch):
    monkeypatch.setattr(data.dataloader, "MP_STATUS_CHECK_INTERVAL", 0.1)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        next(iter(data.DataLoader(Dying(2), num_workers=1)))


def test_timeout(monkeypatch):
    monkeypatch.setattr(data.dataloader, "MP_STATUS_CHECK_INTERVAL", 0.2)
    with pytest.raises(RuntimeError, match=r"timed out after 0.3 seconds"):
        next(iter(data.DataLoader(Sleeping(2), num_workers=1, timeout=0.3)))


def test_left_early_leaves_no_process():
    import multiprocessing

    before = set(multiprocessing.active_children())
    items = iter(data.DataLoader(Squares(50), num_workers=2))
    next(items)
    assert set(multiprocessing.active_children()) - before
    del items
    assert not set(multiprocessing.active_children()) - before


def test_other_forms():
    loader = data.DataLoader(Squares(4), batch_sampler=[[3, 0], [1]])
    assert values(loader) == [[9, 0], [1]] and len(loader) == 2
    assert values(data.DataLoader(Squares(4), batch_size=2, sampler=[2, 1, 0])) == [[4, 1], [0]]
    single = list(data.DataLoader(Squares(2), batch_size=None))
    assert single[1]["y"] == 1
    assert data.DataLoader([1, 2], collate_fn=as_is, batch_size=2, pin_memory=True).__iter__().__next__() == [1, 2]
    loader = data.DataLoader(data.TensorDataset(engine.arange(3.0, requires_grad=True)), batch_size=3)
    assert next(iter(loader))[0].requires_grad


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"num_workers": -1}, "num_workers option should be non-negative"),
        ({"timeout": -1}, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, "prefetch_factor option could only be specified"),
        ({"persistent_workers": True}, "persistent_workers option needs num_workers > 0"),
        ({"sampler": [0], "shuffle": True}, "sampler option is mutually exclusive with shuffle"),
        ({"batch_sampler": [[0]], "batch_size": 2}, "batch_sampler option is mutually exclusive"),
        ({"batch_size": None, "drop_last": True}, "batch_size=None option disables auto-batching"),
        ({"batch_size": 0}, "batch_size should be a positive integer"),
        ({"num_workers": 1, "multiprocessing_context": "bus"}, "should specify a valid start method"),
        ({"multiprocessing_context": "spawn"}, "only be used with multi-process loading"),
    ],
)
def test_refused_options(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        data.DataLoader(Squares(3), **options)


def test_refused_for_streams():
    for name, value in {"shuffle": True, "sampler": [0], "batch_sampler": [[0]]}.items():
        with pytest.raises(ValueError, match=f"expected unspecified {name} option"):
            data.DataLoader(Shared(3), **{name: value})
    loader = data.DataLoader(Squares(3))
    with pytest.raises(ValueError, match="batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 4
