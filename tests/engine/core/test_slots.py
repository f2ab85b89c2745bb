"""Slots: what is declared, what the page says of it, and what an empty one does."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from engine.core.slots import Empty, Keyed, Several, Slot, Slots

ROOT = Path(__file__).parents[3]
ENGINE = ROOT / "engine"


class Group(Slots):
    add: Slot[Callable[[int, int], int]]
    count: Slot[int] = 3
    size: Slot[Callable[[int], int]] = lambda n: n + 1
    note: str = "no slot"


def test_values_are_attributes_of_the_object() -> None:
    group, other = Group(), Group()
    group.add = lambda a, b: a + b
    assert group.add(1, 2) == 3 and group.count == 3 and group.size(1) == 2
    assert vars(group).keys() == vars(other).keys() == {"add", "count", "size"}
    assert not {"add", "count", "size"} & vars(Group).keys() and "__getattr__" not in vars(Slots)
    assert Group.note == "no slot" and isinstance(other.add, Empty)


def test_an_empty_slot_says_which_it_is() -> None:
    add: Any = Group().add
    expected = rf"the slot {re.escape(__name__)}\.Group\.add is empty: the module that fills it has not been imported"
    for use in (lambda: add(1, 2), lambda: add.apply):
        with pytest.raises(RuntimeError, match=expected):
            use()
    assert repr(copy.copy(add)) == f"<empty slot {__name__}.Group.add>"


def test_several_and_keyed_are_a_list_and_a_dict() -> None:
    several: Several[int] = Several()
    several.append(2)
    keyed: Keyed[str, int] = Keyed({"a": 1})
    assert several == [2] and keyed == {"a": 1}


# --- the page


@cache
def rows() -> list[tuple[str, list[str], list[str], str]]:
    """(declared in, slots, filled by, when) of each row of the table."""
    text = (ROOT / "docs" / "explanation" / "architecture.md").read_text("utf-8").partition("## Slots")[2]
    lines = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    found = []
    for line in lines:
        where, slots, fillers, when = (cell.strip() for cell in line.strip("|").split("|"))
        found.append((where.strip("`"), re.findall(r"`(\w+)`", slots), re.findall(r"`([\w/.]+)`", fillers), when))
    return found


@cache
def files() -> dict[str, Path]:
    return {p.relative_to(ENGINE).as_posix(): p for p in sorted(ENGINE.rglob("*.py"))}


def _kind(annotation: ast.expr | None) -> str:
    return (
        annotation.value.id if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name) else ""
    )


@cache
def declared() -> list[tuple[str, str]]:
    """(file, name) of each annotation that makes a slot."""
    found = []
    for file, path in files().items():
        text = path.read_bytes()
        if not re.search(rb"\b(Slot|Several|Keyed)\[", text):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.AnnAssign) and _kind(node.annotation) in ("Slot", "Several", "Keyed"):
                target = node.target
                found.append((file, target.id if isinstance(target, ast.Name) else target.attr))  # type: ignore[union-attr]
    return found


def test_the_page_lists_every_slot_once() -> None:
    listed = [(where, name) for where, slots, _, _ in rows() for name in slots]
    assert sorted(listed) == sorted(declared())


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row[0]}:{row[1][0]}")
def test_who_the_page_says_fills_a_slot_does(row: tuple[str, list[str], list[str], str]) -> None:
    _, slots, fillers, when = row
    assert fillers and when
    for filler in fillers:
        path = ROOT / filler if filler.startswith("hubcli/") else ENGINE / filler
        text = path.read_text("utf-8")
        for name in slots:
            assert re.search(rf"\b{name}(\.append\(| = |\[[\w\".]+\] = | \+= |, registered\.)", text), (filler, name)


# What is written to from another module and is no slot: state of a thread, tables of ops, methods given to classes.
NOT_SLOTS = re.compile(
    r"""engine\.core\.grad_mode:mode\.enabled|engine\.tensor:Tensor\.\w+|engine\.sparse\.coordinates:SparseTensor\.\w+
    |engine\.core\.device:device\.\w+|engine\.dispatch\.(autocast|overriding):state\.\w+|engine\.library\.operators\.state\.\w+
    |engine\.autograd\.function:forward_mode\.\w+|engine\.func\._lanes:_state\.\w+
    |engine\.backends\.onednn\.(library:state|primitives:_context)\.\w+|engine\.backends\.cuda\.runtime\.state\.\w+
    |engine\.dispatch:(PUBLIC|Op\.choose)|engine\.dispatch\.overriding:(kinds|listening|unwrapped)
    |engine\.autograd\.graph:AccumulateGrad\.apply|engine\.ops\.generated\.launch\.trials\.paid|engine\.jit\.scripting\.markers\._tracing
    |engine\.dispatch\.table:(OPS|PUBLIC|COMPOSITES|FUNCTIONS)|engine\.jit\.archive\.python_operators:(ATEN|PRIM)""",
    re.X,
)


def _written(module: str, tree: ast.Module) -> Iterator[str]:
    """The names of other modules that a module assigns, or appends to."""
    names: dict[str, str] = {}
    nodes = list(ast.walk(tree))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "engine":
            for alias in node.names:
                full = f"{node.module}.{alias.name}".replace(".", "/").removeprefix("engine/")
                inner = f"{full}.py" in files() or f"{full}/__init__.py" in files()
                names[alias.asname or alias.name] = f"{node.module}{'.' if inner else ':'}{alias.name}"

    def whole(node: ast.expr) -> str:
        if isinstance(node, ast.Attribute):
            inner = whole(node.value)
            return f"{inner}.{node.attr}" if inner else ""
        return names.get(node.id, "") if isinstance(node, ast.Name) else ""

    for node in nodes:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [t for part in node.targets for t in (part.elts if isinstance(part, ast.Tuple) else [part])]
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            targets = [node.func] if node.func.attr in ("append", "insert", "extend", "setdefault", "update") else []
        for target in targets:
            if isinstance(target, ast.Attribute | ast.Subscript):
                name = whole(target if isinstance(node, ast.Assign | ast.AugAssign) else target.value)
                if isinstance(target, ast.Subscript):
                    name = whole(target.value)
                if name:
                    yield name


_IMPORTED = re.compile(r"^\s*from engine[\w.]* import (\([^)]*\)|[^\n]*)", re.M)


def _may_write(text: str) -> bool:
    """Return whether the text assigns to, or appends to, an attribute or an item of a name that it imports: reading the
    syntax of every file takes ten times as long."""
    names = "|".join({one for line in _IMPORTED.findall(text) for one in re.findall(r"\w+", line)})
    part, verbs = r"(?:\.\w+|\[[^\]\n]*\])", "append|insert|extend|setdefault|update"
    assigned = rf"\b(?:{names})\b{part}+(?:,[^=\n]*)?\s*[-+*/|&^%@<>]*=[^=]"
    return bool(names) and bool(re.search(rf"{assigned}|\b(?:{names})\b{part}*\.(?:{verbs})\(", text))


def test_a_module_writes_to_another_ones_names_through_slots_alone() -> None:
    slots = {name for _, name in declared()}
    groups = {"registered", "providers", "handling"}
    wrong = set()
    for file, path in files().items():
        text = path.read_text("utf-8")
        for name in _written(file, ast.parse(text)) if _may_write(text) else ():
            parts = re.split(r"[.:]", name)
            if parts[-1] in slots or (parts[-1] in groups) or NOT_SLOTS.fullmatch(name):
                continue
            wrong.add(f"{file} writes to {name}")
    assert not wrong, "\n".join(sorted(wrong))
