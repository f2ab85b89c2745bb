"""`gradcheck` and `gradgradcheck`: analytic gradients against central differences.

By default the whole Jacobian, column by column, as torch; `fast_mode=True` compares one random direction (two
evaluations a function), as HIPS autograd's checks do.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.autograd.api import grad
from engine.core.grad_mode import enable_grad, mode
from engine.tensor import Tensor, wrap

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]


class GradcheckError(RuntimeError):
    """A gradient disagrees with the finite difference."""


def _tensors(values: Any) -> tuple[Any, ...]:
    if isinstance(values, Tensor):
        return (values,)
    return tuple(values) if isinstance(values, tuple | list) else (values,)


def _differentiable(outputs: Any) -> list[Tensor]:
    return [o for o in _tensors(outputs) if isinstance(o, Tensor) and o.requires_grad]


def _evaluate(func: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    return func(*inputs)


def _values(func: Callable[..., Any], inputs: Sequence[Any], which: Sequence[int]) -> list[np.ndarray]:
    outputs = _tensors(_evaluate(func, inputs))
    return [np.array(outputs[i].detach().numpy(force=True)) for i in which]


def _bump(tensor: Tensor, index: Any, delta: Any) -> None:
    tensor._array[index] += delta


def _numerical(
    func: Callable[..., Any],
    inputs: Sequence[Any],
    target: Tensor,
    which: Sequence[int],
    eps: float,
) -> list[np.ndarray]:
    """For each output d(output)/d(target), shape (target.numel, output.numel); complex as d/dRe + i d/dIm."""
    columns: list[list[np.ndarray]] = [[] for _ in which]
    steps = [eps, 1j * eps] if target.is_complex() else [eps]
    for index in np.ndindex(*target._array.shape):
        totals: list[Any] = [0.0] * len(which)
        original = target._array[index].copy() if target._array.ndim else target._array.copy()
        for step in steps:
            _bump(target, index, step)
            high = _values(func, inputs, which)
            target._array[index] = original
            _bump(target, index, -step)
            low = _values(func, inputs, which)
            target._array[index] = original
            for k, (h, low_k) in enumerate(zip(high, low)):
                slope = (h - low_k).reshape(-1) / (2 * eps)
                totals[k] = totals[k] + (slope if step is steps[0] else 1j * slope)
        for k, total in enumerate(totals):
            columns[k].append(np.asarray(total))
    return [np.array(c) if c else np.zeros((0, 0)) for c in columns]


def _analytical(output: Tensor, inputs: Sequence[Tensor]) -> list[np.ndarray]:
    """For each input d(output)/d(input), shape (input.numel, output.numel)."""
    count = output.numel()
    found = [
        np.zeros((i.numel(), count), output._array.dtype if output.is_complex() else i._array.dtype) for i in inputs
    ]
    for k in range(count):
        weight = np.zeros(count, output._array.dtype)
        weight[k] = 1
        gradients = grad(
            output,
            list(inputs),
            wrap(weight.reshape(output._array.shape)),
            retain_graph=True,
            allow_unused=True,
        )
        for j, gradient in enumerate(gradients):
            if gradient is not None:
                if gradient._array.shape != inputs[j]._array.shape:
                    raise GradcheckError(
                        f"Gradient for input {j} has shape {gradient.shape}, expected {inputs[j].shape}"
                    )
                found[j][:, k] = gradient.detach().numpy().reshape(-1)
    return found


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Return whether the gradients of `func` at `inputs` agree with central differences.

    Args:
        func: A function of tensors that returns a tensor or a tuple of them.
        inputs: A Tensor or a sequence; those that require grad are checked and should be float64.
        eps: The step of the differences.
        atol: Absolute tolerance.
        rtol: Relative tolerance.
        raise_exception: Raise where they differ; else return False.
        nondet_tol: How far two backward passes may differ.
        check_forward_ad: Tangents of dual numbers are compared, too.
        check_backward_ad: False: nothing but tangents.
        fast_mode: Compare along one random direction only.
        check_undefined_grad: Accepted, as are check_grad_dtypes, check_batched_grad, check_batched_forward_grad and
            masked.

    Returns:
        True, or False with raise_exception=False.

    Raises:
        GradcheckError: they differ (a RuntimeError).
        ValueError: no input requires grad.
    """
    given = _tensors(inputs)
    checked = [t for t in given if isinstance(t, Tensor) and t.requires_grad]
    if not checked:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have "
            "requires_grad=True."
        )
    for i, t in enumerate(given):
        if isinstance(t, Tensor) and t.requires_grad and t._array.dtype not in (np.float64, np.complex128):
            warnings.warn(
                f"Input #{i} requires gradient and is not a double precision floating point or complex. This check "
                "will likely fail if all the inputs are not of double precision floating point or complex.",
                stacklevel=2,
            )
    try:
        if check_backward_ad:
            _check(func, given, checked, eps, atol, rtol, nondet_tol, fast_mode)
        if check_forward_ad:
            _check_tangents(func, given, checked, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check(
    func: Callable[..., Any],
    given: Sequence[Any],
    checked: Sequence[Tensor],
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
    fast_mode: bool,
) -> None:
    outputs = _tensors(_evaluate(func, given))
    which = [i for i, o in enumerate(outputs) if isinstance(o, Tensor) and o.requires_grad]
    if not which:
        floating = [
            i for i, o in enumerate(outputs) if isinstance(o, Tensor) and (o.is_floating_point() or o.is_complex())
        ]
        with_change = any(
            np.abs(n).max(initial=0) > atol for t in checked for n in _numerical(func, given, t, floating, eps)
        )
        if with_change:
            raise GradcheckError(
                "Numerical gradient for function expected to be zero: no output requires gradient, but the outputs "
                "depend on the inputs"
            )
        return
    if fast_mode:
        _check_direction(func, given, checked, outputs, which, eps, atol, rtol)
        return
    first = {i: _analytical(outputs[i], checked) for i in which}
    _check_repeated(func, given, checked, which, first, nondet_tol)
    enabled, mode.enabled = mode.enabled, True
    try:
        for j, t in enumerate(checked):
            numerical = _numerical(func, given, t, which, eps)
            for k, i in enumerate(which):
                analytical = first[i][j]
                expected = numerical[k]
                if outputs[i].is_complex() or t.is_complex():
                    expected = _complex_expected(expected, func, given, t, i, eps, analytical)
                if analytical.size and not np.allclose(analytical, expected, rtol, atol, equal_nan=True):
                    raise GradcheckError(
                        f"Jacobian mismatch for output {i} with respect to input {j},\n"
                        f"numerical:{expected}\nanalytical:{analytical}\n"
                    )
    finally:
        mode.enabled = enabled


_REPEATED = 16  # backward passes that are compared at most, each with the one before: operators change one by one
_LAST_BITS = 32  # times the dtype's eps, of the largest value: what another code for the same operator may make


def _check_repeated(
    func: Callable[..., Any],
    given: Sequence[Any],
    checked: Sequence[Tensor],
    which: list[int],
    first: dict[int, list[np.ndarray]],
    nondet_tol: float,
) -> None:
    """Compare a second backward pass with the `first`.

    Between two passes the engine may have chosen another code for an operator, whose sums have other last bits; then
    both passes of one of the next pairs agree.  A larger difference is an error at once.
    """
    for left in range(_REPEATED - 2, -1, -1):
        again = _tensors(_evaluate(func, given))
        repeated = {i: _analytical(again[i], checked) for i in which}
        differ = False
        for i in which:
            for j, (a, b) in enumerate(zip(first[i], repeated[i])):
                apart = np.inf if a.shape != b.shape else np.abs(a - b).max(initial=0)
                if apart <= nondet_tol:
                    continue
                if not left or not apart <= _LAST_BITS * np.finfo(a.dtype).eps * np.abs(a).max(initial=0):
                    raise GradcheckError(
                        "Backward is not reentrant, i.e., running backward with same input and grad_output multiple "
                        "times gives different values, although analytical gradient matches numerical gradient. The "
                        f"tolerance for nondeterminism was {nondet_tol}. (output {i}, input {j})"
                    )
                differ = True
        if not differ:
            return
        first = repeated


def _check_tangents(
    func: Callable[..., Any], given: Sequence[Any], checked: Sequence[Tensor], eps: float, atol: float, rtol: float
) -> None:
    """The tangents for each element of each input, of complex ones also along i, against differences."""
    from engine.autograd import forward_ad

    for j, t in enumerate(checked):
        for index in np.ndindex(*t._array.shape):
            for direction in (1, 1j) if t.is_complex() else (1,):
                original, values = t._array[index].copy(), []
                for step in (eps, -eps):
                    t._array[index] = original + step * direction
                    values.append(
                        [
                            o.detach().numpy(force=True).copy() if isinstance(o, Tensor) else None
                            for o in _tensors(_evaluate(func, given))
                        ]
                    )
                    t._array[index] = original
                tangent = t.detach().clone()
                tangent._array[...] = 0
                tangent._array[index] = direction
                with enable_grad(), forward_ad.dual_level():
                    duals = [forward_ad.make_dual(x, tangent) if x is t else x for x in given]
                    found = [
                        forward_ad.unpack_dual(o).tangent if isinstance(o, Tensor) else None
                        for o in _tensors(_evaluate(func, duals))
                    ]
                for i, (high, low, got) in enumerate(zip(*values, found)):
                    if high is None or high.dtype.kind not in "fc":
                        continue
                    numerical = (high - low) / (2 * eps)
                    analytical = np.zeros_like(high) if got is None else got.detach().numpy(force=True)
                    if not np.allclose(analytical, numerical, rtol, atol, equal_nan=True):
                        raise GradcheckError(
                            f"Jacobian computed with forward mode mismatch for output {i} with respect to input {j},\n"
                            f"numerical:{numerical}\nanalytical:{analytical}\n"
                        )


def _complex_expected(
    slopes: np.ndarray,
    func: Callable[..., Any],
    given: Sequence[Any],
    target: Tensor,
    which: int,
    eps: float,
    analytical: np.ndarray,
) -> np.ndarray:
    """The gradient torch defines for complex values, d(Re output)/dRe + i d(Re output)/dIm, by differences."""
    steps = [eps, 1j * eps] if target.is_complex() else [eps]
    rows = []
    for index in np.ndindex(*target._array.shape):
        original = target._array[index].copy()
        total: Any = 0
        for step in steps:
            target._array[index] = original + step
            high = _values(func, given, [which])[0]
            target._array[index] = original - step
            low = _values(func, given, [which])[0]
            target._array[index] = original
            slope = (high.real - low.real).reshape(-1) / (2 * eps)
            total = total + (slope if step is steps[0] else 1j * slope)
        rows.append(np.asarray(total))
    return np.array(rows).reshape(analytical.shape)


def _check_direction(
    func: Callable[..., Any],
    given: Sequence[Any],
    checked: Sequence[Tensor],
    outputs: Sequence[Any],
    which: Sequence[int],
    eps: float,
    atol: float,
    rtol: float,
) -> None:
    """One random direction u of the inputs and one random weight v of the outputs: v.J.u both ways."""
    generator = np.random.default_rng(0)

    def random_like(t: Tensor) -> np.ndarray:
        shape = t._array.shape
        draw = generator.uniform(0.5, 1.5, shape) * generator.choice([-1.0, 1.0], shape)
        if t.is_complex():
            draw = draw + 1j * generator.uniform(0.5, 1.5, shape)
        return np.asarray(draw, t._array.dtype)

    directions = [random_like(t) for t in checked]
    weights = [random_like(outputs[i]) for i in which]
    gradients = grad([outputs[i] for i in which], list(checked), [wrap(w) for w in weights], allow_unused=True)
    analytical = 0.0
    for gradient, direction in zip(gradients, directions):
        if gradient is not None:
            analytical += float(np.sum(np.conj(gradient.detach().numpy()) * direction).real)
    original = [t._array.copy() for t in checked]
    sides = []
    for sign in (1.0, -1.0):
        for t, direction, value in zip(checked, directions, original):
            t._array[...] = value + sign * eps * direction
        moved = _values(func, given, which)
        sides.append(sum(float(np.sum(np.conj(w) * m).real) for w, m in zip(weights, moved)))
    for t, value in zip(checked, original):
        t._array[...] = value
    numerical = (sides[0] - sides[1]) / (2 * eps)
    scale = max(1.0, float(sum(np.abs(w).sum() for w in weights)) ** 0.5)
    if not np.isclose(analytical, numerical, rtol, atol * scale, equal_nan=True):
        raise GradcheckError(
            f"Jacobian mismatch for output {which[0]} with respect to input 0,\n(fast mode, one random direction) "
            f"numerical:{numerical}\nanalytical:{analytical}\n"
        )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """`gradcheck` of the gradients of `func`: second derivatives against differences of first ones."""
    given = _tensors(inputs)
    outputs = _differentiable(_evaluate(func, given))
    if grad_outputs is None:
        generator = np.random.default_rng(1)
        weights = []
        for o in outputs:
            draw: Any = generator.uniform(0.5, 1.5, o._array.shape)
            if o.is_complex():
                draw = draw + 1j * generator.uniform(0.5, 1.5, o._array.shape)
            weight = wrap(np.asarray(draw, o._array.dtype))
            weights.append(weight.requires_grad_())
    else:
        weights = list(_tensors(grad_outputs))
    count = len(weights)

    def gradients(*arguments: Any) -> tuple[Any, ...]:
        inner, weights_now = (
            arguments[: len(arguments) - count],
            arguments[len(arguments) - count :],
        )
        wanted = [t for t in inner if isinstance(t, Tensor) and t.requires_grad]
        results = _differentiable(_evaluate(func, inner))
        found = grad(results, wanted, list(weights_now), create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        gradients,
        (*given, *weights),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        fast_mode=fast_mode,
    )
