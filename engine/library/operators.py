"""torch.ops: operators by namespace and name, with their overloads.

`torch.ops.aten.add` is `torch.add`.  Other namespaces hold what `torch.library` defined, and the operators of compiled
extensions that are built in (`engine/_extensions`).
"""

from __future__ import annotations

import functools
import importlib
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from engine.core.grad_mode import mode
from engine.core.slots import Slot, Slots
from engine.dispatch import import_lazy, overriding
from engine.library.schema import MISSING, Argument, FunctionSchema, Type, parse_schema
from engine.ops import functions as torch
from engine.tensor import Tensor
from engine.torch_names.facade import facade

__all__ = ["OpNamespace", "OpOverload", "OpOverloadPacket", "OperatorBase", "load_library", "loaded_libraries"]

OPERATORS: dict[str, OpOverloadPacket] = {}  # "ns::name" -> its packet
loaded_libraries: set[str] = set()
COMPOSITE = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


class Registered(Slots):
    """The functions of `gradients.py` and `aten.py` that operators call."""

    gradients: Slot[Callable[..., Any]]  # gradients(operator, args, kwargs): the call of one with a formula
    aten: Slot[Callable[[str], Callable[..., Any] | None]]  # aten(name): the function in `aten.py`, if one is there


registered = Registered()


class _State(threading.local):
    below_autograd = False


state = _State()


class OperatorBase:
    """The base of every kind of operator."""


class OpOverload(OperatorBase):
    """One overload of an operator: its schema, its kernels by dispatch key, its gradient formula."""

    def __init__(self, packet: OpOverloadPacket, overload: str, schema: FunctionSchema | None, where: str = "") -> None:
        self.overloadpacket = packet
        self._opname = packet.__name__
        self._overloadname = overload or "default"
        self._name = packet._qualified_op_name + (f".{overload}" if overload else "")
        self.namespace = packet.namespace
        self.__name__ = self.__qualname__ = f"{packet.__name__}.{self._overloadname}"
        self.__module__ = f"torch._ops.{packet.namespace}"
        self.tags: tuple[Any, ...] = ()
        self.where = where  # the call that defined it
        self.kernels: dict[str, Callable[..., Any]] = {}
        self.formula: Any = None  # engine.library.gradients
        self.fake: Callable[..., Any] | None = None
        self.built_in = False  # the kernel has its own gradient
        self.unaliased = False  # a custom operator: results may share no memory with arguments
        if schema is not None:
            self._schema = schema
            self._positional = schema.positional
            self._named = {a.name: a for a in schema.arguments}

    def name(self) -> str:
        """`ns::name.overload`."""
        return self._name

    def has_kernel_for_dispatch_key(self, key: Any) -> bool:
        """Return whether a kernel is registered under a dispatch key."""
        return getattr(key, "name", str(key)) in self.kernels

    def has_kernel_for_any_dispatch_key(self, keys: Any) -> bool:
        """Return whether a kernel is registered under one of the keys."""
        return any(self.has_kernel_for_dispatch_key(key) for key in keys)

    def py_impl(self, key: Any) -> Callable[[Any], Any]:
        """A decorator that registers a kernel under a dispatch key."""

        def register(function: Any) -> Any:
            self.kernels[getattr(key, "name", str(key))] = function
            return function

        return register

    def decompose(self, *args: Any, **kwargs: Any) -> Any:
        """Call the composite kernel; NotImplemented without one."""
        found = self.kernels.get("CompositeImplicitAutograd")
        return NotImplemented if found is None else found(*args, **kwargs)

    @property
    def is_view(self) -> bool:
        """Return whether the schema says that the result shares memory with an argument that is not written."""
        return any(a.alias_info is not None and not a.alias_info.is_write for a in self._schema.arguments)

    # --- calling

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if (handled := _handled(self, args, kwargs)) is not NotImplemented:
            return handled
        args, kwargs = self.bind(args, kwargs)
        tensors = list(_tensors((*args, *kwargs.values())))
        if not state.below_autograd:
            autograd = self._autograd_kernel(tensors)
            if autograd is not None:
                return autograd(*args, **kwargs)
            if mode.enabled and not self.built_in and any(t.requires_grad for t in tensors):
                if self.formula is not None or self.unaliased:
                    return registered.gradients(self, args, kwargs)
                result = self.below(args, kwargs, tensors)
                return self._warned(result, tensors)
        return self.below(args, kwargs, tensors)

    def redispatch(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call the kernel below autograd."""
        args, kwargs = self.bind(args, kwargs)
        return self.below(args, kwargs)

    def _autograd_kernel(self, tensors: Sequence[Tensor]) -> Any:
        if not self.kernels.keys() & {"Autograd", "AutogradCPU", "AutogradCUDA"}:
            return None
        device = tensors[0].device.type if tensors else "cpu"
        return self.kernels.get(f"Autograd{device.upper()}") or self.kernels.get("Autograd")

    def below(self, args: Sequence[Any], kwargs: dict[str, Any], tensors: Sequence[Tensor] | None = None) -> Any:
        """Call the kernel of the arguments' device; NotImplementedError where there is none."""
        if tensors is None:
            tensors = list(_tensors((*args, *kwargs.values())))
        device = next((t.device.type for t in tensors if t.device.type != "cpu"), "cpu")
        for key in (device.upper(), *COMPOSITE):
            kernel = self.kernels.get(key)
            if kernel is not None:
                break
        else:
            raise NotImplementedError(
                f"Could not run '{self._name}' with arguments from the '{device.upper()}' backend. This could be "
                f"because the operator doesn't exist for this backend. '{self._name}' is only available for these "
                f"backends: [{', '.join(sorted(self.kernels))}]"
            )
        result = kernel(*args, **kwargs)
        if self.unaliased:
            self._check_alias(result, tensors)
        if not self.built_in:
            self._mark_written(args, kwargs)
        return result

    def _mark_written(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        """Raise the version of every argument that the schema says is written."""
        for i, argument in enumerate(self._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                value = kwargs.get(argument.name) if argument.kwarg_only else args[i] if i < len(args) else None
                for tensor in _tensors((value,)):
                    tensor._vc[0] += 1

    def _check_alias(self, result: Any, tensors: Sequence[Tensor]) -> None:
        seen = {t.untyped_storage().data_ptr() for t in tensors if t.numel()}
        for out in _tensors((result,)):
            at = out.untyped_storage().data_ptr() if out.numel() else None
            if any(out is t for t in tensors) or at in seen:
                raise RuntimeError(
                    f"{self._name} (with implementation in {self.where}): The output of this custom operator (1) must "
                    "not also be an input to this custom operator and (2) may not alias any inputs to this custom "
                    "operator or other returns. The most common way to trigger this error is if we have y = "
                    "custom_op(x) and y and x are the same Tensor. Please instead return a clone of the offending "
                    "output tensor(s) (e.g. return x.clone()) or refactor the custom operator to not return y."
                )
            if at is not None:
                seen.add(at)

    def _warned(self, result: Any, tensors: Sequence[Tensor]) -> Any:
        """The result of a kernel without gradient formula; going back through it warns, as in torch."""
        if "CompositeImplicitAutograd" in self.kernels:
            return result

        def warn(grad: Any) -> None:
            warnings.warn(
                f"{self._name}: an autograd kernel was not registered to the Autograd key(s) but we are trying to "
                "backprop through it. This may lead to silently incorrect behavior. If your operator is "
                "differentiable, please ensure you have registered an autograd kernel "
                "(torch.library.register_autograd).",
                stacklevel=2,
            )

        for out in _tensors((result,)):
            if out.requires_grad and not any(out is t for t in tensors):
                out.register_hook(warn)
        return result

    # --- arguments

    def bind(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments in the schema's order, checked; trailing defaults are left to the kernel."""
        positional, name = self._positional, self.overloadpacket._qualified_op_name
        if len(args) > len(positional):
            raise RuntimeError(
                f"{name}() takes {len(positional)} positional argument(s) but {len(args)} was/were given.  "
                f"Declaration: {self._schema}"
            )
        for key in kwargs:
            if key not in self._named:
                raise RuntimeError(f"Unknown keyword argument '{key}' for operator '{name}'. Schema: {self._schema}")
        values: list[Any] = []
        given = len(args)
        for i, argument in enumerate(positional):
            if i < len(args):
                if argument.name in kwargs:
                    raise RuntimeError(f"{name}() got multiple values for argument '{argument.name}'")
                value = args[i]
            elif argument.name in kwargs:
                value, given = kwargs[argument.name], i + 1
            elif argument.default is MISSING:
                raise RuntimeError(
                    f"{name}() is missing value for argument '{argument.name}'. Declaration: {self._schema}"
                )
            else:
                values.append(argument.default)
                continue
            values.append(self._checked(argument, i, value))
        named = {}
        for i, argument in enumerate(self._schema.arguments):
            if not argument.kwarg_only:
                continue
            if argument.name in kwargs:
                named[argument.name] = self._checked(argument, i, kwargs[argument.name])
            elif argument.default is MISSING:
                raise RuntimeError(
                    f"{name}() is missing value for argument '{argument.name}'. Declaration: {self._schema}"
                )
        return tuple(values[:given]), named

    def filled(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Bound arguments with every default."""
        whole = (*args, *(a.default_value for a in self._positional[len(args) :]))
        named = {a.name: kwargs.get(a.name, a.default_value) for a in self._schema.arguments if a.kwarg_only}
        return whole, named

    def _checked(self, argument: Argument, position: int, value: Any) -> Any:
        fitted = fit(argument.type, value)
        if fitted is _UNFIT:
            raise RuntimeError(
                f"{self.overloadpacket._qualified_op_name}() Expected a value of type '{argument.type}' for argument "
                f"'{argument.name}' but instead found type '{type(value).__name__}'.\nPosition: {position}\nValue: "
                f"{value!r}\nDeclaration: {self._schema}\nCast error details: Unable to cast {value!r} to "
                f"{argument.type}"
            )
        return fitted

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='{self.namespace}.{self._opname}', overload='{self._overloadname}')>"


def _handled(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result that a mode, a Proxy of torch.fx or a class with `__torch_function__` gives for a call; else
    NotImplemented."""
    values = (*args, *kwargs.values())
    flat = [v for value in values for v in (value if isinstance(value, list | tuple) else (value,))]
    found = [v for v in flat if v.__class__ is not Tensor and hasattr(type(v), "__torch_function__")]
    proxy = next((v for v in found if issubclass(type(v), tuple(overriding.hidden))), None)
    if proxy is not None:
        return proxy.__torch_function__(operator, (type(proxy),), args, kwargs)
    if not overriding.state.modes and (not found or overriding.state.without):
        return NotImplemented
    return overriding.handled(operator, overriding.overriding(values), args, kwargs)


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


_UNFIT = object()


def fit(of: Type, value: Any) -> Any:
    """A value as a type of a schema has it, `_UNFIT` where it is none."""
    kind = of.kind
    if kind == "Tensor":
        return value if value is None or isinstance(value, Tensor) else _UNFIT
    if kind == "Optional":
        return None if value is None else fit(of.inner[0], value)
    if kind in ("int", "SymInt"):
        if isinstance(value, float | str):
            return _UNFIT
        try:
            return value.__index__()
        except (AttributeError, TypeError, RuntimeError):
            return _UNFIT
    if kind == "float":
        if isinstance(value, Tensor):
            return float(value) if value.dim() == 0 else _UNFIT
        return float(value) if hasattr(value, "__float__") and not isinstance(value, str) else _UNFIT
    if kind == "bool":
        return bool(value) if isinstance(value, bool) or type(value).__name__ == "bool_" else _UNFIT
    if kind == "str":
        return value if isinstance(value, str) else _UNFIT
    if kind == "Scalar":
        return value if isinstance(value, bool | int | float | complex | Tensor) or hasattr(value, "item") else _UNFIT
    if kind == "Device":
        return torch.device(value) if isinstance(value, str | int | torch.device) else _UNFIT
    if kind == "List":
        if of.size is not None and isinstance(value, int | float) and fit(of.inner[0], value) is not _UNFIT:
            return [value] * of.size
        if not isinstance(value, list | tuple):
            return _UNFIT
        found = [fit(of.inner[0], v) for v in value]
        return _UNFIT if any(v is _UNFIT for v in found) else found
    return value


class OpOverloadPacket(OperatorBase):
    """An operator by name: its overloads are attributes, a call goes to the first whose arguments fit."""

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.__name__ = self.__qualname__ = name
        self._qualified_op_name = f"{namespace}::{name}"
        self.__module__ = f"torch._ops.{namespace}"
        self._overloads: dict[str, OpOverload] = {}

    def overloads(self) -> list[str]:
        """The names of the overloads."""
        return [name or "default" for name in self._overloads]

    @property
    def _schemas(self) -> dict[str, FunctionSchema]:
        return {name: one._schema for name, one in self._overloads.items()}

    @property
    def op(self) -> OpOverloadPacket:
        """The operator itself."""
        return self

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if (handled := _handled(self, args, kwargs)) is not NotImplemented:
            return handled
        found = list(self._overloads.values())
        for one in found[:-1]:
            try:
                one.bind(args, kwargs)
            except RuntimeError:
                continue
            return one(*args, **kwargs)
        return found[-1](*args, **kwargs)

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        found = self._overloads.get("" if name == "default" else name)
        if found is None:
            raise AttributeError(f"The underlying op of '{self}' has no overload name '{name}'")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.overloads())

    def __str__(self) -> str:
        return f"{self.namespace}.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self.namespace}.{self.__name__}')>"


def _called(function: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function of an operator of aten: what does not fit its parameters is a RuntimeError, as in torch."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        raise RuntimeError(f"{name}: {error}") from error


class _FunctionOverload(OpOverload):
    """An overload of `aten`: the function of that name, whatever the overload."""

    def __init__(self, packet: _FunctionPacket, overload: str) -> None:
        super().__init__(packet, "" if overload == "default" else overload, None)
        self.function = packet.function
        self.__doc__ = packet.function.__doc__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _called(self.function, self._name, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name == "_schema":
            raise AttributeError(f"the schema of '{self._name}' is not known: operators of aten have none here")
        raise AttributeError(f"'OpOverload' object has no attribute '{name}'")


class _FunctionPacket(OpOverloadPacket):
    """An operator of `aten`."""

    def __init__(self, namespace: str, name: str, function: Callable[..., Any]) -> None:
        super().__init__(namespace, name)
        self.function = function
        self.__doc__ = function.__doc__

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return _called(self.function, self._qualified_op_name, args, kwargs)

    def overloads(self) -> list[str]:
        """`default`."""
        return ["default"]

    def __getattr__(self, name: str) -> OpOverload:
        if name.startswith("__"):
            raise AttributeError(f"'OpOverloadPacket' object has no attribute '{name}'")
        return self._overloads.setdefault(name, _FunctionOverload(self, name))


def _refuse(op: str, *args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError(f"torch.ops.{op} is not supported: the engine has no such operator")


class OpNamespace:
    """`torch.ops.NAME`.

    In `aten` and `prims` every function of `torch` and `torch.nn.functional`; those that the engine lacks (`_to_copy`)
    can be named, as code does that registers its own for them; calling one raises NotImplementedError.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.__name__ = f"torch.ops.{name}"

    def __getattr__(self, op: str) -> Any:
        if not op.startswith("__"):
            found = OPERATORS.get(f"{self.name}::{op}")
            if found is None and built_in(self.name):
                found = OPERATORS.get(f"{self.name}::{op}")
            if found is not None:
                return found
            if self.name in ("aten", "prims"):
                return _function(self, op)
            family = sys.modules.get(f"engine.ops.{self.name}")  # whose other modules import it by this name
            if family is not None and op in vars(family):
                return vars(family)[op]
        raise AttributeError(f"'_OpNamespace' '{self.name}' object has no attribute '{op}'")

    def __dir__(self) -> list[str]:
        built_in(self.name)
        return sorted(key.partition("::")[2] for key in OPERATORS if key.startswith(f"{self.name}::"))

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dir__())

    def __repr__(self) -> str:
        return f"<module 'torch.ops.{self.name}' from 'torch.ops'>"


def _function(namespace: OpNamespace, op: str) -> OpOverloadPacket:
    from engine.ops.aten_operators import ATEN  # at the first use of an operator: it brings the lazy families

    named = facade()
    known = registered.aten(op), ATEN.get(op)
    for function in (*known, *(getattr(home, op, None) for home in (named, named.nn.functional, torch.Tensor))):
        if callable(function):
            made = _FunctionPacket(namespace.name, op, function)
            setattr(namespace, op, made)
            return made
    name = f"{namespace.name}.{op}"
    return _lacking.setdefault(name, _FunctionPacket(namespace.name, op, functools.partial(_refuse, name)))


_lacking: dict[str, OpOverloadPacket] = {}  # operators that the engine lacks: each is one object, as a key of counts


def built_in(namespace: str) -> bool:
    """Define the operators of a compiled extension that are built in, if the namespace is that of one."""
    from engine.library import extensions as _extensions

    module = _extensions.NAMESPACES.get(namespace)
    if module is None:
        return False
    importlib.import_module(f"engine.library.extensions.{module}")
    return True


def define(schema: FunctionSchema, where: str = "") -> OpOverload:
    """A new operator; RuntimeError where there is one of that name and overload."""
    packet = OPERATORS.get(schema.name)
    if packet is None:
        namespace, _, name = schema.name.partition("::")
        packet = OPERATORS[schema.name] = OpOverloadPacket(namespace, name)
        ops = facade().ops
        if not isinstance(getattr(ops, namespace), OpNamespace):  # the name of a family of the engine's own
            import_lazy()
            setattr(ops, namespace, OpNamespace(namespace))
    if schema.overload_name in packet._overloads:
        raise RuntimeError(
            f"Tried to register an operator ({schema}) with the same name and overload name multiple times. Each "
            "overload's schema should only be registered with a single call to def(). Duplicate registration: "
            f"registered at {where}. Original registration: registered at "
            f"{packet._overloads[schema.overload_name].where}"
        )
    made = packet._overloads[schema.overload_name] = OpOverload(packet, schema.overload_name, schema, where)
    return made


def define_built_in(namespace: str, schema: str, function: Callable[..., Any]) -> None:
    """Define an operator of the engine's own, whose kernel, a function of Tensors, has its own gradient."""
    made = define(parse_schema(f"{namespace}::{schema}"), "the engine")
    made.kernels["CompositeImplicitAutograd"] = function
    made.built_in = True


def undefine(one: OpOverload) -> None:
    """Forget an operator: the library that defined it is gone."""
    packet = one.overloadpacket
    packet._overloads.pop(one._schema.overload_name, None)
    if not packet._overloads:
        OPERATORS.pop(packet._qualified_op_name, None)


def find(name: str) -> OpOverload:
    """The operator `ns::name` or `ns::name.overload`; AttributeError in torch's words where there is none."""
    namespace, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    return getattr(getattr(getattr(facade().ops, namespace), op), overload or "default")


def load_library(path: Any) -> None:
    """Accept the compiled extensions whose operators are built in; OSError for any other, and for a missing file."""
    from engine.library import extensions as _extensions

    path = Path(path)
    if not _extensions.known(path):  # else a checkout without its compiled part will do
        if not path.exists():
            raise OSError(f"Could not load this library: {path}: no such file")
        raise OSError(
            f"Could not load this library: {path}: the engine, which stands in for torch here, loads no compiled "
            f"extensions; those built in are of {', '.join(_extensions.packages())}"
        )
    loaded_libraries.add(str(path.resolve()))


def caller(depth: int = 2) -> str:
    """`file:line` of a call, for messages."""
    frame = sys._getframe(depth)
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_OpNamespace, HigherOrderOperator = OpNamespace, OperatorBase
