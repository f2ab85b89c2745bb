"""The parent's side of a child that runs a job: serves it, watches it, and ends it.

Messages are JSON behind a length of four bytes.  The child's side of the pipes is in the hands of
foreign code: whatever comes is checked, and nothing here waits for the child without a limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubcli import errors, output
from hubcli.confined.confine import Limits
from hubcli.errors import HubError

if TYPE_CHECKING:
    from hubcli.confined.broker import Broker

MAX_MESSAGE = 64 << 20
_TICK = 0.05
_TAIL = 16_000


@dataclass(frozen=True)
class Ended:
    """A child that ended without a result.

    `why` is timeout, memory, tasks, cpu, signal, exit or protocol; `text` says it in a sentence.
    """

    why: str
    text: str


@dataclass(frozen=True)
class Outcome:
    """What a child has left: its result, or its error, or how it ended; and what it printed last."""

    result: dict[str, Any] | None
    error: HubError | None
    ended: Ended | None
    printed: str
    seconds: float


def kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and all of its group; bubblewrap's namespace dies with bubblewrap.

    The group goes first, also after the child has ended: its number is its own until it is reaped.
    """
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.wait()


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Whether it has ended; it stays to be reaped by `kill`."""
    if child.returncode is not None or not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class Watch:
    """The parent's side of one running child."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        asked: int,
        answering: int,
        limits: Limits,
        broker: Broker | None,
        report: Callable[[Mapping[str, Any]], None] | None,
        printed: Callable[[str], None] | None,
        cancelled: threading.Event | None,
    ) -> None:
        self.child, self.asked, self.answering = child, asked, answering
        self.limits, self.broker, self.cancelled = limits, broker, cancelled
        self.report, self.printed = report, printed
        self.received = bytearray()
        self.tail = ""
        self.line = b""
        self.ready = False
        self.outcome: tuple[dict[str, Any] | None, HubError | None] | None = None
        self.started = time.monotonic()
        self.elsewhere = 0.0  # seconds that the parent worked for the child
        os.set_blocking(answering, False)
        os.set_blocking(asked, False)

    def run(self) -> Outcome:
        """Serve the child until it has a result, ends, or goes beyond a limit."""
        ended: Ended | None = None
        assert self.child.stdout is not None
        os.set_blocking(self.child.stdout.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.asked, selectors.EVENT_READ, self._receive)
            selector.register(self.child.stdout.fileno(), selectors.EVENT_READ, self._print)
            checked = 0.0
            try:
                while self.outcome is None and ended is None and selector.get_map():
                    for key, _ in selector.select(_TICK):
                        if not key.data(key.fd):
                            selector.unregister(key.fd)
                    now = time.monotonic()
                    if now - checked >= _TICK:
                        checked, ended = now, self._beyond()
                    if self.outcome is None and _has_ended(self.child):
                        self._drain(selector)
                        break
            except _Violation as error:
                ended = Ended("protocol", f"the process broke hub's protocol: {error}")
        if self.outcome is None and ended is None:
            ended = self._how()
        kill(self.child)
        self._flush()
        if ended is not None and not self.ready and ended.why in ("exit", "signal"):
            said = " ".join(self.tail.split())[-300:]
            raise HubError(f"the sandbox could not be started: {said or ended.text}")
        result, failure = self.outcome or (None, None)
        seconds = time.monotonic() - self.started - self.elsewhere
        return Outcome(result, failure, ended if self.outcome is None else None, self.tail, seconds)

    def _drain(self, selector: selectors.BaseSelector) -> None:
        """Read what a child that has ended left in the pipes."""
        while self.outcome is None:
            ready = selector.select(0)
            if not ready:
                return
            for key, _ in ready:
                if not key.data(key.fd):
                    selector.unregister(key.fd)

    def _receive(self, descriptor: int) -> bool:
        try:
            part = os.read(descriptor, 1 << 20)
        except BlockingIOError:
            return True
        self.received += part
        while self.outcome is None and len(self.received) >= 4:
            (length,) = struct.unpack_from("<I", self.received)
            if length > MAX_MESSAGE:
                raise _Violation(f"a message of {length} bytes")
            if len(self.received) < 4 + length:
                break
            text = bytes(self.received[4 : 4 + length])
            del self.received[: 4 + length]
            self._message(text)
        return bool(part)

    def _message(self, text: bytes) -> None:
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            raise _Violation("a message that is not JSON") from None
        if not isinstance(message, dict):
            raise _Violation("a message that is not an object")
        if isinstance(message.get("result"), dict):
            self.outcome = (message["result"], None)
        elif isinstance(message.get("error"), dict):
            self.outcome = (None, errors.as_error(message["error"]))
        elif isinstance(message.get("event"), dict):
            self.ready = True
            if self.report is not None:
                self.report(message["event"])
        elif isinstance(message.get("ask"), str):
            self._answer(message)
        else:
            raise _Violation("a message of no known kind")

    def _answer(self, message: Mapping[str, Any]) -> None:
        started = time.monotonic()
        try:
            if self.broker is None:
                raise HubError("nothing is fetched for this process")
            answer = {"answer": self.broker.answer(message)}
        except HubError as known:
            answer = {"error": errors.as_document(known)}
        except Exception as error:  # what it asks for may be made to break us
            text = f"{type(error).__name__}: {error}"
            answer = {"error": errors.as_document(HubError(f"the request failed: {text[:300]}"))}
        if "answer" in answer:  # what is refused or fails is at the child's own expense
            self.elsewhere += time.monotonic() - started
        body = json.dumps(answer).encode()
        whole = struct.pack("<I", len(body)) + body
        try:
            written = os.write(self.answering, whole)
        except (BlockingIOError, BrokenPipeError):
            written = -1
        if written != len(whole):  # answers are small: whoever reads them leaves room
            raise _Violation("it does not read its answers")

    def _print(self, descriptor: int) -> bool:
        try:
            part = os.read(descriptor, 1 << 16)
        except BlockingIOError:
            return True
        self.line += part
        *lines, self.line = self.line.split(b"\n")
        if len(self.line) > _TAIL:
            lines.append(self.line)
            self.line = b""
        for one in lines:
            self._say(one)
        return bool(part)

    def _flush(self) -> None:
        if self.line:
            self._say(self.line)
            self.line = b""

    def _say(self, line: bytes) -> None:
        text = output.printable(line.decode("utf-8", "replace"))
        self.tail = f"{self.tail}{text}\n"[-_TAIL:]
        if self.printed is not None:
            self.printed(text)

    def _beyond(self) -> Ended | None:
        """How the child goes beyond its limits, if it does."""
        if self.cancelled is not None and self.cancelled.is_set():
            return Ended("cancelled", "interrupted")
        limit = self.limits.seconds
        if limit is not None and time.monotonic() - self.started - self.elsewhere > limit:
            return Ended("timeout", f"not done after {limit:g} s (--timeout)")
        tasks, memory = _usage(self.child.pid)
        if len(tasks) > self.limits.tasks:
            return Ended("tasks", f"more than {self.limits.tasks} processes and threads")
        if memory > self.limits.memory and _shared_once(tasks) > self.limits.memory:
            return Ended("memory", f"more than {output.size(self.limits.memory)} of memory")
        return None

    def _how(self) -> Ended:
        deadline = time.monotonic() + 5
        while not _has_ended(self.child):
            if time.monotonic() > deadline:  # it has closed its pipes and stays
                return Ended("protocol", "the process broke hub's protocol: it closed its pipes")
            time.sleep(0.01)
        kill(self.child)
        status = self.child.returncode
        number = -status if status < 0 else status - 128 if status > 128 else 0
        with contextlib.suppress(ValueError):
            name = signal.Signals(number).name
            if name == "SIGXCPU":
                return Ended("cpu", f"more than {self.limits.cpu} s of CPU time")
            return Ended("signal", f"killed by {name}")
        return Ended("exit", f"the code ended the process with status {status}")


class _Violation(Exception):
    """The child does not speak as `worker` does: foreign code has taken its pipes."""


def _usage(root: int) -> tuple[list[int], int]:
    """Tasks of a process and all below it, by their process, and bytes of memory that is no file's.

    What forked processes share is counted for each of them.
    """
    tasks: list[int] = []
    memory = 0
    pending = [root]
    seen: set[int] = set()
    while pending and len(seen) < 4096:
        pid = pending.pop()
        if pid in seen:
            continue
        seen.add(pid)
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
                memory += sum(_kilobytes(file, ("RssAnon", "RssShmem"))) * 1024
            for task in os.listdir(f"/proc/{pid}/task"):
                tasks.append(pid)
                with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                    pending += map(int, file.read().split())
    return tasks, memory


def _shared_once(tasks: list[int]) -> int:
    """The same memory, each page divided among those who share it: exact, and slower."""
    memory = 0
    for pid in set(tasks):
        try:
            with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as file:
                memory += sum(_kilobytes(file, ("Pss_Anon", "Pss_Shmem"))) * 1024
        except FileNotFoundError:  # it has ended
            continue
        except OSError:
            with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as file:
                memory += sum(_kilobytes(file, ("RssAnon", "RssShmem"))) * 1024
    return memory


def _kilobytes(lines: Iterable[str], names: tuple[str, ...]) -> Iterator[int]:
    for line in lines:
        name, _, value = line.partition(":")
        if name in names:
            yield int(value.split()[0])
