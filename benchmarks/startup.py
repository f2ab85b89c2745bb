"""Start-up of `hub` against `python -c "import click"`: medians of alternating rounds.

    python benchmarks/startup.py [--rounds 21] [--json FILE]

Prints a table of ratios with the limits that must hold; status 1 if one does not.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

BASE = "python -c 'import click'"
CASES = {
    BASE: (["-c", "import click"], None),
    "hub --help": (["-m", "hubcli", "--help"], 1.4),
    "hub --version": (["-m", "hubcli", "--version"], 1.4),
    "hub list (3 cached)": (["-m", "hubcli", "list"], 1.8),
    "hub list SPEC (cached)": (["-m", "hubcli", "list", "o/one:v1"], 1.8),
}


def fill(folder: Path, environment: dict[str, str]) -> None:
    """Cache three repositories, so that `hub list` has something to list."""
    from tests.servers import Repository

    for name in ("one", "two", "three"):
        repo = Repository.create(folder / "served", f"o/{name}")
        repo.commit(
            {"hubconf.py": "dependencies = []\n\ndef net(pretrained=False):\n    'A net.'\n"},
            tag="v1",
        )
        command = [sys.executable, "-m", "hubcli", "-q", "pull", f"o/{name}:v1"]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def seconds(arguments: list[str], environment: dict[str, str]) -> float:
    """The time that one process takes from start to end."""
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "HOME": name,
            "TORCH_HUB_DIR": str(folder / "hub"),
            "HUB_ALLOW_PROTOCOLS": "file",
            "HUB_GIT_URL": f"file://{folder}/served/{{owner}}/{{repo}}.git",
        }
        fill(folder, environment)
        times: dict[str, list[float]] = {case: [] for case in CASES}
        for _ in range(options.rounds + 1):
            for case, (arguments, _limit) in CASES.items():
                times[case].append(seconds(arguments, environment))
    medians = {case: statistics.median(found[1:]) for case, found in times.items()}
    rows = []
    for case, (_, limit) in CASES.items():
        ratio = medians[case] / medians[BASE]
        rows.append(
            {
                "case": case,
                "seconds": medians[case],
                "ratio": ratio,
                "limit": limit,
                "ok": limit is None or ratio <= limit,
            }
        )
        bound = f"<= {limit}  {'ok' if ratio <= limit else 'TOO SLOW'}" if limit else ""
        print(f"{case:28} {medians[case] * 1000:7.1f} ms  {ratio:5.2f}x  {bound}".rstrip())
    if options.json:
        options.json.write_text(json.dumps({"rounds": options.rounds, "rows": rows}, indent=2))
    return 0 if all(row["ok"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
