"""Factories: tensors from sizes and ranges, on any device."""

from __future__ import annotations

import builtins
import functools
from contextlib import nullcontext
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.graph import registered
from engine.autograd.inplace import check_writable
from engine.backends.cpu import allocator, relayout
from engine.core import dtypes, layouts
from engine.core.checks import size_of
from engine.core.device import CPU, device
from engine.core.dtypes import INEXACT
from engine.core.grad_mode import mode
from engine.dispatch import composite, has, providers
from engine.dispatch.arguments import argument_error, sizes_of
from engine.dispatch.promotion import is_number
from engine.ops.copying import number_for
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


def placed(tensor: Tensor, where: Any) -> Tensor:
    """What a factory has made on the CPU, on its `device=`; None means the default device."""
    where = _default_device[0] if where is None else where
    return tensor if where is None else tensor.to(where)


def inside(xp: Any, where: device) -> Any:
    """A context in which `xp` allocates on `where`."""
    if xp is np or where.index is None or where.type != "cuda":
        return nullcontext()
    return backends.of_device(where).inside(where)


def set_default_device(device: Any) -> None:
    """The device of tensors made without `device=`; None for the CPU."""
    from engine.core.device import device as make

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


device.__enter__, device.__exit__ = _enter, _leave  # type: ignore[method-assign]
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


def finish(array: Any, requires_grad: builtins.bool, out: Any = None, name: str = "") -> Tensor:
    """`array` as a tensor; written into `out` if there is one.  `name`: of a range, whose `out=` may have any shape
    of so many elements."""
    if out is not None:
        return _finish_out(array, out, name)
    result = wrap(array)
    if requires_grad:
        if array.dtype not in INEXACT:
            raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
        result._requires_grad = True
    return result


def _finish_out(array: Any, out: Tensor, name: str) -> Tensor:
    """`array` written into `out`: a range (*n) into any shape with as many elements, row by row, as torch does."""
    if not isinstance(out, Tensor):
        raise argument_error(name, None, "out", "Tensor", out)
    if mode.enabled and out.requires_grad:
        raise RuntimeError(
            f"aten::{name}(): functions with out=... arguments don't support automatic differentiation, but one of the "
            "arguments requires grad."
        )
    if name and out._array.size == array.size:
        array = array.reshape(out._array.shape)
    if out._array.shape != array.shape:
        registered.resize_out(out, array.shape)
    check_writable(out)
    out._array[...] = array
    out._vc[0] += 1
    return out


def out_dtype(out: Any, dtype: Any, default: Any) -> Any:
    """The numpy dtype of what a factory makes: `dtype`, which `out` has too; else that of `out`, else `default()`."""
    if out is None or dtype is None:
        return default() if out is None else out._array.dtype
    target = numpy_dtype(dtype)
    if out._array.dtype != target:
        names = [dtypes.scalar_name(dtypes.from_numpy(d)) for d in (target, out._array.dtype)]
        raise RuntimeError(f"dtype {names[0]} does not match dtype of out parameter ({names[1]})")
    return target


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
        found = providers.sparse_sized(name, shape, out.layout, out.dtype, out.device)
        return out._become(found)  # type: ignore[no-any-return]
    return providers.sparse_sized(name, shape, layout, dtype, where, requires_grad)  # type: ignore[no-any-return]


def dense_only(name: str, layout: Any) -> None:
    """Raise NotImplementedError for any `layout=` but strided."""
    if layout is layouts.strided:
        return
    if name == "full":
        raise RuntimeError("full(...) is not implemented for sparse layout")
    raise NotImplementedError(
        f"{name}(): layout={layout} is not supported; make a dense tensor and convert it by to_sparse() or "
        "to_sparse_csr(), or use zeros or empty"
    )


# --- from sizes


def _ones(shape: tuple[int, ...], dtype: Any) -> Any:
    """np.ones, in half its time for a few elements, and in memory from the cache."""
    return _full(shape, 1, dtype)


def _full(shape: tuple[int, ...], value: Any, dtype: Any) -> Any:
    """np.full; `_ones`."""
    array = np.empty(shape, dtype)
    if array.nbytes < allocator.LARGE:
        array.fill(value)
    else:
        array = allocator.empty(array.shape, array.dtype)
        relayout.fill(array, value)
    return array


def check_out(out: Any, layout: Any = None, where: Any = None) -> None:
    """Refuse an `out` that has not the layout or device that was asked for beside it; `out_dtype` sees to the dtype."""
    if not isinstance(out, Tensor):
        return
    if layout is not None and layout is not out.layout:
        raise RuntimeError(f"layout {layout!r} does not match layout of out parameter ({out.layout!r})")
    if where is not None and device(where).type != out.device.type:
        raise RuntimeError(
            f"device type {device(where).type} does not match device type of out parameter ({out.device.type})"
        )


def _sized(
    name: str,
    make: Any,
    sizes: tuple,
    out: Any,
    dtype: Any,
    layout: Any,
    where: Any,
    requires_grad: builtins.bool,
    memory_format: Any,
) -> Tensor:
    """A tensor of `sizes` from `make(shape, numpy dtype)`: zeros, ones or empty."""
    shape = sizes_of(name, "size", sizes)
    if (layout is not None or out is not None) and (layout not in _DENSE or (out is not None and out.is_sparse)):
        return _without_strides(name, shape, out, dtype, layout, where, requires_grad)
    if out is not None:
        check_out(out, layout, where)
    if dtype is None:
        target = dtypes.to_numpy(dtypes._default[0]) if out is None else out._array.dtype
    else:
        target = numpy_dtype(dtype) if out is None else out_dtype(out, dtype, None)
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


@composite(method=False, recorded="creation")
def zeros(
    *sizes: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
    memory_format: Any = None,
    names: Any = None,
) -> Tensor:
    """A tensor of zeros.  zeros(*size) -> (*size)."""
    sizes = sizes if size is None else (size,)
    return _sized("zeros", np.zeros, sizes, out, dtype, layout, device, requires_grad, memory_format)


@composite(method=False, recorded="creation")
def ones(
    *sizes: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
    memory_format: Any = None,
    names: Any = None,
) -> Tensor:
    """A tensor of ones.  ones(*size) -> (*size)."""
    sizes = sizes if size is None else (size,)
    return _sized("ones", _ones, sizes, out, dtype, layout, device, requires_grad, memory_format)


@composite(method=False, recorded="creation")
def empty(
    *sizes: Any,
    size: Any = None,
    out: Any = None,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
    memory_format: Any = None,
    names: Any = None,
) -> Tensor:
    """An uninitialised tensor.  empty(*size) -> (*size)."""
    sizes = sizes if size is None else (size,)
    return _sized("empty", np.empty, sizes, out, dtype, layout, device, requires_grad, memory_format)


@composite(method=False, recorded="creation")
def full(
    size: tuple[int, ...],
    fill_value: complex,
    *,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    names=None,
):
    """A tensor filled with one number, in that number's dtype unless `dtype` says otherwise.

    full(size, v) -> (*size).
    """
    shape = _check_sizes(size_of(size))
    check_out(out, layout, device)
    if layout is not None:
        dense_only("full", layout)
    if isinstance(fill_value, Tensor):
        fill_value = fill_value.item()
    if dtype is None:
        target = out._array.dtype if out is not None else dtypes.to_numpy(dtypes.of_number(fill_value))
    else:
        target = numpy_dtype(dtype) if out is None else out_dtype(out, dtype, None)
    xp, where = place_of(device)
    with inside(xp, where):
        array = (_full if xp is np and target.kind == "f" else xp.full)(shape, number_for(fill_value, target), target)
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
        relayout.fill(array, 0)
    return array


def _like(name: str, input: Any, dtype: Any, where: Any, memory_format: Any, requires_grad: builtins.bool) -> Tensor:
    """A tensor as `input`: zeros_like, ones_like or empty_like."""
    array = like_array(input._array, dtype, where, memory_format, zero=name == "zeros_like")
    if name == "ones_like":
        relayout.fill(array, 1)
    return finish(array, True) if requires_grad else wrap(array)


@composite(method=False, recorded="creation", elementwise=True)
def zeros_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Zeros in the shape, dtype, device and strides of `input`.  input (*) -> (*)."""
    if layout is not None and layout is not layouts.strided:
        return providers.sparse_sized("zeros", tuple(input.shape), layout, dtype or input.dtype, device, requires_grad)
    return _like("zeros_like", input, dtype, device, memory_format, requires_grad)


@composite(method=False, recorded="creation", elementwise=True)
def ones_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Ones in the shape, dtype, device and strides of `input`.  input (*) -> (*)."""
    if layout is not None and layout is not layouts.strided:
        return providers.sparse_sized("ones", tuple(input.shape), layout, dtype or input.dtype, device, requires_grad)
    return _like("ones_like", input, dtype, device, memory_format, requires_grad)


@composite(method=False, recorded="creation", elementwise=True)
def empty_like(
    input: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
    memory_format: Any = None,
) -> Tensor:
    """Uninitialised memory in the shape, dtype, device and strides of `input`.  input (*) -> (*)."""
    if layout is not None and layout is not layouts.strided:
        return providers.sparse_sized("empty", tuple(input.shape), layout, dtype or input.dtype, device, requires_grad)
    return _like("empty_like", input, dtype, device, memory_format, requires_grad)


@composite(method=False, recorded="creation", elementwise=True)
def full_like(
    input: Tensor,
    fill_value: complex,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    memory_format=None,
):
    """A tensor as `input` filled with one number.  input (*) -> (*)."""
    if layout is not None:
        dense_only("full_like", layout)
    array = like_array(input._array, dtype, device, memory_format)
    relayout.fill(array, number_for(fill_value.item() if isinstance(fill_value, Tensor) else fill_value, array.dtype))
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
    if layout is not None:
        dense_only("empty_strided", layout)
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
    if layout is not None:
        dense_only("empty_permuted", layout)
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
        self: Tensor,
        *sizes: Any,
        size: Any = None,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        pin_memory: builtins.bool = False,
        requires_grad: builtins.bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        shape = _check_sizes(sizes_of("new_" + fill, "size", sizes if size is None else (size,)))
        if layout is not None and layout is not layouts.strided:
            like = self.dtype if dtype is None else dtype, self.device if device is None else device
            return providers.sparse_sized(fill, shape, layout, *like, requires_grad)  # type: ignore[no-any-return]
        xp, where = _place_like(self, device)
        with inside(xp, where):
            array = getattr(xp, fill)(shape, self._array.dtype if dtype is None else numpy_dtype(dtype))
        return finish(array, requires_grad)

    method.__name__ = method.__qualname__ = "new_" + fill
    method.__doc__ = f"`{fill}` of a size, in the dtype and on the device of this tensor.  -> (*size)."
    return has(recorded="constant")(method)


def _place_like(tensor: Tensor, where: Any) -> tuple[Any, Any]:
    if where is not None:
        return place_of(where)
    array = tensor._array
    if type(array) is np.ndarray:
        return _CPU_NP
    return backends.xp_of(array), tensor.device


Tensor.new_zeros, Tensor.new_ones, Tensor.new_empty = _new("zeros"), _new("ones"), _new("empty")


@has(recorded="constant")
def _new_full(
    self: Tensor,
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: builtins.bool = False,
    requires_grad: builtins.bool = False,
) -> Tensor:
    """A tensor of one number, in the dtype and on the device of this one.  -> (*size)."""
    if layout is not None:
        dense_only("new_full", layout)
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


def _new_legacy(self: Tensor, *args: Any, size: Any = None, device: Any = None) -> Tensor:
    """As the constructor of this tensor's legacy type: by sizes or from data."""
    if size is not None:
        args = tuple(size)
    from engine.tensor import _legacy_new

    where = self.device if device is None else device
    return _legacy_new(Tensor, self.dtype, args, where)


Tensor.new_full, Tensor.new_empty_strided, Tensor.new = (
    _new_full,
    _new_empty_strided,
    _new_legacy,
)


# --- matrices


@composite(method=False, recorded="constant")
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
    if layout is not None:
        dense_only("eye", layout)
    check_out(out, layout, device)
    m = n if m is None else m
    for size, name in ((n, "n"), (m, "m")):
        if size < 0:
            raise RuntimeError(f"{name} must be greater or equal to 0, got {size}")
    target = out_dtype(out, dtype, lambda: numpy_dtype(dtype))
    xp, where = place_of(device)
    with inside(xp, where):
        return finish(xp.eye(n, m, dtype=target), requires_grad, out)


_FEW_PLACES = 1 << 16  # of a matrix whose triangle's places are remembered


def _places(row: int, col: int, target: Any, lower: bool, offset: int) -> np.ndarray:
    """The places of a triangle, row by row.  (2, count)"""
    edge = np.arange(offset + lower, offset + lower + row)  # of each row the first column to the right of the edge
    np.maximum(np.minimum(edge, col, out=edge), 0, out=edge)
    counts = edge if lower else col - edge
    ends = counts.cumsum()
    rows = np.arange(row).repeat(counts)
    made = np.empty((2, rows.size), target)
    made[0] = rows
    np.subtract(np.arange(rows.size), (ends - (counts if lower else col)).take(rows), out=made[1], casting="unsafe")
    return made


_small_triangle = functools.lru_cache(16)(_places)  # of a megabyte each at most


def _triangle_indices(row: Any, col: Any, dtype: Any, where: Any, lower: bool, offset: int) -> Tensor:
    """The places of a triangle, row by row.  -> (2, count)."""
    for size, name in ((row, "row"), (col, "col")):
        if size < 0:
            raise RuntimeError(f"{name} must be non-negative, got{size}")
    target = numpy_dtype(dtype, dtypes.int64)
    xp, where = place_of(where)
    few = row * col <= _FEW_PLACES
    made = _small_triangle(row, col, target, lower, offset).copy() if few else _places(row, col, target, lower, offset)
    with inside(xp, where):
        return wrap(xp.asarray(made))


@composite(method=False)
def tril_indices(row: int, col: int, offset: int = 0, *, dtype=None, device=None, layout=None):
    """Row and column numbers of the lower triangle of a matrix, row by row.  -> (2, count)."""
    if layout is not None:
        dense_only("tril_indices", layout)
    return _triangle_indices(row, col, dtype, device, True, offset)


@composite(method=False)
def triu_indices(row: int, col: int, offset: int = 0, *, dtype=None, device=None, layout=None):
    """Row and column numbers of the upper triangle of a matrix, row by row.  -> (2, count)."""
    if layout is not None:
        dense_only("triu_indices", layout)
    return _triangle_indices(row, col, dtype, device, False, offset)
