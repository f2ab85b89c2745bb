"""torch.fx._pytree's names: containers taken apart by the structure of another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.utils._pytree import LeafSpec, PyTree, TreeSpec

__all__ = ["SUPPORTED_NODES", "register_pytree_flatten_spec", "tree_flatten_spec"]

SUPPORTED_NODES: dict[type, Callable[[Any, TreeSpec], list]] = {}
SUPPORTED_NODES_EXACT_MATCH: dict[type, Callable[[Any, TreeSpec], bool] | None] = {}


def register_pytree_flatten_spec(
    cls: type,
    flatten_fn_spec: Callable[[Any, TreeSpec], list],
    flatten_fn_exact_match_spec: Callable[[Any, TreeSpec], bool] | None = None,
) -> None:
    """Have `tree_flatten_spec` take `cls` apart: flatten_fn_spec(x, spec) -> children."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
    SUPPORTED_NODES_EXACT_MATCH[cls] = flatten_fn_exact_match_spec


def tree_flatten_spec(pytree: PyTree, spec: TreeSpec) -> list[Any]:
    """The leaves of `pytree` in the order of `spec`.  RuntimeError for a container that is not registered."""
    if isinstance(spec, LeafSpec):
        return [pytree]
    if spec.type not in SUPPORTED_NODES:
        raise RuntimeError(
            f"{type(pytree)} does not have a flatten_fn_spec associated with it. Please register one with "
            "torch.fx._pytree.register_pytree_flatten_spec."
        )
    children = SUPPORTED_NODES[spec.type](pytree, spec)
    return [leaf for child, below in zip(children, spec.children_specs) for leaf in tree_flatten_spec(child, below)]


def _dict_flatten_spec(d: dict[Any, Any], spec: TreeSpec) -> list[Any]:
    return [d[key] for key in spec.context]


def _list_flatten_spec(sequence: Any, spec: TreeSpec) -> list[Any]:
    return [sequence[i] for i in range(spec.num_children)]


register_pytree_flatten_spec(dict, _dict_flatten_spec)
register_pytree_flatten_spec(list, _list_flatten_spec)
register_pytree_flatten_spec(tuple, _list_flatten_spec)
