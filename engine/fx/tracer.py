"""`Tracer`, `symbolic_trace` and `wrap`: running a program with Proxies for its inputs."""

from __future__ import annotations

import builtins
import collections
import copy
import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from engine.core import dtypes
from engine.core.device import device
from engine.fx import _listening
from engine.fx._codegen import _PyTreeCodeGen, _PyTreeInfo
from engine.fx.graph import Graph
from engine.fx.node import Argument, Node, has_side_effect
from engine.fx.proxy import ParameterProxy, Proxy, Scope, ScopeContextManager, TracerBase
from engine.fx.wrapping import _wrapped_fns_to_patch
from engine.nn.modules.container import Sequential
from engine.nn.modules.module import Module
from engine.nn.parameter import Parameter
from engine.tensor import Tensor
from engine.torch_names.facade import facade
from engine.utils import _pytree as pytree

__all__ = ["PH", "PHBase", "ProxyableClassMeta", "Tracer", "is_fx_tracing"]

HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_is_fx_tracing_flag = False
_proxyable_classes: dict[type, None] = {}
_CONSTANTS = (str, int, float, bool, complex, dtypes.dtype, device)


def is_fx_tracing() -> bool:
    """Return whether a Tracer is at work."""
    return _is_fx_tracing_flag


is_fx_symbolic_tracing = is_fx_tracing


class PHBase:
    """In `concrete_args`: this input stays one."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class ProxyableClassMeta(type):
    """Of a class whose instances may be made of Proxies while tracing; then the making is recorded."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        _proxyable_classes.setdefault(cls)
        super().__init__(name, bases, attrs)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        instance: Any = cls.__new__(cls)  # type: ignore[call-overload]
        if not is_fx_tracing():
            instance.__init__(*args, **kwargs)
            return instance
        found = _listening.first_proxy((*args, *kwargs.values()))
        if found is not None:
            return found.tracer.create_proxy("call_function", cls, args, kwargs)
        instance.__init__(*args, **kwargs)
        return instance


@has_side_effect
def _assert_is_none(value: Any, msg: str) -> None:
    if value is not None:
        raise AssertionError(msg)


def _mark_assert() -> None:
    has_side_effect(facade()._assert)  # type: ignore[attr-defined]


def _without_stars(fn: Callable[..., Any], nargs: int) -> FunctionType:
    """The function with *args, **kwargs and what is by keyword alone as ordinary parameters."""
    inner: Any = fn.__func__ if inspect.ismethod(fn) else fn
    code: CodeType = inner.__code__
    code = code.replace(
        co_argcount=nargs, co_posonlyargcount=0, co_kwonlyargcount=0, co_flags=code.co_flags & ~HAS_VARSTUFF
    )
    return FunctionType(code, inner.__globals__, inner.__name__, None, inner.__closure__)


def _annotation(fn: Any, name: str) -> Any:
    """The annotation of a parameter; of the engine's own functions, which have texts, a Tensor alone."""
    found = getattr(fn, "__annotations__", {}).get(name)
    if isinstance(found, str) and getattr(fn, "__module__", "").startswith("engine."):
        return Tensor if found == "Tensor" else None
    return found


class _Patcher:
    """Sets names for the time of a trace."""

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.visited: set[int] = set()

    def set_item(self, where: dict[str, Any], name: str, value: Any) -> None:
        if name in where:
            old = where[name]
            self.undo.append(lambda: where.__setitem__(name, old))
        else:
            self.undo.append(lambda: where.pop(name, None))
        where[name] = value

    def set_attribute(self, owner: Any, name: str, value: Any) -> None:
        old = vars(owner)[name]
        self.undo.append(lambda: setattr(owner, name, old))
        setattr(owner, name, value)

    def visit_once(self, thing: Any) -> bool:
        if id(thing) in self.visited:
            return False
        self.visited.add(id(thing))
        return True

    def __enter__(self) -> _Patcher:
        return self

    def __exit__(self, *exc: object) -> None:
        while self.undo:
            self.undo.pop()()
        self.visited.clear()


def _create_wrapped_func(orig_fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(orig_fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found = _listening.first_proxy((*args, *kwargs.values()), depth=9)
        if found is None:
            return orig_fn(*args, **kwargs)
        made = found.tracer.create_proxy("call_function", orig_fn, args, kwargs)
        made.node.meta["is_wrapped"] = True
        return made

    return wrapped


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    for (_, name), where in list(_wrapped_fns_to_patch.items()):
        if name in where:
            orig = where[name]
        elif hasattr(builtins, name):
            orig = getattr(builtins, name)
        else:
            continue
        patcher.set_item(where, name, _create_wrapped_func(orig))


def _autowrap_check(patcher: _Patcher, where: dict[str, Any], function_ids: set[int]) -> None:
    """Wrap those of `function_ids` that a module's globals hold."""
    if patcher.visit_once(where):
        for name, value in list(where.items()):
            if not name.startswith("_") and callable(value) and id(value) in function_ids:
                patcher.set_item(where, name, _create_wrapped_func(value))


class Tracer(TracerBase):
    """Runs a module or function with Proxies and makes a Graph of what it did.

    Modules of torch.nn are recorded as calls; others are run through.  Subclasses say otherwise: `is_leaf_module`.
    """

    def __init__(
        self,
        autowrap_modules: tuple[ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        _mark_assert()
        self._autowrap_function_ids = {
            id(value)
            for module in autowrap_modules
            for name, value in vars(module).items()
            if not name.startswith("_") and callable(value)
        } | {id(f) for f in autowrap_functions}
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.submodule_paths: dict[Module, str] | None = None
        self.root_module_name = ""
        self.scope = Scope("", None)
        self.module_stack = collections.OrderedDict()
        self.num_calls: dict[str, int] = {}
        self.node_name_to_scope = {}
        self._qualname_counter: dict[str, int] = collections.defaultdict(int)

    # --- what subclasses change

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Return whether a module is recorded as one call: those of torch.nn, but not Sequential."""
        own = m.__module__.startswith(("engine.nn", "torch.nn"))
        return own and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The dotted name of a submodule of the root."""
        if self.submodule_paths is not None:
            path = self.submodule_paths.get(mod)
            if path is None:
                raise NameError("module is not installed as a submodule")
            return path
        for name, module in self.root.named_modules():
            if mod is module:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A module is called: a step, or what its forward does."""
        path = self.path_of_module(m)
        with ScopeContextManager(self.scope, Scope(path, type(m))) as scope:
            count = self.num_calls.get(path, 0)
            self.num_calls[path] = count + 1
            self.module_stack[f"{path}@{count}" if count else path] = (path, scope.module_type)
            if self.is_leaf_module(m, path):
                result = self.create_proxy("call_module", path, args, kwargs)
            else:
                result = forward(*args, **kwargs)
            self.module_stack.popitem(last=True)
        return result

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]) -> Any:
        """An attribute of a module is read: a parameter becomes a Proxy."""
        if isinstance(attr_val, Parameter):
            found = self._proxy_of(attr_val, self.root.named_parameters(), parameter_proxy_cache)
            return attr_val if found is None else found
        if self.proxy_buffer_attributes and isinstance(attr_val, Tensor):
            found = self._proxy_of(attr_val, self.root.named_buffers(), parameter_proxy_cache)
            return attr_val if found is None else found
        return attr_val

    def _proxy_of(self, value: Tensor, named: Iterator[tuple[str, Any]], cache: dict[str, Proxy]) -> Proxy | None:
        for name, tensor in named:
            if value is tensor:
                if name not in cache:
                    factory = None
                    if self.param_shapes_constant:
                        factory = functools.partial(self._parameter_proxy, name, value)
                    cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
                return cache[name]
        return None

    def _parameter_proxy(self, name: str, value: Tensor, node: Node) -> ParameterProxy:
        return ParameterProxy(self, node, name, value)

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name for an attribute that the root does not have."""
        first = f"{prefix}0"
        if not hasattr(self.root, first):
            self._qualname_counter[prefix] = 0
            return first
        i = self._qualname_counter[prefix]
        while hasattr(self.root, name := f"{prefix}{i}"):
            i += 1
        self._qualname_counter[prefix] = i + 1
        return name

    def create_arg(self, a: Any) -> Argument:
        """A value as an argument of a Node; tensors become attributes of the root."""
        if isinstance(a, Parameter):
            for name, p in self.root.named_parameters():
                if a is p:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            for name, b in self.root.named_buffers():
                if a is b:
                    return self.create_node("get_attr", name, (), {})
        elif isinstance(a, Module):
            for name, m in self.root.named_modules():
                if a is m:
                    return self.create_node("get_attr", name, (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return self.create_node("call_function", type(a), tuple(self.create_arg(x) for x in a), {})
        if isinstance(a, Tensor):
            name = self.tensor_attrs.get(id(a)) or self._keep("_tensor_constant", a)
            return self.create_node("get_attr", name, (), {})
        if type(a) in _proxyable_classes:
            return self.create_node("get_attr", self._keep(f"_{type(a).__name__}_constant_", a), (), {})
        return super().create_arg(a)

    def _keep(self, prefix: str, value: Any) -> str:
        name = self.get_fresh_qualname(prefix)
        if isinstance(value, Tensor):
            self.tensor_attrs[id(value)] = name
        setattr(self.root, name, value)
        return name

    # --- inputs

    def _proxy_placeholder(
        self, name: str, concrete_args: dict[str, Any] | None, sig: inspect.Signature, fn: Callable[..., Any]
    ) -> Any:
        default: tuple[Any, ...] = ()
        if name[0] != "*" and sig.parameters[name].default is not inspect.Parameter.empty:
            default = (sig.parameters[name].default,)
        if concrete_args is None or name not in concrete_args:
            annotation = _annotation(fn, name)
            return self.create_proxy("placeholder", name, default, {}, type_expr=annotation)
        count = 0

        def replace(x: Any) -> Any:
            nonlocal count
            count += 1
            out = self.create_proxy("placeholder", f"{name}_{count}", default, {})
            if isinstance(x, PHBase):
                return out
            if isinstance(x, _CONSTANTS):
                message = f"{name} has been specialized to have value {x} but got another value"
                self.create_proxy("call_function", facade()._assert, (out == x, message), {})
            elif x is None:
                message = f"{name} has been specialized to have value None but got another value"
                self.create_proxy("call_function", _assert_is_none, (out, message), {})
            else:
                warnings.warn(
                    f"Was not able to add assertion to guarantee correct input {name} to specialized function. It is "
                    "up to the user to make sure that your inputs match the inputs you specialized the function with.",
                    stacklevel=2,
                )
            return x

        return pytree.tree_map(replace, concrete_args[name])

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: Any = None
    ) -> tuple[Any, list[Any]]:
        """The function to call and its arguments: a Proxy for each parameter."""
        fn: Any = inspect.unwrap(root_fn)
        code: CodeType = fn.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:total])
        sig = inspect.signature(fn)
        own: list[Any] = []
        if is_module:
            if total == 0:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            own = [self.root]
        names = names[len(own) :]
        if isinstance(concrete_args, tuple):
            if len(names) != len(concrete_args):
                raise RuntimeError(
                    f"Tracing expected {len(names)} arguments but got {len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(names, concrete_args))
        args = [self._proxy_placeholder(name, concrete_args, sig, fn) for name in names]
        if code.co_kwonlyargcount > 0 or code.co_flags & HAS_VARSTUFF:
            more = list(code.co_varnames[total:])
            if code.co_flags & inspect.CO_VARARGS:
                args.append(self._proxy_placeholder("*" + more.pop(0), concrete_args, sig, fn))
            if code.co_flags & inspect.CO_VARKEYWORDS:
                args.append(self._proxy_placeholder("**" + more.pop(0), concrete_args, sig, fn))
            root_fn = _without_stars(fn, len(own) + len(args))
        flat, in_spec = pytree.tree_flatten(tuple(args))
        if any(not child.is_leaf() for child in in_spec.children_specs):
            codegen = _PyTreeCodeGen(_PyTreeInfo(list(code.co_varnames[:total]), in_spec, None))
            self.graph.set_codegen(codegen)

            def flatten_fn(*given: Any) -> Any:
                count = len(own)
                out = root_fn(*given[:count], *pytree.tree_unflatten(list(given[count:]), in_spec))
                leaves, out_spec = pytree.tree_flatten(out)
                codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
                return leaves

            return flatten_fn, own + flat
        return root_fn, own + args

    # --- the trace

    def trace(self, root: Module | Callable[..., Any], concrete_args: Any = None) -> Graph:
        """The Graph of a module's forward, or of a function."""
        global _is_fx_tracing_flag
        before, _is_fx_tracing_flag = _is_fx_tracing_flag, True
        try:
            return self._trace(root, concrete_args)
        finally:
            _is_fx_tracing_flag = before

    def _trace(self, root: Any, concrete_args: Any) -> Graph:
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            fn: Any = getattr(type(root), self.traced_func_name)
            self.root_module_name = root._get_name()
            self.submodule_paths = {m: name for name, m in root.named_modules()}
        else:
            self.root = Module()
            fn = root
            self.submodule_paths = None
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs: dict[int, str] = {}
        for path, module in self.root.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    self.tensor_attrs[id(value)] = f"{path}.{name}" if path else name
        if not isinstance(inspect.unwrap(fn), FunctionType):
            raise AssertionError(f"Expected FunctionType, got {type(fn)}")
        fn_globals = inspect.unwrap(fn).__globals__
        self.num_calls.clear()
        returns = _annotation(fn, "return")
        fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
        cache: dict[str, Proxy] = {}
        orig_call, orig_getattr = Module.__call__, Module.__getattr__

        def module_getattr(mod: Module, attr: str) -> Any:
            return self.getattr(attr, orig_getattr(mod, attr), cache)

        with _Patcher() as patcher:

            def module_call(mod: Module, *args: Any, **kwargs: Any) -> Any:
                def forward(*args: Any, **kwargs: Any) -> Any:
                    return orig_call(mod, *args, **kwargs)

                where = getattr(getattr(mod, "forward", mod), "__globals__", {})
                _autowrap_check(patcher, where, self._autowrap_function_ids)
                return self.call_module(mod, forward, args, kwargs)

            patcher.set_attribute(Module, "__getattr__", module_getattr)
            patcher.set_attribute(Module, "__call__", module_call)
            _patch_wrapped_functions(patcher)
            _autowrap_check(patcher, fn_globals, self._autowrap_function_ids)
            for searched in self._autowrap_search:
                _autowrap_check(patcher, vars(searched), self._autowrap_function_ids)
            result = self.create_arg(fn(*args))
            self.create_node("output", "output", (result,), {}, type_expr=returns)
        self.submodule_paths = None
        return self.graph

    def __deepcopy__(self, memo: Any) -> Tracer:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        kept = {k: v for k, v in self.__dict__.items() if k != "_autowrap_search"}
        made.__dict__.update(copy.deepcopy(kept, memo))
        made._autowrap_search = list(self._autowrap_search)
        return made
