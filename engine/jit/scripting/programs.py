"""`jit.script`: Python functions, classes and modules become programs like those of archives."""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import inspect
import textwrap
import types
from typing import Any

from engine.core import dtypes
from engine.jit.archive import objects
from engine.jit.archive.kinds import ANY, Kind, number_of
from engine.jit.archive.program import Program
from engine.jit.scripting.frontend import CompileError, Source
from engine.jit.scripting.infos import ClassInfo, FunctionInfo
from engine.jit.scripting.linking import join
from engine.jit.scripting.names import spelt
from engine.jit.scripting.unit import Unit
from engine.nn.modules.module import Module
from engine.serialization import UnpicklingError
from engine.tensor import Tensor
from engine.torch_names.facade import facade

__all__ = ["VERSION", "instance", "program_of", "script_class", "script_function", "script_module"]

VERSION = 10  # of the operators, as torch 2 writes it


def program_of(unit: Unit) -> Program:
    """The program of what was compiled."""
    files = unit.files()
    try:
        return Program(files, list(unit.constants), VERSION, python=unit.python)
    except UnpicklingError as e:
        raise CompileError(str(e).replace("the archive's code is refused: ", "")) from e


def script_function(function: Any) -> objects.ScriptFunction:
    """A Python function, compiled."""
    unit = Unit()
    info = unit.function(function)
    if info is None:
        raise RuntimeError(f"{function!r} is no Python function that can be compiled")
    program = program_of(unit)
    record = program.functions[info.path]
    made = objects.ScriptFunction(record, program)
    made._python = function
    for name in ("__doc__", "__module__", "__qualname__"):
        if hasattr(function, name):
            setattr(made, name, getattr(function, name))
    made.__wrapped__ = function
    return made


def script_class(cls: Any) -> Any:
    """The class itself, after it was compiled once: a program makes its objects from the class's source."""
    if not issubclass(cls, enum.Enum | tuple):
        cls._is_script_class = True
        try:
            Unit().named(cls)
        except BaseException:
            del cls._is_script_class
            raise
    return cls


def script_module(module: Module) -> objects.RecursiveScriptModule:
    """A module with its parts, compiled; parameters and buffers are shared with it."""
    if isinstance(module, objects.RecursiveScriptModule):
        return module
    unit = Unit()
    unit.module(module)
    return instance(unit, program_of(unit), module, {})


def instance(unit: Unit, program: Program, module: Module, made: dict[int, Any]) -> Any:
    """The module of the program for a module of Python."""
    found = made.get(id(module))
    if found is not None:
        return found
    info: ClassInfo = unit._of_module[id(module)]
    record = program.classes[info.path]
    new = made[id(module)] = record.made()
    if isinstance(module, objects.RecursiveScriptModule):
        new.__dict__.update(module.__dict__)
    else:
        new._parameters.update(module._parameters)
        new._buffers.update(module._buffers)
        new._non_persistent_buffers_set.update(module._non_persistent_buffers_set)
        for hooks in (
            "_forward_hooks",
            "_forward_pre_hooks",
            "_backward_hooks",
            "_backward_pre_hooks",
            "_state_dict_hooks",
            "_load_state_dict_pre_hooks",
            "_forward_hooks_with_kwargs",
            "_forward_pre_hooks_with_kwargs",
        ):
            given = module.__dict__.get(hooks)
            if given:
                new.__dict__[hooks].update(given)
        new.__dict__["training"] = module.training
        new.__dict__["_is_full_backward_hook"] = module.__dict__.get("_is_full_backward_hook")
        for name in info.attributes:
            if name in module._parameters or name in module._buffers or name in ("training", "_is_full_backward_hook"):
                continue
            new._values[name] = converted(getattr(module, name, None), unit, program, info.attributes[name])
    new.__dict__["_modules"] = {
        name: None if child is None else instance(unit, program, child, made) for name, child in module._modules.items()
    }
    for name, value in module.__dict__.items():
        if name in info.failed or (name not in info.attributes and name not in _OWN and not name.startswith("_")):
            new.__dict__.setdefault(name, value)
    if not isinstance(module, objects.RecursiveScriptModule):
        new.__dict__["_python"] = type(module)
    return new


_OWN = frozenset(vars(Module())) | {"_values"}


def converted(value: Any, unit: Unit, program: Program, kind: Kind = ANY) -> Any:
    """An attribute of Python as the program has it."""
    if isinstance(value, dtypes.dtype):
        return number_of(value)
    if isinstance(value, list):
        return [converted(v, unit, program) for v in value]
    if type(value) is tuple:
        return tuple(converted(v, unit, program) for v in value)
    if isinstance(value, dict):
        return {k: converted(v, unit, program) for k, v in value.items()}
    if isinstance(value, Tensor | int | float | str | complex | None) and not isinstance(value, enum.Enum):
        return value
    info = unit.classes.get(kind.name) or unit._of_python.get(type(value))
    if info is None:
        return value
    record = program.classes[info.path]
    if info.kind == "enum":
        return record.made[value.name]
    if info.kind == "tuple":
        return record.made(*(converted(v, unit, program) for v in value))
    new = object.__new__(record.made)
    for name in record.attributes:
        setattr(new, "λ" + name, converted(getattr(value, name), unit, program, info.attributes[name]))
    return new


def script_text(text: str, known: Any = (), rcb: Any = None) -> dict[str, objects.ScriptFunction]:
    """The functions of a source text, by name: Python's, with the names of torch and typing.

    known: names that are defined already; rcb: gives what a name stands for that the text does not define.
    """
    try:
        tree = ast.parse(textwrap.dedent(text))
    except SyntaxError as error:
        raise RuntimeError(f"{_syntax(error.msg)}: {error}") from None
    names: dict[str, Any] = {"torch": facade(), "Tensor": Tensor, "__name__": "__main__"}
    exec("from typing import *", names)
    defined = set(known)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            raise RuntimeError("the source of a CompilationUnit consists of functions")
        if node.name in defined:
            raise RuntimeError(f"method '{node.name}' already defined.")
        defined.add(node.name)
    lines = textwrap.dedent(text).split("\n")
    for loop in ast.walk(tree):
        bare = isinstance(loop, ast.For) and isinstance(loop.iter, ast.Tuple)
        if bare and not lines[loop.iter.lineno - 1][loop.iter.col_offset :].startswith("("):
            raise RuntimeError(f"List of iterables is not supported currently: line {loop.lineno} of the text")
    if rcb is not None:
        for name in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} - set(names) - defined:
            if (value := rcb(name)) is not None:
                names[name] = value
    unit = Unit()
    for node in tree.body:
        source = Source(node, node.name, "<string>", 1, lines, {**vars(builtins), **names}, Declared(node, names))
        info = FunctionInfo(node.name, unit.unused(f"__torch__.{node.name}"))
        unit.functions[info.path] = info
        names[node.name] = unit.declared[node.name] = Declared(node, names)
        unit._of_function[names[node.name]] = info
        unit._describe(info, source, None)
        unit._compile(info, None)
    program = program_of(unit)
    return {n: objects.ScriptFunction(program.functions[f"__torch__.{n}"], program) for n in unit.declared}


def _syntax(message: str) -> str:
    """What Python says of a text, in the words of torch's parser."""
    if "augmented assignment" in message:
        return "augmented assignment can only have one LHS expression"
    if message == "cannot assign to literal":
        return "Cannot pack a tuple into a non-variable"
    if "cannot assign to" in message:
        return "unexpected expression on left-hand side of assignment"
    return message


class Declared:
    """A function of a source text, where the compiler has one of Python."""

    def __init__(self, node: Any, names: dict[str, Any]) -> None:
        self.__name__, self.__module__ = node.name, "__main__"
        args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        self.__annotations__ = {a.arg: ast.unparse(a.annotation) for a in args if a.annotation is not None}
        if node.returns is not None:
            self.__annotations__["return"] = ast.unparse(node.returns)
        defaults = dict(zip(reversed([a.arg for a in args]), reversed(node.args.defaults)))
        self.defaults = {
            n: eval(compile(ast.Expression(d), "<string>", "eval"), dict(names)) for n, d in defaults.items()
        }


def module_of(function: objects.ScriptFunction) -> Any:
    """A module whose `forward` is a compiled function."""
    unit = Unit()
    renamed = join(unit, function.program)
    path = renamed[function.record.path]
    info = unit.functions[path]
    module = Module()
    holder = ClassInfo("PlaceholderModule", "__torch__.PlaceholderModule", "module", Module, module)
    unit.classes[holder.path] = unit._of_module[id(module)] = holder
    holder.attributes = {"training": Kind("bool"), "_is_full_backward_hook": Kind("Optional", (Kind("bool"),))}
    holder.lists = {"parameters": [], "buffers": []}
    given = ", ".join(spelt(n) for n, _, _ in info.parameters)
    holder.methods["forward"] = FunctionInfo(
        "forward",
        f"{holder.path}.forward",
        [("self", Kind(holder.path), None), *info.parameters],
        info.returns,
        [f"  return {path}({given})"],
    )
    return instance(unit, program_of(unit), module, {})


def script(obj: Any) -> Any:
    """What `torch.jit.script` gives for a function, a class or a module."""
    if isinstance(obj, objects.RecursiveScriptModule | objects.ScriptFunction):
        return obj
    if isinstance(obj, Module):
        return script_module(obj)
    if isinstance(obj, dict | list):
        return obj
    if inspect.isclass(obj):
        if issubclass(obj, Module):
            raise RuntimeError(
                f"Type '{obj}' cannot be compiled since it inherits from nn.Module, consider passing an "
                "instance instead"
            )
        if dataclasses.is_dataclass(obj):
            return obj  # its methods have no source; a function that makes one says so when it is compiled
        return script_class(obj)
    if isinstance(obj, types.FunctionType | types.MethodType):
        return script_function(obj)
    if callable(obj) and hasattr(obj, "__wrapped__"):
        return script_function(inspect.unwrap(obj))
    if inspect.isbuiltin(obj) or callable(obj):
        return obj
    raise RuntimeError(f"{obj!r} is neither a function nor a module: torch.jit.script cannot compile it")
