"""Complex numbers: their parts as views, conjugation, angle, and making them of reals."""

from __future__ import annotations

import math
from typing import Any

from engine import backends
from engine.autograd.graph import name_node, registered
from engine.core import dtypes
from engine.core.checks import broadcast_shapes
from engine.dispatch import composite, derivative, kernel, op, overload, samples
from engine.ops.pointwise.arithmetic import keep_where, zeros_of
from engine.tensor import Tensor

REAL_OF = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}  # names of numpy dtypes
_COMPLEX_OF = {name: dtype for dtype, name in REAL_OF.items()}


def _complex_of(array: Any) -> Any:
    """The complex numpy dtype whose parts are of the type of a real array.  RuntimeError where its device has none."""
    found = dtypes.to_numpy(getattr(dtypes, _COMPLEX_OF[array.dtype.name]))
    backend = backends.known(array)  # None: a scalar of numpy's
    if backend is not None:
        backend.check_type(found)
    return found


# --- parts


@op(public=False, method=False)
@derivative(input=lambda grad: real(grad))
@samples(lambda t: [(t(3),), (t(),)])
def as_complex(xp, input):
    """Real numbers as complex ones.  input (*) -> (*)."""
    return input.astype(_complex_of(input))


@op(node="SelectBackward0", view=True, public=False, method=False)
@derivative(input=lambda grad: as_complex(grad))
@samples(lambda t: [(t.complex(3, 2),), (t.complex(),)])
def realpart(xp, input):
    """The real parts, sharing memory.  input (*) complex -> (*)."""
    return dtypes.part(input, 0)


@op(node="SelectBackward0", view=True, public=False, method=False)
@derivative(input=lambda grad: as_complex(grad) * 1j)
@samples(lambda t: [(t.complex(3, 2),), (t.complex(),)])
def imaginarypart(xp, input):
    """The imaginary parts, sharing memory.  input (*) complex -> (*)."""
    return dtypes.part(input, 1)


@overload(method=False, elementwise=True)
def real(input: Tensor):
    """The real part, sharing memory; a real tensor itself.  input (*) -> (*)."""
    return realpart(input) if input._array.dtype.kind in "cW" else input


@overload(method=False, elementwise=True)
def imag(input: Tensor):
    """The imaginary part, sharing memory.  RuntimeError for real tensors.  input (*) -> (*)."""
    if input._array.dtype.kind not in "cW":
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return imaginarypart(input)


def _set_real(self: Tensor, value: Any) -> None:
    registered.copy_(real(self), value)


def _set_imag(self: Tensor, value: Any) -> None:
    registered.copy_(imag(self), value)


Tensor.real = property(real, _set_real, doc=real.__doc__)  # type: ignore[attr-defined]
Tensor.imag = property(imag, _set_imag, doc=imag.__doc__)  # type: ignore[attr-defined]


@op(view=True, method=False, linear=True)
@derivative(input=lambda grad: view_as_complex(grad.contiguous()))
@samples(lambda t: [(t.complex(3, 2),), (t.complex(),), (t.complex(0),)])
def view_as_real(xp, input):
    """Complex numbers as pairs (real, imaginary), sharing memory.  input (*) complex -> (*, 2)."""
    if input.dtype.kind not in "cW":
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return input[..., None].view(REAL_OF[input.dtype.name])


@op(view=True, method=False, linear=True)
@derivative(input=lambda grad: view_as_real(grad))
@samples(lambda t: [(t(3, 2),), (t(2),), (t(0, 2),)])
def view_as_complex(xp, input):
    """Pairs (real, imaginary) in the last dim as complex numbers, sharing memory.  input (*, 2) -> (*) complex."""
    if input.dtype.name not in _COMPLEX_OF:
        raise RuntimeError(
            "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: "
            f"{dtypes.scalar_name(dtypes.from_numpy(input.dtype))}"
        )
    if not input.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    item = input.dtype.itemsize
    if input.strides[-1] != item and input.size:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if any(s % (2 * item) for s, n in zip(input.strides[:-1], input.shape) if n > 1):
        raise RuntimeError("Tensor must have a stride divisible by 2 for all but last dimension")
    return input.view(_complex_of(input))[..., 0]


# --- conjugation


@op(node={"_inplace": "ConjPhysicalBackward1"}, inplace=True, form="conj_physical", blocks="elements", out_as="graph")
@derivative(input=lambda grad: conj_physical(grad))
@samples(lambda t: [(t.complex(3, 4),), (t.complex(),), (t(3),)])
def conjugate(xp, input):
    """The complex conjugate.  input (*) -> (*)."""
    return xp.conj(input) if input.dtype.kind in "cW" else input.copy()


@overload(linear=True, elementwise=True)
def conj(input: Tensor):
    """The complex conjugate; a real tensor itself.  input (*) -> (*)."""
    if input._array.dtype.kind not in "cW":
        return input
    return name_node(conjugate(input), "ConjBackward0")


@overload(linear=True, elementwise=True)
def conj_physical(input: Tensor, *, out: Tensor | None = None):
    """The complex conjugate; a real tensor itself.  input (*) -> (*)."""
    if out is not None:
        return conjugate(input, out=out)
    return conjugate(input) if input._array.dtype.kind in "cW" else input


@composite()
def conj_physical_(input: Tensor):
    """In place: see `conj`."""
    return conjugate.op.inplace_function(input)


@composite(names=("resolve_neg",), linear=True)
def resolve_conj(input: Tensor):
    """`input` itself: conjugation and negation are never lazy here.  input (*) -> (*)."""
    return input


# --- polar form


def _angle_backward(grad: Tensor, input: Tensor) -> Tensor:
    if input._array.dtype.kind not in "cW":
        return zeros_of(grad)
    x, y = input.real, input.imag
    slope = grad / (x * x + y * y)
    return keep_where(complex(-y * slope, x * slope), input != 0)


@op(promote="float", blocks="elements")
@derivative(input=_angle_backward)
@samples(lambda t: [(t.complex(3, 4),), (t(3),), (t.integers(-2, 3, 4),), (t.complex(),)])
def angle(xp, input):
    """The argument in radians; of real numbers 0 or pi.  input (*) -> (*)."""
    if input.dtype.kind in "cW":
        return xp.arctan2(input.imag, input.real)
    of = input.dtype.type
    return xp.where(input != input, input, xp.where(input < 0, of(math.pi), of(0)))


def _check_pair(name: str, first: Any, second: Any) -> None:
    kinds = [dtypes.from_numpy(x.dtype) for x in (first, second)]
    if any(k.category != dtypes.FLOATING or k is dtypes.bfloat16 for k in kinds):
        found = " and ".join(dtypes.scalar_name(k) for k in kinds)
        raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {found}")
    if kinds[0] is not kinds[1]:
        raise RuntimeError(
            f"Expected object of scalar type {dtypes.scalar_name(kinds[0])} but got scalar type "
            f"{dtypes.scalar_name(kinds[1])} for second argument"
        )


def _assembled(xp: Any, real: Any, imag: Any) -> Any:
    result = xp.empty(broadcast_shapes(real.shape, imag.shape), _complex_of(real))
    dtypes.part(result, 0)[...] = real
    dtypes.part(result, 1)[...] = imag
    return result


@op(
    broadcast=True,
    method=False,
    check=lambda arrays: _check_pair("complex", *arrays),
    numbers=(),
    keeps=("real", "imag"),
    generated="some",
)
@derivative(real=lambda grad: grad.real, imag=lambda grad: grad.imag)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t())])
def complex(xp, real, imag):
    """real + i imag.  real (*a), imag (*b) -> (broadcast of a and b) complex."""
    _check_pair("complex", real, imag)
    return _assembled(xp, real, imag)


@kernel(complex, "cpu", only_launches=True)
def _paired(xp: Any, real: Any, imag: Any) -> Any:
    from engine.ops.generated import copies  # for the weight: few programs ask

    return copies.paired(xp, real, imag)


def _polar_abs(grad: Tensor, angle: Tensor) -> Tensor:
    if grad.is_complex():
        return grad.real * angle.cos() + grad.imag * angle.sin()
    return grad * angle.cos()


def _polar_angle(grad: Tensor, abs: Tensor, angle: Tensor) -> Tensor:
    if grad.is_complex():
        return (grad.imag * angle.cos() - grad.real * angle.sin()) * abs
    return -(grad * angle.sin() * abs)


@op(broadcast=True, method=False, check=lambda arrays: _check_pair("polar", *arrays), numbers=())
@derivative(abs=_polar_abs, angle=_polar_angle)
@samples(lambda t: [(t(3, 4), t(3, 4)), (t(2, 1), t(3)), (t(), t())])
def polar(xp, abs, angle):
    """abs * e ** (i angle).  abs (*a), angle (*b) in radians -> (broadcast of a and b) complex."""
    _check_pair("polar", abs, angle)
    return _assembled(xp, abs * xp.cos(angle), abs * xp.sin(angle))
