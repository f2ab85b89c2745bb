"""torch.__config__: how the engine computes."""

from __future__ import annotations

__all__ = ["parallel_info", "show"]


def show() -> str:
    """Lines on the array library, the processor's instruction set, oneDNN and what it has no kernels for here."""
    import numpy

    from engine.backends import onednn
    from engine.backends.cpu import processor

    lines = [f"engine on numpy {numpy.__version__}", f"processor: {processor.describe()}"]
    about = onednn.describe()
    lines.append(about if about.startswith("oneDNN") else f"oneDNN {about}")
    if onednn.is_available():
        from engine.backends.onednn import report

        lines.append(report.summary())
    return "\n".join(lines)


def parallel_info() -> str:
    """The number of BLAS's threads, as text."""
    from engine.backends.cpu.threads import get_num_threads

    return f"BLAS threads: {get_num_threads()}"
