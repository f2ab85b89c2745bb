"""The engine of this checkout against that of another one: every workload, in processes whose rounds alternate.

    python -m benchmarks.against CHECKOUT [--rounds 5] [--seconds 0.5] [--threads 1] [--only "mlp train"] [--json FILE]

CHECKOUT: a clone at the commit before; both run in this interpreter.  A ratio is here / there: of the least medians of
a side's rounds, which says most where a machine's clock or its neighbours change; of the time from the start of the
network to the end of its first step, least of three; and of the peak of memory.  The last line has geometric means.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.workloads import HERE, WORKLOADS, Side, environment, geometric

NAMES = ("engine", "engine plan")
FIRST = """
import sys, time
sys.path.insert(0, sys.argv[1])
import engine
from _contender import torch_steps
begin = time.perf_counter()
torch_steps(sys.argv[2], sys.argv[3], int(sys.argv[4]))()
print(time.perf_counter() - begin)
"""


def _environment(folder: Path, name: str, threads: int) -> dict[str, str]:
    return {**environment(name, threads), "PYTHONPATH": str(folder.parent)}


def _open(folder: Path, name: str, workload: str, threads: int) -> Side | None:
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", str(folder / "_contender.py"), name, workload, str(threads)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=_environment(folder, name, threads),
    )
    assert process.stdout
    ready = any(line == "ready\n" for line in process.stdout)
    return Side(name, process) if ready else None


def _first(folder: Path, name: str, workload: str, threads: int) -> float:
    command = [sys.executable, "-W", "ignore", "-c", FIRST, str(folder), name, workload, str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, env=_environment(folder, name, threads))
    return float(done.stdout) if done.returncode == 0 else float("nan")


def _row(folders: tuple[Path, Path], name: str, workload: str, options: argparse.Namespace) -> dict[str, Any] | None:
    firsts: list[list[float]] = [[], []]
    if name == "engine plan":
        for i in range(3):
            for side in (0, 1) if i % 2 else (1, 0):
                firsts[side].append(_first(folders[side], name, workload, options.threads))
    sides = [_open(folder, name, workload, options.threads) for folder in folders]
    if None in sides:
        return None
    for i in range(options.rounds):
        for side in sides if i % 2 else sides[::-1]:
            assert side is not None
            side.measure(options.seconds, 1.0, 1)
    for side in sides:
        assert side is not None
        side.close()
    here, there = (side for side in sides if side is not None)
    return {
        "here_ms": min(here.medians) * 1e3,
        "there_ms": min(there.medians) * 1e3,
        "time": min(here.medians) / min(there.medians),
        "first": min(firsts[0]) / min(firsts[1]) if firsts[0] else None,
        "peak": here.peak / there.peak,
    }


def main() -> int:
    """Print a row for each workload and keep them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a clone at the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a round")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    folders = HERE, options.checkout.resolve() / "benchmarks"
    rows: dict[str, dict[str, Any]] = {}
    print(f"{'here / there':<36}{'time':>8}{'first':>8}{'peak':>8}{'ms here':>12}{'there':>12}")
    for workload, contenders in WORKLOADS.items():
        if options.only not in workload:
            continue
        for name in NAMES:
            if name != "engine" and name not in contenders:
                continue
            row = _row(folders, name, workload, options)
            if row is None:
                print(f"{workload}, {name}: not measured")
                continue
            rows[f"{workload}, {name}"] = row
            first = f"{row['first']:8.2f}" if row["first"] else f"{'-':>8}"
            times = f"{row['here_ms']:12.3f}{row['there_ms']:12.3f}"
            print(
                f"{workload + ' plan' * (name != 'engine'):<36}{row['time']:8.2f}{first}{row['peak']:8.2f}{times}",
                flush=True,
            )
    means = {}
    for what in ("time", "first", "peak"):
        if found := [row[what] for row in rows.values() if row[what]]:
            means[what] = geometric(found)
    print("geometric means: " + ", ".join(f"{what} {value:.3f}" for what, value in means.items()))
    if options.json:
        options.json.write_text(json.dumps({"rows": rows, "means": means}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
