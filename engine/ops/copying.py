"""Copies and conversions: of memory, dtype, device and layout; and the in-place writes `copy_`, `fill_`, `zero_`."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from engine import backends
from engine.autograd.graph import Node, edge_beside, edge_of, move_retained, registered, requires_grad_of
from engine.autograd.inplace import check_writable, rebase
from engine.backends.cpu import relayout
from engine.backends.cpu.relayout import copy_in_format, in_torch_order, write
from engine.core import dtypes, layouts
from engine.core.checks import broadcast_shapes, numel, size_of
from engine.core.device import CPU, device
from engine.core.device import device as make_device
from engine.core.grad_mode import mode
from engine.core.layouts import copy_preserved, empty_in_format, empty_strided
from engine.core.storage import Memory, TypedStorage, UntypedStorage, follow, following, strided
from engine.dispatch import array_derivative, composite, derivative, has, moving, op, samples
from engine.dispatch.arguments import argument_error, sizes_of
from engine.dispatch.runtime import check_overlap
from engine.ops._half_conversion import converter
from engine.tensor import Tensor, wrap

_COMPLEX = "Casting complex values to real discards the imaginary part"


def cast_array(xp: Any, array: Any, target: Any) -> Any:
    """`array` as another numpy dtype, always a copy; complex to real takes the real part and warns."""
    if array.dtype.kind in "cW" and target.kind not in "cWb":
        warnings.warn(_COMPLEX, stacklevel=2)
        array = dtypes.part(array, 0)
    elif array.dtype.kind == "W" and target.kind == "b":
        return array != array.dtype.type(0)  # ml_dtypes 0.6 casts 3 to a bool that is not 1
    if type(array) is np.ndarray:
        if array.size > 1 << 12 and (convert := converter(array.dtype, target)):
            return convert(array)
        with np.errstate(all="ignore"):
            return array.astype(target)
    if backend := backends.known(array):  # none: a scalar of numpy's
        backend.check_type(target)
    return array.astype(target)


def move_array(array: Any, where: device, non_blocking: bool = False) -> Any:
    """`array` on a device; itself when it is there already.  non_blocking: as in `Tensor.to`."""
    source = backends.of_array(array)
    target = backends.of_device(where)
    if source is target:
        if where.index is None or source.device_of(array) == where:
            return array
        return target.between(array, where)
    if target is backends.host:
        return source.to_host(array, non_blocking)
    return target.from_host(source.to_host(array), where, non_blocking)


def same_place(array: Any, where: device) -> bool:
    """Return whether `array` is on the device meant by `where`."""
    if type(array) is np.ndarray:
        return where.type == "cpu"
    have = backends.of_array(array).device_of(array)
    return have.type == where.type and (where.index is None or have.index == where.index)


_NUMBERS = frozenset([int, float, complex, bool])


def number_for(value: Any, dtype: Any, names: Any = None) -> Any:
    """A Python number for a numpy dtype; torch's error when the dtype cannot hold it."""
    limit = _LIMITS.get(dtype)
    if value.__class__ not in _NUMBERS and not isinstance(value, int | float | complex | np.generic):
        raise TypeError(f"value must be Number, not {type(value).__name__}")
    if limit is not None and value.__class__ is not complex:
        if -limit <= value <= limit:
            return value
        value = float(value)
    kind = dtype.kind
    if kind == "b":
        return bool(value)
    if kind in "iu":
        if isinstance(value, complex):
            if value.imag:
                _overflow(dtype, names)
            value = value.real
        if isinstance(value, float) and not math.isfinite(value):
            _overflow(dtype, names)
        value = int(value)
        info = np.iinfo(dtype)
        if not (info.min if kind == "i" else -info.max) <= value <= info.max:
            _overflow(dtype, names)
        return value if value >= 0 or kind == "i" else value + info.max + 1
    if kind not in "cW" and isinstance(value, complex):
        if value.imag:
            _overflow(dtype, names)
        return value.real
    if kind not in "cW":
        value = float(value)
        limit = _LIMITS.get(dtype)
        if limit is None:
            limit = _LIMITS[dtype] = dtypes.finfo(dtypes.from_numpy(dtype)).max
        if abs(value) > limit and math.isfinite(value):
            _overflow(dtype, names)
    return value


_LIMITS: dict[Any, float] = {}
_CPP = {
    "int64": "int64_t", "int32": "int", "int16": "int16_t", "int8": "int8_t", "uint8": "uint8_t", "uint16": "uint16_t",
    "uint32": "uint32_t", "uint64": "uint64_t", "float16": "at::Half", "bfloat16": "at::BFloat16", "float32": "float",
    "float64": "double",
}  # fmt: skip


def _overflow(dtype: Any, names: Any) -> None:
    name = dtypes.from_numpy(dtype).name
    raise RuntimeError(
        f"value cannot be converted to type {(_CPP if names is None else names).get(name, name)} without overflow"
    )


# --- copies


@op(out=False, channels_last=True, blocks="copy", generated="one")
@derivative(input=lambda grad: grad)
@array_derivative(input=moving(lambda grad: grad))
@samples(lambda t: [(t(3, 4),), (t(),), (t(0, 2),)])
def clone(xp, input, *, memory_format=None):
    """A copy with memory of its own, in the graph.  input (*) -> (*)."""
    if memory_format is None and (input.flags.c_contiguous or type(input) is layouts.ChannelsLast):
        return input.copy("K")
    return copy_in_format(xp, in_torch_order(input), memory_format)


@op(public=False, method=False, node="ToCopyBackward0", integer_result=True, out=False, out_as="graph", generated="one")
@derivative(
    input=lambda grad, input_dtype, back: converted(
        grad.real if grad.is_complex() and not input_dtype.is_complex else grad, input_dtype, back
    )
)
@samples(
    lambda t: [
        (t(3, 4), dtypes.float64, None, None, None),
        (t(1, 2, 2, 2), None, None, layouts.channels_last, None),
    ]
)
def to_copy(xp, input, dtype, where, memory_format, back, non_blocking=False):
    """A copy of another dtype, device or layout.  input (*) -> (*).  back: the device to send the gradient to."""
    target = input.dtype if dtype is None else dtypes.to_numpy(dtype)
    if target == input.dtype:
        result = copy_in_format(xp, input, memory_format)
    else:
        result = cast_array(xp, input, target)
        if memory_format is not None or not input.flags.forc:
            fresh = empty_in_format(xp, input.shape, target, memory_format, input)
            fresh[...] = result
            result = fresh
    return result if where is None else move_array(result, where, non_blocking)


def converted(
    tensor: Tensor,
    dtype: Any = None,
    where: Any = None,
    copy: bool = False,
    memory_format: Any = None,
    non_blocking: bool = False,
) -> Tensor:
    """`tensor` of that dtype, on that device; itself when nothing changes."""
    array = tensor._array
    dtype = None if dtype is tensor.dtype else dtype
    where = None if where is None or same_place(array, where) else where
    if (
        dtype is None
        and where is None
        and not copy
        and (memory_format in (None, layouts.preserve_format) or layouts.is_suggested(array, memory_format))
    ):
        return tensor
    if dtype is not None and not isinstance(dtype, dtypes.dtype):
        dtype = dtypes.from_numpy(dtype)
    if dtype is not None and dtype._np is None and dtype.name.startswith("float8_"):
        from engine.encoded import float8  # at first need: few programs have such tensors

        return float8.encoded(tensor if where is None else converted(tensor, None, where), dtype)
    return to_copy(tensor, dtype, where, memory_format, None if where is None else tensor.device, non_blocking)


def _to(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """The tensor as `to(dtype)`, `to(device, dtype)` or `to(other)`; itself when nothing changes.  (*) -> (*).

    non_blocking: a copy between the GPU and pinned memory need not be done when this returns (on the host it is
    there after `torch.cuda.synchronize()`).  copy=True always copies; memory_format lays the result out.
    """
    non_blocking = kwargs.pop("non_blocking", False)
    copy = kwargs.pop("copy", False)
    memory_format = kwargs.pop("memory_format", None)
    dtype, where, other = (
        kwargs.pop("dtype", None),
        kwargs.pop("device", None),
        kwargs.pop("other", None),
    )
    if kwargs:
        raise TypeError(f"to() received an invalid combination of arguments - got keywords {sorted(kwargs)}")
    dtype, *rest = map(dtypes.of_type, (dtype, *args))
    if rest:
        first = rest.pop(0)
        if isinstance(first, dtypes.dtype):
            dtype = first
        elif isinstance(first, Tensor):
            other = first
        elif first is None or isinstance(first, str | int | device):
            where = first
            if rest and (isinstance(rest[0], dtypes.dtype) or rest[0] is None):
                dtype = rest.pop(0)
        else:
            raise TypeError(
                f"to() received an invalid combination of arguments - got ({type(first).__name__}), but expected one "
                "of: (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, bool copy = "
                "False, *, torch.memory_format memory_format = None), (torch.dtype dtype, ...), (Tensor tensor, ...)"
            )
        if rest:
            non_blocking = rest.pop(0)
        if rest:
            copy = rest.pop(0)
    if other is not None:
        dtype, where = other.dtype, other.device
    if where is not None and not isinstance(where, device):
        where = device(where)
    return converted(self, dtype, where, copy, memory_format, bool(non_blocking))


Tensor.to = _to


def _caster(name: str, target: dtypes.dtype) -> Any:
    def cast(self: Tensor, memory_format: Any = None) -> Tensor:
        return converted(self, target, None, False, memory_format)

    cast.__name__ = cast.__qualname__ = name
    cast.__doc__ = f"The tensor as {target!r}; itself if it is that already.  (*) -> (*)."
    return cast


for _name, _target in {
    "float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16,
    "long": dtypes.int64, "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8,
    "bool": dtypes.bool, "cfloat": dtypes.complex64, "cdouble": dtypes.complex128,
    "chalf": dtypes.complex32,  # TypeError, which says that numpy has no such type
}.items():  # fmt: skip
    setattr(Tensor, _name, has(elementwise=True)(_caster(_name, _target)))


def _cpu(self: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor in host memory; itself if it is there.  (*) -> (*)."""
    return converted(self, None, CPU, False, memory_format)


def _cuda(self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """The tensor on a CUDA device; itself if it is there.  (*) -> (*).  RuntimeError without CuPy or a GPU."""
    from engine.core.device import device as make

    where = make("cuda" if device is None else device)
    if where.type != "cuda":
        raise RuntimeError(f"Invalid device, must be cuda device, but got: {where}")
    if where.index is None:
        where = backends.of_device(where).current()
    return converted(self, None, where, False, memory_format, non_blocking)


Tensor.cpu, Tensor.cuda = _cpu, _cuda


def _type_as(self: Tensor, other: Tensor) -> Tensor:
    """The tensor in the dtype and on the device of `other`.  (*) -> (*)."""
    if not isinstance(other, Tensor):
        raise argument_error("type_as", 1, "other", "Tensor", other)
    return converted(self, other.dtype, other.device)


Tensor.type_as = _type_as


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
    """The name of the legacy type (`torch.FloatTensor`), or the tensor converted to a dtype, a type or its name."""
    if dtype is None:
        return dtypes.tensor_type(self.dtype, self.device.type)
    where = None
    if isinstance(dtype, str):
        dtype, where = type_named(dtype)
    elif isinstance(dtype, type) and isinstance(getattr(dtype, "dtype", None), dtypes.dtype):
        dtype, where = dtype.dtype, getattr(dtype, "_where", None)  # a legacy type
    elif dtype is Tensor:
        dtype = dtypes.get_default_dtype()
    elif isinstance(dtype, type):  # not even `float`
        raise ValueError(f"invalid type: '{dtype.__name__}'")
    elif not isinstance(dtype, dtypes.dtype):
        raise TypeError("dtype must be a type, str, or dtype object")
    return converted(self, dtype, where)


Tensor.type = _type


def type_named(name: str) -> tuple[dtypes.dtype, device]:
    """`"torch.cuda.LongTensor"` -> (int64, cuda).  ValueError for a name that is no type's."""
    where = CPU
    short = name.removeprefix("torch.")
    if short.startswith("cuda."):
        short, where = short[5:], device("cuda")
    if short == "Tensor":
        return dtypes.get_default_dtype(), where
    for d in dtypes.ALL:
        if dtypes.scalar_name(d) + "Tensor" == short:
            return d, where
    raise ValueError(f"invalid type: '{name}'")


def is_contiguous(self: Tensor, memory_format: Any = layouts.contiguous_format) -> bool:
    """Return whether the elements lie in memory in the order of `memory_format`."""
    if self._channels_last is not None and memory_format is layouts.contiguous_format:
        return True
    return layouts.is_in_format(self._array, memory_format)


Tensor.is_contiguous = is_contiguous
Tensor.layout = layouts.strided


def contiguous(self: Tensor, memory_format: Any = layouts.contiguous_format) -> Tensor:
    """The tensor in that memory format; itself if it is, else a copy in the graph.  (*) -> (*)."""
    if memory_format is layouts.preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    layouts.check_rank(self.dim(), memory_format)
    if self.is_contiguous(memory_format):
        return self
    return clone(self, memory_format=memory_format)


Tensor.contiguous = contiguous


# --- writes


def own_edge(target: Tensor) -> Any:
    """The edge to what `target` was before a write; a view's is its base's, which `rebase` takes."""
    return None if target._view is not None else edge_of(target)


def record_write(target: Tensor, node: Node) -> None:
    """Make `node` the history of `target`, whose data has been written and whose version has been raised."""
    if target._view is None:
        if target._edge is not None:
            move_retained(target, target._edge, (node, 0))
        target._edge, target._requires_grad = (node, 0), True
    else:
        rebase(target, node)


class WriteBackward0(Node):
    """The history of a write that keeps nothing of the old values: zero gradient to them."""

    __slots__ = ()

    def apply(self, grads: list[Any], needs: Any) -> Any:
        return (zeros_like_array(grads[0]) if needs[0] else None,)


class ZeroBackward0(WriteBackward0):
    """The node of `zero_`."""

    __slots__ = ()


def zeros_like_array(tensor: Tensor) -> Tensor:
    """Zeros of the shape, dtype and device of `tensor`, without history."""
    array = tensor._array
    return wrap(backends.xp_of(array).zeros(array.shape, array.dtype))


def overwrite(target: Tensor, node_class: Any = WriteBackward0) -> None:
    """Raise the version of `target` and cut its history after a write of values that need no gradient."""
    target._vc[0] += 1
    if target._requires_grad and mode.enabled and requires_grad_of(target):
        record_write(target, node_class((own_edge(target),)))


def writable(target: Tensor, expanded: str = "", source: Tensor | None = None) -> Any:
    """The array of `target`, after the checks before a write of `source` to it (expanded: as the option of `op`)."""
    array = target._array
    if target._requires_grad or 0 in array.strides:
        check_writable(target, expanded, () if source is None else (source,))
    return array


class CopyBackwards(Node):
    """The node of `copy_`: zero to the overwritten values, the gradient as it is to the source."""

    __slots__ = ()

    def apply(self, grads: list[Any], needs: Any) -> Any:
        grad = grads[0]
        shape, dtype, where = self.args
        source = None
        if needs[1]:
            source = grad if grad._array.shape == shape else registered.sum_to_size(grad, shape)
            if dtype is not None:
                source = registered.cast(source, dtype)
            if where is not None:
                source = converted(source, None, where)
        return (zeros_like_array(grad) if needs[0] else None, source)


def copy_(input: Tensor, src: Any, non_blocking: bool = False) -> Tensor:
    """Write the elements of `src`, broadcast and converted to the dtype and device of `input`.

    (*), src (*b) -> (*).
    """
    if not isinstance(src, Tensor):
        if isinstance(src, np.ndarray):
            src = wrap(src)
        elif isinstance(src, int | float | complex):
            return fill_(input, src)
        else:
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(src).__name__}")
    array, values = writable(input, "allowed" if src is input else "", src), src._array
    if src._vc is input._vc and src is not input:
        check_overlap(array, values)
    store(array, values, non_blocking)
    input._vc[0] += 1
    if mode.enabled:
        mine = input._requires_grad and requires_grad_of(input)
        yours = src._requires_grad and requires_grad_of(src) and input._array.dtype.kind in "fcVW"
        if mine or yours:
            node = CopyBackwards((own_edge(input) if mine else None, edge_beside(src, input) if yours else None))
            where = None if type(values) is type(array) else src.device
            node.args = (values.shape, src.dtype if values.dtype != array.dtype else None, where)
            record_write(input, node)
    return input


def store(array: Any, values: Any, non_blocking: bool = False) -> None:
    """array[...] = values, with torch's checks of shape; any dtype and device."""
    if values.shape != array.shape and broadcast_shapes(array.shape, values.shape) != array.shape:
        raise RuntimeError(
            f"output with shape {list(array.shape)} doesn't match the broadcast shape "
            f"{list(broadcast_shapes(array.shape, values.shape))}"
        )
    if type(array) is not np.ndarray or type(values) is not np.ndarray:
        _store_elsewhere(array, values, non_blocking)
        return
    if values.dtype.kind in "cW" and array.dtype.kind not in "cWb":
        warnings.warn(_COMPLEX, stacklevel=3)
        values = dtypes.part(values, 0)
    if values.dtype is not array.dtype and type(array) is np.ndarray:
        with np.errstate(all="ignore"):
            array[...] = values.astype("c8") if values.dtype.kind == "W" else values
    else:
        write(array, values)


def _store_elsewhere(array: Any, values: Any, non_blocking: bool) -> None:
    """`store` where one array is not numpy's: each device computes on its own."""
    backend = backends.of_array(array)
    if values.dtype.kind in "cW" and array.dtype.kind not in "cWb":
        warnings.warn(_COMPLEX, stacklevel=4)
        values = dtypes.part(values, 0)
    if type(array) is np.ndarray and backends.of_array(values).to_host_array(values, array, non_blocking):
        return
    where = backend.device_of(array)  # what the host converts or spreads must have arrived
    values = move_array(values, where, non_blocking and type(array) is not np.ndarray)
    with np.errstate(all="ignore"), backend.inside(where):
        array[...] = values


@composite(method=False, elementwise=True)
def fill(input: Tensor, value: complex | Tensor):
    """A tensor as `input` with every element `value` (a number or a 0-dim tensor).  input (*) -> (*)."""
    result = clone(input)
    fill_(result, value)
    return result


def fill_(input: Tensor, value: Any) -> Tensor:
    """Set every element to `value`, a number or a 0-dim tensor.  input (*) -> (*)."""
    if isinstance(value, Tensor):
        if value._array.ndim:
            raise RuntimeError(
                f"fill_ only supports 0-dimension value tensor but got tensor with {value._array.ndim} dimensions."
            )
        array = writable(input, "", value)
        store(array, value._array)
        input._vc[0] += 1
        if mode.enabled:
            mine = input._requires_grad and requires_grad_of(input)
            yours = value._requires_grad and requires_grad_of(value)
            if mine or yours:
                node = FillBackward3((own_edge(input) if mine else None, edge_beside(value, input) if yours else None))
                node.args = ((), value.dtype if value.dtype is not input.dtype else None, None)
                record_write(input, node)
        return input
    if not isinstance(value, int | float | complex | np.generic):
        raise TypeError(
            f"fill_() received an invalid combination of arguments - got ({type(value).__name__}), but expected one of:"
            "\n * (Number value)\n * (Tensor value)\n"
        )
    array = writable(input, "allowed")
    relayout.fill(array, number_for(value, array.dtype))
    overwrite(input, FillBackward2)
    return input


class FillBackward2(WriteBackward0):
    """The node of `fill_` with a number."""

    __slots__ = ()


class FillBackward3(CopyBackwards):
    """The node of `fill_` with a tensor."""

    __slots__ = ()


def zero_(input: Tensor) -> Tensor:
    """Set every element to 0.  input (*) -> (*)."""
    if input._requires_grad and (input.is_inference() or (mode.enabled and requires_grad_of(input))):
        check_writable(input)
    relayout.fill(input._array, 0)
    overwrite(input, ZeroBackward0)
    return input


composite(method=True, public=False, recorded="fill")(copy_)
composite(method=True, recorded="fill", elementwise=True)(fill_)
composite(method=True, recorded="fill", elementwise=True)(zero_)


# --- memory


def _no_grad_resize(input: Tensor) -> None:
    if input._requires_grad and requires_grad_of(input):
        raise RuntimeError("cannot resize variables that require grad")


def resize_(self: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Change the sizes in place; elements beyond the old memory are undefined.  (*) -> (*sizes).

    Memory that is too small is replaced for this tensor (its aliases keep the old).
    """
    _no_grad_resize(self)
    _resize(self, sizes_of("resize_", "size", sizes))
    return self


def _resize(self: Tensor, shape: tuple[int, ...]) -> None:
    array = self._array
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    self._vc[0] += 1
    if shape == array.shape:
        return
    need = numel(shape)
    xp = backends.xp_of(array)
    memory = Memory.of(array)
    offset = self.storage_offset()
    flat = memory.flat(self.dtype)
    if offset + need <= flat.size:
        self._array = flat[offset : offset + need].reshape(shape)
        return
    fresh = xp.zeros(need, array.dtype)
    have = flat[offset:]
    fresh[: have.size] = have
    self._array = fresh.reshape(shape)


def resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """`resize_` to the sizes of another tensor.  (*) -> (*b)."""
    return resize_(self, the_template._array.shape)


def set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Make this tensor look at the memory of `source` (a Tensor or a storage).  (*) -> (*size)."""
    if self._requires_grad and mode.enabled and requires_grad_of(self) and self._edge is None:
        which = "a leaf" if self._view is None else "a view of a leaf"
        raise RuntimeError(f"{which} Variable that requires grad is being used in an in-place operation.")
    if source is None:
        array = backends.xp_of(self._array).zeros((0,), self._array.dtype)
    elif isinstance(source, Tensor):
        if source.dtype is not self.dtype:
            raise RuntimeError(
                f"Could not set tensor of type {dtypes.cpp_name(source.dtype)} to a tensor of type "
                f"{dtypes.cpp_name(self.dtype)}"
            )
        array = source._array
        if size is not None:
            shape = size_of(size)
            array = strided(
                array,
                shape,
                size_of(stride) if stride is not None else _steps(shape),
                storage_offset,
            )
    elif isinstance(source, UntypedStorage):
        if isinstance(source, TypedStorage) and source.dtype is not self.dtype:
            raise RuntimeError(
                f"Expected a Storage of type {dtypes.cpp_name(self.dtype)} or an UntypedStorage, but got type "
                f"{dtypes.scalar_name(source.dtype)} for argument 1 'storage'"
            )
        flat = source._memory.flat(self.dtype)
        shape = (flat.size - storage_offset,) if size is None else size_of(size)
        array = strided(flat, shape, size_of(stride) if stride is not None else _steps(shape), storage_offset)
    elif not isinstance(source, Tensor):
        raise TypeError(f"set_(): argument 'source' must be Storage or Tensor, not {type(source).__name__}")
    if source is not None and source.device != self.device:
        raise RuntimeError(
            f'Attempted to set the storage of a tensor on device "{self.device}" to a storage on different device '
            f'"{source.device}".  This is no longer allowed; the devices must match.'
        )
    self._array = array
    self._vc[0] += 1
    if following.on:
        follow(self, array)
        if isinstance(source, Tensor):
            follow(source, source._array)
    return self


def _steps(shape: Any) -> tuple[int, ...]:
    from engine.core.checks import contiguous_strides

    return contiguous_strides(shape)


Tensor.resize_, Tensor.resize_as_, Tensor.set_ = resize_, resize_as_, set_
composite(method=False)(resize_as_)


def pin_memory(self: Tensor, device: Any = None) -> Tensor:
    """The tensor in page-locked host memory, from which copies to the GPU need not wait.  (*) -> (*).

    RuntimeError on a machine without a GPU, and for a tensor that is on one.
    """
    from engine.backends import cuda

    if not cuda.device_count():
        raise RuntimeError("Cannot access accelerator device when none is available.")
    if type(self._array) is not np.ndarray:
        name = dtypes.tensor_type(self.dtype, self.device.type)
        raise RuntimeError(f"cannot pin '{name}' only dense CPU tensors can be pinned")
    runtime = backends.of_device(make_device("cuda")).runtime  # type: ignore[attr-defined]
    if runtime.is_pinned(self._array):
        return self
    pinned = runtime.pinned_like(self._array)
    pinned[...] = self._array
    return wrap(pinned)


def record_stream(self: Tensor, stream: Any) -> None:
    """Keep the memory of this tensor until the work that `stream` has now is done: it is used there, too."""
    if not self.is_cuda:
        raise RuntimeError("record_stream: the tensor is not on a GPU")
    backends.of_array(self._array).runtime.record_stream(self._array, stream._stream)  # type: ignore[attr-defined]


Tensor.pin_memory, Tensor.record_stream = pin_memory, record_stream


# --- what the graph needs


@op(public=False, method=False, node="CopyBackwards", out=False)
@derivative(input=lambda grad: grad)
@samples(lambda t: [(t(3, 4), (3, 4), (8, 24))])
def clone_strided(xp, input, shape, strides):
    """A copy laid out in these byte strides (as another dtype's, if they are).  input (*) -> (*)."""
    if input.flags.c_contiguous and (0 in strides or _dense_c(shape, strides, input.dtype.itemsize)):
        return input.copy()
    if 0 in strides or any(s % input.dtype.itemsize for s in strides):
        return copy_preserved(xp, input)
    result = empty_strided(xp, shape, strides, input.dtype)
    result[...] = input
    return result


def _dense_c(shape: Any, strides: Any, item: int) -> bool:
    for n, s in zip(reversed(shape), reversed(strides)):
        if n != 1 and s != item:
            return False
        item *= n
    return True
