"""torch.__config__: how the engine computes."""

from __future__ import annotations

__all__ = ["parallel_info", "show"]


def show() -> str:
    """A line on the array library."""
    import numpy

    return f"engine on numpy {numpy.__version__}"


def parallel_info() -> str:
    """The number of BLAS's threads, as text."""
    from engine.torch_names._top_level import get_num_threads

    return f"BLAS threads: {get_num_threads()}"
