"""What kernels of channels-last images without oneDNN share (the extra `jit`).

Winograd's convolutions and those of windows read and give channels-last images, Note [Channels-last tensors] in
layouts.py; pooling and batch norm keep them so.  What is left goes to the op's own kernel in torch's order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.backends.cpu import dot
from engine.backends.cpu.fast import fast
from engine.backends.cpu.relayout import in_torch_order
from engine.core.layouts import ChannelsLast, lies_channels_last
from engine.dispatch import OPS, providers

_F32 = np.dtype("float32")
providers.dot = dot.dot


def usable(*arrays: Any) -> bool:
    """Return whether all arrays that are given are numpy's, of float32."""
    return all(a is None or (isinstance(a, np.ndarray) and a.dtype == _F32) for a in arrays)


def converted(*arrays: Any) -> bool:
    """Return whether the first is a converted image, and all are float32."""
    return type(arrays[0]) is ChannelsLast and usable(*arrays) and lies_channels_last(arrays[0])


def own(op: Any, *args: Any) -> Any:
    """Run the op's own kernel on arrays in torch's order."""
    given = [in_torch_order(a) if isinstance(a, np.ndarray) and a.ndim > 2 else a for a in args]
    return OPS[op.__name__].kernel(fast, *given)
