"""The dropout family (arXiv:1207.0580, arXiv:1706.02515)."""

from __future__ import annotations

import math

from engine.dispatch import composite
from engine.ops.creation import empty


def _check(p):
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def _noise(input, p, feature):
    """Bernoulli(1 - p) of input's shape, or one number for each sample and channel."""
    shape = tuple(input.shape)
    if feature:
        if len(shape) < 2:
            raise RuntimeError("Feature dropout requires at least 2 dimensions in the input")
        shape = (*shape[:2], *(1,) * (len(shape) - 2))
    return empty(shape, dtype=input.dtype, device=input.device).bernoulli_(1 - p)


def _dropped(input, p, train, feature=False, alpha=False, inplace=False):
    if p < 0.0 or p > 1.0:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {p:g}")
    if p == 0 or not train or input.numel() == 0:
        return input
    if p == 1:
        zeros = input.detach().new_zeros(input.shape)
        return input.mul_(zeros) if inplace else input * zeros
    noise = _noise(input, p, feature)
    if not alpha:
        noise.div_(1 - p)
        return input.mul_(noise) if inplace else input * noise
    saturation = 1.7580993408473766  # -scale * alpha of SELU
    a = 1.0 / math.sqrt((saturation * saturation * p + 1) * (1 - p))
    shift = (noise - 1).mul_(saturation * a).add_(saturation * a * p)
    noise.mul_(a)
    return input.mul_(noise).add_(shift) if inplace else input * noise + shift


@composite()
def dropout(input, p, train):
    """In training, elements zeroed with probability p, the rest divided by 1 - p.  input (*) -> (*)."""
    return _dropped(input, p, train)


@composite()
def dropout_(input, p, train):
    """`dropout` in place.  input (*) -> (*)."""
    return _dropped(input, p, train, inplace=True)


@composite()
def feature_dropout(input, p, train):
    """`dropout` of whole channels.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True)


@composite()
def feature_dropout_(input, p, train):
    """`feature_dropout` in place.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True, inplace=True)


@composite()
def alpha_dropout(input, p, train):
    """Dropout to the value SELU saturates at, mean and variance kept.  input (*) -> (*)."""
    return _dropped(input, p, train, alpha=True)


@composite()
def alpha_dropout_(input, p, train):
    """`alpha_dropout` in place.  input (*) -> (*)."""
    return _dropped(input, p, train, alpha=True, inplace=True)


@composite()
def feature_alpha_dropout(input, p, train):
    """`alpha_dropout` of whole channels.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True, alpha=True)


@composite()
def feature_alpha_dropout_(input, p, train):
    """`feature_alpha_dropout` in place.  input (N, C, *) -> same."""
    return _dropped(input, p, train, feature=True, alpha=True, inplace=True)


@composite(method=False)
def native_dropout(input, p, train):
    """`dropout` and its mask.  input (*) -> (*), (*) bool."""
    if not train or input.numel() == 0:
        return input.clone(), input.detach().new_ones(input.shape).bool()
    mask = _noise(input, p, False)
    scale = 0.0 if p == 1 else 1.0 / (1 - p)
    return input * (mask * scale), mask.bool()
