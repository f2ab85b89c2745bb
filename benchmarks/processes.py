"""Several processes, against torch in the same run: tensors through queues, loaders, collective calls, DDP.

python benchmarks/processes.py [--rounds 5] [--peer-python /path/to/python with torch] [--json FILE]

Each round starts a fresh process for either side and case, in turn.  Printed: medians of the rounds, and ours / torch's
(below 1: faster here).  The peer's collective calls are its gloo's.
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
import json, os, sys, time
side, case, folder = sys.argv[1:4]
if side == "engine":
    import engine.torch_alias; engine.torch_alias.install()
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
torch.set_num_threads(1)

class Images(torch.utils.data.Dataset):
    def __init__(self): self.x = torch.rand(64, 3, 224, 224)
    def __len__(self): return 512
    def __getitem__(self, i): return self.x[i % 64] * 2 + 1, i

def answer(queue, back, count):
    for _ in range(count): queue.get()
    back.put(1)
    queue.get()

def through_queue(tensors):
    context = mp.get_context("fork")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(queue, back, len(tensors))); process.start()
    start = time.perf_counter()
    for t in tensors: queue.put(t)
    back.get()
    spent = time.perf_counter() - start
    queue.put(None); process.join()
    return spent

def meet(rank):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)

def reduce_rank(rank, results):
    meet(rank); big = torch.ones(25_000_000); times = []
    for _ in range(6):
        dist.barrier(); start = time.perf_counter(); dist.all_reduce(big); times.append(time.perf_counter() - start)
    if rank == 0: results.put(sorted(times[1:])[2])
    dist.barrier()

def small_rank(rank, results):
    meet(rank); small = torch.ones(4); dist.all_reduce(small)
    start = time.perf_counter()
    for _ in range(300): dist.all_reduce(small)
    if rank == 0: results.put((time.perf_counter() - start) / 300)
    dist.barrier()

def train_rank(rank, results):
    meet(rank); torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048),
                                                nn.ReLU(), nn.Linear(2048, 10)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x, y = torch.randn(64, 1024), torch.randint(0, 10, (64,)); times = []
    for _ in range(15):
        start = time.perf_counter()
        optimizer.zero_grad(); nn.functional.cross_entropy(model(x), y).backward(); optimizer.step()
        times.append(time.perf_counter() - start)
    if rank == 0: results.put(sorted(times[3:])[6])
    dist.barrier()

def ranks(work):
    context = mp.get_context("spawn"); results = context.Queue()
    both = [context.Process(target=work, args=(r, results)) for r in range(2)]
    for p in both: p.start()
    found = results.get()
    for p in both: p.join()
    return found

def main():
    if case == "1 GB tensor": return through_queue([torch.ones(250_000_000)])
    if case == "10,000 small tensors":
        mp.set_sharing_strategy("file_system"); return through_queue([torch.ones(4) for _ in range(10_000)])
    if case == "loader, 2 workers":
        loader = torch.utils.data.DataLoader(Images(), batch_size=32, num_workers=2)
        start = time.perf_counter()
        for x, y in loader: float(x[0, 0, 0, 0])
        return time.perf_counter() - start
    return ranks({"all_reduce 100 MB": reduce_rank, "all_reduce 4": small_rank, "DDP step": train_rank}[case])

if __name__ == "__main__": print(json.dumps(main()))
"""
CASES = ("1 GB tensor", "10,000 small tensors", "loader, 2 workers", "all_reduce 100 MB", "all_reduce 4", "DDP step")


def measure(python: str, side: str, case: str) -> float | None:
    """Seconds of one run, or None where that side cannot do it."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "child.py")  # a file, because spawned processes read it again
        script.write_text(CHILD)
        environment = {"PYTHONPATH": str(Path(__file__).parent.parent), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [python, str(script), side, case, folder],
            capture_output=True,
            text=True,
            env=environment,
            timeout=300,
            check=False,
        )
    if done.returncode:
        print(f"{side}, {case}: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> int:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    table = {}
    print(f"{'case':24}{'ours ms':>12}{'torch ms':>12}{'ratio':>8}")
    for case in CASES:
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(measure(sys.executable, "engine", case))
            theirs.append(measure(options.peer_python, "torch", case))
        row = {
            side: statistics.median(t for t in times if t is not None) * 1e3 if None not in times else None
            for side, times in (("engine", ours), ("torch", theirs))
        }
        both = row["engine"] is not None and row["torch"] is not None
        row["ratio"] = row["engine"] / row["torch"] if both else None  # type: ignore[operator]
        table[case] = row
        shown = ["-" if row[k] is None else f"{row[k]:.2f}" for k in ("engine", "torch", "ratio")]
        print(f"{case:24}{shown[0]:>12}{shown[1]:>12}{shown[2]:>8}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
