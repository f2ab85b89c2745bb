"""oneDNN on the CPU through cffi (ABI mode): the library, cached primitives, and array functions over them.

Knows no op: `onednn.py` of each family in `engine/ops` gives these functions to ops.  Loaded at the first large call.
"""

from engine.backends.onednn.library import describe, is_available, load

__all__ = ["describe", "is_available", "load"]
