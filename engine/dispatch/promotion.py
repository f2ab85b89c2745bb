"""Type promotion (torch 2.13), and what stands beside what: numbers, devices, layouts.

The order of the categories is in dtypes.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import backends
from engine.backends.cpu.relayout import in_torch_order, to_channels_last
from engine.core import dtypes
from engine.core.dtypes import INEXACT, NATIVE
from engine.core.layouts import ChannelsLast
from engine.dispatch.arguments import operand_error
from engine.dispatch.overriding import asks
from engine.tensor import Tensor, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.dispatch.record import Op

INT64 = np.dtype("int64")


def plain_number(array: Array, x: Any) -> bool:
    """Return whether the kernel takes `x` beside `array` as it is: numpy's weak Python numbers mean what torch's do."""
    kind = x.__class__
    if kind is float or kind is int:
        dtype = array.dtype
        return dtype in NATIVE or (kind is int and dtype is INT64 and -(2**62) < x < 2**62)
    return False


def plain_float_number(array: Array, x: object) -> bool:
    """As `plain_number`, for ops that turn integers into floats."""
    kind = x.__class__
    return (kind is float or kind is int) and array.dtype in NATIVE


def _combine(higher: dtypes.dtype | None, lower: dtypes.dtype | None) -> dtypes.dtype | None:
    """The type of a group of operands together with a group of lower priority."""
    if higher is None or lower is None:
        return higher or lower
    if higher.category == dtypes.COMPLEX:
        return higher
    if higher.category == dtypes.FLOATING:
        if lower.category == dtypes.COMPLEX:
            return dtypes.complex64 if higher is dtypes.bfloat16 else higher.to_complex()
        return higher
    if higher is dtypes.bool or lower.category >= dtypes.FLOATING:
        return dtypes.promote_types(higher, lower)
    return higher


def result_dtype(operands: Sequence[object]) -> dtypes.dtype:
    """torch's result type of arrays (or Tensors) and Python numbers."""
    groups: list[dtypes.dtype | None] = [None, None, None]  # with dims, 0-dim, numbers
    for x in operands:
        array = getattr(x, "_array", x)
        if hasattr(array, "dtype") and hasattr(array, "ndim"):
            which, found = (0 if array.ndim else 1), dtypes.from_numpy(array.dtype)
        else:
            which, found = 2, dtypes.of_number(x)
        have = groups[which]
        groups[which] = found if have is None else dtypes.promote_types(have, found)
    result = _combine(groups[0], _combine(groups[1], groups[2]))
    assert result is not None
    return result


def is_number(x: object) -> bool:
    """Return whether torch takes `x` for a Python number (numpy's scalars count)."""
    return isinstance(x, int | float | complex | np.number | np.bool_)


def prepare(record: Op, name: str, operands: list[object], unsupported: object) -> Any:
    """Operands of mixed types as arrays (and numbers) of one type.

    Returns (operands, arrays, flags): operands with numpy arrays made Tensors and numpy scalars Python numbers; the
    arrays or numbers for the kernel; for each operand the dtype its gradient is cast back to, or None.
    NotImplemented (an operator, or an operand that handles the call) or TypeError for an operand that is neither.
    """
    count = 0
    for i, x in enumerate(operands):
        if isinstance(x, Tensor):
            count += 1
        elif isinstance(x, np.generic):
            operands[i] = x.item()
        elif isinstance(x, np.ndarray):
            operands[i] = wrap(x)
            count += 1
        elif not isinstance(x, int | float | complex):
            if unsupported is NotImplemented or asks((x,)):
                return NotImplemented
            raise operand_error(record, name, operands, i)
        elif unsupported is NotImplemented and i == 0 and record.commutative:  # `x + 1` and `1 + x` come here alike
            break
        elif record.numbers is not True and record.tensors[i] not in record.numbers:
            if unsupported is NotImplemented and record.called == "rsub":
                return NotImplemented
            raise operand_error(record, name, operands, i)
    if not count:
        if unsupported is NotImplemented:  # an operator of the class, called by hand
            if record.called in ("rsub", "pow", "remainder"):
                return NotImplemented
            kind = type(operands[0]).__name__
            raise TypeError(
                f"descriptor '__{name}__' for 'torch._C.TensorBase' objects doesn't apply to a '{kind}' object"
            )
        if not record.only_numbers or name[-1:] == "_":
            raise operand_error(record, name, operands, 0)
        operands[:] = [wrap(np.asarray(x, dtypes.to_numpy(dtypes.of_number(x)))) for x in operands]
    arrays = [x._array if isinstance(x, Tensor) else x for x in operands]
    return operands, *promote_arrays(record, arrays)


_BOTH_LAYOUTS = {ChannelsLast, np.ndarray}


def promote_arrays(record: Op, arrays: list[Any]) -> tuple[list[Any], list[np.dtype | None]]:
    """Arrays and numbers cast to the type `record.promote` asks for; with each the dtype to cast gradients back to."""
    if record.check is not None:
        record.check(arrays)
    if len(arrays) == 2:
        a, b = arrays
        if {a.__class__, b.__class__} == _BOTH_LAYOUTS and a.dtype is b.dtype and a.dtype in INEXACT:
            flat = b if a.__class__ is ChannelsLast else a  # what networks mostly mix: an image and a number a channel
            if flat.flags.c_contiguous and a.shape != b.shape:
                return arrays, [None, None]
    kinds = {a.__class__ for a in arrays if hasattr(a, "ndim")}
    if ChannelsLast in kinds:
        arrays = _same_layout(arrays)
    elif len(kinds) > 1:
        arrays = _same_device(arrays)
    dtype = getattr(arrays[0], "dtype", None)
    if dtype in INEXACT and all([getattr(a, "dtype", None) is dtype for a in arrays]):
        return arrays, [None] * len(arrays)
    target = result_dtype(arrays)
    if record.promote == "float" and target.category < dtypes.FLOATING:
        target = dtypes.get_default_dtype()
    np_target = dtypes.to_numpy(target)
    flags: list[np.dtype | None] = [None] * len(arrays)
    result = list(arrays)
    for i, a in enumerate(arrays):
        if hasattr(a, "ndim"):
            if a.dtype != np_target:
                flags[i] = a.dtype
                result[i] = backends.cast(a, np_target)
        elif target.category >= dtypes.FLOATING and target not in dtypes.STORED_BY_ML_DTYPES:
            result[i] = a if target.category == dtypes.COMPLEX or not isinstance(a, bool) else float(a)
        elif target.category < dtypes.FLOATING:
            result[i] = np.array(a).astype(np_target)[()]
        else:
            result[i] = np.array(a, np_target)[()]  # CuPy takes numpy's scalars, not its arrays
    return result, flags


def _same_layout(arrays: list[Any]) -> list[Any]:
    """ChannelsLast operands together with contiguous ones: all converted.  Beside other strides, which decide those of
    the result, they are contiguous again.
    """
    shape = None
    for a in arrays:
        kind = a.__class__
        if kind is ChannelsLast:
            shape = a.shape
        elif hasattr(a, "ndim") and not (kind is np.ndarray and a.flags.c_contiguous):
            return _same_device([in_torch_order(a) for a in arrays])
    return [to_channels_last(a) if a.__class__ is np.ndarray and a.shape == shape else a for a in arrays]


def _same_device(arrays: list[Any]) -> list[Any]:
    """0-dim CPU operands become numbers beside arrays of another device; anything else is refused."""
    result = []
    devices = []
    for a in arrays:
        if hasattr(a, "ndim"):
            backend = backends.of_array(a)
            if backend.kind == "cpu" and a.ndim == 0:
                result.append(a.item())
                continue
            devices.append(str(backend.device_of(a)))
        result.append(a)
    if len(set(devices)) > 1:
        raise devices_error(devices)
    return result


def devices_error(devices: Sequence[str]) -> RuntimeError:
    """torch's error for operands on several devices."""
    first, second = list(dict.fromkeys(devices))[:2]
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}!"
    )
