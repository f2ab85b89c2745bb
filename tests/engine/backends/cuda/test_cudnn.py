"""cuDNN's binding: handles follow device, stream and thread, plans are kept, settings act, absence is a sentence."""

from __future__ import annotations

import ctypes
import os
import re
import sysconfig
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import cuda
from engine.backends import cudnn as settings
from engine.backends.cuda import cudnn
from engine.backends.cuda import cudnn_arrays as _arrays
from tests.engine import standin
from tests.engine.standin import cudnn_c, cudnn_graphs

pytestmark = pytest.mark.cuda
F = engine.nn.functional
only_here = pytest.mark.skipif(standin.REAL, reason="asks the stand-in")


def conv(seed: int = 0, dtype: Any = engine.float32, **more: Any) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    x, w = (engine.tensor(draw.standard_normal(s)).to(dtype).cuda() for s in ((2, 4, 6, 6), (8, 4, 3, 3)))
    return x, F.conv2d(x, w, **more)


@only_here
def test_plans_are_kept_by_shape_type_layout_and_geometry(gpu: Any) -> None:
    library = gpu.runtime.state.cudnn
    conv()
    conv(seed=1)
    assert library.cache_info() == {"kept": 1, "made": 1, "found": 1}
    conv(padding=1)
    conv(dtype=engine.float16)
    x, _ = conv()
    F.conv2d(x.to(memory_format=engine.channels_last), engine.ones(8, 4, 3, 3, device="cuda"))
    assert library.cache_info()["made"] == 4


@only_here
def test_the_oldest_plan_goes_first(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cudnn, "PLANS", 2)
    library = gpu.runtime.state.cudnn
    for padding in (0, 1, 2, 0):
        conv(padding=padding)
    assert library.cache_info() == {"kept": 2, "made": 4, "found": 0}


@only_here
def test_handles_are_of_one_thread_device_and_stream(two: Any) -> None:
    library = two.runtime.state.cudnn

    def handles() -> list[Any]:
        return [t.values for t in cudnn_c.things.values() if t.kind == "handle"]

    conv()
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        _, there = conv()
    cuda.current_stream().wait_stream(side)
    _, here = conv()
    assert engine.equal(here.cpu(), there.cpu()) and len(handles()) == 1
    with cuda.device(1):
        conv()
    found: list[Any] = []
    one = threading.Thread(target=lambda: found.append(conv()[1].cpu()))
    one.start()
    one.join()
    assert engine.equal(found[0], here.cpu())
    assert sorted(h["device"] for h in handles()) == [0, 0, 1]
    assert library.handle() == library.handle()


@only_here
def test_benchmark_keeps_the_fastest_that_runs(gpu: Any) -> None:
    _, plain = conv()
    with settings.flags(enabled=True, benchmark=True):
        cudnn_graphs.calls.clear()
        _, found = conv()
        assert len(cudnn_graphs.calls) == 5  # two of three engines run, twice each; then the call itself
        conv()
        assert len(cudnn_graphs.calls) == 6
    assert engine.equal(found.cpu(), plain.cpu())


@only_here
@pytest.mark.parametrize(
    ("flags", "dtype", "notes"),
    [
        ({}, engine.float32, {"DOWN_CONVERT_INPUTS"}),
        ({"allow_tf32": False}, engine.float32, {"DOWN_CONVERT_INPUTS", "TENSOR_CORE"}),
        ({"allow_tf32": False}, engine.float16, {"DOWN_CONVERT_INPUTS"}),
        ({"deterministic": True}, engine.bfloat16, {"DOWN_CONVERT_INPUTS", "NONDETERMINISTIC"}),
    ],
)
def test_settings_choose_engines(flags: dict[str, bool], dtype: Any, notes: set[str], gpu: Any) -> None:
    library = gpu.runtime.state.cudnn
    with settings.flags(enabled=True, **flags):
        conv(dtype=dtype)
    graph = next(iter(library._plans.values())).graph
    assert {n.name for n in graph.deselected} == notes


def test_switched_off_the_fallback_computes(gpu: Any) -> None:
    _, wanted = conv()
    cudnn_graphs.calls.clear()
    with settings.flags(enabled=False):
        _, found = conv()
        assert _arrays.why_not() == "torch.backends.cudnn.enabled is False"
    assert not cudnn_graphs.calls
    assert engine.allclose(found, wanted, 1e-3, 1e-3)


@only_here
def test_settings_are_restored_and_version_is_told(gpu: Any) -> None:
    assert settings.version() == cudnn_c.VERSION and settings.is_available()
    assert settings.is_acceptable(engine.ones(1, device="cuda")) and not settings.is_acceptable(engine.ones(1))
    assert not settings.is_acceptable(engine.ones(1, dtype=engine.int32, device="cuda"))
    before = settings.set_flags(_benchmark=True, _benchmark_limit=0)
    assert settings.benchmark and settings.benchmark_limit == 0
    assert settings.set_flags(*before)[1:3] == (True, 0)
    with pytest.raises(RuntimeError, match="Invalid precision"), settings.flags(fp32_precision="half"):
        pass


@only_here
def test_without_cudnn_everything_is_computed_and_a_sentence_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with standin.running(cudnn=False):
        assert settings.version() is None and not settings.is_available()
        assert _arrays.used() is None and "no cuDNN" in str(_arrays.why_not())
        found = conv()[1].cpu()
    with standin.running():
        wanted = conv()[1].cpu()
    assert engine.allclose(found, wanted, 1e-4, 1e-4)
    monkeypatch.setattr(ctypes, "CDLL", lambda path: (_ for _ in ()).throw(OSError(path)))
    with pytest.raises(RuntimeError, match=r"cuDNN 9 was not found: pip install 'hubcli\[cuda13\]'"):
        cudnn._open()


@only_here
def test_without_the_frontend_networks_and_pooling_are_left_to_cudnn(gpu: Any) -> None:
    library = gpu.runtime.state.cudnn
    library.frontend = None
    assert "nvidia-cudnn-frontend was not found: pip install" in str(_arrays.why_not())
    x, found = conv()
    assert not library.cache_info()["made"]
    F.max_pool2d(x, 2)
    engine.nn.LSTM(6, 3).cuda()(x[0])
    assert {"cudnnPoolingForward", "cudnnRNNForward"} <= set(library.library.calls)
    assert engine.allclose(found.cpu(), conv()[1].cpu(), 1e-4, 1e-4)


@only_here
def test_an_error_of_cudnns_names_the_call(gpu: Any) -> None:
    library = gpu.runtime.state.cudnn
    with library.descriptor("Tensor") as made:
        wrong = (made, 0, 3, cudnn.ints((1, 0, 2)), cudnn.ints((2, 2, 1)))
        with pytest.raises(cudnn.CudnnError, match="cuDNN refused cudnnSetTensorNdDescriptor: CUDNN_STATUS_BAD_PARAM"):
            library.call("cudnnSetTensorNdDescriptor", *wrong)


@only_here
def test_what_fails_on_the_card_switches_its_route_off(gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wanted = conv()

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")

    monkeypatch.setattr(cudnn_graphs.pygraph, "execute", broken)
    with pytest.warns(RuntimeWarning, match="cudnn convolution .*im2col and products computes instead") as warned:
        _, found = conv()
        conv()
    assert len(warned) == 1
    assert engine.allclose(found, wanted, 1e-4, 1e-4)


# --- the real library: prototypes, numbers of enumerations, exported names


def headers() -> str:
    pure = Path(sysconfig.get_path("purelib")) / "nvidia"
    for wheel in ("cudnn", "cudnn_jit"):
        if (pure / wheel / "include" / "cudnn_adv.h").exists():
            folder = pure / wheel / "include"
            return "\n".join((folder / f"cudnn_{n}.h").read_text() for n in ("graph", "ops", "adv"))
    if os.environ.get("REQUIRE_CUPY") == "1":
        raise AssertionError("no cuDNN wheel: pip install '.[cudatest]'")
    pytest.skip("without cuDNN's headers; make test-cuda installs them")


def letter(parameter: str) -> str:
    kind = parameter.strip()
    if "*" in kind or "[" in kind or re.search(r"(Descriptor_t|Handle_t|cudaStream_t|cudnnHandle_t)\b", kind):
        return "p"
    if "size_t" in kind:
        return "z"
    for word, found in (("float", "f"), ("unsigned long long", "q"), ("uint32_t", "u")):
        if word in kind:
            return found
    assert re.search(r"\b(int|int32_t|cudnn\w+_t)\b", kind), kind
    return "i"


def test_signatures_are_those_of_the_headers() -> None:
    text = re.sub(r"/\*.*?\*/", "", headers(), flags=re.DOTALL)
    for name, letters in cudnn.SIGNATURES.items():
        found = re.search(rf"\b{name}\(([^;]*?)\)\s*;", text, re.DOTALL)
        assert found, f"{name} is not in the headers"
        parts = [p for p in found[1].split(",") if p.strip() not in ("", "void")]
        assert "".join(map(letter, parts)) == letters, name


def test_numbers_are_those_of_the_headers() -> None:
    from engine.backends.cuda import cudnn_pool, cudnn_rnn

    text = headers()
    for name, value in {
        "CUDNN_DATA_FLOAT": cudnn.DATA["float32"],
        "CUDNN_DATA_DOUBLE": cudnn.DATA["float64"],
        "CUDNN_DATA_HALF": cudnn.DATA["float16"],
        "CUDNN_DATA_BFLOAT16": cudnn.DATA["bfloat16"],
        "CUDNN_POOLING_MAX_DETERMINISTIC": cudnn_pool.MAX,
        "CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING": cudnn_pool.AVERAGE,
        "CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING": cudnn_pool.AVERAGE_INSIDE,
        "CUDNN_PROPAGATE_NAN": 1,
        "CUDNN_RNN_RELU": cudnn_rnn.MODES["relu"],
        "CUDNN_RNN_TANH": cudnn_rnn.MODES["tanh"],
        "CUDNN_LSTM": cudnn_rnn.MODES["lstm"],
        "CUDNN_GRU": cudnn_rnn.MODES["gru"],
        "CUDNN_RNN_ALGO_STANDARD": cudnn_rnn.STANDARD,
        "CUDNN_LINEAR_INPUT": cudnn_rnn.LINEAR_INPUT,
        "CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED": cudnn_rnn.PACKED,
        "CUDNN_RNN_NO_BIAS": cudnn_rnn.NO_BIAS,
        "CUDNN_RNN_DOUBLE_BIAS": cudnn_rnn.DOUBLE_BIAS,
        "CUDNN_DEFAULT_MATH": cudnn_rnn.DEFAULT_MATH,
        "CUDNN_TENSOR_OP_MATH": cudnn_rnn.TENSOR_OP_MATH,
        "CUDNN_FMA_MATH": cudnn_rnn.FMA_MATH,
        "CUDNN_FWD_MODE_INFERENCE": cudnn_rnn.INFERENCE,
        "CUDNN_FWD_MODE_TRAINING": cudnn_rnn.TRAINING,
        "CUDNN_WGRAD_MODE_ADD": cudnn_rnn.WGRAD_ADD,
        "CUDNN_UNIDIRECTIONAL": 0,
        "CUDNN_BIDIRECTIONAL": 1,
    }.items():
        found = re.search(rf"\b{name}\b[^=,;]*=\s*(\d+)", text)
        assert found and int(found[1]) == value, name


def test_the_library_exports_what_is_called() -> None:
    headers()
    library = cudnn.declared(cudnn._open())
    assert library.cudnnGetVersion() >= 91000
    assert library.cudnnGetErrorString(2000) == b"CUDNN_STATUS_BAD_PARAM"
