"""The least time that work can take on this machine: bytes / bandwidth of the memory, operations / peak of products.

python -m benchmarks.floor [--threads N] [--rounds 7] [--peer-python PYTHON_WITH_TORCH] [--json FILE]

Measured: a copy of 256 MB, a read of 256 MB of weights (a product of a matrix and a vector), each on one thread and on
all, in GB per second; products of two matrices of 2048 x 2048 in float32, bfloat16 and int8 by numpy, the engine and
torch where it is given, in 10^9 operations per second (a multiplication and an addition are two).  The best of all
rounds counts, of the products also the best library: a floor is what has been seen to be possible, not what a data
sheet says.  Other benchmarks write ours / floor beside ours / peer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROWS, COLUMNS = 8192, 8192  # 256 MB of float32: beyond every cache
SIZE = 2048
DTYPES = ("float32", "bfloat16", "int8")

CHILD = """
import json, sys, time
side, size, threads, rounds = sys.argv[1], *map(int, sys.argv[2:5])
if side == "engine":
    import engine as torch
else:
    import torch
torch.set_num_threads(threads)
found = {}
with torch.no_grad():
    for name in ("float32", "bfloat16", "int8"):
        if name == "int8":
            if not hasattr(torch, "_int_mm"):
                continue
            a = torch.randint(-100, 100, (size, size), dtype=torch.int8)
            multiply = torch._int_mm
        else:
            a = torch.randn(size, size, dtype=getattr(torch, name))
            multiply = torch.matmul
        times = []
        for _ in range(rounds):
            begun = time.perf_counter()
            multiply(a, a)
            times.append(time.perf_counter() - begun)
            if sum(times) > 5:
                break
        found[name] = min(times)
print(json.dumps(found))
"""


def best(step: Callable[[], object], rounds: int) -> float:
    """Return the least seconds of a step."""
    step()
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        step()
        times.append(time.perf_counter() - begun)
    return min(times)


def bandwidth(threads: int, rounds: int) -> dict[str, float]:
    """Return GB per second of a copy (bytes read and written) and of a read of weights, on so many threads."""
    weight = np.ones((ROWS, COLUMNS), np.float32)
    target, vector = np.empty_like(weight), np.ones(COLUMNS, np.float32)
    bounds = [ROWS * i // threads for i in range(threads + 1)]
    parts = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    with ThreadPoolExecutor(threads) as pool:
        copied = best(lambda: list(pool.map(lambda part: np.copyto(target[part], weight[part]), parts)), rounds)
        read = best(lambda: list(pool.map(lambda part: weight[part] @ vector, parts)), rounds)
    return {"copy": 2 * weight.nbytes / copied / 1e9, "read": weight.nbytes / read / 1e9}


def products(threads: int, rounds: int, peer: str | None) -> dict[str, dict[str, float]]:
    """Return 10^9 operations per second of a product of matrices: dtype -> library -> rate."""
    operations = 2 * SIZE**3
    a = np.random.default_rng(0).standard_normal((SIZE, SIZE), np.float32)
    found: dict[str, dict[str, float]] = {name: {} for name in DTYPES}
    found["float32"]["numpy"] = operations / best(lambda: a @ a, rounds) / 1e9
    for side, python in (("engine", sys.executable), ("torch", peer)):
        if python is None:
            continue
        command = [python, "-c", CHILD, side, str(SIZE), str(threads), str(rounds)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
        if done.returncode:
            print(f"{side}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
            continue
        for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
            found[name][side] = operations / seconds / 1e9
    return found


def measure(threads: int, rounds: int = 7, peer: str | None = None) -> dict[str, Any]:
    """Return what this machine was seen to do: `bandwidth` on 1 and `threads` threads, `products` by dtype."""
    return {
        "threads": threads,
        "bandwidth": {str(n): bandwidth(n, rounds) for n in sorted({1, threads})},
        "products": products(threads, rounds, peer),
    }


def seconds(machine: dict[str, Any], read: float = 0, operations: float = 0, dtype: str = "float32") -> float:
    """Return the least seconds of work that reads so many bytes of weights and does so many operations.

    machine: what `measure` returned.  The larger of both times counts: they overlap.  ValueError for a dtype in which
    no library was measured.
    """
    rates = machine["products"].get(dtype, {})
    if operations and not rates:
        raise ValueError(f"no library here multiplies matrices of {dtype}: measured were {', '.join(DTYPES)}")
    memory = read / 1e9 / max(side["read"] for side in machine["bandwidth"].values())
    return max(memory, operations / 1e9 / max(rates.values()) if operations else 0.0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer-python", metavar="PATH", help="an interpreter with torch")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    peer = (options.peer_python or "").removeprefix("torch=") or None
    machine = measure(options.threads, options.rounds, peer)
    print("| memory, GB per second | copy | read of weights |\n|---|---|---|")
    for threads, rates in machine["bandwidth"].items():
        print(f"| {threads} thread{'s' * (threads != '1')} | {rates['copy']:.1f} | {rates['read']:.1f} |")
    print(f"\n| products of {SIZE} x {SIZE}, 10^9 operations per second | best | by |\n|---|---|---|")
    for dtype, sides in machine["products"].items():
        if sides:
            library, rate = max(sides.items(), key=lambda side: side[1])
            others = ", ".join(f"{name} {r:.0f}" for name, r in sides.items() if name != library)
            print(f"| {dtype} | {rate:.0f} | {library}{f' ({others})' if others else ''} |")
    if options.json:
        options.json.write_text(json.dumps(machine, indent=1) + "\n")


if __name__ == "__main__":
    main()
