"""PassBase."""

from __future__ import annotations

import pytest

import engine
from engine import fx, nn
from engine.fx.passes.infra.pass_base import PassBase, PassResult


class Twice(PassBase):
    """Every call of a module becomes two."""

    def __init__(self, seen: list[str]) -> None:
        self.seen = seen

    def requires(self, graph_module: fx.GraphModule) -> None:
        self.seen.append("requires")
        if not any(n.op == "call_module" for n in graph_module.graph.nodes):
            raise ValueError("no module is called")

    def call(self, graph_module: fx.GraphModule) -> PassResult:
        self.seen.append("call")
        for node in list(graph_module.graph.nodes):
            if node.op == "call_module":
                with graph_module.graph.inserting_after(node):
                    again = graph_module.graph.call_module(node.target, (node,))
                node.replace_all_uses_with(again, lambda user, again=again: user is not again)
        graph_module.recompile()
        return PassResult(graph_module, True)

    def ensures(self, graph_module: fx.GraphModule) -> None:
        self.seen.append("ensures")
        graph_module.graph.lint()


def test_a_pass_looks_changes_and_looks_again() -> None:
    seen: list[str] = []
    module = fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2)))
    result = Twice(seen)(module)
    assert result is not None and result.modified and result.graph_module is module
    assert seen == ["requires", "call", "ensures"]
    x = engine.ones(1, 2)
    layer = module.get_submodule("0")
    assert engine.equal(module(x), layer(layer(x)))


def test_a_pass_that_may_not_run_changes_nothing() -> None:
    seen: list[str] = []
    empty = fx.GraphModule(nn.Module(), fx.Graph())
    with pytest.raises(ValueError, match="no module is called"):
        Twice(seen)(empty)
    assert seen == ["requires"]
    with pytest.raises(TypeError, match="abstract"):
        PassBase()  # type: ignore[abstract]
