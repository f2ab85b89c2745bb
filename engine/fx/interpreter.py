"""torch.fx.interpreter's names: nothing is traced."""

from engine.fx import Interpreter, Transformer

__all__ = ["Interpreter", "Transformer"]
