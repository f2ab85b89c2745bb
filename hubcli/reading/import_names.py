"""The table `import_names.toml`: which distribution has an import name, and which names an index has for another."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import NamedTuple

# Distributions that have a module in common with one of the table.
TWINS = {
    "faiss-gpu": "faiss",
    "opencv-contrib-python": "cv2",
    "opencv-contrib-python-headless": "cv2",
    "opencv-python": "cv2",
    "pillow-simd": "PIL",
}
_COMPILED = re.compile(r"(_cuda|_cpp|_ext|_cu|_gpu|_kernels?|_C|_cuda_(?:lib|ops?|kernel))\Z")


class Names(NamedTuple):
    """The sections of the file; its header explains them."""

    distributions: dict[str, str]
    same: frozenset[str]
    elsewhere: dict[str, str]
    local: frozenset[str]


@functools.cache
def table() -> Names:
    """Return the file, read once."""
    import tomllib

    whole = tomllib.loads(Path(__file__).parents[1].joinpath("data", "import_names.toml").read_text(encoding="utf-8"))
    return Names(
        whole["distributions"],
        frozenset(whole["same"]["names"].split()),
        whole["elsewhere"],
        frozenset(whole["local"]["names"].split()),
    )


def distribution(name: str) -> str | None:
    """Return the distribution that has a module, if it is called differently."""
    return _longest(table().distributions, name)


def elsewhere(name: str) -> str | None:
    """Return what a module is that no index has under its name."""
    return _longest(table().elsewhere, name)


def known(name: str) -> bool:
    """Return whether it is known which distribution has a module."""
    return distribution(name) is not None or name.partition(".")[0] in table().same


def compiled(name: str) -> bool:
    """Return whether a name is one that people give to what they compile: `lightconv_cuda`."""
    return _COMPILED.search(name) is not None


def whole(name: str) -> str:
    """As much of a dotted import name as it takes to know the distribution."""
    names = table()
    parts = name.split(".")
    for end in range(len(parts), 1, -1):
        start = ".".join(parts[:end])
        if start in names.distributions or start in names.elsewhere:
            return start
    return parts[0]


@functools.cache
def modules() -> dict[str, str]:
    """Return the import name of each distribution of the table, by canonical name."""
    from hubcli.reading.packages import canonical

    found: dict[str, str] = {}
    for module, name in table().distributions.items():
        found.setdefault(canonical(name), module)
    return found | TWINS


def _longest(section: dict[str, str], name: str) -> str | None:
    parts = name.split(".")
    starts = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((section[one] for one in starts if one in section), None)
