"""`Interpreter` runs a graph step by step, `Transformer` makes another graph of it."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from engine.fx import traceback as fx_traceback
from engine.fx.graph import Graph
from engine.fx.graph_module import GraphModule
from engine.fx.node import Argument, Node, Target, map_aggregate, map_arg
from engine.fx.proxy import Proxy
from engine.fx.tracer import Tracer
from engine.nn.modules.module import Module

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a module's graph one Node at a time; subclasses change what a kind of step does.

    garbage_collect_values: let a value go after its last use.
    """

    def __init__(self, module: Module, garbage_collect_values: bool = True, graph: Graph | None = None) -> None:
        self.module = module
        self.submodules = dict(self.module.named_modules())
        self.graph: Graph = graph if graph is not None else self.module.graph
        self.env: dict[Node, Any] = {}
        self.name = "Interpreter"
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            seen: set[Node] = set()
            for node in reversed(self.graph.nodes):
                for used in node._input_nodes:
                    if used not in seen:
                        seen.add(used)
                        self.user_to_last_uses.setdefault(node, []).append(used)

    def run(self, *args: Any, initial_env: dict[Node, Any] | None = None, enable_io_processing: bool = True) -> Any:
        """Run the graph on these inputs; `initial_env` has values that are known already."""
        self.env = dict(initial_env) if initial_env is not None else {}
        if enable_io_processing:
            args = tuple(self.graph.process_inputs(*args))
        self.args_iter: Iterator[Any] = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    message = f"While executing {node.format_node()}\nOriginal traceback:\n{node.stack_trace}"
                    message = f"{error.args[0]}\n\n{message}" if error.args else message
                    error.args = (message, *error.args[1:])
                    if isinstance(error, KeyError):
                        raise RuntimeError(*error.args) from error
                raise
            for used in self.user_to_last_uses.get(node, ()):
                self.env.pop(used, None)
            if node.op == "output":
                result = self.env[node]
                return self.graph.process_outputs(result) if enable_io_processing else result
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """`run`, taking the inputs out of a list."""
        values = list(args_list)
        args_list.clear()
        placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]
        return self.run(initial_env=dict(zip(placeholders, values)))

    @contextlib.contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        with fx_traceback.set_current_meta(node):
            yield

    def run_node(self, n: Node) -> Any:
        """The value of one step."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The next input, or its default."""
        assert isinstance(target, str)
        if target.startswith("*"):
            return list(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration as stop:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from stop

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The attribute under a dotted name."""
        return self.fetch_attr(str(target))

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call the function."""
        assert not isinstance(target, str)
        return target(*args, **kwargs)

    def call_method(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call the method of the first argument."""
        first, *rest = args
        return getattr(first, str(target))(*rest, **kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """Call the submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        """The result."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """Return the object under a dotted name in the module."""
        value: Any = self.module
        parts = target.split(".")
        for i, part in enumerate(parts):
            if not hasattr(value, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(parts[: i + 1])}")
            value = getattr(value, part)
        return value

    def fetch_args_kwargs_from_env(self, n: Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of a step's arguments."""
        args = self.map_nodes_to_values(n.args, n)
        kwargs = self.map_nodes_to_values(n.kwargs, n)
        return args, kwargs

    def map_nodes_to_values(self, args: Argument, n: Node) -> Argument:
        """An argument with values for Nodes."""

        def value_of(used: Node) -> Any:
            if used not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {used}! Run Graph.lint() to diagnose such issues"
                )
            return self.env[used]

        return _plain(map_arg(args, value_of))


def _plain(a: Any) -> Any:
    """Lists and dicts that may be changed."""
    if isinstance(a, tuple):
        return type(a)(*map(_plain, a)) if hasattr(a, "_fields") else tuple(map(_plain, a)) if type(a) is tuple else a
    if isinstance(a, list):
        return [_plain(x) for x in a]
    if isinstance(a, dict):
        return {k: _plain(v) for k, v in a.items()}
    return a


class _TransformerTracer(Tracer):
    """Adds to the new graph and runs through no module."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.tensor_attrs = {}

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        return True


class Transformer(Interpreter):
    """An Interpreter over Proxies: `transform()` gives the GraphModule of what the steps were changed to."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        assert isinstance(target, str)
        default = next(iter(args)) if args else inspect.Signature.empty
        if default is inspect.Signature.empty:
            return Proxy(self.new_graph.placeholder(target), self.tracer)
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Proxy:
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        submodule = self.fetch_attr(str(target))
        return self.tracer.call_module(submodule, submodule.forward, args, kwargs)

    def call_function(self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]) -> Any:
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The GraphModule of the changed graph."""
        result = super().run(enable_io_processing=False)
        if result is not None:

            def node_of(a: Any) -> Any:
                return a.node if isinstance(a, Proxy) else a

            old = self.graph.output_node()
            new = self.new_graph.output(map_aggregate(result, node_of), old.type)
            for key in ("val", "tensor_meta"):
                if key in old.meta:
                    new.meta[key] = old.meta[key]
        return GraphModule(self.module, self.new_graph)
