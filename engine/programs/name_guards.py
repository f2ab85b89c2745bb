"""What the code of a function reads by name: globals, closures, fields of objects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from operator import is_, itemgetter
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from engine.nn.modules.module import Module
from engine.programs.module_guards import PLAIN
from engine.tensor import Tensor

__all__ = ["Names"]


Entry = tuple[dict[str, object], str]  # globals, or the fields of an object, and a name in them
_OWN = re.compile(r"(engine|torch|numpy)(\.|$)")


class Names:
    """The values that the code of a function, and of the functions that it calls, reads by name.

    Globals, closures and fields of its object: values of plain types, the identity of all else.  Of objects among
    these, and of dicts, the entries of plain types that the code names (`args.beta`, `config["beta"]`).
    """

    def __init__(self, function: object, modules: Sequence[Module] = ()) -> None:
        self.spaces: dict[tuple[int, str], Entry] = {}
        self.cells: dict[int, CellType] = {}
        self.inner: dict[tuple[int, str], Entry] = {}
        self.seen: set[object] = set()
        if function is not None:
            self._code_of(function, True)
        for module in modules:
            self._code_of(MethodType(getattr(type(module), "forward", _nothing), module), False)
        self.tables = [
            (space, itemgetter(*names, names[0])) for space, names in map(_by_space, _groups(self.inner.values()))
        ]
        self.found = self.read()

    def _code_of(self, function: Any, exact: bool, depth: int = 0) -> None:
        """exact: the identity of what it finds counts, too."""
        owner = None
        if isinstance(function, MethodType):
            owner, function = function.__self__, function.__func__
        function = getattr(function, "__wrapped__", function)
        code = getattr(function, "__code__", None)
        if code is None or (code, id(owner)) in self.seen:
            return
        self.seen.add((code, id(owner)))
        names, keys = _named(code)
        space = function.__globals__
        roots = []
        for name in names & space.keys():
            roots.append(space[name])
            if exact or type(space[name]) in PLAIN:
                self.spaces[id(space), name] = space, name
        for cell in function.__closure__ or ():
            if exact:
                self.cells[id(cell)] = cell
            try:
                roots.append(cell.cell_contents)
            except ValueError:  # not set yet
                continue
        own = getattr(owner, "__dict__", None)
        if isinstance(own, dict):
            roots += [own[name] for name in names & own.keys()]
            if not isinstance(owner, Module):  # whose attributes the guard has anyway
                for name in names & own.keys():
                    self.spaces[id(own), name] = own, name
        for root in roots:
            self._entries_of(root, names, keys, 2)
            if isinstance(root, FunctionType) and depth < 3 and not _OWN.match(root.__module__ or ""):
                self._code_of(root, False, depth + 1)
        if owner is not None and depth < 3:
            for name in names:
                method = getattr(type(owner), name, None)
                if isinstance(method, FunctionType) and not _OWN.match(method.__module__ or ""):
                    self._code_of(MethodType(method, owner), False, depth + 1)

    def _entries_of(self, root: object, names: set[str], keys: set[str], depth: int) -> None:
        """Entries of plain types of an object or a dict."""
        space: object
        if isinstance(root, dict):
            space, wanted = root, keys
        elif isinstance(root, type | Module | Tensor | ModuleType | FunctionType):
            return
        else:
            space, wanted = getattr(root, "__dict__", None), names
        if type(space) is not dict:
            return
        for name in wanted & space.keys():
            if type(space[name]) in PLAIN:
                self.inner[id(space), name] = space, name
            elif depth:
                self._entries_of(space[name], names, keys, depth - 1)

    def hold(self) -> bool:
        """Return whether all is as it was."""
        return _equal(self.read(), self.found)

    def read(self) -> list[object]:
        """The values now."""
        found = [space.get(name) for space, name in self.spaces.values()]
        for cell in self.cells.values():
            try:
                found.append(cell.cell_contents)
            except ValueError:  # not set yet
                found.append(None)
        try:
            for space, get in self.tables:
                found += get(space)
        except KeyError:  # an entry is gone
            found.append(_nothing)
        return found


def _nothing() -> None:
    pass


def _groups(pairs: Iterable[Entry]) -> list[list[Entry]]:
    found: dict[int, list[Entry]] = {}
    for space, name in pairs:
        found.setdefault(id(space), []).append((space, name))
    return list(found.values())


def _by_space(pairs: list[Entry]) -> tuple[dict[str, object], list[str]]:
    return pairs[0][0], [name for _, name in pairs]


def _named(code: CodeType) -> tuple[set[str], set[str]]:
    """Names and strings in a code object and those within it."""
    names, keys = set(code.co_names), {c for c in code.co_consts if isinstance(c, str)}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            more = _named(inner)
            names |= more[0]
            keys |= more[1]
    return names, keys


def _equal(now: list[object], then: list[object]) -> bool:
    if len(now) != len(then):
        return False
    if all(map(is_, now, then)):
        return True
    return all(a is b or (type(a) is type(b) and type(a) in PLAIN and a == b) for a, b in zip(now, then))
