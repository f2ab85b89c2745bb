"""What the sandbox adds to a child that does the same without it: medians of alternating rounds.

    python -m benchmarks.sandbox [--rounds 15] [--json FILE]

The job is `hub load` of a small model: start Python, import the engine, call the entrypoint, send the
description.  Prints the milliseconds that each mechanism adds, with the limit that must hold; status
1 if one does not.  Mechanisms that this machine cannot use are named with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

LIMIT_MS = 150.0
HUBCONF = '''
import torch

dependencies = ["torch"]


def net():
    """A small model."""
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
'''


def seconds(folder: Path, name: str) -> float:
    """One call of the entrypoint in a child, from the command's decision to the result."""
    from hubcli.base.spec import RepoSpec
    from hubcli.cache.cache import Cache
    from hubcli.confined import jobs, sandbox
    from hubcli.confined.broker import Broker

    checkout = Cache.current().checkout(RepoSpec.parse(str(folder)))
    chosen = sandbox.mechanism(name)
    started = time.perf_counter()
    jobs.load(jobs.Job("load", checkout, "net"), chosen, Broker(checkout, "net"), None)
    return time.perf_counter() - started


def main() -> int:
    """Measure, print, and judge."""
    from hubcli.confined import restrict, sandbox

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    absent = {name: reason for name, reason in sandbox.reasons().items() if reason is not None}
    names = ["none", *(name for name in sandbox.reasons() if name not in absent), "best-effort"]
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"HOME": home, "TORCH_HUB_DIR": f"{home}/hub"}
        folder = Path(home, "net")
        folder.mkdir()
        (folder / "hubconf.py").write_text(HUBCONF)
        for round_ in range(options.rounds + 1):
            for name in names if round_ % 2 else reversed(names):
                times[name].append(seconds(folder, name))
    medians = {name: statistics.median(found[1:]) for name, found in times.items()}
    rows = []
    for name in names:
        pairs = zip(times[name][1:], times["none"][1:])
        added = statistics.median(1000 * (own - plain) for own, plain in pairs)
        ok = name == "none" or added <= LIMIT_MS
        rows.append(
            {
                "mechanism": name,
                "seconds": medians[name],
                "ratio": medians[name] / medians["none"],
                "added_ms": added,
                "limit_ms": None if name == "none" else LIMIT_MS,
                "ok": ok,
            }
        )
        judged = "" if name == "none" else f"+{added:6.1f} ms  <= {LIMIT_MS:g}  {'ok' if ok else 'TOO SLOW'}"
        print(f"{name:12} {medians[name] * 1000:7.1f} ms  {rows[-1]['ratio']:5.2f}x  {judged}".rstrip())
    for name, reason in absent.items():
        print(f"{name}: not measured: {reason}")
    if options.json:
        document = {
            "rounds": options.rounds,
            "kernel": platform.release(),
            "landlock_abi": restrict.landlock_abi(),
            "load_average": os.getloadavg()[0],
            "not_measured": absent,
            "rows": rows,
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
