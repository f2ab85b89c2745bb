"""The tables of docs/performance.md, as Markdown, from the results that a run of `make bench` recorded.

python -m benchmarks._report            workloads.json and per_op.json
python -m benchmarks._report A.json B.json   a column each, as for one processor without and with a limit
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
TORCH = ("torch", "torch channels_last")


def medians(times: dict[str, Any]) -> dict[str, float]:
    """Milliseconds of every contender, and torch in its better memory format."""
    found = {name: statistics.median(side["ms"]) for name, side in times.items()}
    best = [found[name] for name in TORCH if name in found]
    return found | ({"torch best": min(best)} if best else {})


def limits(rows: list[dict[str, Any]]) -> None:
    """Every limit: what was measured against it."""
    print("| workload | ours | against | least, median, greatest | limit |\n|---|---|---|---|---|")
    for r in rows:
        bold = "" if r["met"] else "**"
        spread = f"{r['min']:.2f}, {bold}{r['median']:.2f}{bold}, {r['max']:.2f}"
        print(f"| {r['workload']} | {r['ours']} | {r['peer']} | {spread} | {r['limit']:.2f} |")


def workloads(results: dict[str, Any]) -> None:
    """Milliseconds and peak memory of every workload but the corpus's and those with large arrays."""
    print("\n| workload | op by op | plan | torch NCHW, channels_last | peak memory, MB: ours, torch |")
    print("|---|---|---|---|---|")
    for name, times in results.items():
        if name.startswith(("corpus", "large")) or "engine" not in times:
            continue
        ms = medians(times)
        peaks = [times[s]["peak"] / 2**20 for s in ("engine", "torch") if "peak" in times.get(s, {})]
        cells = [f"{ms[c]:.2f}" if c in ms else "" for c in ("engine", "engine plan")]
        theirs = ", ".join(f"{ms[c]:.2f}" for c in TORCH if c in ms)
        print(f"| {name} | {cells[0]} | {cells[1]} | {theirs} | {', '.join(f'{p:.0f}' for p in peaks)} |")


def corpus(results: dict[str, Any], ours: str = "engine") -> None:
    """The ratio of every model of the corpus, ascending."""
    found = []
    for name, times in results.items():
        ms = medians(times)
        if name.startswith("corpus ") and ours in ms and "torch" in ms:
            found.append((ms[ours] / ms["torch"], name[7:], ms[ours]))
    if found:
        mean = math.exp(sum(math.log(r) for r, _, _ in found) / len(found))
        listed = ", ".join(f"{name} {ratio:.2f}" for ratio, name, _ in sorted(found))
        print(f"\n{len(found)} models, geometric mean {mean:.2f}: {listed}.")


def per_op(document: dict[str, Any]) -> None:
    """The geometric means over ops of the time beside torch's and each peer's."""
    ops = document["ops"]
    print("\n| per op, ours / theirs | elements | forward | forward and backward |\n|---|---|---|---|")
    for side in document["sides"]:
        if side in ("numpy", "engine"):
            continue
        for n in sorted({n for row in ops.values() for n in row}, key=int):
            means = []
            for mode in ("forward", "backward"):
                logs = [
                    math.log(row[n]["engine"][mode] / row[n][side][mode])
                    for row in ops.values()
                    if mode in row.get(n, {}).get("engine", {}) and mode in row[n].get(side, {})
                ]
                means.append(f"{math.exp(sum(logs) / len(logs)):.2f} ({len(logs)})" if logs else "-")
            print(f"| {side} | {int(n):,} | {means[0]} | {means[1]} |")


NAMES = {"engine": "op by op", "engine plan": "plan", "engine numpy": "numpy", "torch best": "PyTorch eager",
         "torch compile": "torch.compile"}  # fmt: skip


def pair(files: list[str]) -> None:
    """The medians of every limit in two runs, one a column, and which models of the corpus are how fast."""
    documents = [json.loads(Path(f).read_text()) for f in files]
    rows: dict[tuple[str, ...], list[str]] = {}
    for n, document in enumerate(documents):
        for r in document["rows"]:
            if r["workload"].startswith("large"):
                continue
            bold = "" if r["met"] else "**"
            key = r["workload"], NAMES.get(r["ours"], r["ours"]), NAMES.get(r["peer"], r["peer"])
            rows.setdefault(key, ["-"] * len(documents))[n] = f"{bold}{r['median']:.2f} ({r['limit']:.2f}){bold}"
    for key, cells in rows.items():
        print("| " + " | ".join((*key, *cells)) + " |")
    for document in documents:
        print(f"\n{sum(r['met'] for r in document['rows'])} of {len(document['rows'])} limits hold.")
        corpus(document["results"])
        corpus(document["results"], "engine plan")


def main() -> None:
    """Print them all; with files, the limits in these."""
    if len(sys.argv) > 1:
        return pair(sys.argv[1:])
    found = json.loads((RESULTS / "workloads.json").read_text())
    about = found["about"]
    print(f"{about['cores']} cores of {about['processor']}, {about['date']}, {about['commit'][:12]}\n")
    limits(found["rows"])
    workloads(found["results"])
    corpus(found["results"])
    per_op(json.loads((RESULTS / "per_op.json").read_text()))


if __name__ == "__main__":
    main()
