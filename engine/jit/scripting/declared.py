"""Subclasses of `torch.jit.ScriptModule`: `script_method`, `__constants__` and `define`, the way of torch 1.0 and 1.1.

When the `__init__` of such a class is done its object becomes a `RecursiveScriptModule` that still is an instance of
the class.  https://docs.pytorch.org/docs/1.1.0/jit.html
"""

from __future__ import annotations
import __future__

import ast
import inspect
import itertools
import linecache
import textwrap
from typing import Any

from engine.jit.archive.objects import RecursiveScriptModule, ScriptMethod, ScriptModule
from engine.jit.scripting.frontend import CompileError
from engine.jit.scripting.infos import modifier
from engine.jit.scripting.markers import Attribute
from engine.jit.scripting.programs import instance, program_of
from engine.jit.scripting.unit import Unit
from engine.torch_names.facade import facade

__all__ = ["define", "finish"]

_count = itertools.count()
_INITIALISED = "_initialised"  # the attribute of a module whose `__init__` is done and that declares nothing yet


def define(module: ScriptModule, text: str) -> None:
    """Add the methods of a source text to a module; compile it where its `__init__` is done and declared nothing.

    RuntimeError for a text that does not consist of functions, and for a module that is compiled already.
    """
    if isinstance(module, RecursiveScriptModule):
        raise RuntimeError("define() is called inside of __init__: the module is compiled already")
    text = textwrap.dedent(text).strip("\n") + "\n"
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        raise RuntimeError(f"expected the source of methods: {error}") from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if len(functions) != len(tree.body) or not functions or any(f.decorator_list for f in functions):
        raise RuntimeError("the source that define() is given consists of methods without decorators")
    for function in functions:
        defaults = [d for d in (*function.args.defaults, *function.args.kw_defaults) if d is not None]
        if any(not _constant(d) for d in defaults):
            raise RuntimeError(f"the defaults of {function.name} in define() are numbers, texts, True, False or None")
    file = f"<define {next(_count)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, Any] = {"torch": facade(), "__name__": type(module).__module__}
    exec("from typing import *", names)
    names["Tensor"] = names["torch"].Tensor
    exec(compile(text, file, "exec", __future__.annotations.compiler_flag, True), names)  # annotations stay texts
    body = {f.name: names[f.name] for f in functions}
    for function in body.values():
        function._torchscript_modifier = "export"
    cls = type(module)
    module.__class__ = type(cls.__name__, (cls,), {**body, **_named_as(cls)})
    if module.__dict__.pop(_INITIALISED, False):
        finish(module)


def _constant(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


def finish(module: ScriptModule) -> None:
    """Compile what a module's class declares; it stays a module of Python where it declares nothing."""
    cls = type(module)
    declared = [n for n in dir(cls) if modifier(inspect.getattr_static(cls, n, None)) == "export"]
    if not declared:
        module.__dict__[_INITIALISED] = True
        return
    typed = {name: value for name, value in vars(module).items() if isinstance(value, Attribute)}
    module.__dict__.update({name: value.value for name, value in typed.items()})
    module.__dict__["_attribute_types"] = {name: value.type for name, value in typed.items()}
    unit = Unit()
    try:
        unit.module(module)
    except CompileError as error:
        raise RuntimeError(str(error)) from error
    made: Any = instance(unit, program_of(unit), module, {})
    record = type(made).Λrecord
    body: dict[str, Any] = {name: _method(name) for name in record.methods if name != "forward"}
    if "forward" not in record.methods:
        body["forward"] = cls.forward
    body.update(_named_as(cls))
    state = dict(made.__dict__)
    module.__class__ = type(cls.__name__, (type(made), cls), body)
    module.__dict__.clear()
    module.__dict__.update(state)


def _named_as(cls: type) -> dict[str, Any]:
    return {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}


def _method(name: str) -> property:
    def bound(self: Any) -> ScriptMethod:
        return ScriptMethod(self, type(self).Λrecord.methods[name], type(self).Λprogram)

    return property(bound)
