"""Times on an NVIDIA GPU, against torch in the same run where it is installed.

    python -m benchmarks.gpu [--output gpu.json] [--rounds 5]      on a machine with a GPU; benchmarks/gpu.sh calls it
    python -m benchmarks.gpu --stale                               whether the numbers kept are of today's sources

Each round starts a process for either side, in turn (`_gpu_cases.py` has the rows).  A number is the median of the
rounds' medians, in microseconds; "graph" is that of a replay as a CUDA graph, which is the GPU's own time; ratios are
torch / engine.  The floor is bytes by the bandwidth of the add of 64 MB or operations by the rate of the best bfloat16
product, both of the same run.  Kept with the commit and a digest of the CUDA sources.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "benchmarks/results/gpu.json"
PRINTED = ("cuda_c", "elementwise", "form", "rows", "tables", "trace")  # of engine/kernels, for a GPU
SOURCES = (
    "engine/backends/cuda",
    "engine/cuda",
    "engine/ops/cuda",
    *[f"engine/kernels/{name}.py" for name in PRINTED],
)
OF_OPS = ("cuda.py", "cudnn.py")  # beside each op


def digest() -> str:
    """Of the CUDA sources."""
    made = hashlib.sha256()
    for path in sorted((ROOT / "engine").rglob("*")):
        name = path.relative_to(ROOT).as_posix()
        if path.suffix in (".py", ".cu", ".cuh", ".h") and (name.startswith(SOURCES) or path.name in OF_OPS):
            made.update(name.encode() + b"\0" + path.read_bytes())
    return made.hexdigest()


def stale() -> str:
    """One sentence: are there numbers of a GPU, and of these sources?"""
    if not KEPT.exists():
        return "numbers of a GPU: none are kept; benchmarks/gpu.sh makes them"
    kept = json.loads(KEPT.read_text())
    age = "of these sources" if kept.get("digest") == digest() else "STALE: the CUDA sources have changed since"
    return f"numbers of a GPU: {kept.get('commit', '?')[:12]}, {age}"


def _measure(side: str, groups: list[str]) -> dict[str, Any] | None:
    command = [sys.executable, "-m", "benchmarks._gpu_cases", side, *groups]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        print(f"{side}: {done.stderr.strip().rpartition(chr(10))[2]}", file=sys.stderr)
        return None
    print(done.stderr, end="", file=sys.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _middle(rounds: list[dict[str, Any]], name: str, what: str) -> float | None:
    found = [r[name][what] for r in rounds if what in r.get(name, {})]
    return statistics.median(found) if found else None


def _rows(sides: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """The medians of both sides for each row, with its floor."""
    times = [r for rounds in sides.values() for r in rounds]
    rate = max((r[n]["flops"] / r[n]["us"] for r in times for n in r if "bfloat16 4096" in n), default=0.0)
    speed = max(
        (r[n]["bytes"] / r[n]["graph"] for r in times for n in r if n == "add 64 MB" and "graph" in r[n]), default=0.0
    )
    rows: dict[str, Any] = {}
    for name, first in sides["engine"][0].items():
        if "us" not in first:
            rows[name] = {f"{side}_bytes": _middle(rounds, name, "bytes") for side, rounds in sides.items()}
            continue
        row = rows[name] = {
            f"{side}_{what}": _middle(rounds, name, what) for side, rounds in sides.items() for what in ("us", "graph")
        }
        least = [first["bytes"] / speed if speed else 0.0, first["flops"] / rate if rate else 0.0]
        row["floor_us"] = round(max(least), 2) or None
    return rows


def _show(rows: dict[str, Any]) -> None:
    ratio = lambda row, what: (
        row[f"torch_{what}"] / row[f"engine_{what}"] if row[f"torch_{what}"] and row[f"engine_{what}"] else None
    )
    text = lambda value, places: f"{value:.{places}f}" if value else "-"
    print(f"{'':<44}{'us':>12}{'torch / us':>12}{'graph us':>12}{'torch / us':>12}{'floor us':>12}")
    for name, row in rows.items():
        if "engine_us" not in row:
            print(f"{name:<44}{row['engine_bytes'] or 0:>12.3g} bytes, torch {row['torch_bytes'] or 0:.3g}")
            continue
        cells = [(row["engine_us"], 1), (ratio(row, "us"), 2), (row["engine_graph"], 1), (ratio(row, "graph"), 2)]
        print(f"{name:<44}" + "".join(f"{text(*c):>12}" for c in [*cells, (row["floor_us"], 1)]))


def main() -> int:
    """Print the table and keep it; 1 where the engine could not be measured."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stale", action="store_true", help="only say whether the numbers kept are of these sources")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=KEPT)
    parser.add_argument("--commit", help="the commit of these sources, where there is no git to ask")
    parser.add_argument("groups", nargs="*", help="of benchmarks/_gpu_cases.py; default: all")
    for name in ("tests", "selftest", "sanitizer"):
        parser.add_argument(f"--{name}", default="not run", help="what that part of gpu.sh gave, kept with the numbers")
    options = parser.parse_args()
    if options.stale:
        print(stale())
        return 0
    sides: dict[str, list[dict[str, Any]]] = {"engine": [], "torch": []}
    for number in range(1, options.rounds + 1):
        for side, rounds in sides.items():
            if (found := _measure(side, options.groups)) is not None:
                rounds.append(found)
        if not sides["engine"]:
            return 1
        _keep(_rows(sides), number, options)  # after each: a run may be ended
    _show(_rows(sides))
    return 0


def _keep(rows: dict[str, Any], rounds: int, options: argparse.Namespace) -> None:
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, cwd=ROOT)
    document = {
        "commit": options.commit or asked.stdout.strip(),
        "digest": digest(),
        "machine": about(),
        "tests": options.tests,
        "selftest": options.selftest,
        "sanitizer": options.sanitizer,
        "rounds": rounds,
        "times": rows,
    }
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(document, indent=1) + "\n")


def about() -> dict[str, Any]:
    """The card and the versions of what runs on it."""
    from engine.backends.cuda import routes
    from engine.cuda._device import library

    library()
    return {
        "engine": routes.identity(),
        "torch": _version("torch"),
        "numpy": _version("numpy"),
        "python": sys.version.split()[0],
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())
