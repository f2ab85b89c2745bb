"""torch.jit.annotations' names: the types that annotations of scripted code are written with."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Dict, List, Optional, Tuple, Union  # noqa: UP035  the names that code imports here

from engine.jit.archive.futures import Future

__all__ = [
    "Any",
    "BroadcastingList1",
    "BroadcastingList2",
    "BroadcastingList3",
    "BroadcastingList4",
    "BroadcastingList5",
    "BroadcastingList6",
    "Dict",
    "Future",
    "List",
    "Optional",
    "Tuple",
    "Union",
]


class _BroadcastingList:
    """`BroadcastingList2[int]`: two ints, or one for both; as an annotation, a list."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __getitem__(self, item: Any) -> Any:
        return Annotated[list[item], self.count]  # type: ignore[valid-type]


BroadcastingList1, BroadcastingList2, BroadcastingList3 = (_BroadcastingList(n) for n in (1, 2, 3))
BroadcastingList4, BroadcastingList5, BroadcastingList6 = (_BroadcastingList(n) for n in (4, 5, 6))


def is_function_or_method(the_callable: Any) -> bool:
    """Whether a callable is a Python function or method."""
    return inspect.isfunction(the_callable) or inspect.ismethod(the_callable)


def check_fn(fn: Any, loc: Any) -> None:
    """Nothing: no source is compiled."""
