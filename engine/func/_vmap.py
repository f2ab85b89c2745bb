"""`vmap`: a function of one slice, for all slices.  Note [One slice seen, all computed] in `_lanes.py`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import engine
from engine.func._lanes import Lane, Refused, begin, end, lane, levels
from engine.tensor import Tensor
from engine.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = ["vmap"]

_DRAWS = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
    "randomness flags on vmap or perform the randomness operation out of vmap"
)


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
    """A function that gives what `func` gives for each slice of its arguments, stacked; `func` is called once.

    in_dims: the dimension of each argument, None for one that is the same in every slice; out_dims: where the new
    dimension goes.  randomness: "error" refuses random numbers, "same" draws once for all slices, "different" once a
    slice.  chunk_size: so many slices at once.  What has no rule is called once a slice, with torch's warning.
    ValueError for arguments that do not fit.  https://docs.pytorch.org/docs/2.13/generated/torch.func.vmap.html
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("vmap: chunk_size should be None or greater than 0.")

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
        if chunk_size is not None and chunk_size < size:
            return _chunks(parts, size, chunk_size, kwargs)
        return run(parts, size, kwargs)

    def run(parts: list[Any], size: int, kwargs: dict[str, Any]) -> Any:
        columns, spec = _computed(func, parts, size, kwargs, randomness)
        places = _broadcast_to_and_flatten(out_dims, spec)
        if places is None:
            raise ValueError(f"vmap: out_dims is not compatible with the structure of outputs: {out_dims} for {spec}")
        return tree_unflatten([x.movedim(0, d) if d else x for x, d in zip(columns, places)], spec)

    def _chunks(parts: list[Any], size: int, step: int, kwargs: dict[str, Any]) -> Any:
        pieces, spec = [], None
        for start in range(0, size, step):
            n = min(step, size - start)
            narrowed = [
                ([x if d is None else x.narrow(d, start, n) for x, d in zip(leaves, found)], found, structure)
                for leaves, found, structure in parts
            ]
            leaves, spec = tree_flatten(run(narrowed, n, kwargs))
            pieces.append(leaves)
        places = _broadcast_to_and_flatten(out_dims, spec)
        return tree_unflatten([engine.cat(list(column), d) for column, d in zip(zip(*pieces), places)], spec)

    return mapped


def _computed(func: Callable, parts: list[Any], size: int, kwargs: dict, randomness: str) -> tuple[list[Any], Any]:
    """(results with the mapped dim first, their structure)."""
    if not size:
        raise RuntimeError("vmap: a mapped dimension of size 0 is not supported: func has no slice to be called with")
    generator = engine.random.default_generator
    before = generator.get_state()
    level = 1 + (levels()[-1][0] if levels() else 0)
    begin(level, size)
    try:
        try:
            values = [
                tree_unflatten(
                    [x if d is None else lane(x.movedim(d, 0) if d else x, level) for x, d in zip(leaves, found)],
                    structure,
                )
                for leaves, found, structure in parts
            ]
            leaves, spec = tree_flatten(func(*values, **kwargs))
        finally:
            end()
        drawn = not engine.equal(generator.get_state(), before)
        if drawn and randomness == "error":
            raise Refused(_DRAWS)
        if not (drawn and randomness == "different"):
            return [_all_slices(x, level, size) for x in leaves], spec
        generator.set_state(before)
    except (Refused, Warning):
        raise
    except Exception as error:  # something that reads values, or that has no rule: the loop says what it is
        generator.set_state(before)
        reason = f"{type(error).__name__}: {error}"
        found = _one_by_one(func, parts, size, kwargs, randomness)
        name = getattr(func, "__name__", "the function")
        warnings.warn(
            f"There is a performance drop because we have not yet implemented the batching rule for {name}: {reason}",
            stacklevel=4,
        )
        return found
    return _one_by_one(func, parts, size, kwargs, randomness)


def _all_slices(value: Any, level: int, size: int) -> Tensor:
    if not isinstance(value, Tensor):
        raise ValueError(f"vmap: `f` must only return Tensors, got type {type(value)} as a return.")
    if value.__class__ is Lane and value._level == level:
        return value._value
    return value.expand(size, *value.shape)


def _one_by_one(func: Callable, parts: list[Any], size: int, kwargs: dict, randomness: str) -> tuple[list[Any], Any]:
    """One call of `func` a slice."""
    results, spec = [], None
    generator = engine.random.default_generator
    before = generator.get_state()
    for i in range(size):
        if randomness == "same":
            generator.set_state(before)
        values = [
            tree_unflatten([x if d is None else x.select(d, i) for x, d in zip(leaves, found)], structure)
            for leaves, found, structure in parts
        ]
        leaves, spec = tree_flatten(func(*values, **kwargs))
        results.append(leaves)
    if randomness == "error" and not engine.equal(generator.get_state(), before):
        raise Refused(_DRAWS)
    return [engine.stack(list(column)) for column in zip(*results)], spec
