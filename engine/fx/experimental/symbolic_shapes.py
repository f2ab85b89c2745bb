"""torch.fx.experimental.symbolic_shapes' questions: every size is a number, so each has its answer."""

from __future__ import annotations

from typing import Any

from engine.torch_names import refused

__all__ = ["free_symbols", "free_unbacked_symbols", "guard_or_false", "guard_or_true", "statically_known_true"]

globals().update(
    refused.names(
        "fx.experimental.symbolic_shapes",
        "GuardOnDataDependentSymNode DimDynamic ShapeEnv StatelessSymbolicContext",
        "sizes are numbers, never symbols",
    )
)


def statically_known_true(x: Any) -> bool:
    """Return whether `x`."""
    return bool(x)


guard_or_false = guard_or_true = guard_size_oblivious = statically_known_true


def free_symbols(val: Any) -> set:
    """Empty."""
    return set()


free_unbacked_symbols = free_symbols
