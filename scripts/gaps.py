"""What is missing or exempt: every exemption from a registry test, and the names of torch that are not here.

    python scripts/gaps.py [--write]

The names are those of tests/engine/api_names.txt (name, tier, section); why one is missing stands in the table of
docs/reference/gaps.md.  `--write` brings that table up to date: names that exist now leave it, new ones come in as
"not built yet".
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import engine.ops.lazy  # noqa: E402  # every op
from engine.dispatch import OPS  # noqa: E402

NAMES = ROOT / "tests/engine/api_names.txt"
TABLE = ROOT / "docs/reference/gaps.md"
ROW = re.compile(r"^\| `([^`]+)` \| ([123]) \| (.+?) \|$", re.M)
PENDING = "not built yet"
# attributes that an object gets when it is made
OF_OBJECTS = {"autograd.profiler.profile.function_events", "autograd.profiler.profile.self_cpu_time_total"}


def exemptions() -> list[tuple[str, str, str]]:
    """(op, from which test, why), sorted."""
    found = []
    for name, record in OPS.items():
        tests = [test for test in ("gradgrad", "deterministic") if not getattr(record, test)]
        if not tests and record.why:
            tests = ["samples"] if record.samples is None else ["gradcheck"]
        if tests:
            found.append((name, ", ".join(tests), record.why or "NO REASON GIVEN"))
    return sorted(found)


def skips() -> list[tuple[str, str]]:
    """(test file and line, reason) of every test that may skip itself."""
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if not name.endswith(("pytest.skip", "mark.skip", "mark.skipif", "importorskip", "mark.xfail")):
                continue
            reasons = [k.value for k in node.keywords if k.arg == "reason"] or node.args[-1:]
            why = ast.unparse(reasons[0]).strip("'\"") if reasons else "NO REASON GIVEN"
            if name.endswith("importorskip"):
                why = f"without {why}"
            found.append((f"{path.relative_to(ROOT)}:{node.lineno}", why))
    return found


def not_on_cuda() -> list[tuple[str, str]]:
    """(sample, module or case, reason) of what the CUDA tests leave out: the tables of test_everything.py."""
    found: list[tuple[str, str]] = []
    for node in ast.parse((ROOT / "tests/engine/backends/cuda/test_everything.py").read_text()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(targets[0], ast.Name) and targets[0].id.endswith("ON_CUDA"):
            found += ast.literal_eval(node.value).items()
    return found


def exists(name: str) -> bool:
    """Whether `engine` has it; sub-packages are imported on the way."""
    value, path = engine, "engine"
    for part in name.split("."):
        path += "." + part
        if not hasattr(value, part):
            try:
                importlib.import_module(path)
            except ImportError:
                return False
        if not hasattr(value, part):
            return False
        value = getattr(value, part)
    return True


def api() -> dict[str, tuple[int, str]]:
    """The names of the reference: name -> (tier, section)."""
    rows = [line.split("\t") for line in NAMES.read_text().splitlines() if line]
    return {name: (int(tier), section) for name, tier, section in rows}


def missing() -> dict[str, int]:
    """The names that do not exist, with their tier."""
    importlib.import_module("engine.sparse")  # gives Tensor its sparse methods
    found = {n: tier for n, (tier, _) in api().items() if n not in OF_OBJECTS and not exists(n)}
    return dict(sorted(found.items(), key=lambda item: (item[1], item[0])))


def listed() -> dict[str, str]:
    """The names in the table of docs/reference/gaps.md, with why."""
    return {name: why for name, _, why in ROW.findall(TABLE.read_text())}


def write() -> None:
    """Bring the table up to date; reasons stay."""
    why = listed()
    text = TABLE.read_text()
    rows = "".join(f"| `{n}` | {tier} | {why.get(n, PENDING)} |\n" for n, tier in missing().items())
    head, mark, rest = text.partition("| --- | --- | --- |\n")
    TABLE.write_text(head + mark + rows + "\n" + ROW.sub("", rest).lstrip("\n"))


def main() -> int:
    """Print the exemptions and the gaps; 1 where one has no reason."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="bring the table of docs/reference/gaps.md up to date")
    if parser.parse_args().write:
        write()
    exempt = exemptions()
    print(f"Ops exempt from a registry test: {len(exempt)} of {len(OPS)}")
    for name, tests, why in exempt:
        print(f"  {name}: {tests}: {why}")
    print("Tests that may skip:")
    for where, reason in skips():
        print(f"  {where}: {reason}")
    left_out = not_on_cuda()
    print(f"Exempt from the CUDA tests: {len(left_out)}")
    for where, reason in left_out:
        print(f"  {where}: {reason}")
    gaps, why = missing(), listed()
    total = api()
    for tier in (1, 2, 3):
        names = [n for n, t in gaps.items() if t == tier]
        print(f"Names of tier {tier} missing: {len(names)} of {sum(t == tier for t, _ in total.values())}")
        for name in names:
            print(f"  {name}: {why.get(name, 'NOT IN docs/reference/gaps.md')}")
    stale = sorted(set(why) - set(gaps))
    for name in stale:
        print(f"in docs/reference/gaps.md, but not missing: {name}")
    unexplained = [n for n in gaps if gaps[n] < 3 and n not in why] + [n for n, _, w in exempt if w.startswith("NO ")]
    return 1 if unexplained or stale else 0


if __name__ == "__main__":
    sys.exit(main())
