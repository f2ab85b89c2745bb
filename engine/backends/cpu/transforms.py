"""Fourier transforms: scipy's for many elements, where it is installed, else numpy's.

Both are pocketfft.  scipy's computes several rows of float32 in one vector, walks dims other than the last without a
copy of each, caches what it knows of a size, and shares rows among threads.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.backends.cpu import threads

if TYPE_CHECKING:
    from engine.core.arrays import Array, ArrayModule

__all__ = ["transform"]

_FEW = 1 << 9  # elements below which numpy's call is the shorter one
_SHARED = 1 << 17  # elements from which threads share the rows
_left = [1 << 21]  # elements until scipy is loaded, which takes 0.1 s


@functools.cache
def _library() -> ModuleType | None:
    """Return scipy's transforms; None where it is not installed."""
    try:
        from scipy import fft
    except ImportError:
        return None
    return fft  # type: ignore[no-any-return]


def transform(xp: ArrayModule, name: str, input: Array, **options: Any) -> Array:
    """Return xp.fft's function of that name (fftn, ifftn, rfftn or irfftn) of `input`, with axes, norm and s."""
    if xp.fft is np.fft and input.size >= _FEW:
        if _left[0] > 0 and "scipy.fft" not in sys.modules:
            _left[0] -= input.size
        elif (library := _library()) is not None:
            workers = threads.get_num_threads() if input.size >= _SHARED else 1
            shared: Array = getattr(library, name)(np.asarray(input), workers=workers, **options)
            return shared
    made: Array = getattr(xp.fft, name)(input, **options)
    return made
