"""Models of pretrainedmodels, without their weights."""

import pretrainedmodels
import torch
from recorded import check, draw, fill

assert len(pretrainedmodels.model_names) > 40
with torch.no_grad():
    for name, size in {"resnet18": 64, "se_resnet50": 224, "xception": 96, "bninception": 224, "dpn68": 224}.items():
        model = fill(pretrainedmodels.__dict__[name](num_classes=1000, pretrained=None))
        check(name, model(draw(name, 1, 3, size, size)), 1e-3)
