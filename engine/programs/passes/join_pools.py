"""A maximum pooling whose windows lie side by side, as 2x2 by 2 do, and the rectifier behind it as one pass, and so
their gradients.

Generated code for channels-last images (extra `jit`, `Rectified` in engine/ops/pooling/generated.py).  Backward
needs a byte for each window instead of the images, whose memory is free at once.  The sum of a pooling's gradient
over all but channels, as a bias's is, comes out of the same pass.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from engine.backends.cpu.relayout import to_channels_last
from engine.backends.onednn import library
from engine.core.dtypes import uint8
from engine.core.layouts import ChannelsLast
from engine.fx.graph import Graph
from engine.fx.node import Node
from engine.kernels import processor
from engine.ops import activation, pooling, reduction
from engine.tensor import raw_array, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.dispatch.record import Public
    from engine.tensor import Tensor

__all__ = ["join_pools"]

_POOL, _RELU, _SUM = pooling.max_pool2d_values, activation.relu, reduction.sum
_GRADIENT, _THRESHOLD = pooling.max_pool_gradient, activation.threshold_backward


def join_pools(graph: Graph) -> None:
    """Make each pair one call."""
    if not processor.available() or library.load() is None or not library.state.enabled:
        return
    for node in list(graph.nodes):
        if node.target is _RELU and len(node.args) == 1 and not node.kwargs:
            _joined(graph, node)


def _tiled(pool: object) -> bool:
    """Return whether a value is the maxima of images of float32, of which each place is in one window."""
    if not isinstance(pool, Node) or pool.target is not _POOL or pool.kwargs or not isinstance(pool.args[0], Node):
        return False
    (shape, kind), (kernel, stride, padding, dilation) = pool.args[0].meta["kind"], pool.args[1:5]
    whole = not any(n % k for n, k in zip(shape[2:], kernel)) and kind == np.float32
    return whole and tuple(stride) == tuple(kernel) and not any(padding) and set(dilation) == {1}


def _joined(graph: Graph, relu: Node) -> None:
    pool = relu.args[0]
    if not _tiled(pool):
        return
    source, geometry = pool.args[0], pool.args[1:5]
    back = [n for n in pool.users if n.target is _GRADIENT and n.args[1:3] == (source, pool)]
    slopes = [n.args[0] for n in back]
    if set(pool.users) != {relu, *back}:
        return
    for slope, gradient in zip(slopes, back):
        own = isinstance(slope, Node) and slope.target is _THRESHOLD and slope.args[1:] == (relu, 0)
        if not own or set(slope.users) != {gradient}:
            return
    forward, backward = _calls(source.meta["kind"][0], geometry)
    with graph.inserting_before(pool):
        both = graph.call_function(forward, (source,))
        made, saved = (graph.call_function(operator.getitem, (both, n)) for n in range(2))
    both.meta = dict.fromkeys(("effect", "view", "inplace"), False) | {"later": relu.meta.get("later")}
    made.meta, saved.meta = dict(relu.meta), dict(both.meta)
    relu.replace_all_uses_with(made)
    for slope, gradient in zip(slopes, back):
        sums = [n for n in gradient.users if n.target is _SUM and n.args[1:] == ((0, 2, 3),) and not n.kwargs][:1]
        with graph.inserting_before(gradient):
            found = graph.call_function(backward, (slope.args[0], saved, bool(sums)))
            parts = [graph.call_function(operator.getitem, (found, n)) for n in range(2)] if sums else [found]
        found.meta = dict(gradient.meta)
        for part, old in zip(parts, (gradient, *sums)):
            part.meta = dict(old.meta)
            old.replace_all_uses_with(part)
        for old in (*sums, gradient, slope):
            graph.erase_node(old)
    graph.erase_node(relu)
    graph.erase_node(pool)


def _calls(shape: tuple[int, ...], geometry: Sequence[Sequence[int]]) -> tuple[Public, Public]:
    """(x -> (its maxima of at least 0, what is saved), (gradient, what is saved, whether to sum) -> gradient of x).

    shape: of x.  What is saved is x where the generated code does not serve.  Summed: the second gives the sums over
    all but channels (C) as well."""
    from engine.ops.pooling.generated import Rectified

    code = Rectified(shape, tuple(geometry[0]))  # type: ignore[arg-type]  # two of them

    def plain_gradient(gradient: Tensor, x: Tensor, summed: bool) -> Tensor | tuple[Tensor, Tensor]:
        pooled = _POOL(x, *geometry, False)
        found = _GRADIENT(_THRESHOLD(gradient, pooled, 0), x, pooled, *geometry)
        return (found, _SUM(found, (0, 2, 3))) if summed else found

    def rectified_pool(x: Tensor) -> tuple[Tensor, ...]:
        def plain(slope: Array) -> tuple[Array, ...]:
            return raw_array(_RELU(_POOL(x, *geometry, False))), *map(raw_array, plain_gradient(wrap(slope), x, True))

        array = raw_array(x)
        made = code.forward(array, plain) if array.__class__ is ChannelsLast else None
        if made is None:
            return _RELU(_POOL(x, *geometry, False)), x
        return tuple(map(wrap, made))

    def rectified_pool_gradient(gradient: Tensor, saved: Tensor, summed: bool) -> Tensor | tuple[Tensor, ...]:
        if saved.dtype is not uint8:
            return plain_gradient(gradient, saved, summed)
        made = code.backward(to_channels_last(raw_array(gradient)), raw_array(saved), summed)
        return tuple(map(wrap, made)) if summed else wrap(made)

    return rectified_pool, rectified_pool_gradient
