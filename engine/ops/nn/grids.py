"""Ops that read images at points of grids: the parts of `grid_sample`, and its two usual modes as a whole.

`grid_nearest` and `grid_linear` are one op each way.  Gradients of gradients, and what else `grid_sample` does, are
made of the parts: the flat indices of what a point reads, and weighted sums.
"""

from __future__ import annotations

from engine.core.dtypes import float32, float64
from engine.core.grad_mode import mode
from engine.dispatch import derivative, op, samples
from engine.ops._vjp import vjp
from engine.ops.joining import stack
from engine.ops.nn import _grids
from engine.tensor import Tensor

# --- sums at points


@op(public=False, out=False, method=False)
@samples(
    lambda t: [
        ([t.of([[-1.0, 0.0, 1.0]]).detach(), t.of([[1.0, 0.0, 2.0]]).detach()], (2, 2)),
        ([t.of([[x, 0.0]]).detach() for x in (0.0, 1.0, 2.0, 3.0)], (2, 3)),
    ]
)
def grid_places(xp, tensors, size):
    """Flat indices of all that each point reads, prod(size) for what is outside.

    tensors: for each dim its places (N, *out), S of them -> (N, S ** len(size), prod(out)) int64.
    """
    return _grids.places(xp, tensors, size)


@op(public=False, out=False, method=False, large=512, generated="many")
@derivative(
    input=lambda grad, indices, weights, input_shape: grid_spread(grad, indices, weights, tuple(input_shape[2:])),
    weights=lambda grad, input, indices: grid_products(grad, input, indices),
)
@samples(lambda t: [(t(2, 3, 2, 2), t.of([[[0, 4, 3], [3, 2, 3]], [[1, 1, 0], [0, 2, 4]]]), t(2, 2, 3))])
def grid_sums(xp, input, indices, weights):
    """Weighted sums of elements of each channel, 0 at index prod(size).

    input (N, C, *size), indices and weights (N, K, P) -> (N, C, P).
    """
    return _grids.sums(xp, input, indices, weights)


@op(public=False, out=False, method=False, tensors=("weights",), large=512, generated="many")
@derivative(
    grad_output=lambda grad, indices, weights: grid_sums(grad, indices, weights),
    weights=lambda grad, grad_output, indices: grid_products(grad_output, grad, indices),
)
@samples(lambda t: [(t(2, 3, 3), t.of([[[0, 4, 3], [3, 2, 3]], [[1, 1, 0], [0, 2, 4]]]), t(2, 2, 3), (2, 2))])
def grid_spread(xp, grad_output, indices, weights, size):
    """The gradient of `grid_sums` by its input.  grad_output (N, C, P), indices, weights (N, K, P) -> (N, C, *size)."""
    return _grids.spread(xp, grad_output, indices, weights, size)


@op(public=False, out=False, method=False, large=512, generated="many")
@derivative(
    grad_output=lambda grad, input, indices: grid_sums(input, indices, grad),
    input=lambda grad, grad_output, indices, input_shape: grid_spread(
        grad_output, indices, grad, tuple(input_shape[2:])
    ),
)
@samples(lambda t: [(t(2, 3, 3), t(2, 3, 2, 2), t.of([[[0, 4, 3], [3, 2, 3]], [[1, 1, 0], [0, 2, 4]]]))])
def grid_products(xp, grad_output, input, indices):
    """The gradient of `grid_sums` by its weights.

    grad_output (N, C, P), input (N, C, *), indices (N, K, P) -> (N, K, P).
    """
    return _grids.products(xp, grad_output, input, indices)


@op(public=False, out=False, method=False)
@derivative(
    input=lambda grad: grad,
    other=lambda grad, other_shape: grad.new_zeros(tuple(other_shape)),
)
@samples(lambda t: [(t(2, 3), t.constant(t(4)))])
def constant_in(xp, input, other):
    """input, as a function of `other` too whose gradient is zero.  input (*a), other (*b) -> (*a)."""
    return input.copy()


# --- by parts


def _reflected(x, low, high):
    """x mirrored at low / 2 and high / 2 until it is between them."""
    if low == high:
        return x * 0
    least, span = low / 2, (high - low) / 2
    x = (x - least).abs()
    flips = (x.detach() / span).floor()
    extra = x - flips * span
    return (extra + least).where(flips % 2 == 0, span - extra + least)


def _placed(coordinate, size, padding_mode, align_corners):
    """Pixel indices after padding: clipped, or reflected and clipped."""
    if padding_mode == "reflection":
        if align_corners:
            coordinate = _reflected(coordinate, 0, 2 * (size - 1))
        else:
            coordinate = _reflected(coordinate, -1, 2 * size - 1)
    if padding_mode in ("border", "reflection"):  # nan becomes 0, and the edges have no slope, as in torch
        inside = ((coordinate > 0) & (coordinate < size - 1)).detach()
        coordinate = coordinate.where(inside, (coordinate.detach() > 0).to(coordinate.dtype) * (size - 1))
    return coordinate


def _cubic(t, a=-0.75):
    def near(x):
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x):
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def by_parts(input: Tensor, grid: Tensor, how: str, padding: str, align: bool) -> Tensor:
    """`grid_sample` by small ops, which can be differentiated twice."""
    size = tuple(input.shape[2:])
    n = len(size)
    pixels = [_grids.unnormalized(grid.select(-1, n - 1 - d), size[d], align) for d in range(n)]
    out = tuple(grid.shape[1:-1])
    if how != "bicubic":
        pixels = [_placed(p, s, padding, align) for p, s in zip(pixels, size)]
    if how == "nearest":
        indices = grid_places([p.detach().round() for p in pixels], size)
        weights = input.detach().new_ones(tuple(indices.shape))
    else:
        first = [p.detach().floor() - int(how == "bicubic") for p in pixels]
        if how == "bilinear":
            parts = [(1 - (p - f), p - f) for p, f in zip(pixels, first)]
        else:
            parts = [_cubic(p - f - 1) for p, f in zip(pixels, first)]
        places = [f + k if k else f for f in first for k in range(len(parts[0]))]
        if how == "bicubic":
            places = [_placed(p, size[i // 4], padding, align) for i, p in enumerate(places)]
        indices = grid_places(places, size)
        weights = stack(parts[0], 1)
        for part in parts[1:]:
            weights = (weights.unsqueeze(2) * stack(part, 1).unsqueeze(1)).flatten(1, 2)
        weights = weights.reshape(tuple(indices.shape))
    result = grid_sums(input, indices, weights).reshape(*input.shape[:2], *out)
    return constant_in(result, grid) if how == "nearest" else result


# --- whole


@op(public=False, out=False, method=False, tensors=("grid",), large=512, generated="many")
@derivative(
    input=lambda grad, grid, input_shape, padding, align: grid_nearest_spread(
        grad, grid, tuple(input_shape[2:]), padding, align
    ),
    grid=lambda grad, grid_shape: grad.new_zeros(tuple(grid_shape)),
)
@samples(
    lambda t: [
        (t(2, 3, 3, 4), t.constant(t.uniform(-1.3, 1.3, 2, 2, 3, 2)), "zeros", False),
        (t(1, 2, 3, 4), t.constant(t.uniform(-1.3, 1.3, 1, 2, 3, 2)), "border", True),
        (t(1, 2, 2, 3, 2), t.constant(t.uniform(-2.3, 2.3, 1, 2, 3, 1, 3)), "reflection", False),
    ]
)
def grid_nearest(xp, input, grid, padding: str, align: bool):
    """The elements nearest to the points of a grid.  input (N, C, *size), grid (N, *out, len(size)) -> (N, C, *out)."""
    at, _ = _grids.nearest(xp, grid, input.shape[2:], padding, align)
    return _grids.sums(xp, input, at, None).reshape(*input.shape[:2], *grid.shape[1:-1])


@op(public=False, out=False, method=False, tensors=("grid",), large=512, generated="many")
@derivative(grad_output=lambda grad, grid, padding, align: grid_nearest(grad, grid, padding, align))
@samples(lambda t: [(t(2, 3, 2, 3), t.constant(t.uniform(-1.3, 1.3, 2, 2, 3, 2)), (3, 4), "border", False)])
def grid_nearest_spread(xp, grad_output, grid, size, padding: str, align: bool):
    """The gradient of `grid_nearest` by its input.  grad_output (N, C, *out), grid (N, *out, n) -> (N, C, *size)."""
    at, _ = _grids.nearest(xp, grid, size, padding, align)
    return _grids.spread(xp, grad_output.reshape(*grad_output.shape[:2], at.shape[2]), at, None, size)


@op(public=False, out=False, method=False, tensors=("grid",), large=512, generated="many")
@derivative(
    input=lambda grad, grid, input_shape, padding, align: grid_linear_spread(
        grad, grid, tuple(input_shape[2:]), padding, align
    ),
    grid=lambda grad, input, grid, padding, align: _slopes(grad, input, grid, padding, align),
)
@samples(
    lambda t: [
        (t(2, 3, 3, 4), t.uniform(-0.9, 0.9, 2, 2, 3, 2), "zeros", False),
        (t(1, 2, 3, 4), t.uniform(-1.3, 1.3, 1, 2, 3, 2), "border", True),
        (t(1, 2, 2, 3, 2), t.uniform(-2.3, 2.3, 1, 2, 3, 1, 3), "reflection", False),
    ]
)
def grid_linear(xp, input, grid, padding: str, align: bool):
    """Between the elements around the points of a grid.  input (N, C, *size), grid (N, *out, n) -> (N, C, *out)."""
    at, parts = _grids.around(xp, grid, input.shape[2:], padding, align)
    weights = _grids.products_of(xp, [part for part, _ in parts])
    return _grids.sums(xp, input, at, weights).reshape(*input.shape[:2], *grid.shape[1:-1])


@op(public=False, out=False, method=False, tensors=("grid",), large=512, generated="many")
@derivative(
    grad_output=lambda grad, grid, padding, align: grid_linear(grad, grid, padding, align),
    grid=lambda grad, grad_output, grid, padding, align: _slopes(grad_output, grad, grid, padding, align),
)
@samples(lambda t: [(t(2, 3, 2, 3), t.uniform(-0.9, 0.9, 2, 2, 3, 2), (3, 4), "zeros", False)])
def grid_linear_spread(xp, grad_output, grid, size, padding: str, align: bool):
    """The gradient of `grid_linear` by its input.  grad_output (N, C, *out), grid (N, *out, n) -> (N, C, *size)."""
    at, parts = _grids.around(xp, grid, size, padding, align)
    weights = _grids.products_of(xp, [part for part, _ in parts])
    return _grids.spread(xp, grad_output.reshape(*grad_output.shape[:2], at.shape[2]), at, weights, size)


@op(public=False, out=False, method=False, tensors=("grid",), large=512, generated="many")
@samples(
    lambda t: [
        (t.constant(t(2, 3, 2, 3)), t.constant(t(2, 3, 3, 4)), t.constant(t.uniform(-0.9, 0.9, 2, 2, 3, 2)), *more)
        for more in (("zeros", False), ("border", True))
    ]
)
def grid_linear_slopes(xp, grad_output, input, grid, padding: str, align: bool):
    """The gradient of `grid_linear` by its grid.

    grad_output (N, C, *out), input (N, C, *size), grid (N, *out, n) -> (N, *out, n).
    """
    at, parts = _grids.around(xp, grid, input.shape[2:], padding, align)
    flat = grad_output.reshape(*grad_output.shape[:2], at.shape[2])
    return _grids.slopes(xp, _grids.products(xp, flat, input, at), parts).reshape(grid.shape)


def _slopes(grad: Tensor, input: Tensor, grid: Tensor, padding: str, align: bool) -> Tensor | None:
    if not mode.enabled:
        return grid_linear_slopes(grad, input, grid, padding, align)
    parts = lambda input, grid: by_parts(input, grid, "bilinear", padding, align)
    return vjp(parts, [input, grid], [grad], [False, True])[1]


_WHOLE = {"nearest": grid_nearest, "bilinear": grid_linear}


def sampled(input: Tensor, grid: Tensor, how: str, padding: str, align: bool) -> Tensor:
    """`grid_sample` of what has been checked: input (N, C, *size), grid (N, *out, len(size)) -> (N, C, *out)."""
    if how not in _WHOLE or input.dtype not in (float32, float64):
        return by_parts(input, grid, how, padding, align)
    return _WHOLE[how](input, grid, padding, bool(align))
