"""Operators of aten that have other arguments or results than the engine's functions of their names.

`FUNCTIONS` serves `torch.ops.aten` and programs in TorchScript alike.  Each function takes its arguments in the order
of the operator's schema; what is not here is a function of `torch`, of `torch.nn.functional` or of Tensor, or stands
in `engine/ops/aten_operators.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import engine.nn.functional as F
from engine.core import dtypes
from engine.nn._functional_loss import by_number
from engine.nn._functional_pooling import unpooled
from engine.ops import functions as torch
from engine.ops.distance import CDIST_MODES
from engine.tensor import Tensor
from engine.torch_names.facade import facade

__all__ = ["FUNCTIONS"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _aten(function: Callable[..., Any]) -> Callable[..., Any]:
    """Put a function on the list under its name without the underscore in front that all of this file have."""
    FUNCTIONS[function.__name__[1:]] = function
    return function


# --- layers


@_aten
def __convolution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *switches: bool,
) -> Tensor:
    """What traced convolutions call; the switches after the groups choose among cuDNN's algorithms."""
    return torch.convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)


@_aten
def __convolution_mode(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: str,
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    function = (torch.conv1d, torch.conv2d, torch.conv3d)[weight.dim() - 3]
    return function(input, weight, bias, stride, padding, dilation, groups)


@_aten
def _embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Tensor:
    padding = None if padding_idx < 0 else padding_idx
    return F.embedding(indices, weight, padding, None, 2.0, scale_grad_by_freq, sparse)


@_aten
def _embedding_bag(
    weight: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[Tensor, ...]:
    """The bags alone: what else aten gives with them serves its gradient."""
    bags = F.embedding_bag(
        indices,
        weight,
        offsets,
        mode=("sum", "mean", "max")[mode],
        per_sample_weights=per_sample_weights,
        include_last_offset=include_last_offset,
        padding_idx=padding_idx,
    )
    empty = torch.empty(0, dtype=dtypes.int64)
    return bags, empty, empty, empty


def _with_indices(function: Callable[..., Any]) -> Callable[..., Any]:
    """A pooling of `nn.functional` that returns the indices, too."""

    def pooled(
        input: Tensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        return function(input, kernel_size, stride or None, padding, dilation, ceil_mode=ceil_mode, return_indices=True)

    return pooled


def _adaptive(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda input, output_size: function(input, output_size, True)


FUNCTIONS.update(
    _adaptive_avg_pool2d=F.adaptive_avg_pool2d,
    adaptive_max_pool1d=_adaptive(F.adaptive_max_pool1d),
    adaptive_max_pool2d=_adaptive(F.adaptive_max_pool2d),
    adaptive_max_pool3d=_adaptive(F.adaptive_max_pool3d),
    max_pool1d_with_indices=_with_indices(F.max_pool1d),
    max_pool2d_with_indices=_with_indices(F.max_pool2d),
    max_pool3d_with_indices=_with_indices(F.max_pool3d),
)


@_aten
def _max_unpool2d(input: Tensor, indices: Tensor, output_size: Sequence[int]) -> Tensor:
    return unpooled(2, input, indices, output_size)


@_aten
def _max_unpool3d(
    input: Tensor, indices: Tensor, output_size: Sequence[int], stride: Sequence[int], padding: Sequence[int]
) -> Tensor:
    return unpooled(3, input, indices, output_size)


@_aten
def _fractional_max_pool2d(
    input: Tensor, kernel_size: Any, output_size: Any, random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    return F.fractional_max_pool2d_with_indices(input, kernel_size, output_size, _random_samples=random_samples)


@_aten
def _fractional_max_pool3d(
    input: Tensor, kernel_size: Any, output_size: Any, random_samples: Tensor
) -> tuple[Tensor, Tensor]:
    return F.fractional_max_pool3d_with_indices(input, kernel_size, output_size, _random_samples=random_samples)


@_aten
def _elu(input: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
    if (scale, input_scale) != (1, 1):
        return torch.where(input > 0, input * scale, (torch.exp(input * input_scale) - 1) * (alpha * scale))
    return F.elu(input, alpha)


def _in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def in_place(input: Tensor, *rest: Any, **named: Any) -> Tensor:
        recorded = input.requires_grad and torch.is_grad_enabled()  # `function` saves what it reads
        return input.copy_(function(input.clone() if recorded else input, *rest, **named))

    return in_place


for _name in ("elu", "leaky_relu", "hardtanh", "hardswish", "hardsigmoid", "silu", "mish", "relu6", "gelu"):
    FUNCTIONS[f"{_name}_"] = _in_place(FUNCTIONS.get(_name) or getattr(F, _name))
FUNCTIONS["log_sigmoid"] = F.logsigmoid


@_aten
def _stft(
    input: Tensor,
    n_fft: int,
    hop_length: Any = None,
    win_length: Any = None,
    window: Any = None,
    *rest: Any,
    **named: Any,
) -> Tensor:
    """aten has two forms: with and without the centring before `normalized`."""
    names = ("normalized", "onesided", "return_complex")
    if len(rest) > 4 or (len(rest) > 1 and isinstance(rest[1], str)):
        names = ("center", "pad_mode", *names)
    given = {"center": False, **dict(zip(names, rest)), **named}
    return torch.stft(input, n_fft, hop_length, win_length, window, **given)


for _name in ("reflection", "replication"):
    for _dims in (1, 2, 3):
        FUNCTIONS[f"{_name}_pad{_dims}d"] = (
            lambda input, padding, mode={"reflection": "reflect", "replication": "replicate"}[_name]: F.pad(
                input, padding, mode
            )
        )
FUNCTIONS["im2col"] = lambda input, kernel_size, dilation, padding, stride: F.unfold(
    input, kernel_size, dilation, padding, stride
)
FUNCTIONS["col2im"] = lambda input, output_size, kernel_size, dilation, padding, stride: F.fold(
    input, output_size, kernel_size, dilation, padding, stride
)


@_aten
def _pad_sequence(
    sequences: Any, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    return facade().nn.utils.rnn.pad_sequence(sequences, batch_first, padding_value, padding_side=padding_side)


@_aten
def __pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, ...]:
    return tuple(facade().nn.utils.rnn.pack_padded_sequence(input, lengths, batch_first))[:2]


@_aten
def __pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: float, total_length: int = 0
) -> tuple[Tensor, Tensor]:
    rnn = facade().nn.utils.rnn
    packed = rnn.PackedSequence(data, batch_sizes)
    return rnn.pad_packed_sequence(packed, batch_first, padding_value, total_length or None)


# --- losses, with the reduction as a number

FUNCTIONS.update(
    {
        name: by_number(getattr(F, name))
        for name in (
            "binary_cross_entropy",
            "binary_cross_entropy_with_logits",
            "cosine_embedding_loss",
            "ctc_loss",
            "hinge_embedding_loss",
            "huber_loss",
            "kl_div",
            "l1_loss",
            "margin_ranking_loss",
            "mse_loss",
            "multi_margin_loss",
            "multilabel_margin_loss",
            "nll_loss",
            "poisson_nll_loss",
            "smooth_l1_loss",
            "soft_margin_loss",
            "triplet_margin_loss",
        )
    },
    cross_entropy_loss=by_number(F.cross_entropy),
)
FUNCTIONS["nll_loss_nd"] = FUNCTIONS["nll_loss2d"] = FUNCTIONS["nll_loss"]


# --- products and distances


@_aten
def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    return torch.cdist(x1, x2, p, CDIST_MODES[compute_mode or 0])


@_aten
def _einsum(equation: str, tensors: Sequence[Tensor], *, path: Sequence[int] | None = None) -> Tensor:
    """The order of the products, which `path` gives, is the engine's own."""
    return torch.einsum(equation, tensors)


@_aten
def _tensordot(input: Tensor, other: Tensor, dims_self: Sequence[int], dims_other: Sequence[int]) -> Tensor:
    return torch.tensordot(input, other, (dims_self, dims_other))


# --- elements


@_aten
def _index(input: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    return input[tuple(slice(None) if index is None else index for index in indices)]


for _name, _dtype in (
    ("Byte", dtypes.uint8),
    ("Char", dtypes.int8),
    ("Double", dtypes.float64),
    ("Float", dtypes.float32),
    ("Half", dtypes.float16),
    ("Int", dtypes.int32),
    ("Long", dtypes.int64),
    ("Short", dtypes.int16),
):
    FUNCTIONS[f"_cast_{_name}"] = lambda input, non_blocking=False, dtype=_dtype: input.to(dtype)
FUNCTIONS["unfold"] = Tensor.unfold
FUNCTIONS["_no_grad_fill_"] = lambda tensor, val: tensor.fill_(val)
FUNCTIONS["numpy_T"] = lambda input: input.T


def _three(found: Any, inverse: bool, counts: bool) -> tuple[Tensor, Tensor, Tensor]:
    rest = list(found) if isinstance(found, tuple) else [found]
    empty = torch.empty(0, dtype=dtypes.int64)
    first = rest.pop(0)
    return first, rest.pop(0) if inverse else empty, rest.pop(0) if counts else empty


@_aten
def __unique2(
    input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _three(torch.unique(input, sorted, return_inverse, return_counts), return_inverse, return_counts)


@_aten
def _unique_dim(
    input: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Tensor, ...]:
    return _three(torch.unique(input, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


@_aten
def _unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, ...]:
    found = torch.unique_consecutive(input, return_inverse, return_counts, dim)
    return _three(found, return_inverse, return_counts)


# --- lists of tensors


for _name in ("broadcast_tensors", "cartesian_prod", "block_diag"):
    FUNCTIONS[_name] = lambda tensors, f=getattr(torch, _name), **named: (
        list(out) if isinstance(out := f(*tensors, **named), list | tuple) else out
    )
for _name in (
    "chunk",
    "dsplit",
    "hsplit",
    "split",
    "split_with_sizes",
    "tensor_split",
    "unbind",
    "unsafe_chunk",
    "unsafe_split",
    "unsafe_split_with_sizes",
    "vsplit",
):
    FUNCTIONS[_name] = lambda *args, f=getattr(torch, _name), **named: list(f(*args, **named))
FUNCTIONS["where"] = lambda *args: list(out) if isinstance(out := torch.where(*args), tuple) else out


@_aten
def _meshgrid(tensors: Sequence[Tensor], *, indexing: str = "ij") -> list[Tensor]:
    return list(torch.meshgrid(*tensors, indexing=indexing))


@_aten
def _nonzero_numpy(input: Tensor) -> list[Tensor]:
    return list(torch.nonzero(input, as_tuple=True))


@_aten
def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([t.reshape(-1) for t in tensors])


# --- sparse tensors, whose class has methods of its own


@_aten
def _sparse_coo_tensor(indices: Any, values: Tensor | None = None, size: Any = None, **named: Any) -> Tensor:
    """Without values the first argument is a size, that of a tensor of zeros."""
    from engine.sparse.factories import sparse_coo_tensor  # a family of its own: only who calls it pays

    if values is None:
        empty = torch.empty(0, dtype=named.get("dtype"))
        return sparse_coo_tensor(torch.empty((len(indices), 0), dtype=dtypes.int64), empty, indices, **named)
    return sparse_coo_tensor(indices, values, size, **named)


@_aten
def __sparse_mm(sparse: Tensor, dense: Tensor, reduce: str = "sum") -> Tensor:
    from engine.sparse.products import mm

    return mm(sparse, dense, reduce)


@_aten
def __sparse_sum(input: Tensor, dim: Sequence[int] | None = None, *, dtype: Any = None) -> Tensor:
    from engine.sparse.reductions import sum

    return sum(input, dim, dtype)


for _name in (
    "_indices", "_values", "coalesce", "dense_dim", "indices", "is_coalesced", "sparse_dim", "to_dense", "to_sparse",
    "values",
):  # fmt: skip
    FUNCTIONS[_name] = lambda input, *args, name=_name, **named: getattr(input, name)(*args, **named)


# --- copies and views that programs of torch's compilers have


@_aten
def _copy(input: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    return src.to(input, non_blocking).expand_as(input).clone()


@_aten
def __unsafe_view(input: Tensor, size: Sequence[int]) -> Tensor:
    return input.view(size)


@_aten
def _alias(input: Tensor) -> Tensor:
    return input.view_as(input)


@_aten
def _lift_fresh_copy(input: Tensor) -> Tensor:
    return input.clone()
