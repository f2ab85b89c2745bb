"""The processor's features, and whether kernels are generated for it: each op reads them at its first call, so that
nothing of the generator is imported here.

ENGINE_JIT=0 disables generated code; `always` is for tests.  ONEDNN_MAX_CPU_ISA (SSE41, AVX2, AVX512_CORE ...) limits
its instructions as it limits oneDNN's.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import platform

from numpy._core._multiarray_umath import __cpu_features__

from engine.kernels import cpython

__all__ = ["Target", "always", "available", "describe", "target"]

_OFF = ("0", "off", "false", "no")


@functools.cache
def available() -> bool:
    """Return whether kernels can be built: llvmlite is there, and ENGINE_JIT does not forbid it.  Imports nothing."""
    if os.environ.get("ENGINE_JIT", "").lower() in _OFF:
        return False
    return importlib.util.find_spec("llvmlite") is not None and target() is not None and cpython.readable("arrays")


@functools.cache
def always() -> bool:
    """ENGINE_JIT=always, for tests: whatever has generated code takes it, from the first call and for one element."""
    return os.environ.get("ENGINE_JIT", "").lower() == "always"


def describe() -> str:
    """One line for reports: the version and the processor, or why there is none."""
    if os.environ.get("ENGINE_JIT", "").lower() in _OFF:
        return "off: ENGINE_JIT=0"
    if importlib.util.find_spec("llvmlite") is None:
        return "off: llvmlite is not installed (pip install 'hubcli[jit]')"
    found = target()
    if found is None:
        return f"off: no code is generated for {platform.machine()}"
    from importlib.metadata import version

    return f"llvmlite {version('llvmlite')}, {found.level}"


class Target:
    """A processor: LLVM's name, features, and what they are called."""

    def __init__(self, level: str, processor: str, features: str, halves: bool, wide: bool) -> None:
        self.level, self.processor, self.features = level, processor, features
        self.halves = self.fused = halves  # instructions convert float16, and add a product with one rounding
        self.masks = wide  # loads and stores of some lanes cost little

    @property
    def attributes(self) -> str:
        """For functions: what may be used."""
        width = ' "prefer-vector-width"="512"' if self.masks else ""
        return f'"target-cpu"="{self.processor}" "target-features"="{self.features}"{width}'


@functools.cache
def target() -> Target | None:
    """The processor as ONEDNN_MAX_CPU_ISA limits it; None for machines that are not known here."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return Target("NEON", "generic", "", True, False)
    if machine not in ("x86_64", "amd64"):
        return None
    most = os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper() or "ALL"
    has = __cpu_features__
    avx512 = has.get("AVX512_SKX") or has.get("X86_V4")
    avx2 = (has.get("AVX2") and has.get("FMA3") and has.get("F16C")) or has.get("X86_V3")
    if avx512 and (most == "ALL" or most.startswith(("AVX512", "AVX10"))):
        return Target("AVX-512", "x86-64-v4", "", True, True)
    if avx2 and (most == "ALL" or most.startswith(("AVX2", "AVX512", "AVX10"))):
        return Target("AVX2", "x86-64-v3", "", True, False)
    return Target("SSE4.1", "x86-64", "+ssse3,+sse4.1", False, False)
