"""Passes: functions of an `fx.Graph` that change it in place, for programs of inference and of training."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.fx.graph import Graph
from engine.programs.graph import check

__all__ = ["apply"]

check_each = False  # whether graphs are checked after each pass, as in tests


def apply(graph: Graph, passes: Iterable[Callable[[Graph], None]]) -> None:
    """Apply passes in order."""
    for change in passes:
        change(graph)
        if check_each:
            check(graph)
