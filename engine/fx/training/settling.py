"""Whether a program is faster than what it stands for: calls of both are timed in turns, each call once.

A turn is some calls: the first of them finds no memory of the other side's sizes kept, so that both sides together take
no more than one of them, and takes longer for it.
"""

from __future__ import annotations

import os
import time

__all__ = ["Turns", "measured"]

FEW, MANY = 6, 64  # calls of each: light steps compile kernels after 32 calls, heavy ones in the first few
RUN = 2  # calls of a turn
SECONDS = 2.0  # of both, after which few are enough
MARGIN = 1.1  # times as long as op by op: clearly slower

clock = time.perf_counter


def measured() -> bool:
    """Whether times decide; not with ENGINE_ROUTES=static."""
    return os.environ.get("ENGINE_ROUTES", "").lower() != "static"


class Turns:
    """The times of a program's calls and of those op by op, which take turns."""

    def __init__(self) -> None:
        self.program: list[float] = []
        self.plain: list[float] = []

    @property
    def plainly(self) -> bool:
        """Whether the next call is one op by op."""
        return bool((len(self.program) + len(self.plain)) // RUN % 2)

    @property
    def change(self) -> bool:
        """Whether a turn is over."""
        return (len(self.program) + len(self.plain)) % RUN == 0

    @property
    def over(self) -> bool:
        """Whether there are enough of both."""
        calls = len(self.plain)
        return calls >= MANY or (calls >= FEW and sum(self.program) + sum(self.plain) >= SECONDS)

    @property
    def late(self) -> str:
        """Why the program is dropped, if it is clearly slower; of each side a quarter of the calls took less."""
        mine, theirs = (sorted(times)[len(times) // 4] for times in (self.program, self.plain))
        if mine <= MARGIN * theirs:
            return ""
        return f"its program was slower: {mine * 1e3:.3g} ms a call, op by op {theirs * 1e3:.3g}"
