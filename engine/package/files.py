"""Patterns of module names, and the tree of files in a package."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["Directory", "GlobGroup"]


class GlobGroup:
    """Names that match one of `include` and none of `exclude`.

    `*` is any one part of a dotted name, or a piece of one (`torch.*`, `my_*`); `**` is any number of parts.
    ValueError for `**` beside other text in one part.  Source: torch.package.glob_group of release 2.13.
    """

    def __init__(
        self, include: str | Iterable[str], *, exclude: str | Iterable[str] = (), separator: str = "."
    ) -> None:
        self.separator = separator
        self.include = [include] if isinstance(include, str) else list(include)
        self.exclude = [exclude] if isinstance(exclude, str) else list(exclude)
        self._include = [self._compiled(one) for one in self.include]
        self._exclude = [self._compiled(one) for one in self.exclude]

    def _compiled(self, pattern: str) -> re.Pattern[str]:
        sep = re.escape(self.separator)

        def part(text: str) -> str:
            if text == "**":
                return f"({sep}[^{sep}]+)*"
            if "**" in text:
                raise ValueError("** can only appear as an entire path segment")
            return sep + f"[^{sep}]*".join(map(re.escape, text.split("*")))

        return re.compile("".join(map(part, pattern.split(self.separator))) + r"\Z")

    def matches(self, candidate: str) -> bool:
        """Return whether a name is one of the group."""
        name = self.separator + candidate
        return any(p.match(name) for p in self._include) and not any(p.match(name) for p in self._exclude)

    def __repr__(self) -> str:
        return f"GlobGroup(include={self.include}, exclude={self.exclude})"


class Directory:
    """A folder of a package: its children by name."""

    def __init__(self, name: str, is_dir: bool) -> None:
        self.name, self.is_dir = name, is_dir
        self.children: dict[str, Directory] = {}

    def add(self, path: str) -> None:
        """Put a file below."""
        here = self
        parts = path.split("/")
        for part in parts[:-1]:
            here = here.children.setdefault(part, Directory(part, True))
        here.children[parts[-1]] = Directory(parts[-1], False)

    def has_file(self, filename: str) -> bool:
        """Return whether a path below is there."""
        here = self
        for part in filename.split("/"):
            if part not in here.children:
                return False
            here = here.children[part]
        return True

    def __str__(self) -> str:
        lines: list[str] = []
        self._lines(lines, "", "─── ")
        return "".join(lines)

    def _lines(self, lines: list[str], prefix: str, mark: str) -> None:
        lines.append(f"{prefix}{mark}{self.name}\n")
        if mark == "└── ":
            prefix += "   "
        elif mark == "├── ":
            prefix += "│   "
        else:
            prefix += "    "
        folders = sorted((c for c in self.children.values() if c.is_dir), key=lambda c: c.name)
        files = sorted((c for c in self.children.values() if not c.is_dir), key=lambda c: c.name)
        inside = [*folders, *files]
        for i, child in enumerate(inside):
            child._lines(lines, prefix, "└── " if i == len(inside) - 1 else "├── ")
