"""Shapes at which one op is much slower than PyTorch's: calls drawn at random, forward and with backward.

    python -m benchmarks.cliffs [--peer-python torch=/path/to/python] [--rows 370] [--seed 0] [--ops conv1d,flip]
                                [--over 1.5] [--processes 2] [--rounds 4] [--threads 2] [--json FILE]

Draw `--rows` calls by the seed (ops in turn: by default each twice), time each by `--processes` processes a side, whose
rounds alternate, and take the least time of all rounds and processes: a processor may run one process at half the speed
of another, or any process for a while.  A row over the limit is measured again with three times as many rounds.  The
rows that stay over it are printed, the slowest first, and the number of all.  With --threads 1 times are of the
processor, so that what else the machine does matters less.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks._cliff_layers import CASES, Case
from benchmarks._sides import ROOT, Repeated, There, processor, serve

MODES = ("forward", "backward")
LIMIT = 1.5
Times = dict[str, float]


class Library:
    """The engine or torch: makes the tensors of a case and times its call."""

    def __init__(self, name: str) -> None:
        self.t = importlib.import_module(name)
        self.t.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
        self.repeated = Repeated(time.process_time if os.environ["OMP_NUM_THREADS"] == "1" else time.perf_counter)

    def make(self, spec: str) -> Any:
        """Return the tensor of a spec: f normal, p uniform from 0.05 to 0.95, iN integers below N."""
        kind, _, sizes = spec.partition(":")
        shape = [int(size) for size in sizes.split(",")]
        if kind.startswith("i"):
            return self.t.randint(int(kind[1:]), shape)
        return self.t.randn(shape) if kind == "f" else self.t.rand(shape) * 0.9 + 0.05

    def call(self, text: str, tensors: dict[str, str], modules: dict[str, str], mode: str) -> Callable[[], object]:
        """Return the call, of tensors that require gradients for `backward`."""
        t = self.t
        t.manual_seed(0)
        names = {"t": t, "F": t.nn.functional, **{name: self.make(spec) for name, spec in tensors.items()}}
        names |= {name: eval(made, names) for name, made in modules.items()}
        function = eval(f"lambda: {text}", names)
        if mode == "forward":

            def forward() -> None:
                with t.no_grad():
                    function()

            return forward
        leaves = [names[name].requires_grad_() for name, spec in tensors.items() if spec[0] != "i"]
        leaves += [p for name in modules for p in names[name].parameters()]
        ones = t.ones_like(function().detach())

        def both() -> None:
            function().backward(ones)
            for leaf in leaves:
                leaf.grad = None

        return both

    def seconds(self, text: str, tensors: dict[str, str], modules: dict[str, str], mode: str) -> float | str:
        """Return seconds per call, or what the call raised."""
        try:
            key = (text, str(tensors), str(modules), mode)
            return self.repeated.seconds(key, lambda: self.call(text, tensors, modules, mode), False)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:200]


def draw(ops: list[str], rows: int, seed: int) -> list[Case]:
    """Return that many cases, ops in turn; the same for the same seed."""
    return [CASES[ops[i % len(ops)]](Random(f"{seed} {ops[i % len(ops)]} {i // len(ops)}")) for i in range(rows)]


def measure(case: Case, mode: str, sides: dict[str, list[There]], rounds: int) -> Times | str:
    """Return the least seconds of each side, or what one of them raised."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for processes in zip(*sides.values()):
            for name, process in list(zip(sides, processes))[:: -1 if number % 2 else 1]:
                seconds = process.seconds(case.text, case.tensors, case.modules, mode)
                if isinstance(seconds, str):
                    return f"{name}: {seconds}"
                found[name].append(seconds)
    return {name: min(times) for name, times in found.items()}


def start(python: str | None, processes: int, threads: int) -> dict[str, list[There]]:
    """Start the processes of both sides."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    pythons = {"engine": sys.executable, "torch": python or sys.executable}
    return {
        name: [There(name, where, "benchmarks.cliffs") for _ in range(processes)] for name, where in pythons.items()
    }


def ratio(times: Times) -> float:
    """Our time / torch's."""
    return times["engine"] / times["torch"]


def sweep(
    cases: list[Case], sides: dict[str, list[There]], rounds: int, over: float
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the measured rows, and what could not be measured."""
    rows, failed = [], []
    for number, case in enumerate(cases):
        if sys.stderr.isatty():
            print(f"\r{number} of {len(cases)} {case.op:40.40}", end="", file=sys.stderr)
        for mode in MODES if case.gradients else MODES[:1]:
            times = measure(case, mode, sides, rounds)
            if not isinstance(times, str) and ratio(times) > over:
                again = measure(case, mode, sides, 3 * rounds)
                assert not isinstance(again, str), again
                times = {name: min(seconds, again[name]) for name, seconds in times.items()}
            if isinstance(times, str):
                failed.append(f"{case.op}, {mode}: {case.name}: {times}")
                continue
            rows.append({"op": case.op, "mode": mode, "call": case.name, "ratio": ratio(times), **times})
            if ratio(times) > over:
                print(text(rows[-1]), file=sys.stderr, flush=True)
    return rows, failed


def text(row: dict[str, Any]) -> str:
    """A row as a line: the ratio, our time, the call."""
    return f"{row['ratio']:7.2f} {row['engine'] * 1e6:10.1f} us  {row['op']}, {row['mode']}: {row['call']}"


def show(rows: list[dict[str, Any]], failed: list[str], over: float) -> None:
    """Print the rows over the limit, the slowest first, and the number of all."""
    slow = sorted((row for row in rows if row["ratio"] > over), key=lambda row: -row["ratio"])
    for row in slow:
        print(text(row))
    for line in failed:
        print(f"not measured: {line}")
    print(f"{len(slow)} of {len(rows)} rows are over {over} of PyTorch's time")


def main(arguments: list[str] | None = None) -> int:
    """Draw, measure, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--rows", type=int, default=2 * len(CASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ops", help="comma-separated beginnings of ops, by a semicolon where a name has commas")
    parser.add_argument("--over", type=float, default=LIMIT, help="the ratio from which on a row is printed")
    parser.add_argument("--processes", type=int, default=2, help="of a side")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(Library(options.serve).seconds)
        return 0
    elsewhere = dict(item.split("=", 1) for item in options.peer_python)
    wanted = tuple(options.ops.split(";" if ";" in options.ops else ",")) if options.ops else ("",)
    ops = [op for op in CASES if op.startswith(wanted)]
    if not ops:
        parser.error(f"no such op; there are: {', '.join(CASES)}")
    try:
        sides = start(elsewhere.get("torch"), options.processes, options.threads)
    except ImportError as error:
        print(f"not measured: {error} (elsewhere: --peer-python torch=PATH)")
        return 0
    rows, failed = sweep(draw(ops, options.rows, options.seed), sides, options.rounds, options.over)
    for process in (process for processes in sides.values() for process in processes):
        process.close()
    show(rows, failed, options.over)
    if options.json:
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        about = {"processor": processor(), "cores": os.cpu_count(), "commit": commit.stdout.strip()}
        document = {**about, "seed": options.seed, "unit": "seconds a call, float32", "rows": rows, "failed": failed}
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
