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

__all__ = ["called_as", "function_name", "is_from_torch", "qualified_name", "resolve"]

# names in torch.nn.functional that torch has compiled
_COMPILED_NN = frozenset(
    ["avg_pool2d", "avg_pool3d", "elu_", "gelu", "hardtanh_", "leaky_relu_", "linear", "logsigmoid", "one_hot",
     "scaled_dot_product_attention", "softplus", "softshrink"]
)  # fmt: skip
# names in torch that torch has written in Python
_PYTHON = frozenset(
    ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "broadcast_tensors", "cartesian_prod", "cdist",
     "chain_matmul", "einsum", "lu", "meshgrid", "norm", "split", "stft", "tensordot", "unique", "unique_consecutive",
     "unravel_index"]
)  # fmt: skip
_WITH_INDICES = frozenset(
    [f"{kind}_max_pool{n}d" for kind in ("adaptive", "fractional") for n in (1, 2, 3)]
    + [f"max_pool{n}d" for n in (1, 2, 3)]
)  # fmt: skip
_RENAMED = {"torch._C._nn.logsigmoid": "torch._C._nn.log_sigmoid"}


@cache
def _names() -> dict[int, str]:
    """The dotted name of each function by its id (they live as long as the process)."""
    import engine
    from engine import fft, linalg, special
    from engine.dispatch import PUBLIC, import_lazy
    from engine.nn import functional

    import_lazy()
    found: dict[int, str] = {}

    def add(name: str, value: Any) -> None:
        if isinstance(value, types.FunctionType):
            found.setdefault(id(value), _RENAMED.get(name, name))

    for name, value in sorted(PUBLIC.items(), key=lambda item: (getattr(item[1], "__name__", "") != item[0], item[0])):
        add(f"torch.functional.{name}" if name in _PYTHON else f"torch.{name}", value)
    for name in sorted(vars(functional)):
        if name[0] != "_":
            add(f"torch.{'_C._nn' if name in _COMPILED_NN else 'nn.functional'}.{name}", getattr(functional, name))
    for kind, module in (("linalg", linalg), ("fft", fft), ("special", special)):
        for name, value in sorted(vars(module).items()):
            if name[0] != "_":
                add(f"torch._C._{kind}.{kind}_{name}", value)
    for name, value in sorted(vars(engine).items()):
        if name[0] != "_":
            add(f"torch.{name}", value)
    return found


def _engine_module(name: str) -> str:
    """The name of one of the engine's modules with torch in front."""
    name = name.replace("engine.torch_names.", "torch.", 1)
    return "torch" + name[len("engine") :] if name == "engine" or name.startswith("engine.") else name


def is_from_torch(obj: Any) -> bool:
    """Whether an object is one of torch's, found in generated code by its dotted name."""
    module = getattr(obj, "__module__", None)
    if module is None or not (module == "engine" or module.startswith("engine.")):
        return False
    return resolve(qualified_name(obj)) is obj


def resolve(name: str) -> Any:
    """What a dotted name beginning with `torch` stands for; None if nothing."""
    import importlib

    value: Any = importlib.import_module("engine")
    for part in name.split(".")[1:]:
        try:
            value = getattr(value, part)
        except (AttributeError, ImportError):
            return None
    return value


def qualified_name(func: Any) -> str:
    """The dotted name under which the text of a graph has a function or class; torch's for the engine's."""
    name = getattr(func, "__name__", None)
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


_TOP_LEVEL = ("engine.tensor", "engine.dtypes", "engine.device", "engine.layouts")


def function_name(func: Any) -> str:
    """The name of a function alone: what a Node that calls it is named after."""
    if isinstance(func, types.FunctionType) and (known := _names().get(id(func))):
        return known.rpartition(".")[2]
    name = getattr(func, "__name__", None)
    if name is None:
        raise AttributeError(f"{type(func).__name__!r} object has no attribute '__name__'")
    return str(name)


@cache
def _signature(func: Callable[..., Any]) -> inspect.Signature | None:
    """The parameters of a function that torch has written in Python; None for others."""
    name = _names().get(id(func), "")
    if name.startswith(("torch.functional.", "torch.nn.functional.")):
        return inspect.signature(func)
    return None


def called_as(func: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> tuple[Any, tuple, dict[str, Any]]:
    """(name or function, args, kwargs) of a call as torch records it: Note [Names in graphs].

    A name, not a function, means a method of the first argument.
    """
    signature = _signature(func)
    if signature is None:
        return func, args, kwargs
    bound = signature.bind(*args, **kwargs)
    bound.apply_defaults()
    name = function_name(func)
    if name in ("sigmoid", "tanh") and func.__module__.endswith("functional"):
        return name, tuple(bound.args), {}
    if name in ("upsample", "upsample_bilinear", "upsample_nearest"):
        from engine.nn.functional import interpolate

        given = dict(bound.arguments)
        if name != "upsample":
            given["mode"] = name[len("upsample_") :]
            given["align_corners"] = True if name == "upsample_bilinear" else None
        return called_as(interpolate, (given.pop("input"),), given)
    if name in ("einsum",) and len(args) == 2 and isinstance(args[1], list | tuple):
        return func, (args[0], *args[1]), {}
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
    if name in _WITH_INDICES and keyword.get("return_indices"):  # torch's name for that
        from engine.nn import functional

        func = getattr(functional, f"{name}_with_indices", func)
    return func, tuple(positional), keyword
