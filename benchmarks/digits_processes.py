"""Hogwild and DDP on the sample repository's digits: loss curves against one process, drawn.

    python -m benchmarks.digits_processes [--ranks 2] [--epochs 12] [--out benchmarks/results/digits_processes]

Writes OUT.json, and OUT.png where matplotlib is installed (the extra `bench`).  One process and DDP see the same
batches; Hogwild's processes write to one set of shared weights without locks, each with a part of the data.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import engine
import engine.distributed as dist
import engine.multiprocessing as mp
from engine import nn

DIGITS = Path(__file__).parent.parent / "sample_hubconf" / "data" / "digits.npz"
BATCH = 64


def digits() -> tuple[Any, Any, Any, Any]:
    """(images, labels) to train on and held out: (N, 64) float32 in 0..1, (N,) int64."""
    with np.load(DIGITS) as file:
        images = engine.from_numpy(file["images"].reshape(-1, 64).astype(np.float32) / 16)
        labels, out = engine.from_numpy(file["labels"].astype(np.int64)), engine.from_numpy(file["held_out"])
        return images[~out], labels[~out], images[out], labels[out]


def model() -> Any:
    """The same weights in every process."""
    engine.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))


def accuracy(net: Any, images: Any, labels: Any) -> float:
    """The share of pictures whose largest logit is their label."""
    with engine.no_grad():
        return float((net(images).argmax(1) == labels).float().mean())


def order(epoch: int, count: int) -> list[int]:
    """The data's order in an epoch."""
    return [int(i) for i in np.random.default_rng(epoch).permutation(count)]


def epoch_of(net: Any, optimizer: Any, x: Any, y: Any, batches: list[list[int]]) -> float:
    """Train on batches; their mean loss."""
    total = 0.0
    for rows in batches:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total / len(batches)


def batches_of(rows: list[int], size: int) -> list[list[int]]:
    """Whole batches."""
    return [rows[i : i + size] for i in range(0, len(rows) - size + 1, size)]


def alone(epochs: int) -> dict[str, Any]:
    """One process."""
    x, y, hx, hy = digits()
    net = model()
    optimizer = engine.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    begin = time.perf_counter()
    losses = [epoch_of(net, optimizer, x, y, batches_of(order(e, len(x)), BATCH)) for e in range(epochs)]
    return {"loss": losses, "accuracy": accuracy(net, hx, hy), "seconds": time.perf_counter() - begin}


def ddp_rank(rank: int, ranks: int, epochs: int, store: str, results: Any) -> None:
    """A rank takes its part of every batch, so that the sums are those of one process."""
    engine.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{store}", rank=rank, world_size=ranks)
    x, y, hx, hy = digits()
    net = nn.parallel.DistributedDataParallel(model())
    optimizer = engine.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    begin, losses = time.perf_counter(), []
    for e in range(epochs):
        mine = [b[rank::ranks] for b in batches_of(order(e, len(x)), BATCH)]
        loss = engine.tensor([epoch_of(net, optimizer, x, y, mine)])
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
    if rank == 0:
        seconds = time.perf_counter() - begin
        results.put({"loss": losses, "accuracy": accuracy(net.module, hx, hy), "seconds": seconds})
    dist.barrier()
    dist.destroy_process_group()


def hogwild_rank(rank: int, ranks: int, epochs: int, net: Any, results: Any) -> None:
    """Writes to the shared weights as it goes."""
    engine.set_num_threads(1)
    x, y, _, _ = digits()
    optimizer = engine.optim.SGD(net.parameters(), 0.05)
    for e in range(epochs):
        rows = order(e, len(x))[rank::ranks]
        results.put((e, epoch_of(net, optimizer, x, y, batches_of(rows, BATCH // ranks))))


def ddp(ranks: int, epochs: int) -> dict[str, Any]:
    """`ranks` processes with DistributedDataParallel."""
    context = mp.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (ranks, epochs, f"{folder}/store", results)
        running = mp.start_processes(ddp_rank, arguments, ranks, join=False)
        found = results.get(timeout=300)
        assert running is not None
        while not running.join():
            pass
    return dict(found)


def hogwild(ranks: int, epochs: int) -> dict[str, Any]:
    """`ranks` processes on one set of weights in shared memory."""
    context = mp.get_context("spawn")
    results, net = context.Queue(), model().share_memory()
    begin = time.perf_counter()
    running = mp.start_processes(hogwild_rank, (ranks, epochs, net, results), ranks, join=False)
    rows = [results.get(timeout=300) for _ in range(ranks * epochs)]
    assert running is not None
    while not running.join():
        pass
    seconds = time.perf_counter() - begin
    losses = [float(np.mean([loss for e, loss in rows if e == epoch])) for epoch in range(epochs)]
    _, _, hx, hy = digits()
    return {"loss": losses, "accuracy": accuracy(net, hx, hy), "seconds": seconds}


def draw(found: dict[str, Any], path: Path) -> bool:
    """The curves as a picture; False without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    for name, row in found.items():
        axes.plot(range(1, len(row["loss"]) + 1), row["loss"], marker=".", label=f"{name}: {row['accuracy']:.3f}")
    axes.set(xlabel="epoch", ylabel="mean training loss", yscale="log", title="Digits: held-out accuracy in the legend")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=110)
    return True


def main() -> int:
    """Train in all three ways, print and write the curves."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "digits_processes")
    options = parser.parse_args()
    found = {
        "one process": alone(options.epochs),
        f"DDP, {options.ranks} ranks": ddp(options.ranks, options.epochs),
        f"Hogwild, {options.ranks} processes": hogwild(options.ranks, options.epochs),
    }
    for name, row in found.items():
        print(f"{name:24}{row['loss'][0]:8.4f} -> {row['loss'][-1]:.4f}  held out {row['accuracy']:.4f}")
    options.out.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n")
    if not draw(found, options.out.with_suffix(".png")):
        print("no picture: matplotlib is not installed", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
