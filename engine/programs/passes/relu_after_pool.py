"""Move relu behind the max_pool that is its only reader.

max over a window of relu(x) is relu of the maximum, and so is the gradient: where the maximum is not above 0 no
gradient passes in both.  Pooled first, relu and its gradient have as many elements fewer as a window has (4 for
2x2).  The values are the same bits, but for the sign of zeros.
"""

from __future__ import annotations

from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node

__all__ = ["pool_first"]

_RELU, _THRESHOLD = OPS["relu"].function, OPS["threshold_backward"].function
_GRADIENT = OPS["max_pool_gradient"].function
_POOLS = {OPS[f"max_pool{d}d_values"].function for d in (2, 3)}


def pool_first(graph: Graph) -> None:
    """Move relus behind the max_pool that reads them, and their gradients before its gradient."""
    for node in graph.nodes:
        if getattr(node.target, "op", None) is OPS["relu"] and len(node.args) == 1 and not node.kwargs:
            _moved(graph, node)


def _moved(graph: Graph, relu: Node) -> None:
    source, users = relu.args[0], list(relu.users)
    pools = [n for n in users if n.target in _POOLS and n.args[0] is relu]
    if len(pools) != 1 or not isinstance(source, Node) or set(source.users) != {relu}:
        return
    if relu.meta.get("inplace") and (
        source.op != "call_function" or any(map(source.meta.get, ("view", "inplace", "effect")))
    ):
        return  # somebody else may see that memory
    (pool,) = pools
    # the gradients there are, if any: of the pooling, then of the rectifier, each read by nothing else
    back = [
        n for n in users if n.target is _GRADIENT and n.args[1] is relu and n.args[2] is pool and n.args[0] is not relu
    ]
    slopes = [n for n in users if n.target is _THRESHOLD and n.args[1:] == (relu, 0)]
    if set(users) != {pool, *back, *slopes} or not len(back) == len(slopes) <= 1:
        return
    if back and (slopes[0].args[0] is not back[0] or set(back[0].users) != {slopes[0]} or back[0].args[0] is pool):
        return
    pool.args = (source, *pool.args[1:])
    with graph.inserting_after(pool):
        after = graph.call_function(_RELU, (pool,))
    after.meta = {**relu.meta, "kind": pool.meta["kind"], "inplace": False, "effect": False}
    pool.replace_all_uses_with(after, delete_user_cb=lambda n: n is not after and n not in back)
    for gradient, slope in zip(back, slopes):
        with graph.inserting_before(gradient):
            above = graph.call_function(_THRESHOLD, (gradient.args[0], after, 0))
        above.meta = {**slope.meta, "kind": pool.meta["kind"]}
        gradient.args = (above, source, pool, *gradient.args[3:])
        slope.replace_all_uses_with(gradient)
        graph.erase_node(slope)
    graph.erase_node(relu)
