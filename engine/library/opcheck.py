"""`torch.library.opcheck`: whether a custom operator does what its schema and registrations say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from engine.core.grad_mode import no_grad
from engine.library import operators as _ops
from engine.tensor import Tensor

__all__ = ["OpCheckError", "opcheck"]

TESTS = ("test_schema", "test_autograd_registration", "test_faketensor")


class OpCheckError(Exception):
    """A check that failed."""


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for v in value:
            yield from _tensors(v)
    elif isinstance(value, dict):
        yield from _tensors(list(value.values()))


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, list | tuple):
        return type(value)(_copied(v) for v in value)
    return {k: _copied(v) for k, v in value.items()} if isinstance(value, dict) else value


def _check_schema(op: Any, args: Any, kwargs: Any) -> None:
    """Only what the schema marks as written is written, and results are as many as it says."""
    before = _copied((args, kwargs))
    with no_grad():
        found = op(*args, **kwargs)
    schema = op._schema
    values = [*zip(schema.positional, args), *((op._named[k], v) for k, v in kwargs.items())]
    olds = [*before[0], *before[1].values()]
    for (argument, value), old in zip(values, olds):
        written = argument.alias_info is not None and argument.alias_info.is_write
        same = all(a.equal(b) or (a != a).any() for a, b in zip(_tensors(value), _tensors(old)))
        if not same and not written:
            raise OpCheckError(f"argument {argument.name} was written, which the schema {schema} does not say")
    count = 0 if found is None else len(found) if isinstance(found, tuple) else 1
    if count != len(schema.returns):
        raise OpCheckError(f"{count} results where the schema {schema} says {len(schema.returns)}")


def _check_autograd(op: Any, args: Any, kwargs: Any) -> None:
    """A gradient formula is registered where an argument requires grad."""
    if not any(t.requires_grad for t in _tensors((args, kwargs))):
        return
    result = op(*args, **kwargs)
    floats = [t for t in _tensors(result if isinstance(result, tuple | list) else (result,)) if t.is_floating_point()]
    formula = op.formula is not None or op.built_in or "CompositeImplicitAutograd" in op.kernels
    if floats and not formula and not op.kernels.keys() & {"Autograd", "AutogradCPU", "AutogradCUDA"}:
        raise OpCheckError(f"{op} has no gradient formula, but an argument requires grad")


def _check_fake(op: Any, args: Any, kwargs: Any) -> None:
    """The fake kernel gives results of the true shapes and dtypes."""
    if op.fake is None:
        if not op.built_in and "CompositeImplicitAutograd" not in op.kernels:
            raise OpCheckError(f"There was no fake impl registered for {op}. Please use register_fake to add one.")
        return
    with no_grad():
        real = op(*_copied(args), **_copied(kwargs))
        fake = op.fake(*_copied(args), **_copied(kwargs))
    for a, b in zip(_tensors((real,)), _tensors((fake,)), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise OpCheckError(f"{op}: the fake impl gives {b.dtype} {list(b.shape)}, not {a.dtype} {list(a.shape)}")


def opcheck(
    op: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    test_utils: Any = TESTS,
    raise_exception: bool = True,
    atol: Any = None,
    rtol: Any = None,
) -> dict[str, Any]:
    """Check an operator with sample arguments: test -> "SUCCESS" or the exception.

    The tests of compilation ("test_aot_dispatch_static", ..."_dynamic") are not supported.
    """
    from engine.library.custom import CustomOpDef

    names = [test_utils] if isinstance(test_utils, str) else list(test_utils)
    if isinstance(op, CustomOpDef):
        op = op._opoverload
    elif isinstance(op, _ops.OpOverloadPacket):
        op = getattr(op, op.overloads()[0])
    checks = {
        "test_schema": _check_schema,
        "test_autograd_registration": _check_autograd,
        "test_faketensor": _check_fake,
    }
    results: dict[str, Any] = {}
    for name in names:
        if name.startswith("test_aot_dispatch"):
            raise NotImplementedError(f"opcheck's {name} is not supported: there is no compiler to compare with")
        if name not in checks:
            raise ValueError(f"opcheck: {name} is none of {', '.join(TESTS)}")
        try:
            checks[name](op, _copied(tuple(args)), _copied(dict(kwargs or {})))
            results[name] = "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(
                    f"opcheck(op, ...): {name} failed with {error} (scroll up for stack trace)"
                ) from error
            results[name] = error
    return results
