"""What spawned processes do in test_cuda.py; they get a GPU of the stand-in as they import this."""

from __future__ import annotations

import gc
import multiprocessing
import os
import time
from typing import Any

import engine
from engine import nn
from engine.multiprocessing import cuda as sharing
from tests.engine import standin

running: list[Any] = []
if multiprocessing.current_process().name != "MainProcess" and not standin.running_here():
    running.append(standin.running())
    running[0].__enter__()

WAIT = 30  # seconds


def tensors() -> dict[str, Any]:
    """What is sent; every value is a list."""
    base = engine.arange(12.0, device="cuda")
    learned = nn.Parameter(engine.arange(3.0, device="cuda"))
    (learned * learned).sum().backward()
    return {
        "dtypes": [(engine.arange(4, device="cuda") % 2).to(getattr(engine, n)) for n in ("bool", "int64", "bfloat16")],
        "no elements": [engine.zeros(0, device="cuda"), engine.zeros(3, 0, 2, dtype=engine.int64, device="cuda")],
        "0-dim": [engine.tensor(3.0, device="cuda")],
        "not contiguous": [
            engine.arange(12.0, device="cuda").view(3, 4).t(),
            engine.arange(12.0, device="cuda")[1::2],
            engine.ones(3, 1, device="cuda").expand(3, 4),
        ],
        "views of one storage": [base[2:], base[:3], base.view(3, 4)[1]],
        "parameters and gradients": [
            learned,
            learned.grad,
            nn.Parameter(engine.ones(2, device="cuda"), requires_grad=False),
        ],
        "another device": [engine.arange(5.0, device="cuda:1")] if engine.cuda.device_count() > 1 else [],
    }


def wrong(name: str, got: list[Any]) -> str | None:
    """What is wrong with what arrived, or None."""
    for one, sent in zip(got, tensors()[name], strict=True):
        if type(one) is not type(sent) or one.dtype is not sent.dtype or one.shape != sent.shape:
            return f"{name}: {type(one)} {one.dtype} {one.shape}"
        if one.requires_grad != sent.requires_grad or one.stride() != sent.stride() or one.device != sent.device:
            return f"{name}: {one.requires_grad} {one.stride()} {one.device}"
        if not one.is_shared() or one.cpu().tolist() != sent.cpu().tolist():
            return f"{name}: {one}"
    return None


def settle() -> None:
    """Nothing of what went out of scope is left."""
    gc.collect()
    engine.cuda.synchronize()


def held() -> int:
    """How many storages of other processes this one has."""
    return len(sharing._receiver.roots)


def serve(inbox: Any, outbox: Any) -> None:
    """Answer questions until None comes."""
    engine.cuda.set_device(0)
    kept: list[Any] = []
    while (asked := inbox.get()) is not None:
        word, *args = asked
        try:
            outbox.put(ANSWERS[word](kept, *args))
        except Exception as error:
            outbox.put(f"{type(error).__name__}: {error}")
        asked = args = None
        settle()


def add_one(kept: list[Any], tensors: list[Any]) -> None:
    """Write to what came."""
    with engine.no_grad():
        for t in tensors:
            t.add_(1)
    engine.cuda.synchronize()


def keep(kept: list[Any], *args: Any) -> int:
    """Hold what came; the number of storages."""
    kept.extend(args)
    return held()


def one_storage(kept: list[Any]) -> bool:
    """Whether all that is held lies in one storage."""
    return len({t.untyped_storage().data_ptr() for t in kept}) == 1 and held() == 1


def drop(kept: list[Any]) -> int:
    """Let go of all; the number of storages left."""
    kept.clear()
    settle()
    return held()


def total(kept: list[Any]) -> float:
    """The sum of all that is held."""
    return float(sum(t.sum().item() for t in kept))


def again(kept: list[Any], tensor: Any) -> Any:
    """Send back what came."""
    return tensor


def make(kept: list[Any], count: int) -> Any:
    """Send tensors of this process."""
    return [engine.full((3,), float(i), device="cuda") for i in range(count)]


def unreleased(kept: list[Any]) -> int:
    """How many tensors that this process sent are still held by others."""
    engine.cuda.ipc_collect()
    return len(sharing._sender.left())


def unwaited(kept: list[Any], on: bool) -> None:
    """Plant a fault: the event of the sender is not waited for."""
    from engine.backends.cuda import ipc

    if on:
        kept.append(ipc.wait_for)
        ipc.wait_for = lambda handle, index: None
    else:
        ipc.wait_for = kept.pop()


def calls(kept: list[Any]) -> dict[str, int]:
    """How often CUDA's functions for sharing were called since the last question."""
    from tests.engine.standin import ipc

    found = {name: ipc.calls.count(name) for name in set(ipc.calls)}
    ipc.calls.clear()
    return found


ANSWERS = {
    "wrong": lambda kept, name, got: wrong(name, got),
    "add_one": add_one,
    "keep": keep,
    "one_storage": one_storage,
    "drop": drop,
    "total": total,
    "again": again,
    "make": make,
    "unreleased": unreleased,
    "unwaited": unwaited,
    "calls": calls,
}


def pid() -> int:
    return os.getpid()


def double(tensor: Any) -> Any:
    """For pools."""
    return tensor * 2


def produce(queue: Any, done: Any, index: int = 0) -> None:
    """Send one tensor of a GPU; end when told."""
    queue.put(engine.arange(4.0, device=f"cuda:{index}"))
    done.wait(WAIT)


def hold(connection: Any) -> None:
    """Receive one tensor, say so, and stay."""
    got = connection.recv()
    connection.send(got.sum().item())
    time.sleep(WAIT)
    del got


def receive_forked(queue: Any, back: Any) -> None:
    """In a forked child: what receiving raises."""
    try:
        queue.get()
    except RuntimeError as error:
        back.put(str(error))
