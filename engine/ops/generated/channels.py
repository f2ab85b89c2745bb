"""Passes over channels-last images in generated code (the extra `jit`), in front of oneDNN's; of pooling in
`engine/ops/pooling/generated.py`, of batch norm in `engine/ops/norm/generated.py`.

engine/kernels/README.md says how they are tried.
"""

from __future__ import annotations

from typing import Any

from engine.core.lru import LRU
from engine.ops.generated import launch
from engine.ops.generated.route import GeneratedRoute, linked

__all__ = ["Pass", "known"]

entries: dict[Any, launch.Entry] = {}
known: LRU[Any, Any] = LRU(1024)  # by geometry: a pass, or False


class Pass(GeneratedRoute):
    """One kernel at one geometry."""

    def __init__(self, name: str, function: Any, width: int, work: int, *options: Any) -> None:
        entry = entries.setdefault((function, width, options), launch.Entry())
        super().__init__(name, entry, work, self.compiled)
        self.function, self.width, self.options = function, width, options
        self.given: dict[str, int] = {}
        self._code: Any = None

    def compiled(self) -> Any:
        """The machine code."""
        if self._code is None:
            self._code = linked(self.function, self.width, *self.options)
        return self._code
