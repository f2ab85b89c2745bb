"""EfficientNet-B0 forward, its features and a step back."""

from efficientnet_pytorch import EfficientNet
from recorded import check, draw, fill

model = fill(EfficientNet.from_name("efficientnet-b0", num_classes=7))
x = draw("x", 2, 3, 64, 64)
out = model(x)
check("b0", [out, model.extract_features(x)])
out.square().sum().backward()
check("gradient", model._conv_stem.weight.grad, 1e-3)
