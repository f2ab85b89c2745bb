"""torch.fx._symbolic_trace's names: nothing is traced."""

from engine.fx import Tracer, symbolic_trace, wrap

__all__ = ["Tracer", "symbolic_trace", "wrap"]
