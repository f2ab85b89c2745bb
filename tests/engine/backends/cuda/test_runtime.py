"""Starting CUDA: what is said where something is missing, and that nothing is started by asking."""

from __future__ import annotations

import builtins
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest

import engine
from engine import backends
from engine.backends.cuda import probe, runtime


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A process without CUDA so far; a writable kernel cache."""
    monkeypatch.setattr(runtime.state, "library", None)
    monkeypatch.setattr(runtime.state, "forked", False)
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.delenv("CUPY_CACHE_IN_MEMORY", raising=False)
    monkeypatch.setattr(runtime, "_distributions", lambda: ["cupy-cuda13x"])
    return monkeypatch


def cupy(driver: int = 13000, built: int = 13000, count: Any = 1, version: str = "14.2.0") -> Any:
    """A module with what is asked of CuPy before it is used."""

    def devices() -> int:
        if isinstance(count, Exception):
            raise count
        return count

    calls = types.SimpleNamespace(
        driverGetVersion=lambda: driver, runtimeGetVersion=lambda: built, getDeviceCount=devices
    )
    return types.SimpleNamespace(__version__=version, cuda=types.SimpleNamespace(runtime=calls))


def said(monkeypatch: pytest.MonkeyPatch, module: Any) -> str:
    """The sentence for a CuPy like that."""
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(RuntimeError) as caught:
        engine.ones(2).cuda()
    text = str(caught.value)
    assert "\n" not in text and caught.value.__cause__ is None
    return text


def test_without_cupy(fresh: Any) -> None:
    assert said(fresh, None).startswith("device 'cuda' needs CuPy, which is not installed: pip install")


def test_a_dependency_is_missing(fresh: Any) -> None:
    plain = builtins.__import__

    def broken(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cupy":
            raise ModuleNotFoundError("No module named 'cuda.pathfinder'", name="cuda.pathfinder")
        return plain(name, *args, **kwargs)

    fresh.setattr(builtins, "__import__", broken)
    with pytest.raises(RuntimeError, match=r"cuda.pathfinder that it needs is not: pip install --force-reinstall"):
        runtime.library()


def test_cupy_that_cannot_be_imported(fresh: Any) -> None:
    plain = builtins.__import__

    def broken(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "cupy":
            raise ImportError("libcudart.so.12: cannot open shared object file\nmore lines")
        return plain(name, *args, **kwargs)

    fresh.setattr(builtins, "__import__", broken)
    with pytest.raises(RuntimeError, match=r"cannot be imported \(libcudart.so.12: cannot open shared object file\): "):
        runtime.library()


def test_no_driver_old_driver_wrong_build(fresh: Any) -> None:
    assert "this machine has no NVIDIA driver" in said(fresh, cupy(driver=0))
    assert said(fresh, cupy(driver=12040)) == (
        "the NVIDIA driver serves CUDA 12.4, and the CuPy that is installed is built for CUDA 13: update the driver, "
        "or pip install 'hubcli[cuda12]'"
    )
    assert "CuPy 13.6.0 is installed, and the engine needs 14" in said(fresh, cupy(version="13.6.0"))
    fresh.setattr(runtime, "_distributions", lambda: ["cupy-cuda12x", "cupy-cuda13x"])
    assert said(fresh, cupy()).startswith("cupy-cuda12x and cupy-cuda13x are installed together and break each other")


def test_no_card(fresh: Any) -> None:
    fresh.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert "no NVIDIA GPU was found" in said(fresh, cupy(count=0))
    fresh.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES='' lets no GPU through" in said(fresh, cupy(count=0))
    error = RuntimeError("cudaErrorNoDevice: no CUDA-capable device is detected\nand more")
    assert "no CUDA-capable device is detected; check nvidia-smi" in said(fresh, cupy(count=error))


def test_a_kernel_cache_that_cannot_be_written(fresh: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fresh.setenv("CUPY_CACHE_DIR", str(tmp_path / "file" / "folder"))
    fresh.setitem(sys.modules, "cupy", cupy(count=0))
    with (
        pytest.warns(RuntimeWarning, match=r"compiled kernels are not stored: the folder .* cannot be written"),
        pytest.raises(RuntimeError, match="not available"),
    ):
        runtime.library()
    assert os.environ["CUPY_CACHE_IN_MEMORY"] == "1"


def test_after_a_fork(fresh: Any) -> None:
    fresh.setattr(runtime.state, "library", cupy())
    fresh.setattr(runtime.state, "stand_in", False)
    runtime._after_fork()
    with pytest.raises(RuntimeError, match=r"Cannot re-initialize CUDA in forked subprocess.*'spawn' start method"):
        runtime.library()


def test_asking_starts_nothing() -> None:
    code = (
        "import sys, engine; engine.cuda.is_available(); engine.cuda.device_count(); engine.cuda.memory_allocated();"
        "engine.manual_seed(1); assert not {'cupy', 'engine.backends.cuda.array_module'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


class Nvml:
    """NVML of a machine with two cards."""

    names = ("GPU-aaaa-1", "GPU-bbbb-2")

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = 2
        return 0

    def nvmlSystemGetCudaDriverVersion_v2(self, number: Any) -> int:
        number._obj.value = 13010
        return 0

    def nvmlSystemGetDriverVersion(self, buffer: Any, size: int) -> int:
        buffer.value = b"580.65.06"
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:
        handle._obj.value = index + 1
        return 0

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, size: int) -> int:
        buffer.value = b"Card %d" % (handle.value - 1)
        return 0

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, size: int) -> int:
        buffer.value = self.names[handle.value - 1].encode()
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, kind: int, value: Any) -> int:
        value._obj[0] = 40 + handle.value
        return 0


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        (None, [0, 1]),
        ("0", [0]),
        ("1,0", [1, 0]),
        ("", []),
        ("-1", []),
        ("0,7,1", [0]),
        ("1,1", []),
        ("GPU-bbbb", [1]),
        ("GPU-", []),
        ("nonsense", []),
    ],
)
def test_visible_devices(setting: str | None, found: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_nvml", Nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if setting is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert probe.device_count() == len(found)
    assert probe.visible() == (None if setting is None else found)


def test_what_nvml_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_nvml", Nvml)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert probe.driver() == probe.Driver("580.65.06", (13, 1), ("Card 0", "Card 1"))
    assert probe.sensor("temperature", 0) == 42
    monkeypatch.setattr(probe, "_nvml", lambda: None)
    monkeypatch.setattr(probe, "_PROC", Path("/nowhere"))
    assert probe.driver() is None and probe.device_count() == 0
    with pytest.raises(RuntimeError, match="NVML does not tell the power of cuda:0"):
        probe.sensor("power", 0)


def test_the_backend_is_not_registered_by_a_failure(fresh: Any) -> None:
    said(fresh, None)
    assert all(one.kind != "cuda" for one in backends.registered())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_numbers_beside_16_bit_tensors(dtype: str, gpu: Any) -> None:
    """CuPy takes numpy's scalars beside its arrays, and none of numpy's arrays, 0-dim ones neither."""
    x = engine.tensor([1.5, -0.25, 3.0], dtype=getattr(engine, dtype))
    for function in (
        lambda t: t * 0.5,
        lambda t: t + 1,
        lambda t: 1 / t,
        lambda t: t > 0.5,
        lambda t: t.add(1, alpha=2),
    ):
        found, wanted = function(x.cuda()), function(x)
        assert found.dtype is wanted.dtype and engine.equal(found.cpu(), wanted)
