"""`out=` of every op and composite that takes it: written, returned, made to fit, its neighbours left alone."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import engine
import engine.ops.lazy
from engine.tensor import Tensor
from tests.engine.ops.test_registry import close, every, host
from tests.engine.samples import Case, mapped, tensors_of

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def takes_out(case: Case) -> bool:
    if case.op is not None:
        return case.op.out and case.op.public
    return "out" in inspect.signature(case.function).parameters


def results(case: Case, target: Any) -> tuple[list[Tensor], Any, Any]:
    """The plain results, what `out=` was, and what the call returned: `target(result)` makes each place."""
    args, kwargs = case.arguments()
    args, kwargs = (mapped(x, lambda t: t.detach()) for x in (args, kwargs))
    if not case.deterministic:
        engine.manual_seed(7)
    expected = tensors_of(case.function(*args, **kwargs))
    made = [target(t) for t in expected]
    out = made[0] if len(made) == 1 else tuple(made)
    if not case.deterministic:
        engine.manual_seed(7)
    return expected, made, case.function(*args, **kwargs, out=out)


@every(takes_out)
def test_an_empty_one_is_made_to_fit(case: Case) -> None:
    expected, made, got = results(case, lambda t: engine.empty(0, dtype=t.dtype))
    close(made, expected)
    if got is not None:  # torch's functions of several results without names return nothing
        assert [id(t) for t in tensors_of(got)] == [id(t) for t in made]


@every(takes_out)
def test_a_view_is_written_in_place(case: Case) -> None:
    bases: list[Tensor] = []

    def part(t: Tensor) -> Tensor:
        shape = tuple(t.shape) or (1,)
        base = engine.ones((*shape[:-1], shape[-1] + 2), dtype=t.dtype)
        bases.append(base)
        inner = base[..., 1:-1]
        return inner if t.dim() else inner[0]

    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing is resized
        warnings.filterwarnings("ignore", "(?!An output)")
        expected, made, _ = results(case, part)
    close(made, expected)
    for base in bases:
        assert (host(base)[..., 0] == 1).all() and (host(base)[..., -1] == 1).all()


@every(takes_out)
def test_an_operand_that_requires_grad_is_refused_or_keeps_its_graph(case: Case) -> None:
    args, kwargs = case.arguments()
    given = [t for t in tensors_of([args, kwargs]) if t.requires_grad]
    if not given:
        pytest.skip("no operand requires grad")
    out = [engine.zeros(t.shape, dtype=t.dtype) for t in tensors_of(case.function(*args, **kwargs))]
    try:
        case.function(*args, **kwargs, out=out[0] if len(out) == 1 else tuple(out))
    except RuntimeError as error:
        assert "functions with out=... arguments don't support automatic differentiation" in str(error)
        for t in out:
            np.testing.assert_array_equal(host(t), 0)
    else:
        forgets = case.name in ("split_copy", "split_with_sizes_copy", "unbind_copy")  # as in torch
        assert forgets or all(t.requires_grad or not t.is_floating_point() for t in out)


@every(takes_out)
def test_another_dtype_is_cast_or_refused(case: Case) -> None:
    """Nothing is written where the result's kind of number does not fit."""
    args, kwargs = case.arguments()
    args, kwargs = (mapped(x, lambda t: t.detach()) for x in (args, kwargs))
    expected = tensors_of(case.function(*args, **kwargs))
    out = [engine.full(t.shape, 3, dtype=engine.int32) for t in expected]
    if not any(t.is_floating_point() or t.is_complex() for t in expected) or case.name in ("cumsum", "cumprod"):
        pytest.skip("whole numbers fit, or are what is computed")
    if not case.deterministic or case.name == "bernoulli":
        pytest.skip("drawn in the dtype of out")
    with pytest.raises((RuntimeError, TypeError)):
        case.function(*args, **kwargs, out=out[0] if len(out) == 1 else tuple(out))
    assert all((t == 3).all() for t in out)
