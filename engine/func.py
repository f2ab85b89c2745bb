"""torch.func's names: `functional_call` and `vmap` (a loop) work; the function transforms raise when their result is
called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import engine
from engine.nn.utils.stateless import _functional_call
from engine.tensor import Tensor
from engine.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = [
    "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
    "stack_module_state", "vjp", "vmap",
]  # fmt: skip


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """What `module(*args, **kwargs)` gives with other parameters and buffers, named as in its state_dict.

    parameter_and_buffer_dicts: a dict or a tuple of dicts with no name twice (ValueError).
    """
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        if not isinstance(given, tuple | list) or not all(isinstance(one, dict) for one in given):
            raise ValueError(
                f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
            )
        names = [name for one in given for name in one]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{min(twice)} appears in multiple dictionaries; behavior of functional call is ambiguous")
        given = {name: value for one in given for name, value in one.items()}
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def _transform(name: str) -> Callable:
    def transform(func: Callable, *args: Any, **kwargs: Any) -> Callable:
        @functools.wraps(func, updated=())
        def refuse(*values: Any, **more: Any) -> Any:
            raise NotImplementedError(
                f"torch.func.{name} is not supported; write the batch or the derivative with torch.autograd.grad"
            )

        return refuse

    transform.__name__ = transform.__qualname__ = name
    transform.__doc__ = f"A function that raises NotImplementedError: `{name}` is not supported."
    return transform


def _sliced(value: Any, dims: Any) -> tuple[list[Any], list[Any], Any]:
    """(leaves, the dimension of each that is mapped or None, structure) of one argument."""
    leaves, spec = tree_flatten(value)
    found = _broadcast_to_and_flatten(dims, spec)
    if found is None:
        raise ValueError(f"vmap: in_dims is not compatible with the structure of inputs: {dims} for {spec}")
    for leaf, dim in zip(leaves, found):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(f"vmap: in_dims must be ints or None, got {dim}")
        if not isinstance(leaf, Tensor):
            raise ValueError(f"vmap: Got in_dim={dim} for an input but the input is of type {type(leaf)}.")
        if not -leaf.dim() <= dim < leaf.dim():
            raise ValueError(f"vmap: Got in_dim={dim} for an input of dimensionality {leaf.dim()}")
    return leaves, found, spec


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable:
    """A function that calls `func` for each slice of its arguments and stacks what it gives.

    in_dims: the dimension of each argument, None for one that is the same in every call; out_dims: where the new
    dimension goes.  Exact and differentiable; one call of `func` a slice, so as slow as the loop it replaces.
    """

    @functools.wraps(func, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        dims = in_dims if isinstance(in_dims, tuple | list) else (in_dims,) * len(args)
        if len(dims) != len(args):
            raise ValueError(f"vmap: in_dims has {len(dims)} entries for {len(args)} arguments")
        parts = [_sliced(value, dim) for value, dim in zip(args, dims)]
        sizes = {leaf.shape[d] for leaves, found, _ in parts for leaf, d in zip(leaves, found) if d is not None}
        if len(sizes) != 1:
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)}"
                if sizes
                else "vmap: at least one input must have a dimension to map over"
            )
        (size,) = sizes
        if not size:
            raise RuntimeError(
                "vmap: a mapped dimension of size 0 is not supported: func has no slice to be called with"
            )
        results, spec = [], None
        for i in range(size):
            values = [
                tree_unflatten([x if d is None else x.select(d, i) for x, d in zip(leaves, found)], structure)
                for leaves, found, structure in parts
            ]
            leaves, spec = tree_flatten(func(*values, **kwargs))
            results.append(leaves)
        places = _broadcast_to_and_flatten(out_dims, spec)
        if places is None:
            raise ValueError(f"vmap: out_dims is not compatible with the structure of outputs: {out_dims} for {spec}")
        stacked = [engine.stack(column, dim) for column, dim in zip(zip(*results), places)]
        return tree_unflatten(stacked, spec)

    return mapped


grad, grad_and_value = _transform("grad"), _transform("grad_and_value")
jacrev, jacfwd, hessian = _transform("jacrev"), _transform("jacfwd"), _transform("hessian")
functionalize = _transform("functionalize")


def _direct(name: str) -> Callable:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.func.{name} is not supported; use torch.autograd.functional.{name}")

    refuse.__name__ = refuse.__qualname__ = name
    refuse.__doc__ = "NotImplementedError."
    return refuse


jvp, vjp, linearize, stack_module_state = map(_direct, ["jvp", "vjp", "linearize", "stack_module_state"])
