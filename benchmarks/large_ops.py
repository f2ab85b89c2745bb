"""Time of operations on large arrays, against torch in the same run.

python benchmarks/large_ops.py [--rounds 5] [--repeat 9] [--threads 2] [--json FILE]
    [--peer-python /path/to/python with torch]

Each round starts a fresh process for either side, in turn; a case's time is the median of `--repeat` calls after two to
warm up.  Printed: the median over the rounds and the ratio of the sides' times (median, and the least and the most
of a round), with the share of the machine that other programs took meanwhile: above a tenth the round does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

CHILD = """
import json, statistics, sys, time
side, threads, repeat = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if side == "engine":
    import engine as t
else:
    import torch as t
t.set_num_threads(threads)
F = t.nn.functional
N = 10_000_000
a, b, g, x = t.randn(N), t.randn(N), t.randn(N), t.randn(N).requires_grad_()
mask, rows = a > 0, t.randn(39062, 256)
images, bias = t.randn(64, 64, 49, 50), t.randn(1, 64, 1, 1)
def backward(y):
    def run():
        x.grad = None
        y.backward(g, retain_graph=True)
    return run
cases = {
    "add": lambda: a + b, "mul": lambda: a * b, "mul by a number": lambda: a * 2.5,
    "add in place": lambda: a.add_(b, alpha=1e-9), "add a channel bias": lambda: images + bias,
    "exp": lambda: a.exp(), "tanh": lambda: a.tanh(), "relu": lambda: t.relu(a), "gelu": lambda: F.gelu(a),
    "where": lambda: t.where(mask, a, b), "clone": lambda: a.clone(), "cat": lambda: t.cat([a, b]),
    "sum": lambda: a.sum(), "sum over rows": lambda: rows.sum(0), "mean of rows": lambda: rows.mean(1),
    "max": lambda: a.max(), "softmax": lambda: rows.softmax(1), "relu backward": backward(t.relu(x)),
    "gelu backward": backward(F.gelu(x)), "exp of 1e5": lambda: b[:100_000].exp(),
    "add of 1e6": lambda: rows[:3906] + rows[:3906],
}
found = {}
for name, run in cases.items():
    with t.set_grad_enabled("backward" in name):
        times = []
        for _ in range(repeat + 2):
            start = time.perf_counter()
            kept = run()
            times.append(time.perf_counter() - start)
            del kept
        found[name] = statistics.median(times[2:]) * 1e3
print(json.dumps(found))
"""


def busy() -> float:
    """Seconds that all processors were busy since the start of the machine; 0 where that is not known."""
    try:
        fields = [int(x) for x in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    except OSError:
        return 0.0
    return (sum(fields[:3]) + sum(fields[5:8])) / os.sysconf("SC_CLK_TCK")


def measure(python: str, side: str, options: argparse.Namespace) -> tuple[dict[str, float], float]:
    """One process's medians in ms, and the share of the machine that others took."""
    command = [python, "-c", CHILD, side, str(options.threads), str(options.repeat)]
    start, before, mine = time.perf_counter(), busy(), os.times()
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    if done.returncode:
        raise SystemExit(f"{side}: {done.stderr.strip().splitlines()[-1]}")
    after = os.times()
    own = after.children_user + after.children_system - mine.children_user - mine.children_system
    foreign = max(0.0, busy() - before - own) / (time.perf_counter() - start) / (os.cpu_count() or 1)
    return json.loads(done.stdout.splitlines()[-1]), foreign


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--json", type=Path, help="write the result here")
    options = parser.parse_args()
    rounds: list[tuple[dict[str, float], dict[str, float], float]] = []
    for _ in range(options.rounds):
        ours, one = measure(sys.executable, "engine", options)
        theirs, other = measure(options.peer_python, "torch", options)
        rounds.append((ours, theirs, max(one, other)))
    quiet = [r for r in rounds if r[2] <= 0.1]
    print(f"{options.threads} threads, {len(quiet)} quiet of {len(rounds)} alternating rounds, medians in ms")
    if not quiet:
        print("no round was quiet: what follows is of all of them, and says little")
    result = {}
    for case in rounds[0][0]:
        ours, theirs = zip(*[(a[case], b[case]) for a, b, _ in quiet or rounds])
        ratios = sorted(a / b for a, b in zip(ours, theirs))
        result[case] = {
            "engine_ms": statistics.median(ours),
            "torch_ms": statistics.median(theirs),
            "ratio": statistics.median(ratios),
            "least": ratios[0],
            "most": ratios[-1],
        }
        r = result[case]
        print(
            f"{case:20} engine {r['engine_ms']:7.2f}   torch {r['torch_ms']:7.2f}   "
            f"ratio {r['ratio']:.2f} ({r['least']:.2f} to {r['most']:.2f})"
        )
    if options.json:
        foreign = [round(r[2], 3) for r in rounds]
        document = {"threads": options.threads, "foreign_load": foreign, "quiet_rounds": len(quiet), "cases": result}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
