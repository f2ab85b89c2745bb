"""Attributes of values, read and assigned."""

from __future__ import annotations

import ast

from engine.jit.archive.kinds import BOOL, INT, NONE, STR, TENSOR, Kind
from engine.jit.archive.schemas import MISSING, Value
from engine.jit.scripting.context import Context
from engine.jit.scripting.infos import ClassInfo
from engine.jit.scripting.methods import call_method
from engine.jit.scripting.sugared import Bound, Many, Py, Sugared
from engine.jit.scripting.values import constant, expr, fitted, value_of
from engine.nn.modules.container import ModuleDict
from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = ["MODULE_METHODS", "assign_attribute", "attribute_kind", "attribute_of", "children", "has"]

_TENSOR_ATTRIBUTES = {
    "shape": ("torch.size({})", Kind("List", (INT,))),
    "dtype": ("ops.prim.dtype({})", INT),
    "device": ("ops.prim.device({})", Kind("Device")),
    "ndim": ("torch.dim({})", INT),
    "T": ("torch.numpy_T({})", TENSOR),
    "mT": ("torch.mT({})", TENSOR),
    "mH": ("torch.mH({})", TENSOR),
    "real": ("torch.real({})", TENSOR),
    "imag": ("torch.imag({})", TENSOR),
    "layout": ("ops.prim.layout({})", INT),
    "requires_grad": ("ops.prim.requires_grad({})", BOOL),
    "data": ("ops.prim.data({})", TENSOR),
    "grad": ("ops.prim.grad({})", Kind("Optional", (TENSOR,))),
    "is_cuda": ("ops.prim.is_cuda({})", BOOL),
    "is_sparse": ("ops.prim.is_sparse({})", BOOL),
    "is_quantized": ("ops.prim.is_quantized({})", BOOL),
    "is_mkldnn": ("ops.prim.is_mkldnn({})", BOOL),
    "is_nested": ("ops.prim.is_nested({})", BOOL),
    "is_leaf": ("torch.is_leaf({})", BOOL),
    "is_cpu": ("ops.prim.is_cpu({})", BOOL),
    "is_meta": ("ops.prim.is_meta({})", BOOL),
    "H": ("ops.prim.H({})", TENSOR),
    "nbytes": ("ops.prim.nbytes({})", INT),
    "itemsize": ("ops.prim.itemsize({})", INT),
    "is_mps": ("ops.prim.is_mps({})", BOOL),
    "is_xpu": ("ops.prim.is_xpu({})", BOOL),
    "output_nr": ("torch.output_nr({})", INT),
}
MODULE_METHODS = frozenset(("keys", "values", "items"))


def attribute_of(c: Context, found: Sugared, name: str, node: ast.AST | None) -> Sugared:
    if isinstance(found, Py):
        if isinstance(found.obj, Module):
            raise c.error(
                f"the module '{type(found.obj).__name__}' is no attribute of self: a function cannot "
                "use a module that is a global variable",
                node,
            )
        try:
            return Py(getattr(found.obj, name))
        except AttributeError:
            raise c.error(f"{found.obj!r} has no attribute '{name}'", node) from None
    if isinstance(found, Many):
        return Bound(value_of(c, found, node), name)
    if isinstance(found, Bound):
        raise c.error(f"a method has no attribute '{name}'", node)
    value = value_of(c, found, node)
    if value.kind == TENSOR and name in _TENSOR_ATTRIBUTES:
        form, kind = _TENSOR_ATTRIBUTES[name]
        return Value(form.format(value.text), kind)
    if name in value.kind.names:  # of an operator's results: `x.max(dim=1).values`
        at = value.kind.names.index(name)
        return Value(f"({value.text})[{at}]", value.kind.inner[at])
    if value.kind.name == "Device" and name in ("type", "index"):
        kind = STR if name == "type" else Kind("Optional", (INT,))
        return Value(f"ops.prim.{name}({value.text})", kind)
    if c.unit.is_class(value.kind):
        return class_attribute(c, value, name, node)
    if value.kind.name == "Optional" or value.kind == NONE:
        raise c.error(f"'{value.kind}' object has no attribute or method '{name}'. Did you forget to check that "
                         "it is not None?", node)  # fmt: skip
    return Bound(value, name)


def class_attribute(c: Context, value: Value, name: str, node: ast.AST | None) -> Sugared:
    info = c.unit.classes[value.kind.name]
    if info.kind == "tuple" and name in info.attributes:
        index = list(info.attributes).index(name)
        return Value(f"({value.text})[{index}]", info.attributes[name])
    if info.kind == "enum":
        if name == "name":
            return Value(f"ops.prim.EnumName({value.text})", STR)
        if name == "value":
            return Value(f"ops.prim.EnumValue({value.text})", info.attributes["value"])
    if name in info.constants:
        made = constant(c, info.constants[name])
        if made is not None:
            return made
    if info.kind == "interface" and name in info.methods:
        return Bound(value, name)
    if info.kind == "module":
        return module_attribute(c, value, info, name, node)
    if name in info.attributes:
        return Value(f"{value.text}.{name}", info.attributes[name])
    if c.unit.has_method(value.kind, name):
        return Bound(value, name)
    if isinstance(getattr(info.python, name, None), property):
        return call_method(c, value, name, [], {}, node)
    raise c.error(f"Tried to access nonexistent attribute or method '{name}' of type '{info.path}'. Did you "
                     "forget to initialize an attribute in __init__()?", node)  # fmt: skip


def module_attribute(c: Context, value: Value, info: ClassInfo, name: str, node: ast.AST | None) -> Sugared:
    if name in info.children or name in info.attributes:
        kind = info.interfaces.get(name) or (
            Kind(info.children[name].path) if name in info.children else info.attributes[name]
        )
        if kind == NONE:
            return Value("None", NONE, None)
        text = f"{value.text}.{name}" if name.isidentifier() else f"getattr({value.text}, {name!r})"
        return Value(text, kind)
    if isinstance(getattr(info.python, name, None), property) and name not in ("weight", "bias"):
        return call_method(c, value, name, [], {}, node)
    given = getattr(info.module, name, MISSING)
    if name in MODULE_METHODS and isinstance(info.module, ModuleDict):
        return Bound(value, name)
    if c.unit.has_method(value.kind, name):
        return Bound(value, name)
    if given is not MISSING and (callable(given) or isinstance(given, type)):
        return Py(given)
    reason = info.failed.get(name)
    if reason is not None:
        raise c.error(f"Module '{info.name}' has no attribute '{name}' {reason}", node)
    raise c.error(f"Module '{info.name}' has no attribute '{name}'", node)


def has(c: Context, owner: Sugared, name: str) -> bool:
    """Whether an attribute is there, known when the function is compiled."""
    if isinstance(owner, Py):
        return hasattr(owner.obj, name)
    value = value_of(c, owner)
    if not c.unit.is_class(value.kind):
        return value.kind == TENSOR and hasattr(Tensor, name)
    info = c.unit.classes[value.kind.name]
    if info.kind == "module":
        return hasattr(info.module, name)
    return name in info.attributes or name in info.constants or c.unit.has_method(value.kind, name)


def children(c: Context, value: Value) -> list[Sugared]:
    """The modules inside a module, in order; the parameters of a ParameterList."""
    info = c.unit.classes[value.kind.name]
    if info.children:
        return [attribute_of(c, value, name, None) for name in info.children]
    return [attribute_of(c, value, name, None) for name in info.module._parameters]


def attribute_kind(c: Context, target: ast.Attribute) -> Kind | None:
    """The declared type of `self.name`, if there is one."""
    owner = c.env.get(target.value.id) if isinstance(target.value, ast.Name) else None
    if isinstance(owner, Value) and c.unit.is_class(owner.kind):
        return c.unit.classes[owner.kind.name].attributes.get(target.attr)
    return None


def assign_attribute(c: Context, target: ast.Attribute, value: Value, node: ast.AST | None) -> None:
    owner = expr(c, target.value)
    if not c.unit.is_class(owner.kind):
        raise c.error(f"Tried to set an attribute: {target.attr} on a non-class: {owner.kind}", node)
    info = c.unit.classes[owner.kind.name]
    kind = info.attributes.get(target.attr)
    if kind is None and info.kind == "object" and c.in_init():
        kind = info.attributes[target.attr] = value.kind
    if kind is None:
        what = "a constant" if target.attr in info.constants else "nonexistent"
        raise c.error(
            f"Tried to set {what} attribute: {target.attr}. Did you forget to initialize it in __init__()?", node
        )
    fit = fitted(c, value, kind)
    if fit is None:
        raise c.error(f"Wrong type for attribute assignment. Expected {kind} but got {value.kind}", node)
    c.put(f"{owner.text}.{target.attr} = {fit.text}")
