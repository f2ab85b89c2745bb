"""torch.jit.annotations' names: the types that annotations of scripted code are written with."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union  # noqa: UP035

from engine.jit import Future

__all__ = ["Any", "Dict", "Future", "List", "Optional", "Tuple", "Union"]
