"""softmax, log_softmax and softmin."""

from __future__ import annotations

from math import inf
from typing import Any

from engine.autograd.versions import guard
from engine.backends.cpu.exact import summed
from engine.core import dtypes
from engine.core.checks import wrap_dim
from engine.dispatch import OPS, composite, derivative, op, samples
from engine.ops.pointwise.arithmetic import not_implemented
from engine.ops.reduction import cast_back
from engine.tensor import Tensor

PRIVATE = {"public": False, "method": False}


def _soft_input(name: str, input: Any, dim: int, dtype: Any) -> tuple[Any, Any, int]:
    """(values to compute with, dtype of the result, axis)."""
    if dtype is not None:
        input = input.astype(dtypes.to_numpy(dtype))
    axis = wrap_dim(dim, input.ndim)
    if input.dtype.kind in "iubc":
        raise not_implemented(f"{name}_{'lastdim_' if axis >= input.ndim - 1 else ''}kernel_impl", input)
    if input.dtype.itemsize == 2:
        return input.astype("float32"), input.dtype, axis
    return input, input.dtype, axis


@op(**PRIVATE, half=True, blocks="rows", generated="many")
@derivative(
    grad_output=lambda grad, output, dim: guard(softmax_backward(grad, output, dim), grad),
    output=lambda grad, grad_output, output, dim: _softmax_curve(grad, grad_output, output, dim),
)
@samples(lambda t: [(t(3, 4), t(3, 4), 1), (t(), t(), 0)])
def softmax_backward(xp, grad_output, output, dim):
    """output * (grad_output - sum(grad_output * output)).  grad_output (*), output (*) -> (*)."""
    weighted = xp.multiply(grad_output, output)
    if not output.ndim:
        return weighted - output * weighted
    return weighted - output * summed(weighted, dim, True)


def _softmax_curve(grad: Tensor, grad_output: Tensor, output: Tensor, dim: int) -> Tensor:
    inner = (grad_output * output).sum(dim, True)
    return grad * grad_output - grad * inner - grad_output * (grad * output).sum(dim, True)


def _soft_samples(t: Any) -> list[Any]:
    return [
        (t(3, 4), 1),
        (t(2, 3, 4), 0),
        (t(3), -1),
        (t(), 0),
        (t(0, 3), 1),
        (t(3, 0), 1),
        (t(3, 4), 1, {"dtype": dtypes.float64}),
    ]


@op(
    names=("special_softmax",), large=512, blocks="rows", generated="many", autocast={"cuda": "float32"}, out_as="graph"
)
@derivative(input=lambda grad, result, dim, input_dtype: cast_back(softmax_backward(grad, result, dim), input_dtype))
@samples(_soft_samples)
def softmax(xp, input, dim: int, dtype=None):
    """exp(input) divided by its sum along `dim`, without overflow.  input (*) -> (*)."""
    input, kind, axis = _soft_input("softmax", input, dim, dtype)
    if not input.ndim or not input.size:
        return xp.ones_like(input, dtype=kind) if not input.ndim else input.astype(kind)
    found = xp.exp(input - input.max(axis=axis, keepdims=True))
    found /= summed(found, axis, True)
    return found if found.dtype is kind else found.astype(kind)


@op(**PRIVATE, half=True, blocks="rows", generated="many")
@derivative(
    grad_output=lambda grad, output, dim: grad - (grad * output.exp()).sum(dim, True),
    output=lambda grad, grad_output, output, dim: -grad * output.exp() * grad_output.sum(dim, True),
)
@samples(lambda t: [(t(3, 4), t(3, 4), 1), (t(), t(), 0)])
def log_softmax_backward(xp, grad_output, output, dim):
    """grad_output - exp(output) * sum(grad_output).  grad_output (*), output (*) -> (*)."""
    if not output.ndim:
        return grad_output - xp.exp(output) * grad_output
    return grad_output - xp.exp(output) * summed(grad_output, dim, True)


@op(
    names=("special_log_softmax",),
    large=512,
    blocks="rows",
    generated="many",
    autocast={"cuda": "float32"},
    out_as="graph",
)
@derivative(
    input=lambda grad, result, dim, input_dtype: cast_back(log_softmax_backward(grad, result, dim), input_dtype)
)
@samples(_soft_samples)
def log_softmax(xp, input, dim: int, dtype=None):
    """input minus the logarithm of its sum of exp along `dim`, without overflow.  input (*) -> (*)."""
    input, kind, axis = _soft_input("log_softmax", input, dim, dtype)
    if not input.ndim or not input.size:
        return xp.zeros_like(input, dtype=kind) if not input.ndim else input.astype(kind)
    found = input - input.max(axis=axis, keepdims=True)
    found -= xp.log(summed(xp.exp(found), axis, True))
    return found.astype(kind, copy=False)


@composite(**PRIVATE)
@samples(lambda t: [(t(3, 4), 1)])
def softmin(input, dim, dtype=None):
    """softmax of -input.  input (*) -> (*)."""
    return softmax(-input, dim, dtype)


@op(method=False, public=True, half=True)
@derivative(input=lambda grad, result, dim, input_dtype: cast_back(softmax_backward(grad, result, dim), input_dtype))
@samples(lambda t: [(t(3, 4), 1), (t(2, 3, 4), 0), (t(), 0), (t(3, 0), 1), (t.of([[-inf, -inf], [-inf, 2.0]]), 1)])
def _safe_softmax(xp, input, dim: int, dtype=None):
    """`softmax` with 0 along a `dim` whose elements are all -infinity.  input (*) -> (*)."""
    found = OPS["softmax"].kernel(xp, input, dim, dtype)
    if not input.size:
        return found
    axis = wrap_dim(dim, input.ndim)
    nothing = input == -inf
    return xp.where(nothing.all(axis=axis, keepdims=True) if input.ndim else nothing, found.dtype.type(0), found)


def _data(name: str, function: Any) -> Any:
    """`softmax` or its logarithm as torch's compiled code calls it: `half_to_float` is for GPUs alone."""

    def call(input: Tensor, dim: int, half_to_float: bool, *, out: Tensor | None = None):
        if half_to_float:
            raise RuntimeError(f"{name} with half to float conversion is not supported on CPU")
        return function(input, dim) if out is None else function(input, dim, out=out)

    call.__name__ = call.__qualname__ = f"_{name}"
    call.__doc__ = f"`{name}`; half_to_float is refused on the CPU.  input (*) -> (*)."
    return composite(method=False)(call)


@composite(method=False)
def _softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtypes.dtype):
    """The gradient of `softmax` from its result, in the dtype of its input.  grad_output (*), output (*) -> (*)."""
    return guard(softmax_backward(grad_output, output, dim).to(input_dtype), grad_output)


@composite(method=False)
def _log_softmax_backward_data(grad_output: Tensor, output: Tensor, dim: int, input_dtype: dtypes.dtype):
    """The gradient of `log_softmax` from its result, in the dtype of its input.  grad_output (*), output (*) -> (*)."""
    return log_softmax_backward(grad_output, output, dim).to(input_dtype)  # its formula saves the output


_softmax, _log_softmax = _data("softmax", softmax), _data("log_softmax", log_softmax)
