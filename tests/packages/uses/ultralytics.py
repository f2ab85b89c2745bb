"""A YOLO of ultralytics built from its description: forward, loss with gradient, boxes after suppression."""

import torch
from recorded import check, draw, fill
from ultralytics.nn.tasks import DetectionModel
from ultralytics.utils import IterableSimpleNamespace

try:
    from ultralytics.utils.nms import non_max_suppression
except ImportError:  # where it stood first
    from ultralytics.utils.ops import non_max_suppression

model = fill(DetectionModel("yolov8n.yaml", ch=3, nc=5, verbose=False))
with torch.no_grad():
    out = model(draw("image", 1, 3, 64, 64))
out = out[0] if isinstance(out, tuple) else out
check("yolov8n", out, 1e-3)
found = non_max_suppression(out, conf_thres=0.0, iou_thres=0.7, max_det=20)
assert len(found) == 1 and found[0].shape[1] == 6 and len(found[0]) <= 20
model.train()
model.args = IterableSimpleNamespace(box=7.5, cls=0.5, dfl=1.5, overlap_mask=True, mask_ratio=4, epochs=1)
batch = {
    "img": draw("image", 1, 3, 64, 64),
    "cls": torch.tensor([[1.0], [3.0]]),
    "batch_idx": torch.zeros(2),
    "bboxes": torch.tensor([[0.5, 0.5, 0.4, 0.4], [0.3, 0.4, 0.2, 0.3]]),
}
for module in model.modules():
    if isinstance(module, torch.nn.BatchNorm2d):
        module.eval()
loss, _ = model(batch)
loss.sum().backward()
gradient = model.model[0].conv.weight.grad
assert bool(gradient.isfinite().all()) and float(gradient.abs().sum()) > 0
