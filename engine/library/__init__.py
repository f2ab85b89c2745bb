"""torch.library: operators defined from Python.

https://docs.pytorch.org/docs/2.13/library.html
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from engine.library import operators as _ops
from engine.library.custom import OPDEFS, CustomOpDef, custom_op, keys_of_devices, set_formula
from engine.library.infer_schema import infer_schema
from engine.library.opcheck import opcheck
from engine.library.schema import parse_schema
from engine.library.triton import triton_op, wrap_triton
from engine.library.utils import is_functional_schema, parse_namespace
from engine.torch_names._C.dispatch import DispatchKey

__all__ = [
    "CustomOpDef",
    "Library",
    "custom_op",
    "define",
    "fallthrough_kernel",
    "get_ctx",
    "get_kernel",
    "impl",
    "impl_abstract",
    "infer_schema",
    "opcheck",
    "register_autocast",
    "register_autograd",
    "register_fake",
    "register_kernel",
    "register_torch_dispatch",
    "register_vmap",
    "triton_op",
    "wrap_triton",
]

_defined: dict[str, str] = {}  # namespaces with a "DEF" library -> where


def _function_of_aten(name: str) -> Callable[..., Any] | None:
    from engine.library.aten import FUNCTIONS  # they weigh: only who calls an operator of aten pays

    if name in FUNCTIONS or not name.endswith(("_backward", "_forward")):
        return FUNCTIONS.get(name)
    from engine.library.aten_gradients import GRADIENTS

    return GRADIENTS.get(name)


_ops.registered.aten = _function_of_aten


def fallthrough_kernel() -> None:
    """Given to `Library.impl`, it registers nothing; NotImplementedError when called."""
    raise NotImplementedError("fallthrough_kernel() should never be called.")


class Library:
    """Definitions ("DEF", one for a namespace; "FRAGMENT") or kernels ("IMPL") of the operators of a namespace.

    They last as long as the Library.
    """

    def __init__(self, ns: str, kind: str, dispatch_key: str = "") -> None:
        if kind not in ("IMPL", "DEF", "FRAGMENT"):
            raise ValueError(f"Unsupported kind: {kind}")
        if ns == "prim" and kind != "IMPL":
            raise ValueError(f"{ns} is a reserved namespace. Please try creating a library with another name.")
        where = _ops.caller()
        if kind == "DEF":
            if ns in _defined:
                raise RuntimeError(
                    f"Only a single TORCH_LIBRARY can be used to register the namespace {ns}; please put all of your "
                    "definitions in a single TORCH_LIBRARY block.  If you were trying to specify implementations, "
                    "consider using TORCH_LIBRARY_IMPL (which can be duplicated).  If you really intended to define "
                    "operators for a single namespace in a distributed way, you can use TORCH_LIBRARY_FRAGMENT to "
                    f"explicitly indicate this.  Previous registration of TORCH_LIBRARY was registered at "
                    f"{_defined[ns]}; latest registration was registered at {where}"
                )
            _defined[ns] = where
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key
        if dispatch_key:
            _checked_key(dispatch_key)
        self._op_defs: set[str] = set()
        self._op_impls: set[str] = set()
        self._undo: list[Callable[[], Any]] = []
        if kind == "DEF":
            self._undo.append(lambda: _defined.pop(ns, None))
        self._finalizer = weakref.finalize(self, _undo_all, self._undo)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        return f"Library(kind={self.kind}, ns={self.ns}, dispatch_key={self.dispatch_key})>"

    def define(self, schema: str, alias_analysis: str = "", *, tags: Any = ()) -> str:
        """Define an operator; gives its name.  schema: `name(Tensor x) -> Tensor`."""
        if alias_analysis not in ("", "FROM_SCHEMA", "CONSERVATIVE"):
            raise RuntimeError(f"Invalid alias_analysis type {alias_analysis}")
        if self.kind == "IMPL":
            raise RuntimeError(
                f'def("{schema}"): Cannot define an operator inside of a TORCH_LIBRARY_IMPL block.  All def()s should '
                "be placed in the (unique) TORCH_LIBRARY block for their namespace."
            )
        text = schema if "::" in schema.partition("(")[0] else f"{self.ns}::{schema}"
        one = _ops.define(parse_schema(text), _ops.caller())
        one.tags = tuple(tags) if isinstance(tags, Sequence) else (tags,)
        one.kernels.update(_waiting.pop(one._name, {}))
        self._op_defs.add(one._name)
        self._undo.append(lambda: _ops.undefine(one))
        return one._name

    def impl(
        self,
        op_name: Any,
        fn: Callable[..., Any],
        dispatch_key: str = "",
        *,
        with_keyset: bool = False,
        allow_override: bool = False,
    ) -> None:
        """Register a kernel of an operator, for the library's dispatch key or another."""
        if not callable(fn):
            raise TypeError(f"Input function is required to be a callable but found type {type(fn)}")
        key = _checked_key(dispatch_key or self.dispatch_key or "CompositeImplicitAutograd")
        if isinstance(op_name, _ops.OpOverload):
            name = op_name._name
        elif isinstance(op_name, str):
            name = op_name if "::" in op_name else f"{self.ns}::{op_name}"
        else:
            raise RuntimeError("impl should be passed either a name or an OpOverload object as the first argument")
        if name.partition("::")[0] != self.ns:
            raise RuntimeError(f"{name} is not an operator of {self}")
        kernel = _with_keyset(fn, key) if with_keyset else fn
        self._op_impls.add(f"{name}/{key}")
        if fn is fallthrough_kernel:
            return
        if self.ns == "aten" and key not in _INERT:
            raise NotImplementedError(
                f"torch.library: a kernel of {name} for {key} is not supported: the engine's own operators are not "
                "dispatched by key"
            )
        try:
            one = _ops.find(name)
        except AttributeError:  # before its definition, as torch permits
            _waiting.setdefault(name, {})[key] = kernel
            return
        self._undo.append(lambda: one.kernels.pop(key, None))
        if one.built_in and key not in _INERT:
            one.built_in = False
        one.kernels[key] = kernel

    def fallback(self, fn: Callable[..., Any], dispatch_key: str = "", *, with_keyset: bool = False) -> None:
        """NotImplementedError: there is no dispatch by key to fall back from."""
        raise NotImplementedError("torch.library.Library.fallback is not supported: operators do not dispatch by key")

    def _register_fake(self, op_name: str, fn: Any, _stacklevel: int = 1, **kwargs: Any) -> None:
        register_fake(f"{self.ns}::{op_name}", fn)

    def _destroy(self) -> None:
        self._finalizer()


# keys under which nothing is ever looked for: no meta or fake tensors, no autocast, no tracing
_INERT = frozenset(
    ["Meta", "Functionalize", "Python", "PythonTLSSnapshot", "BackendSelect", "ADInplaceOrView"]
    + [key.name for key in DispatchKey if key.name.startswith(("Autocast", "FuncTorch", "Batched", "Sparse"))]
)
_waiting: dict[str, dict[str, Any]] = {}


def _checked_key(key: Any) -> str:
    name = getattr(key, "name", key)
    if name not in DispatchKey.__members__:
        raise RuntimeError(f"could not parse dispatch key: {name}")
    return name


def _with_keyset(fn: Callable[..., Any], key: str) -> Callable[..., Any]:
    from engine.torch_names._C.dispatch import DispatchKeySet

    keys = DispatchKeySet(DispatchKey[key])
    return lambda *args, **kwargs: fn(keys, *args, **kwargs)


def _undo_all(steps: list[Callable[[], Any]]) -> None:
    while steps:
        steps.pop()()


_keep_alive: list[Library] = []


def _library(ns: str, lib: Library | None) -> Library:
    if lib is None:
        lib = Library(ns, "FRAGMENT")
        _keep_alive.append(lib)
    return lib


def define(qualname: Any, schema: Any, *rest: Any, lib: Library | None = None, tags: Any = ()) -> Any:
    """Define the operator "ns::name" with a schema "(Tensor x) -> Tensor".  `define(lib, schema)` is a decorator."""
    if isinstance(qualname, Library):  # the form of torch 1.13
        library, text = qualname, schema

        def decorate(function: Any) -> Any:
            name = library.define(text, *rest)
            library.impl(name, function)
            return function

        return decorate
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    ns, name = parse_namespace(qualname)
    if not isinstance(schema, str) or not schema.lstrip().startswith("("):
        raise ValueError(
            f"define(qualname, schema, ...): expected schema to look like e.g. "
            f'"(Tensor x) -> Tensor" but got "{schema}"'
        )
    _library(ns, lib).define(name + schema, tags=tags)
    return None


def impl(qualname: Any, types: Any, func: Any = None, *rest: Any, lib: Library | None = None) -> Any:
    """Register a kernel of "ns::name" for devices ("cpu", ["cpu", "cuda"], "default") or a dispatch key."""
    if isinstance(qualname, Library):  # impl(lib, name, dispatch_key)

        def old(function: Any) -> Any:
            qualname.impl(types, function, func or "")
            return function

        return old
    keys: list[str] = []
    for kind in [types] if isinstance(types, str) else types:
        keys += [kind] if kind in DispatchKey.__members__ else keys_of_devices(kind)
    name = qualname._name if isinstance(qualname, _ops.OpOverload) else qualname
    ns, _ = parse_namespace(name)

    def register(function: Any) -> Any:
        library = _library(ns, lib)
        for key in keys:
            library.impl(name, function, key)
        return function

    if func is None:
        return register
    register(func)
    return None


def _resolved(op: Any, doing: str) -> tuple[str, CustomOpDef | None]:
    if isinstance(op, CustomOpDef):
        return op._qualname, op
    if isinstance(op, _ops.OpOverload):
        op = op._name
    if not isinstance(op, str):
        raise ValueError(f"{doing}({op}): got unexpected type for op: {type(op)}")
    return op, OPDEFS.get(op)


def register_kernel(op: Any, device_types: Any, func: Any = None, /, *, lib: Library | None = None) -> Any:
    """Register a kernel for devices; None: for every one."""
    name, custom = _resolved(op, "register_kernel")
    if custom is not None:
        return custom.register_kernel(device_types, func)
    return impl(name, device_types or "default", func, lib=lib)


def register_fake(
    op: Any, func: Any = None, /, *, lib: Library | None = None, _stacklevel: int = 1, allow_override: bool = True
) -> Any:
    """Register the function that describes an operator's results without computing them, for `opcheck`."""
    name, _ = _resolved(op, "register_fake")
    ns, opname = parse_namespace(name)

    def register(function: Any) -> Any:
        packet = _ops.OPERATORS.get(f"{ns}::{opname.partition('.')[0]}") if ns != "aten" else None
        if packet is None and _ops.built_in(ns):
            packet = _ops.OPERATORS.get(f"{ns}::{opname.partition('.')[0]}")
        if packet is None and ns != "aten":
            raise RuntimeError(f"operator {name} does not exist")
        if packet is not None:
            getattr(packet, opname.partition(".")[2] or packet.overloads()[0]).fake = function
        return function

    return register if func is None else register(func)


impl_abstract = register_fake


def register_autograd(
    op: Any, backward: Callable[..., Any], /, *, setup_context: Any = None, lib: Library | None = None
) -> None:
    """Give an operator a gradient: `backward(ctx, *grads)`, after `setup_context(ctx, inputs, output)`.

    Operators that are built in keep their own.
    """
    name, custom = _resolved(op, "register_autograd")
    if custom is not None:
        custom.register_autograd(backward, setup_context=setup_context)
        return
    one = _ops.find(name)
    if not hasattr(one, "_schema"):
        raise NotImplementedError(f"torch.library.register_autograd of {name} is not supported: it has its own")
    if not is_functional_schema(one._schema):
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {one} with schema {one._schema}. Please "
            "create a functional operator and register an autograd formula for that."
        )
    set_formula(one, backward, setup_context)


def register_vmap(op: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Kept without effect: `vmap` calls the operator once per slice."""
    _resolved(op, "register_vmap")
    return (lambda function: function) if func is None else func


def register_torch_dispatch(op: Any, torch_dispatch_class: Any, func: Any = None, /, *, lib: Any = None) -> Any:
    """Kept without effect: operations do not consult `__torch_dispatch__`."""
    _resolved(op, "register_torch_dispatch")
    return (lambda function: function) if func is None else func


def register_autocast(op: Any, device_type: str, cast_inputs: Any, /, *, lib: Any = None) -> None:
    """Kept without effect: under autocast the operator is given what the caller gives it."""
    _resolved(op, "register_autocast")


def _register_effectful_op(op: Any, effect: Any, *, lib: Any = None) -> None:
    _resolved(op, "register_effectful_op")


def get_ctx() -> Any:
    """NotImplementedError: no operator runs on fake tensors."""
    raise NotImplementedError("torch.library.get_ctx is not supported: no operator runs on fake tensors here")


def get_kernel(op: Any, dispatch_key: Any) -> Any:
    """The kernel of an operator for a dispatch key; RuntimeError where there is none."""
    name, _ = _resolved(op, "get_kernel")
    key = _checked_key(dispatch_key)
    found = _ops.find(name).kernels.get(key)
    if found is None:
        raise RuntimeError(f"no kernel of {name} for dispatch key {key}")
    return found
