"""Models of every kind of timm from its registry, features, layers, optimizers, data transforms."""

import timm
import torch
from recorded import check, draw, fill
from timm.data import create_transform, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3

assert len(timm.list_models()) > 1000 and "resnet18" in timm.list_models("resnet*")
with torch.no_grad():
    for name, size in {
        "resnet18": 64,
        "vit_tiny_patch16_224": 224,
        "convnext_atto": 64,
        "efficientnet_b0": 64,
        "mobilenetv3_small_050": 64,
        "swin_tiny_patch4_window7_224": 224,
        "mixer_s32_224": 224,
        "regnetx_002": 64,
        "ghostnet_050": 64,
        "poolformer_s12": 64,
        "edgenext_xx_small": 64,
        "levit_128s": 224,
        "repvgg_a0": 64,
        "nfnet_l0": 64,
    }.items():
        model = fill(timm.create_model(name, pretrained=False))
        check(name, model(draw(name, 1, 3, size, size)))
    features = fill(timm.create_model("resnet18", pretrained=False, features_only=True, out_indices=(1, 3)))
    assert features.feature_info.channels() == [64, 256]
    check("features", features(draw("features", 1, 3, 64, 64)))
    headless = fill(timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0))
    check("headless", headless(draw("features", 1, 3, 224, 224)))
    check("tokens", headless.forward_features(draw("features", 1, 3, 224, 224)))
    check(
        "intermediates", headless.forward_intermediates(draw("x", 1, 3, 224, 224), indices=2, intermediates_only=True)
    )

model = (
    fill(timm.create_model("resnet18", pretrained=False, num_classes=3)).double().train()
)  # single is ill-conditioned here
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
schedule, average = CosineLRScheduler(optimizer, t_initial=10), ModelEmaV3(model, decay=0.9)
x, y = draw("batch", 4, 3, 64, 64).double(), torch.tensor([0, 1, 2, 1])
losses = []
for step in range(4):
    loss = LabelSmoothingCrossEntropy(0.1)(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step(step)
    average.update(model)
    losses.append(float(loss.detach()))
check("losses", torch.tensor(losses))
config = resolve_data_config({}, model=model)
transform = create_transform(**config)
from PIL import Image  # noqa: E402

picture = Image.fromarray(draw("picture", 50, 60, 3, dtype="uint8").numpy())
check("transform", transform(picture))
