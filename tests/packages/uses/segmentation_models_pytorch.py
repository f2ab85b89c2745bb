"""Every architecture of segmentation-models-pytorch, its losses and metrics."""

import segmentation_models_pytorch as smp
import torch
from recorded import check, draw, fill

with torch.no_grad():
    for name in (
        "Unet",
        "UnetPlusPlus",
        "FPN",
        "PSPNet",
        "DeepLabV3Plus",
        "Linknet",
        "MAnet",
        "PAN",
        "UPerNet",
        "Segformer",
    ):
        model = fill(getattr(smp, name)("resnet18", encoder_weights=None, classes=2))
        check(name, model(draw(name, 1, 3, 128, 128)))
    model = fill(smp.create_model("unet", "timm-mobilenetv3_small_100", encoder_weights=None))
    check("timm", model(draw("timm", 1, 3, 64, 64)))
scores, target = draw("scores", 2, 1, 8, 8).requires_grad_(), (draw("target", 2, 1, 8, 8) > 0.5).long()
for loss in (smp.losses.DiceLoss("binary"), smp.losses.FocalLoss("binary"), smp.losses.LovaszLoss("binary")):
    value = loss(scores, target)
    check(type(loss).__name__, [value, *torch.autograd.grad(value, scores)], 1e-3)
counts = smp.metrics.get_stats(scores.detach(), target, mode="binary", threshold=0.5)
check("iou", smp.metrics.iou_score(*counts, reduction="micro"))
