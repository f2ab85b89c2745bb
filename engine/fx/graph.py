"""torch.fx.graph's names: nothing is traced."""

from engine.fx import Graph

__all__ = ["Graph"]
