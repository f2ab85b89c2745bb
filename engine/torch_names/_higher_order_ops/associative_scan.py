"""associative_scan: the running results of an associative function along a dimension."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.ops import functions as torch
from engine.utils._pytree import tree_flatten, tree_unflatten

__all__ = ["associative_scan"]


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:
    """x1, f(x1, x2), f(f(x1, x2), x3), ... along `dim` of Tensors in any containers; from the end if `reverse`.

    combine_fn takes two such trees.  It is called some 2 log2(n) times on slices, and differentiated through.
    """
    leaves, spec = tree_flatten(xs)
    if not leaves:
        raise ValueError("Expected at least 1 xs leaf")
    if any(leaf.shape[dim] != leaves[0].shape[dim] for leaf in leaves):
        raise ValueError("All xs leaves must have the same size along dim")
    if reverse:
        leaves = [leaf.flip(dim) for leaf in leaves]

    def combine(left: list[Any], right: list[Any]) -> list[Any]:
        return tree_flatten(combine_fn(tree_unflatten(left, spec), tree_unflatten(right, spec)))[0]

    def every_other(values: list[Any], start: int, count: int) -> list[Any]:
        index = torch.arange(start, start + 2 * count, 2, device=values[0].device)
        return [v.index_select(dim, index) for v in values]

    def scan(values: list[Any]) -> list[Any]:
        n = values[0].shape[dim]
        if n < 2:
            return values
        pairs = n // 2
        odd = scan(combine(every_other(values, 0, pairs), every_other(values, 1, pairs)))
        first = [v.narrow(dim, 0, 1) for v in values]
        rest = (n - 1) // 2
        even = combine([v.narrow(dim, 0, rest) for v in odd], every_other(values, 2, rest)) if rest else []
        even = [torch.cat(pair, dim) for pair in zip(first, even)] if rest else first
        woven = [torch.stack((e.narrow(dim, 0, pairs), o), dim % e.dim() + 1) for e, o in zip(even, odd)]
        woven = [w.flatten(dim % (w.dim() - 1), dim % (w.dim() - 1) + 1) for w in woven]
        if n % 2:
            woven = [torch.cat((w, e.narrow(dim, pairs, 1)), dim) for w, e in zip(woven, even)]
        return woven

    found = scan(leaves)
    return tree_unflatten([leaf.flip(dim) for leaf in found] if reverse else found, spec)
