"""Errors of a call that the user's own arguments or input have caused, reported as usage errors.

Status 2 with the signature, instead of a report to the repository.  What a wrong input looks like is known by the kind
of the exception and its words: a fault of the repository's own of that kind is reported in the same form, with its
place."""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hubcli.base import output
from hubcli.errors import RepositoryCodeError, UsageError
from hubcli.running.result import Result, is_module

_KEYWORD = re.compile(r"got (?:an unexpected keyword argument|multiple values for (?:keyword )?argument) '(\w+)'")
_KINDS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)
_OF_INPUT = re.compile(
    r"shape|size|dimension|\bdims?\b|dtype|data type|scalar type|channel|broadcast|multiplied|must match|out of range"
    r"|values to unpack|expected .*(tensor|input|long|int|float|double|half|type)",
    re.IGNORECASE,
)


def call(function: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any], spec: str) -> Any:
    """Call an entrypoint; a keyword of the user's that is refused further inside is a UsageError.

    And so is an error after a value of another kind than the signature says.
    """
    try:
        return function(*args, **kwargs)
    except _KINDS as error:
        found = _KEYWORD.search(str(error)) if isinstance(error, TypeError) else None
        if found is None or found.group(1) not in kwargs:
            other = None if isinstance(error, NotImplementedError) else _of_another_kind(function, args, kwargs)
            if other is None:
                raise
            raise UsageError(
                f"{name} was given {other}: {error}",
                hint=f"its signature is {name}{signature(function)}",
                spec=spec,
            ) from error
        raise UsageError(
            f"{name} does not take {found.group(1)!r}: {error}",
            hint=f"its signature is {name}{signature(function)}, and it passes on what it does not know",
            spec=spec,
        ) from error


_PLAIN: Mapping[Any, type] = {"int": int, "float": float, "bool": bool, "str": str}
_WIDER: Mapping[type, set[type]] = {bool: {int, float}, int: {float}}  # True is an int, 3 may stand for a float


def _of_another_kind(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Return the first value of another kind than its annotation or default, where these are plain; null fits all."""
    try:
        signed = inspect.signature(function)
        given = signed.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return None
    for name, value in given.items():
        kinds = _kinds(signed.parameters[name])
        wider = _WIDER.get(type(value), set())
        if value is not None and kinds and type(value) not in kinds and not wider & kinds:
            wanted = " or ".join(sorted(output.a(kind.__name__) for kind in kinds))
            return f"{name}={repr(value)[:100]}, where its signature has {wanted}"
    return None


def _kinds(parameter: inspect.Parameter) -> set[type]:
    """Return the plain types that a parameter's annotation allows, else its default's; empty where it is not that
    plain."""
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return set()
    declared = parameter.annotation
    if declared is parameter.empty:
        declared = type(parameter.default)
    text = (
        declared.__name__ if isinstance(declared, type) else str(declared)
    )  # `int | None` as text is what it was in the source
    names = [one.strip() for one in text.split("|") if one.strip() != "None"]
    return {_PLAIN[one] for one in names} if all(one in _PLAIN for one in names) else set()


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
            f"{name} does not take this input: {error.message}",
            hint=_advice(taken, args, kwargs),
            spec=result.spec,
            causes=error.causes,
        ) from cause


def signature(function: Any) -> str:
    """Return the parameters as text, `(...)` where they are not known."""
    try:
        return str(inspect.signature(function))
    except (TypeError, ValueError):
        return "(...)"


def _callee(model: Any) -> Any:
    return model.forward if is_module(model) else model


def _forward(model: Any) -> str:
    return f"{'forward' if is_module(model) else 'call'}{signature(_callee(model))}"


def _advice(taken: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    given = [_described(one) for one in args] + [f"{name}={_described(one)}" for name, one in kwargs.items()]
    return f"the model takes {taken}; it was given {', '.join(given) or 'nothing'}"


def _described(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{str(value.dtype).rpartition('.')[2]} {tuple(value.shape)}"
    return repr(value)[:40]
