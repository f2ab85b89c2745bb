"""Checks a hubconf's `dependencies` without importing anything.

A name is an import name, perhaps dotted (`yaml`, `os.path`), or a requirement (`numpy>=1.24`).  The
repository's own modules count, and `torch` is provided by the engine unless told otherwise.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from hubcli.errors import DependencyError

_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*\Z")
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?([<>=!~]=?[A-Za-z0-9.*+!,<>=~-]+)?\Z")

# Import names that differ from the name to install by.
_INSTALL_NAMES = {
    "Crypto": "pycryptodome",
    "PIL": "Pillow",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "efficientnet_pytorch": "efficientnet-pytorch",
    "facenet_pytorch": "facenet-pytorch",
    "git": "GitPython",
    "google.protobuf": "protobuf",
    "huggingface_hub": "huggingface-hub",
    "open_clip": "open_clip_torch",
    "pkg_resources": "setuptools",
    "pytorch_lightning": "pytorch-lightning",
    "ruamel.yaml": "ruamel.yaml",
    "segmentation_models_pytorch": "segmentation-models-pytorch",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "soundfile": "soundfile",
    "yaml": "PyYAML",
}

# Packages whose installation would bring torch along, and what to install with --no-deps where
# that is known to do under the engine (None: it is not).
_NEEDS_TORCH: dict[str, tuple[str, ...] | None] = {
    "efficientnet_pytorch": ("efficientnet-pytorch",),
    "facenet_pytorch": ("facenet-pytorch",),
    "fairseq": None,
    "fastai": None,
    "fvcore": None,
    "geffnet": ("geffnet",),
    "kornia": None,
    "lightning": None,
    "lpips": ("lpips",),
    "nflows": ("nflows",),
    "open_clip": None,
    "openunmix": ("openunmix",),
    "pretrainedmodels": ("pretrainedmodels",),
    "pytorch_lightning": None,
    "pytorchvideo": None,
    "segmentation_models_pytorch": None,
    "super_image": ("super-image",),
    "timm": None,
    "torch_geometric": None,
    "torchaudio": None,
    "torchcrepe": ("torchcrepe",),
    "torchlibrosa": ("torchlibrosa",),
    "torchmetrics": None,
    "torchtext": None,
    "torchvision": ("torchvision==0.2.2.post3",),  # the last one in plain Python
    "ultralytics": None,
    "vit_pytorch": ("vit-pytorch",),
    "xformers": None,
}


@dataclass(frozen=True)
class Dependency:
    """One entry of `dependencies`.

    `provided_by` is `engine`, `stdlib`, `repository`, or a distribution with its version.
    """

    name: str
    satisfied: bool
    provided_by: str | None


@dataclass(frozen=True)
class Report:
    """The dependencies in their order; `install` is the command for the missing ones."""

    dependencies: tuple[Dependency, ...]
    install: str | None
    hint: str | None

    @property
    def missing(self) -> tuple[str, ...]:
        """The names that are not satisfied."""
        return tuple(one.name for one in self.dependencies if not one.satisfied)

    def require(self, spec: str | None = None) -> None:
        """Raise DependencyError, with torch.hub's sentence, if anything is missing."""
        if self.missing:
            raise DependencyError(f"Missing dependencies: {', '.join(self.missing)}", hint=self.hint, spec=spec)


def check(names: Sequence[str], *, root: Path | None = None, framework: str = "engine") -> Report:
    """Which of `names` are there: for a repository at `root`, run on `framework`."""
    found = tuple(_check_one(name, root, framework) for name in names)
    missing = [one.name for one in found if not one.satisfied]
    install = _install_command(missing, framework)
    return Report(found, install, _hint(missing, install, framework))


def _check_one(text: str, root: Path | None, framework: str) -> Dependency:
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
    where = _find(name, root)
    distribution = _distribution(name)
    # `scikit-learn` is no import name: there the distribution decides.
    if where is None and (distribution is None or name in _INSTALL_NAMES or "." in name):
        return Dependency(text, False, None)
    if specifier and where != "repository":
        from packaging.specifiers import SpecifierSet

        if distribution is None:  # no version is known: that it fits cannot be said
            return Dependency(text, False, where)
        title, version = distribution
        fits = SpecifierSet(specifier).contains(version, prereleases=True)
        return Dependency(text, fits, f"{title} {version}")
    if where in ("installed", None) and distribution is not None:
        where = " ".join(distribution)
    return Dependency(text, True, where)


def _find(name: str, root: Path | None) -> str | None:
    """Where module `name` comes from, or None; every failure of a finder means that it is absent."""
    parts = name.split(".")
    if root is not None and _in_folder(root, parts):
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


def _distribution(name: str) -> tuple[str, str] | None:
    """Name and version of the installed distribution that is called so or provides the module."""
    from importlib import metadata

    candidates = [_INSTALL_NAMES.get(name, ""), name, name.partition(".")[0]]
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


def _install_command(missing: Sequence[str], framework: str) -> str | None:
    """One pip command; None where a part of it would be wrong or bring torch along."""
    whole: list[str] = []
    bare: list[str] = []
    for text in missing:
        top = re.split(r"[^\w.-]", text, maxsplit=1)[0]
        name = _INSTALL_NAMES.get(text) or _INSTALL_NAMES.get(top) or text
        known = _NEEDS_TORCH.get(top.replace("-", "_"), ())
        if framework == "engine" and known is None:
            return None
        if framework == "engine" and known:
            bare += known
        elif _SAFE.match(name):
            whole.append(name)
        else:
            return None  # what a stranger wrote does not reach a shell
    commands = []
    if whole:
        commands.append("python -m pip install " + shlex.join(whole))
    if bare:
        commands.append("python -m pip install --no-deps " + shlex.join(bare))
    return " && ".join(commands) or None


def _hint(missing: Sequence[str], install: str | None, framework: str) -> str | None:
    if not missing:
        return None
    if install is not None:
        return f"run: {install}"
    needing = [name for name in missing if _NEEDS_TORCH.get(name.replace("-", "_"), ()) is None]
    if framework == "engine" and needing:
        return f"{needing[0]} needs torch itself: install both and use --framework torch"
    unusable = next((name for name in missing if not _SAFE.match(name)), missing[0])
    return f"{unusable!r} is not a name that can be installed; ask the repository what it means"


def torch_installed() -> bool:
    """Whether torch itself, not the engine's alias of it, can be imported."""
    try:
        spec = PathFinder.find_spec("torch", [entry or os.curdir for entry in sys.path])
    except Exception:
        return False
    return spec is not None and spec.loader is not None
