"""Largest and smallest elements: of all, along dims, of pairs; their indices."""

from __future__ import annotations

from typing import Any

from engine.autograd.versions import guard, own
from engine.core.checks import wrap_dim
from engine.dispatch import derivative, op, overload, samples
from engine.ops.pointwise.arithmetic import keep_where, not_implemented
from engine.ops.pointwise.select import maximum, minimum
from engine.ops.reduction import axis_of, nonempty, unreduce
from engine.tensor import Tensor


def at_index(grad: Tensor, index: Tensor, shape: Any, dim: int) -> Tensor:
    """The gradient of a reduction that picked one element a row: `grad` at `index`, 0 elsewhere."""
    if not shape:
        return guard(own(grad), index)
    return put_along(grad, index, shape, dim)


@op(public=False, method=False, tensors=("index",), large=512, generated="many")
@derivative(grad_output=lambda grad, index, dim: _taken(grad, index, dim))
@samples(
    lambda t: [
        (t(3, 2), t.of([[0, 3], [1, 2], [2, 0]]), (3, 4), 1),
        (t(3), t.of([0, 3, 2]), (3, 4), -1),
        (t(3), t.of([0, 1, 1]), (2, 3), 0),
    ]
)
def put_along(xp, grad_output, index, shape, dim):
    """Zeros of `shape` with grad_output at `index` along `dim` (distinct in a row); without that dim, one a row.

    grad_output (*), index (*) -> (*shape).
    """
    result = xp.zeros(shape, grad_output.dtype)
    if grad_output.size:
        axis = wrap_dim(dim, len(shape))
        if index.ndim < len(shape):
            grad_output, index = xp.expand_dims(grad_output, axis), xp.expand_dims(index, axis)
        xp.put_along_axis(result, index, grad_output, axis)
    return result


def _taken(grad: Tensor, index: Tensor, dim: int) -> Tensor:
    """The gradient of what `put_along` put."""
    if index.dim() == grad.dim():
        return take_along(grad, index, dim)
    return take_along(grad, index.unsqueeze(dim), dim).squeeze(dim)


@op(public=False, method=False)
@derivative(input=lambda grad, index, dim, input_shape: add_along(grad, index, input_shape, dim))
@samples(lambda t: [(t(3, 4), t.of([[0, 3], [1, 2], [2, 0]]), 1)])
def take_along(xp, input, index, dim):
    """The elements at `index` along `dim`.  input (*a), index (*) -> (*)."""
    return xp.take_along_axis(input, index, wrap_dim(dim, input.ndim))


@op(public=False, method=False, large=512, generated="many")
@derivative(grad_output=lambda grad, index, dim: take_along(grad, index, dim))
@samples(lambda t: [(t(3, 3), t.of([[0, 0, 2], [1, 1, 1], [0, 1, 2]]), (3, 4), 1)])
def add_along(xp, grad_output, index, shape, dim):
    """Zeros of `shape` with grad_output added at `index` along `dim`.  grad_output (*), index (*) -> (*shape)."""
    result = xp.zeros(shape, grad_output.dtype)
    axis = wrap_dim(dim, len(shape))
    places = []
    for d, n in enumerate(index.shape):
        sizes = [1] * index.ndim
        sizes[d] = n
        places.append(index if d == axis else xp.arange(n).reshape(sizes))
    xp.add.at(result, tuple(places), grad_output)
    return result


def _comparable(name: str, input: Any) -> None:
    if input.dtype.kind in "cW":
        raise not_implemented(name, input)


def best_along(xp: Any, name: str, input: Any, dim: Any, keepdim: bool, largest: bool) -> tuple[Any, Any]:
    """(values, first indices) of the extremes along `dim`."""
    if input.dtype.kind in "cW":
        raise RuntimeError(f"{name}(): does not support complex input")
    axis = wrap_dim(dim, input.ndim)
    if not input.ndim:
        return input.copy(), xp.zeros((), "int64")
    nonempty(name, input, axis)
    if largest:
        return input.max(axis=axis, keepdims=keepdim), input.argmax(axis=axis, keepdims=keepdim)
    return input.min(axis=axis, keepdims=keepdim), input.argmin(axis=axis, keepdims=keepdim)


def _among(grad: Tensor, input: Tensor, result: Tensor, dim: Any, keepdim: bool, with_nan: bool = False) -> Tensor:
    """The gradient shared evenly among the elements that equal the result; nan all over (or at nan) if that is nan."""
    shape = input._array.shape
    if not shape:
        return grad
    if dim == ():
        dim = None
    grad, result = unreduce(grad, shape, dim, keepdim), unreduce(result, shape, dim, keepdim)
    mask = input == result
    if with_nan:
        mask = mask | ((input != input) & (result != result))
        return keep_where((grad / mask.sum(dim, True).to(grad.dtype)).expand(shape), mask)
    return keep_where(grad.expand(shape), mask) / mask.sum(dim, True).to(grad.dtype)


def _extreme_samples(t: Any) -> list[Any]:
    return [(t.distinct(3, 4),), (t(),), (t.integers(0, 9, 2, 3),), (t.boolean(3),)]


@op(form="max", node="MaxBackward1")
@derivative(input=lambda grad, input, result: _among(grad, input, result, None, False, True))
@samples(_extreme_samples)
def max_all(xp, input):
    """The largest element; ties share its gradient.  input (*) -> ()."""
    nonempty("max", input, None)
    _comparable("max_all", input)
    return input.max()


@op(form="min", node="MinBackward1")
@derivative(input=lambda grad, input, result: _among(grad, input, result, None, False, True))
@samples(_extreme_samples)
def min_all(xp, input):
    """The smallest element; ties share its gradient.  input (*) -> ()."""
    nonempty("min", input, None)
    _comparable("min_all", input)
    return input.min()


def _dim_samples(t: Any) -> list[Any]:
    return [
        (t.distinct(3, 4), 1),
        (t.distinct(2, 3, 4), -2, True),
        (t(), 0),
        (t(0, 3), 1),
        (t.boolean(3), 0),
    ]


@op(
    form="max",
    returns=("values", "indices"),
    nondifferentiable=("indices",),
    node="MaxBackward0",
    blocks="rows",
    large=512,
    generated="some",
)
@derivative(input=lambda grad0, result1, input_shape, dim: at_index(grad0, result1, input_shape, dim))
@samples(_dim_samples)
def max_dim(xp, input, dim: int, keepdim: bool = False):
    """(values, indices) of the largest elements along `dim`, the first of equals.

    input (*) -> (* without dim), same.
    """
    return best_along(xp, "max", input, dim, keepdim, True)


@op(
    form="min",
    returns=("values", "indices"),
    nondifferentiable=("indices",),
    node="MinBackward0",
    blocks="rows",
    large=512,
    generated="some",
)
@derivative(input=lambda grad0, result1, input_shape, dim: at_index(grad0, result1, input_shape, dim))
@samples(_dim_samples)
def min_dim(xp, input, dim: int, keepdim: bool = False):
    """(values, indices) of the smallest elements along `dim`, the first of equals.

    input (*) -> (* without dim), same.
    """
    return best_along(xp, "min", input, dim, keepdim, False)


def _extreme(
    name: str,
    forms: Any,
    input: Any,
    dim: Any,
    keepdim: Any,
    other: Any,
    axis: Any,
    keepdims: Any,
    out: Any,
) -> Any:
    """max and min by form: all elements, along a dim, or with another tensor."""
    everything, along, pair = forms
    dim = axis if axis is not None else dim
    keepdim = keepdims if keepdims is not None else keepdim
    more = {} if out is None else {"out": out}
    if isinstance(dim, Tensor):
        dim, other = None, dim
    if other is not None:
        return pair(input, other, **more)
    if dim is None:
        return everything(input, **more)
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(
            f"{name}() received an invalid combination of arguments - got (Tensor, {type(dim).__name__}), but "
            f"expected one of:\n * (Tensor input, *, Tensor out = None)\n * (Tensor input, Tensor other, *, Tensor "
            f"out = None)\n * (Tensor input, int dim, bool keepdim = False, *, tuple of Tensors out = None)\n"
        )
    return along(input, dim, keepdim, **more)


@overload(several=((1, 2), (2, 3), (2, 4)))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(3, 4), 1), (t.distinct(3), t.distinct(3) * 1.01)])
def max(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    axis=None,
    keepdims=None,
    out=None,
) -> Any:
    """The largest element; (values, indices) along `dim`; or `maximum` of two Tensors.

    input (*) -> (* without dim).
    """
    return _extreme("max", (max_all, max_dim, maximum), input, dim, keepdim, other, axis, keepdims, out)


@overload(several=((1, 2), (2, 3), (2, 4)))
@samples(lambda t: [(t.distinct(3, 4),), (t.distinct(3, 4), 1), (t.distinct(3), t.distinct(3) * 1.01)])
def min(
    input: Tensor,
    dim: int | Tensor | None = None,
    keepdim: bool = False,
    *,
    other: Tensor | None = None,
    axis=None,
    keepdims=None,
    out=None,
) -> Any:
    """The smallest element; (values, indices) along `dim`; or `minimum` of two Tensors.

    input (*) -> (* without dim).
    """
    return _extreme("min", (min_all, min_dim, minimum), input, dim, keepdim, other, axis, keepdims, out)


def _spread_samples(t: Any) -> list[Any]:
    return [
        (t.distinct(3, 4),),
        (t(),),
        (t.distinct(3, 4), 1),
        (t.distinct(2, 3, 4), (0, 2), True),
        (t(2, 0), 0),
        (t.integers(0, 3, 4), 0),
    ]


@op(large=512, generated="many")
@derivative(input=lambda grad, input, result, dim, keepdim: _among(grad, input, result, dim, keepdim))
@samples(_spread_samples)
def amax(xp, input, dim: int | tuple[int, ...] = (), keepdim: bool = False):
    """The largest elements over `dim` (int or tuple; () = all); ties share the gradient.

    input (*) -> (* without dim).
    """
    nonempty("amax", input, dim)
    _comparable("max_values_cpu", input)
    return input.max(axis=axis_of(None if dim == () else dim, input.ndim), keepdims=keepdim)


@op(large=512, generated="many")
@derivative(input=lambda grad, input, result, dim, keepdim: _among(grad, input, result, dim, keepdim))
@samples(_spread_samples)
def amin(xp, input, dim: int | tuple[int, ...] = (), keepdim: bool = False):
    """The smallest elements over `dim` (int or tuple; () = all); ties share the gradient.

    input (*) -> (* without dim).
    """
    nonempty("amin", input, dim)
    _comparable("min_values_cpu", input)
    return input.min(axis=axis_of(None if dim == () else dim, input.ndim), keepdims=keepdim)


def _aminmax_backward(
    grad0: Any, grad1: Any, input: Tensor, result0: Tensor, result1: Tensor, dim: Any, keepdim: bool
) -> Tensor:
    parts = [_among(g, input, r, dim, keepdim) for g, r in ((grad0, result0), (grad1, result1)) if g is not None]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


@op(returns=("min", "max"))
@derivative(input=_aminmax_backward)
@samples(
    lambda t: [
        (t.distinct(3, 4),),
        (t.distinct(3, 4), {"dim": 1}),
        (t(), {"dim": 0, "keepdim": True}),
    ]
)
def aminmax(xp, input, *, dim: int | None = None, keepdim: bool = False):
    """(smallest, largest) of all elements or along `dim`.  input (*) -> (* without dim), (* without dim)."""
    if dim is None:
        if not input.size:
            raise RuntimeError(
                "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
            )
    else:
        nonempty("aminmax", input, dim)
    _comparable("aminmax_cpu", input)
    axis = axis_of(dim, input.ndim)
    return input.min(axis=axis, keepdims=keepdim), input.max(axis=axis, keepdims=keepdim)


def _arg(xp: Any, name: str, input: Any, dim: Any, keepdim: bool) -> Any:
    if input.dtype.kind in "cWb":
        raise RuntimeError(f"{name}(): does not support {'complex' if input.dtype.kind == 'c' else 'bool'} input")
    nonempty(name, input, dim, IndexError)
    if dim is None or not input.ndim:
        if dim is not None:
            wrap_dim(dim, 0)
        found = getattr(input, name)()
        return found.reshape((1,) * input.ndim) if keepdim else found
    return getattr(input, name)(axis=wrap_dim(dim, input.ndim), keepdims=keepdim)


@op(blocks="rows", generated="many")
@samples(lambda t: _dim_samples(t)[:-1])
def argmax(xp, input, dim: int | None = None, keepdim: bool = False):
    """The index of the largest element along `dim` (None: of all, flattened), the first of equals.

    input (*) -> (* without dim) int64.
    """
    return _arg(xp, "argmax", input, dim, keepdim)


@op(blocks="rows", generated="many")
@samples(lambda t: _dim_samples(t)[:-1])
def argmin(xp, input, dim: int | None = None, keepdim: bool = False):
    """The index of the smallest element along `dim` (None: of all, flattened), the first of equals.

    input (*) -> (* without dim) int64.
    """
    return _arg(xp, "argmin", input, dim, keepdim)
