"""Several processes, against torch in the same run: tensors through queues, loaders, collective calls, DDP.

python benchmarks/processes.py [--rounds 5] [--peer-python /path/to/python with torch] [--json FILE] [--case WORDS]

Each round starts a fresh process for either side and case, in turn.  Printed: medians of the rounds in milliseconds,
ours / torch's (below 1: faster here), the most that may be, and whether it is kept; the same for what must hold beside
the times: the memory of both processes that see 1 GB, and how far DDP's gradients are from one process's.  The peer's
collective calls are its gloo's.  Three rounds take three minutes on a quiet machine; the file grows with each row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

CHILD = """
import copy, json, os, sys, time
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
    for _ in range(count):
        got = queue.get()
        float(got[::1024].sum())  # every page is there
    back.put(1)
    queue.get()

def memory_of_both(process):
    total = 0
    for pid in (os.getpid(), process.pid):
        for line in open(f"/proc/{pid}/smaps_rollup"):
            if line.startswith("Pss:"): total += int(line.split()[1]) * 1024
    return total / 1e9

def through_queue(count, make):
    context = mp.get_context("fork")
    queue, back = context.Queue(), context.Queue()
    process = context.Process(target=answer, args=(queue, back, count)); process.start()
    tensors = [make() for _ in range(count)]  # not before the fork, which would copy them
    start = time.perf_counter()
    for t in tensors: queue.put(t)
    back.get()
    found = {"seconds": time.perf_counter() - start}
    if count == 1:
        float(tensors[0][::1024].sum())  # every page of this process's, too
        found["GB"] = memory_of_both(process)
    queue.put(None); process.join()
    return found

def meet(rank):
    dist.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)

def reduce_rank(rank, results):
    meet(rank); big = torch.ones(25_000_000); times = []
    for _ in range(6):
        dist.barrier(); start = time.perf_counter(); dist.all_reduce(big); times.append(time.perf_counter() - start)
    if rank == 0: results.put({"seconds": sorted(times[1:])[2]})
    dist.barrier()

def small_rank(rank, results):
    meet(rank); small = torch.ones(4); dist.all_reduce(small)
    start = time.perf_counter()
    for _ in range(300): dist.all_reduce(small)
    if rank == 0: results.put({"seconds": (time.perf_counter() - start) / 300})
    dist.barrier()

def train_rank(rank, results):
    meet(rank); torch.manual_seed(0); times = []
    net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
    alone, model = copy.deepcopy(net), nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    xs, ys = torch.randn(128, 1024), torch.randint(0, 10, (128,))
    x, y = xs[rank * 64:][:64], ys[rank * 64:][:64]
    nn.functional.cross_entropy(model(x), y).backward()
    nn.functional.cross_entropy(alone(xs), ys).backward()
    apart = max(float((p.grad - q.grad).abs().max()) for p, q in zip(net.parameters(), alone.parameters()))
    for _ in range(15):
        start = time.perf_counter()
        optimizer.zero_grad(); nn.functional.cross_entropy(model(x), y).backward(); optimizer.step()
        times.append(time.perf_counter() - start)
    if rank == 0: results.put({"seconds": sorted(times[3:])[6], "apart": apart})
    dist.barrier()

def ranks(work):
    context = mp.get_context("spawn"); results = context.Queue()
    both = [context.Process(target=work, args=(r, results)) for r in range(2)]
    for p in both: p.start()
    found = results.get()
    for p in both: p.join()
    return found

def main():
    if case == "1 GB tensor": return through_queue(1, lambda: torch.ones(250_000_000))
    if case == "10,000 small tensors":
        mp.set_sharing_strategy("file_system")
        return through_queue(10_000, lambda: torch.ones(4))
    if case == "loader, 2 workers":
        loader = torch.utils.data.DataLoader(Images(), batch_size=32, num_workers=2)
        start = time.perf_counter()
        for x, y in loader: float(x[0, 0, 0, 0])
        return {"seconds": time.perf_counter() - start}
    return ranks({"all_reduce 100 MB": reduce_rank, "all_reduce 4": small_rank, "DDP step": train_rank}[case])

if __name__ == "__main__": print(json.dumps(main()))
"""
MOST = {  # ours / torch's of each case; None: no bar
    "1 GB tensor": 1.2,
    "10,000 small tensors": 1.2,
    "loader, 2 workers": 1.0,
    "all_reduce 100 MB": 1 / 0.8,
    "all_reduce 4": None,
    "DDP step": 1 / 0.9,
}
BESIDE = {"GB": ("both processes' memory, GB", 1.1), "apart": ("gradient, from one process's", 1e-6)}


def measure(python: str, side: str, case: str) -> dict[str, float] | None:
    """Seconds of one run and what was found beside them, or None where that side cannot do it."""
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
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _verdict(value: float | None, most: float | None) -> str:
    if most is None:
        return ""
    return f"{most:>8.3g}" + ("" if value is None else "  kept" if value <= most else "  NOT KEPT")


def compare(case: str, rounds: int, peer: str) -> dict[str, Any]:
    """Measure both sides in turn, print the rows of a case; what they say."""
    runs: dict[str, list[dict[str, float] | None]] = {"engine": [], "torch": []}
    for _ in range(rounds):
        runs["engine"].append(measure(sys.executable, "engine", case))
        runs["torch"].append(measure(peer, "torch", case))
    row: dict[str, Any] = {}
    for side, found in runs.items():
        whole = [one for one in found if one is not None]
        row[side] = statistics.median(one["seconds"] for one in whole) * 1e3 if len(whole) == rounds else None
        for key in BESIDE:
            if whole and key in whole[0]:
                row[f"{side} {key}"] = max(one[key] for one in whole)
    ratio = row["engine"] / row["torch"] if row["engine"] and row["torch"] else None
    row |= {"ratio": ratio, "most": MOST[case]}
    shown = ["-" if v is None else f"{v:.2f}" for v in (row["engine"], row["torch"], ratio)]
    print(f"{case:30}{shown[0]:>12}{shown[1]:>12}{shown[2]:>8}{_verdict(ratio, MOST[case])}", flush=True)
    for key, (name, most) in BESIDE.items():
        if f"engine {key}" in row:
            ours, theirs = row[f"engine {key}"], row.get(f"torch {key}", float("nan"))
            print(f"  {name:28}{ours:>12.3g}{theirs:>12.3g}{'':8}{_verdict(ours, most)}", flush=True)
    return row


def main() -> int:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--case", action="append", help=f"only cases with these words: {', '.join(MOST)}")
    options = parser.parse_args()
    table = {}
    print(f"{'case':30}{'ours ms':>12}{'torch ms':>12}{'ratio':>8}{'most':>8}")
    for case in MOST:
        if options.case and not any(words in case for words in options.case):
            continue
        table[case] = compare(case, options.rounds, options.peer_python)
        if options.json:
            options.json.write_text(json.dumps(table, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
