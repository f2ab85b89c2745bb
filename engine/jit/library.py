"""Functions of `nn.functional` and methods of `nn` modules as TorchScript has them: in its language, over operators.

The engine's own are written for Python (several types of one argument, `**kwargs`); these are compiled in their place,
and become `__torch__.torch.nn.functional.relu` and so on in an archive.
"""

from __future__ import annotations

import types
from typing import Any, List, Optional, Tuple  # noqa: UP035

import engine as torch
from engine.jit import annotate
from engine.nn import functional as F
from engine.jit.annotations import BroadcastingList1, BroadcastingList2, BroadcastingList3
from engine.tensor import Tensor

__all__ = ["CLASSES", "FUNCTIONS", "HIDDEN", "PATHS", "method"]

_reduction = {"none": 0, "mean": 1, "sum": 2}


def _reduced(reduction: str) -> int:
    if reduction == "none":
        return 0
    if reduction == "mean":
        return 1
    if reduction == "sum":
        return 2
    raise ValueError(f"{reduction} is not a valid value for reduction")


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.relu_(input)
    return torch.relu(input)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardtanh_(input, 0.0, 6.0)
    return torch.ops.aten.relu6(input)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.elu_(input, alpha)
    return torch.ops.aten.elu(input, alpha)


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
        return torch.ops.aten.leaky_relu_(input, negative_slope)
    return torch.ops.aten.leaky_relu(input, negative_slope)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardtanh_(input, min_val, max_val)
    return torch.ops.aten.hardtanh(input, min_val, max_val)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardswish_(input)
    return torch.ops.aten.hardswish(input)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.hardsigmoid_(input)
    return torch.ops.aten.hardsigmoid(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.silu_(input)
    return torch.ops.aten.silu(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.ops.aten.mish_(input)
    return torch.ops.aten.mish(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    return torch.ops.aten.glu(input, dim)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    if inplace:
        return torch.threshold_(input, threshold, value)
    return torch.threshold(input, threshold, value)


def softsign(input: Tensor) -> Tensor:
    return input / (input.abs() + 1)


def tanhshrink(input: Tensor) -> Tensor:
    return input - input.tanh()


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:  # fmt: skip
    if inplace:
        return torch.rrelu_(input, lower, upper, training)
    return torch.rrelu(input, lower, upper, training)


def softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    if dtype is None:
        return input.softmax(dim)
    return input.softmax(dim, dtype=dtype)


def softmin(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
    if dim is None:
        dim = 0 if input.dim() == 0 or input.dim() == 1 or input.dim() == 3 else 1
    if dtype is None:
        return (-input).softmax(dim)
    return (-input).softmax(dim, dtype=dtype)


def log_softmax(input: Tensor, dim: Optional[int] = None, _stacklevel: int = 3, dtype: Optional[int] = None) -> Tensor:
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
        return torch.ops.aten.feature_dropout_(input, p, training)
    return torch.feature_dropout(input, p, training)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    batched = input.dim() == 5
    if not batched:
        input = input.unsqueeze(0)
    result = torch.feature_dropout(input, p, training)
    return result if batched else result.squeeze(0)


def batch_norm(input: Tensor, running_mean: Optional[Tensor], running_var: Optional[Tensor],
               weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    if training:
        size = input.size()
        count = size[0]
        for i in range(len(size) - 2):
            count *= size[i + 2]
        if count == 1:
            raise ValueError(f"Expected more than 1 value per channel when training, got input size {size}")
    return torch.batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps, True)


def instance_norm(input: Tensor, running_mean: Optional[Tensor] = None, running_var: Optional[Tensor] = None,
                  weight: Optional[Tensor] = None, bias: Optional[Tensor] = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    return torch.instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True)


def layer_norm(input: Tensor, normalized_shape: List[int], weight: Optional[Tensor] = None,
               bias: Optional[Tensor] = None, eps: float = 1e-5) -> Tensor:  # fmt: skip
    return torch.layer_norm(input, normalized_shape, weight, bias, eps, True)


def group_norm(input: Tensor, num_groups: int, weight: Optional[Tensor] = None, bias: Optional[Tensor] = None,
               eps: float = 1e-5) -> Tensor:  # fmt: skip
    return torch.group_norm(input, num_groups, weight, bias, eps, True)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    if input.dim() < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)")
    div = input.mul(input)
    if input.dim() == 3:
        div = div.unsqueeze(1)
        div = F.pad(div, [0, 0, size // 2, (size - 1) // 2])
        div = torch.ops.aten.avg_pool2d(div, [size, 1], [1, 1]).squeeze(1)
    else:
        sizes = input.size()
        div = div.view([sizes[0], 1, sizes[1], sizes[2], -1])
        div = F.pad(div, [0, 0, 0, 0, size // 2, (size - 1) // 2])
        div = torch.ops.aten.avg_pool3d(div, [size, 1, 1], [1, 1, 1]).squeeze(1)
        div = div.view(sizes)
    return input / div.mul(alpha).add(k).pow(beta)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Optional[Tensor] = None) -> Tensor:
    denom = input.norm(p, [dim], True).clamp_min(eps).expand_as(input)
    return input / denom


def embedding(input: Tensor, weight: Tensor, padding_idx: Optional[int] = None, max_norm: Optional[float] = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:  # fmt: skip
    index = -1
    if padding_idx is not None:
        index = padding_idx if padding_idx >= 0 else weight.size(0) + padding_idx
    if max_norm is not None:
        raise RuntimeError("embedding with max_norm is not compiled")
    return torch.embedding(weight, input, index, scale_grad_by_freq, sparse)


def pad(input: Tensor, pad: List[int], mode: str = "constant", value: Optional[float] = None) -> Tensor:
    return torch.ops.aten.pad(input, pad, mode, value)


def interpolate(input: Tensor, size: Optional[BroadcastingList1[int]] = None, scale_factor: Optional[BroadcastingList1[float]] = None,
                mode: str = "nearest", align_corners: Optional[bool] = None,
                recompute_scale_factor: Optional[bool] = None, antialias: bool = False) -> Tensor:  # fmt: skip
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
            return torch.ops.aten.upsample_nearest1d(input, size, scale_factor)
        if dim == 2:
            return torch.ops.aten.upsample_nearest2d(input, size, scale_factor)
        return torch.ops.aten.upsample_nearest3d(input, size, scale_factor)
    if mode == "linear":
        return torch.ops.aten.upsample_linear1d(input, size, corners, scale_factor)
    if mode == "bilinear":
        if antialias:
            return torch.ops.aten._upsample_bilinear2d_aa(input, size, corners, scale_factor)
        return torch.ops.aten.upsample_bilinear2d(input, size, corners, scale_factor)
    if mode == "trilinear":
        return torch.ops.aten.upsample_trilinear3d(input, size, corners, scale_factor)
    if mode == "bicubic":
        if antialias:
            return torch.ops.aten._upsample_bicubic2d_aa(input, size, corners, scale_factor)
        return torch.ops.aten.upsample_bicubic2d(input, size, corners, scale_factor)
    if mode == "area" and size is not None:
        if dim == 1:
            return torch.ops.aten.adaptive_avg_pool1d(input, size)
        if dim == 2:
            return torch.ops.aten.adaptive_avg_pool2d(input, size)
        return torch.ops.aten.adaptive_avg_pool3d(input, size)
    raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the "
                              f"modes: nearest | linear | bilinear | bicubic | trilinear | area (got {mode})")  # fmt: skip


def upsample(input: Tensor, size: Optional[BroadcastingList1[int]] = None, scale_factor: Optional[BroadcastingList1[float]] = None,
             mode: str = "nearest", align_corners: Optional[bool] = None) -> Tensor:  # fmt: skip
    return F.interpolate(input, size, scale_factor, mode, align_corners)


def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: Optional[bool] = None) -> Tensor:  # fmt: skip
    kind = 0 if mode == "bilinear" else (1 if mode == "nearest" else 2)
    edge = 0 if padding_mode == "zeros" else (1 if padding_mode == "border" else 2)
    return torch.ops.aten.grid_sampler(input, grid, kind, edge, align_corners is not None and align_corners)


def affine_grid(theta: Tensor, size: List[int], align_corners: Optional[bool] = None) -> Tensor:
    return torch.ops.aten.affine_grid_generator(theta, size, align_corners is not None and align_corners)


def max_pool1d(input: Tensor, kernel_size: BroadcastingList1[int], stride: Optional[BroadcastingList1[int]] = None, padding: BroadcastingList1[int] = [0],
               dilation: BroadcastingList1[int] = [1], ceil_mode: bool = False, return_indices: bool = False) -> Tensor:  # fmt: skip
    steps = annotate(List[int], []) if stride is None else stride
    return torch.max_pool1d(input, kernel_size, steps, padding, dilation, ceil_mode)


def max_pool2d(input: Tensor, kernel_size: BroadcastingList2[int], stride: Optional[BroadcastingList2[int]] = None, padding: BroadcastingList2[int] = [0, 0],
               dilation: BroadcastingList2[int] = [1, 1], ceil_mode: bool = False, return_indices: bool = False) -> Tensor:  # fmt: skip
    steps = annotate(List[int], []) if stride is None else stride
    return torch.max_pool2d(input, kernel_size, steps, padding, dilation, ceil_mode)


def max_pool3d(input: Tensor, kernel_size: BroadcastingList3[int], stride: Optional[BroadcastingList3[int]] = None,
               padding: BroadcastingList3[int] = [0, 0, 0], dilation: BroadcastingList3[int] = [1, 1, 1], ceil_mode: bool = False,
               return_indices: bool = False) -> Tensor:  # fmt: skip
    steps = annotate(List[int], []) if stride is None else stride
    return torch.max_pool3d(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool1d(input: Tensor, output_size: BroadcastingList1[int], return_indices: bool = False) -> Tensor:
    return torch.adaptive_max_pool1d(input, output_size)[0]


def adaptive_max_pool2d(input: Tensor, output_size: BroadcastingList2[int], return_indices: bool = False) -> Tensor:
    return torch.ops.aten.adaptive_max_pool2d(input, output_size)[0]


def adaptive_max_pool3d(input: Tensor, output_size: BroadcastingList3[int], return_indices: bool = False) -> Tensor:
    return torch.ops.aten.adaptive_max_pool3d(input, output_size)[0]


def max_pool1d_with_indices(input: Tensor, kernel_size: BroadcastingList1[int], stride: Optional[BroadcastingList1[int]] = None,
                            padding: BroadcastingList1[int] = [0], dilation: BroadcastingList1[int] = [1],
                            ceil_mode: bool = False) -> Tuple[Tensor, Tensor]:  # fmt: skip
    steps = annotate(List[int], []) if stride is None else stride
    return torch.ops.aten.max_pool1d_with_indices(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: BroadcastingList1[int]) -> Tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool1d(input, output_size)


def max_pool2d_with_indices(input: Tensor, kernel_size: BroadcastingList2[int], stride: Optional[BroadcastingList2[int]] = None,
                            padding: BroadcastingList2[int] = [0, 0], dilation: BroadcastingList2[int] = [1, 1],
                            ceil_mode: bool = False) -> Tuple[Tensor, Tensor]:  # fmt: skip
    steps = annotate(List[int], []) if stride is None else stride
    return torch.ops.aten.max_pool2d_with_indices(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: BroadcastingList2[int]) -> Tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool2d(input, output_size)


def max_pool3d_with_indices(input: Tensor, kernel_size: BroadcastingList3[int], stride: Optional[BroadcastingList3[int]] = None,
                            padding: BroadcastingList3[int] = [0, 0, 0], dilation: BroadcastingList3[int] = [1, 1, 1],
                            ceil_mode: bool = False) -> Tuple[Tensor, Tensor]:  # fmt: skip
    steps = annotate(List[int], []) if stride is None else stride
    return torch.ops.aten.max_pool3d_with_indices(input, kernel_size, steps, padding, dilation, ceil_mode)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: BroadcastingList3[int]) -> Tuple[Tensor, Tensor]:
    return torch.ops.aten.adaptive_max_pool3d(input, output_size)


def unfold(input: Tensor, kernel_size: BroadcastingList2[int], dilation: BroadcastingList2[int] = [1, 1], padding: BroadcastingList2[int] = [0, 0],
           stride: BroadcastingList2[int] = [1, 1]) -> Tensor:  # fmt: skip
    return torch.ops.aten.im2col(input, kernel_size, dilation, padding, stride)


def fold(input: Tensor, output_size: BroadcastingList2[int], kernel_size: BroadcastingList2[int], dilation: BroadcastingList2[int] = [1, 1],
         padding: BroadcastingList2[int] = [0, 0], stride: BroadcastingList2[int] = [1, 1]) -> Tensor:  # fmt: skip
    return torch.ops.aten.col2im(input, output_size, kernel_size, dilation, padding, stride)


def mse_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
             reduction: str = "mean", weight: Optional[Tensor] = None) -> Tensor:  # fmt: skip
    return torch.ops.aten.mse_loss(input, target, _reduced(reduction))


def l1_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
            reduction: str = "mean", weight: Optional[Tensor] = None) -> Tensor:  # fmt: skip
    return torch.ops.aten.l1_loss(input, target, _reduced(reduction))


def smooth_l1_loss(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                   reduction: str = "mean", beta: float = 1.0) -> Tensor:  # fmt: skip
    return torch.ops.aten.smooth_l1_loss(input, target, _reduced(reduction), beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0,
               weight: Optional[Tensor] = None) -> Tensor:  # fmt: skip
    return torch.ops.aten.huber_loss(input, target, _reduced(reduction), delta)


def nll_loss(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
             ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean") -> Tensor:  # fmt: skip
    return torch.ops.aten.nll_loss_nd(input, target, weight, _reduced(reduction), ignore_index)


def cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None, size_average: Optional[bool] = None,
                  ignore_index: int = -100, reduce: Optional[bool] = None, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:  # fmt: skip
    return torch.ops.aten.cross_entropy_loss(input, target, weight, _reduced(reduction), ignore_index, label_smoothing)


def binary_cross_entropy(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                         size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                         reduction: str = "mean") -> Tensor:  # fmt: skip
    return torch.ops.aten.binary_cross_entropy(input, target, weight, _reduced(reduction))


def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Optional[Tensor] = None,
                                     size_average: Optional[bool] = None, reduce: Optional[bool] = None,
                                     reduction: str = "mean", pos_weight: Optional[Tensor] = None) -> Tensor:  # fmt: skip
    return torch.ops.aten.binary_cross_entropy_with_logits(input, target, weight, pos_weight, _reduced(reduction))


def kl_div(input: Tensor, target: Tensor, size_average: Optional[bool] = None, reduce: Optional[bool] = None,
           reduction: str = "mean", log_target: bool = False) -> Tensor:  # fmt: skip
    if reduction == "batchmean":
        return torch.ops.aten.kl_div(input, target, 2, log_target=log_target) / input.size(0)
    return torch.ops.aten.kl_div(input, target, _reduced(reduction), log_target=log_target)


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: Optional[int] = None) -> Tensor:  # fmt: skip
    if return_inverse or return_counts:
        raise RuntimeError("unique with return_inverse or return_counts is not compiled: its result has another type")
    if dim is None:
        return torch.ops.aten._unique2(input, sorted, False, False)[0]
    return torch.ops.aten.unique_dim(input, dim, sorted, False, False)[0]


FUNCTIONS: dict[str, Any] = {
    name: value for name, value in list(vars().items())
    if isinstance(value, types.FunctionType) and value.__module__ == __name__ and name[0] != "_"
}  # fmt: skip


def replaced(function: Any) -> Any:
    """The function that is compiled in place of one of `nn.functional`; None if its own is."""
    if not _replaced:
        _replaced.update((id(getattr(F, name, None) or getattr(torch, name)), value) for name, value in FUNCTIONS.items())
    return _replaced.get(id(function))


_replaced: dict[int, Any] = {}


# -- modules -----------------------------------------------------------------------------------------------
# A function's name is `Class__method`; it serves the classes that are based on it where they have no method of the
# user's.


def _Conv1d__conv_forward(self, input: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    if self.padding_mode != "zeros":
        padded = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.conv1d(padded, weight, bias, self.stride, [0], self.dilation, self.groups)
    return torch.conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


def _Conv2d__conv_forward(self, input: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    if self.padding_mode != "zeros":
        padded = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.conv2d(padded, weight, bias, self.stride, [0, 0], self.dilation, self.groups)
    return torch.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


def _Conv3d__conv_forward(self, input: Tensor, weight: Tensor, bias: Optional[Tensor]) -> Tensor:
    if self.padding_mode != "zeros":
        padded = F.pad(input, self._reversed_padding_repeated_twice, self.padding_mode)
        return torch.conv3d(padded, weight, bias, self.stride, [0, 0, 0], self.dilation, self.groups)
    return torch.conv3d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)


def _ConvTranspose1d_forward(self, input: Tensor, output_size: Optional[List[int]] = None) -> Tensor:
    if output_size is not None:
        raise RuntimeError("output_size of a transposed convolution is not compiled")
    return torch.conv_transpose1d(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )


def _ConvTranspose2d_forward(self, input: Tensor, output_size: Optional[List[int]] = None) -> Tensor:
    if output_size is not None:
        raise RuntimeError("output_size of a transposed convolution is not compiled")
    return torch.conv_transpose2d(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )


def _ConvTranspose3d_forward(self, input: Tensor, output_size: Optional[List[int]] = None) -> Tensor:
    if output_size is not None:
        raise RuntimeError("output_size of a transposed convolution is not compiled")
    return torch.conv_transpose3d(
        input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups, self.dilation
    )


def _BatchNorm_forward(self, input: Tensor) -> Tensor:
    self._check_input_dim(input)
    if self.momentum is None:
        factor = 0.0
    else:
        factor = self.momentum
    if self.training and self.track_running_stats:
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                factor = 1.0 / float(self.num_batches_tracked)
    if self.training:
        bn_training = True
    else:
        bn_training = (self.running_mean is None) and (self.running_var is None)
    return F.batch_norm(
        input, self.running_mean if not self.training or self.track_running_stats else None,
        self.running_var if not self.training or self.track_running_stats else None, self.weight, self.bias, bn_training,
        factor, self.eps,
    )  # fmt: skip


def _BatchNorm1d__check_input_dim(self, input: Tensor) -> None:
    if input.dim() != 2 and input.dim() != 3:
        raise ValueError(f"expected 2D or 3D input (got {input.dim()}D input)")


def _BatchNorm2d__check_input_dim(self, input: Tensor) -> None:
    if input.dim() != 4:
        raise ValueError(f"expected 4D input (got {input.dim()}D input)")


def _BatchNorm3d__check_input_dim(self, input: Tensor) -> None:
    if input.dim() != 5:
        raise ValueError(f"expected 5D input (got {input.dim()}D input)")


def _InstanceNorm_forward(self, input: Tensor) -> Tensor:
    return F.instance_norm(
        input, self.running_mean, self.running_var, self.weight, self.bias,
        self.training or not self.track_running_stats, self.momentum if self.momentum is not None else 0.0, self.eps,
    )  # fmt: skip


def _Sequential_forward(self, input):
    for module in self:
        input = module(input)
    return input


def _Identity_forward(self, input: Tensor) -> Tensor:
    return input


def _Softmax_forward(self, input: Tensor) -> Tensor:
    return F.softmax(input, self.dim, _stacklevel=5)


def _Softmin_forward(self, input: Tensor) -> Tensor:
    return F.softmin(input, self.dim, _stacklevel=5)


def _LogSoftmax_forward(self, input: Tensor) -> Tensor:
    return F.log_softmax(input, self.dim, _stacklevel=5)


def _Linear_forward(self, input: Tensor) -> Tensor:
    return F.linear(input, self.weight, self.bias)


def _Embedding_forward(self, input: Tensor) -> Tensor:
    return F.embedding(
        input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
    )


def _Flatten_forward(self, input: Tensor) -> Tensor:
    return input.flatten(self.start_dim, self.end_dim)


def _Upsample_forward(self, input: Tensor) -> Tensor:
    return F.interpolate(
        input, self.size, self.scale_factor, self.mode, self.align_corners, self.recompute_scale_factor
    )


def _GroupNorm_forward(self, input: Tensor) -> Tensor:
    return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


def _LayerNorm_forward(self, input: Tensor) -> Tensor:
    return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


def _LSTM_forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None
                  ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:  # fmt: skip
    batched = input.dim() == 3
    x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
    if hx is None:
        n = x.size(0) if self.batch_first else x.size(1)
        layers = self.num_layers * (2 if self.bidirectional else 1)
        out = self.proj_size if self.proj_size > 0 else self.hidden_size
        h = torch.zeros([layers, n, out], dtype=x.dtype, device=x.device)
        c = torch.zeros([layers, n, self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h, c = hx
        if not batched:
            h, c = h.unsqueeze(1), c.unsqueeze(1)
    y, h1, c1 = torch.ops.aten.lstm(
        x, [h, c], self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if not batched:
        return y.squeeze(0 if self.batch_first else 1), (h1.squeeze(1), c1.squeeze(1))
    return y, (h1, c1)


def _GRU_forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
    if hx is None:
        n = x.size(0) if self.batch_first else x.size(1)
        layers = self.num_layers * (2 if self.bidirectional else 1)
        h = torch.zeros([layers, n, self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h = hx if batched else hx.unsqueeze(1)
    y, h1 = torch.ops.aten.gru(
        x, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
        self.batch_first,
    )  # fmt: skip
    if not batched:
        return y.squeeze(0 if self.batch_first else 1), h1.squeeze(1)
    return y, h1


def _RNN_forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tuple[Tensor, Tensor]:
    batched = input.dim() == 3
    x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
    if hx is None:
        n = x.size(0) if self.batch_first else x.size(1)
        layers = self.num_layers * (2 if self.bidirectional else 1)
        h = torch.zeros([layers, n, self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h = hx if batched else hx.unsqueeze(1)
    if self.mode == "RNN_TANH":
        y, h1 = torch.ops.aten.rnn_tanh(
            x, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip
    else:
        y, h1 = torch.ops.aten.rnn_relu(
            x, h, self._flat_weights, self.bias, self.num_layers, self.dropout, self.training, self.bidirectional,
            self.batch_first,
        )  # fmt: skip
    if not batched:
        return y.squeeze(0 if self.batch_first else 1), h1.squeeze(1)
    return y, h1


def _LSTMCell_forward(self, input: Tensor, hx: Optional[Tuple[Tensor, Tensor]] = None) -> Tuple[Tensor, Tensor]:
    batched = input.dim() == 2
    x = input if batched else input.unsqueeze(0)
    if hx is None:
        zeros = torch.zeros([x.size(0), self.hidden_size], dtype=x.dtype, device=x.device)
        h, c = zeros, zeros
    else:
        h, c = hx
        if not batched:
            h, c = h.unsqueeze(0), c.unsqueeze(0)
    h1, c1 = torch.ops.aten.lstm_cell(x, [h, c], self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    if not batched:
        return h1.squeeze(0), c1.squeeze(0)
    return h1, c1


def _GRUCell_forward(self, input: Tensor, hx: Optional[Tensor] = None) -> Tensor:
    batched = input.dim() == 2
    x = input if batched else input.unsqueeze(0)
    if hx is None:
        h = torch.zeros([x.size(0), self.hidden_size], dtype=x.dtype, device=x.device)
    else:
        h = hx if batched else hx.unsqueeze(0)
    y = torch.ops.aten.gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
    return y if batched else y.squeeze(0)


def _MultiheadAttention_forward(
    self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Optional[Tensor] = None,
    need_weights: bool = True, attn_mask: Optional[Tensor] = None, average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:  # fmt: skip
    batched = query.dim() == 3
    if not batched:
        query, key, value = query.unsqueeze(0), key.unsqueeze(0), value.unsqueeze(0)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    elif not self.batch_first:
        query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
    n, length, width = query.size(0), query.size(1), query.size(2)
    heads = self.num_heads
    each = width // heads
    bias = self.in_proj_bias
    bq, bk, bv = annotate(Optional[Tensor], None), annotate(Optional[Tensor], None), annotate(Optional[Tensor], None)
    if bias is not None:
        bq, bk, bv = bias[:width], bias[width : 2 * width], bias[2 * width :]
    if self._qkv_same_embed_dim:
        weight = self.in_proj_weight
        wq, wk, wv = weight[:width], weight[width : 2 * width], weight[2 * width :]
    else:
        wq, wk, wv = self.q_proj_weight, self.k_proj_weight, self.v_proj_weight
    q, k, v = F.linear(query, wq, bq), F.linear(key, wk, bk), F.linear(value, wv, bv)
    if self.bias_k is not None and self.bias_v is not None:
        k = torch.cat([k, self.bias_k.repeat([n, 1, 1])], dim=1)
        v = torch.cat([v, self.bias_v.repeat([n, 1, 1])], dim=1)
        if attn_mask is not None:
            attn_mask = F.pad(attn_mask, [0, 1])
        if key_padding_mask is not None:
            key_padding_mask = F.pad(key_padding_mask, [0, 1])
    if self.add_zero_attn:
        k = torch.cat([k, torch.zeros([n, 1, width], dtype=k.dtype, device=k.device)], dim=1)
        v = torch.cat([v, torch.zeros([n, 1, width], dtype=v.dtype, device=v.device)], dim=1)
        if attn_mask is not None:
            attn_mask = F.pad(attn_mask, [0, 1])
        if key_padding_mask is not None:
            key_padding_mask = F.pad(key_padding_mask, [0, 1])
    q = q.reshape([n, length, heads, each]).transpose(1, 2)
    k = k.reshape([n, -1, heads, each]).transpose(1, 2)
    v = v.reshape([n, -1, heads, each]).transpose(1, 2)
    scores = torch.matmul(q * (float(each) ** -0.5), k.transpose(-2, -1))
    if attn_mask is not None:
        mask = attn_mask
        if mask.dim() == 3:
            mask = mask.reshape([n, heads, mask.size(1), mask.size(2)])
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(mask, float("-inf"))
        else:
            scores = scores + mask
    if key_padding_mask is not None:
        hidden = key_padding_mask.unsqueeze(1).unsqueeze(1)
        if hidden.dtype == torch.bool:
            scores = scores.masked_fill(hidden, float("-inf"))
        else:
            scores = scores + hidden
    weights = F.softmax(scores, -1)
    out = torch.matmul(F.dropout(weights, self.dropout, self.training), v)
    out = out.transpose(1, 2).reshape([n, length, width])
    out = F.linear(out, self.out_proj.weight, self.out_proj.bias)
    told = annotate(Optional[Tensor], None)
    if need_weights:
        told = weights.mean(1) if average_attn_weights else weights
    if not batched:
        return out.squeeze(0), None if told is None else told.squeeze(0)
    return out if self.batch_first else out.transpose(0, 1), told


def _TransformerEncoderLayer_forward(self, src: Tensor, src_mask: Optional[Tensor] = None,
                                     src_key_padding_mask: Optional[Tensor] = None,
                                     is_causal: bool = False) -> Tensor:  # fmt: skip
    x = src
    y = self.norm1(x) if self.norm_first else x
    y = self.self_attn(y, y, y, attn_mask=src_mask, key_padding_mask=src_key_padding_mask, need_weights=False)[0]
    x = x + self.dropout1(y)
    if not self.norm_first:
        x = self.norm1(x)
    y = self.norm2(x) if self.norm_first else x
    inner = self.linear1(y)
    inner = self.activation(inner)
    x = x + self.dropout2(self.linear2(self.dropout(inner)))
    return x if self.norm_first else self.norm2(x)


def _TransformerEncoder_forward(self, src: Tensor, mask: Optional[Tensor] = None,
                                src_key_padding_mask: Optional[Tensor] = None,
                                is_causal: Optional[bool] = None) -> Tensor:  # fmt: skip
    output = src
    for layer in self.layers:
        output = layer(output, src_mask=mask, src_key_padding_mask=src_key_padding_mask)
    if self.norm is not None:
        output = self.norm(output)
    return output


HIDDEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Conv1d", "Conv2d", "Conv3d"), ("_reversed_padding_repeated_twice",)),
    "MultiheadAttention": ("_qkv_same_embed_dim", "num_heads", "dropout", "batch_first", "add_zero_attn"),
}  # fmt: skip


class no_grad:
    def __init__(self) -> None:
        self.prev = torch.is_grad_enabled()

    def __enter__(self) -> None:
        self.prev = torch.is_grad_enabled()
        torch.ops.aten.set_grad_enabled(False)

    def __exit__(self, exc_type: Any, exc_value: Any, traceback: Any) -> None:
        torch.ops.aten.set_grad_enabled(self.prev)


CLASSES: dict[Any, type] = {torch.no_grad: no_grad}
PATHS = {"no_grad": "__torch__.torch.autograd.grad_mode.no_grad"}
_METHODS = {name: value for name, value in list(vars().items()) if name[0] == "_" and isinstance(value, types.FunctionType)}


def method(cls: type, name: str, exact: bool = False) -> Any:
    """The method that is compiled in place of one of the engine's modules; None if its own is."""
    for base in cls.__mro__:
        if base.__module__.startswith("engine.nn."):
            found = _METHODS.get(f"_{base.__name__.removeprefix('_')}_{name}")
            if found is not None:
                return found
        if name in vars(base) or exact:
            return None
    return None
