"""torch.utils.tensorboard's name: event files are not written."""

from __future__ import annotations

from typing import Any

__all__ = ["SummaryWriter"]


class SummaryWriter:
    """NotImplementedError: event files are not written."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            "torch.utils.tensorboard.SummaryWriter is not supported: use the tensorboardX package or write a CSV file"
        )
