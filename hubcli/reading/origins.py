"""The origin of a missing module, as far as its repository shows: names that an index may be queried for, and why not.

`pip install NAME` brings whatever bears that name on the index.  So a name is advised where the package is known (the
tables, the repository's own requirements), or where nothing says that the name is somebody else's: not the repository's
own module, not one that it compiles or has in a submodule, not another project's.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from hubcli.reading import import_names, imports, packages, requirements
from hubcli.reading.inventory import Inventory, inside_left_out
from hubcli.reading.requirements import Required


class Repository:
    """One repository, queried by names; its files are read as they are needed."""

    def __init__(self, root: Path, survey: imports.Survey | None = None) -> None:
        """`survey` is what the code imports, if that has been read already."""
        self.root = root
        self.inventory = Inventory(root)
        self._known = survey

    @cached_property
    def _survey(self) -> imports.Survey:
        return imports.survey(self.root) if self._known is None else self._known

    @cached_property
    def _required(self) -> dict[str, Required]:
        return requirements.read(self.inventory.requirement_files, self.root)

    def has(self, parts: Sequence[str]) -> bool:
        """Return whether the code of the repository finds a module in a folder that it puts on `sys.path`, or makes
        it itself.

        Where it is not clear which folders these are, any folder of the repository may be one.
        """
        survey = self._survey
        if parts[0] in survey.provided or any(_is_module(one, parts) for one in (self.root, *survey.folders)):
            return True
        return survey.unclear and self.inventory.module(parts[0]) is not None

    def submodule(self, name: str) -> str | None:
        """Return the path of the git submodule that a module is in, if its files were left out."""
        parts = name.split(".")
        found = inside_left_out(self.root, [self.root, *self._survey.folders], parts)
        if found is not None:
            return found.relative_to(self.root).as_posix()
        plain = packages.canonical(parts[0])
        left_out = self.inventory.left_out
        return next((one for one in left_out if packages.canonical(one.rpartition("/")[2]) == plain), None)

    def distribution(self, name: str) -> str | None:
        """Return the distribution that the repository's own requirements have for an import name."""
        found = requirements.of_import(name, self._required)
        return None if found is None or found.url else found.name

    def own(self, name: str) -> str | None:
        """Return why a name is the repository's own business, and not to be had from an index."""
        submodule = self.submodule(name)
        if submodule is not None:
            return left_out(name, submodule)
        top = name.partition(".")[0]
        built = self.inventory.compiled.get(top)
        if built is not None:
            build = "the repository's own setup.py" if built == "setup.py" else f"the repository itself ({built})"
            return f"{name} is compiled by {build}, which needs torch itself: install both and use --framework torch"
        made = self.inventory.distributions.get(packages.canonical(name))
        if made is not None:
            return f"{name} is made by the repository itself: python -m pip install ./{made} in a clone of it"
        return None

    def unknown(self, name: str, place: str | None) -> str | None:
        """Return why it is not known which package has a name that nothing else is known of; None where it may be
        advised."""
        top = name.partition(".")[0]
        required = requirements.of_import(name, self._required)
        if required is not None and required.url:
            return f"{_not_known(name, place)}; {required.file} takes it from {required.url}"
        if required is not None:
            return None
        module = self.inventory.module(top)
        if module is not None:
            return f"{_not_known(name, place)}; the repository has {module}, where its code does not look for it"
        if self.inventory.left_out:
            shown = ", ".join(self.inventory.left_out[:3])
            return f"{_not_known(name, place)}; it may be in what was left out of the repository: {shown} (submodule)"
        return None


def refusal(name: str, place: str | None, repository: Repository | None) -> str | None:
    """Return why an index is not to be queried for a name: a stranger has it there.  None where it may be."""
    if repository is not None and (own := repository.own(name)) is not None:
        return own
    if import_names.distribution(name) is not None:
        return None
    if (what := import_names.elsewhere(name)) is not None:
        url = repository.unknown(name, place) if repository is not None else None
        return url if url and "takes it from" in url else f"{_not_known(name, place)}: it is {what}"
    if import_names.known(name):
        return None
    if repository is not None:
        if (reason := repository.unknown(name, place)) is not None:
            return reason
        if repository.distribution(name) is not None:
            return None
    if name.partition(".")[0] in import_names.table().local:
        return f"{_not_known(name, place)}: it is a name for modules of one's own, which the repository does not have"
    if import_names.compiled(name):
        return f"{_not_known(name, place)}: by its name it is compiled by another project"
    return None


def left_out(name: str, submodule: str) -> str:
    """Return what to say of a module in a submodule whose files are not there."""
    return (
        f"{name} is in {submodule}, which is empty: the files of git submodules are left out, as in what torch.hub "
        "downloads; clone the repository with git clone --recurse-submodules, and use that folder"
    )


def _not_known(name: str, place: str | None) -> str:
    where = f" (imported by {place})" if place else ""
    return f"which package has {name}{where} is not known"


def _is_module(folder: Path, parts: Sequence[str]) -> bool:
    """Return whether a folder has a module: a file, a package, or a bare folder with files of Python in it."""
    path = folder.joinpath(*parts)
    try:
        if path.with_name(path.name + ".py").is_file() or (path / "__init__.py").is_file():
            return True
        return path.is_dir() and any(one.suffix == ".py" for one in path.rglob("*.py"))
    except (OSError, ValueError):
        return False
