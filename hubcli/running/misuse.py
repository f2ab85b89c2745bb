"""Errors of repository code that the user's own arguments or input have caused, told as such.

Status 2 with the signature, instead of a report to the repository.  What a wrong input looks like is known by the kind
of the exception and its words: a fault of the repository's own of that kind is told in the same way, with its place.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hubcli.errors import RepositoryCodeError, UsageError
from hubcli.running import invoke
from hubcli.running.invoke import Result

_KEYWORD = re.compile(r"got (?:an unexpected keyword argument|multiple values for (?:keyword )?argument) '(\w+)'")
_KINDS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
_OF_INPUT = re.compile(
    r"shape|size|dimension|\bdims?\b|dtype|data type|scalar type|channel|broadcast|multiplied|must match|out of range"
    r"|values to unpack|expected .*(tensor|input|long|int|float|double|half|type)",
    re.IGNORECASE,
)


def call(function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], spec: str) -> Any:
    """Call an entrypoint; a keyword of the user's that is refused further inside is a UsageError."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        found = _KEYWORD.search(str(error))
        if found is None or found.group(1) not in kwargs:
            raise
        raise UsageError(
            f"{name} does not take {found.group(1)!r}: {error}",
            hint=f"its signature is {name}{signature(function)}, and it passes on what it does not know",
            spec=spec,
        ) from error


@contextlib.contextmanager
def of_inputs(result: Result, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Iterator[None]:
    """Around `invoke.running`, where the model is called with these tensors: what they cause is a UsageError."""
    kwargs = kwargs or {}
    name, taken = result.entrypoint, _forward(result.value)
    try:
        parameters: inspect.Signature | None = inspect.signature(_callee(result.value))
    except (TypeError, ValueError):  # nothing is known of what is written in C
        parameters = None
    if parameters is not None:
        try:
            parameters.bind(*args, **kwargs)
        except TypeError as error:
            hint = _advice(taken, args, kwargs)
            raise UsageError(f"the inputs do not fit {name}: {error}", hint=hint, spec=result.spec) from None
    try:
        yield
    except RepositoryCodeError as error:
        cause = error.__cause__
        gap = type(error) is not RepositoryCodeError or isinstance(cause, NotImplementedError)
        if gap or not isinstance(cause, _KINDS) or not _OF_INPUT.search(str(cause)):
            raise
        raise UsageError(
            f"{name} does not take this input: {error.message}", hint=_advice(taken, args, kwargs), spec=result.spec
        ) from cause


def signature(function: Any) -> str:
    """The parameters as text, `(...)` where they are not known."""
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "(...)"


def _callee(model: Any) -> Any:
    return model.forward if invoke.is_module(model) else model


def _forward(model: Any) -> str:
    return f"{'forward' if invoke.is_module(model) else 'call'}{signature(_callee(model))}"


def _advice(taken: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    given = [_described(one) for one in args] + [f"{name}={_described(one)}" for name, one in kwargs.items()]
    return f"the model takes {taken}; it was given {', '.join(given) or 'nothing'}"


def _described(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).rpartition('.')[2]} {tuple(value.shape)}"
    return repr(value)[:40]
