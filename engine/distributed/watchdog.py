"""Calls of GPUs that do not end: who is missing, and what becomes of this process.

Note [Watching]
NCCL's calls run on a stream; where a process has died, the others' streams never end, and a host that waits for one of
its numbers waits for ever.  So each process of an NCCL group has a thread that looks at the oldest call under way.
Shortly before the group's timeout it queries through the group's store who is there: the threads of living processes
answer with the number of calls that theirs have made.  Who does not answer has ended; whose number is lower has not
come.  The first that knows writes it into the store, so that nobody takes a process for lost that has ended for this
reason.  To abort the communicator would end the streams, but with numbers that are wrong.  So that is done only where
the host waits in a call that then raises the error; else the thread says why and ends the process (SIGABRT), as torch's
does."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from engine.distributed.store import DistBackendError, Store

__all__ = ["Watch"]

_LOOKS = 20  # within a timeout
_LONGEST = 5.0  # seconds between two looks
_ANSWER = 3  # looks that the others have to answer


class Watch:
    """The thread of one process of a group.

    abort: ends the calls under way.  broken: raises the library's own error, if it knows of one.
    """

    def __init__(
        self,
        store: Store,
        ranks: Sequence[int],
        me: int,
        timeout: float,
        abort: Callable[[], None],
        broken: Callable[[], object],
    ) -> None:
        self.store, self.ranks, self.me, self.timeout = store, list(ranks), me, timeout
        self.error: DistBackendError | None = None
        self.waiting = False  # the host is in a call that raises `error`
        self._abort, self._broken = abort, broken
        self._pause = min(timeout / _LOOKS, _LONGEST)
        self._calls: deque[tuple[str, Any, float, int]] = deque()
        self._made = self._queries = 0
        self._ended = threading.Event()
        threading.Thread(target=self._run, daemon=True, name="NCCL watch").start()

    def note(self, what: str, event: Any) -> None:
        """A call has been queued; `event.done` when it has ended."""
        self._made += 1
        self._calls.append((what, event, time.monotonic(), self._made))

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def _oldest(self) -> tuple[str, Any, float, int] | None:
        """The oldest call under way, of those that have had some time."""
        while self._calls:
            call = self._calls[0]
            if time.monotonic() - call[2] < self._pause or not call[1].done:
                return call
            self._calls.popleft()
        return None

    def _answer(self) -> None:
        while self.store.check([f"ask/{self._queries + 1}"]):
            self._queries += 1
            self.store.set(f"answer/{self._queries}/{self.me}", str(self._made))

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            call = self._oldest()
            overdue = call is not None and time.monotonic() - call[2] > self.timeout - (_ANSWER + 2) * self._pause
            try:
                self._answer()
                reason = self._look(call, overdue) if call is not None else None
            except (OSError, RuntimeError) as error:  # the store
                if self._ended.is_set() or call is None:  # the job's end
                    return
                reason = f"{call[0]}: {error}"
            if reason is not None:
                return self._fail(reason)

    def _look(self, call: tuple[str, Any, float, int], overdue: bool) -> str | None:
        """Return the fault of a call that is overdue or that the library reports as failed; None without one."""
        what, event, begun, number = call
        if said := self._said():
            return f"{what}: {said}"
        known = ""
        try:
            self._broken()
        except Exception as error:  # NcclError
            known = f" ({error})"
        if not overdue and not known:
            return None
        query = self._queries + 1
        self.store.set(f"ask/{query}", str(self.me))
        for _ in range(_ANSWER):
            if self._ended.wait(self._pause):
                return None
            self._answer()
        if event.done:
            return None
        if said := self._said():
            return f"{what}: {said}"
        silent, behind = [], []
        for place, rank in enumerate(self.ranks):
            key = f"answer/{query}/{place}"
            if not self.store.check([key]):
                silent.append(rank)
            elif int(self.store.get(key)) < number:
                behind.append(rank)
        words = []
        if silent:
            words.append(f"rank(s) {silent} have ended or do not answer")
        if behind:
            words.append(f"rank(s) {behind} did not take part within {self.timeout:.0f} s")
        spent = time.monotonic() - begun
        reason = ("; ".join(words) or f"it has not ended within {spent:.0f} s, all ranks take part") + known
        self.store.set("reason", reason)
        return f"{what}: {reason}"

    def _said(self) -> str:
        """Return the reason that another process has stored why the group's calls do not end; "" without one."""
        return self.store.get("reason").decode() if self.store.check(["reason"]) else ""

    def _fail(self, reason: str) -> None:
        self.error = DistBackendError(reason)
        if self.waiting:
            return self._abort()
        print(
            f"rank {self.ranks[self.me]}: {reason}\nWhat was queued on the GPU after it would compute with wrong "
            "numbers: this process is ended",
            file=sys.stderr,
            flush=True,
        )
        self._ended.wait(
            2 * self._pause
        )  # the others read the reason, perhaps from a store that ends with this process
        os.abort()
