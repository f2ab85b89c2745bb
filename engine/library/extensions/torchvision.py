"""torch.ops.torchvision: what torchvision's compiled extension `_C` defines."""

from __future__ import annotations

from typing import Any

from engine.library.operators import define_built_in as define
from engine.ops import deformable, detection

__all__: list[str] = []

_SIZES = "SymInt pooled_height, SymInt pooled_width"
_SHAPE = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_BILINEAR = f"Tensor input, Tensor rois, float spatial_scale, {_SIZES}"
_CONVOLUTION = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, SymInt stride_w, SymInt "
    "pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask"
)


def _cuda_version() -> int:
    """-1: built without CUDA."""
    return -1


def _quantized(name: str) -> Any:
    def refuse(*args: Any) -> Any:
        raise NotImplementedError(
            f"torch.ops.torchvision.{name} is not supported: boxes are not quantized; use the operator of float boxes"
        )

    return refuse


def _plain(function: Any) -> Any:
    """Several results as a plain tuple."""
    return lambda *args: tuple(function(*args))


for _schema, _function in {
    "_cuda_version() -> int": _cuda_version,
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": _quantized("qnms"),
    "qroi_align(Tensor input, Tensor rois, float input_scale, int input_zero_point, float rois_scale, "
    f"int rois_zero_point, float spatial_scale, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor": _quantized(
        "qroi_align"
    ),
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor": detection.nms,
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor": detection.box_iou_rotated,
    f"roi_align({_BILINEAR}, int sampling_ratio, bool aligned) -> Tensor": detection.roi_align,
    f"_roi_align_backward(Tensor grad, Tensor rois, float spatial_scale, {_SIZES}, {_SHAPE}, int sampling_ratio, "
    "bool aligned) -> Tensor": detection.roi_align_backward,
    f"roi_pool({_BILINEAR}) -> (Tensor, Tensor)": _plain(detection.roi_pool),
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, float spatial_scale, {_SIZES}, {_SHAPE}) -> Tensor": (
        detection.roi_pool_backward
    ),
    f"ps_roi_align({_BILINEAR}, int sampling_ratio) -> (Tensor, Tensor)": _plain(detection.ps_roi_align),
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, {_SIZES}, "
    f"int sampling_ratio, {_SHAPE}) -> Tensor": detection.ps_roi_align_backward,
    f"ps_roi_pool({_BILINEAR}) -> (Tensor, Tensor)": _plain(detection.ps_roi_pool),
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, float spatial_scale, {_SIZES}, {_SHAPE})"
    " -> Tensor": detection.ps_roi_pool_backward,
    f"deform_conv2d({_CONVOLUTION}) -> Tensor": deformable.deform_conv2d,
    f"_deform_conv2d_backward(Tensor grad, {_CONVOLUTION}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)": _plain(
        deformable.deform_conv2d_backward
    ),
}.items():
    define("torchvision", _schema, _function)
