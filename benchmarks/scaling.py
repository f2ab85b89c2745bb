"""How training scales: a model of a DDP step for 2 to 1,024 ranks, checked against what 1, 2 and 4 ranks measure here.

    python -m benchmarks.scaling [--steps 40] [--json benchmarks/results/scaling.json]

The model has a collective call's latency and bandwidth, fitted from `all_reduce` of several sizes between 2 ranks, the
time of a step without communication, and the bucket size.  `--bandwidth` and `--latency` say another network's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

__all__ = ["Network", "predict", "sum_seconds"]

RANKS = (1, 2, 4)
SIZES = (4, 16_000, 400_000, 4_000_000)  # elements of float32


@dataclass(frozen=True)
class Network:
    """latency: seconds a message; bandwidth: bytes a second of one rank."""

    latency: float
    bandwidth: float


def sum_seconds(ranks: int, nbytes: float, network: Network) -> float:
    """Seconds of an all_reduce of `nbytes`: 2 log2(n) messages one after the other, 2 (n - 1) / n of the bytes."""
    if ranks == 1:
        return 0.0
    return 2 * math.ceil(math.log2(ranks)) * network.latency + 2 * (ranks - 1) / ranks * nbytes / network.bandwidth


def predict(
    ranks: int,
    step: float,
    gradients: float,
    network: Network,
    bucket: float = 25 << 20,
    backward: float = 2 / 3,
    overlap: bool = True,
) -> float:
    """Seconds of a DDP step, each rank with the same batch as one alone.

    step: seconds of a step without communication; gradients: their bytes; bucket: bytes summed at a time; backward: the
    part of the step in which gradients come, evenly.  Buckets are summed one after the other, each as soon as backward
    has made it and the one before is done; without `overlap` (the processors that compute also sum, as with shared
    memory) after each other.
    """
    count = max(1, math.ceil(gradients / bucket))
    one = sum_seconds(ranks, gradients / count, network)
    if not overlap:
        return step + count * one
    done, start = 0.0, step * (1 - backward) * 0.5  # the forward pass; what is not backward either is the update
    for i in range(count):
        done = max(done, start + step * backward * (i + 1) / count) + one
    return done + step * (1 - backward) * 0.5


CHILD = """
import json, os, sys, time
import engine, engine.distributed as dist
from engine import nn
rank, size, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
sizes, steps = json.loads(sys.argv[4]), int(sys.argv[5])
engine.set_num_threads(1)
dist.init_process_group("gloo", "file://" + store, rank=rank, world_size=size)
sums = {}
for n in sizes:
    t, times = engine.ones(n), []
    for _ in range(25):
        dist.barrier(); start = time.perf_counter(); dist.all_reduce(t); times.append(time.perf_counter() - start)
    sums[n] = sorted(times)[len(times) // 2]
engine.manual_seed(0)
net = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
x, y = engine.randn(128, 512), engine.randint(0, 10, (128,))
def steps_of(model):
    optimizer, times = engine.optim.SGD(model.parameters(), 0.01), []
    dist.barrier()
    for _ in range(steps):
        start = time.perf_counter()
        optimizer.zero_grad(); nn.functional.cross_entropy(model(x), y).backward(); optimizer.step()
        times.append(time.perf_counter() - start)
    return sorted(times[3:])[len(times[3:]) // 2]
alone = steps_of(net)  # all ranks at once, each for itself
together = steps_of(nn.parallel.DistributedDataParallel(net, bucket_cap_mb=1.0))
if rank == 0:
    grads = sum(p.numel() * 4 for p in net.parameters())
    print(json.dumps({"sums": sums, "alone": alone, "step": together, "gradients": grads}))
dist.barrier()
"""


def measure(ranks: int, steps: int) -> dict:
    """Medians of one run: seconds of all_reduce by size, of a step, and the bytes of its gradients."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(ranks), os.path.join(folder, "store"), json.dumps(SIZES), str(steps)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", CHILD, str(rank), *command], stdout=subprocess.PIPE, text=True, env=environment
            )
            for rank in range(ranks)
        ]
        outputs = [p.communicate(timeout=300)[0] for p in processes]
        if any(p.returncode for p in processes):
            raise SystemExit(f"a run with {ranks} ranks failed")
    return dict(json.loads(outputs[0]))


def fit(runs: list[dict]) -> Network:
    """The latency of the smallest sums and the bandwidth of the largest, of runs with 2 ranks."""
    small = statistics.median(r["sums"][str(SIZES[0])] for r in runs)
    latency = small / 2
    rates = [4 * n / max(r["sums"][str(n)] - small, 1e-9) for r in runs for n in SIZES[2:]]
    return Network(latency, statistics.median(rates))


def main() -> int:
    """Measure, fit, predict; print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--latency", type=float, default=20e-6, help="seconds a message between machines")
    parser.add_argument("--bandwidth", type=float, default=1.25e9, help="bytes a second of a machine's network")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    runs: dict[int, list[dict]] = {n: [] for n in RANKS}
    for _ in range(options.rounds):
        for n in RANKS:
            runs[n].append(measure(n, options.steps))
    here = fit(runs[2])
    alone = {n: statistics.median(r["alone"] for r in runs[n]) for n in RANKS}
    gradients = runs[1][0]["gradients"]
    measured = {n: statistics.median(r["step"] for r in runs[n]) for n in RANKS}
    bucket = float(1 << 20)
    checked = {n: predict(n, alone[n], gradients, here, bucket, overlap=n < cores) for n in RANKS}
    elsewhere = Network(options.latency, options.bandwidth)
    table = {n: predict(n, alone[1], gradients, elsewhere, bucket) for n in (1 << k for k in range(1, 11))}
    print(f"this machine: {cores} cores, {here.latency * 1e6:.0f} us, {here.bandwidth / 1e9:.2f} GB/s")
    print(f"{'ranks':>6}{'measured ms':>14}{'model ms':>12}{'model / measured':>18}")
    for n in RANKS:
        print(f"{n:>6}{measured[n] * 1e3:>14.2f}{checked[n] * 1e3:>12.2f}{checked[n] / measured[n]:>18.2f}")
    print(f"a machine a rank, {elsewhere.latency * 1e6:.0f} us and {elsewhere.bandwidth / 1e9:.2f} GB/s between them:")
    print(f"{'ranks':>6}{'model ms':>12}{'efficiency':>12}")
    for n, seconds in table.items():
        print(f"{n:>6}{seconds * 1e3:>12.2f}{alone[1] / seconds:>12.2f}")
    if options.json:
        document = {
            "cores": cores,
            "load_average": os.getloadavg()[0],
            "rounds": options.rounds,
            "here": asdict(here),
            "elsewhere": asdict(elsewhere),
            "gradients": gradients,
            "bucket": bucket,
            "checked": {str(n): {"measured": measured[n], "model": checked[n]} for n in RANKS},
            "predicted": {str(n): seconds for n, seconds in table.items()},
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
