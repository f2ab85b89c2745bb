"""Operators of TorchScript on tensors where no function of the engine has their name, arguments or result.

Each function takes its arguments in the order of the operator's schema, and is put on the lists of `python_operators`.
"""

from __future__ import annotations

import enum
import functools
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
from engine.jit.archive.schemas import find
from engine.ops import functions as torch
from engine.ops.aten_operators import ATEN as OPERATORS
from engine.tensor import Tensor

_REDUCTIONS = ("none", "mean", "sum")

# -- tensors -----------------------------------------------------------------------------------------------


def _scaled(name: str) -> Callable[..., Any]:
    """`add(x, y, alpha=1)`: of a number, `alpha` may be given by position, as torch before 1.6 writes it."""
    function = getattr(Tensor if name.endswith("_") else torch, name)

    def scaled(x: Any, y: Any, alpha: Any = 1) -> Any:
        return function(x, y, alpha=alpha)

    scaled.__name__ = name
    return scaled


for _name in ("add", "sub", "rsub", "add_", "sub_"):
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
ATEN["alias"] = ATEN["lift_fresh"] = ATEN["lift"] = ATEN["detach_copy"] = lambda x: x
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


def _indices(x: Tensor, indices: list) -> tuple:
    return tuple(slice(None) if index is None else index for index in indices)


def _index(x: Tensor, indices: list) -> Tensor:
    return x[_indices(x, indices)]


ATEN["_unsafe_index"] = _index


def _index_or_place(x: Any, i: Any, *rest: Any) -> Any:
    """`index` of a tensor, or the place of an element in a list."""
    if isinstance(x, Tensor):
        return _index(x, i)
    if i not in x:
        raise ValueError(f"'{i}' is not in list")
    return x.index(i, *rest)


ATEN["index"] = _index_or_place


@aten("index_put_")
def _index_put_(x: Tensor, indices: list, values: Tensor, accumulate: bool = False) -> Tensor:
    if accumulate:
        if any(index is None for index in indices):
            raise NotImplementedError("aten::index_put_ that accumulates and leaves dimensions out is not supported")
        return x.index_put_(tuple(indices), values, True)
    x[_indices(x, indices)] = values
    return x


@aten("index_put")
def _index_put(x: Tensor, indices: list, values: Tensor, accumulate: bool = False) -> Tensor:
    return _index_put_(x.clone(), indices, values, accumulate)


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
for _name, _kind in (
    ("Byte", "uint8"),
    ("Char", "int8"),
    ("Double", "float64"),
    ("Float", "float32"),
    ("Half", "float16"),
    ("Int", "int32"),
    ("Long", "int64"),
    ("Short", "int16"),
):
    ATEN[f"_cast_{_name}"] = lambda x, non_blocking=False, kind=getattr(dtypes, _kind): x.to(kind)


def _typed(name: str, at: int) -> Callable[..., Any]:
    """An operator whose argument number `at` is a dtype when it is given by position."""
    function = getattr(torch, name)

    def typed(*args: Any, **named: Any) -> Any:
        if len(args) > at:
            args = (*args[:at], to_dtype(args[at]), *args[at + 1 :])
        return function(*args, **named)

    typed.__name__ = name
    return typed


ATEN.update(softmax=_typed("softmax", 2), log_softmax=_typed("log_softmax", 2), result_type=torch.result_type)


@aten("_softmax")
def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.softmax(x, dim, dtype=dtypes.float32 if half_to_float else None)


@aten("_log_softmax")
def _log_softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch.log_softmax(x, dim, dtype=dtypes.float32 if half_to_float else None)


ATEN["promote_types"] = lambda a, b: number_of(torch.promote_types(to_dtype(a), to_dtype(b)))
ATEN["result_type"] = lambda a, b: number_of(torch.result_type(a, b))


@aten("_convolution")
def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
    *switches: Any,
) -> Tensor:
    """What traced convolutions call; the switches after the groups choose among cuDNN's algorithms."""
    dims = weight.dim() - 2
    if transposed:
        function = (torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d)[dims - 1]
        return function(x, weight, bias, stride, padding, output_padding, groups, dilation)
    return (torch.conv1d, torch.conv2d, torch.conv3d)[dims - 1](x, weight, bias, stride, padding, dilation, groups)


@aten("_convolution_mode")
def _convolution_mode(
    x: Tensor, weight: Tensor, bias: Any, stride: Any, padding: str, dilation: Any, groups: int
) -> Tensor:
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[weight.dim() - 3]
    return function(x, weight, bias, stride, padding, dilation, groups)


@aten("batch_norm")
def _batch_norm(
    x: Tensor,
    weight: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = True,
) -> Tensor:
    return F.batch_norm(x, mean, variance, weight, bias, training, momentum, eps)


@aten("embedding")
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale: bool = False, sparse: bool = False
) -> Tensor:
    return F.embedding(indices, weight, None if padding_idx < 0 else padding_idx, None, 2.0, scale, sparse)


@aten("dropout_")
def _dropout_(x: Tensor, p: float, train: bool) -> Tensor:
    return F.dropout(x, p, train, True)


def _pooled(name: str) -> Callable[..., Any]:
    function = getattr(F, name)

    def pooled(x: Tensor, kernel_size: Any, stride: Any = (), *rest: Any) -> Any:
        return function(x, kernel_size, stride or None, *rest)

    return pooled


ATEN.update(
    avg_pool2d=_pooled("avg_pool2d"),
    avg_pool3d=_pooled("avg_pool3d"),
    avg_pool1d=_pooled("avg_pool1d"),
    max_pool1d=_pooled("max_pool1d"),
    max_pool2d=_pooled("max_pool2d"),
    max_pool3d=_pooled("max_pool3d"),
    adaptive_avg_pool2d=F.adaptive_avg_pool2d,
    adaptive_avg_pool3d=F.adaptive_avg_pool3d,
    _adaptive_avg_pool2d=F.adaptive_avg_pool2d,
    adaptive_max_pool2d=lambda x, size: F.adaptive_max_pool2d(x, size, True),
    adaptive_max_pool3d=lambda x, size: F.adaptive_max_pool3d(x, size, True),
    adaptive_max_pool1d=lambda x, size: F.adaptive_max_pool1d(x, size, True),
)


def _pooled_with_indices(name: str) -> Callable[..., Any]:
    function = getattr(F, name)

    def pooled(
        x: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        return function(x, kernel_size, stride or None, padding, dilation, ceil_mode=ceil_mode, return_indices=True)

    return pooled


ATEN["max_pool2d_with_indices"] = _pooled_with_indices("max_pool2d")
ATEN["max_pool3d_with_indices"] = _pooled_with_indices("max_pool3d")
ATEN["max_pool1d_with_indices"] = _pooled_with_indices("max_pool1d")


@aten("elu")
def _elu(x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    if (scale, input_scale) != (1, 1):
        return torch.where(x > 0, x * scale, (torch.exp(x * input_scale) - 1) * (alpha * scale))
    return F.elu(x, alpha)


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    # a copy where gradients are recorded: `function` saves what it reads, and that is overwritten
    return lambda x, *rest: x.copy_(function(x.clone() if x.requires_grad and torch.is_grad_enabled() else x, *rest))


for _name in ("elu", "leaky_relu", "hardtanh", "hardswish", "hardsigmoid", "silu", "mish", "relu6", "gelu"):
    if _name not in ATEN:
        ATEN[_name] = getattr(F, _name)
    ATEN[f"{_name}_"] = _in_place(ATEN[_name])
ATEN["gelu"] = lambda x, approximate="none": F.gelu(x, approximate=approximate)
ATEN["glu"] = F.glu
ATEN["softshrink"] = F.softshrink
ATEN["softplus"] = F.softplus
ATEN["relu6"] = F.relu6


def _loss(name: str, function: Callable[..., Tensor]) -> Callable[..., Any]:
    """The operator `name` of a loss: its arguments by the schema's names, the reduction as its number among them."""

    def loss(*args: Any, **named: Any) -> Any:
        given = dict(zip(_names(name), args), **named)
        if "self" in given:
            given["input"] = given.pop("self")
        given["reduction"] = _REDUCTIONS[given.get("reduction", 1)]
        return function(**given)

    return loss


@functools.cache
def _names(name: str) -> list[str]:
    """The parameters of an operator, which has them in one order in all its forms."""
    return [parameter.name for parameter in find(f"aten::{name}")[0].parameters]


ATEN.update(
    {
        name: _loss(name, getattr(F, name))
        for name in (
            "mse_loss",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "soft_margin_loss",
            "kl_div",
            "multilabel_margin_loss",
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
            "multi_margin_loss",
            "triplet_margin_loss",
            "hinge_embedding_loss",
            "margin_ranking_loss",
            "cosine_embedding_loss",
            "poisson_nll_loss",
            "ctc_loss",
        )
    },
    nll_loss=_loss("nll_loss", F.nll_loss),
    nll_loss_nd=_loss("nll_loss_nd", F.nll_loss),
    nll_loss2d=_loss("nll_loss2d", F.nll_loss),
    cross_entropy_loss=_loss("cross_entropy_loss", F.cross_entropy),
    feature_alpha_dropout_=_in_place(torch.feature_alpha_dropout),
    broadcast_shapes=lambda *shapes: list(torch.broadcast_shapes(*shapes)),
)


@aten("embedding_bag")
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Any = None,
    last: bool = False,
    padding: Any = None,
) -> tuple:
    """The bags alone: what else aten gives with them serves its gradient."""
    kind = ("sum", "mean", "max")[mode]
    bags = F.embedding_bag(
        indices, weight, offsets, mode=kind, per_sample_weights=weights, include_last_offset=last, padding_idx=padding
    )
    empty = torch.empty(0, dtype=dtypes.int64)
    return bags, empty, empty, empty


@aten("frobenius_norm")
def _frobenius(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return linalg.vector_norm(x, 2, dim or None, keepdim)


@aten("nuclear_norm")
def _nuclear(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    return linalg.matrix_norm(x, "nuc", tuple(dim) if isinstance(dim, list) else (-2, -1), keepdim)


@aten("pad_sequence")
def _pad_sequence(
    sequences: list, batch_first: bool = False, padding_value: float = 0.0, side: str = "right"
) -> Tensor:
    from engine.nn.utils.rnn import pad_sequence

    return pad_sequence(sequences, batch_first, padding_value, padding_side=side)


@aten("scaled_dot_product_attention")
def _attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Any = None, p: float = 0.0, causal: bool = False, **named: Any
) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, mask, p, causal, **named)


@aten("pad")
def _pad(x: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    return F.pad(x, pad, mode, value)


for _name in ("reflection", "replication"):
    for _dims in (1, 2, 3):
        ATEN[f"{_name}_pad{_dims}d"] = (
            lambda x, pad, mode={"reflection": "reflect", "replication": "replicate"}[_name]: F.pad(x, pad, mode)
        )


ATEN.update({name: function for name, function in OPERATORS.items() if "upsample" in name})


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


ATEN["im2col"] = lambda x, kernel, dilation, padding, stride: F.unfold(x, kernel, dilation, padding, stride)
ATEN["col2im"] = lambda x, size, kernel, dilation, padding, stride: F.fold(x, size, kernel, dilation, padding, stride)
ATEN["unfold"] = Tensor.unfold


def _recurrent(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def recurrent(x: Tensor, *args: Any) -> Any:
        return function(x, *args)

    return recurrent


for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"):
    ATEN[_name] = _recurrent(_name)
ATEN["_pack_padded_sequence"] = lambda x, lengths, batch_first: _packed(x, lengths, batch_first)


def _packed(x: Tensor, lengths: Tensor, batch_first: bool) -> tuple:
    from engine.nn.utils.rnn import pack_padded_sequence

    return tuple(pack_padded_sequence(x, lengths, batch_first))[:2]


@aten("_pad_packed_sequence")
def _padded(data: Tensor, batch_sizes: Tensor, batch_first: bool, value: float, total: int = 0) -> tuple:
    from engine.nn.utils.rnn import PackedSequence, pad_packed_sequence

    return pad_packed_sequence(PackedSequence(data, batch_sizes), batch_first, value, total or None)


@aten("stft")
def _stft(x: Tensor, n_fft: int, hop: Any = None, win: Any = None, window: Any = None, *rest: Any) -> Tensor:
    """aten has two forms: with and without the centring before `normalized`."""
    names = ("normalized", "onesided", "return_complex")
    if len(rest) > 4 or (len(rest) > 1 and isinstance(rest[1], str)):
        names = ("center", "pad_mode", *names)
    named = dict(zip(names, rest))
    named.setdefault("center", False)
    return torch.stft(x, n_fft, hop, win, window, **named)


for _name in ("broadcast_tensors", "cartesian_prod", "block_diag"):
    ATEN[_name] = lambda tensors, f=getattr(torch, _name), **named: (
        list(out) if isinstance(out := f(*tensors, **named), list | tuple) else out
    )
ATEN["meshgrid"] = lambda tensors, indexing="ij": list(torch.meshgrid(*tensors, indexing=indexing))
ATEN["tensordot"] = lambda a, b, da, db: torch.tensordot(a, b, (da, db))
ATEN["tile"] = lambda x, dims: torch.tile(x, dims)
for _name in (
    "chunk",
    "unbind",
    "split_with_sizes",
    "unsafe_chunk",
    "unsafe_split",
    "tensor_split",
    "hsplit",
    "vsplit",
    "dsplit",
    "unsafe_split_with_sizes",
):
    ATEN[_name] = lambda *args, f=getattr(torch, _name), **named: list(f(*args, **named))
ATEN["where"] = lambda *args: list(out) if isinstance(out := torch.where(*args), tuple) else out
ATEN["_weight_norm"] = lambda v, g, dim=0: torch._weight_norm(v, g, dim)
ATEN["feature_dropout_"] = _in_place(torch.feature_dropout)


@aten("_unique2")
def _unique2(x: Tensor, sorted: bool = True, inverse: bool = False, counts: bool = False) -> tuple:
    return _three(torch.unique(x, sorted, inverse, counts), inverse, counts)


@aten("unique_dim")
def _unique_dim(x: Tensor, dim: int, sorted: bool = True, inverse: bool = False, counts: bool = False) -> tuple:
    return _three(torch.unique(x, sorted, inverse, counts, dim), inverse, counts)


@aten("unique_consecutive")
def _unique_consecutive(x: Tensor, inverse: bool = False, counts: bool = False, dim: Any = None) -> tuple:
    return _three(torch.unique_consecutive(x, inverse, counts, dim), inverse, counts)


def _three(out: Any, inverse: bool, counts: bool) -> tuple:
    rest = list(out) if isinstance(out, tuple) else [out]
    empty = torch.empty(0, dtype=dtypes.int64)
    first = rest.pop(0)
    return first, rest.pop(0) if inverse else empty, rest.pop(0) if counts else empty


@aten("nonzero_numpy")
def _nonzero_numpy(x: Tensor) -> list:
    return list(torch.nonzero(x, as_tuple=True))


@aten("flatten_dense_tensors")
def _flat(tensors: list) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


@aten("set_grad_enabled")
def _set_grad(value: bool) -> None:
    torch.set_grad_enabled(bool(value))


@aten("is_autocast_enabled")
def _autocast() -> bool:
    return autocast_state.enabled.get("cuda", False)


ATEN["is_scripting"] = lambda: True
ATEN["_no_grad_fill_"] = ATEN["fill_"] = lambda x, value: x.fill_(value)
ATEN["device"] = Device
ATEN["get_device"] = lambda x: -1 if x.device.type == "cpu" else x.device.index
ATEN["is_leaf"] = lambda x: Tensor.is_leaf.__get__(x)
ATEN["ne"], ATEN["eq"] = (lambda a, b: a != b), (lambda a, b: a == b)
ATEN["numpy_T"] = ATEN["T"] = lambda x: x.T
ATEN["mT"], ATEN["mH"] = (lambda x: x.mT), (lambda x: x.mH)


@aten("dequantize")
def _dequantize(x: Any) -> Any:
    raise RuntimeError("aten::dequantize takes a quantized tensor, which the engine does not have")


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
