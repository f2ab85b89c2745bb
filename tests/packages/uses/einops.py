"""rearrange, reduce, repeat, einsum, pack and the layers of einops."""

import torch
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from einops.layers.torch import EinMix, Rearrange
from recorded import check, draw, fill

x = draw("x", 2, 3, 4, 6).requires_grad_()
y = rearrange(x, "b c (h p) w -> b (h w) (p c)", p=2)
assert y.shape == (2, 12, 6) and torch.equal(rearrange(y, "b (h w) (p c) -> b c (h p) w", h=2, p=2, c=3), x)
assert torch.equal(reduce(x, "b c h w -> b c", "max"), x.amax((2, 3)))
assert torch.equal(repeat(x[0, 0, 0], "a -> b a", b=3), x[0, 0, 0].expand(3, 6))
assert torch.allclose(einsum(x, x, "b c h w, b d h w -> b c d"), torch.einsum("bchw,bdhw->bcd", x, x))
packed, shapes = pack([x[:, 0, 0], x[:, 0]], "b * c")
assert packed.shape == (2, 5, 6) and torch.equal(unpack(packed, shapes, "b * c")[1], x[:, 0])
assert Rearrange("b c h w -> b (c h w)")(x).shape == (2, 72)
check("mixed", fill(EinMix("b c h w -> b o h w", weight_shape="c o", c=3, o=5))(x))
reduce(x, "b c h w -> ", "sum").backward()
assert torch.equal(x.grad, torch.ones_like(x))
