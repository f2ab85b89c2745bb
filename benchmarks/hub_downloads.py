"""Downloads and checks against the tools of the system: curl, sync, sha256sum.

    python benchmarks/hub_downloads.py [--rounds 5] [--megabytes 1000] [--json FILE]

- 16 processes pull one spec into one empty cache: all succeed, and the server sends one clone's worth.
- A large file with its digest, synced to disk: hub's whole process against `curl -o` + `sync FILE` +
  `sha256sum`, alternating, medians.
- The download is killed with SIGKILL at 60 %: what the next process moves.
- `hub cache verify` (whole command) against `sha256sum` of the same bytes, alternating, medians.

The servers are those of the tests, on 127.0.0.1.  Prints a table with the limits that must hold; status
1 if one does not.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.servers import Repository, Served, file_server, git_server  # noqa: E402

PROCESSES = 16
FETCH = "import sys; from hubcli.cache import weights; weights.obtain(sys.argv[1], progress=False)"


def environment(folder: Path, git: str = "http://127.0.0.1") -> dict[str, str]:
    """For children: a cache and a home of their own."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "HUB_ALLOW_PROTOCOLS": "http",
        "HUB_GIT_URL": f"{git}/{{owner}}/{{repo}}.git",
        "TORCH_HUB_DIR": str(folder / "hub"),
    }


def timed(command: str | list[str], folder: Path) -> float:
    """The time that `command` takes; it must succeed.  The disk is idle when it starts."""
    os.sync()
    start = time.perf_counter()
    result = subprocess.run(
        command,
        shell=isinstance(command, str),
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    taken = time.perf_counter() - start
    if result.returncode:
        raise RuntimeError(f"{command}: {result.stdout}{result.stderr}")
    return taken


def many_pull_one(folder: Path) -> tuple[int, float]:
    """Processes of 16 that succeed, and what the server sends as a share of what one pull needs."""
    noise = random.Random(0)
    repo = Repository.create(folder / "served", "o/r")
    files = {f"data/{n}.bin": noise.randbytes(500_000) for n in range(10)}
    repo.commit({"hubconf.py": "def net():\n    'A net.'\n", **files}, tag="v1")
    pull = [sys.executable, "-m", "hubcli", "pull", "o/r:v1"]
    with git_server(folder / "served") as served:
        variables = environment(folder, served.url)
        subprocess.run(pull, env=variables, check=True, capture_output=True)
        one = served.sent
        shutil.rmtree(folder / "hub")
        served.reset()
        children = [
            subprocess.Popen(pull, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            for _ in range(PROCESSES)
        ]
        failed = [child.communicate()[1] for child in children if child.wait()]
        for error in failed:
            print(error.decode(), file=sys.stderr)
        return PROCESSES - len(failed), served.sent / one


def download(served: Served, name: str, folder: Path, rounds: int) -> tuple[float, float]:
    """Medians: curl, sync and sha256sum one after the other; hub's whole process."""
    url, target = f"{served.url}/{name}", folder / "curled"
    curl = f"curl -sf -o {target} {url} && sync {target} && sha256sum {target}"
    hub = [sys.executable, "-c", FETCH, url]
    times: dict[str, list[float]] = {"curl": [], "hub": []}
    for turn in range(rounds + 1):
        cases: list[tuple[str, str | list[str]]] = [("curl", curl), ("hub", hub)]
        for case, command in cases if turn % 2 else reversed(cases):
            times[case].append(timed(command, folder))
            target.unlink(missing_ok=True)
            if turn < rounds or case == "curl":  # the last one stays, to be verified
                shutil.rmtree(folder / "hub", ignore_errors=True)
    if not (folder / "hub").exists():
        timed(hub, folder)
    return statistics.median(times["curl"][1:]), statistics.median(times["hub"][1:])


def killed_at(share: float, served: Served, name: str, size: int, folder: Path) -> float:
    """The share of the file that the next process moves after a SIGKILL at `share` of it."""
    place = folder / "killed"
    place.mkdir()
    command = [sys.executable, "-c", FETCH, f"{served.url}/{name}"]
    child = subprocess.Popen(command, env=environment(place), stderr=subprocess.DEVNULL)
    partial = place / "hub" / "partial"
    while sum(body.stat().st_size for body in partial.glob("*/body")) < share * size:
        if child.poll() is not None:
            raise RuntimeError("it was over before it could be killed")
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    child.wait()
    time.sleep(0.5)  # the server notices
    served.reset()
    subprocess.run(command, env=environment(place), check=True, capture_output=True)
    shutil.rmtree(place)
    return served.sent / size


def verify(folder: Path, rounds: int) -> tuple[float, float]:
    """Medians: `sha256sum` of every blob; `hub cache verify`, the whole command."""
    blobs = [str(path) for path in (folder / "hub" / "blobs" / "sha256").glob("*/*")]
    cases = [
        ("sha256sum", ["sha256sum", *blobs]),
        ("hub", [sys.executable, "-m", "hubcli", "cache", "verify"]),
    ]
    times: dict[str, list[float]] = {"sha256sum": [], "hub": []}
    for turn in range(rounds + 1):
        for case, command in cases if turn % 2 else reversed(cases):
            times[case].append(timed(command, folder))
    return statistics.median(times["sha256sum"][1:]), statistics.median(times["hub"][1:])


def main() -> int:
    """Measure, print, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    size = options.megabytes * 1_000_000
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        (folder / "many").mkdir()
        succeeded, traffic = many_pull_one(folder / "many")
        (folder / "files").mkdir()
        content = random.Random(0).randbytes(1_000_000)
        digest = hashlib.sha256()
        with (folder / "new").open("wb") as file:
            for number in range(options.megabytes):
                part = number.to_bytes(8, "big") + content[8:]
                file.write(part)
                digest.update(part)
        name = f"large-{digest.hexdigest()[:16]}.pth"
        (folder / "new").rename(folder / "files" / name)
        with file_server(folder / "files") as served:
            curl, hub = download(served, name, folder, options.rounds)
            moved = killed_at(0.6, served, name, size, folder)
        summed, verified = verify(folder, options.rounds)
    rows = [
        (f"of {PROCESSES} processes pulling one spec fail", PROCESSES - succeeded, 0.0),
        ("their traffic / one clone's", traffic, 1.1),
        (f"{options.megabytes} MB: hub / curl + sync + sha256sum", hub / curl, 1.25),
        ("moved again after kill -9 at 60 %", moved, 0.45),
        ("sha256sum's speed / hub cache verify's", verified / summed, 1 / 0.7),
    ]
    print(f"download  curl + sync + sha256sum {curl:6.2f} s   hub {hub:6.2f} s")
    print(f"verify    sha256sum {summed:6.2f} s   hub cache verify {verified:6.2f} s")
    for label, value, limit in rows:
        print(f"{label:44} {value:6.3f}  <= {limit:.3g}  {'ok' if value <= limit else 'TOO MUCH'}")
    if options.json:
        document = {
            "rounds": options.rounds,
            "bytes": size,
            "machine": {"cores": os.cpu_count(), "kernel": platform.release()},
            "rows": [
                {"case": label, "value": value, "limit": limit, "ok": value <= limit} for label, value, limit in rows
            ],
            "seconds": {"curl": curl, "hub": hub, "sha256sum": summed, "verify": verified},
        }
        options.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0 if all(value <= limit for _, value, limit in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
