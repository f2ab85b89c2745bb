"""Whole workloads against torch eager and other peers: each side in a process of its own, rounds alternate.

    python -m benchmarks.workloads --peer-python torch=PATH [--peer-python onnxruntime=PATH ...] [--rounds 7]
        [--seconds 1] [--threads 2] [--only "resnet18 forward"] [--corpus FOLDER] [--json FILE] [--chart FILE]

A peer is measured with the interpreter that --peer-python names, else with this one if it is installed here.  A ratio
is our time / theirs in the same round (torch: the better of its two memory formats, unless the limit names one);
printed are the least, the median and the greatest of the rounds.  A round in which other processes used the processor
is repeated.
--corpus: a folder with cases/NAME.py (build, inputs, run); the forward pass of each model is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import floor

HERE = Path(__file__).parent
CONTENDER = HERE / "_contender.py"
TORCH = ("torch", "torch channels_last")
COMPILED = ("torch compile",)  # torch.compile with its defaults; needs a C++ compiler
GRAPHS = ("onnxruntime", "openvino")
PEERS = ("autograd", "mygrad", "chainer", "tinygrad")
LARGE = ("add", "mul", "exp", "tanh", "relu", "sigmoid", "where")
OPERANDS = {"add": 2, "mul": 2, "where": 2}  # large arrays that an op reads, where not one

# workload: contenders beside `engine` and `torch`
WORKLOADS: dict[str, tuple[str, ...]] = {
    "resnet18 forward 1": ("engine plan", "engine numpy", "torch channels_last", *COMPILED, *GRAPHS),
    "resnet18 forward 16": ("engine plan", "engine numpy", "torch channels_last", *COMPILED, *GRAPHS),
    "mobilenet_v2 forward 1": ("engine plan", "torch channels_last", *COMPILED, *GRAPHS),
    "mobilenet_v2 forward 16": ("engine plan", "torch channels_last", *COMPILED, *GRAPHS),
    "minilm forward 1": ("engine plan", *COMPILED, *GRAPHS),
    "minilm forward 16": ("engine plan", *COMPILED, *GRAPHS),
    "resnet18 train 16": ("engine plan", "torch channels_last", *COMPILED),
    "mobilenet_v2 train 16": ("engine plan", "torch channels_last", *COMPILED),
    "cnn train 64": ("engine plan", *COMPILED),
    "mlp train 128": ("engine plan", "engine numpy", *COMPILED, *PEERS),
    "transformer train 8": ("engine plan", "engine numpy", *COMPILED),
    "lstm train 16": ("engine plan",),
    "tiny fresh": ("engine plan", *PEERS),
    "tiny chain": PEERS,
    **{f"large {op}": () for op in LARGE},
}

PLANNED = ("engine plan",)  # beside every model of --corpus

# AVX2 is what ONEDNN_MAX_CPU_ISA says, or what the processor has: other limits hold there, and where AVX-512 is no
# faster than it.
# (workload, limits of eager, plan, against torch eager's better layout: with AVX-512; without; plan / torch.compile:
# 0.85); a step that takes at most AT_FLOOR of its floor holds, whatever PyTorch takes, and a plan that holds against
# torch.compile holds against eager, too: of 1.15 of the floor and 0.85 of torch.compile the less strict counts
AT_FLOOR = 1.15
TRAINING = (
    ("resnet18 train 16", (0.80, 0.65), (0.90, 0.75), 0.85),
    ("mobilenet_v2 train 16", (0.80, 0.65), (0.90, 0.75), 0.85),
    ("transformer train 8", (0.50, 0.50), (0.90, 0.75), 0.85),
    ("lstm train 16", (0.90, None), (1.0, None), None),
    ("cnn train 64", (0.45, 0.35), (0.45, 0.35), 0.85),
    ("mlp train 128", (0.65, 0.65), (0.65, 0.65), 0.85),
)


def wide() -> bool:
    """Return whether AVX-512 is in use, and faster than AVX2: Zen 4 (AMD's family 25) takes two turns for a vector of
    512 bits; two of its cores do 222 GFLOP/s in a linear layer of 1024 x 256 x 768, and 219 by AVX2."""
    if os.environ.get("ONEDNN_MAX_CPU_ISA", "AVX512").startswith(("AVX2", "AVX_", "SSE")):
        return False
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text()
        halves = "AuthenticAMD" in text and re.search(r"^cpu family\s*: 25$", text, re.MULTILINE)
        return "avx512f" in text and not halves
    return True


def training_limits() -> list[tuple[str, str, str, float]]:
    """The rows of training: our eager steps and plans against torch, eager and compiled."""
    rows = []
    for workload, wider, narrower, compiled in TRAINING:
        eager, plan = wider if wide() else narrower
        rows += [(workload, "engine", "torch best", eager)]
        rows += [(workload, "engine plan", "torch best", plan)] if plan else []
        rows += [(workload, "engine plan", "torch compile", compiled)] if compiled else []
    return rows


# (workload, contender of ours, peer or "torch best", limit)
_NETS = [f"{net} forward {n}" for net in ("resnet18", "mobilenet_v2", "minilm") for n in (1, 16)]
LIMITS = (
    *training_limits(),
    ("resnet18 forward 16", "engine", "torch best", 0.70 if wide() else 0.90),
    ("resnet18 forward 16", "engine plan", "torch best", 0.60 if wide() else 0.70),
    ("resnet18 forward 1", "engine", "torch best", 0.85),
    ("resnet18 forward 1", "engine plan", "torch best", 0.72),
    ("tiny fresh", "engine", "torch best", 0.6),
    ("tiny fresh", "engine plan", "torch best", 0.2),
    ("tiny chain", "engine", "torch best", 0.8),
    *((f"large {op}", "engine", "torch best", 0.5) for op in LARGE),
    ("cold start", "engine", "torch best", 0.25),
    ("corpus", "engine", "torch best", 0.90 if wide() else 1.0),
    ("corpus", "engine plan", "torch best", 0.60 if wide() else 0.70),
    *((net, "engine plan", "torch compile", 1.0) for net in _NETS),
    *((net, "engine plan", graph, 1.05) for net in _NETS for graph in GRAPHS),
    *((name, "engine", peer, 1.0) for name in ("mlp train 128", "tiny fresh", "tiny chain") for peer in PEERS),
    ("mlp train 128", "engine numpy", "torch best", 1.4),
    ("resnet18 forward 16", "engine numpy", "torch best", 1.8),
    ("resnet18 forward 1", "engine numpy", "torch best", 1.8),
    ("transformer train 8", "engine numpy", "torch best", 2.2),
)


@dataclass
class Side:
    """A contender's process and its medians, one a round."""

    name: str
    process: subprocess.Popen[str]
    medians: list[float] = field(default_factory=list)
    peak: int = 0
    operations: int = 0
    rejected: int = 0

    def measure(self, seconds: float, foreign: float, tries: int) -> None:
        """Take one round: repeated, up to `tries` times, while others use more than `foreign` cores."""
        best: tuple[float, float] | None = None
        for attempt in range(tries):
            busy = busy_seconds()
            assert self.process.stdin and self.process.stdout
            print(seconds, file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            if not line:
                raise EOFError(f"its process ended with status {self.process.wait()}")
            answer = json.loads(line)
            others = max(0.0, busy_seconds() - busy - answer["cpu"]) / answer["wall"]
            found = others, statistics.median(answer["times"])
            best = found if best is None or found < best else best
            if others <= foreign:
                break
            self.rejected += 1
            time.sleep(0.2 * attempt)
        assert best
        self.medians.append(best[1])

    def close(self) -> None:
        """End the process; its last line has the peak of its memory, and the operations of a step."""
        with contextlib.suppress(Exception):
            assert self.process.stdin and self.process.stdout
            self.process.stdin.close()
            end = json.loads(self.process.stdout.readline())
            self.peak, self.operations = end["peak"], end.get("operations", 0)
        self.process.wait(30)


def busy_seconds() -> float:
    """The seconds that all cores together have been busy since the start of the machine; 0 where that is not known."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _wait, irq, soft, *_ = map(int, fields)
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def environment(name: str, threads: int) -> dict[str, str]:
    """The variables of a contender: threads, and oneDNN off where its name says so."""
    found = dict(os.environ, OMP_NUM_THREADS=str(threads), PYTHONPATH=str(HERE.parent))
    for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ENGINE_NUM_THREADS"):
        found[variable] = str(threads)
    if name == "engine numpy":
        found["ENGINE_ONEDNN"] = "0"
    return found


class Pythons:
    """Which interpreter runs which contender."""

    def __init__(self, given: list[str]) -> None:
        self.given = dict(entry.split("=", 1) for entry in given)

    def of(self, name: str) -> str | None:
        """The interpreter, or None where the library is not installed."""
        library = name.split()[0]
        if library == "engine":
            return self.given.get("engine", sys.executable)
        if library in self.given:
            return self.given[library]
        return sys.executable if importlib.util.find_spec(library) else None


def open_side(name: str, workload: str, python: str, threads: int, extra: list[str]) -> Side | None:
    """Start a contender; None, with a line that says why, if it cannot run the workload."""
    process = subprocess.Popen(
        [python, "-W", "ignore", str(CONTENDER), name, workload, str(threads), *extra],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(name, threads),
    )
    assert process.stdout and process.stderr
    for line in process.stdout:
        if line == "ready\n":
            return Side(name, process)
    why = (process.stderr.read().strip().splitlines() or ["ended"])[-1]
    print(f"   {name}: not measured ({why[:140]})", flush=True)
    return None


def run(workload: str, names: list[str], pythons: Pythons, options: argparse.Namespace) -> dict[str, Any]:
    """Every contender's times at one workload, its rounds alternating."""
    sides = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            python = pythons.of(name)
            if python is None:
                continue
            extra = []
            if name in GRAPHS:
                model, torch = Path(folder) / "model.onnx", pythons.of("torch")
                if not model.exists() and torch:
                    command = [
                        torch,
                        "-W",
                        "ignore",
                        str(CONTENDER),
                        "export",
                        workload,
                        "2",
                        str(model),
                    ]
                    subprocess.run(command, capture_output=True)
                if not model.exists():
                    print(f"   {name}: not measured (no ONNX file: it is exported by torch with the package onnx)")
                    continue
                extra = [str(model)]
            side = open_side(name, workload, python, options.threads, extra)
            sides += [side] if side else []
        for i in range(options.rounds):
            order = sides if i % 2 == 0 else sides[::-1]
            for side in order:
                try:
                    side.measure(options.seconds, options.foreign, options.tries)
                except (EOFError, BrokenPipeError) as error:
                    if side.name.startswith("engine"):
                        raise
                    print(f"   {side.name}: not measured ({error})")
                    sides = [one for one in sides if one is not side]
        for side in sides:
            side.close()
    found: dict[str, Any] = {}
    for one in sides:
        found[one.name] = {"ms": [t * 1e3 for t in one.medians], "peak": one.peak, "rejected": one.rejected}
        if one.operations:
            found[one.name]["operations"] = one.operations
    return found


def floors(results: dict[str, Any], machine: dict[str, Any]) -> dict[str, float]:
    """The least milliseconds that a step of each workload can take here: operations by the best product of matrices,
    or bytes by the copy of memory.

    Element-wise work between products is not counted, and where a convolution is done by Winograd's points it has
    fewer operations than that.  Tiny graphs and start-up have no floor.
    """
    found = {}
    copied = max(rates["copy"] for rates in machine["bandwidth"].values())
    for workload, times in results.items():
        operations = times.get("engine", {}).get("operations", 0)
        if workload.startswith("large "):
            arrays = OPERANDS.get(workload[6:], 1) + 1
            found[workload] = arrays * 4 * 10_000_000 / copied / 1e6
        elif operations and not workload.startswith("tiny"):
            found[workload] = 1e3 * floor.seconds(machine, operations=operations)
    return found


COLD = """
import sys; sys.path[:0] = [{here!r}]
{install}
import torch
from _nets import nets
model = nets(torch).ResNet18().eval()
with torch.no_grad(): model(torch.randn(1, 3, 224, 224))
"""


def cold_start(pythons: Pythons, options: argparse.Namespace) -> dict[str, Any]:
    """From the start of the interpreter to the first output of ResNet-18, in seconds of a whole process."""
    found: dict[str, Any] = {}
    for i in range(options.rounds):
        for name in ("engine", "torch") if i % 2 else ("torch", "engine"):
            python = pythons.of(name)
            if python is None:
                continue
            install = "import engine.torch_alias; engine.torch_alias.install()" if name == "engine" else ""
            env = environment(name, options.threads)
            env.pop("PYTHONDONTWRITEBYTECODE", None)
            start = time.perf_counter()
            subprocess.run(
                [python, "-W", "ignore", "-c", COLD.format(here=str(HERE), install=install)],
                check=True,
                env=env,
            )
            found.setdefault(name, {"ms": []})["ms"].append((time.perf_counter() - start) * 1e3)
    return found


def ratios(times: dict[str, Any], ours: str, peer: str) -> list[float] | None:
    """Our time / theirs, a number a round."""
    if ours not in times:
        return None
    peers = [p for p in (TORCH if peer == "torch best" else (peer,)) if p in times]
    if not peers:
        return None
    rounds = zip(times[ours]["ms"], *(times[p]["ms"] for p in peers))
    return [mine / min(theirs) for mine, *theirs in rounds]


def geometric(values: list[float]) -> float:
    """The geometric mean."""
    return math.exp(sum(map(math.log, values)) / len(values))


def limit_of(
    workload: str, ours: str, peer: str, limit: float, times: dict[str, Any], least: dict[str, float]
) -> float:
    """The limit of a row of training: the least strict of its own, of AT_FLOOR and, of a plan against eager, of that
    against torch.compile; all in the time of the peer, which is ours over the median of the ratios."""
    middle = statistics.median(ratios(times, ours, peer) or [1.0])
    theirs = statistics.median(times[ours]["ms"]) / middle
    if workload in least:
        limit = max(limit, AT_FLOOR * least[workload] / theirs)
    compiled = next((c for name, _, _, c in TRAINING if name == workload), None)
    if ours == "engine plan" and compiled and (found := ratios(times, ours, *COMPILED)):
        limit = max(limit, min(1.0, compiled * middle / statistics.median(found)))  # nor slower than eager
    return limit


def summary(results: dict[str, Any], least: dict[str, float]) -> list[dict[str, Any]]:
    """Return the rows of the table: every limit that was measured.  least: the floors of workloads."""
    rows = []
    trained = {workload for workload, *_ in TRAINING}
    for workload, ours, peer, limit in LIMITS:
        if workload == "corpus":
            cases = {n: ratios(t, ours, peer) for n, t in results.items() if n.startswith("corpus ")}
            per_case = [statistics.median(r) for r in cases.values() if r]
            found = [geometric(per_case)] if per_case else None
        else:
            found = ratios(results[workload], ours, peer) if workload in results else None
        if found:
            middle = statistics.median(found)
            if workload in trained:
                limit = limit_of(workload, ours, peer, limit, results[workload], least)
            rows.append(
                {
                    "workload": workload,
                    "ours": ours,
                    "peer": peer,
                    "limit": limit,
                    "min": min(found),
                    "median": middle,
                    "max": max(found),
                    "met": middle <= limit,
                }
            )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """The table as text."""
    print(f"\n{'workload':26}{'ours':14}{'peer':22}{'min':>7}{'median':>8}{'max':>7}{'limit':>7}")
    for r in rows:
        mark = "" if r["met"] else "   over"
        print(
            f"{r['workload']:26}{r['ours']:14}{r['peer']:22}{r['min']:7.2f}{r['median']:8.2f}{r['max']:7.2f}"
            f"{r['limit']:7.2f}{mark}"
        )


def chart(rows: list[dict[str, Any]], target: Path) -> None:
    """The medians as bars with their limits, least to greatest of the rounds as whiskers."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = rows[::-1]
    places, medians = range(len(rows)), [r["median"] for r in rows]
    spread = [r["median"] - r["min"] for r in rows], [r["max"] - r["median"] for r in rows]
    figure, axes = plt.subplots(figsize=(9, 0.28 * len(rows) + 1.2), layout="constrained")
    colours = ["#2a7f62" if r["met"] else "#b3541e" for r in rows]
    axes.barh(places, medians, color=colours, xerr=spread, ecolor="#555", height=0.7)
    limits = [r["limit"] for r in rows]
    axes.scatter(limits, places, marker="|", s=120, color="black", label="limit", zorder=3)
    axes.axvline(1, color="#999", linewidth=0.8)
    names = [f"{r['workload']} · {r['ours']} / {r['peer']}" for r in rows]
    axes.set_yticks(places, names, fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("our time / theirs (median of the rounds; less is faster)")
    axes.legend(loc="lower right")
    figure.savefig(target, dpi=130)


def processor() -> str:
    """The name of the processor."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def about(pythons: Pythons) -> dict[str, Any]:
    """What was measured where."""
    versions = {}
    for name in ("engine", "torch", *GRAPHS, *PEERS, "numpy"):
        python = pythons.of(name)
        if python:
            text = f"import warnings; warnings.simplefilter('ignore'); import {name}; print({name}.__version__)"
            done = subprocess.run(
                [python, "-c", text],
                capture_output=True,
                text=True,
                cwd=HERE.parent,
                env=environment(name, 1),
            )
            versions[name] = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else "?"
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=HERE).stdout.strip()
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions,
    }


def main() -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a contender in a round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--foreign", type=float, default=0.1, help="cores that others may use in a round")
    parser.add_argument("--tries", type=int, default=4, help="times a round is repeated for that")
    parser.add_argument("--only", help="comma-separated beginnings of workloads")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "workloads.json")
    parser.add_argument("--chart", type=Path, default=HERE / "results" / "workloads.png")
    options = parser.parse_args()
    pythons = Pythons(options.peer_python)
    workloads = dict(WORKLOADS)
    if options.corpus:
        os.environ["CORPUS"] = str(options.corpus.resolve())
        cases = sorted(p.stem for p in (options.corpus / "cases").glob("*.py") if p.stem[0] != "_")
        workloads |= {f"corpus {case}": PLANNED for case in cases}
    wanted = options.only.split(",") if options.only else [""]
    results: dict[str, Any] = {}
    for workload, more in workloads.items():
        if any(workload.startswith(w) for w in wanted):
            print(f"== {workload}", flush=True)
            results[workload] = found = run(workload, ["engine", "torch", *more], pythons, options)
            for name, one in found.items():
                rejected = f", {one['rejected']} rounds repeated" if one["rejected"] else ""
                print(
                    f"   {name:22}{statistics.median(one['ms']):10.2f} ms  peak {one['peak'] / 2**20:6.0f} MB{rejected}"
                )
    if any("cold start".startswith(w) for w in wanted):
        print("== cold start", flush=True)
        results["cold start"] = cold_start(pythons, options)
    machine = floor.measure(options.threads, peer=pythons.of("torch"))
    least = floors(results, machine)
    rows = summary(results, least)
    show(rows)
    for workload, ms in least.items():
        over = [f"{name} {statistics.median(one['ms']) / ms:.2f}" for name, one in results[workload].items()]
        print(f"{workload:26}floor {ms:8.2f} ms; times over it: {', '.join(over)}")
    document = {"about": about(pythons), "rows": rows, "results": results, "machine": machine, "floors": least}
    options.json.write_text(json.dumps(document, indent=1) + "\n")
    if importlib.util.find_spec("matplotlib"):
        chart(rows, options.chart)
    return 0 if all(r["met"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
