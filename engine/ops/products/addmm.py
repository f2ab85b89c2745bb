"""beta * input + alpha * product: `addmm`, `addmv`, `addr`, `addbmm`, `baddbmm`."""

from __future__ import annotations

import functools
import re
from typing import Any

from engine.autograd import flops
from engine.dispatch import OPS, PUBLIC, derivative, op, samples
from engine.dispatch.runtime import warn_of_overload
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.ops.products import (
    batched,
    bmm,
    check_batches,
    check_matrices,
    check_mv,
    cpp_name,
    expandable,
    mH,
    mm,
    mv,
    product,
    refuse_dtype,
    scalar_name,
    straight,
    widened,
)
from engine.tensor import Tensor


def scaled(array: Any, factor: Any) -> Any:
    """`array * factor`, in the dtype of `array`; torch's error where the number does not fit it."""
    kind = array.dtype.kind
    if kind == "c":
        return array * factor
    if isinstance(factor, complex):
        raise RuntimeError(f"value cannot be converted to type {cpp_name(array)} without overflow")
    if kind == "V":  # bfloat16 beside a Python number would become float32
        return array * array.dtype.type(factor)
    return array * (int(factor) if kind in "iu" else float(factor))


def accumulate(xp: Any, input: Any, made: Any, beta: Any, alpha: Any) -> Any:
    """beta * input + alpha * made; `made` is fresh; input is not read (nor its nan) where beta is 0."""
    if alpha != 1:
        made = scaled(made, alpha)
    if beta == 0:
        return made
    if beta != 1:
        input = scaled(input, beta)
    return xp.add(made, input, out=made) if made.dtype.kind != "V" else made + input


def scale(x: Tensor, factor: Any) -> Tensor:
    """x * conj(factor); `x` itself for 1."""
    if factor == 1:
        return x
    return x * (factor.conjugate() if isinstance(factor, complex) else factor)


def _check_addend(input: Any, mat2: Any, label: str = "self") -> None:
    if input.dtype != mat2.dtype:
        raise RuntimeError(
            f"{label} and mat2 must have the same dtype, but got {scalar_name(input)} and {scalar_name(mat2)}"
        )


@op(
    inplace=True,
    large=1 << 18,
    large_by=("mat1", "mat2"),
    generated="many",
    several=((3, 6), (4, 7)),
    autocast="lower",
    flops=("addmm", flops.added_product),
)
@derivative(
    input=lambda grad, beta, input_shape: scale(grad, beta).sum_to_size(input_shape),
    mat1=lambda grad, mat2, alpha: scale(mm(grad, mH(mat2)), alpha),
    mat2=lambda grad, mat1, alpha: scale(mm(mH(mat1), grad), alpha),
)
@samples(
    lambda t: [
        (t(2, 4), t(2, 3), t(3, 4)),
        (t(4), t(2, 3), t(3, 4)),
        (t(2, 4), t(2, 3), t(3, 4), {"beta": 2, "alpha": 0.5}),
        (t(), t(2, 3), t(3, 4)),
        (t(2, 4), t(2, 0), t(0, 4)),
        (t(2, 1), t(2, 3), t(3, 4), {"beta": 0.5}),
    ]
)
def addmm(xp, input, mat1, mat2, *, beta: complex = 1, alpha: complex = 1):
    """beta * input + alpha * (mat1 @ mat2).  input broadcasts to (n, m), mat1 (n, k), mat2 (k, m) -> (n, m).

    beta 0 ignores input, nan included.  RuntimeError for sizes or dtypes that do not fit.
    """
    if mat1.ndim != 2 or mat2.ndim != 2:
        which, x = ("mat1", mat1) if mat1.ndim != 2 else ("mat2", mat2)
        raise RuntimeError(f"{which} must be a matrix, got {x.ndim}-D tensor")
    check_matrices(mat1, mat2)
    _check_addend(input, mat2)
    _check_addend(mat1, mat2, "mat1")
    expandable(input, (mat1.shape[0], mat2.shape[1]))
    refuse_dtype(mat1, "addmm_impl_cpu_")
    dtype = mat1.dtype
    input, mat1, mat2 = widened(input, mat1, mat2)
    made = product(xp, mat1, mat2)
    return accumulate(xp, input, made, beta, alpha).astype(dtype, copy=False)


@op(inplace=True, several=((3, 6),), autocast={"cuda": "lower"})
@derivative(
    input=lambda grad, beta, input_shape: scale(grad, beta).sum_to_size(input_shape),
    mat=lambda grad, vec, alpha: scale(grad.unsqueeze(1) * conj(vec), alpha),
    vec=lambda grad, mat, alpha: scale(mv(mH(mat), grad), alpha),
)
@samples(
    lambda t: [
        (t(2), t(2, 3), t(3)),
        (t(1), t(2, 3), t(3)),
        (t(2), t(2, 3), t(3), {"beta": 2, "alpha": 0.5}),
        (t(2), t(2, 0), t(0)),
    ]
)
def addmv(xp, input, mat, vec, *, beta: complex = 1, alpha: complex = 1):
    """beta * input + alpha * (mat @ vec).  input broadcasts to (n), mat (n, k), vec (k) -> (n).

    beta 0 ignores input, nan included.  RuntimeError for sizes or dtypes that do not fit.
    """
    check_mv("addmv", mat, vec, input.shape[0] if input.ndim == 1 else 1, input)
    expandable(input, (mat.shape[0],))
    dtype = mat.dtype
    input, mat, vec = widened(input, mat, vec)
    return accumulate(xp, input, product(xp, mat, vec), beta, alpha).astype(dtype, copy=False)


def _check_scalar(name: str, target: Any, value: Any) -> None:
    """A float factor on integers is refused, a bool factor on anything but bools too."""
    kind = target.dtype.kind
    if kind in "iub" and isinstance(value, float | complex):
        raise RuntimeError(f"For integral input tensors, argument {name} must not be a floating point number.")
    if kind != "b" and isinstance(value, bool):
        raise RuntimeError(f"Boolean {name} only supported for Boolean results.")


@op(inplace=True, promote="default", tensors=("vec1",), several=((3, 6),), numbers=(), autocast={"cuda": "lower"})
@derivative(
    input=lambda grad, beta: scale(grad, beta),
    vec1=lambda grad, vec2, alpha: scale((grad * conj(vec2)).sum(1), alpha),
    vec2=lambda grad, vec1, alpha: scale((grad * conj(vec1).unsqueeze(1)).sum(0), alpha),
)
@samples(
    lambda t: [
        (t(3, 2), t(3), t(2)),
        (t(2), t(3), t(2)),
        (t(3, 2), t(3), t(2), {"beta": 2, "alpha": 0.5}),
        (t(0, 2), t(0), t(2)),
    ]
)
def addr(xp, input, vec1, vec2, *, beta: complex = 1, alpha: complex = 1):
    """beta * input + alpha * outer(vec1, vec2).  input broadcasts to (n, m), vec1 (n), vec2 (m) -> (n, m).

    beta 0 ignores input, nan included.  RuntimeError for sizes that do not fit.
    """
    for label, x in (("vec1", vec1), ("vec2", vec2)):
        if x.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {label}, but got {x.ndim}-D")
    expandable(input, (vec1.shape[0], vec2.shape[0]))
    _check_scalar("beta", input, beta)
    _check_scalar("alpha", input, alpha)
    made = xp.multiply(vec1[:, None], vec2)
    if made.dtype.kind == "b":
        return made & bool(alpha) | (input if beta else False)
    return accumulate(xp, input, made, beta, alpha)


@op(inplace=True, several=((3, 6),), autocast="lower")
@derivative(
    input=lambda grad, beta, input_shape: scale(grad, beta).sum_to_size(input_shape),
    batch1=lambda grad, batch2, alpha: scale(batched(grad, mH(batch2)), alpha),
    batch2=lambda grad, batch1, alpha: scale(batched(mH(batch1), grad), alpha),
)
@samples(
    lambda t: [
        (t(3, 2), t(2, 3, 4), t(2, 4, 2)),
        (t(2), t(2, 3, 4), t(2, 4, 2)),
        (t(3, 2), t(2, 3, 4), t(2, 4, 2), {"beta": 2, "alpha": 0.5}),
    ]
)
def addbmm(xp, input, batch1, batch2, *, beta: complex = 1, alpha: complex = 1):
    """beta * input + alpha * the sum over batches of batch1 @ batch2.

    input broadcasts to (n, m), batch1 (b, n, k), batch2 (b, k, m) -> (n, m).  RuntimeError for sizes or dtypes that
    do not fit.
    """
    for i, x in ((1, batch1), (2, batch2)):
        if x.ndim != 3:
            raise RuntimeError(f"batch{i} must be a 3D tensor")
    expandable(input, (batch1.shape[1], batch2.shape[2]))
    if batch1.shape[0] != batch2.shape[0]:
        raise RuntimeError(
            f"batch1 and batch2 must have same number of batches, got {batch1.shape[0]} and {batch2.shape[0]}"
        )
    if batch1.shape[2] != batch2.shape[1]:
        (_, n, k), (_, l, m) = batch1.shape, batch2.shape
        raise RuntimeError(f"Incompatible matrix sizes for bmm ({n}x{k} and {l}x{m})")
    _check_addend(input, batch2)
    _check_addend(batch1, batch2, "mat1")
    refuse_dtype(batch1, "addmm_impl_cpu_")
    dtype = batch1.dtype
    input, batch1, batch2 = widened(input, batch1, batch2)
    (b, n, k), m = batch1.shape, batch2.shape[2]
    made = product(xp, batch1.transpose(1, 0, 2).reshape(n, b * k), batch2.reshape(b * k, m))
    return accumulate(xp, input, made, beta, alpha).astype(dtype, copy=False)


@op(inplace=True, several=((3, 6), (4, 7)), autocast="lower", flops=("baddbmm", flops.added_product))
@derivative(
    input=lambda grad, beta, input_shape: scale(grad, beta).sum_to_size(input_shape),
    batch1=lambda grad, batch2, alpha: scale(bmm(grad, mH(batch2)), alpha),
    batch2=lambda grad, batch1, alpha: scale(bmm(mH(batch1), grad), alpha),
)
@samples(
    lambda t: [
        (t(2, 3, 2), t(2, 3, 4), t(2, 4, 2)),
        (t(2), t(2, 3, 4), t(2, 4, 2)),
        (t(2, 3, 2), t(2, 3, 4), t(2, 4, 2), {"beta": 2, "alpha": 0.5}),
    ]
)
def baddbmm(xp, input, batch1, batch2, *, beta: complex = 1, alpha: complex = 1):
    """beta * input + alpha * (batch1 @ batch2).

    input broadcasts to (b, n, m), batch1 (b, n, k), batch2 (b, k, m) -> (b, n, m).
    beta 0 ignores input, nan included.  RuntimeError for sizes or dtypes that do not fit.
    """
    for i, x in ((1, batch1), (2, batch2)):
        if x.ndim != 3:
            raise RuntimeError(f"batch{i} must be a 3D tensor")
    expandable(input, (batch1.shape[0], batch1.shape[1], batch2.shape[2]))
    check_batches(batch1, batch2)
    if not input.dtype == batch1.dtype == batch2.dtype:
        raise RuntimeError(
            f"Input dtypes must be the same, got: input {cpp_name(input)}, batch1: {cpp_name(batch1)}, batch2: "
            f"{cpp_name(batch2)}"
        )
    refuse_dtype(batch1, "baddbmm")
    dtype = batch1.dtype
    input, batch1, batch2 = widened(input, batch1, batch2)
    return accumulate(xp, input, xp.matmul(straight(xp, batch1), straight(xp, batch2)), beta, alpha).astype(
        dtype, copy=False
    )


# --- forms of torch 0.4: addmm(beta, input, alpha, mat1, mat2), input.addmm(beta, alpha, mat1, mat2)

_BAD_SHAPE = re.compile(r"output with shape (\[.*\]) doesn't match the broadcast shape (\[.*\])")


def _warn_of_numbers(name: str, count: int, first: bool) -> None:
    """first: the call of the function, with `beta` before the input, not of the method."""
    _, one, two = OPS[name.rstrip("_")].positional[:3]
    last = f"Tensor {one}, Tensor {two}"
    factors = ["Number beta", *["Number alpha"] * (count > 1)]
    new = "*, Number beta = 1, Number alpha = 1"
    if not first:
        warn_of_overload(name, f"{name}({', '.join([*factors, last])})", f"{name}({last}, {new})")
        return
    factors.insert(1, "Tensor input")
    now = [f"{name}(Tensor input, {last}, {new}, Tensor out = None)"]
    if name in ("addmm", "baddbmm"):
        now.append(f"{name}(Tensor input, {last}, torch.dtype out_dtype, {new}, Tensor out = None)")
    warn_of_overload(name, f"{name}({', '.join([*factors, last])}, *, Tensor out = None)", *now)


def _with_old_forms(function: Any, name: str, check: bool) -> Any:
    """`function`, that also takes its factors as numbers among the first arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if len(args) > 3:
            numbers = [x for x in args if not isinstance(x, Tensor)]
            _warn_of_numbers(name, len(numbers), not isinstance(args[0], Tensor))
            args = tuple(x for x in args if isinstance(x, Tensor))
            kwargs.update(zip(("beta", "alpha"), numbers))
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            found = _BAD_SHAPE.match(str(error)) if check else None
            if found is None:
                raise
            raise RuntimeError(
                f"Bad in-place call: input tensor size {found[1]} and output tensor size {found[2]} should match"
            ) from None

    return call


for _op, _checks_shape in ((addmm, True), (addmv, True), (addr, False), (addbmm, False), (baddbmm, True)):
    _record = _op.op
    for _attribute, _public in (("function", _record.name), ("inplace_function", _record.name + "_")):
        _call = _with_old_forms(PUBLIC[_public], _public, _checks_shape and _public[-1] == "_")
        PUBLIC[_public] = _call
        setattr(Tensor, _public, _call)
        setattr(_record, _attribute, _call)
