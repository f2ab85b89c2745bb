"""CUDA tensors in several processes, on the stand-in: handles, events, counters, and who ends first."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

import pytest

import engine
import engine.multiprocessing as mp
from engine.backends.cuda import ipc
from engine.multiprocessing import cuda as sharing
from tests.engine import standin
from tests.engine.multiprocessing import cuda_peers as peers

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="CUDA has handles between processes on Linux alone"),
]
on_stand_in = pytest.mark.skipif(standin.REAL, reason="a card does not report it")
ROOT = Path(__file__).parents[3]


class Peer:
    """A spawned process that answers."""

    def __init__(self, method: str = "spawn") -> None:
        context = mp.get_context(method)
        self.inbox, self.outbox = context.SimpleQueue(), context.SimpleQueue()
        self.process = context.Process(target=peers.serve, args=(self.inbox, self.outbox), daemon=True)
        self.process.start()

    def ask(self, word: str, *args: Any) -> Any:
        """The answer to a question."""
        self.inbox.put((word, *args))
        del args
        wait([self.outbox._reader, self.process.sentinel], peers.WAIT)
        assert self.outbox._reader.poll(), f"no answer to {word}; the peer: {self.process}"
        return self.outbox.get()

    def end(self) -> None:
        """Let it end in order."""
        if self.process.is_alive():
            self.inbox.put(None)
        self.process.join(peers.WAIT)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Any]:
    with standin.running() as backend:
        yield backend
        sharing.collect()
        assert not sharing._sender.left()
        sharing._sender.free.clear()  # the names of the counters' blocks, which other tests would see
        sharing._sender.counters.clear()


@pytest.fixture(scope="module")
def shared_peer(gpu: Any) -> Iterator[Peer]:
    found = Peer()
    yield found
    found.end()


@pytest.fixture
def peer(shared_peer: Peer) -> Iterator[Peer]:
    yield shared_peer
    assert shared_peer.ask("drop") == 0
    peers.settle()
    engine.cuda.ipc_collect()
    assert not sharing._sender.left()
    assert shared_peer.ask("unreleased") == 0


NAMES = [
    "dtypes",
    "no elements",
    "0-dim",
    "not contiguous",
    "views of one storage",
    "parameters and gradients",
    "another device",
]


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_what_arrives_is_what_was_sent(peer: Peer, name: str) -> None:
    assert sorted(NAMES) == sorted(peers.tensors())
    assert peer.ask("wrong", name, peers.tensors()[name]) is None


@pytest.mark.long
def test_both_sides_see_what_is_written(peer: Peer) -> None:
    base = engine.arange(6.0, device="cuda")
    peer.ask("add_one", [base[2:], base.view(2, 3).t()])
    assert base.tolist() == [1, 2, 4, 5, 6, 7]
    got = peer.ask("make", 2)
    assert [t.tolist() for t in got] == [[0.0] * 3, [1.0] * 3] and got[0].is_cuda and got[0].is_shared()
    assert peer.ask("unreleased") == 2
    with engine.no_grad():
        got[1].mul_(3)
    del got
    peers.settle()
    assert peer.ask("unreleased") == 0


@pytest.mark.long
def test_views_that_are_sent_separately_share_a_storage_again(peer: Peer) -> None:
    base = engine.arange(12.0, device="cuda")
    if not standin.REAL:
        peer.ask("calls")
    assert peer.ask("keep", base[2:]) == 1
    assert peer.ask("keep", base[:3]) == peer.ask("keep", base.view(3, 4).t()) == 1
    assert peer.ask("one_storage") is True
    assert peer.ask("total") == sum(range(2, 12)) + 3 + 66
    assert peer.ask("drop") == 0
    if standin.REAL:
        return
    assert "ipcOpenMemHandle" not in (sum_of := peer.ask("calls")) or sum_of["ipcOpenMemHandle"] == 1
    assert sum_of["ipcCloseMemHandle"] == 1 and sum_of["streamWaitEvent"] == 3


@pytest.mark.long
def test_the_sender_keeps_what_the_receiver_has(peer: Peer) -> None:
    peers.settle()
    used = engine.cuda.memory_allocated()
    tensor = engine.full((1000,), 2.0, device="cuda")
    peer.ask("keep", tensor)
    del tensor
    peers.settle()
    engine.cuda.ipc_collect()
    assert engine.cuda.memory_allocated() > used and len(sharing._sender.left()) == 1
    others = [engine.zeros(1000, device="cuda") for _ in range(3)]  # would lie there if it were free
    assert peer.ask("total") == 2000
    peer.ask("drop")
    del others
    engine.cuda.ipc_collect()
    assert engine.cuda.memory_allocated() == used and not sharing._sender.left()


@pytest.mark.long
def test_memory_comes_back_when_there_is_no_room(peer: Peer) -> None:
    pool = engine.cuda._library().get_default_memory_pool()
    engine.cuda.empty_cache()
    peer.ask("keep", engine.zeros(1 << 16, device="cuda"))
    peer.ask("drop")
    assert len(sharing._sender.left()) == 1
    before = pool.get_limit()
    pool.set_limit(size=pool.total_bytes() + (1 << 12))
    try:
        assert engine.ones(1 << 16, device="cuda").sum().item() == 1 << 16
    finally:
        pool.set_limit(size=before)


@pytest.mark.long
def test_what_was_received_is_not_sent_on(peer: Peer) -> None:
    answer = peer.ask("again", engine.ones(2, device="cuda"))
    assert answer == (
        "RuntimeError: Attempted to send CUDA tensor received from another process; this is not currently supported. "
        "Consider cloning before sending."
    )


@pytest.mark.long
def test_what_has_a_history_is_not_sent(peer: Peer) -> None:
    made = engine.ones(2, device="cuda", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        peer.ask("again", made)


@pytest.mark.long
def test_nothing_is_sent_in_a_capture(gpu: Any) -> None:
    queue, tensor = mp.get_context("spawn").SimpleQueue(), engine.ones(2, device="cuda")
    refused = pytest.raises(RuntimeError, match="sending a tensor to another process")
    with refused, engine.cuda.graph(engine.cuda.CUDAGraph()):
        queue.put(tensor)
    assert not sharing._sender.left()


def test_a_process_gets_its_own_tensors_back(gpu: Any) -> None:
    queue, tensor = mp.get_context("spawn").SimpleQueue(), engine.ones(3, device="cuda")
    queue.put(tensor[1:])
    got = queue.get()
    assert got.data_ptr() == tensor[1:].data_ptr() and got.untyped_storage() == tensor.untyped_storage()
    engine.cuda.ipc_collect()
    assert not sharing._sender.left()


@pytest.mark.long
def test_two_hundred(peer: Peer) -> None:
    many = [engine.full((3,), float(i), device="cuda") for i in range(100)]
    for tensor in many:
        peer.ask("keep", tensor)
    assert peer.ask("keep", *[engine.full((2, 2), 1.0, device="cuda") for _ in range(100)]) == 200
    assert peer.ask("total") == 3 * sum(range(100)) + 400
    got = peer.ask("make", 200)
    assert [t[0].item() for t in got] == list(range(200))


@pytest.mark.long
@on_stand_in
def test_an_event_that_is_not_waited_for_is_found(peer: Peer) -> None:
    peer.ask("unwaited", True)
    try:
        answer = peer.ask("add_one", [engine.arange(3.0, device="cuda")])
    finally:
        peer.ask("unwaited", False)
    assert answer.startswith("StreamOrderError: stream") and "without waiting for it" in answer


@pytest.mark.long
@on_stand_in
def test_work_of_another_stream_is_waited_for(peer: Peer) -> None:
    side = engine.cuda.Stream()
    with engine.cuda.stream(side):
        made = engine.ones(3, device="cuda") * 4
        assert peer.ask("add_one", [made]) is None
        assert made.tolist() == [5, 5, 5]


@pytest.mark.long
@on_stand_in
def test_memory_that_is_freed_too_early_is_found(peer: Peer) -> None:
    tensor = engine.ones(700, device="cuda")
    peer.ask("keep", tensor)
    for one in sharing._sender.left():
        one.counters.values[one.slot] = sharing.RELEASED  # the fault: nobody has let go
    engine.cuda.ipc_collect()
    del tensor, one
    peers.settle()
    assert peer.ask("total") == "UseAfterFree: the process that shared this memory has freed it"


@on_stand_in
def test_the_rules_of_handles(gpu: Any) -> None:
    runtime, error = gpu.cupy.cuda.runtime, gpu.cupy.cuda.runtime.CUDARuntimeError
    tensor = engine.ones(4, device="cuda")
    with pytest.raises(error, match="no allocation begins there"):
        runtime.ipcGetMemHandle(tensor.data_ptr())
    from engine.backends.cuda import ipc

    handle, offset = ipc.export(tensor._array)
    assert len(handle) == 64 and offset
    assert ipc.export(tensor[1:]._array) == (handle, offset + 4)
    assert tensor.tolist() == [1, 1, 1, 1]  # where it was
    with pytest.raises(error, match="cannot open its own handle"):
        runtime.ipcOpenMemHandle(handle)
    with pytest.raises(error, match="not an interprocess event"):
        runtime.ipcGetEventHandle(gpu.cupy.cuda.Event(disable_timing=True).ptr)
    event = gpu.cupy.cuda.Event(disable_timing=True, interprocess=True)
    with pytest.raises(error, match="cannot open its own handle"):
        runtime.ipcOpenEventHandle(runtime.ipcGetEventHandle(event.ptr))


# --- other channels, other ways to start


@pytest.mark.long
def test_queues_and_pools_which_pickle_in_other_threads(gpu: Any) -> None:
    context = mp.get_context("spawn")
    with context.Pool(1) as pool:
        assert pool.apply(peers.pid) != os.getpid()
        side = engine.cuda.Stream()
        with engine.cuda.stream(side):
            given = [engine.full((3,), float(i), device="cuda") for i in range(4)]
            doubled = pool.map(peers.double, given)
            assert [t.tolist() for t in doubled] == [[2.0 * i] * 3 for i in range(4)]
        del doubled, given
        peers.settle()
        pool.close()
        pool.join()
    inbox, outbox = context.Queue(), context.Queue()
    process = context.Process(target=peers.serve, args=(inbox, outbox), daemon=True)
    process.start()
    with engine.cuda.stream(engine.cuda.Stream()):
        made = engine.ones(3, device="cuda") * 2
        inbox.put(("add_one", [made]))
        assert outbox.get(timeout=peers.WAIT) is None
        assert made.tolist() == [3, 3, 3]
    inbox.put(None)
    process.join(peers.WAIT)
    engine.cuda.ipc_collect()
    assert not sharing._sender.left()


def test_the_fork_server(gpu: Any) -> None:
    peer = Peer("forkserver")
    tensor = engine.zeros(5, device="cuda")
    assert peer.ask("add_one", [tensor]) is None
    assert tensor.tolist() == [1] * 5
    peer.end()


def test_a_fork_is_refused(gpu: Any) -> None:
    context = mp.get_context("fork")
    queue, back = context.SimpleQueue(), context.SimpleQueue()
    process = context.Process(target=peers.receive_forked, args=(queue, back), daemon=True)
    process.start()
    queue.put(engine.ones(2, device="cuda"))
    wait([back._reader, process.sentinel], peers.WAIT)
    assert back._reader.poll() and back.get() == (
        "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "
        "start method"
    )
    process.join(peers.WAIT)
    engine.cuda.ipc_collect()
    assert not sharing._sender.left()


# --- who ends first


def test_a_receiver_that_is_killed(gpu: Any) -> None:
    context = mp.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=peers.hold, args=(there,), daemon=True)
    process.start()
    there.close()
    here.send(engine.ones(5, device="cuda"))
    assert here.poll(peers.WAIT) and here.recv() == 5
    engine.cuda.ipc_collect()
    assert len(sharing._sender.left()) == 1
    process.kill()
    process.join(peers.WAIT)
    engine.cuda.ipc_collect()
    assert not sharing._sender.left()


def test_a_sender_that_ends_first_warns(gpu: Any, capfd: pytest.CaptureFixture[str]) -> None:
    context = mp.get_context("spawn")
    queue, done = context.SimpleQueue(), context.Event()
    process = context.Process(target=peers.produce, args=(queue, done), daemon=True)
    process.start()
    wait([queue._reader, process.sentinel], peers.WAIT)
    assert queue._reader.poll()
    got = queue.get()
    assert got.tolist() == [0, 1, 2, 3]
    done.set()
    process.join(peers.WAIT)
    text = capfd.readouterr().err
    assert "Producer process has been terminated before all shared CUDA tensors released: 1 that it sent" in text
    assert "(16 bytes)" in text and "Keep the sender until the receivers are done" in text
    del got  # nothing is raised


def test_a_sender_that_was_killed_before_its_tensor_is_received(gpu: Any) -> None:
    context = mp.get_context("spawn")
    queue, done = context.SimpleQueue(), context.Event()
    process = context.Process(target=peers.produce, args=(queue, done), daemon=True)
    process.start()
    wait([queue._reader, process.sentinel], peers.WAIT)
    assert queue._reader.poll()
    process.kill()
    process.join(peers.WAIT)
    with pytest.raises(RuntimeError, match=f"process {process.pid} .which has ended. cannot be opened .*must"):
        queue.get()


@pytest.mark.long
@pytest.mark.parametrize(
    ("index", "cards", "found"),
    [
        (0, [1, 0], "that card is cuda:1 in this process"),
        (0, [1, 2], "this process does not see that card"),
        (0, [0, 1], None),
        (1, [0], "this process does not see that card"),
    ],
    ids=["another order", "another card", "the same", "fewer cards"],
)
@on_stand_in
def test_another_card_of_the_same_number_is_refused(
    gpu: Any, monkeypatch: pytest.MonkeyPatch, index: int, cards: list[int], found: str | None
) -> None:
    context = mp.get_context("spawn")
    queue, done = context.SimpleQueue(), context.Event()
    process = context.Process(target=peers.produce, args=(queue, done, index), daemon=True)
    process.start()
    wait([queue._reader, process.sentinel], peers.WAIT)
    assert queue._reader.poll()
    real = [ipc.card(n) for n in range(2)] + [bytes(16)]
    assert len(set(real)) == 3
    monkeypatch.setattr(ipc, "card", lambda n: real[cards[n]])
    monkeypatch.setattr(ipc.runtime, "device_count", lambda: len(cards))
    if found is None:
        assert queue.get().tolist() == [0, 1, 2, 3]
    else:
        with pytest.raises(ipc.AnotherCard) as raised:
            queue.get()
        assert str(raised.value) == (
            f"a CUDA tensor on cuda:{index} of another process cannot be opened: {found}; start both with the same "
            "CUDA_VISIBLE_DEVICES, or send tensor.cpu()"
        )
    done.set()
    process.join(peers.WAIT)


SCRIPT = """
    import os
    import engine
    import engine.multiprocessing as mp
    from tests.engine import standin
    from tests.engine.multiprocessing import cuda_peers as peers

    if __name__ == "__main__":
        with standin.running():
            context = mp.get_context("spawn")
            inbox, outbox = context.SimpleQueue(), context.SimpleQueue()
            process = context.Process(target=peers.serve, args=(inbox, outbox))
            process.start()
            inbox.put(("keep", engine.ones(3, device="cuda")))
            print(os.getpid(), process.pid, outbox.get(), flush=True)
            inbox.put(("make", 2))
            got = outbox.get()
            inbox.put(None)
            process.join()
            del got
"""


def test_nothing_is_left_after_the_end(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    first, second, kept = done.stdout.split()
    assert kept == "1"
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        left = [p.name for pid in (first, second) for p in Path("/dev/shm").glob(f"torch_{pid}_*")]
        if not left:
            break
        time.sleep(0.05)
    assert not left
    assert done.stderr.count("Producer process has been terminated") == 1  # the child, whose two are held here
