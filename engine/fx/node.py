"""`Node`: one step of a graph, and the functions that walk its arguments."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from engine.core import dtypes
from engine.dispatch import with_fact
from engine.fx._names import function_name, qualified_name
from engine.fx.immutable_collections import immutable_dict, immutable_list

if TYPE_CHECKING:
    from engine.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

Target = Callable[..., Any] | str
Argument = Any
BaseArgumentTypes = str | int | float | bool | complex | dtypes.dtype | None

LEGAL_OPS = ("call_function", "call_method", "call_module", "get_attr", "output", "placeholder", "root")
_side_effectful_functions: set[Any] = set()
_leaf_types: set[type] = {bool, int, float, str, type(None)}  # the most frequent, and Node
_get_qualified_name = qualified_name


def has_side_effect(fn: Any) -> Any:
    """Mark a function as one whose calls are kept though nothing uses their result; a decorator."""
    _side_effectful_functions.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`fn` of every leaf of nested tuples, lists, dicts and slices."""
    if type(a) in _leaf_types:
        return fn(a)
    if isinstance(a, tuple):
        mapped = [map_aggregate(x, fn) for x in a]
        return type(a)(*mapped) if hasattr(a, "_fields") else tuple(mapped)
    if isinstance(a, list):
        return immutable_list(map_aggregate(x, fn) for x in a)
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`fn` of every Node of nested containers."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


def nodes_in(a: Any) -> Iterator[Node]:
    """The Nodes of nested containers, in order."""
    if isinstance(a, Node):
        yield a
    elif isinstance(a, tuple | list):
        for x in a:
            if type(x) is Node:
                yield x
            elif type(x) not in _leaf_types:
                yield from nodes_in(x)
    elif isinstance(a, dict):
        for x in a.values():
            yield from nodes_in(x)
    elif isinstance(a, slice):
        for x in (a.start, a.stop, a.step):
            yield from nodes_in(x)


def type_repr(obj: Any) -> str:
    """A type as the text of an annotation names it."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        return obj.__qualname__ if obj.__module__ == "builtins" else qualified_name(obj)
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj).replace("engine.tensor.", "torch.").replace("engine.", "torch.")


_type_repr = type_repr


def format_arg(arg: Any, limit: float = float("inf")) -> str:
    """An argument as `str(graph)` shows it: Nodes with %."""
    if isinstance(arg, tuple | list) and not hasattr(arg, "_fields"):
        items = ", ".join(format_arg(a, limit) for i, a in enumerate(arg) if i < limit)
        more = f", ...[total_len={len(arg)}]" if len(arg) > limit else ""
        if isinstance(arg, list):
            return f"[{items}{more}]"
        return f"({items}{',' if len(arg) == 1 else ''}{more})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {format_arg(v, limit)}" for k, v in arg.items()) + "}"
    return f"%{arg}" if isinstance(arg, Node) else str(arg)


_format_arg = format_arg


class Node:
    """One step: `op` says what is done with `target`, `args` and `kwargs`.

    placeholder: the input `target`, its default in `args`.  get_attr: the attribute under the dotted name `target`.
    call_function, call_module, call_method: the call of a function, a submodule by dotted name, a method of `args[0]`.
    output: what `args[0]` is returned.
    """

    def __init__(
        self,
        graph: Graph,
        name: str,
        op: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        return_type: Any = None,
    ) -> None:
        if op == "call_function":
            if not callable(target):
                raise ValueError(
                    f"Node [graph = {graph}, name = '{name}'] target {target} has type {_name_of_type(target)} "
                    "but a Callable is expected"
                )
        elif op not in LEGAL_OPS:
            raise AssertionError(f"op '{op}' is not one of torch.fx's")
        elif not isinstance(target, str):
            raise ValueError(
                f"Node [graph = {graph}, name = '{name}'] target {target} has type {_name_of_type(target)} "
                "but a str is expected"
            )
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.users: dict[Node, None] = {}  # in the order in which they came
        self._input_nodes: dict[Node, None] = {}
        self.type = return_type
        self.meta: dict[str, Any] = {}
        self._prev = self._next = self
        self._erased = False
        self._repr_fn: Callable[[Node], str] | None = None
        self._args: tuple[Argument, ...] = ()
        self._kwargs: dict[str, Argument] = immutable_dict()
        if args or kwargs:
            self._set_arguments(args, kwargs)

    # --- order

    @property
    def next(self) -> Node:
        """The step after this one; that after the last is the graph's root, a step of no meaning."""
        return self._next

    @property
    def prev(self) -> Node:
        """The step before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` before this step."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move `x` behind this step."""
        if self is not x:
            self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    def __lt__(self, other: Node) -> bool:
        return self._position() < other._position()

    def __gt__(self, other: Node) -> bool:
        return self._position() > other._position()

    def __le__(self, other: Node) -> bool:
        return self is other or self < other

    def __ge__(self, other: Node) -> bool:
        return self is other or self > other

    def _position(self) -> int:
        return next(i for i, node in enumerate(self.graph.nodes) if node is self)

    # --- arguments

    @property
    def args(self) -> tuple[Argument, ...]:
        """The positional arguments; what is in them is not to be changed in place."""
        return self._args

    @args.setter
    def args(self, a: tuple[Argument, ...]) -> None:
        self._set_arguments(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Argument]:
        """The arguments by keyword."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Argument]) -> None:
        self._set_arguments(self._args, k)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The steps whose results this one reads, each once."""
        return list(self._input_nodes)

    def _set_arguments(self, args: Any, kwargs: Any) -> None:
        self._args = map_aggregate(tuple(args), lambda x: x)
        self._kwargs = map_aggregate(dict(kwargs), lambda x: x)
        for old in self._input_nodes:
            old.users.pop(self, None)
        self._input_nodes = dict.fromkeys(nodes_in(self._args))
        if self._kwargs:
            self._input_nodes |= dict.fromkeys(nodes_in(self._kwargs))
        for new in self._input_nodes:
            new.users[self] = None

    def update_arg(self, idx: int, arg: Argument) -> None:
        """Replace one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Argument) -> None:
        """A positional argument more, before the one at `idx`."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError("insert_args index must be between 0 and len(self.args)")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Argument) -> None:
        """Set one argument by keyword."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_input_with(self, old_input: Node, new_input: Node) -> None:
        """Read `new_input` wherever this step read `old_input`."""
        self._replace({old_input: new_input})

    def _replace(self, new: dict[Node, Node]) -> None:
        module = self.graph.owning_module
        for hook in getattr(module, "_replace_hooks", ()):
            for old, replacement in new.items():
                hook(old=old, new=replacement.name, user=self)
        args, kwargs = map_arg((self._args, self._kwargs), lambda n: new.get(n, n))
        self._set_arguments(args, kwargs)

    def replace_all_uses_with(
        self,
        replace_with: Node,
        delete_user_cb: Callable[[Node], bool] | None = None,
        *,
        propagate_meta: bool = False,
    ) -> list[Node]:
        """Let those that read this step read `replace_with`; those that did.

        delete_user_cb: of a user, whether it is to change.  propagate_meta: `replace_with` gets this step's `meta`.
        """
        if propagate_meta:
            if replace_with.meta:
                raise AssertionError(
                    f"Called node.replace_all_uses_with(replace_with, propagate_meta=True), but replace_with already "
                    f"has .meta keys: {replace_with.meta.keys()}"
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in self.users if delete_user_cb is None or delete_user_cb(user)]
        for user in changed:
            user._replace({self: replace_with})
        return changed

    # --- what it is

    @property
    def stack_trace(self) -> str | None:
        """The Python stack where the step was traced, if that was asked for."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Return whether the step does more than give a result."""
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            if self.target in _side_effectful_functions:
                return True
            draws = impure_random and function_name(self.target) in with_fact("draws")
            return draws and qualified_name(self.target).startswith("torch.")
        if self.op == "call_method":
            return self.target.endswith("_") and not self.target.endswith("__")  # type: ignore[union-attr]
        if self.op == "call_module":
            module = self.graph.owning_module
            if module is None:
                raise AssertionError("self.graph.owning_module not set for purity check")
            target = module.get_submodule(self.target)
            return bool(getattr(target, "_is_impure", False))
        return False

    def normalized_arguments(
        self,
        root: Any,
        arg_types: Any = None,
        kwarg_types: Any = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """(args, kwargs) as the target's parameters take them; None where it has no readable signature."""
        from engine.fx.operator_schemas import normalize_function, normalize_module

        target: Any = self.target
        if self.op == "call_function":
            return normalize_function(
                target, self.args, self.kwargs, arg_types, kwarg_types, normalize_to_only_use_kwargs
            )
        if self.op == "call_module":
            return normalize_module(root, target, self.args, self.kwargs, normalize_to_only_use_kwargs)
        return None

    def _rename(self, candidate: str) -> None:
        if candidate != self.name:
            self.name = self.graph._graph_namespace.create_name(candidate, None)
            self.graph._graph_namespace._rename_object(self, self.name)

    def __repr__(self) -> str:
        return self._repr_fn(self) if self._repr_fn else self.name

    def _pretty_print_target(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        module = getattr(target, "__module__", None)
        name = getattr(target, "__name__", None)
        if name and module == "builtins" and getattr(builtins, name, None) is target:
            return f"builtins.{name}"
        if name and module == "_operator":
            return f"operator.{name}"
        return qualified_name(target)

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """The step as a line of `str(graph)`; placeholders and the type of the output go into the lists given."""
        typed = f"{type_repr(self.type)} " if self.type else ""
        head = f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}[target="
        if self.op == "placeholder":
            target = str(self.target)
            if placeholder_names is not None:
                placeholder_names.append(target + (f": {type_repr(self.type)}" if self.type else ""))
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}{target}]{default}"
        if self.op == "get_attr":
            return f"{head}{self._pretty_print_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_repr(self.type)}"
            return f"return {self.args[0]}"
        return (
            f"{head}{self._pretty_print_target(self.target)}]"
            f"(args = {format_arg(self.args)}, kwargs = {format_arg(self.kwargs)})"
        )


_leaf_types.add(Node)


def _name_of_type(value: Any) -> str:
    return type(value).__name__
