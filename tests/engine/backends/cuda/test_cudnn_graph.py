"""Graphs of cudnn-frontend: the real module takes and validates them without a GPU; planted faults are found."""

from __future__ import annotations

import inspect
import os
import re
from typing import Any

import numpy as np
import pytest

import engine
from engine.backends.cuda import cudnn, cudnn_graph
from engine.backends.cuda.cudnn_graph import Attention, Convolution, Layout
from tests.engine import standin
from tests.engine.standin import cudnn_graphs

pytestmark = pytest.mark.cuda
F = engine.nn.functional


def dense(*dims: int, last: bool = False) -> Layout:
    order = [0, *range(2, len(dims)), 1] if last else list(range(len(dims)))
    strides, step = [0] * len(dims), 1
    for d in reversed(order):
        strides[d], step = step, step * dims[d]
    return Layout(dims, tuple(strides))


def convolution(kind: str, type: str = "float16", last: bool = True, n: int = 2, bias: bool = False) -> Convolution:
    size, kernel = (9, 8, 7)[:n], (3, 2, 1)[:n]
    stride, padding, dilation = (2, 1, 1)[:n], (1, 2, 0)[:n], (1, 2, 1)[:n]
    out = [(a + 2 * p - d * (k - 1) - 1) // s + 1 for a, k, s, p, d in zip(size, kernel, stride, padding, dilation)]
    return Convolution(
        kind,
        type,
        dense(2, 8, *size, last=last),
        dense(16, 4, *kernel, last=last),
        dense(2, 16, *out, last=last),
        stride,
        padding,
        dilation,
        bias,
        True,
        False,
    )


def attention(back: bool, masked: bool = False) -> Attention:
    q, k = dense(2, 4, 16, 32), dense(2, 2, 24, 32)
    more = (q, q, k, k) if back else (None,) * 4
    mask = dense(1, 4, 16, 24) if masked else None
    return Attention("bfloat16", q, k, k, q, mask, *more, not masked, 0.25, False)


PROBLEMS = {
    **{
        f"{kind} {type} {n}d {'last' if last else 'first'}": convolution(kind, type, last, n)
        for kind in ("forward", "input", "weight")
        for type in ("float16", "bfloat16", "float32")
        for n, last in ((2, True), (2, False), (3, True))
    },
    "with bias": convolution("forward", bias=True),
    "one dim": Convolution(
        "forward",
        "float32",
        *[cudnn_graph.spatial(dense(*d)) for d in ((2, 4, 9), (6, 4, 3), (2, 6, 7))],
        (1, 1),
        (0, 0),
        (1, 1),
        False,
        False,
        True,
    ),
    "attention": attention(False),
    "attention with mask": attention(False, True),
    "attention backward": attention(True),
}


def real_frontend() -> Any:
    found = cudnn._frontend()
    if found is None:
        if os.environ.get("REQUIRE_CUPY") == "1":
            raise AssertionError("no nvidia-cudnn-frontend: pip install '.[cudatest]'")
        pytest.skip("without nvidia-cudnn-frontend; make test-cuda installs it")
    return found


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_real_frontend_takes_and_validates_it(name: str) -> None:
    """Every call, keyword and type; dims that it infers itself are those described.  (Attention is described, but the
    frontend asks for a GPU when it validates one.)"""
    problem = PROBLEMS[name]
    try:
        cudnn_graph.describe(real_frontend(), 4096, problem)
    except RuntimeError as error:
        assert isinstance(problem, Attention) and "cuda" in str(error).lower(), error


def test_the_real_frontend_finds_a_wrong_graph() -> None:
    frontend = real_frontend()
    problem = convolution("forward")
    graph = cudnn_graph.describe(frontend, 4096, problem)
    assert '"conv_fprop"' in str(graph).lower() or "conv" in str(graph).lower()
    bad = Convolution(
        "input",
        "float16",
        Layout((), ()),
        problem.w,
        problem.y,
        *(problem.stride, problem.padding, problem.dilation),
        False,
        True,
        False,
    )
    with pytest.raises(Exception, match=r"(?i)dim"):
        cudnn_graph.describe(frontend, 4096, bad)


def parameters(function: Any) -> set[str]:
    """The parameters of one of pybind's functions, from all its signatures."""
    text = "\n".join(line for line in (function.__doc__ or "").splitlines() if "->" in line)
    try:
        return set(inspect.signature(function).parameters) | set(re.findall(r"(\w+): ", text))
    except ValueError:
        return set(re.findall(r"(\w+): ", text))


def test_the_stand_in_has_no_name_or_parameter_of_its_own() -> None:
    frontend = real_frontend()
    for kind in ("data_type", "heur_mode", "build_plan_policy", "numerical_note", "diagonal_alignment"):
        mine = getattr(cudnn_graphs, kind)
        for member in mine:
            assert hasattr(getattr(frontend, kind), member.name), f"{kind}.{member.name}"
    assert hasattr(frontend, "cudnnGraphNotSupportedError")
    own = {"real"}
    for kind in ("pygraph", "tensor"):
        for name, function in vars(getattr(cudnn_graphs, kind)).items():
            if (name.startswith("_") and name != "__init__") or not callable(function) or name in own:
                continue
            if (kind, name) == ("tensor", "__init__"):
                continue
            theirs = getattr(getattr(frontend, kind), name)
            have = parameters(theirs)
            unknown = [p for p in inspect.signature(function).parameters if p != "self" and p not in have]
            if kind == "tensor":
                assert len(inspect.signature(function).parameters) == 1 or "arg0" in have or not unknown, name
            else:
                assert not unknown, f"{kind}.{name}: {unknown} of {sorted(have)}"


# --- planted faults


def run(dtype: Any = engine.float16) -> list[np.ndarray]:
    """A grouped channels-last convolution with its gradients, and attention with its."""
    draw = np.random.default_rng(1)

    def real(*shape: int) -> Any:
        return engine.tensor(draw.standard_normal(shape)).to(dtype)

    x, w, b = real(2, 8, 7, 6), real(16, 4, 3, 2), real(16)
    leaves = [t.cuda().requires_grad_() for t in (x.to(memory_format=engine.channels_last), w, b)]
    y = F.conv2d(*leaves, stride=(2, 1), padding=(1, 0), groups=2)
    found = [y, *engine.autograd.grad((y * y).sum(), leaves)]
    q, k, v = (t.cuda().requires_grad_() for t in (real(2, 3, 8, 16), real(2, 3, 12, 16), real(2, 3, 12, 16)))
    o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    found += [o, *engine.autograd.grad((o * o).sum(), (q, k, v))]
    return [t.float().cpu().detach().numpy() for t in found]


def swap(values: Any) -> Any:
    values = list(values)
    values[-1], values[-2] = values[-2], values[-1]
    return values


def edit(monkeypatch: pytest.MonkeyPatch, name: str, change: Any) -> None:
    """Let a method of the stand-in's graph be called with changed arguments."""
    plain = getattr(cudnn_graphs.pygraph, name)
    monkeypatch.setattr(
        cudnn_graphs.pygraph, name, lambda self, *a, **k: plain(self, *change(a, k)[0], **change(a, k)[1])
    )


def without(key: str) -> Any:
    return lambda a, k: (a, {n: v for n, v in k.items() if n != key})


FAULTS: dict[str, tuple[str, Any]] = {
    "swapped stride of a tensor": ("tensor", lambda a, k: (a, {**k, "stride": swap(k["stride"])})),
    "swapped dims of a tensor": ("tensor", lambda a, k: (a, {**k, "dim": swap(k["dim"])})),
    "a tensor's type": ("tensor", lambda a, k: (a, {**k, "data_type": cudnn_graphs.data_type.BFLOAT16})),
    "two tensors of one uid": ("tensor", lambda a, k: (a, {**k, "uid": 1})),
    "wrong padding": ("conv_fprop", lambda a, k: (a, {**k, "padding": swap(k["padding"])})),
    "wrong stride": ("conv_dgrad", lambda a, k: (a, {**k, "stride": swap(k["stride"])})),
    "wrong padding of a gradient": ("conv_wgrad", lambda a, k: (a, {**k, "padding": swap(k["padding"])})),
    "wrong dilation": ("conv_fprop", lambda a, k: (a, {**k, "dilation": [2, 1]})),
    "unset compute type": ("__init__", without("compute_data_type")),
    "no handle": ("__init__", without("handle")),
    "wrong scale": ("sdpa", lambda a, k: (a, {**k, "attn_scale": 1.0})),
    "no causal mask": ("sdpa", without("diagonal_band_right_bound")),
    "no causal mask backward": ("sdpa_backward", without("diagonal_band_right_bound")),
    "keys for values": ("sdpa", lambda a, k: (a, {**k, "v": k["k"]})),
    "missing workspace": ("execute", lambda a, k: ((a[0], 0), k)),
    "workspace of another use": ("execute", lambda a, k: ((a[0], a[0][1]), k)),
    "an address that is not bound": ("execute", lambda a, k: (({u: p for u, p in a[0].items() if u != 2}, a[1]), k)),
    "addresses of two tensors": ("execute", lambda a, k: (({**a[0], 1: a[0][2], 2: a[0][1]}, a[1]), k)),
    "an address that is not aligned": ("execute", lambda a, k: (({**a[0], 1: a[0][1] + 2}, a[1]), k)),
    "a handle that is none": ("execute", lambda a, k: (a, {"handle": 12345})),
}


@pytest.mark.skipif(standin.REAL, reason="plants faults in the stand-in's calls")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_planted_fault_is_found(fault: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By other numbers, an assertion, or a refusal, which switches the route off."""
    wanted = run()
    gpu.runtime.state.cudnn._plans.clear()
    gpu.runtime.state.cudnn.known.clear()
    edit(monkeypatch, *FAULTS[fault])
    before = dict(gpu.runtime.state.verdicts)
    try:
        found = run()
    except AssertionError:
        return
    refused = dict(gpu.runtime.state.verdicts) != before or not all(gpu.runtime.state.cudnn._plans.values())
    assert refused or any(not np.allclose(a, b, 1e-2, 1e-2) for a, b in zip(found, wanted))


@pytest.mark.skipif(standin.REAL, reason="plants faults in the stand-in's calls")
@pytest.mark.parametrize("what", ["stream", "workspace"])
def test_a_wrong_stream_and_a_short_workspace_are_found(what: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    library = gpu.runtime.state.cudnn
    run()
    if what == "stream":
        handle = library.handle()
        monkeypatch.setattr(library, "handle", lambda: handle)
    else:
        monkeypatch.setattr(library, "workspace", lambda size: gpu.cupy.empty((512,), "uint8"))
    side = engine.cuda.Stream()
    side.wait_stream(engine.cuda.current_stream())
    with pytest.raises(AssertionError), engine.cuda.stream(side):
        run()


@pytest.mark.skipif(standin.REAL, reason="plants faults in the stand-in's calls")
def test_a_route_proves_itself_and_a_fault_switches_it_off(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with standin.running(checks=True):
        wanted = run()
        assert cudnn_graphs.calls
    edit(monkeypatch, "conv_dgrad", lambda a, k: (a, {**k, "padding": swap(k["padding"])}))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
    with standin.running(checks=True), pytest.warns(RuntimeWarning, match="cudnn convolution"):
        found = run()
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a, b, 2e-2, 2e-2)
