"""`hub deps --install`: runs uv or pip for what is missing, and never lets it bring torch along.

What requires torch goes in with --no-deps, everything else under a constraint that no release of torch satisfies.  A
package that nobody has described is asked for its requirements first (`pip install --dry-run --report`, wheels only,
so that nothing of it runs); one that names torch joins the former.  Which index serves them is pip's or uv's own
configuration.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from hubcli.base import output
from hubcli.errors import DependencyError, UsageError
from hubcli.reading import packages
from hubcli.reading.dependencies import Plan

# No release of torch is below 0: what requires it cannot be installed under this.
_CONSTRAINT = "torch<0\n"
_MOST = 200  # packages whose requirements are followed
# What says where packages come from, and which of them: of PIP_..., UV_... and of pip's configuration.
_SOURCES = ("CONSTRAINT", "INDEX_URL", "EXTRA_INDEX_URL", "FIND_LINKS", "NO_INDEX", "DEFAULT_INDEX", "INDEX")


@dataclass(frozen=True)
class Tool:
    """The installer: its command up to `install`, and what makes it work outside a virtual environment."""

    name: str
    command: tuple[str, ...]
    system: tuple[str, ...] = ()

    def install(self, *arguments: str, system: bool = False) -> list[str]:
        """Return the command that installs."""
        return [*self.command, "install", *(self.system if system else ()), *arguments]


def tool() -> Tool:
    """uv if it is there, else this Python's pip; DependencyError without either.

    pip, too, where the user has told it of an index or of constraints, which uv does not read, and has told uv nothing.
    """
    from importlib.util import find_spec

    uv = shutil.which("uv")
    has_pip = find_spec("pip") is not None
    if uv is not None and not (has_pip and not _configured_uv() and _configured_pip()):
        return Tool("uv", (uv, "pip"), ("--break-system-packages",))
    if not has_pip:
        raise DependencyError(
            f"neither uv nor pip is there for {sys.executable}",
            hint=f"run: {shlex.quote(sys.executable)} -m ensurepip, or install uv",
        )
    return Tool("pip", (sys.executable, "-m", "pip"), ("--break-system-packages",))


def _configured_uv() -> bool:
    return any(name.startswith("UV_") and any(word in name for word in _SOURCES) for name in os.environ)


def _configured_pip() -> bool:
    """Return whether pip's environment or configuration files name an index, links or constraints."""
    if any(os.environ.get(f"PIP_{word}") for word in _SOURCES):
        return True
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    keys = (line.partition("=")[0].rpartition(".")[2] for line in done.stdout.splitlines())
    return any(key.upper().replace("-", "_") in _SOURCES for key in keys)


def in_virtual_environment() -> bool:
    """Return whether this Python's packages are its own, and not the system's."""
    return sys.prefix != sys.base_prefix or os.path.isdir(os.path.join(sys.prefix, "conda-meta"))


def require_environment(system: bool) -> None:
    """Refuse to install into the system's Python unless that is asked for."""
    if not system and not in_virtual_environment():
        raise UsageError(
            f"{sys.executable} is not in a virtual environment; nothing was installed",
            hint="make one (python -m venv ENV) and install hub there, or add --system",
        )


def resolve(plan: Plan, using: Tool) -> Plan:
    """Return the plan with every package in its place: those that turn out to require torch are installed without."""
    if using.name == "uv":
        return plan  # it overrides the requirement instead
    whole: dict[str, str] = {packages.canonical(_name(text)): text for text in plan.whole}
    bare: dict[str, str] = {packages.canonical(_name(text)): text for text in plan.bare}
    refused = list(plan.refused)
    pending = [text for text in plan.whole if packages.find(_name(text)) is None]
    seen = set(bare)
    while pending and len(seen) < _MOST:
        text = pending.pop(0)
        name = packages.canonical(_name(text))
        if name in seen:
            continue
        seen.add(name)
        wanted = _requirements(text, using)
        if wanted is None or not any(_name(one) == "torch" for one in wanted):
            continue  # pip resolves it, under the constraint
        whole.pop(name, None)
        bare[name] = text
        for one in wanted:
            needed = packages.canonical(_name(one))
            known = packages.find(_name(one))
            if needed == "torch" or needed in bare or needed in whole or _installed(_name(one)):
                continue
            if known is None:
                whole[needed] = one
                pending.append(one)
            elif known.reason is not None:
                refused.append((text, f"{text} needs {known.distribution}: {known.reason}"))
            else:
                for other in packages.closure([known]):
                    into = bare if other.torch else whole
                    into.setdefault(packages.canonical(other.distribution), other.requirement())
                    for need in other.needs if other.torch else ():
                        whole.setdefault(packages.canonical(need), need)
    return replace(plan, whole=tuple(whole.values()), bare=tuple(bare.values()), refused=tuple(refused))


def _name(text: str) -> str:
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        return Requirement(text).name
    except InvalidRequirement:
        return text


def _installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return False
    return True


def _requirements(text: str, using: Tool) -> list[str] | None:
    """Return what a release requires here, from its metadata; None where only its own code could tell."""
    from packaging.requirements import InvalidRequirement, Requirement

    command = using.install("--quiet", "--dry-run", "--no-deps", "--ignore-installed", "--only-binary", ":all:")
    done = subprocess.run(
        [*command, "--report", "-", "--", text], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    try:
        found = json.loads(done.stdout)["install"][0]["metadata"].get("requires_dist") or []
        made = [Requirement(one) for one in found]
    except (ValueError, LookupError, TypeError, InvalidRequirement):
        return None
    kept = [one for one in made if one.marker is None or one.marker.evaluate({"extra": ""})]
    for one in kept:
        one.marker = None
    return [str(one) for one in kept]


@contextmanager
def commands(plan: Plan, using: Tool, system: bool = False) -> Iterator[list[list[str]]]:
    """The commands that carry out the plan; the files that they name exist inside the `with`."""
    with tempfile.TemporaryDirectory(prefix="hub-deps-") as folder:
        made = []
        if plan.whole:
            file = Path(folder, "no-torch.txt")
            if using.name == "uv":  # a requirement that holds nowhere takes torch's place
                file.write_text("torch ; sys_platform == 'none'\n", encoding="utf-8")
                made.append(using.install("--override", str(file), "--", *plan.whole, system=system))
            else:
                file.write_text(_CONSTRAINT, encoding="utf-8")
                made.append(using.install("--constraint", str(file), "--", *plan.whole, system=system))
        if plan.bare:
            made.append(using.install("--no-deps", "--", *plan.bare, system=system))
        if using.name == "uv":
            made = [[*command[:3], *_for_uv(), *command[3:]] for command in made]
        yield made


def _for_uv() -> list[str]:
    """Return the Python that is meant, and the constraints that the user has given to pip."""
    files = os.environ.get("PIP_CONSTRAINT", "").split()
    return ["--python", sys.executable, *(word for file in files for word in ("--constraint", file))]


@dataclass(frozen=True)
class Refusal:
    """A requirement that the installer does not meet: why, and the version of the package that it would take."""

    requirement: str
    reason: str
    instead: str | None = None

    def __str__(self) -> str:
        text = f"{self.requirement} is refused here: {self.reason}"
        return f"{text}; {self.instead} is the newest that is allowed and known to work" if self.instead else text


def refusals(plan: Plan, using: Tool) -> Iterator[Refusal]:
    """Yield what of a plan that has failed the user's constraints and index do not allow.

    Of a package of the table the whole range that is known to work is tried instead of the proved one.
    """
    for text in (*plan.bare, *plan.whole):
        _, reason = _offered(text, using)
        if reason is None:
            continue
        package = packages.find(_name(text))
        version = None
        if package is not None and package.versions and text == package.requirement():
            version, _ = _offered(package.distribution + package.versions, using)
        instead = f"{package.distribution}=={version}" if package is not None and version is not None else None
        yield Refusal(text, reason, instead)


def without(plan: Plan, refused: Sequence[Refusal]) -> Plan:
    """Return the plan with what is allowed in the place of what was refused."""
    instead = {one.requirement: one.instead or one.requirement for one in refused}
    whole, bare = ([instead.get(text, text) for text in part] for part in (plan.whole, plan.bare))
    return replace(plan, whole=tuple(whole), bare=tuple(bare))


def _offered(text: str, using: Tool) -> tuple[str | None, str | None]:
    """Return the version that the installer would take for a requirement; else why it would take none."""
    arguments = ["--dry-run", "--no-deps"]
    with tempfile.TemporaryDirectory(prefix="hub-deps-") as folder:
        report = Path(folder, "report.json")
        if using.name == "uv":
            arguments += ["--reinstall", *_for_uv()]
        else:
            arguments += ["--ignore-installed", "--report", str(report)]
        command = using.install(*arguments, "--", text)
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            return None, _reason(done.stdout + done.stderr)
        if using.name == "uv":
            found = re.search(r"^ *\+ \S+==(\S+)", done.stderr, re.MULTILINE)
            return (found.group(1) if found else None), None
        try:
            return str(json.loads(report.read_bytes())["install"][0]["metadata"]["version"]), None
        except (OSError, ValueError, LookupError, TypeError):
            return None, None


def _reason(said: str) -> str:
    """Return what an installer's error says of the constraints and versions that stand in the way."""
    constraints = re.findall(r"\(constraint\) (.+)", said)
    if constraints:
        return f"your constraints say {', '.join(dict.fromkeys(one.strip() for one in constraints))}"[:300]
    versions = re.search(r"\(from versions: (.*?)\)", said)
    if versions is not None:
        listed = versions.group(1)
        if listed == "none":
            return "the index has no release of it for this Python"
        return f"the index has {'...' * (len(listed) > 200)}{listed[-200:]}"
    cause = re.search(r"(?:╰─▶|cause:)(.*)", said, re.DOTALL)  # uv's
    text = " ".join(cause.group(1).split()) if cause is not None else ""
    errors = [line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("ERROR:")]
    return (text or next(iter(errors), "") or " ".join(said.split()) or "the installer gives no reason")[:300]


def run(prepared: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Run the commands, their output on stderr; what was installed, as `name version`.

    DependencyError if one fails, naming what the others have installed.
    """
    before = _everything()
    for command in prepared:
        done = subprocess.run(command, stdout=2, stdin=subprocess.DEVNULL, check=False)
        if done.returncode != 0:
            new = _changed(before)
            so_far = f"installed so far: {', '.join(new)}" if new else "nothing was installed"
            raise DependencyError(
                f"{shlex.join(command)} failed with status {done.returncode}; {so_far}",
                hint="see what the installer said above; once that is fixed, run the same command again",
            )
    return _changed(before)


def _changed(before: dict[str, str]) -> tuple[str, ...]:
    after = _everything()
    return tuple(f"{name} {version}" for name, version in sorted(after.items()) if before.get(name) != version)


def _everything() -> dict[str, str]:
    """Every installed distribution with its version, as the disk has it now."""
    import importlib

    importlib.invalidate_caches()
    found = {}
    for one in metadata.distributions(path=[entry for entry in sys.path if entry]):
        name = one.metadata["Name"]
        if name and name not in found:
            found[name] = one.version
    return found


def install(wanted: Plan, system: bool, confirm: Callable[[], None]) -> tuple[str, ...]:
    """Show what would be run, have it confirmed, and run it; return the distributions that came in."""
    require_environment(system)
    using = tool()
    plan = resolve(wanted, using)
    try:
        return _carried_out(plan, using, system, confirm)
    except DependencyError as error:
        refused = list(refusals(plan, using))
        other = without(plan, refused)
        if other == plan:
            error.hint = "; ".join([str(error.hint), *map(str, refused)])
            raise
    for one in refused:
        output.message(f"hub: {one}")
    return _carried_out(other, using, system, confirm)


def _carried_out(plan: Plan, using: Tool, system: bool, confirm: Callable[[], None]) -> tuple[str, ...]:
    with commands(plan, using, system) as prepared:
        for command in prepared:
            output.message("$ " + shlex.join(command))
        confirm()
        return run(prepared)
