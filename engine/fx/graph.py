"""`Graph`: the steps of a program, in order.

Plans for inference and training steps are graphs, too: `engine/programs/graph.py` says what their nodes know.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from engine.fx._codegen import (
    CodeGen,
    PythonCode,
    _custom_builtins,
    _CustomBuiltin,
    _format_target,
    _is_magic,
    _Namespace,
    _PyTreeCodeGen,
    _PyTreeInfo,
    _register_custom_builtin,
    _snake_case,
    inplace_methods,
    magic_methods,
    reflectable_magic_methods,
)
from engine.fx._names import function_name
from engine.fx.node import LEGAL_OPS, Argument, Node, Target, map_arg

__all__ = [
    "CodeGen",
    "Graph",
    "PythonCode",
    "_CustomBuiltin",
    "_Namespace",
    "_PyTreeCodeGen",
    "_PyTreeInfo",
    "_custom_builtins",
    "_format_target",
    "_is_magic",
    "_register_custom_builtin",
    "_snake_case",
    "inplace_methods",
    "magic_methods",
    "reflectable_magic_methods",
]

_MISSING: Any = type("MISSING", (), {})()


class _InsertPoint:
    """A place in a graph; as a context manager, the old place comes back at its end."""

    def __init__(self, graph: Graph, new_insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.orig_insert, graph._insert = graph._insert, new_insert

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        self.graph._insert = self.orig_insert


class _node_list:
    """The steps of a graph, forwards or backwards; a step may be erased while they are walked."""

    def __init__(self, graph: Graph, direction: str = "_next") -> None:
        if direction not in ("_next", "_prev"):
            raise AssertionError(f"direction must be '_next' or '_prev', got {direction!r}")
        self.graph, self.direction = graph, direction

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = getattr(root, self.direction)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.direction)

    def __reversed__(self) -> _node_list:
        return _node_list(self.graph, "_next" if self.direction == "_prev" else "_prev")


class Graph:
    """A program: its inputs (placeholders), calls and one output, each a Node."""

    def __init__(
        self,
        owning_module: Any = None,
        tracer_cls: type | None = None,
        tracer_extras: dict[str, Any] | None = None,
    ) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._insert: Callable[[Node], None] = self._root.prepend
        self._used_names: dict[str, int] = {}
        self._len = 0
        self._graph_namespace = _Namespace()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras
        self._codegen = CodeGen()

    @property
    def owning_module(self) -> Any:
        """The GraphModule of the graph, or None."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _node_list:
        """The steps, in order."""
        return _node_list(self)

    def output_node(self) -> Node:
        """The output."""
        return next(n for n in reversed(self.nodes) if n.op == "output")

    def find_nodes(self, *, op: str, target: Target | None = None, sort: bool = True) -> list[Node]:
        """The steps of an op, with a target if one is given, in order."""
        if op == "call_function" and target is None:
            raise AssertionError("target is required for op='call_function'")
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    # --- adding

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a step at the insert point."""
        if op not in LEGAL_OPS:
            raise AssertionError(f"op '{op}' is not in _legal_ops")
        args, kwargs = args or (), kwargs or {}
        if not isinstance(args, tuple):
            raise AssertionError("args must be a tuple")
        if not isinstance(kwargs, dict):
            raise AssertionError("kwargs must be a dict")
        if name is None:
            name = self._target_to_str(target)
        name = self._graph_namespace.create_name(name, None)
        node = Node(self, name, op, target, args, kwargs, type_expr)
        for hook in getattr(self.owning_module, "_create_node_hooks", ()):
            hook(node)
        self._graph_namespace.associate_name_with_obj(name, node)
        self._insert(node)
        self._len += 1
        return node

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = _MISSING) -> Node:
        """Add an input."""
        args = () if default_value is _MISSING else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        """Add the attribute under a dotted name of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self,
        module_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a call of a submodule, by its dotted name."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self,
        method_name: str,
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a call of a method of `args[0]`."""
        if not isinstance(method_name, str):
            raise AssertionError(f"Expected target to be str, got {type(method_name)}")
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: tuple[Argument, ...] | None = None,
        kwargs: dict[str, Argument] | None = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        """Add a call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Argument, type_expr: Any = None) -> Node:
        """Add the output."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Argument] = lambda x: x) -> Node:
        """Add a copy of another graph's step; `arg_transform` gives this graph's Node for each that it reads."""
        args, kwargs = map_arg((node.args, node.kwargs), arg_transform)
        copied = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        copied.meta = copy.copy(node.meta)
        return copied

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Add copies of all of `g` but its output and what is in `val_map`; `g`'s output in terms of this graph."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def _target_to_str(self, target: Target | None) -> str:
        if callable(target):
            name = function_name(target)
        elif isinstance(target, str):
            name = target
            if _is_magic(name):
                name = name[2:-2]
        else:
            raise AssertionError(f"Expected target to be str, got {type(target)}")
        return _snake_case(name)

    # --- changing

    def erase_node(self, to_erase: Node) -> None:
        """Take a step out that none reads."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: "
                f"{to_erase.users}!"
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            import warnings

            warnings.warn(f"erase_node({to_erase}) on an already erased node", stacklevel=2)
            return
        for hook in getattr(self.owning_module, "_erase_node_hooks", ()):
            hook(to_erase)
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1
        to_erase._set_arguments((), {})

    def _clear_nodes(self) -> None:
        for node in reversed(self.nodes):
            self.erase_node(node)

    def inserting_before(self, n: Node | None = None) -> _InsertPoint:
        """Add new nodes before `n`, or at the beginning; from now on, or within a `with`."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _InsertPoint(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _InsertPoint:
        """Add new nodes after `n`, or at the end; from now on, or within a `with`."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        after = n.next
        return _InsertPoint(self, after.prepend)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase the steps whose results nothing reads and that do nothing else; whether there were any."""
        self.lint()
        before = self._len
        for node in reversed(self.nodes):
            impure = is_impure_node(node) if is_impure_node is not None else node.is_impure()
            if not impure and not node.users:
                self.erase_node(node)
        return self._len < before

    # --- checking and printing

    def lint(self) -> None:
        """RuntimeError where a step reads what is not there yet, two have one name, or a target is missing."""
        seen: dict[Node, None] = {}
        names: set[str] = set()
        for node in self.nodes:
            if node.op not in LEGAL_OPS:
                raise RuntimeError(f"Node {node} had unknown opcode {node.op}!")
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node._input_nodes:
                if used.graph is not self:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' does not belong to this Graph, but was used as an "
                        "argument! If you are copying nodes from another graph, make sure to use ``arg_transform`` on "
                        f"node_copy() to remap values\n{self}"
                    )
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! Please check that "
                        f"Nodes in the graph are topologically ordered\n{self}"
                    )
            seen[node] = None
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
        if self.owning_module is not None:
            for node in self.nodes:
                if node.op in ("get_attr", "call_module"):
                    self._check_target(node)

    def _check_target(self, node: Node) -> None:
        from engine.nn import Module

        target = str(node.target)
        value, parts = self.owning_module, target.split(".")
        for i, part in enumerate(parts):
            inner = getattr(value, part, _MISSING)
            if inner is _MISSING:
                raise RuntimeError(
                    f"Node {node} target {target} references nonexistent attribute {part} of {'.'.join(parts[:i])}"
                )
            value = inner
        if node.op == "call_module" and not isinstance(value, Module):
            raise RuntimeError(
                f"Node {node} target {target} {part} of {'.'.join(parts[:-1])} does not reference an nn.Module"
            )

    def print_tabular(self) -> None:
        """Print the steps as a table; with the package tabulate."""
        try:
            from tabulate import tabulate
        except ImportError:
            print(
                "`print_tabular` relies on the library `tabulate`, which could not be found on this machine. Run "
                "`pip install tabulate` to install the library."
            )
            raise
        rows = [[n.op, n.name, n.target, n.args, n.kwargs] for n in self.nodes]
        print(tabulate(rows, headers=["opcode", "name", "target", "args", "kwargs"]))

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        """The graph as Python text, and what its names stand for; `root_module` is what "self" is called.

        verbose: with comments where the source is known, and shapes where `ShapeProp` has left them.
        """
        namespace = _Namespace()

        def name_of(node: Node) -> str:
            return namespace.create_name(node.name, node)

        with _shown(self, name_of):
            return self._codegen._gen_python_code(self.nodes, root_module, namespace, **options)

    def __str__(self) -> str:
        names: list[str] = []
        returns = [""]
        lines = [node.format_node(names, returns) for node in self.nodes]
        inner = "".join(f"\n    {line}" for line in lines if line)
        return f"graph({''}):{inner}"

    def __deepcopy__(self, memo: Any = None) -> Graph:
        memo = {} if memo is None else memo
        graph = Graph(tracer_cls=self._tracer_cls)
        memo[id(self)] = graph
        graph._codegen = copy.copy(self._codegen)
        values: dict[Node, Node] = {}
        found = graph.graph_copy(self, val_map=values, return_output_node=True)
        if found is not None:
            result, old = found
            new = graph.output(result, old.type)
            new.meta = copy.copy(old.meta)
        return graph

    # --- code

    def set_codegen(self, codegen: CodeGen) -> None:
        """Write the text of the graph with another CodeGen."""
        self._codegen = codegen

    def on_generate_code(self, make_transformer: Callable[[Any], Callable[[list[str]], list[str]]]) -> Any:
        """Pass the lines of the text through a function that `make_transformer` makes, given that in use or None."""
        old = self._codegen._body_transformer
        self._codegen._body_transformer = make_transformer(old)

        @contextlib.contextmanager
        def until() -> Iterator[None]:
            try:
                yield
            finally:
                self._codegen._body_transformer = old

        return until()

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders of the arguments of a call."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """Return the graph's outputs in the form that a call returns."""
        return self._codegen.process_outputs(out)


@contextlib.contextmanager
def _shown(graph: Graph, name_of: Callable[[Node], str]) -> Iterator[None]:
    """Let Nodes print by another name."""
    nodes: Iterable[Node] = list(graph.nodes)
    kept = [node._repr_fn for node in nodes]
    for node in nodes:
        node._repr_fn = name_of
    try:
        yield
    finally:
        for node, function in zip(nodes, kept):
            node._repr_fn = function
