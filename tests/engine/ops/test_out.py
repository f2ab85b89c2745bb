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
        kept = out[:1] if case.name == "_native_batch_norm_legit" else out  # its statistics have no gradient
        assert forgets or all(t.requires_grad or not t.is_floating_point() for t in kept)


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


def test_expanded_memory_is_not_written() -> None:
    x, index = engine.arange(6.0).view(2, 3), engine.tensor([0, 1])
    for shape in ((2, 2), (3, 4)):  # that of the result, and another
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single"):
            engine.index_select(x, 1, index, out=engine.zeros(1).expand(shape))


def test_complex_wants_its_very_dtype() -> None:
    x = engine.ones(2, dtype=engine.float64)
    for function in (engine.complex, engine.polar):
        with pytest.raises(
            RuntimeError, match="Expected object of scalar type ComplexDouble but got scalar type Complex"
        ):
            function(x, x, out=engine.empty(2, dtype=engine.complex64))


def test_lu_is_copied_into_any_dtype_and_keeps_the_graph() -> None:
    x = engine.tensor([[2.0, 1.0], [4.0, 3.0]], requires_grad=True)
    out = (engine.empty(0, dtype=engine.int64), engine.empty(1, dtype=engine.int32))
    assert engine.lu(x.detach(), out=out) is out
    assert out[0].tolist() == [[4, 3], [0, 0]] and out[1].tolist() == [2, 2]
    kept = (engine.empty(2, 2), engine.empty(2, dtype=engine.int32))
    engine.lu(x, out=kept)
    assert kept[0].requires_grad


def test_least_squares() -> None:
    a, b = engine.tensor([[1.0, 0], [0, 1], [1, 1]]), engine.tensor([[1.0], [2], [3.5]])
    out = tuple(engine.empty(0, dtype=d) for d in (engine.float32, engine.float32, engine.int64, engine.float32))
    found = engine.linalg.lstsq(a, b, driver="gelsd", out=out)
    plain = engine.linalg.lstsq(a, b, driver="gelsd")
    assert found.solution is out[0] and all(x.equal(y) for x, y in zip(out, plain))
    inside = engine.linalg.lstsq(a.requires_grad_(), b)
    assert inside.residuals.requires_grad and inside.residuals.shape == (0,)


def test_what_is_copied_into_out_keeps_its_graph() -> None:
    """Cases in which torch computes apart and copies, though the function refuses others."""
    x = engine.randn(4, 4, requires_grad=True)
    for call in (
        lambda out: engine.fft.ifft(x, out=out),
        lambda out: engine.fft.ihfft(x, out=out),
        lambda out: engine.linalg.matrix_power(x, 1, out=out),
        lambda out: engine.diff(x, 0, out=out),
    ):
        plain = call(None)
        out = call(engine.empty(0, dtype=plain.dtype))
        assert out.requires_grad and engine.equal(out, plain)
        both = [engine.autograd.grad(engine.view_as_real(y + 0j).sum(), x)[0] for y in (out, plain)]
        engine.testing.assert_close(*both)
    for call in (
        lambda out: engine.fft.ifft(x + 0j, out=out),
        lambda out: engine.fft.fft(x, out=out),
        lambda out: engine.linalg.matrix_power(x, 2, out=out),
        lambda out: engine.diff(x, 1, out=out),
        lambda out: engine.inner(x, engine.tensor(2.0), out=out),
    ):
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            call(engine.empty(0, dtype=call(None).dtype))
    assert engine.inner(x, x, out=engine.empty(4, 4)).requires_grad


def test_integers_are_no_place_for_what_has_no_kernel_for_them() -> None:
    x, place = engine.tensor([1.0, float("nan")]), engine.zeros((), dtype=engine.int64)
    for call in (engine.nansum, engine.nanmean):
        with pytest.raises(NotImplementedError, match="\"nansum_cpu\" not implemented for 'Long'"):
            call(x, out=place)
    with pytest.raises(NotImplementedError, match="\"normal_kernel_cpu\" not implemented for 'Long'"):
        engine.normal(x, engine.ones(2), out=engine.zeros(2, dtype=engine.int64))
    assert engine.nanmean(x, out=engine.zeros(())).item() == 1
    two = engine.inner(engine.tensor(2), engine.arange(3), out=engine.empty(3, dtype=engine.float64))
    assert two.tolist() == [0, 2, 4]
