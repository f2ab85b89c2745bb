"""Times on an NVIDIA GPU, against torch in the same run where it is installed.

    python -m benchmarks.gpu [--output gpu.json] [--rounds 5]      on a machine with a GPU; benchmarks/gpu.sh calls it
    python -m benchmarks.gpu --stale                               whether the numbers kept are of today's sources

Each round starts a process for either side, in turn.  A number is the median of the rounds' medians, in microseconds;
the ratio is torch / engine.  Kept with the commit and a digest of the CUDA sources.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks/results/gpu.json"
SOURCES = ("engine/backends/cuda", "engine/cuda")
CHILD = """
import json, sys, time
side = sys.argv[1]
if side == "engine":
    import engine as t
else:
    import torch as t
F, d = t.nn.functional, "cuda"
def timed(call, count):
    for _ in range(3):
        call()
    t.cuda.synchronize()
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        t.cuda.synchronize()
        times.append((time.perf_counter() - begin) / count * 1e6)
    return sorted(times)[2]
big = t.randn(4096, 4096, device=d)
half = big.to(t.bfloat16)
small = t.randn(128, 128, device=d)
image, kernel = t.randn(64, 64, 56, 56, device=d), t.randn(64, 64, 3, 3, device=d)
L, R = t.nn.Linear, t.nn.ReLU
net = t.nn.Sequential(L(784, 256), R(), L(256, 256), R(), L(256, 10)).to(d)
optimizer = t.optim.SGD(net.parameters(), lr=1e-3)
x = t.randn(128, 784, device=d)
def step():
    optimizer.zero_grad(set_to_none=False)
    net(x).pow(2).mean().backward()
    optimizer.step()
found = {
    "add 64 MB": timed(lambda: big + big, 50), "exp 64 MB": timed(lambda: big.exp(), 50),
    "sum 64 MB": timed(lambda: big.sum(), 50), "softmax 64 MB": timed(lambda: F.softmax(big, 1), 20),
    "layer_norm 64 MB": timed(lambda: F.layer_norm(big, (4096,)), 20), "mm float32 4096": timed(lambda: big @ big, 10),
    "mm bfloat16 4096": timed(lambda: half @ half, 20), "add 128 x 128 (launch)": timed(lambda: small + small, 500),
    "conv2d 64 x 64 x 56 x 56": timed(lambda: F.conv2d(image, kernel, padding=1), 5), "MLP step": timed(step, 50),
}
try:
    side_stream = t.cuda.Stream()
    graph = t.cuda.CUDAGraph()
    with t.cuda.graph(graph, stream=side_stream):
        step()
    found["MLP step, captured"] = timed(graph.replay, 200)
except Exception as error:
    print(f"capture: {type(error).__name__}: {error}", file=sys.stderr)
print(json.dumps(found))
"""


def digest() -> str:
    """Of the CUDA sources."""
    made = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh", ".h"):
                made.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return made.hexdigest()


def stale() -> str:
    """One sentence: are there numbers of a GPU, and of these sources?"""
    if not KEPT.exists():
        return "numbers of a GPU: none are kept; benchmarks/gpu.sh makes them"
    kept = json.loads(KEPT.read_text())
    age = "of these sources" if kept.get("digest") == digest() else "STALE: the CUDA sources have changed since"
    return f"numbers of a GPU: {kept.get('commit', '?')[:12]}, {age}"


def _measure(side: str) -> dict[str, float] | None:
    done = subprocess.run([sys.executable, "-c", CHILD, side], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        print(f"{side}: {done.stderr.strip().rpartition(chr(10))[2]}", file=sys.stderr)
        return None
    print(done.stderr, end="", file=sys.stderr)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    """Print the table and keep it; 1 where the engine could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stale", action="store_true", help="only say whether the numbers kept are of these sources")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=KEPT)
    for name in ("tests", "selftest", "sanitizer"):
        parser.add_argument(f"--{name}", default="not run", help="what that part of gpu.sh gave, kept with the numbers")
    options = parser.parse_args()
    if options.stale:
        print(stale())
        return 0
    sides: dict[str, list[dict[str, float]]] = {"engine": [], "torch": []}
    for _ in range(options.rounds):
        for side, rounds in sides.items():
            if (found := _measure(side)) is not None:
                rounds.append(found)
        if not sides["engine"]:
            return 1
    rows: dict[str, Any] = {}
    for name in sides["engine"][0]:
        mine = statistics.median(r[name] for r in sides["engine"] if name in r)
        other = [r[name] for r in sides["torch"] if name in r]
        rows[name] = {"engine_us": mine, "torch_us": statistics.median(other) if other else None}
        ratio = f"{statistics.median(other) / mine:6.2f}" if other else "     -"
        print(f"{name:<28} {mine:12.1f} us   torch / engine {ratio}")
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT).stdout.strip()
    document = {
        "commit": commit,
        "digest": digest(),
        "tests": options.tests,
        "selftest": options.selftest,
        "sanitizer": options.sanitizer,
        "times": rows,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
