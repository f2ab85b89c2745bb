"""Shared storages: moving, aliases, other processes, and what is left behind."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import engine
import engine.multiprocessing as mp
from engine import nn
from engine.multiprocessing import reductions

STRATEGIES = sorted(mp.get_all_sharing_strategies())


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> Iterator[str]:
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)


def test_the_strategies() -> None:
    assert mp.get_sharing_strategy() in STRATEGIES
    with pytest.raises(AssertionError, match="invalid sharing strategy 'x', expected one of"):
        mp.set_sharing_strategy("x")


def test_every_alias_follows_its_storage(strategy: str) -> None:
    base = engine.arange(6.0)
    view, detached, storage, other = base[2:], base.detach(), base.storage(), engine.ones(6)
    transposed = base.view(2, 3).t()
    assert not base.is_shared() and not storage.is_shared()
    address = base.data_ptr()
    assert view.share_memory_() is view
    assert all(x.is_shared() for x in (base, view, detached, storage, transposed))
    assert not other.is_shared()
    assert base.data_ptr() != address and view.data_ptr() == base.data_ptr() + 8
    view[0] = 9
    assert base[2] == detached[2] == storage[2] == transposed[2, 0] == 9
    assert base.storage() == storage
    assert transposed.stride() == (1, 3)
    again = base.data_ptr()
    base.share_memory_()
    assert base.data_ptr() == again  # it is there already


ALIASES = {
    "detach": lambda t: t.detach(),
    "data": lambda t: t.data,
    "subclass": nn.Parameter,
    "set_": lambda t: engine.empty(0).set_(t),
    "set_ of a storage": lambda t: engine.empty(0).set_(t.storage()),
    "data =": lambda t: [new := engine.empty(0), setattr(new, "data", t)][0],
    "other dtype": lambda t: t.view(engine.int32),
    "copy": lambda t: __import__("copy").copy(t),
    "view of a view": lambda t: t[1:].view(-1, 1).t(),
    "several": lambda t: t.split(2)[1],
    "unbind": lambda t: t.unbind()[3],
    "reshape": lambda t: t.reshape(2, 3),
    "alias of an alias": lambda t: t.detach()[2:].data,
}


@pytest.mark.parametrize("how", ALIASES)
def test_whatever_shares_memory_follows(how: str) -> None:
    base = engine.arange(6.0)
    before = ALIASES[how](base)  # made before any storage has moved with its tensors, in some order of the tests
    engine.arange(4.0)[1:].share_memory_()
    after = ALIASES[how](base)
    offsets = [t.data_ptr() - base.data_ptr() for t in (before, after)]
    base.share_memory_()
    assert before.is_shared() and after.is_shared()
    assert [t.data_ptr() - base.data_ptr() for t in (before, after)] == offsets
    old = engine.arange(6.0)
    fresh = ALIASES[how](old)
    fresh.share_memory_()  # the other way round
    assert old.is_shared() and old.tolist() == [0, 1, 2, 3, 4, 5]


def test_moving_does_not_depend_on_how_much_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the process's objects nor its other tensors are looked at; views of other storages cost nothing."""
    base = engine.arange(4.0)
    view = base[1:]
    view.share_memory_()  # storages know their tensors from here on
    steps = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal steps
        steps += event in ("call", "c_call")

    def cost() -> int:
        nonlocal steps
        base = engine.arange(4.0)
        views, steps = [base[1:], base.detach()], 0
        gc.disable()  # what a collection finalizes would be counted, too
        sys.setprofile(count)
        try:
            base.share_memory_()
        finally:
            sys.setprofile(None)
            gc.enable()
        assert all(v.is_shared() for v in views)
        return steps

    def refuse(*args: Any) -> Any:
        raise AssertionError("all objects of the process are walked")

    monkeypatch.setattr(gc, "get_objects", refuse)
    monkeypatch.setattr(gc, "get_referrers", refuse)
    cost()
    few = cost()
    others = [engine.ones(3) for _ in range(2000)]
    kept = [[t[1:], t.data] for t in others]
    assert cost() == few and len(kept) == 2000


def test_a_tensor_that_went_is_forgotten() -> None:
    import weakref

    base = engine.arange(4.0)
    base[1:].share_memory_()
    for _ in range(100):
        base[0]
    kept = base[2:]
    assert len(weakref.getweakrefs(base._array.base if base._array.base is not None else base._array)) < 10
    assert kept.is_shared()


def test_a_storage_moves_its_tensors(strategy: str) -> None:
    tensor = engine.ones(3)
    storage = tensor.untyped_storage()
    assert storage.share_memory_() is storage
    assert tensor.is_shared() and tensor.tolist() == [1, 1, 1]


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "complex64", "int8"])
def test_every_dtype_and_stride(dtype: str) -> None:
    tensor = (engine.arange(12).reshape(3, 4) % 2).to(getattr(engine, dtype)).t()[1:]
    kept = tensor.clone()
    tensor.share_memory_()
    assert tensor.dtype is kept.dtype and tensor.stride() == (1, 4)
    assert bool((tensor == kept).all())


def test_no_elements_and_large_ones() -> None:
    assert engine.ones(0).share_memory_().is_shared()
    large = engine.full((1 << 20,), 2.0)
    assert large.share_memory_().is_shared() and large.sum() == 2**21


def test_a_module_and_its_history() -> None:
    linear = nn.Linear(3, 2)
    out = linear(engine.ones(1, 3)).sum()
    assert linear.share_memory() is linear
    assert linear.weight.is_shared() and linear.weight.is_leaf
    out.backward()
    with engine.no_grad():
        linear.weight.sub_(linear.weight.grad)
    assert linear.weight.is_shared()


def test_plain_pickling_stays_by_value() -> None:
    shared = engine.ones(2).share_memory_()
    twin = pickle.loads(pickle.dumps(shared))
    assert not twin.is_shared()
    twin[0] = 5
    assert shared[0] == 1


def test_a_tensor_with_history_is_refused() -> None:
    result = engine.ones(2, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        reductions.reduce_tensor(result)


def _change(tensor: Any, view: Any, parameter: Any, results: Any, go: Any) -> None:
    assert tensor.is_shared() and view.data_ptr() == tensor.data_ptr() + 4
    tensor[0] += 5
    view[0] = 7
    results.put((type(parameter).__name__, parameter.requires_grad, parameter.is_shared()))
    results.put(tensor)
    results.put(engine.full((3,), 4.0))
    go.wait(60)


def test_both_processes_see_writes(strategy: str) -> None:
    context = mp.get_context("spawn")
    results, go = context.Queue(), context.Event()
    tensor = engine.zeros(4)
    view, parameter = tensor[1:], nn.Parameter(engine.ones(2))
    process = context.Process(target=_change, args=(tensor, view, parameter, results, go))
    process.start()
    try:
        assert results.get(timeout=60) == ("Parameter", True, True)
        back, new = results.get(timeout=60), results.get(timeout=60)
        assert tensor.tolist() == [5, 7, 0, 0] and view[0] == 7
        assert back.data_ptr() == tensor.data_ptr() and back.storage() == tensor.storage()
        assert new.tolist() == [4, 4, 4] and new.is_shared()
    finally:
        go.set()
        process.join(60)
    assert process.exitcode == 0
    assert new.tolist() == [4, 4, 4]  # outlives its maker


def _named() -> set[str]:
    folder = Path("/dev/shm")
    return {p.name for p in folder.glob(f"torch_{os.getpid()}_*")} if folder.is_dir() else set()


@pytest.mark.long
def test_nothing_is_left_when_the_last_holder_goes(strategy: str) -> None:
    descriptors = Path("/proc/self/fd")
    engine.ones(1).share_memory_()  # the connection to the manager
    before = len(list(descriptors.iterdir())) if descriptors.is_dir() else 0
    tensors = [engine.ones(8).share_memory_() for _ in range(5)]
    views = [t[1:] for t in tensors]
    if strategy == "file_system" and Path("/dev/shm").is_dir():
        assert len(_named()) >= 5
    del tensors
    assert all(v.is_shared() and v.sum() == 7 for v in views)
    del views
    gc.collect()
    assert not _named()
    if before:
        assert len(list(descriptors.iterdir())) <= before


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm to look into")
def test_a_killed_process_leaves_nothing(strategy: str) -> None:
    script = f"""
        import sys, time
        import engine, engine.multiprocessing as mp
        mp.set_sharing_strategy({strategy!r})
        tensor = engine.ones(1000).share_memory_()
        print("ready", flush=True)
        time.sleep(60)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    pattern = f"torch_{process.pid}_*"
    assert bool(list(Path("/dev/shm").glob(pattern))) == (strategy == "file_system")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 30
    while list(Path("/dev/shm").glob(pattern)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not list(Path("/dev/shm").glob(pattern))


def test_no_room_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    def full(*args: Any) -> Any:
        raise OSError(28, "No space left on device")

    kind = reductions.Unnamed if strategy == "file_descriptor" else reductions.Named
    monkeypatch.setattr(kind, "create", full)
    tensor = engine.ones(2)
    with pytest.raises(RuntimeError, match=rf"unable to share 8 bytes by the {strategy} strategy: No space left"):
        tensor.share_memory_()
    assert tensor.tolist() == [1, 1] and not tensor.is_shared()
