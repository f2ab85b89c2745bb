"""Functions of `nn.functional` and methods of `nn` modules as TorchScript has them: in its language, over operators.

The engine's own are written for Python (several types of one argument, `**kwargs`); these are compiled in their place,
and become `__torch__.torch.nn.functional.relu` and so on in an archive.
"""

from __future__ import annotations

import types
from typing import Any

from engine import linalg, ops
from engine.jit.scripting import library_losses
from engine.jit.scripting.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3
from engine.jit.scripting.library_losses import _reduced
from engine.jit.scripting.markers import annotate
from engine.nn import functional as F
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["FUNCTIONS", "replaced"]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.relu_(input)
    return torch.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.hardtanh_(input, 0.0, 6.0)
    return ops.aten.relu6(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.elu_(input, alpha)
    return ops.aten.elu(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.selu_(input)
    return torch.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.celu_(input, alpha)
    return torch.celu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.leaky_relu_(input, negative_slope)
    return ops.aten.leaky_relu(input, negative_slope)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.hardtanh_(input, min_val, max_val)
    return ops.aten.hardtanh(input, min_val, max_val)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.hardswish_(input)
    return ops.aten.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.hardsigmoid_(input)
    return ops.aten.hardsigmoid(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.silu_(input)
    return ops.aten.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return ops.aten.mish_(input)
    return ops.aten.mish(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    return ops.aten.glu(input, dim)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.threshold_(input, threshold, value)
    return torch.threshold(input, threshold, value)


def softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()


def rrelu(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    if inplace:
        return torch.rrelu_(input, lower, upper, training)
    return torch.rrelu(input, lower, upper, training)


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    if dtype is None:
        return input.softmax(dim)
    return input.softmax(dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    if dtype is None:
        return (-input).softmax(dim)
    return (-input).softmax(dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: int | None = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    if dtype is None:
        return input.log_softmax(dim)
    return input.log_softmax(dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    gumbels = -torch.empty_like(logits).exponential_().log()
    y_soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return y_soft
    index = y_soft.max(dim, keepdim=True)[1]
    y_hard = torch.zeros_like(logits).scatter_(dim, index, 1.0)
    return y_hard - y_soft.detach() + y_soft


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if inplace:
        return torch.dropout_(input, p, training)
    return torch.dropout(input, p, training)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if inplace:
        return torch.alpha_dropout_(input, p, training)
    return torch.alpha_dropout(input, p, training)


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    batched = input.dim() == 3
    if not batched:
        input = input.unsqueeze(0)
    result = torch.feature_dropout(input, p, training)
    return result if batched else result.squeeze(0)


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if inplace:
        return ops.aten.feature_dropout_(input, p, training)
    return torch.feature_dropout(input, p, training)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    batched = input.dim() == 5
    if not batched:
        input = input.unsqueeze(0)
    result = torch.feature_dropout(input, p, training)
    return result if batched else result.squeeze(0)


def batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
               weight: Tensor | None = None, bias: Tensor | None = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    if training:
        size = input.size()
        count = size[0]
        for i in range(len(size) - 2):
            count *= size[i + 2]
        if count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")
    return torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
                  weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    return torch.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)


def layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return torch.layer_norm(input, normalized_shape, weight, bias, eps, True)


def group_norm(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    return torch.group_norm(input, num_groups, weight, bias, eps, True)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    div = input.mul(input)
    if input.dim() == 3:
        div = div.unsqueeze(1)
        div = F.pad(div, [0, 0, size // 2, (size - 1) // 2])
        div = ops.aten.avg_pool2d(div, [size, 1], [1, 1]).squeeze(1)
    else:
        sizes = input.size()
        div = div.view([sizes[0], 1, sizes[1], sizes[2], -1])
        div = F.pad(div, [0, 0, 0, 0, size // 2, (size - 1) // 2])
        div = ops.aten.avg_pool3d(div, [size, 1, 1], [1, 1, 1]).squeeze(1)
        div = div.view(sizes)
    return input / div.mul(alpha).add(k).pow(beta)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    denom = input.norm(p, [dim], True).clamp_min(eps).expand_as(input)
    return input / denom


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:  # fmt: skip
    index = -1
    if padding_idx is not None:
        index = padding_idx if padding_idx >= 0 else weight.size(0) + padding_idx
    if max_norm is not None:
        raise RuntimeError("embedding with max_norm is not compiled")
    return torch.embedding(weight, input, index, scale_grad_by_freq, sparse)


def pad(input: Tensor, pad: list[int], mode: str = "constant", value: float | None = None) -> Tensor:
    return ops.aten.pad(input, pad, mode, value)


def interpolate(
    input: Tensor,
    size: BroadcastingList1[int] | None = None,
    scale_factor: BroadcastingList1[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    dim = input.dim() - 2
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None and len(size) == 1:
        size = [size[0] for _ in range(dim)]
    if scale_factor is not None and len(scale_factor) == 1:
        scale_factor = [scale_factor[0] for _ in range(dim)]
    if recompute_scale_factor is not None and recompute_scale_factor and scale_factor is not None:
        size = [int(float(input.size(i + 2)) * scale_factor[i]) for i in range(dim)]
        scale_factor = None
    corners = align_corners is not None and align_corners
    if mode == "nearest":
        if dim == 1:
            return ops.aten.upsample_nearest1d(input, size, scale_factor)
        if dim == 2:
            return ops.aten.upsample_nearest2d(input, size, scale_factor)
        return ops.aten.upsample_nearest3d(input, size, scale_factor)
    if mode == "linear":
        return ops.aten.upsample_linear1d(input, size, corners, scale_factor)
    if mode == "bilinear":
        if antialias:
            return ops.aten._upsample_bilinear2d_aa(input, size, corners, scale_factor)
        return ops.aten.upsample_bilinear2d(input, size, corners, scale_factor)
    if mode == "trilinear":
        return ops.aten.upsample_trilinear3d(input, size, corners, scale_factor)
    if mode == "bicubic":
        if antialias:
            return ops.aten._upsample_bicubic2d_aa(input, size, corners, scale_factor)
        return ops.aten.upsample_bicubic2d(input, size, corners, scale_factor)
    if mode == "area" and size is not None:
        if dim == 1:
            return ops.aten.adaptive_avg_pool1d(input, size)
        if dim == 2:
            return ops.aten.adaptive_avg_pool2d(input, size)
        return ops.aten.adaptive_avg_pool3d(input, size)
    raise NotImplementedError(
        f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the "
        f"modes: nearest | linear | bilinear | bicubic | trilinear | area (got {mode})"
    )


def upsample(
    input: Tensor,
    size: BroadcastingList1[int] | None = None,
    scale_factor: BroadcastingList1[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    return F.interpolate(input, size, scale_factor, mode, align_corners)


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    kind = 0 if mode == "bilinear" else (1 if mode == "nearest" else 2)
    edge = 0 if padding_mode == "zeros" else (1 if padding_mode == "border" else 2)
    return ops.aten.grid_sampler(input, grid, kind, edge, align_corners is not None and align_corners)


def affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Tensor:
    return ops.aten.affine_grid_generator(theta, size, align_corners is not None and align_corners)


def max_pool1d(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    dilation: BroadcastingList1[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    steps = annotate(list[int], []) if stride is None else stride
    return torch.max_pool1d(input, kernel_size, steps, padding, dilation, ceil_mode)


def max_pool2d(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    dilation: BroadcastingList2[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    steps = annotate(list[int], []) if stride is None else stride
    return torch.max_pool2d(input, kernel_size, steps, padding, dilation, ceil_mode)


def max_pool3d(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    dilation: BroadcastingList3[int] = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    steps = annotate(list[int], []) if stride is None else stride
    return torch.max_pool3d(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool1d(input: Tensor, output_size: BroadcastingList1[int], return_indices: bool = False) -> Tensor:
    return torch.adaptive_max_pool1d(input, output_size)[0]


def adaptive_max_pool2d(input: Tensor, output_size: BroadcastingList2[int], return_indices: bool = False) -> Tensor:
    return ops.aten.adaptive_max_pool2d(input, output_size)[0]


def adaptive_max_pool3d(input: Tensor, output_size: BroadcastingList3[int], return_indices: bool = False) -> Tensor:
    return ops.aten.adaptive_max_pool3d(input, output_size)[0]


def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList1[int],
    stride: BroadcastingList1[int] | None = None,
    padding: BroadcastingList1[int] = 0,
    dilation: BroadcastingList1[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    steps = annotate(list[int], []) if stride is None else stride
    return ops.aten.max_pool1d_with_indices(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: BroadcastingList1[int]) -> tuple[Tensor, Tensor]:
    return ops.aten.adaptive_max_pool1d(input, output_size)


def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    stride: BroadcastingList2[int] | None = None,
    padding: BroadcastingList2[int] = 0,
    dilation: BroadcastingList2[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    steps = annotate(list[int], []) if stride is None else stride
    return ops.aten.max_pool2d_with_indices(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: BroadcastingList2[int]) -> tuple[Tensor, Tensor]:
    return ops.aten.adaptive_max_pool2d(input, output_size)


def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: BroadcastingList3[int],
    stride: BroadcastingList3[int] | None = None,
    padding: BroadcastingList3[int] = 0,
    dilation: BroadcastingList3[int] = 1,
    ceil_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    steps = annotate(list[int], []) if stride is None else stride
    return ops.aten.max_pool3d_with_indices(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: BroadcastingList3[int]) -> tuple[Tensor, Tensor]:
    return ops.aten.adaptive_max_pool3d(input, output_size)


def unfold(
    input: Tensor,
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    return ops.aten.im2col(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: BroadcastingList2[int],
    kernel_size: BroadcastingList2[int],
    dilation: BroadcastingList2[int] = 1,
    padding: BroadcastingList2[int] = 0,
    stride: BroadcastingList2[int] = 1,
) -> Tensor:
    return ops.aten.col2im(input, output_size, kernel_size, dilation, padding, stride)


def mse_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
             reduction: str = "mean", weight: Tensor | None = None) -> Tensor:  # fmt: skip
    return ops.aten.mse_loss(input, target, _reduced(reduction))


def l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
            reduction: str = "mean", weight: Tensor | None = None) -> Tensor:  # fmt: skip
    return ops.aten.l1_loss(input, target, _reduced(reduction))


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:  # fmt: skip
    return ops.aten.smooth_l1_loss(input, target, _reduced(reduction), beta)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    return ops.aten.huber_loss(input, target, _reduced(reduction), delta)


def nll_loss(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
             ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean") -> Tensor:  # fmt: skip
    return ops.aten.nll_loss_nd(input, target, weight, _reduced(reduction), ignore_index)


def cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
                  ignore_index: int = -100, reduce: bool | None = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:  # fmt: skip
    return ops.aten.cross_entropy_loss(input, target, weight, _reduced(reduction), ignore_index, label_smoothing)


def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    return ops.aten.binary_cross_entropy(input, target, weight, _reduced(reduction))


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None = None,
                                     size_average: bool | None = None, reduce: bool | None = None,
                                     reduction: str = "mean", pos_weight: Tensor | None = None) -> Tensor:  # fmt: skip
    return ops.aten.binary_cross_entropy_with_logits(input, target, weight, pos_weight, _reduced(reduction))


def kl_div(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:  # fmt: skip
    if reduction == "batchmean":
        return ops.aten.kl_div(input, target, 2, log_target=log_target) / input.size(0)
    return ops.aten.kl_div(input, target, _reduced(reduction), log_target=log_target)


def norm(input: Tensor, p: str = "fro", dim: BroadcastingList1[int] | None = None, keepdim: bool = False,
         out: Tensor | None = None, dtype: int | None = None) -> Tensor:  # fmt: skip
    if out is not None:
        raise RuntimeError("norm with out= is not compiled")
    if p == "fro" and (dim is None or len(dim) <= 2):
        return linalg.vector_norm(input, 2, dim, keepdim, dtype=dtype)
    dims = list(range(input.dim())) if dim is None else dim
    return linalg.matrix_norm(input, p, dims, keepdim, dtype=dtype)


def norm_of_order(input: Tensor, p: float, dim: BroadcastingList1[int] | None = None, keepdim: bool = False,
                  out: Tensor | None = None, dtype: int | None = None) -> Tensor:  # fmt: skip
    if out is not None:
        raise RuntimeError("norm with out= is not compiled")
    return linalg.vector_norm(input, p, dim, keepdim, dtype=dtype)


def norm_of_whole_order(input: Tensor, p: int, dim: BroadcastingList1[int] | None = None, keepdim: bool = False,
                        out: Tensor | None = None, dtype: int | None = None) -> Tensor:  # fmt: skip
    if out is not None:
        raise RuntimeError("norm with out= is not compiled")
    return linalg.vector_norm(input, p, dim, keepdim, dtype=dtype)


def tensordot(a: Tensor, b: Tensor, dims: int = 2, out: Tensor | None = None) -> Tensor:
    if out is not None:
        raise RuntimeError("tensordot with out= is not compiled")
    return ops.aten.tensordot(a, b, [i - dims for i in range(dims)], list(range(dims)))


def tensordot_pair(a: Tensor, b: Tensor, dims: tuple[list[int], list[int]], out: Tensor | None = None) -> Tensor:
    if out is not None:
        raise RuntimeError("tensordot with out= is not compiled")
    return ops.aten.tensordot(a, b, dims[0], dims[1])


def tensordot_lists(a: Tensor, b: Tensor, dims: list[list[int]], out: Tensor | None = None) -> Tensor:
    if out is not None:
        raise RuntimeError("tensordot with out= is not compiled")
    return ops.aten.tensordot(a, b, dims[0], dims[1])


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    modes = ["use_mm_for_euclid_dist_if_necessary", "use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"]
    if compute_mode not in modes:
        raise ValueError(f"{compute_mode} is not a valid value for compute_mode")
    return ops.aten.cdist(x1, x2, p, modes.index(compute_mode))


def stft(input: Tensor, n_fft: int, hop_length: int | None = None, win_length: int | None = None,
         window: Tensor | None = None, center: bool = True, pad_mode: str = "reflect", normalized: bool = False,
         onesided: bool | None = None, return_complex: bool | None = None,
         align_to_window: bool | None = None) -> Tensor:  # fmt: skip
    return ops.aten.stft(input, n_fft, hop_length, win_length, window, center, pad_mode, normalized, onesided,
                               return_complex, align_to_window)  # fmt: skip


def _unique_three(
    input: Tensor, sorted: bool, inverse: bool, counts: bool, dim: int | None
) -> tuple[Tensor, Tensor, Tensor]:
    if dim is None:
        return ops.aten._unique2(input, sorted, inverse, counts)
    return ops.aten.unique_dim(input, dim, sorted, inverse, counts)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Tensor:
    return _unique_three(input, sorted, False, False, dim)[0]


def unique_inverse(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    found = _unique_three(input, sorted, True, False, dim)
    return found[0], found[1]


def unique_counts(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor]:
    found = _unique_three(input, sorted, False, True, dim)
    return found[0], found[2]


def unique_inverse_counts(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    return _unique_three(input, sorted, True, True, dim)


def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Tensor:
    return ops.aten.unique_consecutive(input, False, False, dim)[0]


def unique_consecutive_inverse(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    found = ops.aten.unique_consecutive(input, True, False, dim)
    return found[0], found[1]


def unique_consecutive_counts(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    found = ops.aten.unique_consecutive(input, False, True, dim)
    return found[0], found[2]


def unique_consecutive_inverse_counts(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    return ops.aten.unique_consecutive(input, True, True, dim)


FUNCTIONS: dict[str, Any] = {
    name: value
    for name, value in list(vars().items())
    if isinstance(value, types.FunctionType) and value.__module__ == __name__ and name[0] != "_"
} | library_losses.FUNCTIONS


# By the name of a function: those that are tried one after the other, by the types of the arguments; and the parameters
# that decide, being constants, what is returned.
_FORMS = {
    "norm": ("norm", "norm_of_order", "norm_of_whole_order"),
    "tensordot": ("tensordot", "tensordot_pair", "tensordot_lists"),
    "cdist": ("cdist",),  # aten's own takes the number of a mode
    "stft": ("stft",),  # aten's own pads nothing unless it is told to
}
_FLAGS = {
    **{f"{kind}max_pool{n}d": ("return_indices",) for kind in ("", "adaptive_") for n in (1, 2, 3)},
    **{name: ("return_inverse", "return_counts") for name in ("unique", "unique_consecutive")},
}
_SUFFIXES = {"return_indices": "_with_indices", "return_inverse": "_inverse", "return_counts": "_counts"}


def replaced(function: Any) -> Any:
    """The function that is compiled in place of one of `nn.functional`; None if its own is."""
    if not _replaced:
        homes = ((getattr(F, name, None) or getattr(torch, name, None), value) for name, value in FUNCTIONS.items())
        _replaced.update((id(home), value) for home, value in homes if home is not None)
    return _replaced.get(id(function))


def forms(function: Any, given: list[Any], named: dict[str, Any]) -> list[tuple[Any, list[Any], dict[str, Any]]]:
    """What is compiled in place of a function that returns or takes this or that, to be tried in order; each with the
    arguments of the call.  Empty for any other function.
    """
    known = replaced(function)
    if known is None:
        return []
    name = known.__name__
    if name in _FORMS:
        return [(FUNCTIONS[one], given, named) for one in _FORMS[name]]
    names = known.__code__.co_varnames[: len(given)]
    values = {**dict(zip(names, given, strict=False)), **named}
    if name not in _FLAGS:
        return []
    wanted = [flag for flag in _FLAGS[name] if getattr(values.get(flag), "const", None) is True]
    form = FUNCTIONS[name + "".join(_SUFFIXES[flag] for flag in wanted)]
    taken = form.__code__.co_varnames[: form.__code__.co_argcount]
    return [(form, given[: len(taken)], {k: v for k, v in named.items() if k in taken})]


_replaced: dict[int, Any] = {}
