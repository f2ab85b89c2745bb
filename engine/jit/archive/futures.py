"""`fork` and `wait`: calls that may run beside others run at once here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["Future", "fork", "wait"]


class Future:
    """A result that is there already."""

    __module__ = "engine.jit"

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def done(self) -> bool:
        """True."""
        return True

    def value(self) -> Any:
        """The result."""
        return self._value

    wait = value

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A Future of `callback(self)`."""
        return Future(callback(self))

    def set_result(self, result: Any) -> None:
        """Replace the result."""
        self._value = result


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
    """Call `func` at once; its result as a Future."""
    return Future(func(*args, **kwargs))


def wait(future: Future) -> Any:
    """The result of a Future."""
    return future.wait()
