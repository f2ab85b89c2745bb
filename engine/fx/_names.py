"""The engine's functions under torch's names, and how torch records calls of those that it has written in Python.

Note [Names in graphs]
A graph's text names functions as torch does: `torch.flatten`, `torch.nn.functional.relu`, `torch._C._nn.linear`.  The
last form is that of functions which torch has compiled; they are recorded with the arguments as they were given.  Those
that torch has written in Python (`torch.nn.functional`, `torch.functional`) are recorded with every argument: the
parameters without a default by position, the others by keyword, in order.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable
from functools import cache
from typing import Any

from engine.torch_names import torch_name
from engine.torch_names.facade import facade

__all__ = ["called_as", "function_name", "is_from_torch", "qualified_name", "resolve"]

INITIALIZERS = ("constant_", "kaiming_uniform_", "normal_", "uniform_")  # recorded with all arguments by keyword
_WITH_INDICES = frozenset(
    [f"{kind}_max_pool{n}d" for kind in ("adaptive", "fractional") for n in (1, 2, 3)]
    + [f"max_pool{n}d" for n in (1, 2, 3)]
)
_METHODS = ("torch.nn.functional.sigmoid", "torch.nn.functional.tanh")  # which are those of the tensor
_RENAMED = {"torch._C._nn.logsigmoid": "torch._C._nn.log_sigmoid"}


@cache
def _names() -> dict[int, str]:
    """The dotted name of each function by its id (they live as long as the process)."""
    from engine import autograd, fft, linalg, special
    from engine.dispatch import PUBLIC, import_lazy
    from engine.nn import functional, init
    from engine.ops import functions as torch

    import_lazy()
    found: dict[int, str] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            found.setdefault(id(value), _RENAMED.get(name, name))

    # written in Python by torch, and functions of torch.nn.functional that torch has compiled
    python = {
        torch.atleast_1d,
        torch.atleast_2d,
        torch.atleast_3d,
        torch.block_diag,
        torch.broadcast_tensors,
        torch.cartesian_prod,
        torch.cdist,
        torch.chain_matmul,
        torch.einsum,
        torch.lu,
        torch.meshgrid,
        torch.norm,
        torch.split,
        torch.stft,
        torch.tensordot,
        torch.unique,
        torch.unique_consecutive,
        torch.unravel_index,
    }
    compiled = {
        functional.avg_pool2d,
        functional.avg_pool3d,
        functional.elu_,
        functional.gelu,
        functional.hardtanh_,
        functional.leaky_relu_,
        functional.linear,
        functional.logsigmoid,
        functional.one_hot,
        functional.scaled_dot_product_attention,
        functional.softplus,
        functional.softshrink,
    }
    for name, value in sorted(PUBLIC.items(), key=lambda item: (getattr(item[1], "__name__", "") != item[0], item[0])):
        add(f"torch.functional.{name}" if value in python else f"torch.{name}", value)
    for name, value in sorted(vars(functional).items()):
        if name[0] != "_" and isinstance(value, types.FunctionType):
            add(f"torch.{'_C._nn' if value in compiled else 'nn.functional'}.{name}", value)
    for kind, module in (("linalg", linalg), ("fft", fft), ("special", special)):
        for name in sorted(module.__all__):
            add(f"torch._C._{kind}.{kind}_{name}", getattr(module, name))
    for name, value in sorted(vars(facade()).items()):
        if name[0] != "_":
            add(f"torch.{name}", value)
    add("torch._assert", facade()._assert)
    add("torch.autograd.grad", autograd.grad)
    for name in INITIALIZERS:
        add(f"torch.nn.init.{name}", getattr(init, name))
    return found


def _engine_module(name: str) -> str:
    """Return torch's name of one of the engine's modules, any other name as it is."""
    return torch_name(name) if name == "engine" or name.startswith("engine.") else name


def is_from_torch(obj: Any) -> bool:
    """Return whether an object is one of torch's, found in generated code by its dotted name."""
    module = getattr(obj, "__module__", None)
    if module is None or not (module == "engine" or module.startswith("engine.")):
        return False
    return resolve(qualified_name(obj)) is obj


def resolve(name: str) -> Any:
    """Return the object under a dotted name beginning with `torch`; None if there is none."""
    value: Any = facade()
    for part in name.split(".")[1:]:
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError):
            return None
    return value


def qualified_name(func: Any) -> str:
    """The dotted name under which the text of a graph has a function or class; torch's for the engine's."""
    name: str | None = getattr(func, "__name__", None)
    if name is None:
        name = type(func).__name__
        raise RuntimeError(f"Could not resolve module for function {func} of type {name}")
    if getattr(builtins, name, None) is func:
        return name
    if isinstance(func, types.FunctionType) and (known := _names().get(id(func))):
        return known
    module = getattr(func, "__module__", None) or "builtins"
    if isinstance(func, type) and module in _TOP_LEVEL:
        return f"torch.{name}"
    if isinstance(func, types.MethodDescriptorType):
        return f"{func.__objclass__.__name__}.{name}"
    if name == "<lambda>":  # lambdas are known by the variable that holds them, else not at all
        holder = inspect.getmodule(func)
        name = next((n for n, v in vars(holder).items() if v is func), name) if holder else name
    return f"{_engine_module(module)}.{name}"


_TOP_LEVEL = ("engine.tensor", "engine.core.dtypes", "engine.core.device", "engine.core.layouts")


def function_name(func: Any) -> str:
    """The name of a function alone: what a Node that calls it is named after."""
    if isinstance(func, types.FunctionType) and (known := _names().get(id(func))):
        return known.rpartition(".")[2]
    name = getattr(func, "__name__", None)
    if name is None:
        raise AttributeError(f"{type(func).__name__!r} object has no attribute '__name__'")
    return str(name)


def called_as(
    func: Callable[..., Any], own: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """(function, args, kwargs) of a call as torch records it: Note [Names in graphs].

    own: the function with the code that has its parameters.  A name, not a function, means a method of `args[0]`.
    """
    name = _names().get(id(func), "")
    short = name.rpartition(".")[2]
    if name.startswith("torch.nn.init."):
        bound = inspect.signature(getattr(func, "__wrapped__", own)).bind(*args, **kwargs)
        bound.apply_defaults()
        return func, (), dict(bound.arguments)
    if not name.startswith(("torch.functional.", "torch.nn.functional.")):
        return func, args, kwargs
    if short == "einsum" and len(args) == 2 and isinstance(args[1], list | tuple):
        return func, (args[0], *args[1]), {}
    signature = inspect.signature(getattr(func, "__wrapped__", own))
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    if name in _METHODS:
        return short, tuple(bound.args), {}
    if short in ("upsample", "upsample_bilinear", "upsample_nearest"):
        return _upsampled(short, dict(bound.arguments))
    positional: list[Any] = []
    keyword: dict[str, Any] = {}
    for p in signature.parameters.values():
        value = bound.arguments[p.name]
        if p.kind is p.VAR_POSITIONAL:
            positional += value
        elif p.kind is p.VAR_KEYWORD:
            keyword.update(value)
        elif p.default is p.empty:
            positional.append(value)
        else:
            keyword[p.name] = value
    if short in _WITH_INDICES and keyword.get("return_indices"):  # torch's name for that
        from engine.nn import functional

        func = getattr(functional, f"{short}_with_indices", func)
    return func, tuple(positional), keyword


def _upsampled(name: str, given: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The older names of `interpolate`."""
    from engine.nn import functional

    mode, align_corners = {
        "upsample_bilinear": ("bilinear", True),
        "upsample_nearest": ("nearest", None),
    }.get(name) or (given["mode"], given["align_corners"])
    more = {"align_corners": align_corners, "recompute_scale_factor": None, "antialias": False}
    sizes = {"size": given["size"], "scale_factor": given["scale_factor"], "mode": mode}
    interpolate: Any = functional.interpolate
    return interpolate, (given["input"],), {**sizes, **more}
