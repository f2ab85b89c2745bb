"""Segments: batches in shared memory that is used again, and workers that end in every way."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine.utils import data
from engine.utils.data._utils import segments

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="there are no unnamed blocks")
LARGE = 50_000  # elements


class Images(data.Dataset[Any]):
    """Item i: an image full of i, the same as a numpy array, and i."""

    def __init__(self, count: int, size: int = LARGE) -> None:
        self.count, self.size = count, size

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return engine.full((self.size,), float(i)), {"array": np.full(self.size, i, np.int16), "i": i}


def _first(items: list[Any]) -> Any:
    return items[0]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_batches_keep_their_values_while_segments_are_used_again(method: str) -> None:
    loader = data.DataLoader(
        Images(24), batch_size=None, num_workers=2, multiprocessing_context=method, collate_fn=None
    )
    batches = iter(loader)
    kept, addresses = [], set()
    for i, (image, rest) in enumerate(batches):
        assert image.shape == (LARGE,) and bool((image == i).all())
        assert int(rest["array"].sum()) == i * LARGE and rest["i"] == i
        image.add_(1)  # the memory is this process's to write to
        addresses.add(image.data_ptr())
        if i % 8 == 0:
            kept.append(image[10:20])
    assert len(addresses) < 20  # of 24
    assert [view[0].item() for view in kept] == [1, 9, 17]
    assert kept[0].untyped_storage().nbytes() == LARGE * 4  # one storage a tensor, not one a segment


def test_segments_follow_batches_that_grow() -> None:
    class Growing(Images):
        def __getitem__(self, i: int) -> Any:
            return engine.full((2000 * (i + 1),), float(i))

    for i, image in enumerate(data.DataLoader(Growing(12), batch_size=None, num_workers=1)):
        assert image.shape == (2000 * (i + 1),) and bool((image == i).all())


def test_a_worker_may_end_before_its_batches_are_read() -> None:
    class Stream(data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            yield from (engine.full((LARGE,), float(i)) for i in range(2))

    batches = iter(data.DataLoader(Stream(), batch_size=None, num_workers=1))
    time.sleep(1)
    assert [int(b[-1]) for b in batches] == [0, 1]


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="no /proc")
def test_no_descriptor_stays_open() -> None:
    loader = data.DataLoader(Images(8), batch_size=2, num_workers=1)
    list(loader)
    gc.collect()
    before = _descriptors()
    batches = iter(loader)
    kept = [next(batches) for _ in range(4)]
    during = _descriptors()
    assert list(batches) == []
    del batches
    gc.collect()
    assert _descriptors() <= before
    assert during - before <= 8  # the worker's pipes and queue, none for the four batches
    assert kept[3][0][1, 0] == 7


def test_without_room_batches_go_through_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "memfd_create", none)
    loader = data.DataLoader(Images(4), batch_size=2, num_workers=1, multiprocessing_context="fork")
    assert [b[0][:, 0].tolist() for b in loader] == [[0, 1], [2, 3]]


class Ending(Images):
    """Item 1 ends the worker in the way that was chosen."""

    def __init__(self, way: str) -> None:
        super().__init__(4)
        self.way = way

    def __getitem__(self, i: int) -> Any:
        if i == 1:
            if self.way == "SIGKILL":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(7)
        return super().__getitem__(i)


@pytest.mark.parametrize(("way", "reason"), [("SIGKILL", "killed by signal SIGKILL"), ("exit", "exit code 7")])
def test_a_dead_worker_is_named_with_its_reason(way: str, reason: str) -> None:
    loader = data.DataLoader(Ending(way), batch_size=1, num_workers=2)
    with pytest.raises(RuntimeError, match=rf"\(pid\(s\) \d+\) exited unexpectedly: {reason}"):
        list(loader)


def test_a_worker_that_was_killed_amid_a_look_at_the_end_stops_nobody() -> None:
    """As Ctrl-C may: whatever lock guards what the workers look at, one of them may die with it."""
    iterator: Any = iter(data.DataLoader(list(range(100)), num_workers=2))
    next(iterator)
    for part in vars(iterator._done).values():
        if hasattr(part, "acquire"):
            part.acquire()
    ending = threading.Thread(target=iterator._shutdown_workers, daemon=True)
    ending.start()
    ending.join(30)
    assert not ending.is_alive()


def test_ctrl_c_leaves_no_process() -> None:
    script = """
        import sys, time
        from engine.utils import data
        class Slow(data.Dataset):
            def __len__(self): return 100
            def __getitem__(self, i):
                time.sleep(0.05); return i
        if __name__ == "__main__":
            for batch in data.DataLoader(Slow(), num_workers=2):
                print("batch", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "batch\n"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0 and "KeyboardInterrupt" in errors
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("a worker is left")


def test_small_arrays_stay_in_the_message() -> None:
    class Wire:
        def __init__(self) -> None:
            self.sent: list[bytes] = []

        def send_bytes(self, message: bytes) -> None:
            self.sent.append(message)

        def recv_bytes(self) -> bytes:
            return self.sent.pop(0)

    wire = Wire()
    segments.Sender(wire).send(engine.arange(10.0))
    assert segments.Receiver(wire).receive().tolist() == list(range(10))
