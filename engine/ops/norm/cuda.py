"""Layer, group and batch norm.  Parameters of 16 bits are read as float32, statistics are float32 or float64."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from engine.dispatch import kernel
from engine.kernels import rows
from engine.ops import norm
from engine.ops.cuda import _rows
from engine.ops.cuda._launch import Unfit, contiguous_strides, strides_of
from engine.ops.cuda.elementwise import kernel_from
from engine.ops.norm import groups as norm_groups
from engine.ops.norm import rms
from engine.ops.reduction.cuda import known, serving


def _wide(array: Any) -> Any:
    return np.dtype("float32") if array.dtype.itemsize == 2 else array.dtype


def _fitting(input: Any, *others: Any) -> None:
    """Raise Unfit unless all are floats whose wide type is the input's."""
    known(input, *others)
    wide = _wide(input)
    if any(a is not None and (a.dtype.kind not in "fV" or _wide(a) != wide) for a in (input, *others)):
        raise Unfit("types")


# --- layer norm: rows are samples, places the normalized dims


def _layer(
    xp: Any, input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float, statistics: bool = True
) -> Any:
    """[normalized] with the statistics (*, 1, ...) in the input's dtype, if they are wanted."""
    shape = tuple(normalized_shape)
    given = [a for a in (weight, bias) if a is not None]
    key = "layer_norm", _rows.signature(input, weight, bias), shape, eps, statistics
    found = _rows.replay(xp, key, [input, *given])
    if found is None:
        found = _new_layer(xp, input, shape, weight, bias, eps, statistics, key)
    narrow = input.dtype
    return [f if f.dtype is narrow else f.astype(narrow, copy=False) for f in found]


def _new_layer(
    xp: Any, input: Any, shape: Any, weight: Any, bias: Any, eps: float, statistics: bool, key: Any
) -> list[Any]:
    norm.check_layer(input, shape, weight, bias)
    _fitting(input, weight, bias)
    n = len(shape)
    lead = input.shape[: input.ndim - n]
    wide = _wide(input)
    back = (*lead, *(1,) * n)
    makes = [(input.shape, input.dtype), *[(back, wide)] * (2 * statistics)]
    made = [xp.empty(*m) for m in makes]
    own = strides_of(input)
    given = [a for a in (weight, bias) if a is not None]
    zeros = (0,) * len(lead)
    strides = [(own[: len(lead)], own[len(lead) :])]
    strides += [(zeros, strides_of(a)) for a in given]
    strides += [(contiguous_strides(input.shape)[: len(lead)], contiguous_strides(shape))]
    strides += [(contiguous_strides(lead), (0,) * n)] * (2 * statistics)
    flags, numbers = (weight is not None, bias is not None, statistics), [(wide.name, eps)]
    ready = _rows.run(
        "layer_norm",
        lambda r: rows.normalized(r, *flags),
        [input, *given, *made],
        len(made),
        lead,
        shape,
        strides,
        numbers,
        flags,
    )
    _rows.keep(key, ready, makes, numbers)
    return made


@kernel(norm.native_layer_norm, "cuda", only_launches=True)
@serving
def _native_layer_norm(xp, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return tuple(_layer(xp, input, normalized_shape, weight, bias, eps))


@kernel(norm.layer_norm_inference, "cuda", only_launches=True)
@serving
def _layer_norm_inference(xp, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _layer(xp, input, normalized_shape, weight, bias, eps, statistics=False)[0]


@kernel(norm.native_layer_norm_backward, "cuda", only_launches=True)
@serving
def _layer_norm_backward(
    xp, grad_output, input, mean, rstd, weight=None, normalized_shape=(), eps=1e-5, parameters=True
):
    shape = tuple(normalized_shape)
    given = [] if weight is None else [weight]
    key = "layer_norm_backward", _rows.signature(grad_output, input, mean, rstd, weight), shape
    of_sums = "layer_norm_sums", key
    none = [] if parameters else [xp.empty((0,), input.dtype) for _ in range(2)]
    sums = none or _rows.replay(xp, of_sums, [grad_output, input, mean, rstd])
    if sums is not None:
        found = _rows.replay(xp, key, [grad_output, input, mean, rstd, *given])
        if found is not None:
            return found[0], *sums
    _fitting(input, grad_output, mean, rstd, weight)
    n = len(shape)
    lead = input.shape[: input.ndim - n]
    m = len(lead)
    made = xp.empty(input.shape, input.dtype)
    g, x = strides_of(grad_output), strides_of(input)
    by_row = [strides_of(a.reshape(lead)) for a in (mean, rstd)]
    strides = [(g[:m], g[m:]), (x[:m], x[m:]), (by_row[0], (0,) * n), (by_row[1], (0,) * n)]
    strides += [((0,) * m, strides_of(a)) for a in given]
    strides += [(contiguous_strides(input.shape)[:m], contiguous_strides(shape))]
    ready = _rows.run(
        "layer_norm_backward",
        lambda r: rows.normalized_backward(r, bool(given)),
        [grad_output, input, mean, rstd, *given, made],
        1,
        lead,
        shape,
        strides,
        key=bool(given),
    )
    narrow = weight.dtype if weight is not None else input.dtype
    spread = [xp.broadcast_to(a.reshape(*lead, *(1,) * n), input.shape) for a in (mean, rstd)]
    plain = mean.flags.c_contiguous and rstd.flags.c_contiguous  # else `reshape` copied
    replay_as = (of_sums, shape) if plain else None
    if not none:
        sums = _parameter_gradients(xp, grad_output, input, *spread, tuple(range(m)), narrow, replay_as)
    if plain:
        _rows.keep(key, ready, [(input.shape, input.dtype)])
    return made, *sums


def _parameter_gradients(
    xp: Any, grad: Any, input: Any, mean: Any, rstd: Any, axes: Any, dtype: Any, replay_as: Any = None
) -> Any:
    """Sums of grad * (input - mean) * rstd and of grad over axes."""
    wide = _wide(input)
    if not axes:
        raise Unfit("one row")

    def code(xp: Any, g: Any, x: Any, m: Any, r: Any) -> Any:
        g, x, m, r = (a.astype(wide, copy=False) for a in (g, x, m, r))
        return g * ((x - m) * r), g

    pair = lambda xp, count, first, second: (first, second)
    return _rows.reduce(
        xp,
        "parameter_gradients",
        ["sum", "sum"],
        code,
        pair,
        [grad, input, mean, rstd],
        axes,
        [dtype] * 2,
        key=wide,
        replay_as=replay_as,
    )


# --- the same by the root of the mean of squares: no mean, and a shift by none


def _by_sample(shape: Any, input: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(the other dims of an input, as many ones)."""
    return input.shape[: input.ndim - len(shape)], (1,) * len(shape)


@kernel(rms.rms_norm_train, "cuda", only_launches=True)
@serving
def _rms_norm(xp, input, normalized_shape, weight=None, eps=1e-5):
    shape = tuple(normalized_shape)
    _fitting(input, weight)
    lead, ones = _by_sample(shape, input)
    m, own, whole = len(lead), strides_of(input), contiguous_strides(input.shape)
    made, rstd = xp.empty(input.shape, input.dtype), xp.empty((*lead, *ones), input.dtype)
    given = [] if weight is None else [weight]
    strides = [(own[:m], own[m:]), *[((0,) * m, strides_of(a)) for a in given]]
    strides += [(whole[:m], whole[m:]), (contiguous_strides(lead), (0,) * len(shape))]
    _rows.run(
        "rms_norm",
        lambda r: rows.scaled_to_rms(r, bool(given)),
        [input, *given, made, rstd],
        2,
        lead,
        shape,
        strides,
        [(input.dtype.name, eps)],
        bool(given),
    )
    return made, rstd


@kernel(rms.rms_norm_backward, "cuda", only_launches=True)
@serving
def _rms_norm_backward(xp, grad_output, input, rstd, weight=None, normalized_shape=(), eps=1e-5):
    shape = tuple(normalized_shape)
    _fitting(input, grad_output, rstd, weight)
    lead, ones = _by_sample(shape, input)
    m, none = len(lead), (0,) * len(shape)
    made, given = xp.empty(input.shape, input.dtype), [] if weight is None else [weight]
    parts = [(s[:m], s[m:]) for s in map(strides_of, (grad_output, input))]
    parts += [(strides_of(rstd.reshape(lead)), none), *[((0,) * m, strides_of(a)) for a in given]]
    whole = contiguous_strides(input.shape)
    _rows.run(
        "rms_norm_backward",
        lambda r: rows.scaled_to_rms_backward(r, bool(given)),
        [grad_output, input, rstd, *given, made],
        1,
        lead,
        shape,
        [*parts, (whole[:m], whole[m:])],
        key=bool(given),
    )
    if weight is None:
        return made, xp.empty((0,), input.dtype)
    if not m:
        raise Unfit("one row")
    spread = xp.broadcast_to(rstd.reshape(*lead, *ones), input.shape)
    product = lambda xp, g, x, r: g * (x * r)
    (of_weight,) = _rows.reduce(
        xp,
        "rms_norm_weight",
        ["sum"],
        product,
        lambda xp, count, total: total,
        [grad_output, input, spread],
        tuple(range(m)),
        [input.dtype],
    )
    return made, of_weight


# --- group norm: rows are (sample, group), places (channel of the group, position)


def _groups(array: Any, groups: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """(row shape, place shape, row strides, place strides) of (N, C, *)."""
    n, c = array.shape[:2]
    own = strides_of(array)
    per = c // groups
    return (n, groups), (per, *array.shape[2:]), (own[0], own[1] * per), own[1:]


def _channel(vector: Any, per: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    (step,) = strides_of(vector)
    return (0, step * per), (step, *(0,) * rank)


@kernel(norm_groups.normalize_groups, "cuda", only_launches=True)
@serving
def _normalize_groups(xp, input, groups, weight=None, bias=None, eps=1e-5):
    _fitting(input, weight, bias)
    wide = _wide(input)
    row_shape, place_shape, r, p = _groups(input, groups)
    made = xp.empty(input.shape, input.dtype)
    mean, rstd = xp.empty(row_shape, wide), xp.empty(row_shape, wide)
    given = [a for a in (weight, bias) if a is not None]
    rank = input.ndim - 2
    strides = [(r, p), *[_channel(a, place_shape[0], rank) for a in given], _groups(made, groups)[2:]]
    strides += [(contiguous_strides(row_shape), (0,) * (rank + 1))] * 2
    flags = weight is not None, bias is not None
    _rows.run(
        "group_norm",
        lambda r: rows.normalized(r, *flags),
        [input, *given, made, mean, rstd],
        3,
        row_shape,
        place_shape,
        strides,
        [(wide.name, eps)],
        flags,
    )
    return made, mean, rstd


@kernel(norm_groups.native_group_norm_backward, "cuda", only_launches=True)
@serving
def _group_norm_backward(xp, grad_output, input, mean, rstd, weight=None, groups=1, eps=1e-5):
    _fitting(input, grad_output, mean, rstd, weight)
    row_shape, place_shape, *of_input = _groups(input, groups)
    made = xp.empty(input.shape, input.dtype)
    rank = input.ndim - 2
    given = [] if weight is None else [weight]
    strides = [_groups(grad_output, groups)[2:], tuple(of_input)]
    strides += [(strides_of(a), (0,) * (rank + 1)) for a in (mean, rstd)]
    strides += [_channel(a, place_shape[0], rank) for a in given]
    strides += [_groups(made, groups)[2:]]
    _rows.run(
        "group_norm_backward",
        lambda r: rows.normalized_backward(r, bool(given)),
        [grad_output, input, mean, rstd, *given, made],
        1,
        row_shape,
        place_shape,
        strides,
        key=bool(given),
    )
    narrow = input.dtype if weight is None else weight.dtype
    by_channel = (*row_shape, place_shape[0])
    spread = [
        xp.broadcast_to(xp.broadcast_to(a[:, :, None], by_channel).reshape(*input.shape[:2], *(1,) * rank), input.shape)
        for a in (mean, rstd)
    ]
    axes = (0, *range(2, input.ndim))
    of_weight, of_bias = _parameter_gradients(xp, grad_output, input, *spread, axes, narrow)
    return made, of_weight, of_bias


# --- batch norm: statistics of channels in parts, then one pass over the elements


def _per_channel(xp: Any, vector: Any, input: Any) -> Any:
    return vector.reshape(1, -1, *(1,) * (input.ndim - 2))


def _scaled(xp: Any, x: Any, mean: Any, rstd: Any, weight: Any = None, bias: Any = None) -> Any:
    narrow = x.dtype
    made = (x.astype(mean.dtype, copy=False) - mean) * rstd
    if weight is not None:
        made = made * weight.astype(mean.dtype, copy=False)
    if bias is not None:
        made = made + bias.astype(mean.dtype, copy=False)
    return made.astype(narrow, copy=False)


_apply = kernel_from("batch_norm_apply", _scaled)


def _normalize(xp: Any, input: Any, mean: Any, rstd: Any, weight: Any, bias: Any) -> Any:
    vectors = [None if v is None else _per_channel(xp, v, input) for v in (mean, rstd, weight, bias)]
    made = _apply(xp, input, *vectors)
    if made is NotImplemented:
        raise Unfit("batch norm")
    return made


def _reciprocal_root(xp: Any, var: Any, eps: Any) -> Any:
    return 1 / xp.sqrt(var + eps)


_root = kernel_from("reciprocal_root", _reciprocal_root)


def _rstd(xp: Any, var: Any, eps: float) -> Any:
    found = _root(xp, var, eps)
    return _reciprocal_root(xp, var, eps).astype(var.dtype, copy=False) if found is NotImplemented else found


def _by_channel(xp: Any, name: str, code: Any, arrays: Any, wide: Any) -> Any:
    """The mean over each channel of what `code` makes of arrays of one shape."""
    axes = (0, *range(2, arrays[0].ndim))
    key = name, _rows.signature(*arrays)
    found = _rows.replay(xp, key, arrays)
    if found is None:
        share = lambda xp, count, total: total / count.astype(total.dtype)
        replay_as = key, (arrays[0].shape[1],)
        found = _rows.reduce(xp, name, ["sum"], code, share, arrays, axes, [wide], key=wide, replay_as=replay_as)
    return found[0]


@kernel(norm.batch_norm_train, "cuda", only_launches=True)
@serving
def _batch_norm_train(xp, input, weight=None, bias=None, eps=1e-5):
    _fitting(input, weight, bias)
    wide = _wide(input)
    cast = lambda xp, x: x.astype(wide, copy=False)
    mean = _by_channel(xp, "channel_mean", cast, [input], wide)
    spread = xp.broadcast_to(_per_channel(xp, mean, input), input.shape)
    square = lambda xp, x, m: (x.astype(wide, copy=False) - m) * (x.astype(wide, copy=False) - m)
    var = _by_channel(xp, "channel_variance", square, [input, spread], wide)
    rstd = _rstd(xp, var, eps)
    return _normalize(xp, input, mean, rstd, weight, bias), mean, rstd, var


@kernel(norm.batch_norm_eval, "cuda", only_launches=True)
@serving
def _batch_norm_eval(xp, input, running_mean, running_var, weight=None, bias=None, eps=1e-5):
    _fitting(input, running_mean, running_var, weight, bias)
    wide = _wide(input)
    rstd = _rstd(xp, running_var.astype(wide, copy=False), eps)
    return _normalize(xp, input, running_mean.astype(wide, copy=False), rstd, weight, bias)


def _gradient(
    xp: Any, grad: Any, x: Any, mean: Any, rstd: Any, products: Any, sums: Any, size: Any, weight: Any = None
) -> Any:
    narrow, wide = x.dtype, mean.dtype
    g, x = grad.astype(wide, copy=False), x.astype(wide, copy=False)
    scale = rstd if weight is None else rstd * weight.astype(wide, copy=False)
    return (scale * (g - sums / size - (x - mean) * rstd * products / size)).astype(narrow, copy=False)


_apply_gradient = kernel_from("batch_norm_gradient", _gradient)


@kernel(norm.batch_norm_backward, "cuda", only_launches=True)
@serving
def _batch_norm_backward(xp, grad_output, input, mean, rstd, weight=None, eps=1e-5):
    _fitting(input, grad_output, mean, rstd, weight)
    wide = _wide(input)
    axes = (0, *range(2, input.ndim))
    mean, rstd = mean.astype(wide, copy=False), rstd.astype(wide, copy=False)
    spread = [xp.broadcast_to(_per_channel(xp, a, input), input.shape) for a in (mean, rstd)]
    key = "batch_norm_sums", _rows.signature(grad_output, input, *spread)
    found = _rows.replay(xp, key, [grad_output, input, *spread])
    if found is None:
        found = _parameter_gradients(xp, grad_output, input, *spread, axes, wide, (key, (input.shape[1],)))
    products, sums = found
    vectors = [_per_channel(xp, v, input) for v in (mean, rstd, products, sums)]
    more = [] if weight is None else [_per_channel(xp, weight, input)]
    size = float(prod(input.shape[d] for d in axes))
    made = _apply_gradient(xp, grad_output, input, *vectors, size, *more)
    if made is NotImplemented:
        raise Unfit("batch norm")
    like = input.dtype if weight is None else weight.dtype
    return made, products.astype(like, copy=False), sums.astype(like, copy=False)
