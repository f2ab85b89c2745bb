"""Products of vectors and matrices: `mm`, `bmm`, `matmul`, `linear`.

Operands of one dtype, as in torch: no promotion.  float16 and bfloat16 are computed in float32 and rounded once.
Formulas follow torch's complex convention; a gradient of real tensors is a product with transposed views, not copies.
"""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

from engine.autograd import flops
from engine.autograd.graph import name_node, shown
from engine.autograd.versions import guard_again, own
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, numel
from engine.core.grad_mode import mode
from engine.dispatch import PUBLIC, array_derivative, composite, derivative, op, overload, providers, samples
from engine.dispatch.out import store
from engine.dispatch.runtime import summed_to
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.ops.products.one_row import by_elements, small_product, weight_of_rows
from engine.tensor import Tensor

_F32, _F64 = np.dtype("float32"), np.dtype("float64")
_FEW = 1 << 12  # elements of 16 bits below which numpy's own conversion is as fast
_SMALL, _MANY = 48, 256  # multiplications of a product, and products, from which `_side_by_side` was measured to win
_BESIDE = 4096  # products at a time: what they need stays in the cache
_BLAS = frozenset(np.dtype(name) for name in ("float32", "float64", "complex64", "complex128"))
_MATRICES: dict[str, Any] = dict(large=1 << 18, large_by=("input", "mat2"), several=((2, 3), (3, 4)), autocast="lower")


def cpp_name(array: Any) -> str:
    """The element type as C++ spells it, for torch's messages: `float`, `long int`."""
    return dtypes.cpp_name(dtypes.from_numpy(array.dtype))


def scalar_name(array: Any) -> str:
    """The element type as torch's messages name it: `Float`, `Long`."""
    return dtypes.scalar_name(dtypes.from_numpy(array.dtype))


def refuse_dtype(array: Any, name: str) -> None:
    """NotImplementedError, as torch, for element types that have no product: bool and the wider unsigned integers."""
    if array.dtype.kind == "b" or (array.dtype.kind == "u" and array.dtype.itemsize > 1):
        raise NotImplementedError(f"\"{name}\" not implemented for '{scalar_name(array)}'")


def product(xp: Any, a: Any, b: Any) -> Any:
    """`a @ b` for arrays of one dtype; 16-bit floats through float32, but where the array module knows better."""
    if xp is not np and (own := getattr(xp, "product", None)) is not None and (found := own(a, b)) is not None:
        return found
    dtype = a.dtype
    if dtype.itemsize == 2 and dtype.kind in "fV":
        return wide_product(xp, a, b).astype(dtype)
    a, b = straight(xp, a), straight(xp, b)
    if dtype in _BLAS and a.ndim < 3 and b.ndim < 3:
        return _dot(a, b)  # numpy comes to the same BLAS call in half the time
    return products(xp, a, b)


def products(xp: Any, a: Any, b: Any) -> Any:
    """`a @ b` for batches of one dtype."""
    return _side_by_side(a, b) if many_small(a, b) else xp.matmul(a, b)


def many_small(a: Any, b: Any) -> bool:
    """Return whether the calls of the separate products would take most of the time: many products, few elements."""
    return (
        a.ndim > 2 < b.ndim
        and type(a) is np.ndarray is type(b)
        and 0 < a.shape[-2] * a.shape[-1] * b.shape[-1] <= _SMALL
        and builtins.max(a.size // (a.shape[-2] * a.shape[-1]), b.size // (b.shape[-2] * b.shape[-1])) >= _MANY
        and a.dtype in _BLAS
    )


def _side_by_side(a: Any, b: Any) -> Any:
    """Products of many small matrices: those of two elements are computed for all matrices at once."""
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    (n, k), m = a.shape[-2:], b.shape[-1]
    left = np.broadcast_to(a, (*lead, n, k)).reshape(-1, n, k)
    right = np.broadcast_to(b, (*lead, k, m)).reshape(-1, k, m)
    made = np.empty((len(left), n, m), a.dtype)
    for start in range(0, len(left), _BESIDE):
        x = np.ascontiguousarray(left[start : start + _BESIDE].transpose(1, 2, 0))
        y = np.ascontiguousarray(right[start : start + _BESIDE].transpose(1, 2, 0))
        total = x[:, 0, None] * y[0]
        term = np.empty_like(total) if k > 1 else None
        for i in range(1, k):
            total += np.multiply(x[:, i, None], y[i], term)
        made[start : start + _BESIDE] = total.transpose(2, 0, 1)
    return made.reshape(*lead, n, m)


def _dot(a: Any, b: Any) -> Any:
    own = providers.dot  # where BLAS's threads would disturb others
    return a.dot(b) if own is None else own(a, b)


def wide_product(xp: Any, a: Any, b: Any) -> Any:
    """`a @ b` of 16-bit floats, in float32."""
    if a.ndim == b.ndim == 2 and a.size + b.size > _FEW and type(a) is np.ndarray is type(b):
        from engine.backends.cpu.half_floats import product

        return product(a, b)
    return xp.matmul(*widened(a, b))


def straight(xp: Any, a: Any) -> Any:
    """`a` itself, or a copy where its rows and columns both have a stride (BLAS cannot walk it; older numpy crawls)."""
    if a.flags.forc or a.ndim < 2 or a.dtype not in _BLAS:
        return a
    item, strides = a.dtype.itemsize, a.strides
    return a if item in (strides[-1], strides[-2]) else xp.ascontiguousarray(a)


def expandable(array: Any, shape: tuple[int, ...]) -> None:
    """RuntimeError, with the sentence of `expand`, unless `array` broadcasts to exactly `shape`."""
    have = array.shape
    if have == shape:
        return
    if len(have) > len(shape):
        raise RuntimeError(
            f"expand(torch.{scalar_name(array)}Tensor{{{list(have)}}}, size={list(shape)}): the number of sizes "
            f"provided ({len(shape)}) must be greater or equal to the number of dimensions in the tensor ({len(have)})"
        )
    offset = len(shape) - len(have)
    for i in range(len(have) - 1, -1, -1):
        if have[i] != 1 and have[i] != shape[offset + i]:
            raise RuntimeError(
                f"The expanded size of the tensor ({shape[offset + i]}) must match the existing size ({have[i]}) at "
                f"non-singleton dimension {offset + i}.  Target sizes: {list(shape)}.  Tensor sizes: {list(have)}"
            )


def widened(*arrays: Any) -> tuple[Any, ...]:
    """16-bit floats as float32, others as they are."""
    dtype = arrays[0].dtype
    if dtype.itemsize != 2 or dtype.kind not in "fV":
        return arrays
    if max([a.size for a in arrays]) > _FEW:
        from engine.backends.cpu.half_floats import widen

        return tuple([widen(a) for a in arrays])
    return tuple([a.astype(_F32) for a in arrays])


def check_matrices(a: Any, b: Any) -> None:
    """The shape rule of `mm`, with torch's sentence."""
    if a.shape[-1] != b.shape[-2]:
        rows = numel(a.shape[:-1])
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
        )


def check_same(a: Any, b: Any) -> None:
    """RuntimeError unless both have one dtype, in the words of `mm`."""
    if a.dtype != b.dtype:
        raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {cpp_name(a)} != {cpp_name(b)}")


# --- helpers of formulas


def mH(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two dims; a view for real tensors."""
    x = x.transpose(-2, -1)
    return x.conj() if x._array.dtype.kind == "c" else x


def of_columns(a: Tensor, b: Tensor) -> Tensor:
    """`mm` for the gradient of a matrix; of one column by one row, for which BLAS is slow, by generated code."""
    return a * b if by_elements(b._array.shape[0], a._array.size * b._array.size) else mm(a, b)


def flat(x: Tensor) -> Tensor:
    """All dims but the last folded into one.  (*, k) -> (n, k)."""
    shape = x._array.shape
    return x if len(shape) == 2 else x.reshape(numel(shape[:-1]), shape[-1])


@op(**_MATRICES, generated="many", flops=("mm", flops.product))
@derivative(
    input=lambda grad, mat2: mm(grad, mH(mat2)),
    mat2=lambda grad, input: of_columns(mH(input), grad),
)
@array_derivative(
    input=lambda grad, mat2: small_product(grad, mat2.T),
    mat2=lambda grad, input: small_product(input.T, grad),
)
@samples(lambda t: [(t(2, 3), t(3, 4)), (t(4, 1), t(1, 2)), (t(2, 0), t(0, 3)), (t(0, 2), t(2, 3))])
def mm(xp, input, mat2):
    """The matrix product.  input (n, k), mat2 (k, m) -> (n, m).

    RuntimeError for other ranks, sizes that do not fit, or two dtypes.  https://docs.pytorch.org/docs/2.13/generated/torch.mm.html
    """
    if input.ndim != 2 or mat2.ndim != 2:
        raise RuntimeError("self must be a matrix" if input.ndim != 2 else "mat2 must be a matrix")
    if input.shape[1] != mat2.shape[0]:
        check_matrices(input, mat2)
    dtype = input.dtype
    if (dtype is _F32 or dtype is _F64) and mat2.dtype is dtype and input.flags.forc and mat2.flags.forc and xp is np:
        return input.dot(mat2)  # as in `product`
    check_same(input, mat2)
    refuse_dtype(input, "addmm_impl_cpu_")
    return product(xp, input, mat2)


@op(**_MATRICES, method=True, generated="many", flops=("bmm", flops.product))
@derivative(
    input=lambda grad, mat2: bmm(grad, mH(mat2)),
    mat2=lambda grad, input: bmm(mH(input), grad),
)
@samples(
    lambda t: [(t(2, 3, 4), t(2, 4, 2)), (t(3, 1, 2), t(3, 2, 1)), (t(0, 2, 3), t(0, 3, 2)), (t(2, 3, 0), t(2, 0, 2))]
)
def bmm(xp, input, mat2):
    """The matrix product of each batch.  input (b, n, k), mat2 (b, k, m) -> (b, n, m).

    RuntimeError for other ranks, sizes that do not fit, or two dtypes.
    """
    check_batches(input, mat2)
    refuse_dtype(input, "bmm")
    if input.dtype != mat2.dtype:
        raise RuntimeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(mat2)}")
    return product(xp, input, mat2)


def check_batches(a: Any, b: Any) -> None:
    if a.ndim != 3 or b.ndim != 3:
        raise RuntimeError(f"batch{1 if a.ndim != 3 else 2} must be a 3D tensor")
    if a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{a.shape[0]}, {a.shape[2]}] but got: "
            f"[{b.shape[0]}, {b.shape[1]}]."
        )


def check_mv(name: str, mat: Any, vec: Any, out: int, *more: Any) -> None:
    if mat.ndim != 2 or vec.ndim != 1 or (more and more[0].ndim > 1):
        raise RuntimeError(
            f"vector + matrix @ vector expected, got {more[0].ndim if more else 1}, {mat.ndim}, {vec.ndim}"
        )
    if mat.shape[1] != vec.shape[0] or out not in (mat.shape[0], 1):
        raise RuntimeError(
            f"size mismatch, got input ({out}), mat ({mat.shape[0]}x{mat.shape[1]}), vec ({vec.shape[0]})"
        )
    first = more[0] if more else vec
    if mat.dtype != vec.dtype or first.dtype != mat.dtype:
        raise RuntimeError(
            f"addmv input tensors must have the same dtype, but got {scalar_name(first)}, {scalar_name(mat)}, and "
            f"{scalar_name(vec)}"
        )
    refuse_dtype(mat, "addmv_impl_cpu")


@op(autocast={"cuda": "lower"})
@derivative(
    input=lambda grad, vec: grad.unsqueeze(1) * conj(vec),
    vec=lambda grad, input: mv(mH(input), grad),
)
@samples(lambda t: [(t(2, 3), t(3)), (t(2, 0), t(0)), (t(0, 3), t(3)), (t(1, 1), t(1))])
def mv(xp, input, vec):
    """The product of a matrix and a vector.  input (n, k), vec (k) -> (n).

    RuntimeError for other ranks, sizes that do not fit, or two dtypes.
    """
    dtype = input.dtype
    if (dtype is _F32 or dtype is _F64) and vec.dtype is dtype and input.ndim == 2 and input.shape[1:] == vec.shape:
        return straight(xp, input).dot(vec) if xp is np else product(xp, input, vec)
    if dtype is not vec.dtype or dtype.kind != "f" or input.ndim != 2 or input.shape[1:] != vec.shape:
        check_mv("mv", input, vec, input.shape[0] if input.ndim else 0)
    return product(xp, input, vec)


def _check_vectors(a: Any, b: Any) -> None:
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.dtype != b.dtype:
        raise RuntimeError(
            f"dot : expected both vectors to have same dtype, but found {scalar_name(a)} and {scalar_name(b)}"
        )
    if a.shape != b.shape:
        n, m = a.shape[0], b.shape[0]
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{n}] and src [{m}] to have the same number of elements, but "
            f"got {n} and {m} elements respectively"
        )


@op(tensors=("tensor",), autocast={"cuda": "widest"})
@derivative(
    input=lambda grad, tensor: grad * conj(tensor),
    tensor=lambda grad, input: grad * conj(input),
)
@samples(lambda t: [(t(3), t(3)), (t(0), t(0)), (t(1), t(1))])
def dot(xp, input, tensor):
    """The sum of products of two vectors, without conjugation.  input (n), tensor (n) -> ().

    RuntimeError for other ranks, two lengths or two dtypes.
    """
    dtype = input.dtype
    if (dtype is _F32 or dtype is _F64) and tensor.dtype is dtype and input.ndim == 1 and input.shape == tensor.shape:
        return input.dot(tensor) if xp is np else product(xp, input, tensor)
    _check_vectors(input, tensor)
    refuse_dtype(input, "dot")
    return product(xp, input, tensor)


@op()
@derivative(
    input=lambda grad, other: conj(grad) * other,
    other=lambda grad, input: grad * input,
)
@samples(lambda t: [(t(3), t(3)), (t(0), t(0)), (t.complex(3), t.complex(3))])
def vdot(xp, input, other):
    """The sum of products of two vectors, the first conjugated.  input (n), other (n) -> ().

    RuntimeError for other ranks, two lengths or two dtypes.
    """
    _check_vectors(input, other)
    refuse_dtype(input, "vdot" if input.dtype.kind == "c" else "dot")
    return product(xp, xp.conj(input) if input.dtype.kind == "c" else input, other)


def _folded(grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradient as torch saves it: a copy where the first operand was one matrix."""
    return own(grad) if len(shape) == 2 else grad


def _batched_input(grad: Tensor, other: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(grad._array.shape) > len(shape) or other._array.ndim > 2:
        return batched(grad, mH(other)).sum_to_size(shape)
    return batched(grad, mH(other))


def _batched_other(grad: Tensor, input: Tensor, shape: tuple[int, ...]) -> Tensor:
    if len(shape) == 2:  # every batch shared it: one product over all rows
        rows = numel(input._array.shape[:-1])
        if rows == numel(grad._array.shape[:-1]):
            return mm(mH(flat(input)), flat(grad))
    return batched(mH(input), grad).sum_to_size(shape)


@op(
    public=False,
    method=False,
    node={"_a_input.ndim == 2 and _r_input": "CloneBackward0", "": "UnsafeViewBackward0"},
    large=1 << 18,
    large_by=("input", "other"),
    generated="many",
    flops=(flops.of_batches, flops.product),
)
@derivative(
    input=lambda grad, other, input_shape: _batched_input(_folded(grad, input_shape), other, input_shape),
    other=lambda grad, input, input_shape, other_shape: _batched_other(_folded(grad, input_shape), input, other_shape),
)
@samples(
    lambda t: [
        (t(2, 3, 4), t(4, 2)), (t(3, 4), t(2, 4, 2)), (t(2, 1, 3, 4), t(3, 4, 2)), (t(1, 3, 4), t(2, 4, 2)),
        (t(0, 3, 4), t(4, 2)), (t(2, 3, 0), t(0, 2)), (t(2, 1, 3, 4), t(1, 3, 4, 2)),
    ]
)  # fmt: skip
def batched(xp, input, other):
    """The matrix product of broadcast batches.  input (*a, n, k), other (*b, k, m) -> (*broadcast of a and b, n, m)."""
    dtype = input.dtype
    if (dtype is _F32 or dtype is _F64) and other.dtype is dtype and other.ndim > 2 and (
        input.shape[:-2] == other.shape[:-2] and input.shape[-1] == other.shape[-2]
    ):  # fmt: skip
        return products(xp, straight(xp, input), straight(xp, other))
    if other.ndim == 2:  # one matrix for all batches: one large product instead of many
        check_matrices(input, other)
        check_same(input, other)
        refuse_dtype(input, "addmm_impl_cpu_")
        rows = input.reshape(numel(input.shape[:-1]), input.shape[-1])
        return product(xp, rows, other).reshape(*input.shape[:-1], other.shape[-1])
    lead = broadcast_shapes(input.shape[:-2], other.shape[:-2])
    if input.shape[-1] != other.shape[-2]:
        size = numel(lead)
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{size}, {input.shape[-1]}] but got: "
            f"[{size}, {other.shape[-2]}]."
        )
    refuse_dtype(input, "bmm")
    if input.dtype != other.dtype:
        raise RuntimeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(other)}")
    return product(xp, input, other)


def _each_weight(grad: Tensor, input: Tensor) -> Tensor:
    transposed = grad.transpose(-2, -1)
    return outer_each(transposed, input) if grad._array.shape[-2] == 1 else bmm(transposed, input)


@op(broadcast=True, public=False, method=False, out=False, large=1 << 12)
@derivative(input=lambda grad, other: grad * other, other=lambda grad, input: grad * input)
@samples(lambda t: [(t(3, 2, 1), t(3, 1, 4)), (t(2, 1), t(1, 3))])
def outer_each(xp, input, other):
    """`input * other` whose result is much larger than both.  input (B, n, 1), other (B, 1, m) -> (B, n, m)."""
    return xp.multiply(input, other)


@op(public=False, method=False, out=False, large=1 << 18, large_by=("input", "weight"), generated="many")
@derivative(
    input=lambda grad, weight: linear_each(grad, weight.transpose(-2, -1)),
    weight=lambda grad, input: _each_weight(grad, input),
)
@samples(lambda t: [(t(3, 2, 4), t(3, 5, 4)), (t(2, 1, 4), t(2, 3, 4)), (t(0, 2, 4), t(0, 3, 4))])
def linear_each(xp, input, weight):
    """`linear` with a matrix of its own for each batch.  input (B, n, k), weight (B, m, k) -> (B, n, m).

    One matrix that was expanded over the batch is multiplied once.
    """
    check_same(input, weight)
    if weight.shape[0] > 1 and weight.strides[0] == 0:
        rows = input.reshape(-1, input.shape[-1])
        return product(xp, rows, weight[0].T).reshape(*input.shape[:-1], weight.shape[-2])
    return product(xp, input, xp.swapaxes(weight, -1, -2))


@overload(autocast="lower")
@samples(
    lambda t: [
        (t(2, 3), t(3, 4)), (t(3), t(3)), (t(2, 3), t(3)), (t(3), t(3, 2)), (t(2, 3, 4), t(4)), (t(3), t(2, 3, 4)),
        (t(2, 3, 4), t(2, 4, 2)), (t(2, 1, 3, 4), t(3, 4, 2)), (t(2, 3, 4), t(4, 2)), (t(3, 4), t(2, 4, 2)),
    ]
)  # fmt: skip
def matmul(input: Tensor, other: Tensor, *, out=None):
    """The product by rank: vectors `dot`, matrix and vector `mv`, matrices `mm`, more dims batches that broadcast.

    input (*a, n, k) or (k), other (*b, k, m) or (k) -> (*broadcast of a and b, n, m) without the dims of vectors.
    RuntimeError for 0-dim operands, sizes that do not fit, or two dtypes.
    https://docs.pytorch.org/docs/2.13/generated/torch.matmul.html
    """
    if out is not None:
        return store(out, "matmul", matmul, input, other)
    n, m = input._array.ndim, other._array.ndim
    if n == 2 == m:
        return mm(input, other)
    if n > 2 and m >= 2:
        if m > 2 and mode.enabled and input._array.shape[:-2] != other._array.shape[:-2]:
            lead = broadcast_shapes(input._array.shape[:-2], other._array.shape[:-2])
            return batched(_expanded(input, lead), _expanded(other, lead))
        return batched(input, other)
    if not n or not m:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {n}D and {m}D")
    if m == 1:
        if n == 1:
            return dot(input, other)
        if n == 2:
            return mv(input, other)
        result = mv(flat(input), other).view(input._array.shape[:-1])
        return name_node(result, "UnsafeViewBackward0")
    if input._array.shape[-1] != other._array.shape[-2] and m > 2:
        _refuse_folded(input, other._array)
    if n == 1:
        result = matmul(input.unsqueeze(0), other).squeeze(-2)
        return name_node(result, "SqueezeBackward4" if m == 2 else "UnsafeViewBackward0")
    return batched(input, own(other))  # torch folds a copy


def _expanded(operand: Tensor, lead: tuple[int, ...]) -> Tensor:
    """An operand of batches; torch multiplies, and saves, a copy where the expanded one is no view of one batch dim."""
    shape = operand._array.shape[:-2]
    return operand if shape == lead or numel(shape) == 1 else own(operand)


def _refuse_folded(input: Tensor, other: Any) -> None:
    """The sentence for a matrix or vector times batches that do not fit; torch folds them where it needs gradients."""
    k, m = other.shape[-2:]
    rows, shape = numel(other.shape[:-2]) * m, input._array.shape
    if len(shape) == 1 and (input.requires_grad or not other.size):
        raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{k}), vec ({shape[0]})")
    if len(shape) == 2 and input.requires_grad:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({rows}x{k} and {shape[1]}x{shape[0]})")


def _matmul(self: Tensor, other: Tensor) -> Tensor:
    if not isinstance(other, Tensor):
        return NotImplemented
    return mm(self, other) if self._array.ndim == 2 == other._array.ndim else matmul(self, other)


def _rmatmul(self: Tensor, other: Tensor) -> Tensor:
    return matmul(other, self) if isinstance(other, Tensor) else NotImplemented


Tensor.__matmul__ = _matmul
Tensor.__rmatmul__ = _rmatmul


def _linear_weight(grad: Tensor, input: Tensor, weight_shape: tuple[int, ...]) -> Tensor:
    if len(weight_shape) == 1:
        return mv(mH(flat(input)), grad.reshape(-1))
    return of_columns(flat(grad).t(), conj(flat(input)))


def _linear_nodes(name: str, bias: Any, input: Any, weight: Any) -> tuple[Any, ...]:
    """The edges of torch's last node for `linear`, of which there are several for other ranks than 2."""
    transposed = weight if weight is None else shown("TBackward0", weight)
    if name == "AddmmBackward0":
        return bias, input, transposed
    if name in ("MmBackward0", "MvBackward0"):
        return input, transposed
    if input is not None:
        if name == "AddBackward0":
            copied = input[0].name() == "CloneBackward0"
            input = shown("UnsafeViewBackward0", input if copied else shown("CloneBackward0", input))
        else:
            rows = "UnsqueezeBackward0" if name == "SqueezeBackward4" else "ViewBackward0"
            input = shown(rows, input)
    if name == "ViewBackward0":
        return (shown("AddmmBackward0", bias, input, transposed),)
    product = None if input is None and transposed is None else shown("MmBackward0", input, transposed)
    if name == "AddBackward0":
        return product and shown("UnsafeViewBackward0", product), bias
    return (product,)


def _linear_input(grad: Tensor, weight: Tensor) -> Tensor:
    if weight._array.ndim == 1:
        return grad.unsqueeze(-1) * conj(weight)
    return matmul(grad, conj(weight))


@op(
    public=False, method=False, large=1 << 18, large_by=("input", "weight"), generated="many",
    node={
        "_a_input.ndim == 2 and bias is not None": "AddmmBackward0",
        "bias is not None and (_a_input.flags.c_contiguous or _a_input.ndim < 2)": "ViewBackward0",
        "bias is not None": "AddBackward0",
        "_a_weight.ndim != 2": "MvBackward0",
        "_a_input.ndim == 2": "MmBackward0",
        "_a_input.ndim == 1": "SqueezeBackward4",
        "": "UnsafeViewBackward0",
    },
    shows=lambda name, bias, input, weight: _linear_nodes(name, bias, input, weight),
    autocast="lower",flops=("addmm", flops.product))  # fmt: skip
@derivative(  # in the order of torch's addmm
    bias=lambda grad, bias_shape: grad.sum_to_size(bias_shape),
    input=lambda grad, weight: _linear_input(grad, weight),
    weight=lambda grad, input, weight_shape: _linear_weight(grad, input, weight_shape),
)
@array_derivative(
    input=lambda grad, weight: small_product(grad, weight) if weight.ndim == 2 == grad.ndim else NotImplemented,
    weight=weight_of_rows,
    bias=lambda grad, bias_shape: summed_to(grad, bias_shape),
)
@samples(
    lambda t: [
        (t(2, 3), t(4, 3), t(4)), (t(2, 3), t(4, 3)), (t(3), t(4, 3), t(4)), (t(2, 2, 3), t(4, 3), t(4)),
        (t(2, 2, 3), t(4, 3)), (t(0, 3), t(4, 3), t(4)), (t(2, 0), t(4, 0), t(4)),
        (t(2, 3), t(4, 3), t(1)), (t(2, 3), t(3)),
    ]
)  # fmt: skip
def linear(xp, input, weight, bias=None):
    """input @ weight.T + bias.  input (*, in), weight (out, in) or (in), bias (out) -> (*, out) or (*).

    RuntimeError for sizes or dtypes that do not fit.  https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.linear.html
    """
    if not input.ndim or not weight.ndim:
        raise RuntimeError(
            f"both arguments to linear need to be at least 1D, but they are {input.ndim}D and {weight.ndim}D"
        )
    if weight.ndim != 2:
        return _linear_vector(xp, input, weight, bias)
    shape = input.shape
    rows = input if input.ndim == 2 else input.reshape(numel(shape[:-1]), shape[-1])
    transposed = weight.T
    if rows.shape[1] != transposed.shape[0]:
        check_matrices(rows, transposed)
    dtype = input.dtype
    if bias is None:
        if weight.dtype is not dtype:
            check_same(input, weight)
    else:
        if weight.dtype is not dtype or bias.dtype is not dtype:
            _check_linear_dtypes(input, weight, bias)
        if bias.ndim < 2:
            expandable(bias, (rows.shape[0], weight.shape[0]))
    if dtype is _F32 or dtype is _F64:
        # as in `product`
        result = _dot(straight(xp, rows), straight(xp, transposed)) if xp is np else product(xp, rows, transposed)
        if bias is not None and bias.ndim < 2:
            result += bias
    else:
        refuse_dtype(input, "addmm_impl_cpu_")
        result = wide_product(xp, rows, transposed) if dtype.itemsize == 2 else xp.matmul(rows, transposed)
        if bias is not None and bias.ndim < 2:
            result += bias
        result = result.astype(dtype, copy=False)
    if len(shape) != 2:
        result = result.reshape(*shape[:-1], weight.shape[0])
    return result if bias is None or bias.ndim < 2 else result + bias


def _check_linear_dtypes(input: Any, weight: Any, bias: Any) -> None:
    for label, x in (("self", bias), ("mat1", input)):
        if x.dtype != weight.dtype:
            raise RuntimeError(
                f"{label} and mat2 must have the same dtype, but got {scalar_name(x)} and {scalar_name(weight)}"
            )


def _linear_vector(xp: Any, input: Any, weight: Any, bias: Any) -> Any:
    if weight.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {weight.ndim}D")
    if bias is not None:
        raise RuntimeError("mat2 must be a matrix, got 1-D tensor")
    check_same(input, weight)
    if input.shape[-1] != weight.shape[0]:
        n = numel(input.shape[:-1])
        raise RuntimeError(f"size mismatch, got input ({n}), mat ({n}x{input.shape[-1]}), vec ({weight.shape[0]})")
    return product(xp, input, weight)


@composite(method=False)
@samples(
    lambda t: [
        (t(2, 3), t(2, 4), t(5, 3, 4), t(5)),
        (t(2, 2, 3), t(2, 2, 4), t(5, 3, 4)),
        (t(3), t(4), t(2, 3, 4)),
    ]
)
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None):
    """x1 A_o x2 + b_o for every o.  input1 (*, i), input2 (*, j), weight (o, i, j), bias (o) -> (*, o).

    RuntimeError for sizes that do not fit.  https://docs.pytorch.org/docs/2.13/generated/torch.nn.functional.bilinear.html
    """
    a, b, w = input1._array, input2._array, weight._array
    if a.ndim != b.ndim:
        raise RuntimeError(f"bilinear(): input dimensions do not match: got {a.ndim} and {b.ndim}")
    for i in range(a.ndim - 1):
        if a.shape[i] != b.shape[i]:
            raise RuntimeError(
                f"bilinear(): input batch dimensions do not match at dim {i}: got {a.shape[i]} and {b.shape[i]}"
            )
    for k, x in ((1, a), (2, b)):
        if x.shape[-1] != weight.size(k):
            raise RuntimeError(
                f"bilinear(): input{k} size does not match weight size: got {x.shape[-1]} but expected {w.shape[k]}"
            )
    if bias is not None and bias.size(0) != w.shape[0]:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias._array.shape[0]} but expected {w.shape[0]}"
        )
    if not a.dtype == b.dtype == w.dtype:
        raise RuntimeError(
            f"All tensors must have the same dtype, got input1: {cpp_name(a)}, input2: {cpp_name(b)}, weight: "
            f"{cpp_name(w)}"
        )
    o, i, j = w.shape
    first, second = flat(input1), flat(input2)
    left = mm(first, weight.permute(1, 0, 2).reshape(i, o * j)).view(first._array.shape[0], o, j)
    result = bmm(left, second.unsqueeze(-1)).view(*a.shape[:-1], o)
    return guard_again(result if bias is None else result + bias, weight)


@composite(names=("ger",))
@samples(lambda t: [(t(3), t(2)), (t(0), t(2))])
def outer(input: Tensor, vec2: Tensor, *, out=None):
    """The product of every pair of elements.  input (n), vec2 (m) -> (n, m).  RuntimeError for other ranks."""
    if out is not None:
        return store(out, "outer", outer, input, vec2)
    for label, x in (("self", input), ("vec2", vec2)):
        if x._array.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {label}, but got {x._array.ndim}-D")
    return input.unsqueeze(1) * vec2


@composite(out_as="graph")
@samples(lambda t: [(t(3), t(3)), (t(2, 3), t(4, 3)), (t(), t(2, 3)), (t(2, 2, 3), t(3))])
def inner(input: Tensor, other: Tensor, *, out=None):
    """Sums of products over the last dims; a 0-dim operand just multiplies.  input (*a, k), other (*b, k) -> (*a, *b).

    RuntimeError where the last dims or the dtypes differ.
    """
    a, b = input._array, other._array
    if not (a.ndim and b.ndim):
        return PUBLIC["mul"](input, other, out=out)
    if out is not None:
        return store(out, "inner", inner, input, other)
    if a.dtype != b.dtype:
        raise RuntimeError("both inputs should have same dtype")
    if a.shape[-1] != b.shape[-1]:
        raise RuntimeError(
            f"inner() the last dimension must match on both input tensors but got shapes {list(a.shape)} and "
            f"{list(b.shape)}"
        )
    if a.ndim == 1 == b.ndim:
        return name_node(dot(input, other), "ViewBackward0")
    return mm(flat(input), flat(other).t()).view(*a.shape[:-1], *b.shape[:-1])
