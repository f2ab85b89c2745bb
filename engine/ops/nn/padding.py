"""Padding: constant, reflect, replicate, circular."""

from __future__ import annotations

import builtins
from math import prod

from engine.autograd.graph import name_node
from engine.autograd.versions import guard
from engine.backends.cpu.relayout import in_c_order
from engine.dispatch import composite, derivative, op, samples
from engine.ops.pointwise.arithmetic import refuse
from engine.tensor import Tensor


def _sizes(shape, pad):
    """(before, after) for each dim, from torch's order: last dim first."""
    pairs = [(0, 0)] * len(shape)
    for i in range(len(pad) // 2):
        pairs[len(shape) - 1 - i] = (pad[2 * i], pad[2 * i + 1])
    return pairs


def _check_constant(shape, pad):
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}")
    if len(pad) > 2 * len(shape):
        raise RuntimeError(
            "Length of pad should be no more than twice the number of dimensions of the input. Pad length is "
            f"{len(pad)}while the input has {len(shape)}dimensions."  # so it says
        )
    pairs = _sizes(shape, pad)
    for i, (n, (a, b)) in enumerate(zip(shape, pairs)):
        if n + a + b < 0 and a <= 0 and b <= 0:
            raise RuntimeError("narrow(): length must be non-negative.")
        if n + a + b < 0:
            raise RuntimeError(
                f"The input size {n}, plus negative padding {a} and {b} resulted in a negative output size, which is "
                f"invalid. Check dimension {i} of your input."
            )
    return pairs


@op(out=False, method=False, not_tensors=("value",), large=1 << 11, generated="some")
@derivative(input=lambda grad, pad: constant_pad_nd(grad, [-p for p in pad], 0))
@samples(lambda t: [(t(2, 3), (1, 2)), (t(2, 3, 4), (1, -1, 0, 2), 1.5), (t(3), (-1, 0)), (t(2, 2), ())])
def constant_pad_nd(xp, input, pad: tuple[int, ...], value: complex = 0):
    """input with `pad` elements of `value` round it, last dim first; negative pads cut.  input (*) -> (*padded)."""
    pairs = _check_constant(input.shape, pad)
    size = tuple(n + a + b for n, (a, b) in zip(input.shape, pairs))
    of = tuple(slice(builtins.max(-a, 0), n + builtins.min(b, 0)) for n, (a, b) in zip(input.shape, pairs))
    if builtins.max(pad, default=0) <= 0:
        return in_c_order(input[of])
    result = xp.zeros(size, input.dtype) if not value else xp.full(size, value, input.dtype)
    to = tuple(slice(builtins.max(a, 0), n + a + builtins.min(b, 0)) for n, (a, b) in zip(input.shape, pairs))
    result[to] = input[of]
    return result


def _mapped(xp, n, before, after, mode):
    """For each place of the padded dim, the place of the input it repeats."""
    places = xp.arange(-before, n + after)
    if mode == "replicate":
        return xp.clip(places, 0, n - 1)
    if mode == "circular":
        return places % n
    places = xp.abs(places)
    return xp.where(places >= n, 2 * (n - 1) - places, places)


def _borders(sizes, mode):
    """(border, what it repeats) of the padded tensor, along one dim after the other; no pad is negative."""
    for axis, (n, before, after) in enumerate(sizes):
        lead, end = (slice(None),) * axis, before + n
        if mode == "replicate":
            first, last = slice(before, before + 1), slice(end - 1, end)
        elif mode == "circular":
            first, last = slice(n, end), slice(before, before + after)
        else:
            stop = end - 2 - after
            first, last = slice(2 * before, before, -1), slice(end - 2, stop if stop >= 0 else None, -1)
        if before:
            yield (*lead, slice(0, before)), (*lead, first)
        if after:
            yield (*lead, slice(end, end + after)), (*lead, last)


def _padded(xp, input, sizes, mode):
    """`input` with borders, which are slices of what is there already: a fifth of the time of indices."""
    result = xp.empty(tuple([n + a + b for n, a, b in sizes]), input.dtype)
    result[tuple([slice(a, a + n) for n, a, _ in sizes])] = input
    for border, source in _borders(sizes, mode):
        result[border] = result[source]
    return result


def _folded(xp, whole, sizes, mode):
    """The gradient of `_padded`."""
    whole = whole.copy("C")
    for border, source in reversed(list(_borders(sizes, mode))):
        edge, target = whole[border], whole[source]
        target += edge.sum(axis=len(border) - 1, keepdims=True) if mode == "replicate" else edge
    return whole[tuple([slice(a, a + n) for n, a, _ in sizes])].copy("C")


def _triples(shape, pad):
    """(size, before, after) for each dim; None where a pad is negative, or there is nothing."""
    if builtins.min(pad, default=0) < 0 or not prod(shape):
        return None
    return [(n, a, b) for n, (a, b) in zip(shape, _sizes(shape, pad))]


def _spread_back(xp, whole, axis, n, before, after, mode):
    """The sum of `whole` over the places that repeat each place of the input, along one dim."""

    def part(start, stop, step=1):
        index = [slice(None)] * whole.ndim
        index[axis] = slice(start, stop, step)
        return tuple(index)

    centre = part(builtins.max(before, 0), before + n + builtins.min(after, 0))
    shape = list(whole.shape)
    shape[axis] = n
    result = xp.zeros(tuple(shape), whole.dtype)
    result[part(builtins.max(-before, 0), n + builtins.min(after, 0))] = whole[centre]
    total = whole.shape[axis]
    if before > 0:
        edge = whole[part(0, before)]
        if mode == "replicate":
            result[part(0, 1)] += edge.sum(axis=axis, keepdims=True)
        elif mode == "circular":
            result[part(n - before, n)] += edge
        else:
            result[part(1, before + 1)] += xp.flip(edge, axis)
    if after > 0:
        edge = whole[part(total - after, total)]
        if mode == "replicate":
            result[part(n - 1, n)] += edge.sum(axis=axis, keepdims=True)
        elif mode == "circular":
            result[part(0, after)] += edge
        else:
            result[part(n - 1 - after, n - 1)] += xp.flip(edge, axis)
    return result


@op(out=False, public=False, method=False, out_as="graph", large=512, generated="many")
@derivative(input=lambda grad, input_shape, pad, how: pad_by_copy_backward(grad, tuple(input_shape), pad, how))
@samples(
    lambda t: [
        (t(2, 4, 3), (1, 2), "reflect"),
        (t(1, 2, 4, 5), (2, 1, 1, 3), "replicate"),
        (t(1, 2, 4, 5), (2, 1, 1, 3), "circular"),
        (t(1, 1, 4, 5), (-1, 2, 1, 1), "reflect"),
    ]
)
def pad_by_copy(xp, input, pad, how):
    """input with mirrored, repeated or continued elements round it, last dim first.  input (*) -> (*padded)."""
    if sizes := _triples(input.shape, pad):
        return _padded(xp, input, sizes, how)
    result = input
    for axis, (before, after) in enumerate(_sizes(input.shape, pad)):
        if before or after:
            places = _mapped(xp, input.shape[axis], before, after, how)
            result = xp.take(result, places, axis=axis)
    return result.copy() if result is input else result


@op(out=False, public=False, method=False, large=512, generated="many")
@derivative(grad_output=lambda grad, pad, how: pad_by_copy(grad, pad, how))
@samples(
    lambda t: [
        (t(2, 4, 6), (2, 4, 3), (1, 2), "reflect"),
        (t(1, 2, 8, 8), (1, 2, 4, 5), (2, 1, 1, 3), "replicate"),
        (t(1, 2, 8, 8), (1, 2, 4, 5), (2, 1, 1, 3), "circular"),
    ]
)
def pad_by_copy_backward(xp, grad_output, size, pad, how):
    """The gradient of `pad_by_copy`.  grad_output (*padded) -> (*size)."""
    if sizes := _triples(size, pad):
        return _folded(xp, grad_output, sizes, how)
    result = grad_output
    for axis, (before, after) in enumerate(_sizes(size, pad)):
        if before or after:
            result = _spread_back(xp, result, axis, size[axis], before, after, how)
    return result.copy() if result is grad_output else result


_NODES = {
    "reflect": "ReflectionPad{}DBackward0",
    "replicate": "ReplicationPad{}DBackward0",
    "circular": "CopySlices",  # torch writes the pieces into a new tensor
}


def _check_copy(input, pad, mode):
    """torch's conditions on reflect, replicate and circular padding."""
    ndim, n = input.dim(), len(pad) // 2
    if not (len(pad) in (2, 4, 6) and ndim in (n + 1, n + 2)):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {ndim}D input tensor.\n"
            "Supported combinations for non-constant padding:\n"
            "  - 2D or 3D input: padding size = 2 (pads last dimension)\n"
            "  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n"
            "  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"
        )
    shape = tuple(input.shape)
    if mode == "circular":
        for size, (a, b) in zip(shape[-n:], _sizes(shape, pad)[-n:]):
            if a > size or b > size:
                raise RuntimeError("Padding value causes wrapping around more than once.")
            if size + a + b < 0:
                raise RuntimeError("Negative padding value is resulting in an empty dimension")
        return
    if any(s == 0 for s in shape[-n - 1 :]):
        sizes = f"{n + 1}D or {n + 2}D (batch mode)"
        raise RuntimeError(
            f"Expected {sizes} tensor with possibly 0 batch size and other non-zero dimensions for input, but got: "
            f"{list(shape)}"
        )
    for i in range(n):
        size, a, b = shape[-1 - i], pad[2 * i], pad[2 * i + 1]
        if mode == "reflect" and (a >= size or b >= size):
            raise RuntimeError(
                "Argument #4: Padding size should be less than the corresponding input dimension, but got: padding "
                f"({a}, {b}) at dimension {ndim - 1 - i} of input {list(shape)}"
            )
        if size + a + b < 1:
            out = " ".join(f"{x}: {s + p + q}" for x, s, (p, q) in zip("DHW"[-n:], shape[-n:], _sizes(shape, pad)[-n:]))
            ins = " ".join(f"{x}: {s}" for x, s in zip("DHW"[-n:], shape[-n:]))
            raise RuntimeError(f"input ({ins}) is too small. Calculated output {out}")


@composite(public=False, method=False)
@samples(
    lambda t: [
        (t(2, 3), (1, 1)),
        (t(1, 2, 3, 4), (1, 2, 2, 1), "reflect"),
        (t(1, 2, 3), (1, 0), "replicate"),
        (t(2, 3, 4), (1, 2), "circular"),
        (t(2, 3), (1, 1), "constant", 2.0),
    ]
)
def pad(input: Tensor, pad: tuple[int, ...], mode: str = "constant", value: float | None = None):
    """input padded: `pad` is (left, right, top, bottom, ...), last dim first; negative pads cut.

    mode: "constant" with `value`, "reflect", "replicate", "circular".  input (*) -> (*padded).
    """
    pad = tuple(int(p) for p in pad)
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(pad) > 2 * input.dim():
        raise RuntimeError(
            "Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(pad)} and input of dimension {input.dim()}"
        )
    if mode == "constant":
        return constant_pad_nd(input, pad, 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    _check_copy(input, pad, mode)
    if mode != "circular":
        kernel = "reflection" if mode == "reflect" else "replication"
        refuse(f"{kernel}_pad{len(pad) // 2}d", input._array, "b")
    if mode == "circular" and any(p < 0 for p in pad):  # cut first: what is left goes round
        input = constant_pad_nd(input, [builtins.min(p, 0) for p in pad])
        pad = tuple(builtins.max(p, 0) for p in pad)
    result = pad_by_copy(input, pad, mode)
    result = name_node(result, _NODES[mode].format(len(pad) // 2))
    return guard(result, *(() if mode == "circular" else (input,)))
