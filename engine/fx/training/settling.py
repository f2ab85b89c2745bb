"""Whether a program is faster than what it stands for: calls of both are timed in turns, each call once."""

from __future__ import annotations

import os
import time

__all__ = ["Turns", "measured"]

FEW, MANY = 6, 64  # turns of each: light steps compile kernels after 32 calls, heavy ones in the first few
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
    def over(self) -> bool:
        """Whether there are enough of both."""
        turns = len(self.plain)
        return turns >= MANY or (turns >= FEW and sum(self.program) + sum(self.plain) >= SECONDS)

    @property
    def late(self) -> str:
        """Why the program is dropped, if it is clearly slower; of each side a quarter of the calls took less."""
        mine, theirs = (sorted(times)[len(times) // 4] for times in (self.program, self.plain))
        if mine <= MARGIN * theirs:
            return ""
        return f"its program was slower: {mine * 1e3:.3g} ms a call, op by op {theirs * 1e3:.3g}"
