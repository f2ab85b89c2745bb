"""The engine's tests as other processors would run them: python scripts/processors.py [NAME ...]

What oneDNN, numpy and OpenBLAS choose by the processor is chosen as on an older one.  Without names all variants
run, one after another, but those that this processor is itself; what failed is said at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
MARKED = ("-m", "onednn and not long")
PARALLEL = ("-n", "auto", "--dist", "worksteal")
SHARED = ("-m", "not long", *PARALLEL)
ELSEWHERE = "cuda backends/cuda multiprocessing distributed package serialization"  # what computes nothing here


@dataclass(frozen=True)
class Variant:
    """`oneDNN`: its newest instructions; `numpy`: features it must do without; `blas`: OpenBLAS's processor."""

    what: str
    onednn: str = ""
    without: tuple[str, ...] = ()
    blas: str = ""
    options: tuple[str, ...] = (*MARKED, *PARALLEL)
    threads: str = ""
    jit: str = "0"  # ENGINE_JIT: "always" takes generated code from the first call; 0 none, also where llvmlite is
    tests: tuple[str, ...] = ("tests/engine",)
    repeats: str = ""  # the run that this one repeats on a processor that has no newer instructions

    def environment(self) -> dict[str, str]:
        """The variables that make it so."""
        made = {"ONEDNN_MAX_CPU_ISA": self.onednn, "OPENBLAS_CORETYPE": self.blas, "OMP_NUM_THREADS": self.threads}
        made["ENGINE_JIT"] = self.jit
        if self.without:
            made["NPY_DISABLE_CPU_FEATURES"] = " ".join(f for f in dispatched() if f.startswith(self.without))
        return {name: value for name, value in made.items() if value}


def dispatched() -> list[str]:
    """The groups of instructions that this numpy has kernels for beyond its least, by its own names."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    return [name for name in __cpu_dispatch__ if __cpu_features__.get(name)]


GENERATED = (
    "tests/engine/kernels",
    "tests/engine/ops/generated",
    "tests/engine/ops/convolution",
    "tests/engine/ops/pooling",
    "tests/engine/ops/products",
    "tests/engine/ops/random/test_generated.py",
    "tests/engine/ops/recurrent",
    "tests/engine/ops/norm",
    "tests/engine/ops/optimizer",
)
_AVX512 = ("AVX512", "X86_V4")
VARIANTS = {
    "sse41": Variant("oneDNN's part: no AVX at all", "SSE41", ("AVX", "FMA", "F16C", "X86_V3", "X86_V4"), "Nehalem"),
    "avx2": Variant(
        "the whole engine: AVX2, no AVX-512 in oneDNN, numpy, OpenBLAS",
        "AVX2",
        _AVX512,
        "Haswell",
        (*SHARED, *(f"--ignore=tests/engine/{folder}" for folder in ELSEWHERE.split())),
        repeats="make test",
    ),
    "onednn-avx2": Variant("oneDNN's part: AVX2 in oneDNN alone", "AVX2", repeats="make test"),
    "threads": Variant("oneDNN's part: this processor, all threads", options=(*MARKED, "-p", "no:xdist")),
    "jit": Variant(
        "what has generated code, in it: this processor",
        options=SHARED,
        jit="always",
        tests=(
            *GENERATED,
            "tests/engine/optim",
            "tests/engine/ops/activation",
            "tests/engine/ops/attention",
            "tests/engine/ops/loss",
            "tests/engine/ops/nn",
            "tests/engine/ops/pointwise",
            "tests/engine/programs",
            "tests/engine/test_plan.py",
        ),
    ),
    "jit-avx2": Variant(
        "generated code, plans of it: AVX2",
        "AVX2",
        _AVX512,
        "Haswell",
        options=SHARED,
        jit="always",
        tests=(*GENERATED, "tests/engine/test_plan.py"),
        repeats="jit",
    ),
    "one-thread": Variant("oneDNN's part: OMP_NUM_THREADS=1", options=(*MARKED, "-p", "no:xdist"), threads="1"),
}


def is_this_processor(variant: Variant) -> bool:
    """Return whether this processor has nothing that the variant lacks, neither for oneDNN nor for numpy."""
    from engine.backends.onednn.library import instructions

    lost = [name for name in dispatched() if name.startswith(variant.without or _AVX512)]
    return bool(variant.onednn) and instructions() == variant.onednn and not lost


def main(names: list[str]) -> int:
    """Run the variants; 0 if all passed."""
    unknown = [name for name in names if name not in VARIANTS]
    if unknown:
        print(f"no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}", file=sys.stderr)
        return 2
    failed = []
    for name in names or VARIANTS:
        variant = VARIANTS[name]
        settings = variant.environment()
        if not names and variant.repeats and is_this_processor(variant):
            print(
                f"== {name}: this processor has no newer instructions, and `{variant.repeats}` was this run", flush=True
            )
            continue
        print(f"== {name}: {variant.what} {settings}", flush=True)
        began = time.monotonic()
        command = [sys.executable, "-m", "pytest", *variant.tests, *variant.options]
        done = subprocess.run(command, cwd=ROOT, env={**os.environ, **settings}, check=False)
        print(f"== {name}: status {done.returncode} after {time.monotonic() - began:.0f} s", flush=True)
        if done.returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
