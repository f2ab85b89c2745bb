"""Filters, colours, geometry, losses and features of kornia."""

import kornia
import torch
from recorded import check, draw

image = draw("image", 2, 3, 24, 32)
for name, value in {
    "gaussian": kornia.filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5)),
    "sobel": kornia.filters.sobel(image),
    "median": kornia.filters.median_blur(image, (3, 3)),
    "canny": kornia.filters.canny(image)[0],
    "hsv": kornia.color.rgb_to_hsv(image),
    "lab": kornia.color.rgb_to_lab(image),
    "grey": kornia.color.rgb_to_grayscale(image),
    "rotate": kornia.geometry.rotate(image, torch.tensor([30.0, -15.0])),
    "warp": kornia.geometry.warp_perspective(
        image, torch.tensor([[1.1, 0.1, 2], [0, 0.9, 1], [0, 0.001, 1]]).expand(2, 3, 3), (20, 28)
    ),
    "ssim": kornia.metrics.ssim(image, image.flip(0), 5),
    "pyramid": kornia.geometry.pyrdown(image),
    "harris": kornia.feature.harris_response(kornia.color.rgb_to_grayscale(image)),
    "equalize": kornia.enhance.equalize(image),
    "erosion": kornia.morphology.erosion(image, torch.ones(3, 3)),
}.items():
    check(name, value, 1e-3)
turn = kornia.geometry.conversions.axis_angle_to_rotation_matrix(torch.tensor([[0.1, 0.2, 0.3]]))
assert torch.allclose(turn @ turn.mT, torch.eye(3), atol=1e-6)
moving = draw("moving", 1, 1, 16, 16).requires_grad_()
kornia.losses.ssim_loss(moving, image[:1, :1, :16, :16], 5).backward()
check("ssim gradient", moving.grad, 1e-3)
flip = kornia.augmentation.RandomHorizontalFlip(p=1.0)
assert torch.equal(flip(image), image.flip(-1))
