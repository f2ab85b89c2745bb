"""The listeners behind `__torch_function__`: Note [Calls that a class handles] in `engine/dispatch/overriding.py`.

They stay once an instance of a class that handles calls was made; those for a mode alone go when the last one is left.
For a layout of the engine's own only the functions that it has something for have one: the others refuse it anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import engine.fx.proxy  # noqa: F401 (a class of `hidden`)
from engine import autograd, dispatch
from engine.dispatch.gate import Listener, without_listeners
from engine.dispatch.overriding import HANDLES, PLAIN, Without, handled, kind_of, kinds, listeners, overriding, state
from engine.dispatch.overriding import handlers_of as _handlers_of
from engine.dispatch.overriding import listening as _listening
from engine.dispatch.overriding import unwrapped as _unwrapped
from engine.fx._listening import _DATA, _OPERATORS, listened
from engine.fx._names import _names, called_as
from engine.tensor import Tensor

__all__ = ["ask", "begin", "class_made", "entered", "left", "methods", "name_of", "properties"]

kinds.clear()
kinds[Tensor] = PLAIN

# Methods of Tensor that are never handled: what makes a tensor, Python's protocols, and what torch leaves out.
_IGNORED_METHODS = frozenset(
    [
        "__new__",
        "__init__",
        "__init_subclass__",
        "__getattr__",
        "__dir__",
        "__hash__",
        "__setstate__",
        "__iter__",
        "__torch_function__",
        "as_subclass",
    ]
)
# Functions that query the program, not tensors, or that make tensors of other objects by other routes.
_IGNORED = frozenset(
    """are_deterministic_algorithms_enabled clear_autocast_cache compile cond default_generator finfo from_file
    get_autocast_cpu_dtype get_autocast_dtype get_autocast_gpu_dtype get_default_device get_default_dtype
    get_deterministic_debug_mode get_float32_matmul_precision get_num_interop_threads get_num_threads get_rng_state
    initial_seed is_anomaly_check_nan_enabled is_anomaly_enabled is_autocast_cache_enabled is_autocast_cpu_enabled
    is_autocast_enabled is_deterministic_algorithms_warn_only_enabled is_inference_mode_enabled is_warn_always_enabled
    promote_types seed set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled set_autocast_dtype
    set_autocast_enabled set_autocast_gpu_dtype set_default_device set_default_dtype set_default_tensor_type
    set_deterministic_debug_mode set_float32_matmul_precision set_flush_denormal set_num_interop_threads
    set_num_threads set_printoptions set_rng_state set_warn_always use_deterministic_algorithms vmap while_loop
    can_cast calculate_gain handle_torch_function has_torch_function memory_stats get_device_module result_type
    """.split()
)
# torch names these methods otherwise than those of Python's operators that fx records
_METHODS = {
    **_OPERATORS,
    "__neg__": "neg",
    "__abs__": "abs",
    "__invert__": "bitwise_not",
    "__rand__": "bitwise_and",
    "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor",
    "__iand__": "__iand__",
    "__rmatmul__": "__rmatmul__",
}

_lock = threading.RLock()
_always = False
_entered = 0
_few: set[str] = set()  # names of the functions that the engine's own layouts handle, once there is such a tensor
_heard: dict[FunctionType, str | None] = {}  # what is listened to; for operators the name of the method
_properties: dict[str, property] = {}


def methods() -> dict[str, FunctionType]:
    """The methods of Tensor that can be handled."""
    return {
        name: value
        for name, value in vars(Tensor).items()
        if isinstance(value, FunctionType)
        and name not in _IGNORED_METHODS
        and (name[0] != "_" or name[:2] == "__" or name in ("_is_view", "_values", "_indices", "_nnz"))
    }


def properties() -> dict[str, property]:
    """The properties of Tensor, as they were before anything listened."""
    if not _properties:
        _properties.update({n: v for n, v in vars(Tensor).items() if isinstance(v, property) and n[0] != "_"})
    return _properties


class _Heard(property):
    """A property whose reading and writing are handled."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        plain = _properties[self.name]
        if instance is None:
            return plain  # `Tensor.shape` is what it was: handlers compare it
        if state.modes or (not state.without and kind_of(type(instance)) == HANDLES):
            return ask(plain.__get__, plain.__get__, (instance,), {})
        return plain.fget(instance)  # type: ignore[misc]

    def __set__(self, instance: Any, value: Any) -> None:
        plain = _properties[self.name]
        if state.modes or (not state.without and overriding((instance, value))):
            ask(plain.__set__, plain.__set__, (instance, value), {})
        else:
            plain.__set__(instance, value)

    name: str


def _listening_property(name: str, plain: property) -> _Heard:
    made = _Heard(plain.fget, plain.fset, plain.fdel, plain.__doc__)
    made.name = name
    return made


def ask(function: Any, own: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call handed to who handles it; `own(...)` where there is nobody.  TypeError if all decline."""
    found = _handlers_of((*args, *kwargs.values()))
    if not found and not state.modes:
        return own(*args, **kwargs)
    modes = state.modes
    result = handled(function, found, args, kwargs)
    if result is NotImplemented:
        raise TypeError(_declined(function, found, modes))
    return result


def _declined(function: Any, found: list[Any], modes: list[Any]) -> str:
    name = name_of(function)
    if name.startswith(("torch.functional.", "torch.nn.")):
        return (
            f"no implementation found for '{name}' on types that implement __torch_function__: "
            f"{[type(value) for value in found]}"
        )
    lines = [f"  - mode object {modes[-1]!r}"] if modes else []
    lines += [f"  - tensor subclass {type(value)}" for value in found]
    return (
        f"Multiple dispatch failed for '{name}'; all __torch_function__ handlers returned NotImplemented:\n\n"
        + "\n".join(lines)
        + "\n\nFor more information, try re-running with TORCH_LOGS=not_implemented"
    )


@cache
def _method_names() -> dict[int, str]:
    """The name of each method of Tensor that is no public function, by its id."""
    return {id(value): name for name, value in reversed(list(methods().items()))}


def name_of(function: Any) -> str:
    """The dotted name under which torch has a function, a method or a property's `__get__`; "" for others."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, property):
        for name, value in properties().items():
            if value is owner:
                return f"torch.Tensor.{name}.{function.__name__}"
    known = _names().get(id(function), "")
    if known.startswith("torch._C._nn."):
        return known.replace("_C._nn", "nn.functional")
    if known.startswith("torch._C."):  # torch._C._linalg.linalg_norm
        kind, name = known.split(".")[2:]
        return f"torch.{kind[1:]}.{name[len(kind) :]}"
    if known:
        return known
    method = _method_names().get(id(function))
    return f"torch.Tensor.{method}" if method else ""


@cache
def _facts(function: FunctionType) -> tuple[Any, bool, bool, bool]:
    """Return the object that handlers get for a function, and whether it is an operator, makes data, is written in
    Python."""
    method = _heard[function]
    named: Any = (getattr(Tensor, method, None) if method else None) or function
    from_python = _names().get(id(function), "").startswith(("torch.functional.", "torch.nn."))
    return named, method is not None, function.__name__ in _DATA, from_python


def _handlers_first(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[..., Any]
) -> Any:
    func, is_operator, blind, from_python = _facts(function)
    found = [] if blind else _handlers_of((*args, *kwargs.values()))
    modes = state.modes
    if not found and not modes:
        return proceed(*args, **kwargs)
    if from_python:
        try:
            func, args, kwargs = called_as(function, without_listeners(function), args, kwargs)
        except TypeError:  # what does not fit: the function says it best
            return proceed(*args, **kwargs)
        if isinstance(func, str):
            func = getattr(Tensor, func)
    result = handled(func, found, args, kwargs)
    if result is NotImplemented and not is_operator:
        raise TypeError(_declined(func, found, modes))
    return result


def _hear(
    function: FunctionType,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    proceed: Callable[..., Any],
    lookup: Callable[..., int] = kinds.get,
    local: Any = state,
) -> Any:
    """Look for who handles the call; else it goes on."""
    if kwargs or local.modes:
        return _handlers_first(function, args, kwargs, proceed)
    for value in args:
        if lookup(type(value), HANDLES):
            return _handlers_first(function, args, kwargs, proceed)
    return proceed(*args)


def _hear_backward(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[..., Any]
) -> Any:
    def below(*args: Any, **kwargs: Any) -> Any:
        with Without(modes=True):  # the formulas of a backward pass are below all handlers
            return proceed(*args, **kwargs)

    return _hear(function, args, kwargs, below)


_BACKWARD = (autograd.backward, autograd.grad, Tensor.backward)
_calls, _passes = Listener(_hear, stubs=True), Listener(_hear_backward, stubs=True)
listeners += [_calls, _passes]


def _listen() -> None:
    """Listen to the functions that are to be heard now: all, a few, or none."""
    if not _listening[0] and not _few:
        _calls.end()
        _passes.end()
        return
    wanted = _chosen() if _listening[0] else _chosen(*sorted(_few))
    if _calls.count:
        for listener, chosen in zip(listeners, wanted):
            listener.change(chosen)
    else:
        for listener, chosen in zip(listeners, wanted):
            listener.begin(chosen)


@cache
def _chosen(*names: str) -> tuple[dict[FunctionType, None], dict[FunctionType, None]]:
    """The functions of these names for each of the two listeners; all without a name."""
    found = [f for f in functions() if not names or _of_few(f)]
    return (
        dict.fromkeys(f for f in found if f not in _BACKWARD),
        dict.fromkeys(f for f in found if f in _BACKWARD),
    )


def _of_few(function: FunctionType) -> bool:
    return function.__name__ in _few or _heard[function] in _few


def functions() -> dict[FunctionType, str | None]:
    """Every function that can be handled; of operators with the name of the method that torch gives handlers."""
    if not _heard:
        dispatch.import_lazy()
        operators = {id(vars(Tensor)[n]): m for n, m in _METHODS.items() if n in vars(Tensor)}
        for function, method in listened():
            if function.__name__ not in _IGNORED and not function.__name__.startswith("_check"):
                _heard[function] = operators.get(id(function), method)
        for name, function in methods().items():
            _heard.setdefault(function, operators.get(id(function)))
            if not hasattr(function, "op") and id(function) not in _names():
                function.__name__ = name  # what handlers print
        _heard[autograd.backward] = None
        _unwrapped.add(properties()["grad"].__get__)
    return _heard


def begin() -> None:
    """Put the listeners in."""
    with _lock:
        if _listening[0]:
            return
        _listening[0] = True
        _listen()
        for name, own in properties().items():
            setattr(Tensor, name, _listening_property(name, own))


def end() -> None:
    """Take them out."""
    global _always
    with _lock:
        if not _listening[0]:
            return
        _listening[0] = _always = False
        _listen()
        for name, own in properties().items():
            if isinstance(vars(Tensor).get(name), _Heard):
                setattr(Tensor, name, own)


def class_made(names: set[str] | None = None) -> None:
    """There is an object that handles calls: the listeners stay.  names: of the functions, if not of all."""
    global _always
    if names is not None:
        with _lock:
            _few.update(names)
            if not _listening[0]:
                _listen()
        return
    begin()
    _always = True


def entered(mode: Any) -> None:
    """A mode becomes the innermost of this thread."""
    global _entered
    with _lock:
        _entered += 1
        begin()
    state.modes = [*state.modes, mode]


def left() -> Any:
    """The innermost mode of this thread, which is left."""
    global _entered
    mode = state.modes[-1]
    state.modes = state.modes[:-1]
    with _lock:
        _entered -= 1
        if not _entered and not _always:
            end()
    return mode
