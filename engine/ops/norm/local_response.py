"""Local response normalization: each channel by its neighbours (Krizhevsky et al. 2012)."""

from __future__ import annotations

from engine.dispatch import composite, samples
from engine.ops.nn.padding import constant_pad_nd
from engine.ops.pooling import avg_pool2d, avg_pool3d


@composite(public=False, method=False)
@samples(lambda t: [(t(2, 5, 3), 3), (t(2, 3, 2, 2), 2, 0.1, 0.5, 2.0)])
def local_response_norm(input, size, alpha=1e-4, beta=0.75, k=1.0):
    """input / (k + alpha * mean of squares over `size` neighbouring channels) ** beta.  input (N, C, *) -> same."""
    dim = input.dim()
    if dim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality                          input (got {dim} dimensions)")
    if input.numel() == 0:
        return input
    div = input.mul(input)
    pads = (size // 2, (size - 1) // 2)
    if dim == 3:
        div = constant_pad_nd(div.unsqueeze(1), (0, 0, *pads))
        div = avg_pool2d(div, (size, 1), stride=1).squeeze(1)
    else:
        sizes = input.size()
        div = div.view(sizes[0], 1, sizes[1], sizes[2], -1)
        div = constant_pad_nd(div, (0, 0, 0, 0, *pads))
        div = avg_pool3d(div, (size, 1, 1), stride=1).squeeze(1)
        div = div.view(sizes)
    return input / div.mul(alpha).add(k).pow(beta)
