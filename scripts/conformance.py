"""PyTorch's own test files on torch and on the engine: python scripts/conformance.py --torch PYTHON TESTS [TESTS ...]

TESTS is the folder `test` of an old tag, as `git archive` gives it; nothing is fetched.  PYTHON is one that has torch,
numpy and scipy; the engine runs with the Python of this process.  Of a copy of each folder every file is run on both
sides, test by test, and one table is printed: what counts is what real torch still passes.
docs/reference/conformance.md has the files, today's table, and why what differs differs.

The tests open, write and remove paths as they like: run this as a user who may only do so in a scratch folder.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = (
    "test_autograd test_dataloader test_distributions test_indexing test_multiprocessing test_multiprocessing_spawn "
    "test_nn test_optim test_torch test_type_info test_utils test_c10d test_sparse test_tensorboard test_jit"
).split()
# What stops most tests of a file: arguments that torch has dropped since, a store on a device that is read until the
# limit.  (file, what is found, what replaces it)
EDITS = (
    ("test_c10d", r'FileStore\("/dev/null", 1\)', 'FileStore(__import__("tempfile").mktemp(), 1)'),
    ("test_jit", r"(super\(\w+, self\)\.__init__)\((?:True|False|optimize)\)", r"\1()"),
    ("test_jit", r"CompilationUnit\(script, optimize, ", "CompilationUnit(script, "),
    ("test_jit", r"module is None or torch\._jit_internal\.weak_types\.get\(module\) is None", "module is None"),
)
GRACE = 20  # seconds beyond a test's limit, for what does not let itself be interrupted
START = 240  # seconds for the imports


def result_of(log: Path) -> dict[str, tuple[str, str]]:
    """Return of each test that the log names its outcome and message; "running" where the process ended in it."""
    found: dict[str, tuple[str, str]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            name, outcome, message = json.loads(line)
        except ValueError:
            continue  # cut where the process was killed
        if outcome == "running" or found.get(name, ("running",))[0] in ("running", "passed"):
            found[name] = outcome, message
    return found


def run_file(command: list[str], path: Path, log: Path, scratch: Path, limit: float) -> dict[str, tuple[str, str]]:
    """Run the tests of one file, in as many processes as that takes: one that crashes or hangs loses its test only."""
    for old in (log, log.with_suffix(".txt")):
        old.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "CONFORMANCE_LIMIT": str(limit),
        "OMP_NUM_THREADS": "1",
        "PYTHONHASHSEED": "0",
        "TMPDIR": str(scratch),
        "CONFORMANCE_FOLDER": str(path.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(path.parent), os.environ.get("PYTHONPATH")])),
    }
    lost: dict[str, tuple[str, str]] = {}
    while True:
        before = {n for n, (outcome, _) in result_of(log).items() if outcome != "running"} | set(lost)
        skip = log.with_suffix(".skip")
        skip.write_text("\n".join(before))
        with open(log.with_suffix(".txt"), "a") as output:
            process = subprocess.Popen(
                [*command, str(ROOT / "scripts" / "conformance_tests.py"), str(path), str(log), str(skip)],
                cwd=path.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            hung = _wait(process, log, limit)
        now = result_of(log)
        for name, (outcome, _) in now.items():
            if outcome == "running" and name not in lost:
                lost[name] = ("timeout" if hung else "crash"), f"the process ended with {process.returncode}"
        done = {n for n, (outcome, _) in now.items() if outcome != "running"} | set(lost)
        if (not hung and process.returncode == 0) or done == before:
            return {**now, **lost}


def _wait(process: subprocess.Popen[bytes], log: Path, limit: float) -> bool:
    """Wait for a process while its log grows; end it, and return True, where it stands still for too long."""
    changed, size, allowed = time.monotonic(), -1, START
    while process.poll() is None:
        time.sleep(0.1)
        now = log.stat().st_size if log.exists() else 0
        if now != size:
            allowed = START if size < 0 else limit + GRACE
            changed, size = time.monotonic(), now
        if time.monotonic() - changed > allowed:
            break
    hung = process.poll() is None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # and the children that a test left
    process.wait()
    return hung


def compare(theirs: dict[str, tuple[str, str]], ours: dict[str, tuple[str, str]]) -> tuple[Counter[str], list[str]]:
    """Count the tests by what both sides say; and return those that torch passes and the engine does not."""
    counts: Counter[str] = Counter()
    differ = []
    for name, (outcome, _) in sorted(theirs.items()):
        mine, message = ours.get(name, ("not run", ""))
        if outcome != "passed":
            counts["engine only" if mine == "passed" else "neither"] += 1
        elif mine in ("passed", "skipped"):
            counts["both" if mine == "passed" else "engine skips"] += 1
        else:
            counts["differ"] += 1
            differ.append(f"{name}: {mine}: {message.splitlines()[0] if message else ''}"[:240])
    return counts, differ


def row(tag: str, name: str, counts: Counter[str]) -> str:
    """Return a line of the table.  The share is of what torch passes and the engine does not skip."""
    passes = counts["both"] + counts["differ"]
    share = f"{100 * counts['both'] / passes:.1f}%" if passes else "-"
    parts = (counts[key] for key in ("both", "differ", "engine skips", "engine only", "neither"))
    return f"| {tag} | {name} | {passes + counts['engine skips']} | {' | '.join(map(str, parts))} | {share} |"


HEAD = (
    "| tag | file | torch passes | both | differ | engine skips | engine only | neither | share |\n"
    "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def main(arguments: list[str] | None = None) -> int:
    """Run and print; exit status 2 for what cannot be run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", nargs="+", type=Path, metavar="TESTS", help="the folder `test` of a tag of PyTorch")
    parser.add_argument("--torch", required=True, metavar="PYTHON", help="a Python that has torch")
    parser.add_argument("--tags", default="", help="names of the folders in the table; else those of their parents")
    parser.add_argument("--files", default=" ".join(FILES), help="which files, without .py (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="a folder for logs and results, by default one that goes at the end")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test (default: %(default)g)")
    parser.add_argument("--as-root", action="store_true", help="run although this user may remove anything")
    options = parser.parse_args(arguments)
    if hasattr(os, "geteuid") and os.geteuid() == 0 and not options.as_root:
        print(
            "conformance: these tests open, write and remove paths as they like, and this is root\n"
            "hint: run as an ordinary user, or with --as-root in a container of its own",
            file=sys.stderr,
        )
        return 2
    for folder in options.tests:
        if not any((folder / f"{name}.py").exists() for name in options.files.split()):
            print(
                f"conformance: {folder} has none of the files {options.files}\n"
                "hint: it must be the folder `test` of a tag; docs/reference/conformance.md says how to get it",
                file=sys.stderr,
            )
            return 2
    with tempfile.TemporaryDirectory(prefix="conformance") as scratch:
        out = options.out or Path(scratch) / "out"
        tags = options.tags.split() or [folder.resolve().parent.name for folder in options.tests]
        lines, differences = [HEAD], []
        for tag, folder in zip(tags, options.tests, strict=True):
            total: Counter[str] = Counter()
            for name in options.files.split():
                if not (folder / f"{name}.py").exists():
                    continue
                counts, differ = _both(folder, name, options, out / tag, Path(scratch))
                total += counts
                lines.append(row(tag, name, counts))
                differences += [f"{tag} {name} {line}" for line in differ]
                print(lines[-1], flush=True)
            lines.append(row(tag, "all", total))
    print("\n".join(["", *lines, "", *differences]))
    return 0


def edit(path: Path) -> None:
    """Apply EDITS to the copy of a file."""
    text = path.read_text()
    for name, find, put in EDITS:
        if path.stem == name:
            text = re.sub(find, put, text)
    path.write_text(text)


def _both(
    folder: Path, name: str, options: argparse.Namespace, out: Path, scratch: Path
) -> tuple[Counter[str], list[str]]:
    out.mkdir(parents=True, exist_ok=True)
    results = []
    for side, command in (("torch", [options.torch]), ("engine", [sys.executable, "-m", "engine.torch_alias"])):
        copy = scratch / side / "test"  # of its own for each run: tests write beside themselves
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__", "cpp"))
        edit(copy / f"{name}.py")
        (scratch / "tmp").mkdir(exist_ok=True)
        log = out.resolve() / f"{name}.{side}.jsonl"
        results.append(run_file(command, copy.resolve() / f"{name}.py", log, scratch / "tmp", options.limit))
    return compare(*results)


if __name__ == "__main__":
    sys.exit(main())
