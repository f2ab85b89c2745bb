"""torch.fx.proxy's names: nothing is traced."""

from engine.fx import Proxy, Tracer

__all__ = ["Attribute", "GraphAppendingTracer", "ParameterProxy", "Proxy", "TraceError", "Tracer", "TracerBase"]

TracerBase = Tracer


class TraceError(ValueError):
    """What torch raises for code that cannot be traced; never raised here."""


class GraphAppendingTracer(TracerBase):
    """NotImplementedError when it traces."""


class Attribute(Proxy):
    """An attribute of a value of a graph; none is made."""


class ParameterProxy(Proxy):
    """A parameter as a value of a graph; none is made."""
