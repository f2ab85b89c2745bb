"""Views by strides: `diagonal`, `unfold`, `as_strided`.  See Note [View kernels] in shape.py."""

from __future__ import annotations

import builtins
from typing import Any

from engine.autograd.versions import guard
from engine.core.checks import size_of, wrap_dim
from engine.core.layouts import restride
from engine.core.storage import strided
from engine.dispatch import composite, derivative, op, samples
from engine.ops.shape import reshaping
from engine.tensor import Tensor, wrap

_ALL = slice(None)


@op(view=True)
@derivative(
    input=lambda grad, input_shape, offset, dim1, dim2: diagonal_backward(grad, input_shape, offset, dim1, dim2)
)
@samples(lambda t: [(t(3, 4),), (t(3, 4), 1), (t(4, 3), -1), (t(2, 3, 3), 0, 1, 2), (t(2, 3), 5)])
def diagonal(xp, input, offset: int = 0, dim1: int = 0, dim2: int = 1):
    """The diagonal of dims dim1 and dim2, as the last dim.  input (*, n, m) -> (*, k)."""
    ndim = input.ndim
    a, b = wrap_dim(dim1, ndim), wrap_dim(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    shape, strides = list(input.shape), list(input.strides)
    n, m = shape[a], shape[b]
    count = builtins.max(builtins.min(n, m - offset) if offset >= 0 else builtins.min(n + offset, m), 0)
    if count:
        start = [_ALL] * ndim
        start[b if offset >= 0 else a] = slice(abs(offset), None)
        input = input[tuple(start)]
    step = strides[a] + strides[b]
    for d in sorted((a, b), reverse=True):
        del shape[d], strides[d]
    return restride(xp, input, (*shape, count), (*strides, step))


@op(public=False, method=False)
@derivative(grad_output=lambda grad, offset, dim1, dim2: grad.diagonal(offset, dim1, dim2))
@samples(lambda t: [(t(3), (3, 4), 1, 0, 1)])
def diagonal_backward(xp, grad_output, shape, offset, dim1, dim2):
    """Zeros with `grad_output` on a diagonal.  grad_output (*, k) -> (*shape)."""
    result = xp.zeros(shape, grad_output.dtype)
    diagonal.op.kernel(xp, result, offset, dim1, dim2)[...] = grad_output
    return result


@op(view=True, public=False)
@derivative(
    input=lambda grad, input_shape, dimension, size, step: unfold_backward(grad, input_shape, dimension, size, step)
)
@samples(lambda t: [(t(7), 0, 3, 2), (t(2, 5), 1, 2, 1), (t(2, 5), 0, 2, 1)])
def unfold(xp, input, dimension: int, size: int, step: int):
    """Windows of `size` every `step` along a dim, as a last dim.  input (*, n, *) -> (*, windows, *, size)."""
    ndim = input.ndim
    dim = wrap_dim(dimension, ndim)
    n = input.shape[dim] if ndim else 1
    if size > n:
        raise RuntimeError(f"maximum size for tensor at dimension {dim} is {n} but size is {size}")
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if not ndim:
        return restride(xp, input, (size,), (input.dtype.itemsize,))
    shape, strides = list(input.shape), list(input.strides)
    shape[dim] = (n - size) // step + 1
    last = strides[dim]
    strides[dim] = last * step
    return restride(xp, input, (*shape, size), (*strides, last))


@op(public=False, method=False, generated="many")
@derivative(grad_output=lambda grad, dimension, size, step: grad.unfold(dimension, size, step))
@samples(lambda t: [(t(3, 3), (7,), 0, 3, 2), (t(2, 4, 2), (2, 5), 1, 2, 1)])
def unfold_backward(xp, grad_output, shape, dimension, size, step):
    """Windows added up where they lie.  grad_output (*, windows, *, size) -> (*shape)."""
    result = xp.zeros(shape, grad_output.dtype)
    if not shape:
        result += grad_output.sum()
        return result
    dim = wrap_dim(dimension, len(shape))
    windows = unfold.op.kernel(xp, result, dim, size, step)
    if step >= size:
        windows[...] = grad_output
        return result
    for start in range(0, size, step):  # so wide, parts of windows do not overlap
        part = windows[..., start : start + step]
        part += grad_output[..., start : start + step]
    return result


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the memory of `input` by sizes, strides and offset, in elements.  input (*) -> (*size).

    RuntimeError when it would reach outside the memory.
    """
    offset = 0 if storage_offset is None else storage_offset - input.storage_offset()
    return as_strided_relative(input, size_of(size), size_of(stride), offset, input.stride())


composite(method=True)(as_strided)


def _may_overlap(size: Any, stride: Any) -> bool:
    """Whether two elements may lie in one cell, as torch guesses it: by the strides in rising order."""
    reach = 0
    for step, n in sorted(zip(stride, size)) if all(size) else ():
        if n > 1:
            if step <= reach:
                return True
            reach += step * (n - 1)
    return False


@op(view=True, public=False, method=False, node="AsStridedBackward0")
@derivative(
    input=lambda grad, input_shape, own, size, stride, offset: guard(
        as_strided_backward(grad, input_shape, own, size, stride, offset),
        grad if _may_overlap(size, stride) else None,  # then torch adds it up
    )
)
@samples(
    lambda t: [
        (t(8), (2, 3), (3, 1), 1, (1,)),
        (t(8), (3, 3), (2, 1), 0, (1,)),
        (t(2, 3), (2,), (3,), 2, (3, 1)),
    ]
)
def as_strided_relative(xp, input, size, stride, offset, own):
    """`as_strided` with the offset counted from the first element of `input`.  input (*) -> (*size).

    own: the strides of `input` in elements, for the gradient.
    """
    return strided(input, size, stride, wrap(input).storage_offset() + offset)


def _cells(xp: Any, shape: Any, strides: Any, offset: int = 0) -> Any:
    """The memory cell of each element."""
    cells = xp.full(shape, offset, "int64")
    for d, (n, s) in enumerate(zip(shape, strides)):
        cells += (xp.arange(n) * s).reshape((n,) + (1,) * (len(shape) - d - 1))
    return cells


# Several elements of the result, and of the input, may lie in one cell of memory.  The gradients of the result are
# summed by cell; an element of the input gets its cell's sum, divided among the elements that share the cell.


@op(public=False, method=False)
@derivative(
    grad_output=lambda grad, shape, strides, size, stride, offset: as_strided_double(
        grad, shape, strides, size, stride, offset
    )
)
@samples(lambda t: [(t(2, 3), (8,), (1,), (2, 3), (3, 1), 1), (t(3, 3), (8,), (1,), (3, 3), (2, 1), 0)])
def as_strided_backward(xp, grad_output, shape, strides, size, stride, offset):
    """Gradients gathered by memory cell.  grad_output (*size) -> (*shape)."""
    low, high, own, shared = _geometry(xp, shape, strides, size, stride, offset)
    buffer = xp.zeros(high - low, grad_output.dtype)
    xp.add.at(buffer, _cells(xp, size, stride, offset - low).reshape(-1), grad_output.reshape(-1))
    result = buffer[own]
    return result if shared is None else result / shared.astype(result.dtype)


@op(public=False, method=False)
@derivative(
    grad_output=lambda grad, shape, strides, size, stride, offset: as_strided_backward(
        grad, shape, strides, size, stride, offset
    )
)
@samples(lambda t: [(t(8), (8,), (1,), (3, 3), (2, 1), 0)])
def as_strided_double(xp, grad_output, shape, strides, size, stride, offset):
    """The transpose of `as_strided_backward`.  grad_output (*shape) -> (*size)."""
    low, high, own, shared = _geometry(xp, shape, strides, size, stride, offset)
    buffer = xp.zeros(high - low, grad_output.dtype)
    if shared is not None:
        grad_output = grad_output / shared.astype(grad_output.dtype)
    xp.add.at(buffer, own.reshape(-1), grad_output.reshape(-1))
    return buffer[_cells(xp, size, stride, offset - low)]


def _geometry(xp, shape, strides, size, stride, offset):
    """The range of cells touched, the cell of each input element, and how many elements share it (None = one each)."""
    low = builtins.min(0, offset)
    reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides)) if 0 not in shape else 0
    view_reach = offset + 1 + sum((n - 1) * s for n, s in zip(size, stride)) if 0 not in size else 0
    high = builtins.max(reach, view_reach, low)
    own = _cells(xp, shape, strides, -low)
    if all(s > 0 or n == 1 for n, s in zip(shape, strides)) and _disjoint(shape, strides):
        return low, high, own, None
    counts = xp.bincount(own.reshape(-1), minlength=builtins.max(high - low, 1))
    return low, high, own, counts[own]


def _disjoint(shape, strides):
    """Return whether no two elements can share a cell."""
    reach = 0
    for s, n in sorted((s, n) for s, n in zip(strides, shape) if n > 1):
        if s <= reach:
            return False
        reach += (n - 1) * s
    return True


reshaping("as_strided_", as_strided)
