"""oneDNN's kernels of batch and layer norm."""

from __future__ import annotations

import functools
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu import empty
from engine.backends.cpu.exact import summed
from engine.backends.cpu.fast import fast
from engine.backends.onednn import _abi, arrays
from engine.backends.onednn.operands import alike, dense, like
from engine.backends.onednn.primitives import usable
from engine.dispatch import OPS, Op, kernel
from engine.ops import norm
from engine.ops.norm import _dot
from engine.ops.norm import groups as norm_groups


@functools.lru_cache(64)
def _constant(value: float, count: int) -> Any:
    made = np.full(count, value, "float32")
    made.flags.writeable = False
    return made


def _ones(vector: Any, count: int) -> Any:
    return _constant(1.0, count) if vector is None else np.ascontiguousarray(vector)


def _zeros(vector: Any, count: int) -> Any:
    return _constant(0.0, count) if vector is None else np.ascontiguousarray(vector)


def _norm_input(input: Any) -> bool:
    return usable(input) and 1 < input.ndim < 6


def _few_planes(input: Any) -> bool:
    """Return whether the op's own kernel takes this array whole, and is faster."""
    return input.size < Op.large and input.__class__ is np.ndarray and arrays.slow_planes(input)


@kernel(norm.batch_norm_train, "onednn")
def _batch_norm_train(xp, input, weight=None, bias=None, eps=1e-5):
    if _few_planes(input):
        return OPS["batch_norm_train"].kernel(np, input, weight, bias, eps)
    if not _norm_input(input) or not usable(weight, bias):
        return NotImplemented
    channels = input.shape[1]
    x = dense(input)
    made = like(x)
    mean, var = np.empty(channels, "float32"), np.empty(channels, "float32")
    if not arrays.batch_norm(x, made, mean, var, _ones(weight, channels), _zeros(bias, channels), eps, False):
        return NotImplemented
    return made, mean, 1 / np.sqrt(var + np.float32(eps)), var


def _batch_gradients(grad_output, input, mean, var, weight, eps, given):
    """The gradients of batch norm; `given`: mean and var are numbers from elsewhere and not those of the input."""
    channels = input.shape[1]
    x = dense(input)
    g = alike(grad_output, x)
    made = like(x)
    of_weight, of_bias = np.empty(channels, "float32"), np.empty(channels, "float32")
    if not arrays.batch_norm_backward(g, x, mean, var, _ones(weight, channels), made, of_weight, of_bias, eps, given):
        return NotImplemented
    return made, of_weight, of_bias


@kernel(norm.batch_norm_backward, "onednn")
def _batch_norm_backward(xp, grad_output, input, mean, rstd, weight=None, eps=1e-5):
    if _few_planes(input):
        return OPS["batch_norm_backward"].kernel(np, grad_output, input, mean, rstd, weight, eps)
    if not _norm_input(input) or not usable(grad_output, weight, mean, rstd):
        return NotImplemented
    return _batch_gradients(grad_output, input, mean, 1 / (rstd * rstd) - np.float32(eps), weight, eps, False)


@kernel(norm.batch_norm_eval_backward, "onednn")
def _batch_norm_eval_backward(xp, grad_output, input, mean, var, weight=None, eps=1e-5):
    if _few_planes(input):
        return OPS["batch_norm_eval_backward"].kernel(np, grad_output, input, mean, var, weight, eps)
    if not _norm_input(input) or not usable(grad_output, weight, mean, var):
        return NotImplemented
    m, v = np.ascontiguousarray(mean), np.ascontiguousarray(var)
    return _batch_gradients(grad_output, input, m, v, weight, eps, True)


@kernel(norm.batch_norm_eval, "onednn")
def _batch_norm_eval(xp, input, running_mean, running_var, weight=None, bias=None, eps=1e-5):
    if input.size <= (norm.FEW if input.ndim > 2 else norm.FEW_ROWS):
        return OPS["batch_norm_eval"].kernel(np, input, running_mean, running_var, weight, bias, eps)
    if not _norm_input(input) or not usable(running_mean, running_var, weight, bias):
        return NotImplemented
    channels = input.shape[1]
    x = dense(input)
    made = like(x)
    if x.ndim > 2 and x.flags.c_contiguous:  # its batch norm has no vector code for planes
        maps, scaled = x.reshape(*x.shape[:2], -1), made.reshape(*x.shape[:2], -1)
        by = norm.scale_and_shift(np, running_mean, running_var, weight, bias, eps)
        if arrays.by_channel(maps, *by, scaled):
            return made
    mean, var = np.ascontiguousarray(running_mean), np.ascontiguousarray(running_var)
    served = arrays.batch_norm(x, made, mean, var, _ones(weight, channels), _zeros(bias, channels), eps, True)
    return made if served else NotImplemented


# --- layer norm


def _normalized(input, normalized_shape, weight, bias, eps):
    """(result, mean, variance) of layer norm, each contiguous, or None."""
    normalized_shape = tuple(normalized_shape)
    norm.check_layer(input, normalized_shape, weight, bias)
    if not usable(input, weight, bias):
        return None
    width = prod(normalized_shape)
    made = empty(input.shape, input.dtype)
    mean, var = np.empty((2, input.size // width), "float32")
    scale, shift = _ones(weight, width), _zeros(bias, width)
    served = arrays.layer_norm(fast.ascontiguousarray(input), made, mean, var, scale, shift, eps)
    return (made, mean, var) if served else None


@kernel(norm.native_layer_norm, "onednn")
def _layer_norm(xp, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    found = _normalized(input, normalized_shape, weight, bias, eps)
    if found is None:
        return NotImplemented
    made, mean, var = found
    var += eps
    np.sqrt(var, out=var)
    n = len(normalized_shape)
    lead = (*input.shape[:-n], *(1,) * n)
    return made, mean.reshape(lead), np.reciprocal(var, out=var).reshape(lead)


@kernel(norm.layer_norm_inference, "onednn")
def _layer_norm_inference(xp, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    found = _normalized(input, normalized_shape, weight, bias, eps)
    return NotImplemented if found is None else found[0]


@kernel(norm.native_layer_norm_backward, "onednn")
def _layer_norm_backward(
    xp, grad_output, input, mean, rstd, weight=None, normalized_shape=(), eps=1e-5, parameters=True
):
    if not usable(grad_output, input, mean, rstd, weight):
        return NotImplemented
    shape = tuple(normalized_shape)
    width = prod(shape)
    x, g, m = (fast.ascontiguousarray(a) for a in (input, grad_output, mean))
    made = empty(input.shape, input.dtype)
    of_weight, of_bias = np.empty(shape, "float32"), np.empty(shape, "float32")
    scale = _ones(weight, width)
    var = 1 / (rstd * rstd) - np.float32(eps)
    if not arrays.layer_norm_backward(g, x, m, var, scale, made, of_weight, of_bias, eps):
        return NotImplemented
    return (made, of_weight, of_bias) if parameters else (made, of_weight.reshape(-1)[:0], of_bias.reshape(-1)[:0])


# --- group norm: layer norm of the groups, and a factor and summand by channel


@functools.lru_cache(16)
def _same(count: int) -> Any:
    """Ones and zeros: a scale and a shift that change nothing."""
    return np.ones(count, "float32"), np.zeros(count, "float32")


@kernel(norm_groups.normalize_groups, "onednn")
def _group_norm(xp, input, groups, weight=None, bias=None, eps=1e-5):
    if not usable(input, weight, bias):
        return NotImplemented
    count, channels = input.shape[:2]
    rows = fast.ascontiguousarray(input).reshape(count * groups, -1)
    made = empty(input.shape, input.dtype)
    mean, var = np.empty(len(rows), "float32"), np.empty(len(rows), "float32")
    out, maps = made.reshape(rows.shape), made.reshape(count, channels, -1)
    if not arrays.layer_norm(rows, out, mean, var, *_same(rows.shape[1]), eps):
        return NotImplemented
    if (weight is not None or bias is not None) and not arrays.by_channel(
        maps, _ones(weight, channels), _zeros(bias, channels), maps
    ):
        maps *= _ones(weight, channels)[:, None]
        maps += _zeros(bias, channels)[:, None]
    shape = (count, groups)
    return made, mean.reshape(shape), (1 / np.sqrt(var + np.float32(eps))).reshape(shape)


@kernel(norm_groups.native_group_norm_backward, "onednn")
def _group_norm_backward(xp, grad_output, input, mean, rstd, weight=None, groups=1, eps=1e-5):
    if not usable(grad_output, input, mean, rstd, weight):
        return NotImplemented
    count, channels = input.shape[:2]
    per, pairs = channels // groups, (count, groups, channels // groups)
    x = fast.ascontiguousarray(input).reshape(1, count * channels, -1)
    g = fast.ascontiguousarray(grad_output).reshape(x.shape)
    length = x.shape[2]
    sums = np.empty((count * channels, 1), "float32")
    if not arrays.sgemm(g[0], _same(length)[0].reshape(-1, 1), sums):
        return NotImplemented
    sums = sums.reshape(pairs)
    m, r = mean.reshape(count, groups, 1), rstd.reshape(count, groups, 1)
    products = (_dot(np, g, x).reshape(pairs) - sums * m) * r  # of the gradient and the normalized input
    w = np.ones(pairs[1:], "float32") if weight is None else weight.reshape(pairs[1:])
    # the gradient of the input is grad * factor + input * slope + level
    factor = r * w
    slope = -(r * r) * (products * w).sum(axis=2, keepdims=True) / np.float32(per * length)
    level = -r * (sums * w).sum(axis=2, keepdims=True) / np.float32(per * length) - slope * m
    factor, slope, level = (np.ascontiguousarray(np.broadcast_to(v, pairs)).reshape(-1) for v in (factor, slope, level))
    made = empty(input.shape, input.dtype)
    flat = made.reshape(x.shape)
    share = empty(x.shape, x.dtype)
    if arrays.by_channel(x, slope, level, flat) and arrays.by_channel(g, factor, _same(len(factor))[1], share):
        arrays.binary(flat, share, flat, _abi.BINARY_ADD)
    else:
        np.multiply(x, slope[:, None], out=flat)
        flat += level[:, None]
        flat += g * factor[:, None]
    of_weight, of_bias = (summed(v, 0).reshape(channels) for v in (products, sums))
    return made, of_weight, of_bias
