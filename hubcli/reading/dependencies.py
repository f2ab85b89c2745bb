"""Checks a hubconf's `dependencies` without importing anything.

A name is an import name, perhaps dotted (`yaml`, `os.path`), or a requirement (`numpy>=1.24`).  The
repository's own modules count, and `torch` is provided by the engine unless the framework is torch.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from hubcli.errors import DependencyError
from hubcli.reading import import_names, origins, packages, project
from hubcli.reading.origins import Repository

if TYPE_CHECKING:
    from hubcli.reading.imports import Survey

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?([<>=!~]=?[A-Za-z0-9.*+!,<>=~-]+)?\Z")


@dataclass(frozen=True)
class Dependency:
    """One entry of `dependencies`, or (`declared` is false) something that the repository needs besides.

    `provided_by` is `engine`, `stdlib`, `repository`, or a distribution with its version; `note` says where an
    undeclared one comes from, or why one cannot be had.
    """

    name: str
    satisfied: bool
    provided_by: str | None
    declared: bool = True
    note: str | None = None


@dataclass(frozen=True)
class Plan:
    """The distributions to install: `whole` with all requirements, `bare` without; and what cannot be, with the
    reason."""

    whole: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()

    def command(self, program: str = "python -m pip") -> str | None:
        """Return the one line for a shell; None where there is nothing to install."""
        parts = []
        if self.whole:
            parts.append(f"{program} install {shlex.join(self.whole)}")
        if self.bare:
            parts.append(f"{program} install --no-deps {shlex.join(self.bare)}")
        return " && ".join(parts) or None


@dataclass(frozen=True)
class Report:
    """The dependencies in their order, what installs the missing ones, and what the user should know of the others."""

    dependencies: tuple[Dependency, ...]
    plan: Plan = Plan()
    warnings: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the names that are not satisfied, those that are not declared too."""
        return tuple(one.name for one in self.dependencies if not one.satisfied)

    @property
    def install(self) -> str | None:
        """Return the command for what is missing, as far as there is one."""
        return self.plan.command()

    @property
    def hint(self) -> str | None:
        """Return what to do next."""
        if not self.missing:
            return None
        parts = [] if self.install is None else [f"run: {self.install}"]
        return "; ".join(parts + [reason for _, reason in self.plan.refused])

    def require(self, spec: str | None = None) -> None:
        """Raise DependencyError, with torch.hub's sentence, if anything that is declared is missing."""
        absent = [one.name for one in self.dependencies if one.declared and not one.satisfied]
        if absent:
            raise DependencyError(f"Missing dependencies: {', '.join(absent)}", hint=self.hint, spec=spec)


def check(
    names: Sequence[str],
    *,
    root: Path | None = None,
    framework: str = "engine",
    survey: Survey | None = None,
) -> Report:
    """Return which of `names` are there: for a repository at `root`, run on `framework`.

    Of `survey`, what the code imports without declaring it, only the missing ones are reported; and so is what an
    installed package needs and lacks, because it was installed without its requirements.
    """
    repository = Repository(root, survey) if root is not None else None
    imports = () if survey is None else survey.imports
    found = [_check_one(name, root, framework, repository) for name in names]
    covered = {_top(name) for name in names}
    places = {one.name.partition(".")[0]: one.place for one in reversed(imports)}
    for one in imports:
        left_out = repository.submodule(one.name) if repository is not None and one.left_out else None
        if left_out is not None:
            found.append(Dependency(one.name, False, None, False, f"imported by {one.place}, in a submodule left out"))
        elif one.name.partition(".")[0] not in covered:
            made = _check_one(import_names.whole(one.name), root, framework, repository)
            note = f"imported by {one.place}, but not declared"
            found.append(replace(made, declared=False, note=note))
    kept = [one for one in found if one.declared or not one.satisfied]
    if framework == "engine":
        installed = [one.name for one in found if one.satisfied and _foreign(one.provided_by)]
        kept += _lacking(installed, {packages.canonical(one.name) for one in kept})
    missing = [one for one in kept if not one.satisfied]
    plan = _plan([one.name for one in missing], framework, repository, places)
    reasons = dict(plan.refused)
    noted = tuple(replace(one, note=one.note or reasons.get(one.name)) for one in kept)
    return Report(noted, plan, tuple(_unknown_versions(names, found, framework)))


def _foreign(provider: str | None) -> bool:
    return provider not in (None, "engine", "stdlib", "repository") and not str(provider).startswith("not needed")


def _top(text: str) -> str:
    """Return the import name that a declared dependency means, as far as that is known."""
    name = re.split(r"[^\w.-]", text.strip(), maxsplit=1)[0]
    known = import_names.modules().get(packages.canonical(name)) or getattr(packages.find(name), "module", None)
    return (known or name.replace("-", "_")).partition(".")[0]


def _lacking(installed: Sequence[str], known: set[str]) -> Iterator[Dependency]:
    """Yield what packages that are there need, and what is not there."""
    found = [one for name in installed if (one := packages.find(re.split(r"[^\w.-]", name.strip(), maxsplit=1)[0]))]
    for package in packages.closure(found):
        others = [packages.table()[name] for name in package.torchy]
        needs = {one: _has(one) for one in package.needs}
        needs |= {one.distribution: _has(one.distribution, one.module) for one in others}
        for need, there in needs.items():
            if not there and packages.canonical(need) not in known and _has(package.distribution, package.module):
                known.add(packages.canonical(need))
                yield Dependency(need, False, None, False, f"needed by {package.distribution}")


def _has(distribution: str, module: str | None = None) -> bool:
    """Return whether a distribution, or another one with the same module, is installed."""
    from importlib import metadata

    module = module or import_names.modules().get(packages.canonical(distribution))
    if module is not None and find(module, None) is not None:
        return True
    try:
        metadata.distribution(distribution)
    except (metadata.PackageNotFoundError, ValueError, OSError):
        return module is None and find(distribution.replace("-", "_"), None) is not None
    return True


def _unknown_versions(names: Sequence[str], found: Sequence[Dependency], framework: str) -> Iterator[str]:
    """Yield a sentence for every package of the table whose installed version is not known to work."""
    if framework != "engine":
        return
    for one in found:
        package = packages.find(re.split(r"[^\w.-]", one.name.strip(), maxsplit=1)[0])
        version = (one.provided_by or "").rpartition(" ")[2]
        if package is None or not one.satisfied or not _foreign(one.provided_by) or not version[:1].isdigit():
            continue
        if not package.knows(version):
            yield (
                f"{one.provided_by} is installed; the engine is known to work with {package.distribution} "
                f"{package.versions}: python -m pip install --no-deps {shlex.quote(package.requirement())}"
            )


def _check_one(text: str, root: Path | None, framework: str, repository: Repository | None) -> Dependency:
    from packaging.requirements import InvalidRequirement, Requirement

    name, specifier = text.strip(), ""
    if not _DOTTED.match(name):
        try:
            requirement = Requirement(name)
        except InvalidRequirement:
            return Dependency(text, False, None)
        if requirement.marker is not None and not requirement.marker.evaluate():
            return Dependency(text, True, f"not needed ({requirement.marker})")
        name, specifier = requirement.name, str(requirement.specifier)
    if name.partition(".")[0] == "torch" and framework == "engine":
        return Dependency(text, True, "engine")
    where = find(name, root)
    if where is None and root is not None and _is_itself(name, root):
        where = "repository"
    if where is None and repository is not None and _DOTTED.match(name) and repository.has(name.split(".")):
        where = "repository"
    release = distribution(name)
    module = import_names.modules().get(packages.canonical(name))
    if where is None and release is None and module is not None and find(module, None) is not None:
        release = distribution(module)  # `opencv-python`, where `opencv-python-headless` is there
    # `scikit-learn` is no import name: there the distribution decides.
    if where is None and (release is None or name in import_names.table().distributions or "." in name):
        return Dependency(text, False, None)
    if specifier and where != "repository":
        from packaging.specifiers import SpecifierSet

        if release is None:  # no version is known: that it fits cannot be said
            return Dependency(text, False, where)
        title, version = release
        fits = SpecifierSet(specifier).contains(version, prereleases=True)
        return Dependency(text, fits, f"{title} {version}")
    if where in ("installed", None) and release is not None:
        where = " ".join(release)
    return Dependency(text, True, where)


def find(name: str, root: Path | None) -> str | None:
    """Return where module `name` comes from, or None; every failure of a finder means that it is absent."""
    parts = name.split(".")
    if root is not None and any(_in_folder(folder, parts) for folder in (root, *project.read(root).sources)):
        return "repository"
    if not all(part.isidentifier() for part in parts):
        return None
    stdlib = parts[0] in sys.stdlib_module_names
    if sys.modules.get(name) is not None:
        return "stdlib" if stdlib else "installed"
    spec = _top_spec(parts[0])
    for end in range(2, len(parts) + 1):
        if spec is None:
            return None
        spec = _spec_below(".".join(parts[:end]), spec)
    if spec is None:
        return None
    return "stdlib" if stdlib else "installed"


def _is_itself(name: str, root: Path) -> bool:
    """Return whether a name is that of the distribution that the repository makes: not to be had from an index."""
    own = project.read(root).name
    return own is not None and packages.canonical(own) == packages.canonical(name)


def _in_folder(root: Path, parts: Sequence[str]) -> bool:
    path = root.joinpath(*parts)
    return path.with_name(path.name + ".py").is_file() or (path / "__init__.py").is_file()


def _top_spec(name: str) -> ModuleSpec | None:
    loaded = sys.modules.get(name)
    if loaded is not None:
        spec = getattr(loaded, "__spec__", None)
        locations = getattr(loaded, "__path__", None)
        if spec is None:  # a module made by hand is importable all the same
            spec = ModuleSpec(name, None, is_package=locations is not None)
            spec.submodule_search_locations = list(locations) if locations is not None else None
        return spec if isinstance(spec, ModuleSpec) else None
    for finder in sys.meta_path:
        try:
            found = finder.find_spec(name, None, None)
        except Exception:
            continue
        if found is not None:
            return found
    return None


def _spec_below(name: str, parent: ModuleSpec) -> ModuleSpec | None:
    try:
        locations = list(parent.submodule_search_locations or ())
        return PathFinder.find_spec(name, locations) if locations else None
    except Exception:
        return None


def distribution(name: str) -> tuple[str, str] | None:
    """Name and version of the installed distribution that is called so or provides the module."""
    from importlib import metadata

    candidates = [import_names.distribution(name) or "", name, name.partition(".")[0]]
    if name.partition(".")[0] in sys.modules or _top_spec(name.partition(".")[0]) is not None:
        candidates += metadata.packages_distributions().get(name.partition(".")[0], [])
    for candidate in candidates:
        try:
            found = metadata.distribution(candidate) if candidate else None
            if found is not None and found.metadata["Name"]:
                return found.metadata["Name"], found.version
        except (metadata.PackageNotFoundError, ValueError, OSError):
            continue
    return None


def _plan(missing: Sequence[str], framework: str, repository: Repository | None, places: Mapping[str, str]) -> Plan:
    """Return what to install for the missing names, each decided by itself; `places` say where names are imported."""
    whole: dict[str, str] = {}
    bare: dict[str, str] = {}
    refused: list[tuple[str, str]] = []
    for text in missing:
        name = re.split(r"[^\w.-]", text, maxsplit=1)[0]
        wanted = text[len(name) :].strip()
        package = packages.find(name)
        install = _distribution(name, repository) + wanted
        own = repository.own(name) if repository is not None and name else None
        if not _SAFE.match(text) and not _SAFE.match(install):  # what a stranger wrote does not reach a shell
            refused.append(
                (text, own or f"{text!r} is not a name that can be installed; ask the repository what it means")
            )
        elif package is not None and own is None and framework != "engine":
            whole.setdefault(packages.canonical(package.distribution), package.distribution + wanted)
        elif package is None or own is not None:
            reason = origins.refusal(name, places.get(name.partition(".")[0]), repository)
            if reason is not None:
                refused.append((text, reason))
            else:
                whole.setdefault(packages.canonical(install), install)
        elif package.reason is not None:
            needs = f"{package.distribution} needs torch itself ({package.reason})"
            refused.append((text, f"{needs}: install both and use --framework torch"))
        else:
            for one in packages.closure([package]):
                if one is package or not _has(one.distribution, one.module):
                    into = bare if one.torch else whole
                    requirement = one.requirement(wanted if one is package else "")
                    into.setdefault(packages.canonical(one.distribution), requirement)
                for need in one.needs if one.torch else ():
                    if not _has(need):
                        whole.setdefault(packages.canonical(need), need)
    return Plan(tuple(whole.values()), tuple(bare.values()), tuple(refused))


def _distribution(name: str, repository: Repository | None) -> str:
    """Return the name to install a module by, as far as it is known; else its own."""
    found = import_names.distribution(name)
    if found is None and repository is not None and not import_names.known(name):
        found = repository.distribution(name)
    return found or name


def torch_installed() -> bool:
    """Return whether torch itself, not the engine's alias of it, can be imported."""
    try:
        spec = PathFinder.find_spec("torch", [entry or os.curdir for entry in sys.path])
    except Exception:
        return False
    return spec is not None and spec.loader is not None
