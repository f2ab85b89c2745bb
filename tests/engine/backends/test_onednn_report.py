"""What the binding says that it has on a processor, asked on several (ONEDNN_MAX_CPU_ISA stands for them)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends import onednn
from engine.backends.onednn import library
from engine.utils import config as __config__

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.onednn
needs_library = pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe())
CODE = """
import importlib.util
import json
from engine import __config__
from engine.backends.onednn import report
print(json.dumps([report.instructions(), report.implementations(), report.declined(), __config__.show()]))
"""
BACKWARD = ["softmax_backward", "log_softmax_backward"]


def on(**environment: str) -> Any:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("ONEDNN_")}
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        capture_output=True,
        text=True,
        timeout=120,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_library
@pytest.mark.parametrize("name, lacking", [("SSE41", BACKWARD), ("AVX2", BACKWARD)])
def test_older_processors(name: str, lacking: list[str]) -> None:
    used, implementations, declined, shown = on(ONEDNN_MAX_CPU_ISA=name)
    if onednn.describe().startswith("oneDNN 3.2."):
        assert declined == lacking
    assert used in (name, "SSE41", "AVX")  # a processor may have less than is allowed
    assert set(declined) == {kind for kind, found in implementations.items() if found is None}
    assert f"oneDNN's instructions: {used}" in shown
    assert all(kind in shown for kind in declined)


@needs_library
def test_this_processor() -> None:
    from engine.backends.onednn import arrays, report

    found = report.implementations()
    assert len(found) > 20 and found["convolution"] and found["softmax"]
    recurrent = ("lstm", "gru")  # of these the one called so is made of products
    assert not [k for k, name in found.items() if name and name.startswith("ref") and k not in recurrent]
    assert report.instructions() in report.summary()
    x = np.ones((4, 4), "float32")
    assert report.implementation(lambda: arrays.sgemm(x, x, x.copy())) == "gemm"
    assert report.implementation(lambda: arrays.by_channel(np.ones((1, 2, 1), "float32"), x[0], x[0], x)) is None


def test_without_the_library() -> None:
    used, implementations, declined, shown = on(ENGINE_ONEDNN="0")
    assert used is None and not implementations and not declined
    assert "oneDNN off: ENGINE_ONEDNN=0" in shown


def test_what_is_shown_names_numpy_and_the_processor() -> None:
    lines = __config__.show().splitlines()
    assert lines[0] == f"engine on numpy {np.__version__}" and lines[1].startswith("processor: ")
    assert __config__.show() == "\n".join(lines)


@pytest.fixture
def processors(monkeypatch: pytest.MonkeyPatch) -> Any:
    spec = importlib.util.spec_from_file_location("processors", ROOT / "scripts" / "processors.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("instructions", "features", "skipped"),
    [
        ("AVX2", ["X86_V3"], ["avx2", "onednn-avx2", "jit-avx2"]),
        ("AVX2", ["X86_V3", "X86_V4"], []),
        ("AVX512_CORE_AMX", ["X86_V3", "X86_V4", "AVX512_SPR"], []),
        ("AVX2_VNNI", ["X86_V3"], []),
        (None, ["X86_V3"], []),
    ],
)
def test_a_variant_that_is_this_processor_is_not_run_twice(
    processors: Any,
    monkeypatch: pytest.MonkeyPatch,
    instructions: str | None,
    features: list[str],
    skipped: list[str],
) -> None:
    ran: list[str] = []
    monkeypatch.setattr(library, "instructions", lambda: instructions)
    monkeypatch.setattr(processors, "dispatched", lambda: features)
    done = subprocess.CompletedProcess([], 0)
    monkeypatch.setattr(processors.subprocess, "run", lambda *a, env, **k: ran.append(env["ENGINE_JIT"]) or done)
    assert processors.main([]) == 0 and len(ran) == len(processors.VARIANTS) - len(skipped)
    assert processors.main(["avx2"]) == 0 and len(ran) == len(processors.VARIANTS) - len(skipped) + 1  # asked for
    assert skipped in ([], [name for name, variant in processors.VARIANTS.items() if variant.repeats])


@pytest.mark.parametrize("name", ["sse41", "avx2"])
def test_the_variants_of_the_suite_are_what_they_say(processors: Any, name: str) -> None:
    """scripts/processors.py takes the newer kernels from oneDNN and from numpy."""
    variant = processors.VARIANTS[name]
    code = "import json, numpy; from numpy._core._multiarray_umath import __cpu_features__ as f; print(json.dumps(f))"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, **variant.environment()},
    )
    assert done.returncode == 0, done.stderr
    features = json.loads(done.stdout)
    newer = [f for f in processors.dispatched() if f.startswith(variant.without)]
    assert not [f for f in newer if features[f]]
    assert on(**variant.environment())[0] in (None, variant.onednn, "SSE41", "AVX")
