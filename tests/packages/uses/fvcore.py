"""Losses, weight initialisation, precise batch norm, configurations and checkpoints of fvcore."""

import tempfile

import torch
from fvcore.common.checkpoint import Checkpointer
from fvcore.common.config import CfgNode
from fvcore.common.param_scheduler import CosineParamScheduler
from fvcore.nn import c2_msra_fill, giou_loss, parameter_count, sigmoid_focal_loss, smooth_l1_loss, update_bn_stats
from recorded import check, draw, fill

scores, target = (draw("scores", 5, 3) * 4 - 2).requires_grad_(), (draw("target", 5, 3) > 0.5).float()
for name, loss in {
    "focal": sigmoid_focal_loss(scores, target, reduction="mean"),
    "smooth": smooth_l1_loss(scores, target, 0.5, reduction="mean"),
}.items():
    check(name, [loss, *torch.autograd.grad(loss, scores)])
boxes = draw("boxes", 4, 4)
boxes[:, 2:] += boxes[:, :2]
check("giou", giou_loss(boxes, boxes.flip(0)))
convolution = torch.nn.Conv2d(3, 8, 3)
c2_msra_fill(convolution)
assert not convolution.bias.any() and abs(float(convolution.weight.std()) - (2 / (9 * 8)) ** 0.5) < 0.05
assert CosineParamScheduler(1.0, 0.0)(0.5) == 0.5
node = CfgNode({"A": 1, "B": CfgNode({"C": "x"})})
node.merge_from_list(["B.C", "y"])
assert node.B.C == "y" and node.clone() == node
model = fill(torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))).train()
assert parameter_count(model)[""] == 3 * 4 + 4 + 8
update_bn_stats(model, [draw(str(i), 2, 3, 5, 5) for i in range(4)], 4)
check("statistics", [model[1].running_mean, model[1].running_var])
with tempfile.TemporaryDirectory() as folder:
    Checkpointer(model, folder).save("here", step=3)
    other = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4))
    assert Checkpointer(other, folder).load(f"{folder}/here.pth")["step"] == 3
    assert torch.equal(other[0].weight, model[0].weight)
