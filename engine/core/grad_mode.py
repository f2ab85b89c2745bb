"""Grad mode: whether operations record history.  One flag a thread, on by default.

`no_grad`, `enable_grad`, `set_grad_enabled`, `inference_mode` work as contexts and as decorators
(https://docs.pytorch.org/docs/2.13/autograd.html#locally-disabling-gradient-computation).
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Generator
from typing import Any, Self, TypeVar

__all__ = [
    "enable_grad",
    "inference_mode",
    "inferring",
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "no_grad",
    "set_grad_enabled",
]


Function = TypeVar("Function", bound=Callable[..., Any])


class _Mode(threading.local):
    enabled = True
    inference = False


mode = _Mode()
inferring = [0]  # how many threads and contexts are inside inference_mode: results look at it before they ask `mode`
_count = threading.Lock()


def is_grad_enabled() -> bool:
    """Return whether operations of this thread record history."""
    return mode.enabled


def is_inference_mode_enabled() -> bool:
    """Return whether this thread is inside `inference_mode`."""
    return mode.inference


class _GradContext:
    """A context manager that sets the flag to `_value`, usable as a decorator of functions and generators."""

    _value = True

    def __init__(self) -> None:
        self._previous: list[Any] = []  # what `__exit__` restores

    def __new__(cls, function: Callable[..., object] | None = None, *args: object, **kwargs: object) -> Any:
        if callable(function):  # @no_grad without parentheses
            return cls()(function)
        return super().__new__(cls)

    def __enter__(self) -> None:
        self._previous.append(mode.enabled)
        mode.enabled = self._value and not mode.inference  # where nothing is recorded whatever is set

    def __exit__(self, *exc: object) -> None:
        mode.enabled = self._previous.pop()

    def clone(self) -> _GradContext:
        """A fresh context of the same setting: a decorated function may call itself."""
        return type(self)()

    def __call__(self, function: Function) -> Function:
        if inspect.isclass(function):
            function.__init__ = self(function.__init__)  # type: ignore[method-assign]
            return function
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def steps(*args: object, **kwargs: object) -> Generator[object, object, object]:
                generator = function(*args, **kwargs)
                sent: object = None
                raised: BaseException | None = None
                while True:
                    try:
                        with self.clone():
                            value = generator.send(sent) if raised is None else generator.throw(raised)
                    except StopIteration as stop:
                        return stop.value
                    sent, raised = None, None
                    try:
                        sent = yield value
                    except GeneratorExit:
                        generator.close()
                        raise
                    except BaseException as error:
                        raised = error

            return steps  # type: ignore[return-value]  # called as the function is

        @functools.wraps(function)
        def call(*args: object, **kwargs: object) -> object:
            with self.clone():
                return function(*args, **kwargs)

        return call  # type: ignore[return-value]  # the same


class no_grad(_GradContext):
    """Operations inside record no history: their results have `requires_grad=False`.  Factories are exempt."""

    _value = False


class enable_grad(_GradContext):
    """Operations inside record history, also inside an outer `no_grad`."""

    _value = True


class set_grad_enabled(_GradContext):
    """Sets the mode at once; as a context, restores it at the end."""

    def __new__(cls, mode: bool, *args: object, **kwargs: object) -> Self:
        return object.__new__(cls)

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):
            raise TypeError(
                "set_grad_enabled(): argument 'enabled' (position 1) must be bool, not " + type(mode).__name__
            )
        self._value = mode
        self._previous = [globals()["mode"].enabled]
        globals()["mode"].enabled = self._value and not globals()["mode"].inference

    def __enter__(self) -> None:
        pass

    def clone(self) -> _GradContext:
        return set_grad_enabled(self._value)

    def __call__(self, function: Function) -> Function:
        mode.enabled = self._previous[0]  # as a decorator the constructor's effect is undone
        return super().__call__(function)


class inference_mode(_GradContext):
    """`no_grad` whose results are inference tensors: Note [Inference tensors] in `autograd/versions.py`."""

    _value = False

    def __new__(cls, mode: bool | Callable[..., object] = True) -> Any:
        if callable(mode):
            return cls(True)(mode)
        return object.__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        self._previous = []
        self.mode = mode

    def __enter__(self) -> None:
        self._previous.append((mode.enabled, mode.inference))
        with _count:
            inferring[0] += self.mode
        if self.mode:
            mode.enabled, mode.inference = False, True
        else:
            mode.enabled, mode.inference = True, False

    def __exit__(self, *exc: object) -> None:
        mode.enabled, mode.inference = self._previous.pop()
        with _count:
            inferring[0] -= self.mode

    def clone(self) -> _GradContext:
        return inference_mode(self.mode)
