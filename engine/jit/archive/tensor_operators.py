"""Operators of TorchScript on tensors that take numbers or lists, too, or numbers for dtypes and memory formats.

Each function takes its arguments in the order of the operator's schema, and is put on the lists of `python_operators`.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from typing import Any

import engine.nn.functional as F
from engine import linalg
from engine.core import dtypes
from engine.core.device import device as Device
from engine.dispatch.autocast import state as autocast_state
from engine.jit.archive.futures import Future
from engine.jit.archive.kinds import number_of
from engine.jit.archive.python_operators import ATEN, PRIM, aten, prim, refuse_kind, to_dtype, to_memory_format
from engine.library.aten import FUNCTIONS
from engine.ops import functions as torch
from engine.ops.aten_operators import ATEN as OPERATORS
from engine.tensor import Tensor

# -- tensors -----------------------------------------------------------------------------------------------


def _scaled(name: str) -> Callable[..., Any]:
    """`add(x, y, alpha=1)`: of a number, `alpha` may be given by position, as torch before 1.6 writes it."""
    function = getattr(Tensor if name.endswith("_") else torch, name)

    def scaled(x: Any, y: Any, alpha: Any = 1) -> Any:
        return function(x, y, alpha=alpha)

    scaled.__name__ = name
    return scaled


for _name in ("add", "sub", "rsub", "add_", "sub_", "subtract", "subtract_"):
    ATEN[_name] = _scaled(_name)


@aten("size")
def _size(x: Any, dim: int | None = None) -> Any:
    return list(Tensor.size(x)) if dim is None else Tensor.size(x, dim)


@prim("shape")
def _shape(x: Tensor) -> list:
    return list(Tensor.size(x))


@aten("stride")
def _stride(x: Tensor, dim: int | None = None) -> Any:
    return list(x.stride()) if dim is None else x.stride(dim)


@aten("view")
def _view(x: Tensor, size: Any) -> Tensor:
    return Tensor.view(x, to_dtype(size) if type(size) is int else size)


ATEN["_unsafe_view"] = ATEN["_reshape_alias"] = lambda x, size, *stride: torch.reshape(x, size)
ATEN["alias"] = ATEN["lift_fresh"] = ATEN["lift"] = lambda x: x
ATEN["lift_fresh_copy"] = torch.clone


@aten("numel")
def _numel(x: Tensor) -> int:
    return Tensor.numel(x)


@aten("slice")
def _slice(x: Any, *args: Any) -> Any:
    """`slice(tensor, dim=0, start, end, step=1)`; of a list or text without the dim."""
    if not isinstance(x, Tensor):
        start, end, step = (*args, *(None, None, 1)[len(args) :])
        return x[start : _end(end) : step]
    return OPERATORS["slice"](x, *args)


def _end(end: Any) -> Any:
    return None if end is None or end >= (1 << 63) - 1 else end


@aten("select")
def _select(x: Any, dim: int, *index: Any) -> Any:
    return torch.select(x, dim, *(int(i) if isinstance(i, Tensor) else i for i in index)) if index else x[dim]


def _index_or_place(x: Any, i: Any, *rest: Any) -> Any:
    """`index` of a tensor, or the place of an element in a list."""
    if isinstance(x, Tensor):
        return FUNCTIONS["index"](x, i)
    if i not in x:
        raise ValueError(f"'{i}' is not in list")
    return x.index(i, *rest)


ATEN["index"] = _index_or_place


@aten("to")
def _to(
    x: Tensor,
    *args: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: Any = False,
    copy: Any = False,
    memory_format: Any = None,
) -> Tensor:
    """`to(x, dtype, non_blocking, copy, memory_format)`, with a device and a dtype, or like another tensor."""
    rest = list(args)
    if rest and (isinstance(rest[0], Device | str) or (rest[0] is None and len(rest) > 1 and _is_number(rest[1]))):
        device = rest.pop(0)
        if rest and (rest[0] is None or _is_number(rest[0])):
            dtype = to_dtype(rest.pop(0))
    elif rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
        device, dtype = other.device, other.dtype
    elif rest and (rest[0] is None or _is_number(rest[0])):
        dtype = to_dtype(rest.pop(0))
    non_blocking, copy, memory_format = (*rest, *(non_blocking, copy, memory_format)[len(rest) :])
    if type(memory_format) is int:
        memory_format = to_memory_format(memory_format)
    named = {} if memory_format is None else {"memory_format": memory_format}
    return Tensor.to(x, device=device, dtype=dtype, non_blocking=bool(non_blocking), copy=bool(copy), **named)


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is dtypes.dtype


ATEN["_to_copy"] = lambda x, **named: _to(x, copy=True, **named)


@aten("contiguous")
def _contiguous(x: Tensor, memory_format: Any = None) -> Tensor:
    if memory_format in (None, 0):
        return Tensor.contiguous(x)
    kept = memory_format if type(memory_format) is not int else to_memory_format(memory_format)
    return Tensor.contiguous(x, memory_format=kept)


@aten("clone")
def _clone(x: Tensor, memory_format: Any = None) -> Tensor:
    return torch.clone(x) if memory_format is None else torch.clone(x, memory_format=memory_format)


for _name in ("cuda", "float", "half", "double", "long", "int", "bool"):
    ATEN[_name] = getattr(Tensor, _name)


def _typed(name: str, at: int) -> Callable[..., Any]:
    """An operator whose argument number `at` is a dtype when it is given by position."""
    function = getattr(torch, name)

    def typed(*args: Any, **named: Any) -> Any:
        if len(args) > at:
            args = (*args[:at], to_dtype(args[at]), *args[at + 1 :])
        return function(*args, **named)

    typed.__name__ = name
    return typed


ATEN.update(softmax=_typed("softmax", 2), log_softmax=_typed("log_softmax", 2))


ATEN["promote_types"] = lambda a, b: number_of(torch.promote_types(to_dtype(a), to_dtype(b)))
ATEN["result_type"] = lambda a, b: number_of(torch.result_type(a, b))


@aten("frobenius_norm")
def _frobenius(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return linalg.vector_norm(x, 2, dim or None, keepdim)


@aten("nuclear_norm")
def _nuclear(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    if isinstance(dim, bool):  # nuclear_norm(x, keepdim)
        dim, keepdim = None, dim
    return linalg.matrix_norm(x, "nuc", tuple(dim) if dim else (-2, -1), keepdim)


@aten("__interpolate")
def _interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute: Any = None,
    antialias: bool = False,
) -> Tensor:
    return F.interpolate(x, size, scale_factor, mode, align_corners, recompute, antialias)


@aten("set_grad_enabled")
def _set_grad(value: bool) -> None:
    torch.set_grad_enabled(bool(value))


@aten("is_autocast_enabled")
def _autocast() -> bool:
    return autocast_state.enabled.get("cuda", False)


ATEN["is_scripting"] = lambda: True
ATEN["broadcast_shapes"] = lambda *shapes: list(torch.broadcast_shapes(*shapes))
ATEN["device"] = Device
ATEN["get_device"] = lambda x: -1 if x.device.type == "cpu" else x.device.index
ATEN["is_leaf"] = lambda x: Tensor.is_leaf.__get__(x)
ATEN["ne"], ATEN["eq"] = (lambda a, b: a != b), (lambda a, b: a == b)
ATEN["T"] = lambda x: x.T
ATEN["mT"], ATEN["mH"] = (lambda x: x.mT), (lambda x: x.mH)


@aten("wait")
def _wait(future: Any) -> Any:
    if not isinstance(future, Future):
        return refuse_kind("wait", future)
    return future.wait()


# -- prim --------------------------------------------------------------------------------------------------


def _tensor_only(x: Any) -> Tensor:
    return x if isinstance(x, Tensor) else refuse_kind("attribute", x)


PRIM.update(
    device=lambda x: _tensor_only(x).device,
    dtype=lambda x: number_of(_tensor_only(x).dtype),
    is_cuda=lambda x: _tensor_only(x).is_cuda, is_cpu=lambda x: _tensor_only(x).device.type == "cpu",
    is_sparse=lambda x: _tensor_only(x).is_sparse, is_meta=lambda x: _tensor_only(x).is_meta,
    is_nested=lambda x: False, is_quantized=lambda x: False, is_mkldnn=lambda x: False, is_xpu=lambda x: False,
    is_mps=lambda x: False, is_xla=lambda x: False, is_ipu=lambda x: False, is_vulkan=lambda x: False,
    is_mtia=lambda x: False, is_sparse_csr=lambda x: False, is_maia=lambda x: False,
    layout=lambda x: 0,
    requires_grad=lambda x: _tensor_only(x).requires_grad,
    grad=lambda x: _tensor_only(x).grad,
    data=lambda x: _tensor_only(x).detach(),
    itemsize=lambda x: _tensor_only(x).element_size(), nbytes=lambda x: _tensor_only(x).nbytes,
    ndim=lambda x: _tensor_only(x).dim(), T=lambda x: _tensor_only(x).T, H=lambda x: _tensor_only(x).H,
    name=lambda x: None,
    type=lambda d: d.type if isinstance(d, Device) else refuse_kind("type", d),
    index=lambda d: d.index if isinstance(d, Device) else refuse_kind("index", d),
    NumToTensor=lambda x: torch.tensor(x),
    TupleIndex=operator.getitem,
    IfThenElse=lambda test, a, b: a if test else b,
    rangelist=lambda n: list(range(n)),
)  # fmt: skip


@prim("unchecked_unwrap_optional")
def _unwrap(x: Any) -> Any:
    if x is None:
        raise RuntimeError("Unwrapping null optional")
    return x


ATEN["_unwrap_optional"] = _unwrap


@prim("EnumName")
def _enum_name(x: Any) -> str:
    return x.name if isinstance(x, enum.Enum) else refuse_kind("EnumName", x)


@prim("EnumValue")
def _enum_value(x: Any) -> Any:
    return x.value if isinstance(x, enum.Enum) else refuse_kind("EnumValue", x)


@prim("tolist")
def to_list(x: Any, *rest: Any) -> Any:
    """The numbers of a tensor in lists."""
    return _tensor_only(x).tolist()


def division_before_4(a: Any, b: Any, *rest: Any, **named: Any) -> Any:
    """`aten::div` as archives of torch before 1.6 mean it: of integer tensors, the quotient towards zero."""
    if (isinstance(a, Tensor) or isinstance(b, Tensor)) and not rest and not named:
        kinds = [v.dtype for v in (a, b) if isinstance(v, Tensor)]
        numbers = [v for v in (a, b) if not isinstance(v, Tensor)]
        whole = not any(k.is_floating_point or k.is_complex for k in kinds)
        if whole and not any(isinstance(v, float | complex) for v in numbers):
            return torch.div(a, b, rounding_mode="trunc")
    return ATEN["div"](a, b, *rest, **named)
