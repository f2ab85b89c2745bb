"""torch.nn.backends.thnn's name: pickles of 2018 mention it."""

from __future__ import annotations

from typing import Any

__all__ = ["backend"]


class THNNFunctionBackend:
    """The type of the attribute `_backend` of old modules; it holds nothing."""


backend = THNNFunctionBackend()


def _get_thnn_function_backend() -> Any:
    return backend
