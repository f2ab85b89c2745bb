"""Time of an optimizer step over ResNet-18's parameters, against torch in the same run.

python benchmarks/optim_step.py [--rounds 5] [--steps 10] [--peer-python /path/to/python with torch]

Each round starts a fresh process for either side, in turn: 62 parameters (11.7 million elements, float32) with fixed
gradients; two steps to warm up, then the median of `--steps` steps.  Printed: medians of the rounds, and the ratio.
The peer runs its default (for loop) and its `fused=True` kernels.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

CHILD = """
import json, sys, time
side, steps = sys.argv[1], int(sys.argv[2])
if side == "engine":
    import engine as t
else:
    import torch as t
def shapes():
    yield from [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width in (64, 128, 256, 512):
        for block in range(2):
            first = before if block == 0 else width
            yield from [(width, first, 3, 3), (width,), (width,), (width, width, 3, 3), (width,), (width,)]
            if block == 0 and first != width:
                yield from [(width, first, 1, 1), (width,), (width,)]
        before = width
    yield from [(1000, 512), (1000,)]
cases = {"SGD": dict(lr=1e-3), "SGD momentum": dict(lr=1e-3, momentum=0.9, weight_decay=1e-4), "Adam": dict(lr=1e-3),
         "AdamW": dict(lr=1e-3)}
found = {}
for name, options in cases.items():
    params = [t.randn(*s).requires_grad_() for s in shapes()]
    for p in params:
        p.grad = t.randn(*p.shape)
    if side == "torch fused":
        options["fused"] = True
    optimizer = getattr(t.optim, name.split()[0])(params, **options)
    times = []
    for i in range(steps + 2):
        start = time.perf_counter()
        optimizer.step()
        times.append(time.perf_counter() - start)
    found[name] = sorted(times[2:])[steps // 2] * 1e3
print(json.dumps(found))
"""


def measure(python: str, side: str, steps: int) -> dict[str, float] | None:
    """One process's medians in ms, or None where that side is not installed."""
    done = subprocess.run(
        [python, "-c", CHILD, side, str(steps)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    if done.returncode:
        print(f"{side}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with torch")
    options = parser.parse_args()
    sides = (
        ("engine", sys.executable),
        ("torch", options.peer_python),
        ("torch fused", options.peer_python),
    )
    results: dict[str, list[dict[str, float]]] = {side: [] for side, _ in sides}
    for _ in range(options.rounds):
        for side, python in sides:
            found = measure(python, side, options.steps)
            if found:
                results[side].append(found)
    print(f"step over 11.7 million float32 elements, {options.rounds} alternating rounds, medians in ms")
    for case in results["engine"][0]:
        medians = {s: statistics.median(r[case] for r in rows) for s, rows in results.items() if rows}
        line = "   ".join(f"{side} {ms:6.1f}" for side, ms in medians.items())
        ratios = "   ".join(
            f"/ {side} {medians['engine'] / ms:.2f}" for side, ms in medians.items() if side != "engine"
        )
        print(f"{case:13} {line}   ratio engine {ratios}")


if __name__ == "__main__":
    main()
