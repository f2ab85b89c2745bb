"""Modules that are programs already, inside of one that is compiled: their classes and functions join it.

Also what the names of an archive are renamed by, where two programs have the same.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from engine.jit.archive.kinds import Kind
from engine.jit.archive.schemas import MISSING, Value
from engine.jit.scripting.infos import ClassInfo, FunctionInfo
from engine.nn.modules.module import Module

if TYPE_CHECKING:
    from engine.jit.archive.program import ClassRecord, Program
    from engine.jit.scripting.unit import Unit

__all__ = ["join", "joined", "merge"]

_NAME = re.compile(r"__torch__(?:\.\w+)+")
_PYTHON = re.compile(r"(?<![\w.])(ops\.python\.)call(\d+)\b")  # not the attributes of that name
_CONSTANT = re.compile(r"\bCONSTANTS\.c(\d+)\b")


def merge(unit: Unit, module: Any) -> ClassInfo:
    """The class of a compiled module, in the unit; all of its program comes along, once."""
    program: Program = type(module).Λprogram
    renamed = joined(unit, program)
    info = unit.classes[renamed[type(module).Λrecord.path]]
    if info.module is None:
        info.module = module
        info.children = {n: merge(unit, m) for n, m in module._modules.items() if isinstance(m, Module)}
    for child in module._modules.values():
        if child is not None:
            unit._of_module[id(child)] = merge(unit, child)
    return info


def joined(unit: Unit, program: Program) -> dict[str, str]:
    """The names in the unit of what a program has, which joins it once."""
    renamed = unit._foreign.get(id(program))
    if renamed is None:
        renamed = unit._foreign[id(program)] = join(unit, program)
    return renamed


def join(unit: Unit, program: Program) -> dict[str, str]:
    """Put the text of a program into the unit, under names that are free."""
    renamed: dict[str, str] = {}
    classes: list[tuple[ClassRecord, ClassInfo]] = []
    for path, record in program.classes.items():
        free = unit.unused(path)
        renamed[path] = free
        info = ClassInfo(record.name, free, record.kind, None, foreign=[])
        unit.classes[free] = info
        classes.append((record, info))
    functions = []
    for path, function in program.functions.items():
        free = unit.unused(path)
        renamed[path] = free
        info_of = FunctionInfo(free.rpartition(".")[2], free)
        unit.functions[free] = info_of
        functions.append((function, info_of))
    python = {str(i): f"call{len(unit.python) + i}" for i in range(len(program.python or ()))}
    unit.python += program.python or ()  # an archive has none: its text cannot name those of the unit
    constants = {i: unit.constant(value) for i, value in enumerate(program.constants)}

    def rewritten(text: str) -> str:
        text = _NAME.sub(lambda m: _renamed(m[0], renamed), text)
        text = _CONSTANT.sub(lambda m: constants[int(m[1])], text)
        return _PYTHON.sub(lambda m: m[1] + python.get(m[2], f"call{m[2]}"), text)

    def kind(of: Kind) -> Kind:
        return Kind(renamed.get(of.name, of.name), tuple(map(kind, of.inner)))

    for record, info in classes:
        text = _text(program, record.where, record.node)
        info.foreign = [rewritten(line) for line in text]
        name = info.path.rpartition(".")[2]
        info.foreign[0] = re.sub(r"^class \w+", f"class {name}", info.foreign[0])
        info.attributes = {n: kind(k) for n, k in record.attributes.items()}
        info.constants = dict(record.constants)
        for method in record.methods.values():
            made = FunctionInfo(method.name, f"{info.path}.{method.name}", returns=kind(method.returns), lines=[])
            made.parameters = [(n, kind(k), _default(d)) for n, k, d in method.parameters]
            info.methods[method.name] = made
        if record.kind == "module":
            info.attributes = {
                n: k
                for n, k in info.attributes.items()
                if k.name not in unit.classes or unit.classes[k.name].kind != "module"
            }
    for function, made in functions:
        text = [rewritten(line) for line in _text(program, function.where, function.node)]
        made.parameters = [(n, kind(k), _default(d)) for n, k, d in function.parameters]
        made.returns = kind(function.returns)
        made.foreign = [re.sub(r"^def \w+", f"def {made.name}", text[0]), *text[1:]]
        made.lines = []
    return renamed


def _renamed(name: str, renamed: dict[str, str]) -> str:
    """A dotted name with its longest known beginning replaced."""
    head, tail = name, ""
    while head:
        if head in renamed:
            return renamed[head] + tail
        head, dot, last = head.rpartition(".")
        tail = dot + last + tail
    return name


def _text(program: Program, where: str, node: Any) -> list[str]:
    program.line(where, 1)
    return program._lines[where][node.lineno - 1 : node.end_lineno]


def _default(node: Any) -> Any:
    if node is None:
        return None
    const = node.value if isinstance(node, ast.Constant) else MISSING
    kind = Kind("NoneType") if const is None else Kind(type(const).__name__) if const is not MISSING else Kind("Any")
    text = ast.unparse(node)
    if isinstance(node, ast.List):
        return Value("[]" if not node.elts else text, Kind("List", (Kind("int"),)))
    return Value(text, kind, const)
