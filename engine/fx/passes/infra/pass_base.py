"""The base of passes over graphs: what must hold before, the change, what holds after (torch.fx.passes.infra)."""

from __future__ import annotations

import abc
from typing import NamedTuple

from engine.fx.graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """The result of a pass: the module, and whether the pass changed anything."""

    graph_module: GraphModule
    modified: bool


class PassBase(abc.ABC):
    """A pass: `call` changes a GraphModule; `requires` and `ensures` may raise before and after it."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """`requires`, `call` and `ensures` of a module, in this order.  -> what `call` gave."""
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abc.abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """The pass itself."""

    def requires(self, graph_module: GraphModule) -> None:
        """Raises where the pass cannot be run; by default it can be on anything."""
        return None

    def ensures(self, graph_module: GraphModule) -> None:
        """Raises where the result is not as it should be; by default nothing is looked at."""
        return None
