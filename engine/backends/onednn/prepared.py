"""Convolutions and products with weights packed once, for plans: what follows them is done in the same pass.

A function here returns a `Prepared`, or None where oneDNN has no fast kernel for all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.backends.cpu.packing import aligned
from engine.backends.onednn import _abi
from engine.backends.onednn.arrays import long_row
from engine.backends.onednn.convolution import Geometry, depthwise_3d, refuse_slow, weight_view, work
from engine.backends.onednn.primitives import (
    Desc,
    Primitive,
    PrimitiveDesc,
    Unsupported,
    activation_desc,
    address,
    any_desc,
    array_desc,
    attributes,
    desc_of,
    element_of,
    null,
    ready,
    reorder_between,
    strides_of,
)


def _run(
    plan: PrimitiveDesc,
    x: Desc,
    y: Desc,
    weight: np.ndarray,
    plain: Desc,
    bias: Any,
    post: Sequence,
    scales: dict[int, np.ndarray],
) -> Prepared:
    """The primitive of `plan` with weight, bias and scales bound."""
    packed = plan.desc(_abi.WEIGHTS_MD)
    descs = {_abi.SRC: x, _abi.WEIGHTS: packed, _abi.DST: y}
    bound = [address(weight)]
    retained: list[Any] = [weight, bias]
    if not plain.same(packed):
        buffer = aligned(packed.nbytes)
        reorder_between(plain, packed)(bound[0], address(buffer))
        bound, retained = [address(buffer)], [buffer, bias]
    if bias is not None:
        descs[_abi.BIAS] = desc_of(bias.shape, strides_of(bias))
        bound.append(address(bias))
    for i, p in enumerate(post):
        if p[0] == "binary":
            descs[_abi.POST_OP * (i + 1) | _abi.SRC_1] = p[2]
    order = [_abi.SRC, _abi.DST, *[d for d in descs if d > _abi.POST_OP], _abi.WEIGHTS]
    if bias is not None:
        order.append(_abi.BIAS)
    for argument, numbers in scales.items():
        descs[_abi.SCALES | argument] = desc_of(numbers.shape, (1,))
        order.append(_abi.SCALES | argument)
        bound.append(address(numbers))
        retained.append(numbers)
    found = Primitive(plan, {number: descs[number] for number in order}, retained=retained)
    return Prepared(found, bound)


class Prepared:
    """A primitive with its weights, called with the addresses of input, result and what is added to it."""

    def __init__(self, primitive: Primitive, bound: Sequence[Any]) -> None:
        self._primitive, self._bound = primitive, bound

    def __call__(self, *pointers: Any) -> None:
        ready()  # a plan may run in another thread than the one it was made in
        self._primitive(*pointers, *self._bound)

    def always(self, *pointers: Any) -> Callable[..., None]:
        """The call with these addresses, given once; whoever calls it has called `ready` in this thread."""
        placed = (*pointers, *self._bound)
        self._primitive.place(placed)
        self._primitive.extra["placed"] = placed  # they keep the memory
        return self._primitive.again


def convolution(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    out: np.ndarray,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    post: Sequence[tuple] = (),
    scales: Scales = (1.0, None),
) -> Prepared | None:
    """out (N, O, *out) = what `post` makes of the convolution of x (N, C, *size), both laid out as these are.

    post: ("eltwise", algorithm, alpha, beta), ("sum", scale), ("binary", algorithm, like): one operand more, of the
    layout of `like`, without it of `out`.  Arrays are of float32, or of uint16 with the bits of bfloat16; weights are
    packed in the type of x.  Of int8 they are numbers times `scales`, of x and of out; weights are rounded to int8
    then, each output channel by its largest one.
    """
    if not ready() or depthwise_3d(weight, groups):  # `convolution.Slices` is the faster
        return None
    try:
        masks, numbers, weight = _scaled(x, weight, scales, 1 if groups == 1 else 3)
        g = Geometry(x, out, *weight_view(weight, groups), stride, padding, dilation)
        b = null() if bias is None else desc_of(bias.shape, (1,))
        plan = PrimitiveDesc(
            "convolution_forward",
            _abi.INFERENCE,
            _abi.CONVOLUTION_DIRECT,
            g.x,
            any_desc(g.shape, element_of(x)),
            b,
            g.y,
            *g.windows,
            attributes(post := _chain(post, g.desc, out), masks),
            work=work(out, weight),
        )
        refuse_slow(plan, g, weight.shape[0] // groups)
        return _run(plan, g.x, g.y, weight, Desc(g.shape, g.strides, element_of(weight)), bias, post, numbers)
    except Unsupported:
        return None


def transposed(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    out: np.ndarray,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    post: Sequence[tuple] = (),
) -> Prepared | None:
    """out (N, O, *out) = what `post` makes of x (N, C, *size) convolved transposed with weight (C, O/G, *kernel).

    All of float32.
    """
    if not ready() or element_of(x) != _abi.F32 or element_of(out) != _abi.F32:
        return None
    first, second, *kernel = strides_of(weight)
    inside, outside = weight.shape[0] // groups, weight.shape[1]
    shape: tuple[int, ...] = (outside, inside, *weight.shape[2:])
    strides: tuple[int, ...] = (second, first, *kernel)
    if groups > 1:
        shape, strides = (groups, *shape), (inside * first, *strides)
    try:
        g = Geometry(out, x, shape, strides, stride, padding, dilation)  # of the convolution whose gradient it is
        b = null() if bias is None else desc_of(bias.shape, (1,))
        plan = PrimitiveDesc(
            "deconvolution_forward",
            _abi.INFERENCE,
            _abi.DECONVOLUTION_DIRECT,
            g.y,
            any_desc(g.shape),
            b,
            g.x,
            *g.windows,
            attributes(post := _chain(post, g.desc, out)),
            work=work(x, weight),
        )
        refuse_slow(plan, g, outside)
        if plan.implementation.startswith("conv:any+") and (post or bias is not None):
            return None  # element by element: 10 ms for the bias and relu of what takes 0.04
        return _run(plan, g.y, g.x, weight, Desc(g.shape, g.strides, _abi.F32), bias, post, {})
    except Unsupported:
        return None


# Rows of x from which the weight of sgemm, which has no packed form, is taken in its layout and not transposed: sgemm
# then transposes its panels, in as much time and without a copy of the whole, or, where rows of a transposed copy would
# share places of the cache, in less: 128 rows on two cores of Zen 3 in 0.75 for 384 to 1536, 0.52 for 768 to 3072.
_UNTRANSPOSED = (128, 32)


def product(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None,
    out: np.ndarray,
    post: Sequence[tuple] = (),
    scales: Scales = (1.0, None),
) -> Prepared | None:
    """out (n, m) = what `post` makes of x (n, k) @ weight (m, k).T + bias (m)."""
    if not ready():
        return None
    try:
        masks, numbers, weight = _scaled(x, weight, scales, 2)
        w = weight.T
        left, target = array_desc(x), array_desc(out)
        row = None if bias is None else bias.reshape(1, -1)
        b = null() if row is None else desc_of(row.shape, (row.shape[1], 1))
        chain = _chain(post, array_desc, out)

        def made(right: Any) -> PrimitiveDesc:
            attribute = attributes(chain, masks)
            return PrimitiveDesc("matmul", left, right, b, target, attribute, work=out.size * x.shape[-1] / 32)

        plan = made(any_desc(w.shape, element_of(x)))
        rows = desc_of(w.shape, (w.shape[1], 1))
        if len(x) >= _UNTRANSPOSED[w.shape[1] % 512 == 0] and rows.same(plan.desc(_abi.WEIGHTS_MD)):
            plan = made(array_desc(w))
        return _run(plan, left, target, w, array_desc(w), row, chain, numbers)
    except Unsupported:
        return None


def attention(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    out: np.ndarray,
    scores: np.ndarray,
    scale: float,
    mask: Any = None,
    blind: bool = False,
) -> Callable[[Any], None] | None:
    """out (N, *, L, Ev) = softmax(query (N, *, L, E) @ key (N, *, S, E).T * scale + mask) @ value (N, *, S, Ev).

    scores (n, *, L, S) is scratch: n images go together, of which N are a multiple.  All have the strides they have.
    mask: an array that broadcasts to (N, *, L, S); anything else but None says that each call is given one.
    blind: rows of which the mask hides all are 0.  Whoever calls it has called `ready` in this thread.
    """
    if not ready() or long_row(scores.shape[-1]):
        return None
    rows, count = len(scores), len(query)
    key_transposed = key.swapaxes(-2, -1)
    part = lambda a, n: a[n : n + rows] if a.ndim == scores.ndim and len(a) == count else a
    inner = array_desc(scores)
    try:
        first = _multiplying(part(query, 0), part(key_transposed, 0), scores, (("eltwise", _abi.LINEAR, scale, 0.0),))
        plan = PrimitiveDesc(
            "softmax_forward", _abi.INFERENCE, _abi.SOFTMAX, inner, inner, scores.ndim - 1, attributes()
        )
        middle = Primitive(plan, {_abi.SRC: inner, _abi.DST: inner})
        last = _multiplying(scores, part(value, 0), part(out, 0), ())
    except Unsupported:
        return None
    buffer = address(scores)
    calls = []
    for n in range(0, count, rows):
        q, k, v, y = (address(part(a, n)) for a in (query, key_transposed, value, out))
        calls.append((n, (q, k, buffer), (buffer, buffer), (buffer, v, y)))
    first.extra["retained"] = query, key, value, out, scores
    held = mask if isinstance(mask, np.ndarray) else None
    if mask is None and len(calls) == 1:
        for primitive, pointers in zip((first, middle, last), calls[0][1:]):
            primitive.place(pointers)

        def once(_: Any = None) -> None:
            first.again()
            middle.again()
            last.again()

        return once

    def run(given: Any = None) -> None:
        added = held if given is None else given
        unseen = added == -np.inf if added is not None and blind else None
        unseen = None if unseen is None or not (hidden := unseen.all(-1, keepdims=True)).any() else hidden
        for n, to_scores, to_weights, to_out in calls:
            first(*to_scores)
            if added is not None:
                np.add(scores, part(added, n), out=scores)
            middle(*to_weights)
            if unseen is not None:
                np.copyto(scores, 0, where=part(unseen, n))
            last(*to_out)

    return run


def _multiplying(a: np.ndarray, b: np.ndarray, out: np.ndarray, post: Sequence[tuple]) -> Primitive:
    x, w, y = map(array_desc, (a, b, out))
    plan = PrimitiveDesc("matmul", x, w, null(), y, attributes(post), work=out.size * a.shape[-1] / 32)
    return Primitive(plan, {_abi.SRC: x, _abi.WEIGHTS: w, _abi.DST: y})


Scales = tuple[float, float | None]  # what a number of int8 stands for in x, and in out if that is int8


def _scaled(
    x: np.ndarray, weight: np.ndarray, scales: Scales, mask: int
) -> tuple[dict[int, int], dict[int, np.ndarray], np.ndarray]:
    """(masks and numbers of scales by argument, the weight) for x of int8; else nothing, and the weight itself."""
    if element_of(x) != _abi.S8:
        return {}, {}, weight
    most = np.abs(weight).reshape(weight.shape[0], -1).max(1).astype(np.float64) / 127
    most[most == 0] = 1
    rounded = np.rint(weight / most.reshape(-1, *[1] * (weight.ndim - 1))).astype(np.int8)
    numbers = {_abi.SRC: np.array([scales[0]], np.float32), _abi.WEIGHTS: most.astype(np.float32)}
    if scales[1] is not None:
        numbers[_abi.DST] = np.array([scales[1]], np.float32)
    return {a: mask if a == _abi.WEIGHTS else 0 for a in numbers}, numbers, np.ascontiguousarray(rounded)


def narrowing(x: np.ndarray, out: np.ndarray, scale: float = 1.0) -> Callable[..., None] | None:
    """The copy of x / scale to out, elements of bfloat16 or int8, to be called with the addresses of both."""
    if not ready():
        return None
    try:
        primitive = reorder_between(activation_desc(x), activation_desc(out), scale != 1)
    except Unsupported:
        return None
    numbers = np.array([1 / scale], np.float32)
    bound = [address(numbers)] if scale != 1 else []

    def run(*pointers: Any) -> None:
        ready()
        primitive(*pointers, *bound)

    return run


def _chain(post: Sequence[tuple], desc: Callable[[np.ndarray], Desc], out: np.ndarray) -> tuple:
    return tuple((*p[:2], desc(p[2] if len(p) > 2 else out)) if p[0] == "binary" else p for p in post)
