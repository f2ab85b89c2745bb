"""Flattening arguments by the form of others."""

from __future__ import annotations

from typing import Any

from engine.utils import _pytree as pytree

__all__ = ["tree_flatten_spec"]


def tree_flatten_spec(tree: Any, spec: Any) -> list[Any]:
    """The leaves of `tree` under the nesting of `spec`."""
    leaves, found = pytree.tree_flatten(tree)
    if found == spec:
        return leaves
    return list(_leaves(tree, spec))


def _leaves(tree: Any, spec: Any) -> Any:
    if spec.is_leaf():
        return [tree]
    children = list(tree.values()) if isinstance(tree, dict) else list(tree)
    inner = spec.children_specs
    if len(children) != len(inner):
        raise ValueError(f"arguments of another form: {len(children)} values where {len(inner)} were traced")
    return [leaf for child, one in zip(children, inner) for leaf in _leaves(child, one)]
