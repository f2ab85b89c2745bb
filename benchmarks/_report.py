"""The tables of docs/explanation/performance.md, as Markdown, from the JSON in benchmarks/results.

python -m benchmarks._report            print them
python -m benchmarks._report --write    write them into the page
python -m benchmarks._report A.json B.json   print the ratios of these runs alone, one column per file
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "performance.md"
MARKS = ("<!-- tables: written by `python -m benchmarks._report --write` -->", "<!-- end of tables -->")
TORCH = ("torch", "torch channels_last")
# column -> files of runs of `make bench`; a later one replaces what it measured again
RUNS = {
    "Zen 5": ("workloads.json",),
    "Zen 4": ("workloads_zen4.json", "workloads_zen4_again.json"),
    "Emerald Rapids": ("workloads_emr.json", "workloads_emr_again.json"),
    "Zen 4, AVX2 only": (
        "workloads_zen4_avx2.json",
        "workloads_zen4_avx2_again.json",
        "workloads_zen4_avx2_later.json",
    ),
}
EARLIER = {  # of older code, on processors that were not met since
    "Zen 3": ("workloads_zen3.json",),
    "Sapphire Rapids": ("workloads_spr.json", "workloads_spr_corpus.json"),
    "the same, AVX2 only": ("workloads_spr_avx2.json", "workloads_spr_avx2_corpus.json"),
}
NAMES = {
    "engine": "op by op",
    "engine plan": "plan",
    "engine numpy": "numpy",
    "torch": "PyTorch eager, NCHW",
    "torch channels_last": "PyTorch eager, channels_last",
    "torch best": "PyTorch eager",
    "torch compile": "torch.compile",
}


def read(name: str) -> Any:
    """Return the document of one file in benchmarks/results."""
    return json.loads((RESULTS / name).read_text())


def run(names: Sequence[str]) -> dict[str, Any]:
    """Return the rows and results of these files, as of one run."""
    rows: dict[tuple[str, ...], Any] = {}
    results: dict[str, Any] = {}
    floors: dict[str, float] = {}
    of: list[str] = []
    for name in names:
        document = read(name)
        about = document["about"]
        of.append(f"{about['date']}, {about['commit'][:8]}")
        rows |= {(r["workload"], r["ours"], r["peer"]): r for r in document["rows"]}
        results |= document["results"]
        floors |= document.get("floors", {})
    return {"rows": list(rows.values()), "results": results, "floors": floors, "of": of[0]}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def medians(times: dict[str, Any]) -> dict[str, float]:
    """Return milliseconds of every contender, and of torch in its better memory format."""
    found = {name: statistics.median(side["ms"]) for name, side in times.items()}
    best = [found[name] for name in TORCH if name in found]
    return found | ({"torch best": min(best)} if best else {})


def ratios(documents: dict[str, Any]) -> list[str]:
    """Return the medians against their limits: one row per workload, contender and peer, one column per run."""
    rows: dict[tuple[str, ...], dict[str, str]] = {}
    for column, document in documents.items():
        for r in document["rows"]:
            bold = "" if r["met"] else "**"
            key = r["workload"], NAMES.get(r["ours"], r["ours"]), NAMES.get(r["peer"], r["peer"])
            rows.setdefault(key, {})[column] = f"{bold}{r['median']:.2f}{bold} ({r['limit']:.2f})"
    held = [f"{sum(r['met'] for r in d['rows'])} of {len(d['rows'])}" for d in documents.values()]
    cells = [(*key, *(found.get(column, "") for column in documents)) for key, found in rows.items()]
    ends = [("limits that hold", "", "", *held), ("date, commit", "", "", *(d["of"] for d in documents.values()))]
    return table(("workload", "ours", "against", *documents), [*cells, *ends])


def workloads(document: dict[str, Any]) -> list[str]:
    """Return milliseconds and peak memory of every workload but the corpus's, and the times over the floors."""
    rows, floors = [], document["floors"]
    for name, times in document["results"].items():
        if name.startswith("corpus") or "engine" not in times:
            continue
        ms = medians(times)
        peaks = [times[s]["peak"] / 2**20 for s in ("engine", "torch") if "peak" in times.get(s, {})]
        ours = [f"{ms[c]:.2f}" if c in ms else "" for c in ("engine", "engine plan")]
        theirs = ", ".join(f"{ms[c]:.2f}" for c in TORCH if c in ms)
        least = floors.get(name)
        over = [f"{ms[c] / least:.2f}" for c in ("engine", "engine plan", "torch best") if c in ms] if least else []
        cells = (*ours, theirs, f"{least:.2f}" if least else "", ", ".join(over))
        rows.append((name, *cells, ", ".join(f"{p:.0f}" for p in peaks)))
    head = ("op by op", "plan", "PyTorch NCHW, channels_last", "floor", "ours, plan, PyTorch / floor")
    return table(("workload", *head, "peak MB: ours, PyTorch"), rows)


def corpus(documents: dict[str, Any]) -> list[str]:
    """Return the ratio of every model of the corpus, op by op and as a plan, and their geometric means."""
    found: dict[str, dict[str, list[float]]] = {}
    for column, document in documents.items():
        for name, times in document["results"].items():
            ms = medians(times)
            if name.startswith("corpus ") and "torch" in ms:
                pair = [ms[ours] / ms["torch"] for ours in ("engine", "engine plan") if ours in ms]
                if pair:
                    found.setdefault(name[7:], {})[column] = pair
    columns = [column for column in documents if any(column in one for one in found.values())]

    def mean(column: str) -> str:
        sides = zip(*[one[column] for one in found.values() if column in one], strict=False)
        return ", ".join(f"{math.exp(sum(map(math.log, side)) / len(side)):.2f}" for side in sides)

    rows = [
        (name, *(", ".join(f"{r:.2f}" for r in one.get(column, [])) for column in columns))
        for name, one in sorted(found.items())
    ]
    return table(("model", *columns), [*rows, ("geometric mean", *map(mean, columns))])


def per_op(document: dict[str, Any]) -> list[str]:
    """Return the geometric means over ops of the time divided by each peer's."""
    ops, rows = document["ops"], []
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
                means.append(f"{math.exp(sum(logs) / len(logs)):.2f} ({len(logs)})" if logs else "")
            rows.append((side, f"{int(n):,}", *means))
    return table(("per op, ours / theirs", "elements", "forward (ops)", "forward and backward (ops)"), rows)


def others() -> list[str]:
    """Return what the smaller benchmarks measured, against their limits."""
    rows = []
    for case, one in read("processes.json").items():
        if "ratio" in one:
            limit = one.get("most")
            rows.append((f"{case}: ours / torch's", f"{one['ratio']:.2f}", f"{limit:.2f}" if limit else ""))
    for one in read("startup.json")["rows"]:
        rows.append((f"{one['case']}: times `import click`", f"{one['ratio']:.2f}", one["limit"] or ""))
    for name in ("hub_pull.json", "hub_downloads.json"):
        for one in read(name)["rows"]:
            rows.append((one["case"], f"{one['value']:.2f}", f"{one['limit']:.2f}"))
    for one in read("sandbox.json")["rows"]:
        if one["mechanism"] != "none":
            rows.append((f"sandbox, {one['mechanism']}: added ms", f"{one['added_ms']:.0f}", f"{one['limit_ms']:.0f}"))
    for one in read("training_parity.json")["runs"]:
        case = f"{one['task']}, {one['steps']} steps: final loss / torch's - 1"
        rows.append((case, f"{one['final_loss_difference']:.4f}", f"{read('training_parity.json')['limit']:.4f}"))
    return table(("measured", "value", "limit"), [(a, b, str(c)) for a, b, c in rows])


def page() -> str:
    """Return all tables of the page, under their headings."""
    documents = {column: run(names) for column, names in RUNS.items()}
    earlier = {column: run(names) for column, names in EARLIER.items()}
    parts = [
        ("## Workloads: our time / theirs", ratios(documents)),
        *(
            (f"## Workloads on {column}: milliseconds, floors and memory", workloads(document))
            for column, document in documents.items()
        ),
        ("## Models of third parties, forward: op by op, plan / PyTorch", corpus(documents | earlier)),
        ("## Earlier code, on processors that were not met since: our time / theirs", ratios(earlier)),
        ("## Single operations", per_op(read("per_op.json"))),
        ("## The hub, processes, training", others()),
    ]
    return "\n\n".join("\n".join([title, "", *lines]) for title, lines in parts)


def write() -> None:
    """Put the tables between their marks in the page."""
    before, _, rest = PAGE.read_text("utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n\n{page()}\n\n{MARKS[1]}{after}", "utf-8")


def main(arguments: Sequence[str]) -> None:
    """Print the tables, or write them into the page; with files, the ratios of these."""
    if arguments == ["--write"]:
        write()
    elif arguments:
        documents = {Path(name).stem: json.loads(Path(name).read_text()) | {"of": ""} for name in arguments}
        print("\n".join([*ratios(documents), "", *corpus(documents)]))
    else:
        print(page())


if __name__ == "__main__":
    main(sys.argv[1:])
