"""Factories: tensors from sizes and ranges, on any device."""

from __future__ import annotations

import builtins
import math
import operator
import warnings
from contextlib import nullcontext
from typing import Any

import numpy as np

from engine import backends, dtypes, layouts
from engine._checks import size_of
from engine.device import CPU, device
from engine.dispatch import composite, providers
from engine.dispatch.arguments import argument_error, sizes_of
from engine.dispatch.promotion import is_number
from engine.dtypes import INEXACT
from engine.ops.copying import converted, number_for
from engine.tensor import Tensor, wrap

_CPU_NP = (np, CPU)
_default_device: list[device | None] = [None]


# --- where and what


def place_of(where: Any) -> tuple[Any, Any]:
    """(xp, device) for the `device=` of a factory; None means the default device."""
    if where is None:
        where = _default_device[0]
        if where is None:
            return _CPU_NP
    if not isinstance(where, device):
        where = device(where)
    if where.type == "cpu":
        return _CPU_NP
    return backends.of_device(where).xp, where


def inside(xp: Any, where: device) -> Any:
    """A context in which `xp` allocates on `where`."""
    if xp is np or where.index is None or where.type != "cuda":
        return nullcontext()
    return backends.of_device(where).inside(where)


def set_default_device(device: Any) -> None:
    """The device of tensors made without `device=`; None for the CPU."""
    from engine.device import device as make

    _default_device[0] = None if device is None else make(device)


def get_default_device() -> device:
    """The device of tensors made without `device=`."""
    return _default_device[0] or CPU


_outer: list[device | None] = []  # the default devices outside of `with device(...)` blocks


def _enter(self: device) -> device:
    """Factories inside the block make their tensors here."""
    _outer.append(_default_device[0])
    _default_device[0] = self
    return self


def _leave(self: device, *exc: object) -> None:
    _default_device[0] = _outer.pop()


device.__enter__, device.__exit__ = _enter, _leave  # type: ignore[attr-defined]
composite(method=False)(set_default_device)
composite(method=False)(get_default_device)


def numpy_dtype(dtype: Any, default: Any = None) -> Any:
    """The numpy dtype of a `dtype=` argument; the default float type for None."""
    if dtype is None:
        return dtypes.to_numpy(default or dtypes.get_default_dtype())
    found = dtypes.of_type(dtype)
    if not isinstance(found, dtypes.dtype):
        raise TypeError(f"argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    return dtypes.to_numpy(found)


def finish(array: Any, requires_grad: builtins.bool, out: Any = None) -> Tensor:
    """`array` as a tensor; written into `out` if there is one."""
    if out is not None:
        from engine.autograd.graph import registered

        if out._array.shape != array.shape:
            registered.resize_out(out, array.shape)
        out._array[...] = array
        out._vc[0] += 1
        return out
    result = wrap(array)
    if requires_grad:
        if array.dtype not in INEXACT:
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        result._requires_grad = True
    return result


def _check_sizes(shape: tuple[int, ...], name: str = "") -> tuple[int, ...]:
    for n in shape:
        if n < 0:
            if name == "zeros":
                raise RuntimeError("zeros: Dimension size must be non-negative.")
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    return shape


_DENSE = (None, layouts.strided)


def _without_strides(
    name: str, shape: tuple, out: Any, dtype: Any, layout: Any, where: Any, requires_grad: builtins.bool
) -> Tensor:
    """`zeros` and its like with a sparse `layout=` or `out=`."""
    if out is not None:
        found = providers["sparse_sized"](name, shape, out.layout, out.dtype, out.device)
        return out._become(found)  # type: ignore[no-any-return]
    return providers["sparse_sized"](name, shape, layout, dtype, where, requires_grad)  # type: ignore[no-any-return]


def _check_layout(layout: Any) -> None:
    if layout is not None and layout is not layouts.strided:
        raise RuntimeError("full(...) is not implemented for sparse layout")


# --- from sizes


def _ones(shape: tuple[int, ...], dtype: Any) -> Any:
    """np.ones, in half its time for a few elements."""
    array = np.empty(shape, dtype)
    array.fill(1)
    return array


def _sized(
    name: str, make: Any, sizes: tuple, out: Any, dtype: Any, layout: Any, where: Any, requires_grad: builtins.bool,
    memory_format: Any,
) -> Tensor:  # fmt: skip
    """A tensor of `sizes` from `make(shape, numpy dtype)`: zeros, ones or empty."""
    shape = sizes_of(name, "size", sizes)
    if (layout is not None or out is not None) and (layout not in _DENSE or (out is not None and out.is_sparse)):
        return _without_strides(name, shape, out, dtype, layout, where, requires_grad)
    if dtype is None:
        target = dtypes.to_numpy(dtypes._default[0]) if out is None else out._array.dtype
    else:
        target = numpy_dtype(dtype)
    if where is None and _default_device[0] is None:
        if memory_format is None and layout is None:
            try:
                array = make(shape, target)
            except ValueError:
                _check_sizes(shape, name)
                raise
            if requires_grad or out is not None:
                return finish(array, requires_grad, out)
            return wrap(array)
        xp, where = np, CPU
    else:
        xp, where = place_of(where)
    with inside(xp, where):
        array = layouts.empty_in_format(xp, _check_sizes(shape, name), target, memory_format)
        if name != "empty":
            array[...] = 1 if name == "ones" else 0
    return finish(array, requires_grad, out)


@composite(method=False)
def zeros(
    *sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: builtins.bool = False, requires_grad: builtins.bool = False, memory_format: Any = None,
    names: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor of zeros.  zeros(*size) -> (*size)."""
    sizes = sizes if size is None else (size,)
    return _sized("zeros", np.zeros, sizes, out, dtype, layout, device, requires_grad, memory_format)


@composite(method=False)
def ones(
    *sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: builtins.bool = False, requires_grad: builtins.bool = False, memory_format: Any = None,
    names: Any = None,
) -> Tensor:  # fmt: skip
    """A tensor of ones.  ones(*size) -> (*size)."""
    sizes = sizes if size is None else (size,)
    return _sized("ones", _ones, sizes, out, dtype, layout, device, requires_grad, memory_format)


@composite(method=False)
def empty(
    *sizes: Any, size: Any = None, out: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: builtins.bool = False, requires_grad: builtins.bool = False, memory_format: Any = None,
    names: Any = None,
) -> Tensor:  # fmt: skip
    """An uninitialised tensor.  empty(*size) -> (*size)."""
    sizes = sizes if size is None else (size,)
    return _sized("empty", np.empty, sizes, out, dtype, layout, device, requires_grad, memory_format)


@composite(method=False)
def full(
    size: tuple[int, ...], fill_value: complex, *, out=None, dtype=None, layout=None, device=None,
    pin_memory=False, requires_grad=False,
    names=None,
):  # fmt: skip
    """A tensor filled with one number, in that number's dtype unless `dtype` says otherwise.

    full(size, v) -> (*size).
    """
    shape = _check_sizes(size_of(size))
    _check_layout(layout)
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    if dtype is None:
        target = out._array.dtype if out is not None else dtypes.to_numpy(dtypes.of_number(fill_value))
    else:
        target = numpy_dtype(dtype)
    xp, where = place_of(device)
    with inside(xp, where):
        array = xp.full(shape, number_for(fill_value, target), target)
    return finish(array, requires_grad, out)


def like_array(source: Any, dtype: Any, where: Any, memory_format: Any, zero: builtins.bool = False) -> Any:
    """A new array as `source`, but for what is given."""
    target = source.dtype if dtype is None else numpy_dtype(dtype)
    if where is None:
        xp, where = (np if type(source) is np.ndarray else backends.xp_of(source)), None
    else:
        xp, where = place_of(where)
    if memory_format is None and source.flags.c_contiguous:
        if where is None:
            return xp.zeros(source.shape, target) if zero else xp.empty(source.shape, target)
        with inside(xp, where):
            return xp.zeros(source.shape, target) if zero else xp.empty(source.shape, target)
    with inside(xp, where or CPU):
        array = layouts.empty_in_format(xp, source.shape, target, memory_format, source)
    if zero:
        array[...] = 0
    return array


def _like(name: str, input: Any, dtype: Any, where: Any, memory_format: Any, requires_grad: builtins.bool) -> Tensor:
    """A tensor as `input`: zeros_like, ones_like or empty_like."""
    array = like_array(input._array, dtype, where, memory_format, zero=name == "zeros_like")
    if name == "ones_like":
        array.fill(1)
    return finish(array, True) if requires_grad else wrap(array)


@composite(method=False)
def zeros_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: builtins.bool = False, requires_grad: builtins.bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Zeros in the shape, dtype, device and strides of `input`.  input (*) -> (*)."""
    if layout is not None and layout is not layouts.strided:
        return providers["sparse_sized"](
            "zeros", tuple(input.shape), layout, dtype or input.dtype, device, requires_grad
        )
    return _like("zeros_like", input, dtype, device, memory_format, requires_grad)


@composite(method=False)
def ones_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: builtins.bool = False, requires_grad: builtins.bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Ones in the shape, dtype, device and strides of `input`.  input (*) -> (*)."""
    if layout is not None and layout is not layouts.strided:
        return providers["sparse_sized"](
            "ones", tuple(input.shape), layout, dtype or input.dtype, device, requires_grad
        )
    return _like("ones_like", input, dtype, device, memory_format, requires_grad)


@composite(method=False)
def empty_like(
    input: Tensor, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: builtins.bool = False, requires_grad: builtins.bool = False, memory_format: Any = None,
) -> Tensor:  # fmt: skip
    """Uninitialised memory in the shape, dtype, device and strides of `input`.  input (*) -> (*)."""
    if layout is not None and layout is not layouts.strided:
        return providers["sparse_sized"](
            "empty", tuple(input.shape), layout, dtype or input.dtype, device, requires_grad
        )
    return _like("empty_like", input, dtype, device, memory_format, requires_grad)


@composite(method=False)
def full_like(
    input: Tensor, fill_value: complex, *, dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False,
    memory_format=None,
):  # fmt: skip
    """A tensor as `input` filled with one number.  input (*) -> (*)."""
    array = like_array(input._array, dtype, device, memory_format)
    array[...] = number_for(fill_value.item() if isinstance(fill_value, Tensor) else fill_value, array.dtype)
    return finish(array, requires_grad)


@composite(method=False)
def empty_strided(
    size: tuple[int, ...],
    stride: tuple[int, ...],
    *,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
):
    """An uninitialised tensor with these strides.  -> (*size)."""
    target = numpy_dtype(dtype)
    xp, where = place_of(device)
    with inside(xp, where):
        steps = tuple(s * target.itemsize for s in size_of(stride))
        return finish(layouts.empty_strided(xp, size_of(size), steps, target), requires_grad)


@composite(method=False)
def empty_permuted(
    size: tuple[int, ...],
    physical_layout: tuple[int, ...],
    *,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
):
    """An uninitialised tensor that fills memory in the order of dims `physical_layout`.  -> (*size)."""
    sizes, order = size_of(size), size_of(physical_layout)
    if len(order) != len(sizes):
        raise RuntimeError(
            f"Number of dimensions in size does not match the length of the physical_layout; i.e. len(size) = "
            f"{len(sizes)} is not equal to len(physical_layout) = {len(order)}"
        )
    steps, step = [0] * len(sizes), 1
    for d in reversed(order):
        if not 0 <= d < len(sizes):
            raise RuntimeError(f"Dimension out of range (expected to be between 0 and {len(sizes) - 1}, but got {d}")
        if steps[d]:
            raise RuntimeError("Duplicate dim not allowed")
        steps[d] = step
        step *= builtins.max(sizes[d], 1)
    return empty_strided(sizes, tuple(steps), dtype=dtype, layout=layout, device=device, requires_grad=requires_grad)


def _new(fill: str) -> Any:
    def method(
        self: Tensor, *sizes: Any, size: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
        pin_memory: builtins.bool = False, requires_grad: builtins.bool = False, memory_format: Any = None,
    ) -> Tensor:  # fmt: skip
        shape = _check_sizes(sizes_of("new_" + fill, "size", sizes if size is None else (size,)))
        xp, where = _place_like(self, device)
        with inside(xp, where):
            array = getattr(xp, fill)(shape, self._array.dtype if dtype is None else numpy_dtype(dtype))
        return finish(array, requires_grad)

    method.__name__ = method.__qualname__ = "new_" + fill
    method.__doc__ = f"`{fill}` of a size, in the dtype and on the device of this tensor.  -> (*size)."
    return method


def _place_like(tensor: Tensor, where: Any) -> tuple[Any, Any]:
    if where is not None:
        return place_of(where)
    array = tensor._array
    if type(array) is np.ndarray:
        return _CPU_NP
    return backends.xp_of(array), tensor.device


Tensor.new_zeros, Tensor.new_ones, Tensor.new_empty = _new("zeros"), _new("ones"), _new("empty")


def _new_full(
    self: Tensor, size: Any, fill_value: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: builtins.bool = False, requires_grad: builtins.bool = False,
) -> Tensor:  # fmt: skip
    """A tensor of one number, in the dtype and on the device of this one.  -> (*size)."""
    target = self._array.dtype if dtype is None else numpy_dtype(dtype)
    xp, where = _place_like(self, device)
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    if not is_number(value):
        raise argument_error("new_full", 2, "fill_value", "Number", fill_value)
    with inside(xp, where):
        return finish(
            xp.full(_check_sizes(sizes_of("new_full", "size", (size,))), number_for(value, target), target),
            requires_grad,
        )


def _new_empty_strided(
    self: Tensor, size: Any, stride: Any, dtype: Any = None, device: Any = None, **kwargs: Any
) -> Tensor:
    """An uninitialised tensor with these strides, as this one.  -> (*size)."""
    return empty_strided(
        size,
        stride,
        dtype=self.dtype if dtype is None else dtype,
        device=self.device if device is None else device,
        **kwargs,
    )


def _new_legacy(self: Tensor, *args: Any, device: Any = None) -> Tensor:
    """As the constructor of this tensor's legacy type: by sizes or from data."""
    from engine.tensor import _legacy_new

    where = self.device if device is None else device
    return _legacy_new(Tensor, self.dtype, args, where)


Tensor.new_full,  Tensor.new_empty_strided, Tensor.new = (
    _new_full,  _new_empty_strided, _new_legacy,
)  # fmt: skip


# --- ranges


def _range_dtype(values: tuple, dtype: Any) -> Any:
    if dtype is not None:
        return numpy_dtype(dtype)
    if any(isinstance(v, builtins.float) or (isinstance(v, Tensor) and v.dtype.is_floating_point) for v in values):
        return dtypes.to_numpy(dtypes.get_default_dtype())
    return dtypes.to_numpy(dtypes.int64)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor | np.generic) else value


@composite(method=False)
def arange(
    *args, start: complex = 0, end: complex | None = None, step: complex = 1, out=None, dtype=None,
    layout=None, device=None, pin_memory=False,
    requires_grad=False,
):  # fmt: skip
    """start, start + step, ... below end.  arange(end), arange(start, end, step) -> (ceil((end - start) / step))."""
    if args:
        if len(args) == 1 and end is None:
            end = args[0]
        elif len(args) == 1:
            start = args[0]
        elif len(args) == 2:
            start, end = args
        elif len(args) == 3:
            start, end, step = args
        else:
            raise TypeError(f"arange() takes at most 3 positional arguments, got {len(args)}")
    if not all(isinstance(x, Tensor) or is_number(x) for x in (start, end, step)):
        if len(args) == 1:
            raise argument_error("arange", 1, "end", "Number", end)
        kinds = ", ".join(type(x).__name__ for x in (args or (start, end, step)))
        raise TypeError(
            f"arange() received an invalid combination of arguments - got ({kinds}), but expected one of:\n"
            " * (Number end)\n * (Number start, Number end, Number step = 1)\n"
        )
    target = out._array.dtype if out is not None and dtype is None else _range_dtype((start, end, step), dtype)
    start, end, step = _plain(start), _plain(end), _plain(step)
    _check_range(start, end, step)
    if target.kind in "iu":
        start, end, step = builtins.int(start), builtins.int(end), builtins.int(step)
    xp, where = place_of(device)
    with inside(xp, where):
        if isinstance(start, builtins.int) and isinstance(end, builtins.int) and isinstance(step, builtins.int):
            if target.kind in "iu":
                array = xp.arange(start, end, step, dtype=target)
            else:
                array = xp.arange(start, end, step).astype(target)
        else:
            count = builtins.max(math.ceil((end - start) / step), 0)
            array = _steps(xp, start, step, count, target)
    return finish(array, requires_grad, out)


def _check_range(start: Any, end: Any, step: Any) -> None:
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start:g} -> {end:g}")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")


def _steps(xp: Any, start: Any, step: Any, count: builtins.int, target: Any) -> Any:
    if target.kind in "iu":
        return xp.arange(count, dtype=target) * target.type(step) + target.type(start)
    return (xp.arange(count, dtype=np.float64) * step + start).astype(target)


@composite(method=False)
def range(
    start: complex = 0,
    end: complex | None = None,
    step: complex = 1,
    *,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
):
    """As `arange`, with the end included; deprecated.  -> (floor((end - start) / step) + 1)."""
    if end is None:
        start, end = 0, start
    warnings.warn(
        "torch.range is deprecated and will be removed in a future release because its behavior is inconsistent with "
        "Python's range builtin. Instead, use torch.arange, which produces values in [start, end).",
        stacklevel=2,
    )
    start, end, step = _plain(start), _plain(end), _plain(step)
    _check_range(start, end, step)
    xp, where = place_of(device)
    with inside(xp, where):
        return finish(
            _steps(xp, start, step, math.floor((end - start) / step) + 1, numpy_dtype(dtype)),
            requires_grad,
            out,
        )


def _line_dtype(values: tuple, dtype: Any) -> Any:
    if dtype is not None:
        return numpy_dtype(dtype)
    if any(isinstance(v, builtins.complex) for v in values):
        return dtypes.to_numpy(dtypes.default_complex())
    return dtypes.to_numpy(dtypes.get_default_dtype())


@composite(method=False)
def linspace(
    start: complex | Tensor, end: complex | Tensor, steps: int | None = None, *, out=None,
    dtype=None, layout=None, device=None, pin_memory=False, requires_grad=False
):  # fmt: skip
    """`steps` numbers from start to end, both included.  -> (steps)."""
    start, end = _plain(start), _plain(end)
    target = out._array.dtype if out is not None and dtype is None else _line_dtype((start, end), dtype)
    xp, where = place_of(device)
    with inside(xp, where):
        return finish(_line(xp, start, end, steps, target), requires_grad, out)


def _line(xp: Any, start: Any, end: Any, steps: Any, target: Any) -> Any:
    if steps is None:
        raise TypeError('linspace() missing 1 required positional arguments: "steps"')
    steps = operator.index(steps)
    if steps < 0:
        raise RuntimeError("number of steps must be non-negative")
    if steps == 0:
        return xp.zeros(0, target)
    if steps == 1:
        return xp.full(1, number_for(start, target), target)
    # As torch: a step in the working precision, the upper half counted back from the end, each element rounded once (it
    # uses fused multiply-add); float32 products are exact in float64.
    index = xp.arange(steps)
    half = steps // 2
    if target.kind in "iu":
        step = (end - start) / (steps - 1)
        low, high = index[:half] * step + start, end - (steps - 1 - index[half:]) * step
    elif target.kind == "c" or target.itemsize == 8:
        step = target.type((end - start) / (steps - 1))
        low, high = index[:half] * step + start, end - (steps - 1 - index[half:]) * step
    else:
        step = float_(target.type((np.float32(end) - np.float32(start)) / np.float32(steps - 1)))
        up, down = index[:half] * step, (steps - 1 - index[half:]) * step
        if target.itemsize == 2:
            up, down = up.astype(target), down.astype(target)
        low, high = up + float_(target.type(start)), float_(target.type(end)) - down
    return xp.concatenate([low, high]).astype(target)


float_ = builtins.float


@composite(method=False)
def logspace(
    start: complex | Tensor, end: complex | Tensor, steps: int | None = None, base: float = 10.0, *,
    out=None, dtype=None, layout=None, device=None, pin_memory=False,
    requires_grad=False,
):  # fmt: skip
    """base ** linspace(start, end, steps).  -> (steps)."""
    start, end = _plain(start), _plain(end)
    target = out._array.dtype if out is not None and dtype is None else _line_dtype((start, end), dtype)
    xp, where = place_of(device)
    with inside(xp, where):
        line = _line(xp, start, end, steps, np.dtype(np.float64) if target.kind != "c" else target)
        return finish((base**line).astype(target), requires_grad, out)


@composite(method=False)
def eye(
    n: int,
    m: int | None = None,
    *,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Ones on the diagonal, zeros elsewhere.  -> (n, m)."""
    m = n if m is None else m
    for size, name in ((n, "n"), (m, "m")):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    target = out._array.dtype if out is not None and dtype is None else numpy_dtype(dtype)
    xp, where = place_of(device)
    with inside(xp, where):
        return finish(xp.eye(n, m, dtype=target), requires_grad, out)


def _triangle_indices(row: Any, col: Any, dtype: Any, where: Any, inside_of: Any) -> Tensor:
    """The places where `inside_of(row number, column number)`, row by row.  -> (2, count)."""
    for size, name in ((row, "row"), (col, "col")):
        if size < 0:
            raise RuntimeError(f"{name} must be non-negative, got{size}")
    target = numpy_dtype(dtype, dtypes.int64)
    xp, where = place_of(where)
    with inside(xp, where):
        mask = inside_of(xp.arange(row).reshape(-1, 1), xp.arange(col))
        return wrap(xp.stack(xp.nonzero(mask)).astype(target))


@composite(method=False)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype=None, device=None, layout=None):
    """Row and column numbers of the lower triangle of a matrix, row by row.  -> (2, count)."""
    return _triangle_indices(row, col, dtype, device, lambda i, j: j - i <= offset)


@composite(method=False)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype=None, device=None, layout=None):
    """Row and column numbers of the upper triangle of a matrix, row by row.  -> (2, count)."""
    return _triangle_indices(row, col, dtype, device, lambda i, j: j - i >= offset)


@composite(method=False)
def vander(x: Tensor, N: int | None = None, increasing: bool = False):
    """Powers of a vector as columns.  x (n) -> (n, N)."""
    from engine.ops.shape import unsqueeze

    if x.dim() != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    count = x.numel() if N is None else N
    if count < 0:
        raise RuntimeError("N must be non-negative.")
    powers = arange(count) if increasing else arange(count - 1, -1, -1) if count else arange(0)
    if x.dtype.category < dtypes.FLOATING:
        x = converted(x, dtypes.int64)
    return unsqueeze(x, 1) ** powers.to(x.device)
