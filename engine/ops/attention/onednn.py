"""Attention with oneDNN's products and softmax, and generated code in front of them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.cpu.fast import fast
from engine.backends.onednn import _abi, arrays
from engine.backends.onednn.primitives import usable
from engine.dispatch import kernel
from engine.dispatch.choosing import worth_loading
from engine.ops import attention as of_attention
from engine.ops.attention import lain


def _scaled(scale):
    return (("eltwise", _abi.LINEAR, float(scale), 0.0),)


@kernel(of_attention.attention, "onednn")
def _attention(xp, query, key, value, mask=None, noise=None, scale=1.0):
    if not usable(query, key, value, mask, noise):
        return NotImplemented
    if mask is not None and (mask == -math.inf).all(axis=-1).any():
        return NotImplemented  # rows with nothing to see
    weights = empty((*query.shape[:-1], key.shape[-2]), np.float32)
    if not arrays.matmul(query, key.swapaxes(-2, -1), weights, None, _scaled(scale)):
        return NotImplemented
    if mask is not None:
        weights += mask
    if not arrays.softmax(weights, weights, weights.ndim - 1, False):
        return NotImplemented
    output = lain(fast, query, (*query.shape[:-1], value.shape[-1]))
    seen = weights if noise is None else np.multiply(weights, noise, out=_like(weights))
    if not arrays.matmul(seen, value, output):
        return NotImplemented
    return output, weights


@kernel(of_attention.attention_inference, "onednn")
def _attention_inference(xp, query, key, value, mask=None, scale=1.0):
    def plain():
        found = _attention(xp, query, key, value, mask, None, scale)
        return found if found is NotImplemented else found[0]

    in_front = _generated() if worth_loading(query.size) else None
    return plain() if in_front is None else in_front.attended(query, key, value, mask, scale, plain)


@functools.cache
def _generated() -> Any:
    """The module of generated attention; None without the extra `jit`."""
    from engine.kernels import processor

    if not processor.available():
        return None
    from engine.ops.attention import generated

    return generated


def _like(array):
    return empty(array.shape, array.dtype)


@kernel(of_attention.attention_backward, "onednn")
def _attention_backward(xp, grad_output, query, key, value, weights, mask=None, noise=None, scale=1.0, mask_too=False):
    if mask_too or not usable(grad_output, query, key, value, weights, noise):
        return NotImplemented
    dropped = weights if noise is None else np.multiply(weights, noise, out=_like(weights))
    of_value = lain(fast, value, value.shape)
    of_scores = _like(weights)
    if not arrays.matmul(dropped.swapaxes(-2, -1), grad_output, of_value):
        return NotImplemented
    if not arrays.matmul(grad_output, value.swapaxes(-2, -1), of_scores):
        return NotImplemented
    if noise is not None:
        of_scores *= noise
    if not arrays.softmax_backward(of_scores, weights, of_scores, weights.ndim - 1, False):
        of_scores *= weights  # no kernel on this processor
        of_scores -= weights * of_scores.sum(axis=-1, keepdims=True)
    of_query, of_key = lain(fast, query, query.shape), lain(fast, key, key.shape)
    if not arrays.matmul(of_scores, key, of_query, None, _scaled(scale)):
        return NotImplemented
    if not arrays.matmul(of_scores.swapaxes(-2, -1), query, of_key, None, _scaled(scale)):
        return NotImplemented
    return of_query, of_key, of_value, np.zeros((0,), np.float32)
