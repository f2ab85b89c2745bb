"""Every payload over every channel, for one way to start processes and one to share: `python -m ... METHOD STRATEGY`.

Prints a line of JSON a case: its name, and what was wrong, or null.  The tests read them (test_matrix.py).
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import engine
import engine.multiprocessing as mp
from engine import nn

DTYPES = (
    "bool",
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
)
WAIT = 30  # seconds


def payloads() -> dict[str, Any]:
    """What is sent; every value is a list of tensors or modules."""
    base, other = engine.arange(12.0), engine.arange(12.0)
    found = {
        "dtypes": [(engine.arange(4) % 2).to(getattr(engine, name)) for name in DTYPES],
        "no elements": [engine.zeros(0), engine.zeros(3, 0, 2, dtype=engine.int64)],
        "0-dim": [engine.tensor(3.0), engine.tensor(True)],
        "not contiguous": [
            other.view(3, 4).t(),
            engine.arange(12.0)[::2],
            engine.arange(12.0).view(3, 4)[1:, 1:],
            engine.ones(3, 1).expand(3, 4),
        ],
        "views of one storage": [base[2:], base[:3], base.view(3, 4)[1]],
        "parameters": [nn.Parameter(engine.ones(3)), nn.Parameter(engine.ones(2), requires_grad=False)],
    }
    for name, tensors in found.items():
        assert all(isinstance(t, engine.Tensor) for t in tensors), name
    return found


def check(name: str, tensors: list[Any]) -> None:
    """What arrives is what was sent."""
    for got, sent in zip(tensors, payloads()[name], strict=True):
        assert type(got) is type(sent) and got.dtype is sent.dtype and got.shape == sent.shape, (name, got)
        assert got.requires_grad == sent.requires_grad and got.stride() == sent.stride(), (name, got)
        assert bool((got == sent).all()) and got.is_shared(), (name, got)
    if name == "views of one storage":
        assert all(t.storage() == tensors[0].storage() for t in tensors)


def write(tensors: list[Any]) -> None:
    """What the other side does to what it gets."""
    with engine.no_grad():
        for t in tensors:
            if 0 not in t.stride():
                t.fill_(1 if t.dtype is engine.bool else 5)
            elif t.numel():
                t[:, 0].fill_(5)


def written(tensors: list[Any]) -> bool:
    """Whether every element is what `write` left."""
    return all(bool((t == (1 if t.dtype is engine.bool else 5)).all()) for t in tensors if t.numel())


def in_process(name: str, tensors: list[Any], event: Any, barrier: Any) -> None:
    """What a process of its own, or one of a pool, does with its argument."""
    check(name, tensors)
    write(tensors)
    if event is not None:
        event.set()
        barrier.wait(WAIT)


def in_pool(name: str, tensors: list[Any]) -> list[Any]:
    """As `in_process`, and gives back a tensor of its own and the first it got."""
    check(name, tensors)
    write(tensors)
    return [engine.full((3,), 7.0), tensors[0]]


def peer(strategy: str, commands: Any, channels: dict[str, Any]) -> None:
    """The other side: does what it is told until it is told to end."""
    mp.set_sharing_strategy(strategy)
    kept: dict[str, Any] = {}
    while True:
        what, *rest = commands.recv()
        try:
            answer: Any = None
            if what == "end":
                return
            if what == "get":
                channel, name = rest
                got = channels[channel].get()
                check(name, got)
                write(got)
                if hasattr(channels[channel], "task_done"):
                    channels[channel].task_done()
                del got
            elif what == "keep":
                kept["got"] = channels["Queue"].get()
            elif what == "send":
                kept["sent"] = [engine.arange(5.0), engine.ones(2, 2)]
                channels["Queue"].put(kept["sent"])
            elif what == "echo":
                count, channel = rest
                for _ in range(count):
                    tensor = channels[channel].get()
                    tensor += 1
                    channels["back"].put(tensor)
                del tensor
            elif what == "many":
                got = [channels["Queue"].get() for _ in range(rest[0])]
                answer = float(sum(float(t[0]) for t in got))
                del got
            elif what == "module":
                module = channels["Queue"].get()
                with engine.no_grad():
                    for value in module.state_dict().values():
                        value.fill_(2)
                answer = type(module).__name__
                del module
            gc.collect()
            commands.send(("done", answer))
        except BaseException:
            commands.send(("error", traceback.format_exc()))


class PipeChannel:
    """A pipe with a queue's names."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self.reader, self.writer = reader, writer

    def put(self, value: Any) -> None:
        self.writer.send(value)

    def get(self) -> Any:
        return self.reader.recv()


class Group:
    """This process and its peer."""

    def __init__(self, method: str, strategy: str, manager: Any) -> None:
        self.context = mp.get_context(method)
        reader, writer = self.context.Pipe(duplex=False)
        self.channels = {
            "Queue": self.context.Queue(),
            "SimpleQueue": self.context.SimpleQueue(),
            "JoinableQueue": self.context.JoinableQueue(),
            "Pipe": PipeChannel(reader, writer),
            "back": self.context.SimpleQueue(),
        }
        if manager is not None:
            self.channels["Manager().Queue"] = manager.Queue()
        self.commands, theirs = self.context.Pipe()
        self.process = self.context.Process(target=peer, args=(strategy, theirs, self.channels))
        self.process.start()

    def ask(self, *what: Any) -> None:
        self.commands.send(what)

    def answer(self) -> Any:
        if not self.commands.poll(WAIT):
            raise TimeoutError("the peer does not answer")
        kind, value = self.commands.recv()
        if kind == "error":
            raise AssertionError(f"in the peer: {value}")
        return value

    def end(self, well: bool = True) -> None:
        if not well:
            self.process.kill()
        elif self.process.is_alive():
            self.ask("end")
        self.process.join(WAIT)
        for channel in self.channels.values():
            if hasattr(channel, "join_thread"):
                channel.close()
                channel.join_thread()
            elif hasattr(channel, "close"):
                channel.close()
        self.commands.close()
        self.process.close()


def through(group: Group, channel: str) -> None:
    """All payloads over one channel; both see what either writes."""
    for name, tensors in payloads().items():
        group.ask("get", channel, name)
        group.channels[channel].put(tensors)
        group.answer()
        assert written(tensors), f"{name}: writes of the peer are not seen"
    if channel == "JoinableQueue":
        group.channels[channel].join()


def back_and_forth(group: Group) -> None:
    tensor = engine.zeros(3)
    group.ask("echo", 20, "SimpleQueue")
    for _ in range(20):
        group.channels["SimpleQueue"].put(tensor)
        came = group.channels["back"].get()
        assert came.data_ptr() == tensor.data_ptr() and came.storage() == tensor.storage()
    group.answer()
    assert tensor.tolist() == [20.0] * 3


def many(group: Group, count: int) -> None:
    group.ask("many", count)
    kept = [engine.full((2,), float(i % 7)) for i in range(count)]
    for tensor in kept:
        group.channels["Queue"].put(tensor)
    assert group.answer() == float(sum(i % 7 for i in range(count)))


def modules(group: Group) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LSTM(4, 2))
    tied = nn.ModuleList([net[0], net[0]])
    for module in (net, tied):
        group.ask("module")
        group.channels["Queue"].put(module)
        assert group.answer() == type(module).__name__
        assert all(bool((v == 2).all()) for v in module.state_dict().values())


def optimizer_state(group: Group) -> None:
    """Gradients and an optimizer's state are shared when they are sent, and only then."""
    weight = nn.Parameter(engine.ones(3))
    optimizer = engine.optim.Adam([weight], 0.1)
    weight.sum().backward()
    optimizer.step()
    assert not weight.grad.is_shared()
    state = [v for v in optimizer.state[weight].values() if isinstance(v, engine.Tensor)]
    assert state and not any(v.is_shared() for v in state)
    for tensors in ([weight.grad], state):
        group.ask("keep")
        group.channels["Queue"].put(tensors)
        group.answer()
        assert all(v.is_shared() for v in tensors)
    optimizer.step()  # goes on in shared memory


def sender_first(group: Group, strategy: str, how: int) -> None:
    """The peer makes and sends tensors, and ends before or after they are received."""
    group.ask("send")
    group.answer()
    got = group.channels["Queue"].get()
    _kill(group, how)
    assert got[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    got[1].fill_(3)
    assert got[1].tolist() == [[3, 3], [3, 3]]


def received_late(group: Group, strategy: str) -> None:
    group.ask("send")
    group.answer()
    assert group.channels["Queue"]._reader.poll(60)  # its queue's thread has written
    _kill(group, signal.SIGKILL)
    try:
        got = group.channels["Queue"].get()
        assert strategy == "file_system" and got[0].tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    except ConnectionError as error:
        assert strategy == "file_descriptor" and "ended before it was received" in str(error)


def receiver_first(group: Group, how: int) -> None:
    tensors = [engine.arange(4.0), engine.ones(3)]
    group.ask("keep")
    group.channels["Queue"].put(tensors)
    group.answer()
    _kill(group, how)
    tensors[0] += 1
    assert tensors[0].tolist() == [1, 2, 3, 4] and tensors[0].is_shared()


def _kill(group: Group, how: int) -> None:
    if how:
        os.kill(group.process.pid, how)
    else:
        group.ask("end")
    group.process.join(WAIT)


def process_arguments(context: Any) -> None:
    for name, tensors in payloads().items():
        if name not in ("dtypes", "views of one storage"):  # a start each: a sample
            continue
        event, barrier = context.Event(), context.Barrier(2)
        process = context.Process(target=in_process, args=(name, tensors, event, barrier))
        if process._start_method == "fork":
            for t in tensors:
                t.share_memory_()
        process.start()
        assert event.wait(WAIT) and written(tensors), name
        barrier.wait(WAIT)
        process.join(WAIT)
        assert process.exitcode == 0
        process.close()


def pools(context: Any, strategy: str) -> None:
    with context.Pool(1, mp.set_sharing_strategy, (strategy,)) as pool:
        for name, tensors in payloads().items():
            made, first = pool.apply(in_pool, (name, tensors))
            assert written(tensors) and made.tolist() == [7, 7, 7] and made.is_shared(), name
            assert first.storage() == tensors[0].storage(), name
        del made, first
        pool.close()
        pool.join()


def manager_objects(manager: Any) -> None:
    """A Manager's list and dict keep tensors of both strategies."""
    tensor = engine.arange(3.0)
    kept = manager.list([tensor])
    named = manager.dict()
    named["t"] = tensor
    got, other = kept[0], named["t"]
    got[0] = 9
    assert tensor[0] == 9 and other[0] == 9
    assert got.storage() == tensor.storage() == other.storage()
    del got, other
    kept[:] = []
    named.clear()


# --- what is left


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def names() -> set[str]:
    return {n for n in os.listdir("/dev/shm") if n.startswith("torch_") and int(n.split("_")[1]) in mine}


mine: set[int] = {os.getpid()}


def settled(before: tuple[int, set[str]]) -> str | None:
    """What there is more than before, once processes that were killed are noticed."""
    deadline = time.monotonic() + 8
    while True:
        gc.collect()
        more = names() - before[1]
        if descriptors() <= before[0] and not more:
            return None
        if time.monotonic() > deadline:
            return f"left: {descriptors() - before[0]} descriptors, {sorted(more)}"
        time.sleep(0.02)


def cases(method: str, strategy: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """(name, what to do)."""
    context = mp.get_context(method)

    def with_group(do: Callable[[Group], None]) -> Callable[[], None]:
        def run() -> None:
            group = Group(method, strategy, None)
            mine.add(group.process.pid)
            try:
                do(group)
            except BaseException:
                group.end(well=False)
                raise
            group.end()

        return run

    def channels(group: Group) -> None:
        for channel in ("Queue", "SimpleQueue", "JoinableQueue", "Pipe"):
            through(group, channel)
        back_and_forth(group)
        modules(group)
        optimizer_state(group)

    def with_manager() -> None:
        with context.Manager() as manager:
            group = Group(method, strategy, manager)
            mine.add(group.process.pid)
            try:
                manager_objects(manager)
                through(group, "Manager().Queue")
            except BaseException:
                group.end(well=False)
                raise
            group.end()

    yield "channels", with_group(channels)
    yield "Process", lambda: process_arguments(context)
    yield "Pool", lambda: pools(context, strategy)
    yield "Manager", with_manager
    yield "sender ends first", with_group(lambda g: sender_first(g, strategy, 0))
    yield "sender killed first", with_group(lambda g: sender_first(g, strategy, signal.SIGKILL))
    yield "received after the sender was killed", with_group(lambda g: received_late(g, strategy))
    yield "receiver ends first", with_group(lambda g: receiver_first(g, 0))
    yield "receiver killed first", with_group(lambda g: receiver_first(g, signal.SIGKILL))
    if method == "fork":
        count = 5000 if strategy == "file_system" else 400  # of descriptors there are fewer
        yield "many tensors", with_group(lambda g: many(g, count))


def main(method: str, strategy: str) -> None:
    """Run all cases."""
    mp.set_sharing_strategy(strategy)
    mp.set_start_method(method)
    engine.ones(1).share_memory_()  # the connection to the manager stays
    warm = Group(method, strategy, None)  # so do the fork server, and the tracker of the standard library
    mine.add(warm.process.pid)
    warm.channels["Queue"].put([engine.ones(1)])
    warm.ask("keep")
    warm.answer()
    warm.end()
    process_arguments(warm.context)  # and the memory of barriers
    gc.collect()
    for name, do in cases(method, strategy):
        before = descriptors(), names()
        wrong = None
        start = time.perf_counter()
        try:
            do()
        except BaseException:
            wrong = traceback.format_exc()
        wrong = wrong or settled(before)
        print(json.dumps({"case": name, "wrong": wrong, "seconds": round(time.perf_counter() - start, 2)}), flush=True)


if __name__ == "__main__":
    from tests.engine.multiprocessing import matrix  # under its own name, as the children import it

    matrix.main(*sys.argv[1:])
