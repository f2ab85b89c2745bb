"""`make packages`: every package of hubcli/data/packages.toml, unmodified from PyPI, imported and used on the engine.

`.packages/` holds the environment: a venv with this project (editable), what the packages need, and the newest tested
version of each with `--no-deps`; older ones lie in folders of their own.  For each: every module is imported, those
that cannot be are compared with tests/packages/missing/NAME.txt, then tests/packages/uses/NAME.py runs.

    python scripts/packages.py [NAME...]     set up what is missing, then try these packages (all)
      --write   write missing/NAME.txt anew (the reasons of known lines stay)
      --page    write the table in docs/reference/packages.md from the last results of every package
      --pin     write tests/packages/constraints.txt from what is installed
      --bounds  install, import and use the lowest release that each row's `versions` admits, and nothing else
"""

from __future__ import annotations

import argparse
import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "hubcli" / "data" / "packages.toml"
HERE = ROOT / "tests" / "packages"
HOME = ROOT / ".packages"
PYTHON = HOME / "venv" / "bin" / "python"
CONSTRAINTS = HERE / "constraints.txt"
PAGE = ROOT / "docs" / "reference" / "packages.md"
MARKS = ("<!-- packages: written by `python scripts/packages.py --page` -->", "<!-- end of packages -->")
SECONDS = 1200  # one package's imports, or its use, on a busy machine
ALONE = 40  # modules that failed are tried once more by themselves, so many at most


@dataclass(frozen=True)
class Package:
    """A row of the table that is known to work."""

    name: str
    distribution: str
    tested: tuple[str, ...]
    needs: tuple[str, ...]
    torchy: tuple[str, ...]
    versions: str = ""
    torch: bool = True


@dataclass(frozen=True, order=True)
class Missing:
    """A module that cannot be imported: `module [version]: Exception: reason`; no version means every one."""

    module: str
    error: str
    reason: str
    version: str = ""

    def __str__(self) -> str:
        mark = f" [{self.version}]" if self.version else ""
        return f"{self.module}{mark}: {self.error}: {self.reason}"


def rows() -> list[Package]:
    """The rows with tested versions, in the order of the file."""
    found = tomllib.loads(TABLE.read_text())
    return [
        Package(
            name,
            row["distribution"],
            tuple(row["tested"]),
            tuple(row["needs"]),
            tuple(row["torchy"]),
            row["versions"],
            row.get("torch", True),
        )
        for name, row in found.items()
        if row.get("tested")
    ]


def tried(table: Sequence[Package]) -> list[Package]:
    """The rows that have a use, and so are tried here."""
    return [package for package in table if (HERE / "uses" / f"{package.name}.py").exists()]


def with_theirs(table: Sequence[Package], every: Sequence[Package]) -> list[Package]:
    """The rows, and those that they need."""
    by_name = {package.name: package for package in every}
    found: dict[str, Package] = {}
    pending = list(table)
    while pending:
        package = pending.pop(0)
        if package.name not in found:
            found[package.name] = package
            pending += [by_name[name] for name in package.torchy]
    return [package for package in every if package.name in found]


def read_missing(text: str) -> list[Missing]:
    """The lines of a list of missing modules; ValueError for one that is none."""
    found = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        parts = re.fullmatch(r"([\w.]+)(?: \[([^\]]+)\])?: (\w+): (.+)", line)
        if parts is None:
            raise ValueError(f"not `module [version]: Exception: reason`: {line!r}")
        module, version, error, reason = parts.groups()
        found.append(Missing(module, error, reason, version or ""))
    return found


def listed(package: str, version: str) -> dict[str, Missing]:
    """The modules that are said to be missing in this version, by name."""
    path = HERE / "missing" / f"{package}.txt"
    lines = read_missing(path.read_text()) if path.exists() else []
    return {line.module: line for line in lines if line.version in ("", version)}


def modules(folder: Path, name: str) -> Iterator[str]:
    """The names of every module below a package's folder, itself first, none imported."""
    yield name
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name.isidentifier() and (path / "__init__.py").exists():
            yield from modules(path, f"{name}.{path.name}")
        elif path.suffix == ".py" and path.stem.isidentifier() and path.stem not in ("__init__", "__main__"):
            yield f"{name}.{path.stem}"


# --- the environment


def pip(*arguments: str) -> None:
    """Run the environment's pip, without constraints that the machine's may have; CalledProcessError where it fails."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    own = {**os.environ, "PIP_CONSTRAINT": os.devnull}
    subprocess.run([str(PYTHON), "-m", "pip", *arguments, *quiet], check=True, cwd=ROOT, env=own)


def target(package: Package, version: str) -> Path:
    """Where an older version of a package lies."""
    return HOME / "older" / f"{package.name}-{version}"


def beside(package: Package, version: str) -> list[str]:
    """What an older version needs in other versions than the newest does."""
    path = HERE / "older" / f"{package.name}-{version}.txt"
    return path.read_text().split() if path.exists() else []


def set_up(table: Sequence[Package]) -> None:
    """Install what is not there yet: the project, the needs at the pinned versions, the packages without theirs."""
    if not PYTHON.exists():
        subprocess.run([sys.executable, "-m", "venv", str(HOME / "venv")], check=True)
    wanted = sorted({need for p in table for need in p.needs})
    exact = [f"{p.distribution}=={p.tested[-1]}" for p in table]
    said = hashlib.sha256()
    for text in (CONSTRAINTS.read_text(), (ROOT / "pyproject.toml").read_text(), *wanted, *exact):
        said.update(text.encode())
    stamp = HOME / ".installed"
    if not stamp.exists() or stamp.read_text() != said.hexdigest():
        pip("install", "-c", str(CONSTRAINTS), "setuptools", "wheel")
        pip("install", "-c", str(CONSTRAINTS), "-e", ".[image,onednn]", *wanted)
        # source distributions of old packages import setuptools of the environment, not of an isolated one
        pip("install", "--no-deps", "--no-build-isolation", *exact)
        refuse_torch()
        stamp.write_text(said.hexdigest())
    for package in table:
        for version in package.tested[:-1] if package in tried(table) else ():
            folder = target(package, version)
            if not folder.exists():
                partial = folder.with_name(folder.name + ".partial")
                shutil.rmtree(partial, ignore_errors=True)
                exactly = [f"{package.distribution}=={version}", *beside(package, version)]
                pip("install", "--no-deps", "--no-build-isolation", "--target", str(partial), *exactly)
                partial.rename(folder)


def frozen() -> dict[str, str]:
    """What the environment holds: distribution -> version."""
    done = subprocess.run([str(PYTHON), "-m", "pip", "list", "--format=json"], check=True, capture_output=True)
    return {re.sub(r"[-_.]+", "-", d["name"]).lower(): d["version"] for d in json.loads(done.stdout)}


def refuse_torch() -> None:
    """SystemExit when something of `needs` brought torch along: nothing below would try the engine."""
    if "torch" in frozen():
        raise SystemExit("torch was installed into .packages/venv: a distribution of `needs` depends on it")


def pin(table: Sequence[Package]) -> None:
    """Write the constraints file from what is installed."""
    ours = {re.sub(r"[-_.]+", "-", p.distribution).lower() for p in table} | {"hubcli", "pip"}
    needed = {re.sub(r"[-_.]+", "-", need).lower() for p in table for need in p.needs}
    pinned = (f"{name}=={version}\n" for name, version in sorted(frozen().items()) if name not in ours - needed)
    CONSTRAINTS.write_text(
        "# What tests/packages installs, exactly: python scripts/packages.py --pin\n" + "".join(pinned)
    )


# --- trying a package


@dataclass
class Result:
    """What came of one version of a package."""

    package: str
    version: str
    total: int
    failed: dict[str, tuple[str, str]]  # module -> exception, its message
    problems: list[str]
    seconds: float

    @property
    def path(self) -> Path:
        """Where it is kept for `--page`."""
        return HOME / "results" / f"{self.package}-{self.version}.json"


def environment(package: Package, version: str) -> dict[str, str]:
    """Variables of a process that tries a package: an empty home, no offer to fetch anything."""
    home = HOME / "home"
    home.mkdir(parents=True, exist_ok=True)
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "TMPDIR", "ENGINE_ONEDNN_LIB")}
    found = {**kept, "HOME": str(home), "HF_HUB_OFFLINE": "1", "PYTHONPYCACHEPREFIX": str(HOME / "pycache")}
    found |= {"YOLO_OFFLINE": "1", "YOLO_AUTOINSTALL": "0", "YOLO_CONFIG_DIR": str(home), "MPLBACKEND": "Agg"}
    if version != package.tested[-1]:
        found["PYTHONPATH"] = str(target(package, version))
    return found


def run(command: Sequence[str], variables: dict[str, str], log: Path) -> int | str:
    """The exit status of a program of the environment, or a word for why there is none."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                [str(PYTHON), "-m", "engine.torch_alias", *command],
                env=variables,
                cwd=HOME,
                timeout=SECONDS,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        except subprocess.TimeoutExpired:
            return f"took more than {SECONDS} s"
    return done.returncode


def import_all(names: Sequence[str], variables: dict[str, str], log: Path) -> dict[str, tuple[str, str]]:
    """Import modules in one process, in a new one from the next on where one ends it; those that fail, and why."""
    failed: dict[str, tuple[str, str]] = {}
    left = list(names)
    while left:
        answers, request = log.with_suffix(".jsonl"), log.with_suffix(".txt")
        answers.unlink(missing_ok=True)
        request.parent.mkdir(parents=True, exist_ok=True)
        request.write_text("\n".join(left))
        status = run([str(HERE / "walk.py"), str(request), str(answers)], variables, log)
        told = [json.loads(line) for line in answers.read_text().splitlines()] if answers.exists() else []
        failed |= {name: (error, text) for name, error, text in told if error}
        left = left[len(told) :]
        if left:
            failed[left.pop(0)] = ("Died", f"the process ended: {status}")
    return failed


def try_one(package: Package, version: str, write: bool) -> Result:
    """Import every module of a package and run its use."""
    start = time.monotonic()
    variables = environment(package, version)
    where = subprocess.run(
        [str(PYTHON), "-c", f"import importlib.util as u; print(u.find_spec({package.name!r}).origin)"],
        env=variables,
        cwd=HOME,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    origin = Path(where)
    names = list(modules(origin.parent, package.name)) if origin.name == "__init__.py" else [package.name]
    logs = HOME / "logs" / f"{package.name}-{version}"
    failed = import_all(names, variables, logs / "import.log")
    known = listed(package.name, version)
    if package.name in failed:
        error, text = failed[package.name]
        return Result(package.name, version, len(names), failed, [f"cannot import it: {error}: {text}"], 0.0)
    for module in [m for m in failed if write or m not in known][:ALONE]:  # alone it may do better
        again = import_all([module], variables, logs / "alone.log")
        if not again:
            del failed[module]
    problems = []
    if not write:
        for module, (error, text) in failed.items():
            if module not in known:
                problems.append(f"cannot import {module}: {error}: {text}")
            elif known[module].error != error:
                problems.append(f"{module}: {error} ({text}), where the list says {known[module].error}")
        problems += [f"{m} is listed as missing, but imports" for m in known if m in names and m not in failed]
        problems += [f"{m} is listed as missing, but there is no such module" for m in known if m not in names]
    if (status := run([str(HERE / "use.py"), package.name], variables, logs / "use.log")) != 0:
        problems.append(f"its use failed ({status}):\n{tail(logs / 'use.log')}")
    result = Result(package.name, version, len(names), failed, problems, time.monotonic() - start)
    result.path.parent.mkdir(parents=True, exist_ok=True)
    result.path.write_text(json.dumps({"total": result.total}))
    return result


def lowest(package: Package) -> str:
    """The lowest release on the index that the row's `versions` admits."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import Version

    command = [str(PYTHON), "-m", "pip", "index", "versions", package.distribution]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    listing = said.partition("Available versions:")[2].partition("\n")[0]
    known = [one.strip() for one in listing.split(",") if one.strip()]
    fitting = SpecifierSet(package.versions)
    return min((one for one in known if one in fitting), key=Version)


def try_bound(package: Package) -> Result:
    """Import the lowest release of a row, and run its use; one that is free of torch comes with its requirements."""
    start = time.monotonic()
    version = lowest(package)
    folder = HOME / "bounds" / f"{package.name}-{version}"
    if not folder.exists():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        how = ("--no-deps", "--no-build-isolation") if package.torch else ("--constraint", "/dev/stdin")
        command = [str(PYTHON), "-m", "pip", "install", "-q", *how, "--target", str(partial)]
        command += [f"{package.distribution}=={version}", *beside(package, version)]
        done = subprocess.run(command, input="torch<0\n", capture_output=True, text=True)
        if done.returncode:
            error = f"cannot be installed: {done.stderr.strip()[-300:]}"
            return Result(package.name, version, 0, {}, [error], time.monotonic() - start)
        partial.rename(folder)
    variables = {**environment(package, package.tested[-1]), "PYTHONPATH": str(folder), "OTHER_RELEASE": "1"}
    logs = HOME / "logs" / f"{package.name}-{version}-bound"
    failed = import_all([package.name], variables, logs / "import.log")
    problems = [f"cannot import {module}: {error}: {text}" for module, (error, text) in failed.items()]
    used = not problems and (HERE / "uses" / f"{package.name}.py").exists()
    status = run([str(HERE / "use.py"), package.name], variables, logs / "use.log") if used else 0
    if status != 0:
        problems.append(f"its use failed ({status}):\n{tail(logs / 'use.log')}")
    return Result(package.name, version, 1, failed, problems, time.monotonic() - start)


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join("      " + line for line in log.read_text(errors="replace").splitlines()[-15:])


def write_missing(package: Package, results: Sequence[Result]) -> None:
    """Write the list of one package from what came of all its versions; reasons that were given stay."""
    path = HERE / "missing" / f"{package.name}.txt"
    given = {(m.module, m.error): m.reason for m in (read_missing(path.read_text()) if path.exists() else [])}
    lines = set()
    for result in results:
        for module, (error, text) in result.failed.items():
            everywhere = all(r.failed.get(module, ("",))[0] == error for r in results)
            reason = given.get((module, error), text.replace(f"{ROOT}/", ""))
            lines.add(Missing(module, error, reason, "" if everywhere else result.version))
    path.write_text("".join(f"{line}\n" for line in sorted(lines)))


# --- the table of docs/reference/packages.md


def table_text(table: Sequence[Package]) -> str:
    """The table, from the kept results: package, version, modules imported of all, which cannot and why."""
    lines = ["| package | version | modules imported | those that cannot be |", "| --- | --- | --- | --- |"]
    for package in table:
        for version in package.tested:
            kept = Result(package.name, version, 0, {}, [], 0.0).path
            if not kept.exists():
                raise SystemExit(f"no results of {package.name} {version}: python scripts/packages.py {package.name}")
            total = json.loads(kept.read_text())["total"]
            failed = {line.module: line.reason for line in listed(package.name, version).values()}
            why = Counter(failed.values())
            names: dict[str, list[str]] = {}
            for module, reason in failed.items():
                names.setdefault(reason, []).append(f"`{module.partition('.')[2] or module}`")
            said = "; ".join(
                f"{', '.join(names[reason][:2])}{f' and {n - 2} more' if n > 2 else ''}: {reason}"
                for reason, n in why.most_common()
            ).replace("|", "\\|")
            lines.append(f"| {package.distribution} | {version} | {total - len(failed)} of {total} | {said} |")
    return "\n".join(lines) + "\n"


def write_page(table: Sequence[Package]) -> None:
    """Put the table between its marks in docs/reference/packages.md."""
    before, _, rest = PAGE.read_text().partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    PAGE.write_text(f"{before}{MARKS[0]}\n{table_text(table)}{MARKS[1]}{after}")


def main(arguments: Sequence[str]) -> int:
    """Exit status 1 where a package does other than its list and its use say."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("names", nargs="*")
    for option in ("--write", "--page", "--pin", "--setup", "--bounds"):
        parser.add_argument(option, action="store_true")
    given = parser.parse_args(arguments)
    every = rows()
    table = tried(every)
    if unknown := set(given.names) - {p.name for p in (every if given.bounds else table)}:
        parser.error(f"no use of it in tests/packages/uses: {', '.join(sorted(unknown))}")
    if given.page:
        write_page(table)
        return 0
    installed = with_theirs(every if given.bounds else table, every)
    set_up(installed)
    if given.pin:
        pin(installed)
    if given.setup or given.pin:
        return 0
    chosen = [p for p in (every if given.bounds else table) if not given.names or p.name in given.names]
    results: dict[str, list[Result]] = {}
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        if given.bounds:
            waiting = [pool.submit(try_bound, p) for p in chosen]
        else:
            waiting = [pool.submit(try_one, p, version, given.write) for p in chosen for version in p.tested]
        for one in concurrent.futures.as_completed(waiting):
            result = one.result()
            results.setdefault(result.package, []).append(result)
            imported = f"{result.total - len(result.failed)} of {result.total} modules"
            word = "FAILED" if result.problems else "ok"
            print(f"{word:6} {result.package} {result.version}: {imported}, {result.seconds:.0f} s", flush=True)
            print("".join(f"    {problem}\n" for problem in result.problems), end="", flush=True)
    if given.write:
        for package in chosen:
            write_missing(package, results[package.name])
    return int(any(r.problems for some in results.values() for r in some))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
