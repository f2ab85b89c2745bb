"""Layers of few elements as one kernel each, where an op's own code is many calls of numpy, or an order of adding up
that numpy lacks: batch norm, prelu's gradient, glu, running sums, fold, cross-entropy, attention.

They are the kernels "direct" of their ops: small calls are retained as direct launches (`small.py`), larger ones are
tried as any generated kernel is (`guard.guarded`), where the op has no other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from engine.backends.cpu.relayout import FEW, in_c_order
from engine.core.checks import wrap_dim
from engine.dispatch import OPS, kernel
from engine.kernels import cpu, layers, rows
from engine.kernels.form import Kernel
from engine.ops import activation, attention, norm
from engine.ops.activation import gated
from engine.ops.cuda import _rows
from engine.ops.cuda._launch import strides_of
from engine.ops.generated import launch
from engine.ops.loss import cross_entropy
from engine.ops.nn import vision
from engine.ops.norm import groups as norm_groups
from engine.ops.norm import rms

FLOATS = frozenset(map(np.dtype, ("float32", "float64")))
_WHOLE = 1 << 16  # elements up to which rows that are as few as channels are not shared among threads
_CHANNELS = 32  # that are as many rows as threads share
_entries: dict[Any, launch.Entry] = {}


def plain(*arrays: Any) -> bool:
    """Return whether all are contiguous, of one float type, and the first has elements."""
    first = arrays[0]
    return bool(
        first.dtype in FLOATS
        and first.size
        and all(a is None or (a.dtype == first.dtype and a.flags.c_contiguous) for a in arrays)
    )


def run(
    make: Callable[[str], Kernel],
    arrays: Sequence[Any],
    numbers: Sequence[float],
    count: int,
    each: int,
    type: str = "",
) -> None:
    """Run a kernel of `layers` for `count` rows of work `each`.  type: of the arrays' bits, if not their own."""
    entry, built = prepared(make, numbers, count, each, type or arrays[0].dtype.name)
    launch.launched(launch.ready(entry, count * each, built), arrays, numbers, count, each)


def prepared(
    make: Callable[[str], Kernel], numbers: Sequence[float], count: int, each: int, type: str, use: str = ""
) -> tuple[launch.Entry, Callable[[], cpu.Built]]:
    """The standing of a kernel for such numbers, and what compiles it.  use: where it has a standing of its own."""
    ones = tuple([n == 1 and n.__class__ is int for n in numbers])
    kind = make, type, ones, launch.magnitude(count * each), use

    def built() -> cpu.Built:
        made = make(type)
        return cpu.build(made, known=launch.known(made, [n if one else 0 for n, one in zip(numbers, ones)]))

    return _entries.setdefault(kind, launch.Entry()), built


def product(xp: Any, a: Any, b: Any) -> Any:
    """a (n, k) @ b (k, m) -> (n, m), of few elements, however they lie."""
    if a.dtype != b.dtype or a.dtype not in FLOATS or not a.size or not b.size:
        return NotImplemented
    made, each = xp.empty((a.shape[0], b.shape[1]), a.dtype), a.shape[1] * b.shape[1]
    steps = [s // a.itemsize for s in (*a.strides, *b.strides)]
    run(layers.product, [a, b, made], [*b.shape, *steps], len(a), each)
    return made


# --- by channel


def _channels(array: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The strides of (N, C, *): rows are channels, places all else."""
    own = strides_of(array)
    return (own[1],), (own[0], *own[2:])


def _by_channel(
    name: str,
    write: Callable[[rows.Rows], None],
    whole: Sequence[Any],
    vectors: Sequence[Any],
    made: Sequence[Any],
    of_channels: Sequence[Any],
    numbers: Sequence[tuple[str, Any]],
    key: Any,
) -> None:
    """A row a channel.  whole, made: arrays (N, C, *) read and written; vectors, of_channels: arrays (C), the same."""
    shape = whole[0].shape
    none = (0,) * (len(shape) - 1)
    each = lambda a: (strides_of(a), none)
    strides = [*map(_channels, whole), *map(each, vectors), *map(_channels, made), *map(each, of_channels)]
    _rows.run(
        name,
        write,
        [*whole, *vectors, *made, *of_channels],
        len(made) + len(of_channels),
        (shape[1],),
        (shape[0], *shape[2:]),
        strides,
        numbers,
        key,
    )


def _few(input: Any, *others: Any) -> bool:
    few = input.ndim > 1 and input.size <= (_WHOLE if input.shape[1] < _CHANNELS else 4 * _WHOLE)
    return few and plain(input, *others)


@kernel(norm.batch_norm_train, "direct")
def _batch_norm_train(xp, input, weight=None, bias=None, eps=1e-5):
    if not _few(input, weight, bias):
        return NotImplemented
    channels = input.shape[1]
    made = xp.empty(input.shape, input.dtype)
    mean, rstd, var = (xp.empty((channels,), input.dtype) for _ in range(3))
    given = [v for v in (weight, bias) if v is not None]
    flags = weight is not None, bias is not None, True, True
    numbers = [(input.dtype.name, eps)]
    write = lambda r: rows.normalized(r, *flags)
    _by_channel("batch_norm", write, [input], given, [made], [mean, rstd, var], numbers, flags)
    return made, mean, rstd, var


@kernel(norm.batch_norm_eval, "direct")
def _batch_norm_eval(xp, input, running_mean, running_var, weight=None, bias=None, eps=1e-5):
    if not _few(input, running_mean, running_var, weight, bias):
        return NotImplemented
    made = xp.empty(input.shape, input.dtype)
    given = [v for v in (running_mean, running_var, weight, bias) if v is not None]
    flags = weight is not None, bias is not None
    write = lambda r: rows.normalized_by(r, *flags)
    _by_channel("batch_norm_eval", write, [input], given, [made], [], [(input.dtype.name, eps)], flags)
    return made


def _gradients(xp, grad_output, input, mean, spread, weight, trained, numbers):
    if not _few(input, grad_output, mean, spread, weight):
        return NotImplemented
    made = xp.empty(input.shape, input.dtype)
    of_weight, of_bias = (xp.empty((input.shape[1],), input.dtype) for _ in range(2))
    given = [mean, spread, *([] if weight is None else [weight])]
    flags = weight is not None, trained
    write = lambda r: rows.channel_backward(r, *flags)
    _by_channel("batch_norm_backward", write, [grad_output, input], given, [made], [of_weight, of_bias], numbers, flags)
    return made, of_weight, of_bias


@kernel(norm.batch_norm_backward, "direct")
def _batch_norm_backward(xp, grad_output, input, mean, rstd, weight=None, eps=1e-5):
    return _gradients(xp, grad_output, input, mean, rstd, weight, True, [])


@kernel(norm.batch_norm_eval_backward, "direct", only_launches=True)
def _batch_norm_eval_backward(xp, grad_output, input, mean, var, weight=None, eps=1e-5):
    return _gradients(xp, grad_output, input, mean, var, weight, False, [(input.dtype.name, eps)])


@kernel(norm_groups.native_group_norm_backward, "cpu", only_launches=True)
def _group_norm_backward(xp, grad_output, input, mean, rstd, weight=None, groups=1, eps=1e-5):
    """Sums of channels first, of which the rest is made: each of both arrays is read twice, neighbours at once."""
    if not plain(input, grad_output, mean, rstd, weight):
        by_rows = OPS["native_group_norm_backward"].kernels["cuda"]
        return by_rows(xp, grad_output, input, mean, rstd, weight, groups, eps)
    (count, channels), per, dtype = input.shape[:2], input.shape[1] // groups, input.dtype
    length, rest = prod(input.shape[2:]), [] if weight is None else [weight]
    by_channel, by_group = (count, groups, per), (count, groups)
    products, sums = (xp.empty(by_channel, dtype) for _ in range(2))
    along, level = (xp.empty(by_group, dtype) for _ in range(2))
    of_weight, of_bias = (xp.empty((channels,), dtype) for _ in range(2))
    made = xp.empty(input.shape, dtype)
    whole = (channels * length, per * length, length), (1,)
    channel, group, each = ((channels, per, 1), (0,)), ((groups, 1, 0), (0,)), ((0, per, 1), (0,))
    _rows.run(
        "channel_products",
        rows.channel_products,
        [grad_output, input, mean, rstd, products, sums],
        2,
        by_channel,
        (length,),
        [whole, whole, group, group, channel, channel],
    )
    of_channels, of_group = ((channels, per), (1,)), ((groups, 1), (0,))
    _rows.run(
        "channel_shares",
        lambda r: rows.channel_shares(r, bool(rest)),
        [products, sums, *rest, along, level],
        2,
        by_group,
        (per,),
        [of_channels, of_channels, *[((0, per), (1,))] * len(rest), of_group, of_group],
        [(dtype.name, float(per * length))],
        bool(rest),
    )
    _rows.run(
        "group_backward",
        lambda r: rows.group_backward(r, bool(rest)),
        [grad_output, input, mean, rstd, along, level, *rest, made],
        1,
        by_channel,
        (length,),
        [whole, whole, *[group] * 4, *[each] * len(rest), whole],
        key=bool(rest),
    )
    over = ((1,), (channels,))
    _rows.run(
        "two_sums",
        rows.two_sums,
        [products, sums, of_weight, of_bias],
        2,
        (channels,),
        (count,),
        [over, over, ((1,), (0,)), ((1,), (0,))],
    )
    return made, of_weight, of_bias


_BLOCK = 256  # columns that are added up at once


def _rows_backward(xp: Any, name: str, write: Any, arrays: Any, vectors: Any, weight: Any, width: int) -> Any:
    """The gradient of x of normalized rows: arrays (*, S), vectors (*), weight (S) or None."""
    made, count = xp.empty(arrays[-1].shape, arrays[-1].dtype), arrays[-1].size // width
    whole, single, rest = ((width,), (1,)), ((1,), (0,)), [] if weight is None else [weight]
    strides = [*[whole] * len(arrays), *[single] * len(vectors), *[((0,), (1,))] * len(rest), whole]
    given, weighted = [*arrays, *vectors, *rest, made], bool(rest)
    _rows.run(name, lambda r: write(r, weighted), given, 1, (count,), (width,), strides, key=weighted)
    return made


def _parameters(xp: Any, arrays: Any, vectors: Any, shape: Any, width: int) -> list[Any]:
    """The gradients of the parameters of normalized rows: of the weight, and where there is a mean of the bias."""
    results = [xp.empty(shape, arrays[0].dtype) for _ in vectors]
    given = [a for made in results for a in (made, xp.empty((width,), made.dtype))]
    count, blocks = arrays[0].size // width, -(-width // _BLOCK)
    write = layers.column_products(len(vectors) == 2)
    run(write, [*arrays, *vectors, *given], [count, width, _BLOCK], blocks, count * min(width, _BLOCK))
    return results


def _by_rows(*arrays: Any) -> list[Any]:
    """The arrays; of those whose last dim is no line of memory, copies: a kernel of rows that lie side by side is slow
    where other operands have rows that do not."""
    return [a if not a.ndim or a.strides[-1] == a.itemsize else in_c_order(a) for a in arrays]


def _forward(xp: Any, name: str, input: Any, *rest: Any) -> Any:
    """A norm by its kernel of rows; a large operand whose rows are no lines of memory is copied."""
    (given,) = _by_rows(input) if input.size >= FEW else (input,)
    return OPS[name].kernels["cuda"](xp, given, *rest)


@kernel(norm.native_layer_norm, "cpu", only_launches=True)
def _layer_norm(xp, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _forward(xp, "native_layer_norm", input, normalized_shape, weight, bias, eps)


@kernel(norm.layer_norm_inference, "cpu", only_launches=True)
def _layer_norm_inference(xp, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return _forward(xp, "layer_norm_inference", input, normalized_shape, weight, bias, eps)


@kernel(rms.rms_norm_train, "cpu", only_launches=True)
def _rms_norm(xp, input, normalized_shape, weight=None, eps=1e-5):
    return _forward(xp, "rms_norm_train", input, normalized_shape, weight, eps)


@kernel(norm.native_layer_norm_backward, "cpu", only_launches=True)
def _layer_norm_backward(
    xp, grad_output, input, mean, rstd, weight=None, normalized_shape=(), eps=1e-5, parameters=True
):
    shape, (grad_output, input) = tuple(normalized_shape), _by_rows(grad_output, input)
    if not plain(input, grad_output, mean, rstd, weight):
        by_rows = OPS["native_layer_norm_backward"].kernels["cuda"]
        return by_rows(xp, grad_output, input, mean, rstd, weight, shape, eps, parameters)
    arrays, vectors, width = [grad_output, input], [mean, rstd], prod(shape)
    made = _rows_backward(xp, "layer_norm_backward", rows.normalized_backward, arrays, vectors, weight, width)
    if not parameters:
        return made, xp.empty((0,), input.dtype), xp.empty((0,), input.dtype)
    return (made, *_parameters(xp, arrays, vectors, shape, width))


@kernel(rms.rms_norm_backward, "cpu", only_launches=True)
def _rms_norm_backward(xp, grad_output, input, rstd, weight=None, normalized_shape=(), eps=1e-5):
    shape, (grad_output, input) = tuple(normalized_shape), _by_rows(grad_output, input)
    if not plain(input, grad_output, rstd, weight):
        by_rows = OPS["rms_norm_backward"].kernels["cuda"]
        return by_rows(xp, grad_output, input, rstd, weight, shape, eps)
    arrays, width = [grad_output, input], prod(shape)
    made = _rows_backward(xp, "rms_norm_backward", rows.scaled_to_rms_backward, arrays, [rstd], weight, width)
    if weight is None:
        return made, xp.empty((0,), input.dtype)
    return (made, *_parameters(xp, arrays, [rstd], shape, width))


@kernel(activation.prelu_backward, "direct", only_launches=True)
def _prelu_backward(xp, grad_output, input, weight):
    if not plain(input, grad_output, weight) or input.size > _WHOLE:
        return NotImplemented
    shape, count = input.shape, weight.size
    if count != 1 and (len(shape) < 2 or weight.shape != (1, shape[1], *(1,) * (len(shape) - 2))):
        return NotImplemented
    made, of_weight = xp.empty(shape, input.dtype), xp.empty(weight.shape, input.dtype)
    if count == 1:
        row_shape, place_shape = (1,), (input.size,)
        whole, each = ((0,), (1,)), ((0,), (0,))
    else:
        row_shape, place_shape = (count,), (shape[0], *shape[2:])
        whole, each = _channels(input), ((1,), (0,) * (len(shape) - 1))
    arrays = [grad_output, input, weight, made, of_weight]
    _rows.run(
        "prelu_backward", rows.prelu_backward, arrays, 2, row_shape, place_shape, [whole, whole, each, whole, each]
    )
    return made, of_weight


# --- along one dim


def parts(shape: Sequence[int], dim: int) -> tuple[int, int, int]:
    """(before, size, after) of a dim."""
    return prod(shape[:dim]), shape[dim], prod(shape[dim + 1 :])


@kernel(gated.glu, "direct", only_launches=True)
def _glu(xp, input, dim=-1):
    if not input.ndim or not plain(input):
        return NotImplemented
    axis = wrap_dim(dim, input.ndim)
    before, size, after = parts(input.shape, axis)
    if size % 2:
        return NotImplemented
    made = xp.empty((*input.shape[:axis], size // 2, *input.shape[axis + 1 :]), input.dtype)
    half = size // 2 * after
    run(layers.glu, [input, made], [half], before, half)
    return made


@kernel(gated.glu_backward, "direct", only_launches=True)
def _glu_backward(xp, grad_output, input, dim):
    if not plain(input, grad_output):
        return NotImplemented
    before, size, after = parts(input.shape, wrap_dim(dim, input.ndim))
    made = xp.empty(input.shape, input.dtype)
    half = size // 2 * after
    run(layers.glu_backward, [grad_output, input, made], [half], before, half)
    return made


@kernel(vision.col2im, "direct", only_launches=True)
def _col2im(xp, input, output_size, kernel_size, dilation, padding, stride):
    if not plain(input):
        return NotImplemented
    given = tuple(map(tuple, (output_size, kernel_size, dilation, padding, stride)))
    taps, out, _, _ = vision._folding(*given)
    images, channels = input.shape[0], input.shape[1] // taps
    made = xp.empty((images, channels, *given[0]), input.dtype)
    numbers = [*given[0], *given[1], *out, *given[2], *given[3], *given[4]]
    run(layers.folded, [input, made], numbers, images * channels, input.size // (images * channels))
    return made


# --- cross-entropy of (N, C)


def _scores(input: Any, target: Any, weight: Any) -> bool:
    return bool(
        input.ndim == 2
        and plain(input, weight)
        and target.shape == input.shape[:1]
        and target.dtype.name in ("int64", "uint8")
    )


@kernel(cross_entropy.softmax_nll_rows, "direct")
def _softmax_nll(xp, input, target, weight=None, ignore_index=-100, reduction="mean"):
    if not _scores(input, target, weight):
        return NotImplemented
    count, classes = input.shape
    kind = input.dtype
    p, losses, weights = xp.empty(input.shape, kind), xp.empty((count,), kind), xp.empty((count,), kind)
    bad, any_bad = xp.empty((count,), "int32"), xp.empty((), "int32")
    total, result = xp.empty((), kind), losses if reduction == "none" else xp.empty((), kind)
    given = [] if weight is None else [weight]
    one, none = strides_of(losses), (0,)
    flags = weight is not None, False
    strides = [
        _rows.parted(input, (1,)),
        (strides_of(target), none),
        *[(none, strides_of(w)) for w in given],
        _rows.parted(p, (1,)),
        *[(one, none)] * 3,
    ]
    _rows.run(
        "cross_entropy",
        lambda r: rows.softmax_losses(r, *flags),
        [input, target, *given, p, losses, weights, bad],
        4,
        (count,),
        (classes,),
        strides,
        [("int64", ignore_index)],
        flags,
    )
    made = [total, any_bad] if reduction == "none" else [total, any_bad, result]
    strides = [*[(none, one)] * 3, *[(none, none)] * len(made)]
    _rows.run(
        "totalled",
        lambda r: rows.totalled(r, reduction),
        [losses, weights, bad, *made],
        len(made),
        (1,),
        (count,),
        strides,
        key=reduction,
    )
    launch.refuse_if(any_bad)
    return result, total, p


@kernel(cross_entropy.softmax_nll_backward, "direct")
def _softmax_nll_backward(
    xp, output, grad_output, target, total_weight, weight=None, ignore_index=-100, reduction="mean", smoothing=0.0
):
    if smoothing or not _scores(output, target, weight) or not plain(output, grad_output, total_weight):
        return NotImplemented
    made, (count, classes) = xp.empty(output.shape, output.dtype), output.shape
    given = [] if weight is None else [weight]
    none = (0,)
    flags = weight is not None, reduction == "mean"
    of_grad = strides_of(grad_output) if grad_output.ndim else none
    strides = [_rows.parted(output, (1,)), (of_grad, none), (strides_of(target), none), (none, none)]
    strides += [*[(none, strides_of(w)) for w in given], _rows.parted(made, (1,))]
    _rows.run(
        "cross_entropy_gradient",
        lambda r: rows.softmax_minus_target(r, *flags),
        [output, grad_output, target, total_weight, *given, made],
        1,
        (count,),
        (classes,),
        strides,
        [("int64", ignore_index)],
        flags,
    )
    return made


# --- attention of a few tokens


def _tokens(query: Any, key: Any, value: Any, *others: Any) -> tuple[int, ...] | None:
    """(N, L, S, E, V) of attention without broadcasting; None where it is not for these kernels."""
    if not plain(query, key, value, *others) or query.ndim < 2 or not key.size or not value.size:
        return None
    lead, (rows, width), places, depth = query.shape[:-2], query.shape[-2:], key.shape[-2], value.shape[-1]
    if key.shape != (*lead, places, width) or value.shape != (*lead, places, depth):
        return None
    return prod(lead), rows, places, width, depth


@kernel(attention.attention, "direct", only_launches=True)
def _attention(xp, query, key, value, mask=None, noise=None, scale=1.0):
    sizes = _tokens(query, key, value)
    if sizes is None or mask is not None or noise is not None:
        return NotImplemented
    count, *each = sizes
    made = xp.empty((*query.shape[:-1], each[3]), query.dtype)
    weights = xp.empty((*query.shape[:-1], each[1]), query.dtype)
    work = each[1] * (each[2] + each[3])
    run(layers.attention, [query, key, value, made, weights], [*each, float(scale)], count * each[0], work)
    return made, weights


@kernel(attention.attention_inference, "direct", only_launches=True)
def _attention_inference(xp, query, key, value, mask=None, scale=1.0):
    found = _attention(xp, query, key, value, mask, None, scale)
    return found if found is NotImplemented else found[0]


@kernel(attention.attention_backward, "direct", only_launches=True)
def _attention_backward(xp, grad_output, query, key, value, weights, mask=None, noise=None, scale=1.0, mask_too=False):
    sizes = _tokens(query, key, value, grad_output, weights)
    if sizes is None or noise is not None or mask_too:
        return NotImplemented
    count, *each = sizes
    found = [xp.empty(a.shape, a.dtype) for a in (query, key, value)]
    scores, of_mask = xp.empty((count, each[1]), query.dtype), xp.empty((0,), query.dtype)
    work = each[0] * each[1] * 2 * (each[2] + each[3])
    arrays = [grad_output, query, key, value, weights, *found, scores]
    run(layers.attention_backward, arrays, [*each, float(scale)], count, work)
    return (*found, of_mask)
