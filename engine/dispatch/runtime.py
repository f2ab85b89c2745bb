"""The functions that generated functions call: the less common turns of a call, and the names every generated text
sees.

`function_source.py` and `gradients.py` write the texts; their globals are `SHARED` and what is the op's own.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import backends
from engine.autograd import anomaly_mode as anomaly
from engine.autograd import graph
from engine.autograd.graph import MAYBE, Node, registered
from engine.autograd.inplace import check_writable, rebase
from engine.autograd.versions import SavedResult, check_input, mark, second_time, unpack_result
from engine.autograd.views import View
from engine.backends.cpu.exact import summed
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, size_of, wrap_dim
from engine.core.dtypes import INEXACT
from engine.core.grad_mode import inferring, mode
from engine.core.layouts import ChannelsLast, is_channels_last
from engine.core.storage_tensors import follow
from engine.core.tensor_messages import warn_once
from engine.dispatch.arguments import (
    MISSING,
    all_ints,
    argument_error,
    check_arguments,
    check_elements,
    missing,
    sizes_error,
)
from engine.dispatch.choosing import few
from engine.dispatch.out import write_out
from engine.dispatch.overriding import asks, second_look
from engine.dispatch.promotion import (
    devices_error,
    plain_float_number,
    plain_number,
    prepare,
    promote_arrays,
)
from engine.dispatch.record import Op
from engine.tensor import Tensor, hold_converted, raw_array, rewrap, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array, ArrayModule
    from engine.dispatch.record import Kernel, Public


def as_array(xp: ArrayModule, value: Array) -> Array:
    """A kernel's result as an array: numpy's ufuncs give scalars for 0-dim operands."""
    return np.asarray(value) if xp is np and not backends.is_array(value) else value


def as_result(xp: ArrayModule, value: Array, converted: bool = False) -> Array:
    """As `as_array` for ops that take any layout: a ChannelsLast array only if its memory is, else contiguous.

    `converted`: an operand is, so that a result of numpy's own class may have its order, too (`np.where`).
    """
    if type(value) is not ChannelsLast and not (converted and type(value) is np.ndarray):
        return as_array(xp, value)
    if is_channels_last(value):
        return value if type(value) is ChannelsLast else value.view(ChannelsLast)
    flat = np.ascontiguousarray(value).view(np.ndarray).reshape(-1)
    return flat.reshape(value.shape)  # with the strides of a new array also for dims of size 1


def hold(tensor: Tensor, xp: ArrayModule, value: Array, first: object) -> Array:
    """Give a new tensor a kernel's result of any kind; returns the array.  `first`: the op's first operand."""
    if value.__class__ is not ChannelsLast and value.__class__ is not np.ndarray:
        if isinstance(value, np.generic):
            value = np.asarray(value)
        elif xp is np:
            value = as_array(xp, value)
        tensor._array = value
        return value
    if (
        value.__class__ is ChannelsLast is first.__class__
        and value.strides == first.strides
        and value.shape == first.shape
        and not value.flags.c_contiguous
    ):
        hold_converted(tensor, value)  # laid out as its operand is
        return value
    value = as_result(xp, value, type(first) is ChannelsLast)
    if type(value) is ChannelsLast:
        hold_converted(tensor, value)
    else:
        tensor._array = value
    return value


def make_room(error: Exception) -> None:
    """Give cached memory back to the system, so that what failed for want of it can be tried again."""
    from engine.backends.cpu.allocator import empty_cache

    if not empty_cache():
        raise error


SMALL = 1 << 12  # elements up to which gradients are computed over arrays: Note [Gradients over arrays] in gradients.py


_FEW = 1 << 10  # elements that are added as they are


def summed_to(array: Array, shape: tuple[int, ...] | None) -> Array:
    """A gradient summed over the dims that broadcasting added or stretched.  (*a) -> shape."""
    if shape is None:  # of an operand that needs none, or is a number
        return array
    lead = array.ndim - len(shape)
    if lead:
        axes = 0 if lead == 1 else tuple(range(lead))
        array = np.asarray(np.add.reduce(array, axes) if array.size <= _FEW else summed(array, axes))
    if array.shape != shape:
        stretched = [i for i, n in enumerate(shape) if n == 1 and array.shape[i] != 1]
        array = summed(array, tuple(stretched), True)
    return array


def check_broadcast(*operands: Array | complex) -> None:
    """Raise torch's error when the operands' shapes do not broadcast."""
    broadcast_shapes(*(x.shape for x in operands if hasattr(x, "shape")))


def check_cast(target: Array, promoted: Array) -> None:
    """Raise when results of the promoted operand's type cannot be stored in `target`."""
    have, want = dtypes.from_numpy(promoted.dtype), dtypes.from_numpy(target.dtype)
    if not dtypes.can_cast(have, want):
        raise RuntimeError(
            f"result type {dtypes.scalar_name(have)} can't be cast to the desired output type "
            f"{dtypes.scalar_name(want)}"
        ) from None


def check_overlap(target: Array, other: Array) -> None:
    """Raise torch's error for an in-place op whose operand shares a part of the target's memory."""
    if target.size == 0 or other.size == 0 or not (_dense(target) and _dense(other)):
        return  # torch does not look closer either
    t, o = backends.of_array(target).pointer(target), backends.of_array(other).pointer(other)
    if (t, target.nbytes) == (o, other.nbytes) and target.strides == other.strides:
        return
    if t < o + other.nbytes and o < t + target.nbytes:
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def _dense(array: Array) -> bool:
    """Return whether the cells of an array lie side by side, in whatever order of dims."""
    expected = array.itemsize
    for stride, size in sorted(zip(array.strides, array.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def laid_out(result: Array, *operands: Any) -> Array:
    """The result in the order of dims that torch gives it: the first operand decides, then the next.

    numpy decides otherwise where operands disagree.
    """
    if result.size < 2:
        return result
    arrays = [a for a in operands if hasattr(a, "strides") and a.ndim]
    order = list(range(result.ndim))[::-1]  # fastest dim first
    for i in range(1, len(order)):
        k = i
        for j in range(i - 1, -1, -1):
            swap = _swap(order[j], order[k], arrays, result)
            if swap > 0:
                order[j], order[k] = order[k], order[j]
                k = j
            elif swap < 0:
                break
    order.reverse()
    step = result.itemsize
    for d in reversed(order):
        if result.shape[d] != 1:
            if result.strides[d] != step:
                break
            step *= result.shape[d]
    else:
        return result
    made: Array = backends.xp_of(result).empty([result.shape[d] for d in order], result.dtype)
    made = made.transpose([order.index(d) for d in range(result.ndim)])
    made[...] = result
    return made


def _swap(first: int, second: int, arrays: list[Array], result: Array) -> int:
    """1 if dim `second` changes faster than dim `first`, -1 if not, 0 if no operand can tell."""
    for a in arrays:
        d, e = first - result.ndim + a.ndim, second - result.ndim + a.ndim
        x = a.strides[d] if d >= 0 and a.shape[d] != 1 else 0
        y = a.strides[e] if e >= 0 and a.shape[e] != 1 else 0
        if x and y and x != y:
            return 1 if x > y else -1
        if x and y and result.shape[first] > result.shape[second]:
            return 1
    return 0


def refused(record: Op, error: Exception, *operands: Any) -> None:
    """Raise torch's error for one that numpy raised in a kernel; a kernel's own errors pass."""
    arrays = [x for x in operands if hasattr(x, "dtype")]
    text = str(error)
    if text.startswith(("ufunc '", "did not contain a loop")) or type(error).__name__ == "_UFuncNoLoopError":
        for x in arrays:
            found = dtypes.scalar_name(dtypes.from_numpy(x.dtype))
            raise NotImplementedError(f"\"{record.label}\" not implemented for '{found}'") from None
    if text.startswith("numpy boolean"):
        raise NotImplementedError(f"\"{record.label}\" not implemented for 'Bool'") from None
    if "could not be broadcast together" in text:
        shapes = re.findall(r"\(([\d,]*)\)", text)
        broadcast_shapes(*([int(n) for n in shape.split(",") if n] for shape in shapes))
    if hasattr(error, "axis") and hasattr(error, "ndim"):  # numpy's AxisError
        wrap_dim(error.axis, error.ndim)
    if _raised_by_numpy(error):
        found = ", ".join(f"{list(x.shape)} ({dtypes.from_numpy(x.dtype)})" for x in arrays)
        raise RuntimeError(f"{record.called}(): {text}; the tensors are {found}") from None


def _raised_by_numpy(error: Exception) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__"))
        if module.partition(".")[0] == "numpy":
            return True
    return str(error).startswith(NUMPYS)


# how the sentences of numpy's compiled parts begin
NUMPYS = (
    "Cannot cast",
    "all the input",
    "cannot reshape",
    "could not broadcast",
    "matmul: ",
    "maximum supported",
    "negative dimensions",
    "operands could not",
    "setting an array",
    "shapes (",
    "zero-size array",
)


def to_float(array: Array) -> Array:
    """Integers as the default float type; bfloat16 stays."""
    found = dtypes.from_numpy(array.dtype)
    if found.category >= dtypes.FLOATING:
        return array
    return backends.cast(array, dtypes.to_numpy(dtypes.get_default_dtype()))


def xp_for(*arrays: object) -> ArrayModule:
    """The array module of the first operand that is an array."""
    for a in arrays:
        found = backends.known(a)
        if found is not None:
            return found.xp_at(a)
        if hasattr(a, "ndim") and not isinstance(a, np.generic):
            return backends.xp_of(a)
    return np


def kernel_for(record: Op, xp: ArrayModule) -> Kernel:
    """The kernel of an op for an array module that is not numpy, with what its backend's calls need round it."""
    backend: backends.Backend | None = getattr(xp, "backend", None)
    if backend is not None:
        return backend.kernel_of(record)
    for backend in backends.registered():
        if backend.xp is xp:
            return record.choose(backend.kind)
    return record.kernel


def different_devices(first: Array, second: Array) -> None:
    """Raise unless both arrays are of one device."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return
    a, b = backends.of_array(first), backends.of_array(second)
    if a is not b:
        raise devices_error([str(a.device_of(first)), str(b.device_of(second))])


def list_of(record: Op, name: str, tensors: Iterable[Tensor]) -> list[Tensor]:
    """A list of Tensors from any sequence of them; torch's errors otherwise.

    NotImplemented where one handles the call: Note [Calls that a class handles].
    """
    usual = tensors.__class__ is list or tensors.__class__ is tuple
    if not usual and (isinstance(tensors, Tensor) or not isinstance(tensors, Sequence)):
        try:
            if isinstance(tensors, Tensor):
                raise TypeError
            tensors = list(tensors)
        except TypeError:
            p = record.lists[0]
            position = record.params.index(p) + 1
            raise argument_error(name, position, p, "tuple of Tensors", tensors) from None
    try:
        check_elements(tensors)
    except TypeError:
        if asks(tensors):
            return NotImplemented  # type: ignore[no-any-return]  # the text looks for it
        raise
    if not tensors:
        raise ValueError(f"torch.{name}(): expected a non-empty list of Tensors")
    return list(tensors)


def plain_list(tensors: Sequence[Tensor]) -> tuple[list[Tensor], list[Array], bool] | None:
    """A list of Tensors, their arrays, and whether one requires grad, where all are numpy's and of one type; None for
    what needs a closer look."""
    if tensors.__class__ is not list and tensors.__class__ is not tuple:
        return None
    arrays: list[Array] = []
    dtype = None
    requires = False
    for t in tensors:
        if not isinstance(t, Tensor) or t._channels_last is not None:
            return None
        a = t._array
        if a.__class__ is not np.ndarray or (a.dtype is not dtype and dtype is not None):
            return None
        dtype = a.dtype
        arrays.append(a)
        if t._requires_grad and graph.requires_grad_of(t):
            requires = True
    return (list(tensors), arrays, requires) if arrays else None


def promoted_list(record: Op, tensors: list[Tensor]) -> list[Array]:
    """The arrays of a list, of one dtype and one device."""
    arrays = [raw_array(t) if record.channels_last else t._array for t in tensors]
    dtype, kind = arrays[0].dtype, arrays[0].__class__
    for a in arrays:
        if a.dtype is not dtype or a.__class__ is not kind:
            return promote_arrays(record, arrays)[0]
    return arrays


def any_requires_grad(tensors: list[Tensor]) -> bool:
    """Return whether one of them requires grad."""
    for t in tensors:  # noqa: SIM110  (twice as fast as any())
        if t._requires_grad and graph.requires_grad_of(t):
            return True
    return False


def edges_of(tensors: list[Tensor]) -> list[graph.Edge | None]:
    """An edge for each tensor that requires grad, else None."""
    return [(t._edge or graph.edge_of(t)) if t._requires_grad and graph.requires_grad_of(t) else None for t in tensors]


def pick(function: Public, index: int) -> Callable[..., Tensor]:
    """One output of a list-valued view op, for replay."""
    return lambda *args: function(*args)[index]


def rebase_constant(tensor: Tensor, name: str) -> None:
    """History of a write whose result depends on nothing: a node of that name without inputs' gradients."""
    rebase(tensor, graph.named(ConstantBackward0, name)([None]))


class ConstantBackward0(Node):
    """The node of an in-place op without gradient (`zero_`, `fill_` with a number, random fills)."""

    def apply(self, grads: list[Tensor | None], needs: Sequence[bool]) -> Sequence[None]:
        return (None,) * len(self.next_edges)


def write(name: str, target: Array, result: Array) -> None:
    """Store an in-place result; refused, before anything is written, when shape or dtype do not fit."""
    if result is target:
        return
    shape = getattr(result, "shape", ())
    if shape != target.shape and broadcast_shapes(shape, target.shape) != target.shape:
        raise RuntimeError(f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}")
    if result.dtype != target.dtype:
        have, want = dtypes.from_numpy(result.dtype), dtypes.from_numpy(target.dtype)
        if not dtypes.can_cast(have, want):
            raise RuntimeError(
                f"result type {dtypes.scalar_name(have)} can't be cast to the desired output type "
                f"{dtypes.scalar_name(want)}"
            )
    if isinstance(target, np.ndarray):
        target[...] = result
        return
    with backends.beside(target):
        target[...] = result


def warn_of_overload(name: str, old: str, *new: str) -> None:
    """Warn of a call by a signature that torch gave up; of the first in the process, as torch does."""
    warn_once(
        "overload",
        f"This overload of {name} is deprecated:\n\t{old}\nConsider using one of the following signatures instead:\n\t"
        + "\n\t".join(new),
    )


def old_order(record: Op, function: Public, name: str, given: Sequence[object], out: object = None) -> object:
    """A call in torch's order of 2018, the factor before the last tensors: `add(input, alpha, other)`."""
    first, number, *rest = given
    if isinstance(number, Tensor | bool) or not isinstance(number, int | float | complex | np.number):
        raise TypeError(f"{name}() takes {len(given) - 1} positional arguments but {len(given)} were given")
    key = record.keyword[0]
    tensors = ", ".join(f"Tensor {p}" for p in record.positional[1:])
    warn_of_overload(name, f"{name}(Number {key}, {tensors})", f"{name}({tensors}, *, Number {key} = 1)")
    more = {} if out is None else {"out": out}
    return function(first, *rest, **{key: number}, **more)


SHARED: dict[str, object] = dict(
    all_ints=all_ints, any_requires_grad=any_requires_grad, as_array=as_array, check_arguments=check_arguments,
    dtype_class=dtypes.dtype,
    check_broadcast=check_broadcast, check_cast=check_cast, check_input=check_input, check_overlap=check_overlap,
    check_writable=check_writable, different_devices=different_devices, edges_of=edges_of, as_result=as_result,
    registered=registered, few=few, hold=hold, INEXACT=INEXACT, kernel_for=kernel_for, laid_out=laid_out,
    list_of=list_of, plain_list=plain_list,
    raw_array=raw_array, make_room=make_room, MAYBE=MAYBE, MISSING=MISSING, np=np, partial=functools.partial, pick=pick,
    plain_float_number=plain_float_number, plain_number=plain_number, prepare=prepare, promote_arrays=promote_arrays,
    promoted_list=promoted_list, rebase=rebase, rebase_constant=rebase_constant, refused=refused, rewrap=rewrap,
    second_look=second_look, missing=missing,
    old_order=old_order,
    SavedResult=SavedResult, new_tuple=tuple.__new__, second_time=second_time, size_of=size_of, sizes_error=sizes_error,
    Tensor=Tensor, to_float=to_float, unpack_result=unpack_result, View=View, wrap=wrap, write=write,
    write_out=write_out, xp_for=xp_for,
)  # fmt: skip
SHARED.update(
    ChannelsLast=ChannelsLast,
    _mode=mode,
    from_numpy=dtypes.from_numpy,
    F32=np.dtype("float32"),
    F64=np.dtype("float64"),
    SMALL=SMALL,
    summed_to=summed_to,
    ndarray=np.ndarray,
    new=object.__new__,
    next_seq=graph.next_seq,
    edge_of=graph.edge_of,
    edge_beside=graph.edge_beside,
    move_retained=graph.move_retained,
    requires_grad_of=graph.requires_grad_of,
    xp_of=backends.xp_of,
    anomaly=anomaly.state,
    inferring=inferring,
    mark=mark,
    record_traceback=anomaly.record,
    follow=follow,
)
