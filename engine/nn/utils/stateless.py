"""A module called with other tensors in place of its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = ["functional_call"]


def _owner(module: Module, path: str) -> tuple[Any, str, str]:
    """(module that holds the tensor, its dict, its name there); KeyError if there is none."""
    prefix, _, name = path.rpartition(".")
    owner: Any = module
    for atom in prefix.split(".") if prefix else ():
        owner = owner._modules.get(atom)
        if owner is None:
            raise KeyError(path)
    for kind in ("_parameters", "_buffers"):
        if name in getattr(owner, kind):
            return owner, kind, name
    raise KeyError(path)


@contextlib.contextmanager
def _reparametrize_module(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    tie_weights: bool = False,
    strict: bool = False,
) -> Iterator[None]:
    """Inside, the named tensors stand in the places of the module's own."""
    own = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    given = dict(parameters_and_buffers)
    if tie_weights:
        for name, value in list(given.items()):
            if name in own:
                for other, tensor in own.items():
                    if tensor is own[name] and other not in parameters_and_buffers:
                        given[other] = value
    if strict:
        errors = []
        unexpected = sorted(k for k in given if k not in own)
        missing = sorted(k for k in own if k not in given)
        if unexpected:
            errors.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
        if missing:
            errors.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
        if errors:
            joined = "\n\t".join(errors)
            raise RuntimeError(f"Error(s) in reparametrizing for {module._get_name()}:\n\t{joined}")
    swapped = []
    try:
        for path, value in given.items():
            try:
                owner, kind, name = _owner(module, path)
            except KeyError:
                prefix, _, name = path.rpartition(".")
                owner = module.get_submodule(prefix)
                kind = None
            if kind is None:  # a plain attribute
                swapped.append((owner.__dict__, name, owner.__dict__.get(name)))
                owner.__dict__[name] = value
            else:
                table = getattr(owner, kind)
                swapped.append((table, name, table[name]))
                table[name] = value
        yield
    finally:
        for table, name, value in reversed(swapped):
            table[name] = value


def _functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(module, parameters_and_buffers, tie_weights=tie_weights, strict=strict):
        return module(*args, **(kwargs or {}))


def functional_call(
    module: Module,
    parameters_and_buffers: dict[str, Tensor],
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Deprecated name of torch.func.functional_call: the module's result with these tensors for its own."""
    warnings.warn(
        "`torch.nn.utils.stateless.functional_call` is deprecated as of PyTorch 2.0 and will be removed in a future "
        "version of PyTorch. Please use `torch.func.functional_call` instead which is a drop-in replacement.",
        FutureWarning,
        stacklevel=2,
    )
    return _functional_call(module, parameters_and_buffers, args, kwargs, tie_weights=tie_weights, strict=strict)
