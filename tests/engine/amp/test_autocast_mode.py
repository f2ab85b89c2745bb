"""Result types under autocast: those of PyTorch 2.13 on the CPU (printed by it once, written down here), and CUDA's
lists on the stand-in."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest

import engine
from engine import nn
from engine.nn import functional as F
from tests.engine import standin


def ones(*shape: int, dtype: Any = engine.float32) -> engine.Tensor:
    return engine.ones(*shape, dtype=dtype)


def half(*shape: int) -> engine.Tensor:
    return ones(*shape, dtype=engine.bfloat16)


# under autocast("cpu"): what torch 2.13 gives
BFLOAT16: dict[str, Any] = {
    "mm": lambda: engine.mm(ones(3, 4), ones(4, 4)),
    "matmul": lambda: ones(3, 4) @ ones(4, 4),
    "matmul of 3 dims": lambda: ones(2, 3, 4) @ ones(4, 4),
    "matmul and a vector": lambda: ones(3, 4) @ ones(4),
    "mixed": lambda: half(3, 4) @ ones(4, 4),
    "bmm": lambda: engine.bmm(ones(2, 3, 4), ones(2, 4, 3)),
    "linear": lambda: F.linear(ones(3, 4), ones(4, 4), ones(4)),
    "linear of bfloat16": lambda: F.linear(half(3, 4), ones(4, 4), ones(4)),
    "conv2d": lambda: F.conv2d(ones(1, 4, 5, 5), ones(3, 4, 3, 3), ones(3)),
    "conv_transpose2d": lambda: F.conv_transpose2d(ones(1, 4, 5, 5), ones(4, 3, 3, 3)),
    "einsum": lambda: engine.einsum("ij,jk->ik", ones(3, 4), ones(4, 4)),
    "addmm": lambda: engine.addmm(ones(4), ones(3, 4), ones(4, 4)),
    "baddbmm": lambda: engine.baddbmm(ones(2, 3, 3), ones(2, 3, 4), ones(2, 4, 3)),
    "attention": lambda: F.scaled_dot_product_attention(ones(1, 2, 3, 4), ones(1, 2, 3, 4), ones(1, 2, 3, 4)),
    "prelu": lambda: F.prelu(ones(3, 4), ones(1)),
    "lstm": lambda: nn.LSTM(4, 3)(ones(3, 4))[0],
    "multihead": lambda: nn.MultiheadAttention(4, 2)(ones(3, 4), ones(3, 4), ones(3, 4))[0],
    "softmax": lambda: F.softmax(half(3, 4), 1),
    "layer_norm": lambda: nn.LayerNorm(4)(half(3, 4)),
    "exp": lambda: half(3).exp(),
    "sum": lambda: half(3).sum(),
    "batch_norm": lambda: nn.BatchNorm2d(4)(half(2, 4, 3, 3)),
    "relu": lambda: F.relu(half(3)),
}
FLOAT32: dict[str, Any] = {
    "mv": lambda: engine.mv(ones(4, 4), ones(4)),
    "mse_loss": lambda: F.mse_loss(half(3), half(3)),
    "cross_entropy": lambda: F.cross_entropy(half(3, 4), engine.tensor([0, 1, 2])),
    "nll_loss": lambda: F.nll_loss(half(3, 4), engine.tensor([0, 1, 2])),
    "l1_loss": lambda: F.l1_loss(half(3), half(3)),
    "bce": lambda: F.binary_cross_entropy_with_logits(half(3), half(3)),
    "kl_div": lambda: F.kl_div(half(3, 4), half(3, 4), reduction="batchmean"),
    "hinge": lambda: F.hinge_embedding_loss(half(3), half(3)),
    "triplet": lambda: F.triplet_margin_loss(half(3, 4), half(3, 4), half(3, 4)),
    "prod": lambda: half(3).prod(),
    "cdist": lambda: engine.cdist(half(3, 4), half(2, 4)),
    "trace": lambda: half(3, 3).trace(),
    "quantile": lambda: engine.quantile(half(3), 0.5),
    "cat": lambda: engine.cat([half(3), ones(3)]),
    "add": lambda: half(3) + ones(3),
    "softmax": lambda: F.softmax(ones(3, 4), 1),
    "embedding": lambda: nn.Embedding(3, 4)(engine.tensor([1])),
}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, engine.bfloat16) for n in BFLOAT16] + [(n, engine.float32) for n in FLOAT32],
)
def test_on_the_cpu(name: str, dtype: Any) -> None:
    call = (BFLOAT16 if dtype is engine.bfloat16 else FLOAT32)[name]
    with engine.autocast("cpu"):
        assert engine.is_autocast_enabled("cpu") and not engine.is_autocast_enabled("cuda")
        assert call().dtype is dtype
    assert not engine.is_autocast_enabled("cpu")


def test_float64_and_integers_stay() -> None:
    with engine.autocast("cpu"):
        assert (ones(2, 2).double() @ ones(2, 2).double()).dtype is engine.float64
        assert (ones(2, 2).long() @ ones(2, 2).long()).dtype is engine.int64


def test_gradients_have_the_type_of_the_parameters() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    x, y = engine.randn(5, 4), engine.tensor([0, 1, 2, 0, 1])
    F.cross_entropy(model(x), y).backward()
    wanted = [p.grad for p in model.parameters()]
    model.zero_grad()
    with engine.autocast("cpu", dtype=engine.bfloat16):
        out = model(x)
        loss = F.cross_entropy(out, y)
    assert out.dtype is engine.bfloat16 and loss.dtype is engine.float32
    loss.backward()
    for p, grad in zip(model.parameters(), wanted):
        assert p.grad.dtype is engine.float32
        assert engine.allclose(p.grad, grad, 0.1, 0.02)


def test_weights_are_cast_once_and_anew_after_a_change() -> None:
    layer = nn.Linear(2, 2, bias=False)
    with engine.autocast("cpu"):
        first, second = layer(ones(1, 2)), layer(ones(1, 2))
        assert first.grad_fn.next_functions[1:] == second.grad_fn.next_functions[1:] or engine.equal(first, second)
        with engine.no_grad():
            layer.weight.zero_()
        assert not layer(ones(1, 2)).any()
        with engine.no_grad():
            assert not layer(ones(1, 2)).requires_grad
        assert layer(ones(1, 2)).requires_grad


def test_contexts_nest_and_are_of_a_thread() -> None:
    seen = []
    with engine.autocast("cpu", dtype=engine.float16):
        assert (ones(2, 2) @ ones(2, 2)).dtype is engine.float16
        with engine.autocast("cpu", enabled=False):
            assert (ones(2, 2) @ ones(2, 2)).dtype is engine.float32
            with engine.autocast("cpu"):
                assert (ones(2, 2) @ ones(2, 2)).dtype is engine.float16 or engine.bfloat16
        thread = threading.Thread(target=lambda: seen.append((ones(2, 2) @ ones(2, 2)).dtype))
        thread.start()
        thread.join()
        assert engine.get_autocast_dtype("cpu") is engine.float16
    assert seen == [engine.float32] and engine.get_autocast_dtype("cpu") is engine.bfloat16

    @engine.autocast("cpu")
    def product() -> Any:
        return ones(2, 2) @ ones(2, 2)

    assert product().dtype is engine.bfloat16


def test_what_cannot_be() -> None:
    with pytest.raises(RuntimeError, match="unsupported autocast device_type 'gpu'"):
        engine.autocast("gpu")
    with pytest.raises(ValueError, match="Expected `device_type` of type `str`"):
        engine.autocast(engine.device("cpu"))  # type: ignore[arg-type]
    with pytest.warns(UserWarning, match="target dtype is not supported. Disabling autocast"):
        context = engine.autocast("cpu", dtype=engine.float64)
    with context:
        assert (ones(2, 2) @ ones(2, 2)).dtype is engine.float32
    if not engine.cuda.is_available():
        with pytest.warns(UserWarning, match="CUDA is not available or torch_xla is imported. Disabling autocast"):
            engine.autocast("cuda")


@pytest.mark.cuda
def test_on_cuda() -> None:
    with standin.running(), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = engine.ones(3, 4, device="cuda")
        h = x.half()
        with engine.autocast("cuda"):
            assert (x @ x.t()).dtype is engine.float16
            assert F.linear(h, x).dtype is engine.float16
            for call in (engine.exp, engine.log, engine.sum, lambda t: F.softmax(t, 1), lambda t: t**2, engine.rsqrt):
                assert call(h).dtype is engine.float32
            assert F.layer_norm(h, (4,)).dtype is engine.float32
            assert engine.dot(x[0], h[0]).dtype is engine.float32
            assert (engine.ones(2, 2) @ engine.ones(2, 2)).dtype is engine.float32  # of the CPU
        with engine.amp.autocast("cuda", dtype=engine.float16):
            w = engine.ones(4, 2, device="cuda", requires_grad=True)
            (x @ w).float().sum().backward()
        assert w.grad.dtype is engine.float32 and w.grad.is_cuda


def test_functions_of_users() -> None:
    class Twice(engine.autograd.Function):
        @staticmethod
        @engine.amp.custom_fwd(device_type="cpu", cast_inputs=engine.float32)
        def forward(ctx: Any, x: Any) -> Any:
            assert x.dtype is engine.float32 and not engine.is_autocast_enabled("cpu")
            return x * 2

        @staticmethod
        @engine.amp.custom_bwd(device_type="cpu")
        def backward(ctx: Any, grad: Any) -> Any:
            assert not engine.is_autocast_enabled("cpu")
            return grad * 2

    x = half(3).requires_grad_()
    with engine.autocast("cpu"):
        result = Twice.apply(x)
    assert result.dtype is engine.float32
    result.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


FIRST = """
import contextlib
import engine
from engine.torch_names.overrides import TorchFunctionMode

class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {{}}))

def step(x):
    with engine.autocast("cpu", dtype=engine.bfloat16):
        return engine.mm(x, x)

x = engine.ones(3, 3)
engine.mm(x, x), engine.nn.functional.conv2d(x[None, None], x[None, None])
{first}
with engine.autocast("cpu", dtype=engine.bfloat16):
    assert (x @ x).dtype == engine.mm(x, x).dtype == engine.bfloat16
    assert engine.nn.functional.conv2d(x[None, None], x[None, None]).dtype == engine.bfloat16
"""


@pytest.mark.parametrize(
    "first",
    [
        "with contextlib.suppress(RuntimeError): engine.jit.trace(step, (x,))",
        "engine.fx.symbolic_trace(step)",
        "assert engine.func.vmap(step)(x[None]).dtype == engine.bfloat16",
        "with Mode(): step(x)",
        "with engine.autograd.profiler.profile(): step(x)",
        "with engine.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t): step(x)",
    ],
)
def test_a_first_context_while_others_watch_the_ops(first: str) -> None:
    """The ops are written anew by the first context of a process; who has put code of its own there keeps it."""
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIRST.format(first=first)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-600:]


def test_plans_leave_autocast_to_the_module() -> None:
    net, x = engine.compile(nn.Linear(3, 3)).eval(), ones(2, 3)
    with engine.no_grad():
        for _ in range(3):
            assert net(x).dtype == engine.float32
            with engine.autocast("cpu", dtype=engine.bfloat16):
                assert net(x).dtype == engine.bfloat16


class Attending(nn.Module):
    """Products, a norm and a sum, of which autocast casts some."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Conv1d(8, 4, 1))
        self.norm = nn.LayerNorm(4)

    def forward(self, x: engine.Tensor) -> engine.Tensor:
        with engine.autocast("cpu", dtype=engine.bfloat16):
            y = self.norm(self.net(x).transpose(1, 2))
            y = engine.einsum("bij,bkj->bik", y, y)
        return y.float().softmax(-1)


@pytest.mark.parametrize(
    "recorded",
    [
        lambda m, x: engine.jit.trace(m, (x,), check_trace=False),
        lambda m, x: engine.export.export(m, (x,)).module(),
        lambda m, x: _saved(engine.jit.trace(m, (x,), check_trace=False)),
    ],
)
def test_casts_are_recorded_with_the_program(recorded: Any) -> None:
    engine.manual_seed(0)
    net, x = Attending().eval(), engine.randn(2, 4, 8)
    expected = net(x)
    program = recorded(net, x)
    assert engine.equal(program(x), expected)
    assert program(engine.randn(3, 4, 8)).shape == (3, 6, 6)
    names = [n.removeprefix("graph_module.") for n, _ in program.named_parameters()]
    assert sorted(names) == sorted(n for n, _ in net.named_parameters())
    net(x)[0, 0].sum().log().backward()
    program(x)[0, 0].sum().log().backward()
    for name, other in zip(names, program.parameters()):
        own = net.get_parameter(name)
        assert other.grad is not None and other.dtype == engine.float32
        engine.testing.assert_close(own.grad, other.grad)


def _saved(program: Any) -> Any:
    file = io.BytesIO()
    engine.jit.save(program, file)
    file.seek(0)
    return engine.jit.load(file)


def test_a_trace_under_a_context_keeps_its_casts() -> None:
    engine.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).eval(), engine.randn(2, 3)
    with engine.autocast("cpu", dtype=engine.bfloat16):
        net(x)  # the cast of the weight is kept by the context, and is not the program's
        program = engine.jit.trace(net, (x,), check_trace=False)
        expected = net(x)
    assert expected.dtype == engine.bfloat16
    assert engine.equal(program(x), expected)
    assert "bias" in program.code


def test_onnx_files_say_the_casts() -> None:
    engine.manual_seed(0)
    net, x, file = Attending().eval(), engine.randn(2, 4, 8), io.BytesIO()
    net.norm = nn.Identity()
    engine.onnx.export(net, (x,), file, opset_version=17)
    program = engine.onnx.load(file.getvalue())
    found = program(x)
    assert found.dtype == engine.float32
    engine.testing.assert_close(found, net(x))
    assert not engine.equal(found, exact(net, x))


def exact(net: Any, x: engine.Tensor) -> engine.Tensor:
    """The same in float32 throughout."""
    y = net.net(x).transpose(1, 2)
    return engine.einsum("bij,bkj->bik", y, y).softmax(-1)


def test_casts_in_the_middle_of_what_is_recorded_whole_are_an_error() -> None:
    net = nn.RNN(3, 4)

    def step(x: engine.Tensor) -> engine.Tensor:
        with engine.autocast("cpu", dtype=engine.bfloat16):
            return net(x)[0]

    with pytest.raises(RuntimeError, match="step cannot be traced: autocast casts inside of rnn_tanh"):
        engine.jit.trace(step, (ones(2, 2, 3),))
