"""Load time and memory of a large zip checkpoint, against torch.load(mmap=True) in the same run.

python benchmarks/checkpoint_load.py [--megabytes 400] [--rounds 7] [--peer-python PYTHON_WITH_TORCH] [--out FILE.json]

A state dict of a transformer's shapes is written by engine.save into a temporary folder.  Each round starts a fresh
process for either side, in turn; a process loads once to warm its imports, then measures: the load alone (ms), the
load plus reading every element (ms), and the growth of its resident memory over the file's size.  Printed: medians, and
ratios to the peer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = """
import json, sys, time
side, path, small = sys.argv[1:4]
if side == "torch":
    import torch
    load = lambda p: torch.load(p, mmap=True, weights_only=True)
    total = lambda d: sum(float(t.sum()) for t in d.values())
else:
    import engine
    from engine.serialization import load as read
    load = lambda p: read(p, mmap=True)
    total = lambda d: sum(float(t._array.sum()) for t in d.values())
def peak():
    # Not ru_maxrss, which begins with the size of the process that started this one.
    return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith("VmHWM"))
total(load(small))
before = peak()
times = []
for _ in range(5):
    start = time.perf_counter()
    state = load(path)
    times.append(time.perf_counter() - start)
    del state
loaded = peak()
start = time.perf_counter()
state = load(path)
total(state)
touched = time.perf_counter() - start
print(json.dumps({"load": sorted(times)[2] * 1e3, "touched": touched * 1e3, "rss_load": loaded - before,
                  "rss": peak() - before}))
"""


def write(folder: Path, megabytes: int) -> tuple[Path, Path]:
    """A checkpoint of about `megabytes`, and a small one; their paths."""
    import numpy as np

    from engine.serialization import save
    from engine.tensor import wrap

    rng = np.random.default_rng(0)
    state, size = {}, 0
    shapes = [(1024, 1024), (1024,), (512, 2048), (512,), (2048,)]
    while size < megabytes << 20:
        for shape in shapes:
            array = rng.standard_normal(shape, dtype=np.float32)
            state[f"layers.{len(state) // len(shapes)}.weight{len(state) % len(shapes)}"] = wrap(array)
            size += array.nbytes
    big, small = folder / "big.pth", folder / "small.pth"
    save(state, big)
    save({"x": wrap(np.ones(4, np.float32))}, small)
    return big, small


def measure(python: str, side: str, big: Path, small: Path) -> dict[str, float] | None:
    """One process's figures, or None where that side is not installed."""
    done = subprocess.run(
        [python, "-c", CHILD, side, str(big), str(small)],
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
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter with torch")
    parser.add_argument("--out", type=Path, help="write the medians as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big, small = write(Path(folder), options.megabytes)
        size = big.stat().st_size
        results: dict[str, list[dict[str, float]]] = {"engine": [], "torch": []}
        for _ in range(options.rounds):
            for side, python in (("engine", sys.executable), ("torch", options.peer_python)):
                found = measure(python, side, big, small)
                if found:
                    results[side].append(found)
    print(f"file {size / 1e6:.1f} MB, {options.rounds} alternating rounds, medians")
    medians = {
        side: {key: statistics.median(r[key] for r in rows) for key in rows[0]}
        for side, rows in results.items()
        if rows
    }
    for side, row in medians.items():
        print(
            f"{side:7} load {row['load']:7.2f} ms   load and read {row['touched']:7.1f} ms   "
            f"memory after load {row['rss_load'] / size:6.1%}, after reading {row['rss'] / size:6.1%} of the file"
        )
    ratios = {}
    if len(medians) == 2:
        for key, what in (("load", "load"), ("touched", "load and read")):
            ratios[key] = round(medians["engine"][key] / medians["torch"][key], 3)
            print(f"ratio engine / torch, {what}: {ratios[key]:.2f}")
    if options.out:
        for row in medians.values():
            row["load_ms"], row["load_and_read_ms"] = round(row.pop("load"), 3), round(row.pop("touched"), 1)
            row["memory_after_load"] = round(row.pop("rss_load") / size, 4)  # of the file's size
            row["peak_memory"] = round(row.pop("rss") / size, 4)
        document = {"file_bytes": size, "rounds": options.rounds, "medians": medians, "engine_to_torch": ratios}
        options.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
