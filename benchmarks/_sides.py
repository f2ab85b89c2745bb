"""Sides of a comparison: calls timed in this process, and processes that time theirs on request.

It runs in any interpreter: nothing is imported but the standard library.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
WARM = 10  # times as many calls before the first that count: what either side compiles or settles is over
WARM_CALLS, WARM_SECONDS = 50, 0.5  # of slow calls as many, or for so long: generated code settles meanwhile


class Repeated:
    """Calls that are built and warmed up once for each key, then timed."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.key: Any = None
        self.timer: Any = None
        self.number = 0

    def seconds(self, key: tuple[object, ...], build: Callable[[], Any], few: bool) -> float:
        """Return seconds per call: the mean of about 3 ms of calls, whose number one call decides (`few`) or three."""
        if self.key != key:
            self.key = None
            self.timer = timeit.Timer(build(), timer=self.clock)
            self.timer.timeit(1)
            once = min(self.timer.timeit(1) for _ in range(1 if few else 3))
            self.number = max(1, min(5000, int(3e-3 / max(once, 1e-9))))
            self.timer.timeit(max(WARM * self.number, min(WARM_CALLS, int(WARM_SECONDS / max(once, 1e-9)))))
            self.key = key
        self.timer.timeit(1)  # the other side ran meanwhile: threads sleep, caches hold what is its own
        return self.timer.timeit(self.number) / self.number


class There:
    """A side in a process of its own, asked line by line: `python -m BENCHMARK --serve SIDE` answers by `serve`."""

    def __init__(self, side: str, python: str, benchmark: str) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        self.process = subprocess.Popen(
            [python, "-W", "ignore", "-m", benchmark, "--serve", side],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        if self.process.stdout is None or self.process.stdout.readline() != "ready\n":
            raise ImportError(f"{side} is not installed for that interpreter")

    def seconds(self, *question: object) -> Any:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def serve(seconds: Callable[..., object]) -> None:
    """Answer the requests of `There`."""
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(seconds(*json.loads(line))), flush=True)


def processor() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(": ")[2] for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
