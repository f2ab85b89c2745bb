"""The oneDNN binding against numpy, and how it is found, refused, shared by threads and survived by forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.backends import onednn
from engine.core.geometry import ConvGeometry, PoolGeometry
from engine.core.layouts import ChannelsLast, lies_channels_last
from engine.ops.convolution import numpy as by_numpy
from engine.ops.pooling import numpy as _pool

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.onednn
needs_library = pytest.mark.skipif(not onednn.is_available(), reason=onednn.describe())


def rand(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype("float32")


def channels_last(*shape: int) -> np.ndarray:
    return np.moveaxis(rand(shape[0], *shape[2:], shape[1]), -1, 1)


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, 1e-4, 1e-4 * max(1.0, float(abs(wanted).max())))


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# --- finding the library


def test_a_first_use_loads_neither_cffi_nor_the_library_nor_the_generator_of_kernels() -> None:
    code = (
        "import engine, sys; engine.randn(4) + 1\nprint([m for m in sys.modules if 'cffi' in m or 'onednn' in m or "
        "m.startswith('engine.kernels.') and m not in ('engine.kernels.processor', 'engine.kernels.cpython')])"
    )
    assert python(code, ENGINE_JIT="1") == "[]"


def test_off_by_the_environment() -> None:
    code = "from engine.backends import onednn; print(onednn.is_available(), onednn.describe())"
    assert python(code, ENGINE_ONEDNN="0") == "False off: ENGINE_ONEDNN=0"


def test_a_library_of_another_kind_is_refused_and_named() -> None:
    code = (
        "from engine.backends import onednn\nfrom engine.backends.onednn import library\nlibrary._candidates = lambda: "
        "[library.os.environ['ENGINE_ONEDNN_LIB']]\nprint(onednn.is_available(), onednn.describe())"
    )
    pytest.importorskip("cffi")
    import math

    found = python(code, ENGINE_ONEDNN="1", ENGINE_ONEDNN_LIB=math.__file__)
    assert found.startswith("False off: no libdnnl 3 found") and math.__file__ in found


@needs_library
def test_the_description_names_version_and_path() -> None:
    text = onednn.describe()
    assert text.startswith("oneDNN 3.")
    path = text.split("), ")[1].split(";")[0]
    code = "from engine.backends import onednn; print(onednn.describe())"
    if os.path.exists(path):
        assert python(code, ENGINE_ONEDNN_LIB=path) == text


@needs_library
def test_a_path_that_does_not_serve_is_named() -> None:
    code = "from engine.backends import onednn; print(onednn.describe())"
    found = python(code, ENGINE_ONEDNN="1", ENGINE_ONEDNN_LIB="/nowhere/libdnnl.so.3")
    assert found.startswith("oneDNN 3.") and "; not /nowhere/libdnnl.so.3: " in found


# --- numbers

GEOMETRIES = [  # input (N, C, *size), O, kernel, stride, padding, dilation, groups
    ((2, 8, 9, 7), 6, (3, 2), (1, 1), (1, 0), (1, 1), 1),
    ((2, 8, 9, 8), 4, (3, 3), (2, 2), (1, 1), (1, 2), 2),
    ((1, 8, 6, 6), 8, (3, 3), (2, 1), (1, 1), (1, 1), 8),
    ((2, 3, 12), 5, (4,), (3,), (2,), (1,), 1),
    ((1, 4, 4, 5, 6), 6, (2, 1, 3), (1, 2, 1), (0, 0, 1), (1, 1, 1), 1),
    ((2, 8, 19, 1), 8, (5, 1), (2, 1), (1, 0), (2, 1), 1),  # one column
    ((2, 8, 19, 1), 8, (5, 3), (1, 1), (2, 1), (1, 1), 2),
    ((2, 16, 19), 16, (5,), (2,), (1,), (1,), 16),  # channels of sequences apart
]


@needs_library
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_convolution(geometry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends.onednn import convolution
    from engine.backends.onednn.primitives import ready

    monkeypatch.setattr(convolution, "refuse_slow", lambda *_: None)
    size, outputs, kernel, *window, groups = geometry
    x, w, b = (
        channels_last(*size),
        rand(outputs, size[1] // groups, *kernel),
        rand(outputs),
    )
    wanted = by_numpy.forward(np, x, w, b, ConvGeometry(*window, groups))
    assert ready()
    for converted in (True, False):
        for given in (np.ascontiguousarray(x), x):
            run = convolution.Forward("key", given, w, b, wanted.shape[2:], converted, ConvGeometry(*window, groups))
            y = run(given, w, b)
            assert (type(y) is ChannelsLast) == converted and lies_channels_last(y)
            close(y, wanted)
    g = channels_last(*wanted.shape)
    of_x = np.empty_like(x)
    assert convolution.backward_input(g, w, of_x, ConvGeometry(*window, groups))
    close(of_x, by_numpy.backward_input(np, np.ascontiguousarray(g), w, x.shape, ConvGeometry(*window, groups)))
    of_w, of_b = np.empty_like(w), np.empty_like(b)
    assert convolution.backward_weight(g, x, of_w, ConvGeometry(*window, groups), of_b)
    close(of_w, by_numpy.backward_weight(np, np.ascontiguousarray(g), x, w.shape, ConvGeometry(*window, groups)))
    close(of_b, g.sum((0, *range(2, g.ndim))))


@needs_library
def test_convolution_with_what_follows() -> None:
    from engine.backends.onednn import _abi, prepared
    from engine.backends.onednn.primitives import address

    window = ((1, 1), (1, 1), (1, 1))
    x, w, more = channels_last(2, 8, 6, 6), rand(8, 8, 3, 3), channels_last(2, 8, 6, 6)
    y = np.empty_like(x)
    post = (("binary", _abi.BINARY_ADD), ("eltwise", _abi.RELU, 0.0, 0.0))
    run = prepared.convolution(x, w, None, y, *window, 1, post)
    assert run
    run(*map(address, (x, y, more)))
    close(y, np.maximum(by_numpy.forward(np, x, w, None, ConvGeometry(*window, 1)) + more, 0))


@needs_library
def test_slow_reference_kernels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain image into a channels-last result: oneDNN has it, a thousand times slower than it should be."""
    from engine.backends.onednn import prepared
    from engine.backends.onednn.primitives import PrimitiveDesc, address

    names = []

    class Recorded(PrimitiveDesc):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            names.append(self.implementation)

    monkeypatch.setattr(prepared, "PrimitiveDesc", Recorded)
    x, w = rand(1, 3, 32, 32), rand(16, 3, 7, 7)
    y = np.empty_like(channels_last(1, 16, 16, 16))
    run = prepared.convolution(x, w, None, y, (2, 2), (3, 3), (1, 1), 1)
    assert not any(name.startswith("ref") for name in names)
    assert bool(run) == bool(names)
    if run:
        run(address(x), address(y))
        close(y, by_numpy.forward(np, x, w, None, ConvGeometry((2, 2), (3, 3), (1, 1))))


@needs_library
def test_products() -> None:
    from engine.backends.onednn import arrays

    a, b = rand(5, 7), rand(7, 6)
    for left in (a, np.asfortranarray(a), rand(5, 20)[:, 3:10]):
        for right in (b, np.asfortranarray(b), rand(9, 20)[1:8, 2:8]):
            out = np.empty((5, 6), "float32")
            assert arrays.sgemm(left, right, out)
            close(out, left @ right)
            assert arrays.sgemm(left, right, out, 0.5, 2.0)
            close(out, 2.5 * (left @ right))
    assert not arrays.sgemm(rand(5, 14)[:, ::2], b, np.empty((5, 6), "float32"))
    a, b = rand(3, 5, 7), rand(1, 7, 6)
    out = np.empty((3, 5, 6), "float32")
    assert arrays.matmul(a, b, out)
    close(out, a @ b)


@needs_library
def test_norms() -> None:
    from engine.backends.onednn import arrays

    x, scale, shift = channels_last(3, 8, 5, 4), rand(8), rand(8)
    mean, var, y = np.empty(8, "float32"), np.empty(8, "float32"), np.empty_like(x)
    assert arrays.batch_norm(x, y, mean, var, scale, shift, 1e-5, False)
    dims = (0, 2, 3)
    close(mean, x.mean(dims))
    close(var, x.var(dims))
    each = (slice(None), None, None)
    hat = (x - mean[each]) / np.sqrt(var[each] + 1e-5)
    close(y, hat * scale[each] + shift[each])
    g = channels_last(3, 8, 5, 4)[::-1].copy("K")
    of_x, of_scale, of_shift = np.empty_like(x), np.empty(8, "float32"), np.empty(8, "float32")
    assert arrays.batch_norm_backward(g, x, mean, var, scale, of_x, of_scale, of_shift, 1e-5)
    close(of_shift, g.sum(dims))
    close(of_scale, (g * hat).sum(dims))

    x, scale, shift = rand(6, 32), rand(32), rand(32)
    mean, var, y = np.empty(6, "float32"), np.empty(6, "float32"), np.empty_like(x)
    assert arrays.layer_norm(x, y, mean, var, scale, shift, 1e-5)
    hat = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    close(y, hat * scale + shift)
    g, of_x = rand(6, 32)[::-1].copy(), np.empty_like(x)
    of_scale, of_shift = np.empty(32, "float32"), np.empty(32, "float32")
    assert arrays.layer_norm_backward(g, x, mean, var, scale, of_x, of_scale, of_shift, 1e-5)
    close(of_shift, g.sum(0))
    close(of_scale, (g * hat).sum(0))


@needs_library
def test_pooling_and_softmax() -> None:
    from engine.backends.onednn import _abi, arrays

    x, window = channels_last(2, 8, 7, 7), ((3, 3), (2, 2), (1, 1), (1, 1))
    y = np.empty_like(channels_last(2, 8, 4, 4))
    kept = arrays.pooling(x, y, _abi.POOLING_MAX, *window, keep=True)
    close(y, _pool.reduce(np, x, PoolGeometry(*window), (4, 4), True))
    g, of_x = channels_last(2, 8, 4, 4), np.empty_like(x)
    assert arrays.pooling_backward(g, of_x, _abi.POOLING_MAX, *window, kept)
    where = _pool.window_argmax(np, x, y, PoolGeometry(*window))
    close(of_x, _pool.put_back(np, g, where, (7, 7), PoolGeometry(*window)))


@needs_library
def test_softmax() -> None:
    from engine.backends.onednn import arrays
    from engine.backends.onednn.report import implementations

    x = rand(6, 40)
    y, of_x, g = np.empty_like(x), np.empty_like(x), rand(40, 6).T.copy()
    assert arrays.softmax(x, y, 1, False)
    e = np.exp(x)
    wanted = e / e.sum(1, keepdims=True)
    close(y, wanted)
    served = arrays.softmax_backward(g, y, of_x, 1, False)
    assert served == (implementations()["softmax_backward"] is not None)
    if served:
        close(of_x, wanted * (g - (g * wanted).sum(1, keepdims=True)))
    assert arrays.softmax(x, y, 1, True)
    close(y, np.log(wanted))
    served = arrays.softmax_backward(g, y, of_x, 1, True)
    assert served == (implementations()["log_softmax_backward"] is not None)
    if served:
        close(of_x, g - wanted * g.sum(1, keepdims=True))


@needs_library
def test_probabilities_of_very_many_classes_are_summed_as_exactly_as_those_of_few() -> None:
    from engine.backends.onednn import arrays

    x = np.random.default_rng(1).standard_normal((2, 300_000)).astype("float32") * 4
    y = np.empty_like(x)
    assert arrays.softmax(x, y, 1, False)
    e = np.exp(x.astype("float64"))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), 5e-6)
    assert not arrays.softmax(x, y, 1, True)  # numpy's


# --- threads and forks


@needs_library
def test_threads_share_nothing() -> None:
    from engine.backends.onednn import arrays

    wrong: list[Any] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).standard_normal((64, 128)).astype("float32")
        y = np.empty_like(x)
        e = np.exp(x)
        for _ in range(50):
            arrays.softmax(x, y, 1, False)
            if not np.allclose(y, e / e.sum(1, keepdims=True), 1e-4, 1e-6):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


@needs_library
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_computes() -> None:
    code = """
import os, numpy as np
from engine.backends.cpu.threads import set_num_threads
from engine.backends.onednn import arrays
x, y = np.ones((256, 256), "float32"), np.empty((256, 256), "float32")
set_num_threads(2)
def work():
    assert arrays.softmax(x, y, 1, False) and arrays.sgemm(x, x, y) and y[0, 0] == 256
work()
child = os.fork()
if not child:
    work()
    set_num_threads(2)
    work()
    os._exit(0)
print(os.waitpid(child, 0)[1])
"""
    assert python(code) == "0"


@needs_library
def test_the_number_of_threads_can_change() -> None:
    from engine.backends.cpu import threads
    from engine.backends.onednn import arrays

    before = threads.get_num_threads()
    x, y = rand(300, 200), np.empty((300, 300), "float32")
    try:
        for count in (1, 2, 1):
            threads.set_num_threads(count)
            assert arrays.sgemm(x, x.T, y)
            close(y, x @ x.T)
    finally:
        threads.set_num_threads(before)


@needs_library
def test_off_and_on_by_torchs_names() -> None:
    import engine
    from engine.backends import mkldnn
    from engine.backends.onednn.primitives import usable

    x = engine.ones(3)._array
    assert mkldnn.is_available() and mkldnn.enabled and usable(x)
    assert mkldnn.describe() == onednn.describe()
    with mkldnn.flags(enabled=False):
        assert not usable(x) and mkldnn.set_flags() == (False,)
        w, image = engine.ones(4, 3, 3, 3), engine.ones(1, 3, 9, 9)
        assert engine.conv2d(image, w)._channels_last is None
    mkldnn.enabled = False
    assert not usable(x)
    mkldnn.enabled = True
    assert usable(x)


@needs_library
def test_the_number_of_threads_of_the_environment() -> None:
    code = (
        "from engine.backends.onednn import arrays, library\nimport numpy as np\nasked = []\nlibrary.load()\nclass "
        "Told:\n    def __init__(self, inner): self.inner = inner\n    def __getattr__(self, name):\n        return "
        "asked.append if name == 'omp_set_num_threads' else getattr(self.inner, name)\nlibrary.state.library = "
        "Told(library.state.library)\nfor n in (8, 256, 8):\n    x = np.ones((n, n), 'float32')\n    assert "
        "arrays.sgemm(x, x, x.copy())\n    print(asked[-1])"
    )
    # what is done sooner than a second thread wakes up has one
    assert python(code, ENGINE_NUM_THREADS="3").split() == ["1", "3", "1"]


@needs_library
@pytest.mark.parametrize("wide", [False, True])
def test_a_transposed_operand_with_rows_a_page_apart(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its copy, where there is one, gives what the operand itself gives; beta adds to what was there."""
    from engine.backends.onednn import arrays

    spread = []
    monkeypatch.setattr(arrays, "_wide", lambda: wide)
    plain = arrays._spread
    monkeypatch.setattr(arrays, "_spread", lambda a: spread.append(a.shape) or plain(a))
    draw = np.random.default_rng(4)
    for n, k, m in ((1024, 96, 80), (2048, 64, 64), (1024, 96, 8), (1000, 96, 80), (512, 70, 64)):
        a, b = draw.standard_normal((k, n), np.float32).T, draw.standard_normal((k, m), np.float32)
        out = draw.standard_normal((n, m), np.float32)
        wanted = a.astype(np.float64) @ b + out
        assert arrays.sgemm(a, b, out, 1.0, 1.0)
        np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)
    assert spread == ([] if wide else [(1024, 96), (2048, 64), (512, 70)])


@needs_library
@pytest.mark.parametrize("wide", [False, True])
def test_a_right_operand_with_rows_half_a_page_apart(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of few rows, not of many: a copy whose rows lie further apart gives the same; steps of layers take it once."""
    from engine.backends.onednn import arrays
    from engine.ops.recurrent import onednn as rnn

    spread = []
    monkeypatch.setattr(arrays, "_wide", lambda: wide)
    plain = arrays._spread
    monkeypatch.setattr(arrays, "_spread", lambda a: spread.append(a.shape) or plain(a))
    draw = np.random.default_rng(4)

    def case(n: int, k: int, m: int, product: Any, times: int = 1) -> None:
        a, b = draw.standard_normal((n, k), np.float32), draw.standard_normal((k, m), np.float32)
        for _ in range(times):
            out = draw.standard_normal((n, m), np.float32)
            wanted = a.astype(np.float64) @ b + out
            product(a, b, out)
            np.testing.assert_allclose(out, wanted, rtol=1e-4, atol=1e-4)

    def sgemm(a: Any, b: Any, out: Any) -> None:
        assert arrays.sgemm(a, b, out, 1.0, 1.0)

    for n, k, m in ((16, 64, 512), (128, 100, 1024), (15, 64, 512), (400, 64, 512), (128, 64, 640), (128, 8, 512)):
        case(n, k, m, sgemm)
    assert spread == ([] if wide else [(512, 64), (1024, 100)])
    spread.clear()
    step = rnn._product()
    case(16, 128, 512, lambda a, b, out: step(a, b, out, 1.0), 3)
    assert spread == ([] if wide else [(512, 128)])


@needs_library
def test_threads_that_wait_outlive_the_interpreter() -> None:
    """libgomp's threads run in its code until the process ends: so it must not be unloaded before."""
    code = (
        "import engine\nengine.set_num_threads(2)\nx = engine.randn(256, 256)\n"
        "for _ in range(3): x @ x\nengine.nn.functional.linear(x, x)"
    )
    assert python(code, OMP_WAIT_POLICY="active") == ""


@needs_library
def test_few_output_channels_are_not_left_to_slow_code() -> None:
    """oneDNN's newer code for AVX2 took 15 ms for three channels (a picture) of 32 x 32, where eight take 0.1."""
    code = (
        "import numpy as np\nfrom engine.backends.onednn import convolution, primitives\n"
        "from engine.core import geometry\n"
        "x, w = np.ones((1, 32, 8, 8), 'f4'), np.ones((3, 32, 3, 3), 'f4')\nassert primitives.ready()\ntry:\n"
        "    run = convolution.Forward(1, x, w, None, (8, 8), True, geometry.ConvGeometry((1, 1), (1, 1), (1, 1)))\n"
        "    print(run._run.plan.implementation)\nexcept primitives.Unsupported as error:\n    print(error)\n"
        "import engine\nprint(float(engine.conv2d(engine.tensor(x), engine.tensor(w), padding=1)[0, 0, 4, 4]))"
    )
    first, second = python(code, ONEDNN_MAX_CPU_ISA="AVX2").splitlines()
    assert not first.startswith("brgconv:avx2") and second == "288.0"


@needs_library
def test_what_numpy_does_faster_is_left_to_it() -> None:
    """On AVX2: transposed convolutions to few channels took 40 times as long, gradients of a sequence's weights 7."""
    code = """
import numpy as np
from engine.backends.onednn import convolution, primitives
from engine.core.geometry import ConvGeometry
from engine.ops.convolution import numpy as by_numpy
assert primitives.ready()
def case(size, outputs, kernel, stride=1, padding=0, dilation=1, groups=1):
    window = [(value,) * len(kernel) for value in (stride, padding, dilation)]
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(s, np.float32) for s in (size, (outputs, size[1] // groups, *kernel)))
    g = rng.standard_normal((size[0], outputs, *ConvGeometry(*window).output_size(size[2:], kernel)), np.float32)
    turned = [np.moveaxis(np.ascontiguousarray(np.moveaxis(a, 1, -1)), -1, 1) for a in (x, g)]
    made = [None, np.empty_like(turned[0]), np.empty_like(w)]
    try:
        run = convolution.Forward(1, x, w, None, g.shape[2:], False, ConvGeometry(*window, groups))
        made[0] = run(x, w, None)
        served = "f"
    except primitives.Unsupported:
        served = "-"
    served += "x" if convolution.backward_input(turned[1], w, made[1], ConvGeometry(*window, groups)) else "-"
    served += "w" if convolution.backward_weight(turned[1], turned[0], made[2], ConvGeometry(*window, groups)) else "-"
    wanted = [by_numpy.forward(np, x, w, None, ConvGeometry(*window, groups)),
              by_numpy.backward_input(np, g, w, size, ConvGeometry(*window, groups)),
              by_numpy.backward_weight(np, g, x, w.shape, ConvGeometry(*window, groups))]
    for s, a, b in zip(served, made, wanted):
        assert s == "-" or np.allclose(a, b, atol=1e-4 * abs(b).max()), s
    print(served, end=" ")
case((1, 32, 100), 32, (3,))
case((1, 1, 400), 32, (16,), 8)
case((1, 32, 100), 32, (3,), 1, 1, 1, 32)
case((1, 32, 100), 32, (3,), 1, 8, 8, 32)
case((1, 32, 16, 16), 3, (3, 3), 1, 1)
case((1, 3, 32, 32), 32, (3, 3), 1, 1)
case((1, 3, 32, 32), 32, (8, 8), 8)
case((1, 3, 32, 32), 32, (4, 4), 2, 1)
case((1, 32, 32, 32), 32, (3, 3), 1, 1)
"""
    found = python(code, ONEDNN_MAX_CPU_ISA="AVX2").split()
    assert found == ["fx-", "f--", "fx-", "---", "-xw", "f-w", "f-w", "fxw", "fxw"]


@needs_library
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "depth, window",
    [  # depth of the picture; (kernel, stride, padding, dilation) in depth
        (6, (3, 1, 1, 1)),
        (6, (5, 1, 2, 1)),
        (2, (5, 1, 2, 1)),
        (1, (3, 1, 1, 1)),
        (6, (3, 1, 0, 1)),
        (6, (3, 1, 2, 2)),
        (6, (2, 1, 1, 1)),
        (6, (3, 2, 1, 1)),
        (7, (3, 3, 1, 1)),
        (3, (4, 3, 5, 2)),
    ],
)
def test_channels_apart_in_three_dims(depth: int, window: Any, count: int) -> None:
    """By convolutions of pictures: X3D's took ten times as long."""
    from engine.backends.onednn import convolution
    from engine.backends.onednn.primitives import ready

    assert ready()
    kernel, stride, padding, dilation = window
    x, w, b = channels_last(count, 16, depth, 9, 8), rand(16, 1, kernel, 3, 3), rand(16)
    geometry = (stride, 2, 1), (padding, 1, 1), (dilation, 1, 1), 16
    for bias in (None, b):
        wanted = by_numpy.forward(np, np.ascontiguousarray(x), w, bias, ConvGeometry(*geometry))
        for given in (x, np.ascontiguousarray(x)):
            run = convolution.forward("key", given, w, bias, wanted.shape[2:], True, ConvGeometry(*geometry))
            assert isinstance(run, convolution.Slices)
            made = run(given, w, bias)
            assert type(made) is ChannelsLast and lies_channels_last(made)
            close(made, wanted)


@needs_library
def test_layers_of_plans_that_the_op_does_faster_are_left_to_it() -> None:
    from engine.backends.onednn import _abi, prepared
    from engine.backends.onednn.primitives import ready

    assert ready()
    x, y, bias = channels_last(1, 16, 9), channels_last(1, 16, 18), rand(16)
    relu = (("eltwise", _abi.RELU, 0.0, 0.0),)
    window = (2,), (1,), (1,), 16
    # what follows a transposed convolution in groups oneDNN does element by element
    assert prepared.transposed(x, rand(16, 1, 4), bias, y, *window) is None
    assert prepared.transposed(x, rand(16, 1, 4), None, y, *window, relu) is None
    assert prepared.transposed(x, rand(16, 1, 4), None, y, *window)
    same = (1, 1, 1), (1, 1, 1), (1, 1, 1)
    pictures = channels_last(1, 16, 4, 5, 6)
    assert prepared.convolution(pictures, rand(16, 1, 3, 3, 3), None, pictures, *same, 16) is None
    assert prepared.convolution(pictures, rand(16, 16, 3, 3, 3), None, pictures, *same, 1)


@needs_library
@pytest.mark.parametrize("size", [(2, 16, 9, 7), (2, 16, 40), (1, 16, 4, 3, 5)], ids=str)
@pytest.mark.parametrize("stride", [1, 2])
def test_single_elements_of_pictures_in_torchs_order_are_products(size: Any, stride: int) -> None:
    """To turn a picture for a convolution of its elements alone to few channels takes longer than their product."""
    from engine.backends.onednn.primitives import ready
    from engine.ops.convolution import onednn as own

    assert ready()
    n = len(size) - 2
    x, w, b = rand(*size), rand(5, 16, *(1,) * n), rand(5)
    window = (stride,) * n, (0,) * n, (1,) * n
    wanted = by_numpy.forward(np, x, w, b, ConvGeometry(*window, 1))
    made = own._convolution(np, x, w, b, *window, False, (0,) * n, 1)
    close(made, wanted)
    assert made.flags.c_contiguous and type(made) is np.ndarray
    turned = own._convolution(np, channels_last(*size), w, b, *window, False, (0,) * n, 1)
    assert lies_channels_last(turned)
    g = rand(*wanted.shape)
    of_w = own._convolution_backward_weight(np, g, x, w.shape, *window, 1)
    close(of_w, by_numpy.backward_weight(np, g, x, w.shape, ConvGeometry(*window, 1)))


@needs_library
def test_a_products_weight_that_has_no_packed_form_stays_where_it_lies() -> None:
    code = """
import numpy as np
from engine.backends.onednn import primitives, prepared
for rows, depth, outputs in [(4, 96, 512), (31, 96, 512), (32, 96, 512), (32, 96, 500), (127, 96, 500), (128, 96, 500)]:
    rng = np.random.default_rng(rows)
    x, w, bias = (rng.standard_normal(shape, np.float32) for shape in ((rows, depth), (outputs, depth), outputs))
    out = np.empty((rows, outputs), np.float32)
    run = prepared.product(x, w, bias, out, (("eltwise", 32, 0.0, 0.0),))
    run(primitives.address(x), primitives.address(out))
    np.testing.assert_allclose(out, (x.astype(float) @ w.T + bias).clip(0), atol=1e-4)
    print(rows, outputs, np.shares_memory(run._primitive.extra["retained"][0], w))
"""
    lies = [line.split()[2] == "True" for line in python(code, ONEDNN_MAX_CPU_ISA="AVX2").splitlines()]
    assert lies == [False, False, True, False, False, True]
