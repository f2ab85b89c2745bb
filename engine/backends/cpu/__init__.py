"""The CPU: memory for large arrays (`allocator`), a few threads (`threads`), large operations in blocks (`blocks`).

Nothing here is imported before the first large array.  Small operations call numpy and never import it.
"""

from __future__ import annotations

from engine.backends.cpu.allocator import LARGE, empty

__all__ = ["LARGE", "empty", "get_cpu_capability"]


def get_cpu_capability() -> str:
    """The widest vector instructions that numpy uses here, as torch names them: `AVX512`, `AVX2` or `DEFAULT`."""
    import numpy as np

    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]  # type: ignore[call-overload, index]
    for part, name in (
        ("AVX512", "AVX512"),
        ("X86_V4", "AVX512"),
        ("AVX2", "AVX2"),
        ("X86_V3", "AVX2"),
    ):
        if any(feature.startswith(part) for feature in found):
            return name
    return "DEFAULT"
