"""The dropout family (arXiv:1207.0580, arXiv:1706.02515)."""

from __future__ import annotations

import math

from engine.autograd.graph import name_node
from engine.backends import xp_of
from engine.dispatch import composite, derivative, op, samples
from engine.ops.creation import empty, inside
from engine.ops.random import generator_of
from engine.ops.random.draw import kept
from engine.tensor import Tensor, raw_array, wrap


def _check(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _shape(input, feature):
    """input's shape, or one number for each sample and channel."""
    shape = tuple(input.shape)
    if not feature:
        return shape
    if len(shape) < 2:
        raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
    return (*shape[:2], *(1,) * (len(shape) - 2))


def noise_like(input, p, feature=False, shape=None):
    """Draw the factors of dropout: 1 / (1 - p) with probability 1 - p, else 0. input (*) -> (*), or `shape`."""
    if p > 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
    shape, where = shape or _shape(input, feature), input.device
    array = raw_array(input)
    if p == 1 or array.dtype.kind not in "fV":
        return empty(shape, dtype=input.dtype, device=where).bernoulli_(1 - p).div_(1 - p or 1)
    xp = xp_of(array)
    with inside(xp, where):
        return wrap(kept(xp, generator_of(None, None, where), shape, 1 - p, array.dtype))


def _dropped(input, p, train, feature=False, alpha=False, inplace=False):
    if p < 0.0 or p > 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        zeros = input.detach().new_zeros(input.shape)
        return input.mul_(zeros) if inplace else input * zeros
    if not alpha:
        noise = noise_like(input, p, feature)
        return input.mul_(noise) if inplace else input * noise
    noise = empty(_shape(input, feature), dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    saturation = 1.7580993408473766  # -scale * alpha of SELU
    a = 1.0 / math.sqrt((saturation * saturation * p + 1) * (1 - p))
    shift = (noise - 1).mul_(saturation * a).add_(saturation * a * p)
    noise.mul_(a)
    return input.mul_(noise).add_(shift) if inplace else input * noise + shift


@op(public=False, method=False, out=False, tensors=("noise",), node="AddBackward0", half=True, blocks="elements")
@derivative(input=lambda grad: grad, other=lambda grad, noise: grad * noise)
@samples(lambda t: [(t(3, 4), t(3, 4), t.constant(t(3, 4))), (t(), t(), t.constant(t()))])
def plus_noisy(xp, input, other, noise):
    """input + other * noise, all of one shape.  (*), (*), (*) -> (*)."""
    found = xp.multiply(other, noise)
    found += input
    return found


def plus_dropped(input, other, p):
    """input + dropout(other, p, True): one pass, and one node.  (*), (*) -> (*)."""
    alike = input.shape == other.shape and input.dtype is other.dtype and input.device == other.device
    if not alike or not 0 < p < 1 or not input.numel() or not input.dim():
        return input + dropout(other, p, True)
    return plus_noisy(input, other, noise_like(other, p))


@composite(draws=True, elementwise=True)
def dropout(input: Tensor, p: float, train: bool):
    """In training, elements zeroed with probability p, the rest divided by 1 - p.  input (*) -> (*)."""
    return _dropped(input, p, train)


@composite(elementwise=True)
def dropout_(input: Tensor, p: float, train: bool):
    """`dropout` in place.  input (*) -> (*)."""
    return _dropped(input, p, train, inplace=True)


@composite()
def feature_dropout(input: Tensor, p: float, train: bool):
    """`dropout` of whole channels.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True)


@composite()
def feature_dropout_(input: Tensor, p: float, train: bool):
    """`feature_dropout` in place.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True, inplace=True)


@composite(draws=True, elementwise=True)
def alpha_dropout(input: Tensor, p: float, train: bool):
    """Dropout to the value SELU saturates at, mean and variance kept.  input (*) -> (*)."""
    return _dropped(input, p, train, alpha=True)


@composite()
def alpha_dropout_(input: Tensor, p: float, train: bool):
    """`alpha_dropout` in place.  input (*) -> (*)."""
    return _dropped(input, p, train, alpha=True, inplace=True)


@composite(draws=True)
def feature_alpha_dropout(input: Tensor, p: float, train: bool):
    """`alpha_dropout` of whole channels.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True, alpha=True)


@composite()
def feature_alpha_dropout_(input: Tensor, p: float, train: bool):
    """`feature_alpha_dropout` in place.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True, alpha=True, inplace=True)


@composite(method=False, elementwise=True)
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`dropout` and its mask; train None counts as True.  input (*) -> (*), (*) bool."""
    if train is False or input.numel() == 0:
        return input.clone(), input.detach().new_ones(input.shape).bool()
    mask = empty(tuple(input.shape), dtype=input.dtype, device=input.device).bernoulli_(1 - p)
    scale = 0.0 if p == 1 else 1.0 / (1 - p)
    return name_node(input * (mask * scale), "NativeDropoutBackward0"), mask.bool()
