"""The parent's side of a child that runs a job: serves it, watches it, and ends it.

Messages are JSON behind a length of four bytes.  The child's side of the pipes is in the hands of
foreign code: whatever comes is checked, and nothing here waits for the child without a limit.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubcli import errors
from hubcli.base import output
from hubcli.confined import process_tree
from hubcli.confined.restrict import Limits
from hubcli.errors import HubError

if TYPE_CHECKING:
    from hubcli.confined.broker import Broker
    from hubcli.confined.process_tree import Cgroup

MAX_MESSAGE = 16 << 20  # bytes of a result
MAX_NOTE = 1 << 16  # of every other message
MAX_VALUES = 250_000  # values in a message: each costs many times the bytes that it is written with
MAX_EVENTS = 1_000
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
    """The outcome of a child: its result, or its error, or how it ended; and what it printed last."""

    result: dict[str, Any] | None
    error: HubError | None
    ended: Ended | None
    printed: str
    seconds: float


def end_group(child: subprocess.Popen[bytes]) -> None:
    """Kill the child and all of its group; bubblewrap's namespace dies with bubblewrap.

    The group goes first, also after the child has ended: its number is its own until it is reaped.
    """
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()


def kill(child: subprocess.Popen[bytes]) -> None:
    """`end_group`, and reap the child."""
    end_group(child)
    child.wait()


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _Violation(f"the number {text[:20]}")
    return value


def _whole(text: str) -> int:
    if len(text) > 20:
        raise _Violation(f"a number of {len(text)} digits")
    return int(text)


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Return whether it has ended; it stays to be reaped by `kill`."""
    if child.returncode is not None or not hasattr(os, "waitid"):
        return child.poll() is not None
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


class Watch:
    """The parent's side of one running child."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        request_out: int,
        reply_in: int,
        limits: Limits,
        broker: Broker | None,
        report: Callable[[Mapping[str, Any]], None] | None,
        printed: Callable[[str], None] | None,
        cancelled: threading.Event | None,
        cgroup: Cgroup | None = None,
    ) -> None:
        self.child, self.request_out, self.reply_in = child, request_out, reply_in
        self.limits, self.broker, self.cancelled = limits, broker, cancelled
        self.report, self.printed, self.cgroup = report, printed, cgroup
        self.received = bytearray()
        self.tail = ""
        self.line = b""
        self.ready = False
        self.events = 0
        self.errors_sent: list[dict[str, Any]] = []
        self.outcome: tuple[dict[str, Any] | None, HubError | None] | None = None
        self.started = time.monotonic()
        self.elsewhere = 0.0  # seconds that the parent worked for the child
        os.set_blocking(reply_in, False)
        os.set_blocking(request_out, False)

    def run(self) -> Outcome:
        """Serve the child until it has a result, ends, or goes beyond a limit."""
        ended: Ended | None = None
        assert self.child.stdout is not None
        os.set_blocking(self.child.stdout.fileno(), False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.request_out, selectors.EVENT_READ, self._receive)
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
        if sum(map(text.count, (b"[", b"{", b","))) > MAX_VALUES:
            raise _Violation(f"a message of more than {MAX_VALUES} values")
        try:
            message = json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole)
        except (ValueError, RecursionError):
            raise _Violation("a message that is not JSON") from None
        if len(text) > MAX_NOTE and not (isinstance(message, dict) and isinstance(message.get("result"), dict)):
            raise _Violation(f"a message of {len(text)} bytes that is no result")
        if not isinstance(message, dict):
            raise _Violation("a message that is not an object")
        if isinstance(message.get("result"), dict):
            self.outcome = (message["result"], None)
        elif isinstance(message.get("error"), dict):
            self.outcome = (None, self._said(message["error"]))
        elif isinstance(message.get("event"), dict):
            self.ready = True
            self.events += 1
            if self.events > MAX_EVENTS:
                raise _Violation(f"more than {MAX_EVENTS} events")
            if self.report is not None:
                self.report(message["event"])
        elif isinstance(message.get("ask"), str):
            self._answer(message)
        else:
            raise _Violation("a message of no known kind")

    def _said(self, document: Mapping[str, Any]) -> HubError:
        """Return the child's error: our own word where it hands on what it was answered, else a stranger's, on one
        line."""
        error = errors.as_error(document)
        if document not in self.errors_sent:
            error.foreign = True
            error.message = _line(error.message)
            error.args = (error.message,)
            error.hint = error.hint and _line(error.hint)
            error.causes = tuple(one._replace(text=_line(one.text)) for one in error.causes)
            error.spec = None
        return error

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
        if "error" in answer:
            self.errors_sent = [*self.errors_sent[-15:], answer["error"]]
        if "answer" in answer:  # what is refused or fails is at the child's own expense
            self.elsewhere += time.monotonic() - started
        body = json.dumps(answer).encode()
        whole = struct.pack("<I", len(body)) + body
        try:
            written = os.write(self.reply_in, whole)
        except (BlockingIOError, BrokenPipeError):
            written = -1
        if written != len(whole):  # responses are small: whoever reads them leaves space
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
        """Return how the child goes beyond its limits, if it does."""
        if self.cancelled is not None and self.cancelled.is_set():
            return Ended("cancelled", "interrupted")
        limit = self.limits.seconds
        if limit is not None and time.monotonic() - self.started - self.elsewhere > limit:
            return Ended("timeout", f"not done after {limit:g} s (--timeout)")
        if self.cgroup is not None and self.cgroup.used() > self.limits.memory:
            return self._memory()
        tasks, memory = process_tree.usage(self.child.pid)
        if len(tasks) > self.limits.tasks:
            return Ended("tasks", f"more than {self.limits.tasks} processes and threads")
        if memory > self.limits.memory and process_tree.shared_once(tasks) > self.limits.memory:
            return self._memory()
        return None

    def _memory(self) -> Ended:
        return Ended("memory", f"more than {output.size(self.limits.memory)} of memory")

    def _how(self) -> Ended:
        deadline = time.monotonic() + 5
        while not _has_ended(self.child):
            if time.monotonic() > deadline:  # it has closed its pipes and stays
                return Ended("protocol", "the process broke hub's protocol: it closed its pipes")
            time.sleep(0.01)
        kill(self.child)
        status = self.child.returncode
        if status and self.cgroup is not None and self.cgroup.overran():
            return self._memory()
        number = -status if status < 0 else status - 128 if status > 128 else 0
        with contextlib.suppress(ValueError):
            name = signal.Signals(number).name
            if name == "SIGXCPU":
                return Ended("cpu", f"more than {self.limits.cpu} s of CPU time")
            return Ended("signal", f"killed by {name}")
        return Ended("exit", f"the code ended the process with status {status}")


class _Violation(Exception):
    """The child does not speak as `worker` does: foreign code has taken its pipes."""


def _line(text: str) -> str:
    """Return a stranger's words as one line, without what a terminal would act on."""
    return " ".join(output.printable(text).split())
