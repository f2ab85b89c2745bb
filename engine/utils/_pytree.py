"""Nested containers as lists of leaves: `tree_flatten`, `tree_unflatten`, `tree_map`.

Containers are dict, OrderedDict, defaultdict, list, tuple, named tuples, deque and what `register_pytree_node` adds;
all else is a leaf.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from engine.tensor import Size

__all__ = [
    "Context", "GetAttrKey", "KeyEntry", "KeyPath", "LeafSpec", "MappingKey", "PyTree", "SequenceKey", "TreeSpec",
    "arg_tree_leaves", "is_namedtuple", "key_get", "keystr", "register_constant", "register_dataclass",
    "register_pytree_node", "tree_all", "tree_all_only", "tree_any",
    "tree_any_only", "tree_flatten", "tree_flatten_with_path", "tree_is_leaf", "tree_iter", "tree_leaves",
    "tree_leaves_with_path", "tree_map", "tree_map_", "tree_map_only", "tree_map_only_", "tree_map_with_path",
    "tree_structure", "tree_unflatten", "treespec_dumps", "treespec_loads", "treespec_pprint",
]  # fmt: skip

PyTree = KeyEntry = Any
KeyPath = tuple[KeyEntry, ...]
Context = Any  # what a container needs beside its children to be put together again
_IsLeaf = Callable[[Any], bool] | None


class SequenceKey(NamedTuple):
    """The key of a child of a list or tuple: its index."""

    idx: int

    def __str__(self) -> str:
        return f"[{self.idx!r}]"

    def get(self, sequence: Any) -> Any:
        """The child of `sequence`."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """The key of a child of a dict."""

    key: Any

    def __str__(self) -> str:
        return f"[{self.key!r}]"

    def get(self, mapping: Any) -> Any:
        """The child of `mapping`."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """The key of a child of a named tuple: its name."""

    name: str

    def __str__(self) -> str:
        return f".{self.name}"

    def get(self, obj: Any) -> Any:
        """The child of `obj`."""
        return getattr(obj, self.name)


def keystr(path: Iterable[Any]) -> str:
    """A path as it is written in Python: `[0]['weight'].grad`."""
    return "".join(map(str, path))


class NodeDef(NamedTuple):
    """The functions that flatten and rebuild a type of container."""

    type: type
    flatten_fn: Callable[[Any], tuple[list[Any], Any]]
    unflatten_fn: Callable[[Iterable[Any], Any], Any]
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None


def _dict_flatten(d: Any) -> tuple[list[Any], Any]:
    return list(d.values()), list(d.keys())


def _dict_flatten_with_keys(d: Any) -> tuple[list[tuple[Any, Any]], Any]:
    return [(MappingKey(key), value) for key, value in d.items()], list(d.keys())


def _dict_unflatten(values: Iterable[Any], context: Any) -> dict[Any, Any]:
    return dict(zip(context, values))


SUPPORTED_NODES: dict[type, NodeDef] = {}


def register_pytree_node(
    cls: type,
    flatten_fn: Callable[[Any], tuple[list[Any], Any]],
    unflatten_fn: Callable[[Iterable[Any], Any], Any],
    *,
    flatten_with_keys_fn: Callable[[Any], tuple[list[tuple[Any, Any]], Any]] | None = None,
    **_: Any,
) -> None:
    """Make `cls` a container: flatten_fn(x) -> (children, context), unflatten_fn(children, context) -> x.

    flatten_with_keys_fn(x) -> ([(key, child)], context) gives the keys of paths; without it they are SequenceKeys.

    ValueError when it is one already.
    """
    if cls in SUPPORTED_NODES:
        raise ValueError(f"{cls} is already registered as pytree node.")
    SUPPORTED_NODES[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


_register_pytree_node = register_pytree_node

register_pytree_node(dict, _dict_flatten, _dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys)
register_pytree_node(list, lambda x: (x, None), lambda values, _: list(values))
register_pytree_node(tuple, lambda x: (list(x), None), lambda values, _: tuple(values))
register_pytree_node(Size, lambda x: (list(x), None), lambda values, _: Size(values))
register_pytree_node(
    OrderedDict,
    _dict_flatten,
    lambda values, keys: OrderedDict(zip(keys, values)),
    flatten_with_keys_fn=_dict_flatten_with_keys,
)
register_pytree_node(
    defaultdict,
    lambda d: (list(d.values()), (d.default_factory, list(d.keys()))),
    lambda values, context: defaultdict(context[0], zip(context[1], values)),
    flatten_with_keys_fn=lambda d: (
        _dict_flatten_with_keys(d)[0],
        (d.default_factory, list(d.keys())),
    ),
)
register_pytree_node(deque, lambda d: (list(d), d.maxlen), lambda values, maxlen: deque(values, maxlen))


def _is_namedtuple(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(type(x), "_fields") and hasattr(type(x), "_make")


_NAMED = NodeDef(
    tuple,
    lambda x: (list(x), type(x)),
    lambda values, kind: kind._make(values),
    lambda x: ([(GetAttrKey(name), value) for name, value in zip(x._fields, x)], type(x)),
)


def _node_def(x: Any) -> NodeDef | None:
    """Return the functions for the container `x`; None for a leaf."""
    found = SUPPORTED_NODES.get(type(x))
    return _NAMED if found is None and _is_namedtuple(x) else found


def is_namedtuple(obj: Any) -> bool:
    """Return whether `obj` is a named tuple, or the class of one."""
    kind = obj if isinstance(obj, type) else type(obj)
    return issubclass(kind, tuple) and hasattr(kind, "_fields") and hasattr(kind, "_make")


is_namedtuple_instance = _is_namedtuple


def _get_node_type(tree: Any) -> Any:
    """The type under which the container is registered: `namedtuple` for all of those."""
    return namedtuple if _is_namedtuple(tree) and type(tree) not in SUPPORTED_NODES else type(tree)


class TreeSpec:
    """The structure of a tree: the container's type, what it needs besides its children, their structures."""

    def __init__(self, type: Any, context: Any, children_specs: list[TreeSpec]) -> None:
        self.type, self.context, self.children_specs = type, context, children_specs
        self.num_children = len(children_specs)
        self.num_leaves: int = sum(c.num_leaves for c in children_specs)
        self.num_nodes: int = 1 + sum(c.num_nodes for c in children_specs)

    def is_leaf(self) -> bool:
        """Return whether this stands for one leaf."""
        return isinstance(self, LeafSpec)

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The tree of this structure with these leaves.  See `tree_unflatten`."""
        return tree_unflatten(leaves, self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeSpec) and (
            (self.type, self.context, self.children_specs) == (other.type, other.context, other.children_specs)
        )

    def __hash__(self) -> int:
        return hash((self.type, self.num_leaves, self.num_children))

    def __repr__(self) -> str:
        return f"TreeSpec({self.type.__name__}, {self.context}, {self.children_specs})"


class LeafSpec(TreeSpec):
    """The structure of a leaf."""

    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.num_leaves = 1

    def __repr__(self) -> str:
        return "*"


def _walk(tree: Any, leaves: list[Any], is_leaf: _IsLeaf) -> TreeSpec:
    node = None if is_leaf is not None and is_leaf(tree) else _node_def(tree)
    if node is None:
        leaves.append(tree)
        return LeafSpec()
    children, context = node.flatten_fn(tree)
    return TreeSpec(type(tree), context, [_walk(c, leaves, is_leaf) for c in children])


def tree_flatten(tree: Any, is_leaf: _IsLeaf = None) -> tuple[list[Any], TreeSpec]:
    """(leaves in order, structure) of nested containers; `is_leaf(x)` True stops at x."""
    leaves: list[Any] = []
    spec = _walk(tree, leaves, is_leaf)
    return leaves, spec


def _walk_paths(tree: Any, path: tuple[Any, ...], found: list[tuple[tuple[Any, ...], Any]], is_leaf: _IsLeaf) -> None:
    node = None if is_leaf is not None and is_leaf(tree) else _node_def(tree)
    if node is None:
        found.append((path, tree))
        return
    if node.flatten_with_keys_fn is not None:
        children = node.flatten_with_keys_fn(tree)[0]
    else:
        children = [(SequenceKey(i), child) for i, child in enumerate(node.flatten_fn(tree)[0])]
    for key, child in children:
        _walk_paths(child, (*path, key), found, is_leaf)


def tree_leaves_with_path(tree: Any, is_leaf: _IsLeaf = None) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) in order; a path is a tuple of SequenceKey, MappingKey and GetAttrKey."""
    found: list[tuple[tuple[Any, ...], Any]] = []
    _walk_paths(tree, (), found, is_leaf)
    return found


def tree_flatten_with_path(tree: Any, is_leaf: _IsLeaf = None) -> tuple[list[tuple[tuple[Any, ...], Any]], TreeSpec]:
    """(`tree_leaves_with_path`, structure)."""
    return tree_leaves_with_path(tree, is_leaf), tree_structure(tree, is_leaf)


def tree_map_with_path(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: _IsLeaf = None) -> Any:
    """As `tree_map`, with func(path, leaf, *leaves of rests)."""
    paths = iter([path for path, _ in tree_leaves_with_path(tree, is_leaf)])
    return tree_map(lambda *leaves: func(next(paths), *leaves), tree, *rests, is_leaf=is_leaf)


def tree_is_leaf(tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Return whether `tree` is no container."""
    return (is_leaf is not None and is_leaf(tree)) or _node_def(tree) is None


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The tree of a structure with these leaves.

    ValueError for a wrong number of leaves, TypeError for no TreeSpec.
    """
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type "
            f"{type(treespec)}."
        )
    values = list(leaves)
    if len(values) != treespec.num_leaves:
        raise ValueError(
            f"tree_unflatten(leaves, treespec): `leaves` has length {len(values)} but the spec refers to a pytree that "
            f"holds {treespec.num_leaves} items ({treespec})."
        )
    return _build(iter(values), treespec)


def _build(values: Any, spec: TreeSpec) -> Any:
    if isinstance(spec, LeafSpec):
        return next(values)
    node = SUPPORTED_NODES.get(spec.type, _NAMED)
    return node.unflatten_fn([_build(values, c) for c in spec.children_specs], spec.context)


def tree_leaves(tree: Any, is_leaf: _IsLeaf = None) -> list[Any]:
    """The leaves in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_iter(tree: Any, is_leaf: _IsLeaf = None) -> Iterable[Any]:
    """The leaves in order, as an iterator."""
    return iter(tree_leaves(tree, is_leaf))


def tree_structure(tree: Any, is_leaf: _IsLeaf = None) -> TreeSpec:
    """The structure."""
    return tree_flatten(tree, is_leaf)[1]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: _IsLeaf = None) -> Any:
    """The tree with `func(leaf, *leaves of rests)` in place of each leaf.

    `rests` have the same structure (ValueError).
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = []
    for rest in rests:
        more, structure = tree_flatten(rest, is_leaf)
        if structure != spec:
            raise ValueError(f"Node type mismatch: expected the structure {spec}, but got {structure}.")
        others.append(more)
    return tree_unflatten([func(*values) for values in zip(leaves, *others)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: _IsLeaf = None) -> Any:
    """Call `func` on every leaf for what it does; returns the tree itself."""
    tree_map(func, tree, *rests, is_leaf=is_leaf)
    return tree


def _only(kind: Any) -> Callable[[Any], bool]:
    if isinstance(kind, type | tuple) or not callable(kind):
        return lambda x: isinstance(x, kind)
    return kind  # type: ignore[no-any-return]


def tree_map_only(kind: Any, func: Callable[[Any], Any], tree: Any, is_leaf: _IsLeaf = None) -> Any:
    """As `tree_map`, for the leaves of a type (a type, a tuple of types, or a predicate); the others stay."""
    fits = _only(kind)
    return tree_map(lambda x: func(x) if fits(x) else x, tree, is_leaf=is_leaf)


def tree_map_only_(kind: Any, func: Callable[[Any], Any], tree: Any, is_leaf: _IsLeaf = None) -> Any:
    """As `tree_map_`, for the leaves of a type."""
    tree_map_only(kind, func, tree, is_leaf)
    return tree


def tree_all(pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Return whether `pred` holds for all leaves."""
    return all(map(pred, tree_leaves(tree, is_leaf)))


def tree_any(pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Return whether `pred` holds for one of the leaves."""
    return any(map(pred, tree_leaves(tree, is_leaf)))


def tree_all_only(kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Return whether `pred` holds for all leaves of a type."""
    fits = _only(kind)
    return all(pred(x) for x in tree_leaves(tree, is_leaf) if fits(x))


def tree_any_only(kind: Any, pred: Callable[[Any], bool], tree: Any, is_leaf: _IsLeaf = None) -> bool:
    """Return whether `pred` holds for one of the leaves of a type."""
    fits = _only(kind)
    return any(pred(x) for x in tree_leaves(tree, is_leaf) if fits(x))


def arg_tree_leaves(*args: Any, **kwargs: Any) -> list[Any]:
    """The leaves of all arguments."""
    return [leaf for value in (*args, *kwargs.values()) for leaf in tree_leaves(value)]


def key_get(obj: Any, kp: KeyPath) -> Any:
    """Return the value at a path in `obj`."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _broadcast_to_and_flatten(tree: Any, treespec: TreeSpec, is_leaf: _IsLeaf = None) -> list[Any] | None:
    """The leaves of `tree`, each repeated for what `treespec` has in its place; None where they do not fit."""
    node = None if is_leaf is not None and is_leaf(tree) else _node_def(tree)
    if node is None:
        return [tree] * treespec.num_leaves
    if treespec.is_leaf() or type(tree) is not treespec.type:
        return None
    children, context = node.flatten_fn(tree)
    if context != treespec.context or len(children) != treespec.num_children:
        return None
    found: list[Any] = []
    for child, below in zip(children, treespec.children_specs):
        more = _broadcast_to_and_flatten(child, below, is_leaf)
        if more is None:
            return None
        found += more
    return found


def register_dataclass(
    cls: Any,
    *,
    field_names: list[str] | None = None,
    drop_field_names: list[str] | None = None,
    serialized_type_name: str | None = None,
) -> Any:
    """Make a dataclass a container of its fields; `drop_field_names` keep their defaults.  Also a decorator."""
    dropped = set(drop_field_names or ())
    kept = field_names or [f.name for f in dataclasses.fields(cls) if f.init and f.name not in dropped]

    def unflatten(values: Iterable[Any], context: Any) -> Any:
        names, nones = context
        return cls(**dict(zip(names, values)), **dict.fromkeys(nones))

    def parts(x: Any) -> tuple[list[str], Any]:
        found = [name for name in kept if getattr(x, name) is not None]
        return found, (found, [name for name in kept if getattr(x, name) is None])

    def flatten(x: Any) -> tuple[list[Any], Any]:
        names, context = parts(x)
        return [getattr(x, name) for name in names], context

    def flatten_with_keys(x: Any) -> tuple[list[tuple[Any, Any]], Any]:
        names, context = parts(x)
        return [(GetAttrKey(name), getattr(x, name)) for name in names], context

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=flatten_with_keys)
    return cls


def register_constant(cls: type) -> None:
    """Make `cls` a container without children: its values are part of the structure."""
    register_pytree_node(cls, lambda x: ([], x), lambda values, context: context)


def _deregister_pytree_node(cls: type) -> None:
    """Make `cls` a leaf again."""
    del SUPPORTED_NODES[cls]


# containers whose structure can be written: what else they need is made of these
_WRITTEN = {f"{kind.__module__}.{kind.__qualname__}": kind for kind in (dict, list, tuple, OrderedDict, deque)}


def treespec_dumps(treespec: TreeSpec, protocol: int | None = None) -> str:
    """A structure of dicts, lists, tuples and deques as JSON.  NotImplementedError for other containers."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"treespec_dumps(treespec): Expected `treespec` to be instance of TreeSpec, got {type(treespec)}."
        )

    def written(spec: TreeSpec) -> Any:
        if spec.is_leaf():
            return None
        name = f"{spec.type.__module__}.{spec.type.__qualname__}"
        if name not in _WRITTEN:
            raise NotImplementedError(f"treespec_dumps: the structure of {name} cannot be written")
        return {"type": name, "context": spec.context, "children": [written(c) for c in spec.children_specs]}

    return json.dumps([1, written(treespec)])


@functools.lru_cache
def treespec_loads(serialized: str) -> TreeSpec:
    """The structure that `treespec_dumps` wrote."""
    version, tree = json.loads(serialized)
    if version != 1:
        raise ValueError(f"treespec_loads: unknown protocol {version}")

    def read(node: Any) -> TreeSpec:
        if node is None:
            return LeafSpec()
        return TreeSpec(_WRITTEN[node["type"]], node["context"], [read(c) for c in node["children"]])

    return read(tree)


def treespec_pprint(treespec: TreeSpec) -> str:
    """The structure with `*` for its leaves, as text."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


class _Star:
    def __repr__(self) -> str:
        return "*"
