"""`vmap`: a function of one slice, for all slices.  Note [One slice seen, all computed] in `_lanes.py`."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from engine import random
from engine.func import _functions, _table  # noqa: F401  they fill the slots of `_lanes`
from engine.func._lanes import Lane, Refused, _state, begin, end, lane, levels
from engine.func._lanes import randomness as randomness_now
from engine.ops import functions as torch
from engine.tensor import Tensor
from engine.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = ["vmap"]

_DRAWS = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' "
    "randomness flags on vmap or perform the randomness operation out of vmap"
)


def _name(func: Any) -> str:
    name = getattr(func, "__name__", None)
    if name is None and isinstance(func, functools.partial):
        return f"functools.partial({_name(func.func)}, ...)"
    return repr(func) if name is None else str(name)


def _sliced(func: Callable, args: tuple[Any, ...], dims: Any) -> list[tuple[list[Any], Any, Any]]:
    """(leaves, the dimension of each that is mapped or None, structure) of each argument."""
    said = f"vmap({_name(func)}, in_dims={dims}, ...)(<inputs>): "
    if not isinstance(dims, int | tuple):
        raise ValueError(
            f"{said}expected `in_dims` to be int or a (potentially nested) tuple matching the structure of inputs, "
            f"got: {type(dims)}."
        )
    if not args:
        raise ValueError(
            f"vmap({_name(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            "over a function with no inputs. The latter is unsupported."
        )
    spec = tree_flatten(args)[1]
    if _broadcast_to_and_flatten(dims, spec) is None:
        raise ValueError(
            f"{said}in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{tree_flatten(dims)[1]} but inputs has structure {spec}."
        )
    parts = []
    for value, dim in zip(args, (dims,) * len(args) if isinstance(dims, int) else dims):
        leaves, structure = tree_flatten(value)
        found = _broadcast_to_and_flatten(dim, structure)
        for leaf, at in zip(leaves, found):  # type: ignore[arg-type]
            _check_dim(said, leaf, at)
        parts.append((leaves, found, structure))
    return parts


def _check_dim(said: str, leaf: Any, dim: Any) -> None:
    if dim is None:
        return
    if not isinstance(dim, int):
        raise ValueError(f"{said}Got in_dim={dim} for an input but in_dim must be either an integer dimension or None.")
    if not isinstance(leaf, Tensor):
        raise ValueError(
            f"{said}Got in_dim={dim} for an input but the input is of type {type(leaf)}. We cannot vmap over "
            "non-Tensor arguments, please use None as the respective in_dim"
        )
    if not -leaf.dim() <= dim < leaf.dim():
        raise ValueError(
            f"{said}Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {leaf.dim()} so "
            f"expected in_dim to satisfy -{leaf.dim()} <= in_dim < {leaf.dim()}."
        )


def _places(func: Callable, out_dims: Any, spec: Any) -> list[Any]:
    """Return the position of the new dimension in each result; None for one that is the same in every slice."""
    places = _broadcast_to_and_flatten(out_dims, spec)
    if places is None:
        raise ValueError(
            f"vmap({_name(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure "
            f"of `outputs`. out_dims has structure {tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )
    return list(places)


def vmap(
    func: Callable, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: int | None = None
) -> Callable:
    """Return a function that computes `func` for each slice of its arguments, stacked; `func` is called once.

    What has no rule is called once per slice, with torch's warning.
    https://docs.pytorch.org/docs/2.13/generated/torch.func.vmap.html

    Args:
        func: A function of tensors in nested containers.
        in_dims: The dimension of each argument, None for one that is the same in every slice.
        out_dims: Where the new dimension goes in the results.
        randomness: "error" refuses random numbers, "same" draws once for all slices, "different" once per slice.
        chunk_size: How many slices are computed at once; None for all.

    Returns:
        The function; its results have the new dimension of size B, (B, *) for out_dims=0.

    Raises:
        ValueError: arguments do not fit in_dims, when the function is called; chunk_size is not positive.
        RuntimeError: randomness has another value.
    """
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("vmap: chunk_size should be None or greater than 0.")

    @functools.wraps(func, updated=())
    def mapped(*args: Any, **kwargs: Any) -> Any:
        if any(d is not None and not isinstance(d, int) for d in tree_flatten(out_dims)[0]):
            raise ValueError(
                f"vmap({_name(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python "
                "collection of ints representing where in the outputs the vmapped dimension should appear."
            )
        parts = _sliced(func, args, in_dims)
        sizes = {leaf.shape[d] for leaves, found, _ in parts for leaf, d in zip(leaves, found) if d is not None}
        if len(sizes) != 1:
            raise ValueError(
                f"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {sorted(sizes)} "
                "for the mapped dimension"
                if sizes
                else "vmap: at least one input must have a dimension to map over"
            )
        (size,) = sizes
        if chunk_size is not None and chunk_size < size:
            return _chunks(parts, size, chunk_size, kwargs)
        return run(parts, size, kwargs)

    def run(parts: list[Any], size: int, kwargs: dict[str, Any]) -> Any:
        columns, spec = _computed(func, parts, size, kwargs, randomness)
        found = []
        for (same, x), d in zip(columns, _places(func, out_dims, spec)):
            if d is None:
                if not same:
                    raise ValueError(
                        f"vmap({_name(func)}, ...): `{_name(func)}` can not return a BatchedTensor when out_dim is None"
                    )
                found.append(x)
                continue
            if not isinstance(x, Tensor):
                raise ValueError(
                    f"vmap({_name(func)}, ...): `{_name(func)}` must only return Tensors, got type {type(x)}. Did you "
                    "mean to set out_dims= to None for output?"
                )
            x = x.expand(size, *x.shape) if same else x
            found.append(x.movedim(0, d) if d else x)
        return tree_unflatten(found, spec)

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
        places = _places(func, out_dims, spec)
        return tree_unflatten(
            [column[0] if d is None else torch.cat(list(column), d) for column, d in zip(zip(*pieces), places)], spec
        )

    return mapped


def _computed(func: Callable, parts: list[Any], size: int, kwargs: dict, randomness: str) -> tuple[list[Any], Any]:
    """(whether each result is the same in every slice, else its mapped dim is first, and it; their structure)."""
    if not size:
        raise RuntimeError("vmap: a mapped dimension of size 0 is not supported: func has no slice to be called with")
    generator = random.default_generator
    before = generator.get_state()
    level = 1 + (levels()[-1][0] if levels() else 0)
    outer, _state.randomness = randomness_now(), randomness
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
            _state.randomness = outer
        drawn = not torch.equal(generator.get_state(), before)
        if drawn and randomness == "error":
            raise Refused(_DRAWS)
        if not (drawn and randomness == "different"):
            return [_all_slices(x, level) for x in leaves], spec
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


def _all_slices(value: Any, level: int) -> tuple[bool, Any]:
    if value.__class__ is Lane and value._level == level:
        return False, value._value
    return True, value


def _one_by_one(func: Callable, parts: list[Any], size: int, kwargs: dict, randomness: str) -> tuple[list[Any], Any]:
    """One call of `func` a slice."""
    results, spec = [], None
    generator = random.default_generator
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
    if randomness == "error" and not torch.equal(generator.get_state(), before):
        raise Refused(_DRAWS)
    return [
        (False, torch.stack(list(column))) if all(isinstance(x, Tensor) for x in column) else (True, column[0])
        for column in zip(*results)
    ], spec
