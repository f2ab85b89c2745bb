"""The processor's instruction set, as numpy found it."""

from __future__ import annotations

import platform

# numpy's names, the newest first: (feature, the name that people know)
_KNOWN = (
    ("AVX512_SPR", "AVX-512 (Sapphire Rapids)"),
    ("AVX512F", "AVX-512"),
    ("AVX2", "AVX2"),
    ("AVX", "AVX"),
    ("SSE42", "SSE4.2"),
    ("SSE41", "SSE4.1"),
    ("SVE", "SVE"),
    ("ASIMD", "NEON"),
    ("NEON", "NEON"),
)


def describe() -> str:
    """`x86_64, AVX-512`: the architecture, and the newest vector instructions that the processor has."""
    machine = platform.machine() or "unknown"
    found = instructions()
    return f"{machine}, {found}" if found else machine


def instructions() -> str | None:
    """The newest vector instructions of the processor; None where numpy does not say."""
    try:
        from numpy._core._multiarray_umath import __cpu_features__ as features
    except ImportError:  # not a public name
        return None
    return next((name for feature, name in _KNOWN if features.get(feature)), None)
