"""Runs every benchmark there is, each in a process of its own, and says which peers are missing.

    python -m benchmarks [--peer-python torch=PATH] [--only per_op,startup] [--corpus FOLDER] [--record]
        [--rounds N] [--seconds S]

--corpus: a folder with cases/NAME.py, whose models `workloads` times, too.  --record: the results of every benchmark
that has some are written to benchmarks/results.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ORDER = ("startup", "hub_pull", "per_op", "checkpoint_load", "optim_step", "workloads")  # others after these
PEERS = ("torch", "autograd", "mygrad", "onnxruntime", "openvino", "chainer", "tinygrad")


def present() -> list[str]:
    """The benchmarks in this folder, in order."""
    found = {p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_")}
    return [n for n in ORDER if n in found] + sorted(found - set(ORDER))


def arguments(name: str, peers: list[str], options: argparse.Namespace) -> list[str]:
    """The options as that benchmark takes them."""
    corpus, record = options.corpus, options.record
    text = (HERE / f"{name}.py").read_text()
    found = []
    if "--peer-python" in text:
        if "NAME=PATH" in text:
            found += [word for peer in peers for word in ("--peer-python", peer)]
        else:
            torch = [peer[6:] for peer in peers if peer.startswith("torch=")]
            found += [word for path in torch for word in ("--peer-python", path)]
    if corpus and '"--corpus"' in text:
        found += ["--corpus", str(corpus.resolve())]
    for option in ("rounds", "seconds"):
        if getattr(options, option) and f'"--{option}"' in text:
            found += [f"--{option}", str(getattr(options, option))]
    if record:
        option = next((o for o in ("--json", "--out") if f'"{o}"' in text), None)
        found += [option, str(HERE / "results" / f"{name}.json")] if option else []
    return found


def main() -> int:
    """Run them; 1 where one fails or exceeds a limit of its own."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--only", help="comma-separated names")
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of a contender in a round")
    options = parser.parse_args()
    elsewhere = {peer.partition("=")[0] for peer in options.peer_python}
    absent = [p for p in PEERS if p not in elsewhere and importlib.util.find_spec(p) is None]
    if absent:
        print(f"peers not installed, so not measured: {', '.join(absent)} (elsewhere: --peer-python NAME=PATH)")
    names = options.only.split(",") if options.only else present()
    unknown = sorted(set(names) - set(present()))
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}; there are: {', '.join(present())}")
    failed = []
    for name in names:
        print(f"\n== {name}", flush=True)
        more = arguments(name, options.peer_python, options)
        command = [sys.executable, "-m", f"benchmarks.{name}", *more]
        if subprocess.run(command, cwd=HERE.parent).returncode:
            failed.append(name)
    if failed:
        print(f"\nfailed, or over a limit: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
