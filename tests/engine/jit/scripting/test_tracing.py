"""Traces give what the function gave, for other sizes too, and are read back from what they are saved as."""

from __future__ import annotations

import io
import warnings

import numpy as np
import pytest

import engine as torch
import engine.nn.functional as F
from engine import nn


def again(module):
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def flat(value):
    return [t for v in value for t in flat(v)] if isinstance(value, tuple | list) else [value]


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ConvTranspose2d(3, 4, 3, 2, 1, 1)
        self.bn, self.inorm, self.gn = nn.BatchNorm2d(4), nn.InstanceNorm2d(4), nn.GroupNorm(2, 4)

    def forward(self, x):
        x = self.gn(self.inorm(self.bn(self.up(x))))
        x = F.pad(F.interpolate(x, scale_factor=2.0, mode="bilinear"), (1, 1, 1, 1), mode="reflect")
        y = F.adaptive_avg_pool2d(F.max_pool2d(x, 2), 4)
        b, c, h, w = y.shape
        z = y.view(b, c * h, w)[:, 1:, None]
        return (
            F.gelu(y),
            y.softmax(1),
            y.transpose(1, 2),
            y.norm(dim=1),
            y.topk(2)[0],
            y.permute(0, 2, 3, 1),
            (y > 0).float(),
            torch.einsum("bchw,bcxy->bhx", y, y),
            y.chunk(2, 1)[1],
            y.std(),
            F.mse_loss(y, y * 0),
            z,
            torch.cat([z, z], 1),
            y + torch.arange(w),
            y.new_zeros(b, 2),
        )


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(10, 4), nn.LSTM(4, 4, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x):
        y, state = self.lstm(self.embedding(x))
        y = self.encoder(y).clone()
        y[:, 0] = 1.0
        return y, state


@pytest.mark.parametrize(
    ("make", "example", "other"),
    [
        (Convolutions, lambda: torch.randn(2, 3, 8, 8), lambda: torch.randn(3, 3, 10, 8)),
        (Recurrent, lambda: torch.randint(0, 10, (2, 5)), lambda: torch.randint(0, 10, (3, 5))),
    ],
)
def test_modules(make, example, other) -> None:
    torch.manual_seed(0)
    model = make().eval()
    traced = torch.jit.trace(model, example())
    assert list(traced.state_dict()) == list(model.state_dict())
    x = other()
    wanted = flat(model(x))
    for program in (traced, again(traced)):
        for found, one in zip(flat(program(x)), wanted, strict=True):
            np.testing.assert_allclose(found.detach().numpy(), one.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "cell, states",
    [(nn.LSTMCell(4, 5), 2), (nn.GRUCell(4, 5), 1), (nn.RNNCell(4, 5), 1), (nn.RMSNorm(4), 0)],
    ids=["lstm", "gru", "rnn", "rms"],
)
def test_fused_layers_are_traced_as_what_they_are(cell, states) -> None:
    """As one operator of TorchScript, whatever the engine computes them by."""
    made = [torch.randn(3, 5) for _ in range(states)]
    given = (torch.randn(3, 4), *([tuple(made)] if states > 1 else made))
    traced = again(torch.jit.trace(cell, given))
    for got, want in zip(flat(traced(*given)), flat(cell(*given)), strict=True):
        assert torch.equal(got, want)


def test_training_goes_through_a_trace() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", torch.jit.TracerWarning)  # the two runs draw other numbers
        traced = torch.jit.trace(model, torch.randn(8, 3))
    traced(torch.randn(8, 3)).sum().backward()
    assert model[0].weight.grad is not None
    assert not torch.equal(traced(torch.ones(50, 3)), traced(torch.ones(50, 3)))


def branches(x, y):
    if x.sum() > 0:
        return x * y
    return x


def test_values_that_python_reads_warn() -> None:
    with pytest.warns(torch.jit.TracerWarning, match="fixed in the recorded program"):
        traced = torch.jit.trace(branches, (torch.ones(2), torch.full((2,), 3.0)))
    assert traced(-torch.ones(2), torch.ones(2)).tolist() == [-1.0, -1.0]


def test_a_trace_that_differs_warns() -> None:
    count = []

    def counting(x):
        count.append(1)
        return x + len(count)

    with pytest.warns(torch.jit.TracerWarning, match="does not match the corresponding output"):
        torch.jit.trace(counting, torch.ones(1))


class Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x, y):
        return branches(self.linear(x) * 0 + x, y)


@pytest.mark.filterwarnings("ignore:Tensor.__bool__ reads")
@pytest.mark.parametrize("target", [branches, Branches(), Branches().forward])
def test_check_inputs_are_checked(target) -> None:
    one, three = torch.ones(2), torch.full((2,), 3.0)
    torch.jit.trace(target, (one, three), check_inputs=[(one * 2, three), (three, one)])
    torch.jit.trace(target, (one, three), check_trace=False, check_inputs=[(-one, three)])
    with pytest.raises(torch.jit.TracingCheckError, match=r"(?s)failed sanity checks!.*Graphs differed.*-.*torch\.mul"):
        torch.jit.trace(target, (one, three), check_inputs=[(one * 2, three), (-one, three)])


@pytest.mark.filterwarnings("ignore:Tensor.__bool__ reads")
def test_check_inputs_of_a_module_have_names() -> None:
    one, model = torch.ones(2), Branches()
    with pytest.raises(torch.jit.TracingCheckError, match="Graphs differed"):
        torch.jit.trace_module(model, {"forward": (one, one)}, check_inputs=[{"forward": (-one, one * 3)}])
    torch.jit.trace_module(model, {"forward": (one, one)}, check_inputs=[{"forward": (one, one * 3)}])


def test_structures() -> None:
    def structured(pair, table):
        return pair[0] + table["a"], {"s": pair[1]}

    one = torch.ones(2)
    inputs = ((one, one * 2), {"a": one * 3})
    with pytest.raises(RuntimeError, match="strict=False"):
        torch.jit.trace(structured, inputs)
    first, second = torch.jit.trace(structured, inputs, strict=False)(*inputs)
    assert first.tolist() == [4.0, 4.0]
    assert second["s"].tolist() == [2.0, 2.0]


def test_several_methods() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x):
            return self.linear(x)

        def twice(self, x):
            return self.linear(self.linear(x))

    model = Model()
    x = torch.ones(1, 2)
    traced = torch.jit.trace_module(model, {"forward": x, "twice": x})
    assert torch.equal(again(traced).twice(x), model.twice(x))
    assert not torch.jit.is_tracing()
    with pytest.raises(AttributeError, match="trace_module"):
        torch.jit.trace(model.twice, x)


def test_compiled_while_tracing() -> None:
    @torch.jit.script_if_tracing
    def scaled(x):
        return x * 2

    assert scaled(torch.ones(1)).item() == 2
    assert torch.jit.trace(lambda x: scaled(x) + 1, torch.ones(1))(torch.full((1,), 4.0)).item() == 9


@pytest.mark.parametrize(
    "function",
    [
        lambda v: torch.unique(v),
        lambda v: torch.unique(v, return_counts=True)[1],
        lambda v: torch.unique(v, dim=0, return_inverse=True)[1],
        lambda v: v.unique_consecutive(return_counts=True)[1],
        lambda v: torch.isin(v, v[0]).sum(),
        lambda v: torch.histogram(v, 3)[0],
        lambda v: torch.norm(v, "nuc"),
        lambda v: torch.norm(v, 2, 1),
        lambda v: torch.tensordot(v, v, ([0], [0])),
        lambda v: torch.stft(v, 4, return_complex=True).abs(),
        lambda v: torch.istft(
            torch.stft(v, 4, 1, window=torch.ones(4), return_complex=True), 4, 1, window=torch.ones(4)
        ),
        lambda v: F.max_pool1d(v, 2, return_indices=True)[1],
        lambda v: torch.fft.rfft(v).abs(),
        lambda v: torch.fft.fft(v, dim=0, norm="ortho").real,
        lambda v: torch.fft.irfft2(torch.fft.rfft2(v, norm="ortho"), s=v.shape[-2:], norm="ortho"),
        lambda v: torch.fft.ifftn(torch.fft.fftn(v, dim=(0, 1)), dim=(0, 1)).imag + torch.fft.rfft(v, 14).imag,
        lambda v: torch.fft.hfft(v.to(torch.complex64), 6),
        lambda v: torch.fft.ihfft(v).real,
        lambda v: torch.fft.fftshift(torch.fft.fft2(v)).real,
    ],
)
def test_what_computes_with_values_is_traced_and_not_fixed(function) -> None:
    traced = again(torch.jit.trace(function, (torch.arange(24.0).reshape(3, 8).sin(),)))
    other = torch.tensor([3.0, 1.0, 1.0, 2.0]).repeat(3, 2)
    other[2] = torch.arange(8.0)
    assert torch.allclose(traced(other).float(), function(other).float(), atol=1e-5)


def test_a_script_calls_a_traced_function() -> None:
    traced = torch.jit.trace(lambda x: x + 1, torch.zeros(2))

    @torch.jit.script
    def sliced(x):  # type: ignore[no-untyped-def]
        return traced(x)[0:1]

    file = io.BytesIO()
    torch.jit.save(sliced, file)
    file.seek(0)
    assert sliced(torch.ones(3)).tolist() == torch.jit.load(file)(torch.ones(3)).tolist() == [2]


def test_a_script_calls_no_module_but_its_own() -> None:
    traced = torch.jit.trace(nn.Linear(2, 2), torch.zeros(2))
    with pytest.raises(RuntimeError, match="Cannot call a ScriptModule that is not a submodule of the caller"):

        @torch.jit.script
        def called(x):  # type: ignore[no-untyped-def]
            return traced(x)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([torch.ones(1), (torch.ones(1),)], "consistent element type"),
        ({1: []}, "List trace inputs must have elements"),
        ({1: torch.ones(1), "a": torch.ones(1)}, "consistent type. Found int and str"),
    ],
)
def test_containers_of_several_types(given: object, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        torch.jit.trace(lambda d: d[1], (given,))


def test_pooling_is_an_operator() -> None:
    assert "aten::max_pool2d(" in str(torch.jit.trace(lambda x: F.max_pool2d(x, 2), torch.ones(1, 1, 4, 4)).graph)
    traced = torch.jit.trace(lambda x: F.max_pool2d(x, 2, return_indices=True), torch.ones(1, 1, 4, 4))
    assert traced(torch.ones(1, 1, 4, 4))[1].tolist() == [[[[0, 2], [8, 10]]]]


def test_draws_of_distributions() -> None:
    traced = torch.jit.trace(lambda x: torch._sample_dirichlet(x), torch.ones(3), check_trace=False)
    assert traced(torch.ones(5)).sum().item() == pytest.approx(1)
    assert [n.isNondeterministic() for n in traced.graph.nodes()][-1]
    scores = torch.jit.trace(lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(2)), torch.zeros(2))
    assert scores(torch.zeros(2)).item() == pytest.approx(0.6931472)
    logarithms = torch.jit.trace(lambda x: F.logsigmoid(x), torch.ones(1))
    assert logarithms(torch.zeros(1)).item() == pytest.approx(-0.6931472)


def test_one_factor_for_all_dims() -> None:
    traced = torch.jit.trace(lambda x: F.interpolate(x, scale_factor=2), torch.ones(1, 1, 2, 2))
    assert traced(torch.ones(1, 1, 3, 3)).shape == (1, 1, 6, 6)


def test_tensors_of_one_element_are_numbers() -> None:
    @torch.jit.script
    def of(n: int, scale: float, flag: bool, more: list[int]):  # type: ignore[no-untyped-def]
        return n, scale, flag, more

    got = of(torch.tensor(3), torch.tensor([2.5]), torch.tensor(1), [torch.tensor(4)])
    assert got == (3, 2.5, True, [4])
    with pytest.raises(RuntimeError, match="Expected a value of type 'int'"):
        of(torch.ones(2), 1.0, True, [])
    assert of.schema == "of(int n, float scale, bool flag, int[] more) -> (int, float, bool, int[])"


@pytest.mark.parametrize(
    "index",
    [
        lambda i, m: (Ellipsis, i, slice(None)),
        lambda i, m: (Ellipsis, i),
        lambda i, m: (0, Ellipsis, i, slice(1, None)),
        lambda i, m: (i, Ellipsis, i),
        lambda i, m: (Ellipsis, None, i, 1),
        lambda i, m: (Ellipsis, m),
        lambda i, m: (i, Ellipsis, [0, 2, 1]),
        lambda i, m: (Ellipsis, slice(None), i, None),
    ],
)
def test_a_tensor_index_after_an_ellipsis(index) -> None:
    """How many dims `...` stands for is known in a trace."""
    i, mask = torch.tensor([1, 0, 1]), torch.arange(12).reshape(3, 4) % 3 == 0

    def read(x, i, m):
        return x[index(i, m)]

    def written(x, i, m):
        x = x.clone()
        x[index(i, m)] = -1.0
        return x

    first, second = torch.randn(2, 2, 3, 4), torch.randn(3, 2, 3, 4)
    for function in (read, written):
        traced = torch.jit.trace(function, (first, i, mask))
        for x in (first, second):
            assert torch.equal(traced(x, i, mask), function(x, i, mask))


ACTIVATIONS = ("leaky_relu", "elu", "celu", "hardtanh", "relu6", "silu", "hardswish", "hardsigmoid", "mish", "rrelu")


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_in_place_can_be_trained(name: str) -> None:
    """LeakyReLU(inplace=True) of a DCGAN, ReLU6 and Hardswish of MobileNets, after a norm that is not needed again."""

    def function(x):
        return getattr(F, name)(x * 2, inplace=True) * 3

    x = torch.randn(4, 5, requires_grad=True)
    for program in (torch.jit.trace(function, torch.randn(4, 5)), again(torch.jit.trace(function, torch.randn(4, 5)))):
        expected = torch.autograd.grad(function(x).sum(), x)[0]
        assert torch.allclose(torch.autograd.grad(program(x).sum(), x)[0], expected)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.rot90(x, 1, (0, 1)) * 2,
        lambda x: torch.rot90(x, 3, (1, 2)),
        lambda x: (x * 1).unsqueeze_(1).mul_(x.mean()),
        lambda x: (x * 1).transpose_(0, 2) + 1,
        lambda x: (x[0] * 1).t_(),
        lambda x: (x[:1] * 1).squeeze_().squeeze_(0).add_(1),
    ],
)
def test_shapes_may_change_in_place(function) -> None:
    traced = torch.jit.trace(function, torch.randn(2, 3, 4))
    x = torch.randn(4, 5, 6)
    for program in (traced, again(traced)):
        assert torch.equal(program(x), function(x))
