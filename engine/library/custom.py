"""`custom_op`: a function as an operator, its schema from its annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.library import gradients
from engine.library import operators as _ops
from engine.library.infer_schema import infer_schema
from engine.library.schema import parse_schema
from engine.library.utils import is_functional_schema, parse_namespace

__all__ = ["OPDEFS", "CustomOpDef", "custom_op", "keys_of_devices"]

OPDEFS: dict[str, CustomOpDef] = {}
_ops.registered.gradients = gradients.call


def keys_of_devices(device_types: str | Sequence[str] | None) -> list[str]:
    """The dispatch keys of devices; None: of all."""
    if device_types is None or device_types == "default":
        return ["CompositeExplicitAutograd"]
    return [d.upper() for d in ([device_types] if isinstance(device_types, str) else device_types)]


class CustomOpDef:
    """A custom operator: call it, or register more of it."""

    def __init__(self, namespace: str, name: str, schema: str, function: Callable[..., Any]) -> None:
        self._namespace, self._name, self._schema, self._init_fn = namespace, name, schema, function
        self.__name__, self.__doc__ = name, function.__doc__
        known = OPDEFS.pop(self._qualname, None)
        if known is not None:  # defined anew, as in a notebook
            _ops.undefine(known._opoverload)
        self._opoverload = _ops.define(parse_schema(f"{self._qualname}{schema}"), _ops.caller(3))
        self._opoverload.unaliased = True
        self._opoverload.where = f"{inspect.getmodule(function) or '__main__'}"
        self._enabled: dict[str, bool] = {}
        OPDEFS[self._qualname] = self

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def register_kernel(self, device_types: Any, fn: Any = None, /) -> Any:
        """The implementation for devices ("cpu", "cuda", ...; None: every one); also as a decorator."""

        def register(function: Any) -> Any:
            for key in keys_of_devices(device_types):
                self._opoverload.kernels[key] = self._switched(key, function)
            return function

        return register if fn is None else register(fn)

    def _switched(self, key: str, function: Any) -> Any:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            chosen = function if self._enabled.get(key, True) else self._init_fn
            return chosen(*args, **kwargs)

        return kernel

    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Any:
        """A context in which the kernel registered for a device is used or not; it acts at once, too."""
        (key,) = keys_of_devices(device_type)
        before = self._enabled.get(key, True)
        self._enabled[key] = enabled
        return _Restored(self._enabled, key, before)

    def register_fake(self, fn: Any = None, /, **kwargs: Any) -> Any:
        """Register the function that describes the results without computing them, for `opcheck`; nothing here runs on
        fake tensors."""

        def register(function: Any) -> Any:
            self._opoverload.fake = function
            return function

        return register if fn is None else register(fn)

    def register_autograd(self, backward: Callable[..., Any], /, *, setup_context: Any = None) -> None:
        """`backward(ctx, *grads)` and, before it, `setup_context(ctx, inputs, output)`."""
        if not is_functional_schema(self._opoverload._schema):
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self} with schema "
                f"{self._opoverload._schema}. Please create a functional operator and register an autograd formula for "
                "that."
            )
        set_formula(self._opoverload, backward, setup_context)

    def register_vmap(self, func: Any = None, /) -> Any:
        """Kept without effect: `vmap` calls the operator once per slice."""
        return (lambda function: function) if func is None else func

    def register_torch_dispatch(self, torch_dispatch_class: Any, fn: Any = None, /) -> Any:
        """Kept without effect: operations do not consult `__torch_dispatch__`."""
        return (lambda function: function) if fn is None else fn

    def register_autocast(self, device_type: str, cast_inputs: Any) -> None:
        """Kept without effect: under autocast the operator is given what the caller gives it."""

    def register_effect(self, effect: Any) -> None:
        """Kept without effect: nothing is reordered."""


class _Restored:
    def __init__(self, table: dict[str, bool], key: str, before: bool) -> None:
        self.undo = (table, key, before)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        table, key, before = self.undo
        table[key] = before


def set_formula(one: _ops.OpOverload, backward: Callable[..., Any], setup_context: Any) -> None:
    """Give an operator a gradient formula; what is built in keeps its own, which can be differentiated again."""
    if not one.built_in:
        full = f"{one.namespace}::{one._opname}.{one._overloadname}"
        one.formula = gradients.Formula(backward, setup_context, gradients.made_for(full))


def custom_op(
    name: str,
    fn: Any = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: Any = None,
    schema: str | None = None,
    tags: Any = None,
    prototype: Any = None,
) -> Any:
    """Make a function the operator "ns::name"; a decorator without `fn`.

    mutates_args: the parameters that it writes.  device_types: of which devices it is the kernel, None: of every one.
    schema: "(Tensor x) -> Tensor" in place of what the annotations say.  prototype: whose annotations count.
    """

    def decorate(function: Any) -> CustomOpDef:
        namespace, op = parse_namespace(name)
        said = infer_schema(prototype or function, mutates_args=mutates_args) if schema is None else schema
        written = (
            [] if mutates_args == "unknown" else [mutates_args] if isinstance(mutates_args, str) else list(mutates_args)
        )
        if schema is not None:
            parsed = parse_schema(f"{name}{schema}")
            marked = {a.name for a in parsed.arguments if a.alias_info is not None and a.alias_info.is_write}
            if mutates_args != "unknown" and marked != set(written):
                raise ValueError(
                    f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={schema}. The "
                    f"schema suggests that the op mutates {sorted(marked)} which is different from what was provided "
                    "to us in `mutates_args`. Please make these consistent."
                )
        made = CustomOpDef(namespace, op, said, function)
        for key in keys_of_devices(device_types):
            made._opoverload.kernels[key] = made._switched(key, function)
        return made

    return decorate if fn is None else decorate(fn)
