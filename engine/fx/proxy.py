"""`Proxy`: stands for a value while a program is traced, and records what is done with it."""

from __future__ import annotations

import collections
import copy
import dataclasses
import dis
import enum
import operator
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

from engine.core import dtypes, layouts
from engine.core.device import device
from engine.dispatch import overriding
from engine.fx import _listening
from engine.fx._codegen import magic_methods, reflectable_magic_methods
from engine.fx.graph import Graph
from engine.fx.node import Argument, Node, Target, map_aggregate
from engine.tensor import Size, Tensor
from engine.torch_names.facade import facade

__all__ = [
    "Attribute",
    "GraphAppendingTracer",
    "ParameterProxy",
    "Proxy",
    "Scope",
    "ScopeContextManager",
    "TraceError",
    "TracerBase",
]

_ITERATED = (
    "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs "
    "function argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what types of control "
    "flow can be traced, and check out the Proxy docstring for help troubleshooting Proxy iteration errors"
)
_CONTROL_FLOW = "symbolically traced variables cannot be used as inputs to control flow"
_BASE_TYPES = (
    str,
    int,
    float,
    bool,
    complex,
    dtypes.dtype,
    Tensor,
    device,
    layouts.layout,
    layouts.memory_format,
    range,
)


class TraceError(ValueError):
    """The code does what depends on a value, which a trace does not have."""


class Scope:
    """The module that is being traced: its path and type."""

    def __init__(self, module_path: str, module_type: Any) -> None:
        self.module_path, self.module_type = module_path, module_type


class ScopeContextManager:
    """Sets a Scope for a `with`."""

    def __init__(self, scope: Scope, current_scope: Scope) -> None:
        self._previous = copy.copy(scope)
        scope.module_path, scope.module_type = current_scope.module_path, current_scope.module_type
        self._scope = scope

    def __enter__(self) -> Scope:
        return self._scope

    def __exit__(self, *exc: object) -> None:
        self._scope.module_path, self._scope.module_type = self._previous.module_path, self._previous.module_type


class TracerBase:
    """The base of tracers, which a Proxy calls: makes Nodes of calls and Node arguments of values."""

    graph: Graph
    record_stack_traces: bool = False
    check_mutable_operations: bool = False
    trace_asserts: bool = False
    proxy_buffer_attributes: bool = False
    traced_func_name: str = "forward"
    scope: Scope
    module_stack: collections.OrderedDict[str, tuple[str, Any]]
    node_name_to_scope: dict[str, tuple[str, type]]

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a Node to the graph."""
        node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if hasattr(self, "scope"):
            self.node_name_to_scope[node.name] = (self.scope.module_path, self.scope.module_type)
            if self.module_stack and kind != "placeholder":
                node.meta["nn_module_stack"] = copy.copy(self.module_stack)
        return node

    def proxy(self, node: Node) -> Proxy:
        """The Proxy of a Node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Add a Node with these arguments, in which are Proxies, and give its Proxy."""
        args_ = self.create_arg(args)
        kwargs_ = self.create_arg(kwargs)
        if not isinstance(args_, tuple):
            raise AssertionError(f"Expected args_ to be tuple, got {type(args_)}")
        if not isinstance(kwargs_, dict):
            raise AssertionError(f"Expected kwargs_ to be dict, got {type(kwargs_)}")
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        made = proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)
        if self.record_stack_traces and kind != "placeholder" and "stack_trace" not in node.meta:
            node.stack_trace = _user_stack()
        return made

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a Node: nested containers of Nodes and plain values."""
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, Size):
            return tuple(self.create_arg(x) for x in a)
        if isinstance(a, tuple):
            items = [self.create_arg(x) for x in a]
            return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
        if isinstance(a, list):
            return [self.create_arg(x) for x in a]
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if a is None or a is ... or isinstance(a, _BASE_TYPES):
            return a
        if isinstance(a, type | enum.Enum | Node):
            return a
        if dataclasses.is_dataclass(a):
            fields = {f.name: self.create_arg(getattr(a, f.name)) for f in dataclasses.fields(a)}
            return self.create_node("call_function", type(a), (), fields)
        raise NotImplementedError(f"argument of type: {type(a)}")

    def _key(self, k: Any) -> Any:
        k = self.create_arg(k)

        def refuse(x: Any) -> Any:
            if isinstance(x, Node):
                raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {k}")
            return x

        return map_aggregate(k, refuse)

    def to_bool(self, obj: Proxy) -> bool:
        """The truth of a Proxy: TraceError."""
        raise TraceError(_CONTROL_FLOW)

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The elements of a Proxy: TraceError."""
        raise TraceError(_ITERATED)

    def keys(self, obj: Proxy) -> Any:
        """The keys of a Proxy, for `**`."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Adds to a graph that is there."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.node_name_to_scope = {}


def _user_stack() -> str:
    """The Python stack from where the trace begins, without the tracer's own frames."""
    frames = traceback.extract_stack()
    own = os.path.dirname(__file__)
    begins = [i for i, f in enumerate(frames) if f.name == "_trace" and f.filename.startswith(own)]
    kept = [f for f in frames[begins[-1] if begins else 0 :] if not f.filename.startswith(own)]
    return "".join(traceback.StackSummary.from_list(kept).format()).strip()


class Proxy:
    """A value that is not there yet: operations on it are recorded in its tracer's graph.

    Its truth, length or elements are not known: TraceError.  An assignment `a, b = proxy` is taken apart by indices.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        _listening.alive()
        self.tracer = GraphAppendingTracer(node.graph) if tracer is None else tracer
        self.node = node

    def __del__(self) -> None:
        if _listening is not None:  # the interpreter has not ended
            _listening.died()

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in ("node", "tracer"):  # not set yet
            raise AttributeError(k)
        return Attribute(self, k)

    def __deepcopy__(self, memo: Any) -> Proxy:
        made = type(self).__new__(type(self))
        _listening.alive()
        memo[id(self)] = made
        made.__dict__.update({k: copy.deepcopy(v, memo) for k, v in self.__dict__.items()})
        return made

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    def __setstate__(self, state: dict[str, Any]) -> None:
        _listening.alive()
        self.__dict__.update(state)

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        count = _unpacked()
        if count is None:
            return self.tracer.iter(self)
        value: Any = self
        return (value[i] for i in range(count))

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", operator.abs, (self,), {})

    def __bool__(self) -> bool:
        if self.tracer.trace_asserts and _asserted(self):
            return True
        return self.tracer.to_bool(self)

    def keys(self) -> Any:
        """The keys, for `**`."""
        return self.tracer.keys(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "torch.fx.wrap('len') at module scope"
        )

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """A call of a function of torch, recorded."""
        found = _listening.first_proxy((*args, *(kwargs or {}).values()))
        return found.tracer.create_proxy("call_function", orig_method, args, kwargs or {})


_listening.registered.proxy = Proxy
overriding.hidden.append(Proxy)  # has listeners of its own


def _unpacked() -> int | None:
    """Into how many names the caller of `__iter__` takes the value apart; None where it does something else."""
    frame = sys._getframe(2)
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset == frame.f_lasti:
            return instruction.argval if instruction.opname == "UNPACK_SEQUENCE" else None
    return None


def _asserted(proxy: Proxy) -> bool:
    """Return whether the caller of `__bool__` is an `assert`; then the check is recorded."""
    frame = sys._getframe(2)
    following = iter(dis.get_instructions(frame.f_code))
    for instruction in following:
        if instruction.offset > frame.f_lasti:
            if instruction.opname in ("LOAD_ASSERTION_ERROR",):
                after = next(following, None)
                message = after.argval if after is not None and after.opname == "LOAD_CONST" else ""
                proxy.tracer.create_proxy("call_function", facade()._assert, (proxy, message), {})
                return True
            if instruction.opname not in ("POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_IF_TRUE", "TO_BOOL", "CACHE"):
                return False
    return False


class Attribute(Proxy):
    """An attribute of a Proxy; recorded when it is used other than for a call, which is that of a method."""

    def __init__(self, root: Proxy, attr: str) -> None:
        _listening.alive()
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The step that takes the attribute, recorded now if it has not been."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """A parameter whose shape is known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Tensor) -> None:
        super().__init__(node, tracer)
        if not isinstance(param, Tensor):
            raise AssertionError(f"Expected Parameter, got {type(param)}")
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's."""
        return self.param.shape

    def size(self, *args: Any) -> Any:
        """The parameter's."""
        return self.param.size(*args)

    def dim(self) -> int:
        """The parameter's."""
        return self.param.dim()

    @property
    def ndim(self) -> int:
        """The parameter's."""
        return self.param.ndim

    def numel(self) -> int:
        """The parameter's."""
        return self.param.numel()

    def nelement(self) -> int:
        """The parameter's."""
        return self.param.nelement()


def _operator_method(name: str) -> Callable[..., Proxy]:
    target = getattr(operator, name)

    def impl(self: Proxy, *args: Any, **kwargs: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (self, *args), kwargs)

    return impl


def _reflected_method(name: str) -> Callable[..., Proxy]:
    target = getattr(operator, name)

    def impl(self: Proxy, rhs: Any) -> Proxy:
        return self.tracer.create_proxy("call_function", target, (rhs, self), {})

    return impl


for _name in magic_methods:
    if hasattr(operator, _name):
        setattr(Proxy, f"__{_name.strip('_')}__", _operator_method(_name))
for _name in reflectable_magic_methods:
    if hasattr(operator, _name) and _name != "getitem":
        setattr(Proxy, f"__r{_name.strip('_')}__", _reflected_method(_name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
