"""The cache of memory for large CPU arrays."""

from __future__ import annotations

import gc
import io
import os
import pickle
import threading

import ml_dtypes
import numpy as np
import pytest

import engine
from engine.backends.cpu import LARGE, allocator, empty
from engine.backends.cpu.allocator import Cache

FLOATS = LARGE // 4 + 1000  # just large, and no multiple of a page


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> Cache:
    """A cache of the test's own, of 16 MB."""
    made = Cache(16 << 20)
    monkeypatch.setattr(allocator, "_cache", made)
    return made


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "bool", "int16", ml_dtypes.bfloat16])
def test_arrays_are_aligned_and_end_where_their_elements_do(cache: Cache, dtype: object) -> None:
    array = empty((7, 300_001), dtype)
    assert array.dtype == dtype and array.shape == (7, 300_001)
    assert address(array) % 64 == 0
    assert array.flags.c_contiguous and array.flags.writeable
    root = array if array.base.__class__ is not np.ndarray else array.base
    assert root.nbytes == array.nbytes == 7 * 300_001 * np.dtype(dtype).itemsize
    array[...] = 1
    assert (array == 1).all()


def test_order_of_dims(cache: Cache) -> None:
    array = empty((4, 300, 5, 70), np.float32, (0, 2, 3, 1))
    assert array.transpose(0, 2, 3, 1).flags.c_contiguous
    small = empty((2, 3, 4), np.float32, (0, 2, 1))
    assert small.transpose(0, 2, 1).flags.c_contiguous


def test_small_arrays_are_numpys_own(cache: Cache) -> None:
    assert empty((LARGE - 1,), np.uint8).base is None
    assert cache.stats()["allocation.all.allocated"] == 0


@pytest.mark.parametrize(
    "hold",
    [
        lambda a: a[3:],
        lambda a: a.reshape(-1, 2).T,
        lambda a: a.view(np.uint8)[10:],
        lambda a: memoryview(a),
        lambda a: np.ndarray((4,), np.float32, a, 40),
        lambda a: np.from_dlpack(a),
        lambda a: engine.from_numpy(a).untyped_storage(),
        lambda a: engine.from_numpy(a).view(2, -1)[1],
        lambda a: pickle.PickleBuffer(a),
    ],
)
def test_memory_returns_when_nothing_refers_to_it(cache: Cache, hold: object) -> None:
    array = empty((FLOATS,))
    was = address(array)
    held = hold(array)  # type: ignore[operator]
    del array
    assert cache.stats()["allocation.all.current"] == 1
    assert address(empty((FLOATS,))) != was
    del held
    assert cache.stats()["allocation.all.current"] == 0
    found = [empty((FLOATS,)) for _ in range(2)]
    assert was in [address(a) for a in found]


def test_a_block_serves_another_shape_of_about_its_size(cache: Cache) -> None:
    first = empty((FLOATS,))
    was = address(first)
    del first
    assert address(empty((FLOATS // 2 + 3000,), np.float64)) == was
    del was
    stats = cache.stats()
    assert stats["num_cache_hits"] == 1 and stats["cached_bytes.all.current"] == stats["reserved_bytes.all.current"]


def test_free_memory_is_bounded_and_the_oldest_goes_first(cache: Cache) -> None:
    arrays = [empty((6 << 20,), np.uint8) for _ in range(3)]
    addresses = [address(a) for a in arrays]
    assert cache.stats()["allocated_bytes.all.current"] == 18 << 20
    while arrays:
        arrays.pop(0)
    assert cache.stats()["cached_bytes.all.current"] == 12 << 20
    again = [address(a) for a in [empty((6 << 20,), np.uint8) for _ in range(2)]]
    assert sorted(again) == sorted(addresses[1:])
    assert empty((17 << 20,), np.uint8).size  # larger than the bound: never kept
    assert cache.stats()["cached_bytes.all.current"] <= 16 << 20


def test_failure_empties_the_cache_and_tries_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    empty((4 << 20,), np.uint8)
    assert cache.stats()["cached_bytes.all.current"] == 4 << 20
    real, calls = allocator.Block, []

    def block(size: int) -> object:
        calls.append(cache.free_bytes)
        if len(calls) == 1:
            raise OSError(12, "Cannot allocate memory")
        return real(size)

    monkeypatch.setattr(allocator, "Block", block)
    assert empty((9 << 20,), np.uint8).size == 9 << 20
    assert calls == [4 << 20, 0]
    assert cache.stats()["num_alloc_retries"] == 1


def test_what_cannot_be_had_is_a_memory_error(cache: Cache) -> None:
    with pytest.raises(MemoryError, match="can't allocate memory: you tried to allocate"):
        empty((1 << 60,), np.uint8)


def test_an_op_that_runs_out_of_memory_is_tried_again() -> None:
    """What numpy allocates inside a kernel can fail as well; the cache is emptied then."""
    x = engine.ones(8)
    keep = empty((LARGE,), np.uint8)
    del keep
    assert engine.memory_stats()["cached_bytes.all.current"] > 0
    failures = [MemoryError("first")]

    def kernel(xp: object, input: np.ndarray) -> np.ndarray:
        if failures:
            raise failures.pop()
        return np.exp(input)

    x.exp()  # compiled now
    (namespace,) = [n for n in engine.dispatch.OPS["exp"].namespaces if n["_name"] == "exp"]
    was, namespace["kernel"] = namespace["kernel"], kernel
    try:
        assert engine.allclose(engine.exp(x), engine.full((8,), np.e))
        assert engine.memory_stats()["cached_bytes.all.current"] == 0
    finally:
        namespace["kernel"] = was


def test_giving_back_while_the_cache_is_busy(cache: Cache) -> None:
    """A garbage collection inside the cache may end arrays: they must not wait for its lock."""
    array = empty((FLOATS,))
    with cache.lock:
        del array
        assert len(cache.returned) == 1
    assert cache.stats()["allocation.all.current"] == 0
    assert cache.stats()["cached_bytes.all.current"] > 0


def test_threads(cache: Cache) -> None:
    """No block is handed out twice."""
    wrong = []

    def work(mark: int) -> None:
        for i in range(60):
            array = empty((FLOATS + 5000 * (i % 3),), np.int32)
            array[::4096] = mark * 1000 + i
            view = array[5:]
            del array
            if not (view[-5::-4096][:0] == 0).all() or not np.isin(view, mark * 1000 + i)[4091::4096].all():
                wrong.append(i)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    gc.collect()
    assert not wrong
    assert cache.stats()["allocation.all.current"] == 0
    assert cache.stats()["allocation.all.allocated"] == 240


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork() -> None:
    """A child starts without free blocks, reads what the parent wrote and disturbs nothing there."""
    kept = empty((FLOATS,))
    kept[...] = 7
    free = empty((FLOATS,))
    del free
    pid = os.fork()
    if not pid:
        code = 1
        try:
            good = engine.memory_stats()["cached_bytes.all.current"] == 0 and (kept == 7).all()
            other = empty((FLOATS,))
            other[...] = 3
            kept[...] = 5
            code = 0 if good and (other == 3).all() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert (kept == 7).all()


def test_results_of_large_ops_come_from_the_cache_and_users_arrays_do_not() -> None:
    mine = np.ones(FLOATS, np.float32)
    x = engine.from_numpy(mine)
    before = engine.memory_stats()["allocation.all.current"]
    y = x + x
    assert engine.memory_stats()["allocation.all.current"] == before + 1
    assert mine.base is None and (mine * 2).base is None
    assert y._is_view() is False and y.storage_offset() == 0
    assert y.untyped_storage().nbytes() == FLOATS * 4
    assert y.data_ptr() % 64 == 0


def test_a_checkpoint_ends_where_the_tensor_ends() -> None:
    y = engine.zeros(FLOATS) + 1
    file = io.BytesIO()
    engine.save({"y": y, "part": y[10:20]}, file)
    assert file.tell() < FLOATS * 4 + 4096
    file.seek(0)
    loaded = engine.load(file)
    assert (loaded["y"] == 1).all() and loaded["part"].storage_offset() == 10
    assert loaded["part"].data_ptr() == loaded["y"].data_ptr() + 40
    assert len(pickle.dumps(y)) < FLOATS * 4 + 4096


def test_gradients_are_taken_over_without_a_copy() -> None:
    x = engine.ones(FLOATS).requires_grad_()
    seen = []

    class Times(engine.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            return x * 2

        @staticmethod
        def backward(ctx, grad):  # type: ignore[no-untyped-def]
            made = grad * 2
            seen.append(made.data_ptr())
            return made

    Times.apply(x).sum().backward()
    assert x.grad is not None and x.grad.data_ptr() == seen[0]
    before = x.grad.data_ptr()
    Times.apply(x).sum().backward()
    assert x.grad.data_ptr() == before and (x.grad == 4).all()


def test_public_names() -> None:
    keep = empty((FLOATS,))
    stats = engine.memory_stats()
    assert stats["allocated_bytes.all.current"] >= keep.nbytes
    assert stats["reserved_bytes.all.current"] >= stats["allocated_bytes.all.current"]
    assert engine.cpu.memory_allocated() == stats["allocated_bytes.all.current"]
    del keep
    assert engine.cpu.memory_stats()["cached_bytes.all.current"] > 0
    engine.cpu.empty_cache()
    assert engine.memory_stats()["cached_bytes.all.current"] == 0
    engine.cpu.reset_peak_memory_stats()
    assert engine.cpu.max_memory_allocated() == engine.cpu.memory_allocated()


def test_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_CACHE_MB", "3")
    assert allocator._limit() == 3 << 20
    monkeypatch.setenv("ENGINE_CACHE_MB", "lots")
    with pytest.raises(ValueError, match="ENGINE_CACHE_MB must be a whole number of megabytes, not 'lots'"):
        allocator._limit()
    monkeypatch.delenv("ENGINE_CACHE_MB")
    assert 0 < allocator._limit() < 1 << 46
