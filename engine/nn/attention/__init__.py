"""torch.nn.attention's names.  There are two routes: products and softmax (`MATH`), and on a GPU cuDNN's,
which stands for each of torch's fused ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(IntEnum):
    """The kernels torch can choose from."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: Any, set_priority: bool = False) -> Iterator[None]:
    """A context: attention on a GPU may go to cuDNN if a fused kernel is among `backends`; MATH is always left."""
    from engine.backends.cuda import flags

    given = backends if isinstance(backends, list | tuple | set | frozenset) else [backends]
    before = flags.cudnn_sdp_enabled()
    flags.enable_cudnn_sdp(any(SDPBackend(b) > SDPBackend.MATH for b in given))
    try:
        yield
    finally:
        flags.enable_cudnn_sdp(before)
