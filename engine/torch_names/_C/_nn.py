"""torch._C._nn: the functions of torch.nn.functional, and the parser of the arguments of `Module.to`."""

from __future__ import annotations

from typing import Any

from engine.nn import functional
from engine.nn.modules._conversions import _parse_to

__all__ = ["_parse_to"]


def __getattr__(name: str) -> Any:
    return getattr(functional, "logsigmoid" if name == "log_sigmoid" else name)
