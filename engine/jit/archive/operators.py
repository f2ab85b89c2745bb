"""The operators that a TorchScript archive may call, and what stands for each.

The list is `schemas.txt`.  A name that is not there cannot be called, so that a program can compute with tensors,
numbers, text, lists and dictionaries, print, and raise; it cannot reach a file, a process, a socket, a module or an
attribute of an object.  Most operators are functions of the engine with aten's name, which take aten's arguments in
aten's order (tests/engine/jit/archive/test_schemas.py compares them); the others are in `engine/library/aten.py`;
`python_operators` and `tensor_operators` have those of numbers, lists and text, too:
https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import engine.nn.functional as F
from engine.dispatch.out import store
from engine.jit.archive import (
    fused_operators,
    python_operators,
    tensor_operators,  # noqa: F401  it adds to the lists of python_operators
)
from engine.jit.archive.schemas import find as forms
from engine.jit.archive.schemas import lines
from engine.library import aten
from engine.library import operators as library_operators
from engine.ops import aten_operators
from engine.ops import functions as torch
from engine.torch_names.facade import facade

__all__ = ["COMPARED", "INFIX", "PREFIX", "drops", "find", "find_into", "why_not"]

# Calls of exactly this many plain arguments that are Python's own operators, for tensors and numbers alike.
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "floordiv": "//",
    "__and__": "&",
    "__or__": "|",
    "__xor__": "^",
    "matmul": "@",
}
COMPARED = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "__is__": "is",
    "__isnot__": "is not",
}
PREFIX = {"neg": "-", "__not__": "not "}

_HOMES = ("fft", "linalg", "special")
_EXTENSIONS = {
    "torchvision": frozenset(
        ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d", "box_iou_rotated")
    ),
}

# Arguments that say where and how a result is kept, not what it is: the engine has one way.
_KEPT = {"layout", "pin_memory", "implicit"}


def drops(keyword: str) -> bool:
    """Whether a keyword argument is left out of the call: strided memory and ordinary pages are all there is."""
    return keyword in _KEPT


@functools.cache
def find(namespace: str, name: str) -> Callable[..., Any] | None:
    """The function that stands for `namespace::name`, or None if the list has no such operator."""
    if namespace != "aten":
        if namespace == "prim":
            return python_operators.PRIM.get(name)
        if name in _EXTENSIONS.get(namespace, ()):
            return getattr(library_operators.OpNamespace(namespace), name)
        return None
    own = python_operators.ATEN.get(name) or fused_operators.FUSED.get(name)
    if own is not None:
        return own
    if name in fused_operators.LATER:
        return fused_operators.later(name)
    own = aten.FUNCTIONS.get(name)
    if own is not None:
        return own
    return aten_operators.ATEN.get(name) or _plain(name) if f"aten::{name}" in lines() else None


def _plain(name: str) -> Callable[..., Any] | None:
    """The engine's own function of an operator's name: `engine.add`, `Tensor.uniform_`, `engine.linalg.solve`."""
    for home in (facade(), torch.Tensor, F):
        found = getattr(home, name, None)
        if callable(found):
            return found
    home, _, attribute = name.partition("_")
    return getattr(importlib.import_module(f"engine.{home}"), attribute, None) if home in _HOMES else None


@functools.cache
def find_into(name: str) -> Callable[..., Any] | None:
    """The function that stands for the form of `aten::name` which stores its result into the argument `out`."""
    function = find("aten", name)
    if function is None or not any(p.name == "out" for form in forms(f"aten::{name}") for p in form.parameters):
        return None

    def into(*args: Any, out: Any, **named: Any) -> Any:
        return store(out, name, function, *args, **named)

    return into


def why_not(namespace: str, name: str) -> str:
    """One sentence on an operator that is not on the list."""
    if namespace in ("quantized", "_quantized", "fbgemm") or "quantize" in name:
        return f"the operator {namespace}::{name} works on quantized tensors, which TorchScript does not have here"
    return f"the operator {namespace}::{name} is not on the list of those that an archive may call"
