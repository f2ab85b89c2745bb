"""Weights as direction and length (arXiv:1602.07868)."""

from __future__ import annotations

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.dispatch import composite, samples
from engine.tensor import Tensor


@composite(method=False)
@samples(lambda t: [(t(3, 4), 2, 0), (t(3, 4, 2), 2, 2), (t(3, 4, 2), 2, 1), (t(3, 4), 2, -1)])
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0):
    """The norm over all dims but `dim`, -1 for all dims.  v (*) -> (1, ..., v.shape[dim], ..., 1), or ()."""
    if dim == -1:
        return name_node(v.norm(pow), "NormBackward0")
    sizes = [1] * v.dim()
    n = v.size(dim)
    sizes[dim] = n
    result = v.transpose(0, dim).reshape(n, -1).norm(pow, 1).reshape(sizes)
    if dim == v.dim() - 1:
        guard(result, v)
    return result if dim in (0, v.dim() - 1) else name_node(result, "TransposeBackward0")


@composite(method=False)
@samples(lambda t: [(t(3, 4), t(3, 1), 0), (t(3, 4), t(), -1)])
def _weight_norm(v: Tensor, g: Tensor, dim: int = 0):
    """v * (g / norm_except_dim(v)).  v (*), g (1, ..., v.shape[dim], ..., 1) -> (*)."""
    result = v * (g / norm_except_dim(v, 2, dim))
    fused = dim in (0, v.dim() - 1)  # the dims that torch has a kernel for
    return name_node(result, "WeightNormInterfaceBackward0") if fused else result
