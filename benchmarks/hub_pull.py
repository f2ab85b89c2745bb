"""Cold `hub pull` against `git clone --depth 1` from the same server, and what a second tag moves.

    python benchmarks/hub_pull.py [--rounds 7] [--json FILE]

Both talk smart HTTP to git's own http-backend on 127.0.0.1; every round starts from nothing with an
idle disk (hub syncs what it publishes, git clone does not), the two alternate, medians count.
Prints a table with the limits that must hold; status 1 if one does not.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.servers import Repository, Served, git_server  # noqa: E402

HUBCONF = "dependencies = []\n\ndef net(pretrained=False):\n    'A net.'\n"
MEGABYTE = 1_000_000


def build(root: Path) -> None:
    """`o/small`: ten files; `o/large`: 50 MB in 45 binary and 500 text files, and a second tag."""
    noise = random.Random(0)
    small = {f"models/m{n}.py": f"x = {n}\n" * 40 for n in range(9)}
    Repository.create(root, "o/small").commit({"hubconf.py": HUBCONF, **small}, tag="v1")
    large: dict[str, str | bytes] = {f"data/{n}.bin": noise.randbytes(MEGABYTE) for n in range(45)}
    large |= {f"src/m{n}.py": noise.randbytes(5000).hex() for n in range(500)}
    repo = Repository.create(root, "o/large")
    repo.commit({"hubconf.py": HUBCONF, **large}, tag="v1")
    repo.commit({"data/0.bin": noise.randbytes(MEGABYTE)}, tag="v2")


def timed(command: list[str], environment: dict[str, str]) -> float:
    """The time that `command` takes; it must succeed.  The disk is idle when it starts."""
    os.sync()
    start = time.perf_counter()
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    taken = time.perf_counter() - start
    if result.returncode:
        raise RuntimeError(f"{' '.join(command)}: {result.stderr}")
    return taken


def compare(name: str, served: Served, folder: Path, rounds: int) -> tuple[float, float]:
    """Medians of a cold `git clone --depth 1` and a cold `hub pull` of tag v1."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "HUB_ALLOW_PROTOCOLS": "http",
        "HUB_GIT_URL": f"{served.url}/{{owner}}/{{repo}}.git",
        "TORCH_HUB_DIR": str(folder / "hub"),
    }
    url = f"{served.url}/o/{name}.git"
    clone = ["git", "clone", "-q", "--depth", "1", "--branch", "v1"]
    clone += ["-c", "advice.detachedHead=false", "--", url, str(folder / "clone")]
    pull = [sys.executable, "-m", "hubcli", "pull", f"o/{name}:v1"]
    times: dict[str, list[float]] = {"clone": [], "pull": []}
    for turn in range(rounds + 1):
        cases = [("clone", clone), ("pull", pull)]
        for case, command in cases if turn % 2 else reversed(cases):
            times[case].append(timed(command, environment))
            shutil.rmtree(folder / ("clone" if case == "clone" else "hub"))
    return statistics.median(times["clone"][1:]), statistics.median(times["pull"][1:])


def second_tag(served: Served, folder: Path) -> tuple[int, int]:
    """Bytes that the server sends for v1 into an empty cache, then for v2."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "HUB_ALLOW_PROTOCOLS": "http",
        "HUB_GIT_URL": f"{served.url}/{{owner}}/{{repo}}.git",
        "TORCH_HUB_DIR": str(folder / "hub"),
    }
    sent = []
    for tag in ("v1", "v2"):
        served.reset()
        timed([sys.executable, "-m", "hubcli", "pull", f"o/large:{tag}"], environment)
        sent.append(served.sent)
    return sent[0], sent[1]


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        build(folder / "served")
        with git_server(folder / "served") as served:
            small = compare("small", served, folder, options.rounds)
            large = compare("large", served, folder, options.rounds)
            first, second = second_tag(served, folder)
    rows = [
        ("small: hub pull - git clone (ms)", (small[1] - small[0]) * 1000, 300.0),
        ("50 MB: hub pull / git clone", large[1] / large[0], 1.3),
        ("second tag: bytes / changed bytes", second / MEGABYTE, 1.1),
    ]
    print(f"small  git clone {small[0] * 1000:7.1f} ms   hub pull {small[1] * 1000:7.1f} ms")
    print(f"50 MB  git clone {large[0] * 1000:7.1f} ms   hub pull {large[1] * 1000:7.1f} ms")
    print(f"bytes  first tag {first:,}   second tag {second:,}")
    for label, value, limit in rows:
        print(f"{label:36} {value:7.2f}  <= {limit:g}  {'ok' if value <= limit else 'TOO MUCH'}")
    if options.json:
        document = {
            "rounds": options.rounds,
            "rows": [
                {"case": label, "value": value, "limit": limit, "ok": value <= limit} for label, value, limit in rows
            ],
            "seconds": {"small": small, "large": large},
            "bytes": {"first": first, "second": second},
        }
        options.json.write_text(json.dumps(document, indent=2))
    return 0 if all(value <= limit for _, value, limit in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
