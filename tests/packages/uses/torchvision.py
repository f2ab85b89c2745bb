"""Models, detection with its losses, operators, transforms 1 and 2, image files and folders of torchvision."""

import tempfile
import warnings
from pathlib import Path

import torch
import torchvision
from recorded import RECORD, check, draw, fill
from torchvision import datasets, io, models, ops, transforms, tv_tensors, utils
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as V

warnings.simplefilter("ignore", (DeprecationWarning, UserWarning))

with torch.no_grad():
    for name, size in {
        "resnet18": 64,
        "mobilenet_v3_small": 64,
        "efficientnet_b0": 64,
        "convnext_tiny": 64,
        "swin_t": 64,
        "vit_b_16": 224,
        "densenet121": 64,
        "regnet_y_400mf": 64,
        "shufflenet_v2_x0_5": 64,
    }.items():
        check(name, fill(getattr(models, name)(weights=None))(draw(name, 1, 3, size, size)))
    segmentation = models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)
    check("lraspp", fill(segmentation)(draw("lraspp", 1, 3, 64, 64)))
    check("r3d_18", fill(models.video.r3d_18(weights=None))(draw("video", 1, 3, 8, 32, 32)))
assert models.get_model("resnet18", weights=None).fc.out_features == 1000
assert models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"][0] == "tench"

# in double precision: batch norms and suppression make these ill-conditioned in single
images = [draw("first", 3, 120, 160).double(), draw("second", 3, 100, 140).double()]
targets = [{"boxes": torch.tensor([[10.0, 20, 80, 90]]).double(), "labels": torch.tensor([1])} for _ in images]
detectors = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": {"min_size": 96, "max_size": 128},
    "ssdlite320_mobilenet_v3_large": {},
    "retinanet_resnet50_fpn": {"min_size": 64, "max_size": 96},
}
for name, options in detectors.items():
    model = fill(getattr(models.detection, name)(weights=None, weights_backbone=None, **options)).double()
    if hasattr(model, "roi_heads"):
        model.roi_heads.score_thresh = 0.0
        for sampler in (model.rpn.fg_bg_sampler, model.roi_heads.fg_bg_sampler):  # every region: draws nothing
            sampler.batch_size_per_image, sampler.positive_fraction = 10**6, 1.0
    with torch.no_grad():
        found = model(images)
    check(f"{name}.scores", [f["scores"][:10] for f in found])
    check(f"{name}.boxes", [f["boxes"][:10] for f in found])
    model.train()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eval()
    losses = model(images, targets)
    check(f"{name}.losses", losses)
    sum(losses.values()).backward()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    check(f"{name}.gradients", [gradients[0], gradients[-1]])

boxes = draw("boxes", 300, 4) * 50
boxes[:, 2:] += boxes[:, :2]
scores, groups = draw("scores", 300), torch.arange(300) % 3
check("nms", [ops.nms(boxes, scores, 0.4), ops.batched_nms(boxes, scores, groups, 0.4)], 1e-6)
check("iou", [ops.box_iou(boxes, boxes), ops.generalized_box_iou(boxes, boxes)])
planes = draw("planes", 1, 18, 20, 24).requires_grad_()
rois = torch.cat([torch.zeros(40, 1), boxes[:40]], 1)
pooled = {
    "roi_align": ops.roi_align(planes, rois, (3, 3), 0.25, 2, True),
    "roi_align_old": ops.roi_align(planes, rois, (3, 3), 0.25),
    "roi_pool": ops.roi_pool(planes, rois, (3, 3), 0.25),
    "ps_roi_align": ops.ps_roi_align(planes, rois, (3, 3), 0.25, 2),
    "ps_roi_pool": ops.ps_roi_pool(planes, rois, (3, 3), 0.25),
}
for name, value in pooled.items():
    check(name, value)
    if name != "ps_roi_pool":  # torchvision's gradient of it disagrees with its value at the border
        check(f"{name}.grad", torch.autograd.grad(value.square().sum(), planes))
convolution = fill(ops.DeformConv2d(18, 6, 3, padding=1, groups=2))
offset, mask = draw("offset", 1, 36, 20, 24) * 4 - 2, draw("mask", 1, 18, 20, 24)
value = convolution(planes, offset, mask)
check("deform_conv2d", [value, *torch.autograd.grad(value.square().sum(), [planes, convolution.weight])])

picture = draw("picture", 3, 37, 53, dtype="uint8")
# up to 0.20 the processor decides whether bytes are resized as bytes or as floats that are rounded
exactly = 1e-6 if tuple(int(part) for part in torchvision.__version__.split(".")[:2]) > (0, 20) else 1e-2
for size in (16, (70, 21)):
    for how in (transforms.InterpolationMode.BILINEAR, transforms.InterpolationMode.BICUBIC):
        check(f"resize.{size}.{how.value}", V.resize(picture, size, how, antialias=True), exactly)
old = transforms.Compose(
    [
        transforms.ToPILImage(),
        transforms.Resize(40),
        transforms.CenterCrop(32),
        transforms.ToTensor(),
        transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ]
)
new = v2.Compose([v2.Resize(40), v2.CenterCrop(32), v2.ToDtype(torch.float32, scale=True), v2.Grayscale(3)])
check("compose", [old(picture), new(picture)], max(1e-4, exactly))
for name, value in {
    "rotate": V.rotate(picture, 30.0),
    "hue": V.adjust_hue(picture, 0.1),
    "blur": V.gaussian_blur(picture, [5, 3]),
    "perspective": V.perspective(picture, [[0, 0], [52, 0], [52, 36], [0, 36]], [[3, 2], [50, 1], [49, 33], [1, 35]]),
    "equalize": V.equalize(picture),
    "autocontrast": V.autocontrast(picture),
}.items():
    check(name, value, 1e-2)
marked = tv_tensors.BoundingBoxes(torch.tensor([[2, 3, 20, 30]]), format="XYXY", canvas_size=(37, 53))
flipped, moved = v2.RandomHorizontalFlip(1.0)(tv_tensors.Image(picture), marked)
assert isinstance(moved, tv_tensors.BoundingBoxes) and moved.tolist() == [[33, 3, 51, 30]]
assert isinstance(flipped, tv_tensors.Image) and torch.equal(flipped.flip(-1).as_subclass(torch.Tensor), picture)
for random in (v2.RandAugment(), v2.TrivialAugmentWide(), v2.ColorJitter(0.3, 0.3, 0.3), v2.RandomErasing(1.0)):
    assert random(picture).shape == picture.shape
check("grid", utils.make_grid(torch.stack([draw("cell", 3, 8, 8)] * 5), 3))

if not RECORD:  # the oracle's image extension does not load
    with tempfile.TemporaryDirectory() as folder:
        for i, kind in enumerate(("cat", "dog")):
            path = Path(folder) / kind / "1.png"
            path.parent.mkdir()
            io.write_png(picture // (i + 1), str(path))
        loaded = datasets.ImageFolder(folder, transform=v2.ToImage())
        assert loaded.classes == ["cat", "dog"] and len(loaded) == 2
        assert torch.equal(loaded[0][0].as_subclass(torch.Tensor), picture) and loaded[1][1] == 1
        assert torch.equal(io.read_image(str(path)), picture // 2)
        jpeg = io.encode_jpeg(draw("cell", 3, 8, 8, dtype="uint8").repeat_interleave(8, 1).repeat_interleave(8, 2), 95)
        assert io.decode_image(jpeg).shape == (3, 64, 64) and io.decode_jpeg(jpeg, io.ImageReadMode.GRAY).shape[0] == 1
        for bad in (lambda: io.read_image(f"{folder}/none.png"), lambda: io.decode_png(jpeg)):
            try:
                bad()
            except RuntimeError:
                continue
            raise AssertionError("a broken image was read")
    assert torchvision.extension._has_ops() and torch.ops.torchvision.nms.default._schema.name == "torchvision::nms"
