"""The module that `import torch` gives, for what reads or runs a user's program: names in it are looked up there.

A module of the engine that computes with tensors takes torch's functions from `engine.ops.functions` instead.
"""

import sys
from types import ModuleType

__all__ = ["facade"]


def facade() -> ModuleType:
    """Return `engine`, which every import of one of its modules has begun with."""
    return sys.modules["engine"]
