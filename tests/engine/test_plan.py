"""Inference plans: the numbers of the module, and the module itself wherever there is no plan."""

from __future__ import annotations

import copy
import pickle
import re
import subprocess
import sys
import threading
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.kernels import processor
from engine.nn import functional as F
from engine.programs import generated_guards, guards
from engine.programs import inference as plan
from engine.programs import values as tracing
from engine.programs.inference import OptimizedModule, lowering, parts
from engine.programs.inference import layer_programs as programs
from tests.engine.programs.conftest import checked_graphs  # noqa: F401  a fixture

pytestmark = pytest.mark.onednn
Pair = namedtuple("Pair", "first second")


@pytest.fixture(params=["onednn", "parts", "programs", "numpy"], autouse=True)
def kernels(request: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Plans with oneDNN (where it is), the same with an image at a time, with programs of generated code, each wherever
    that can be, and of ops alone."""
    if request.param == "numpy":
        monkeypatch.setattr(lowering, "onednn_kernels", lambda: False)
        return "numpy"
    if not lowering.onednn_kernels():
        pytest.skip("oneDNN is not in use")
    if request.param == "parts":
        monkeypatch.setattr(parts, "NEAR", 0)
        monkeypatch.setattr(parts, "BUSY", 1 << 40)
    if request.param == "programs":
        if not processor.available():
            pytest.skip(f"generated code is {processor.describe()}")
        monkeypatch.setattr(programs, "_FEWEST", 1)
        monkeypatch.setattr(programs, "_LEAST", 0)
        monkeypatch.setenv("ENGINE_ROUTES", "static")  # whatever takes longer
    return "onednn"


def settled(module: nn.Module) -> nn.Module:
    """In eval mode, with running statistics that are not 0 and 1."""
    for m in module.modules():
        if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d):
            with engine.no_grad():
                m.running_mean.normal_(0, 0.3)
                m.running_var.uniform_(0.5, 2)
                if m.affine:
                    m.weight.uniform_(0.5, 2)
                    m.bias.normal_()
    return module.eval()


def tensors(value: Any) -> list:
    if isinstance(value, engine.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in tensors(v)] if isinstance(value, list | tuple) else []


def planned(module: nn.Module, *args: Any, **kwargs: Any) -> OptimizedModule:
    """Compiled, run twice; the plan's results are the module's, and of their own memory."""
    compiled = engine.compile(module)
    with engine.no_grad():
        first = compiled(*args, **kwargs)
        assert not isinstance(compiled.plans[-1], str), compiled.plans[-1]
        second = compiled(*args, **kwargs)
        wanted = module(*args, **kwargs)
        kept = [t.clone() for t in tensors(second)]
        compiled(*args, **kwargs)
    assert type(first) is type(second) is type(wanted)
    found = list(zip(tensors(wanted), tensors(first), tensors(second), kept, strict=True))
    assert found
    for want, a, b, before in found:
        engine.testing.assert_close(a, want, rtol=1e-5, atol=1e-5)
        engine.testing.assert_close(b, want, rtol=1e-5, atol=1e-5)
        assert b.stride() == want.stride() and b.is_contiguous() == want.is_contiguous()
        assert engine.equal(b, before), "a later call wrote into an earlier result"
        assert not b.requires_grad
    return compiled


def falls_back(module: nn.Module, why: str, *args: Any) -> OptimizedModule:
    """Op by op, with a warning that says why."""
    compiled = engine.compile(module)
    with engine.no_grad():
        with pytest.warns(UserWarning, match=why):
            first = compiled(*args)
        again = compiled(*args)  # no second warning
        wanted = module(*args)
    for a, b, c in zip(tensors(first), tensors(again), tensors(wanted), strict=True):
        engine.testing.assert_close(a, c)
        engine.testing.assert_close(b, c)
    return compiled


class Net(nn.Module):
    """A module of a function and some layers."""

    def __init__(self, function: Any, **layers: Any) -> None:
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(self, *args, **kwargs)


def conv(inside: int, outside: int, **options: Any) -> nn.Conv2d:
    return nn.Conv2d(inside, outside, 3, padding=1, **options)


def names(compiled: OptimizedModule) -> list[str]:
    found = [re.split(r"(?:parts|program) of ", name)[-1] for name in compiled.plans[-1].names]
    return [one for name in found for one in name.split(", ")]


# --- folding and fusing


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_batch_norm_is_folded_into_a_convolution(bias: bool, affine: bool, groups: int) -> None:
    layers = nn.Sequential(conv(4, 8, bias=bias, groups=groups), nn.BatchNorm2d(8, affine=affine))
    compiled = planned(settled(layers), engine.randn(2, 4, 6, 5))
    assert names(compiled) == ["convolution"]


@pytest.mark.parametrize("layer", [nn.ConvTranspose2d(3, 4, 3), nn.ConvTranspose2d(4, 4, 3, groups=2)])
def test_batch_norm_after_a_transposed_convolution(layer: nn.Module) -> None:
    planned(settled(nn.Sequential(layer, nn.BatchNorm2d(4))), engine.randn(2, layer.in_channels, 5, 5))


def test_batch_norm_is_folded_into_a_linear_layer() -> None:
    module = settled(nn.Sequential(nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 3)))
    compiled = planned(module, engine.randn(4, 5))
    assert "batch_norm_eval" not in names(compiled)


def test_other_norms_of_convolutions_stay() -> None:
    planned(settled(nn.Sequential(nn.Conv1d(3, 4, 3), nn.BatchNorm1d(4))), engine.randn(2, 3, 9))
    planned(settled(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(6))), engine.randn(2, 6, 3))
    planned(settled(nn.Sequential(nn.BatchNorm2d(3), conv(3, 4))), engine.randn(2, 3, 5, 5))
    planned(settled(nn.Sequential(nn.Conv3d(2, 3, 2), nn.BatchNorm3d(3))), engine.randn(1, 2, 4, 5, 6))


def test_a_convolution_that_is_read_twice_keeps_its_norm() -> None:
    net = Net(lambda s, x: (y := s.conv(x)) + s.norm(y), conv=conv(3, 4), norm=nn.BatchNorm2d(4))
    planned(settled(net), engine.randn(2, 3, 5, 5))


class Block(nn.Module):
    """A residual block as of ResNet: the sum in place, the activation in place or not."""

    def __init__(self, inplace: bool, stride: int = 1) -> None:
        super().__init__()
        self.conv1, self.bn1 = conv(6, 6, stride=stride), nn.BatchNorm2d(6)
        self.conv2, self.bn2 = conv(6, 6), nn.BatchNorm2d(6)
        self.relu = nn.ReLU(inplace)
        self.down = nn.Conv2d(6, 6, 1, stride) if stride > 1 else None

    def forward(self, x: Any) -> Any:
        same = x if self.down is None else self.down(x)
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += same
        return self.relu(out)


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_residual_blocks(inplace: bool, batch: int, kernels: str) -> None:
    module = nn.Sequential(Block(inplace), Block(inplace, 2), Block(inplace))
    module = nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    compiled = planned(settled(module), engine.randn(batch, 6, 9, 9))
    if kernels == "onednn" and adds_in_its_own_pass(6):
        assert "add" not in names(compiled) and "relu" not in names(compiled)
        assert "convolution+sum+eltwise" in names(compiled)


def adds_in_its_own_pass(channels: int) -> bool:
    """Whether a convolution of oneDNN takes a residual sum and an activation along on this processor."""
    from engine.backends.onednn import _abi, prepared, report

    x, window = report.maps(1, channels, 9, 9), ((1, 1), (1, 1), (1, 1))
    weight = np.ones((channels, channels, 3, 3), "float32")
    post = (("binary", _abi.BINARY_ADD), ("eltwise", _abi.RELU, 0.0, 0.0))
    return bool(prepared.convolution(x, weight, None, x.copy("K"), *window, 1, post))


@pytest.mark.parametrize(
    "activation",
    [
        nn.ReLU(),
        nn.ReLU6(),
        nn.LeakyReLU(0.2),
        nn.Sigmoid(),
        nn.Tanh(),
        nn.SiLU(),
        nn.Hardswish(),
        nn.GELU(),
        nn.GELU("tanh"),
        nn.ELU(0.7),
        nn.SELU(),
        nn.Softplus(),
        nn.Hardtanh(-0.3, 0.4),
        nn.ReLU(True),
        nn.ReLU6(True),
        nn.PReLU(),
        nn.Mish(),
        nn.Hardsigmoid(),
        nn.CELU(0.5),
    ],
    ids=repr,
)
@pytest.mark.parametrize("layer", ["conv", "linear"])
def test_activations(activation: nn.Module, layer: str) -> None:
    if layer == "conv":
        planned(nn.Sequential(conv(3, 8), activation).eval(), engine.randn(2, 3, 5, 5) * 3)
    else:
        planned(nn.Sequential(nn.Linear(6, 8), activation).eval(), engine.randn(5, 6) * 3)


def test_both_branches_of_a_sum_are_convolutions() -> None:
    net = Net(lambda s, x: F.relu(s.a(x) + s.b(x)), a=conv(3, 4), b=conv(3, 4))
    planned(net.eval(), engine.randn(2, 3, 5, 5))


def test_sums_that_broadcast_or_scale_stay() -> None:
    net = Net(lambda s, x: s.a(x) + s.b(x).mean((2, 3), True), a=conv(3, 4), b=conv(3, 4))
    planned(net.eval(), engine.randn(2, 3, 5, 5))
    net = Net(lambda s, x: s.a(x).add(s.b(x), alpha=2), a=conv(3, 4), b=conv(3, 4))
    planned(net.eval(), engine.randn(2, 3, 5, 5))
    net = Net(lambda s, x: s.a(x) + 1 + (y := s.b(x)) + y, a=conv(3, 4), b=conv(3, 4))
    planned(net.eval(), engine.randn(2, 3, 5, 5))


def test_pooling_and_cat() -> None:
    def forward(s: Any, x: Any) -> Any:
        y = F.relu(s.a(x))
        y = engine.cat([F.max_pool2d(y, 3, 2, 1), F.avg_pool2d(y, 3, 2, 1), s.down(y)], 1)
        y = F.avg_pool2d(y, 2, ceil_mode=True, count_include_pad=False)
        return F.max_pool2d(s.b(y), 2, return_indices=True)

    net = Net(forward, a=conv(3, 4), down=nn.Conv2d(4, 4, 3, 2, 1), b=conv(12, 5))
    planned(net.eval(), engine.randn(2, 3, 13, 11))


def test_linear_layers_over_several_dims_and_after_images() -> None:
    net = Net(lambda s, x: s.c(F.gelu(s.b(s.a(x)))), a=conv(3, 4), b=nn.Linear(6, 6), c=conv(4, 2))
    planned(net.eval(), engine.randn(2, 3, 5, 6))
    net = Net(lambda s, x: s.b(F.relu(s.a(x)) + x), a=nn.Linear(6, 6), b=nn.Linear(6, 2, bias=False))
    planned(net.eval(), engine.randn(2, 5, 6))


# --- memory


def test_in_place_on_what_is_read_elsewhere() -> None:
    def forward(s: Any, x: Any) -> Any:
        y = s.a(x)
        z = s.b(y)  # reads y before it changes
        y.relu_()
        return z + y, y

    planned(Net(forward, a=conv(3, 4), b=conv(4, 4)).eval(), engine.randn(2, 3, 5, 5))


def test_writes_through_views() -> None:
    def forward(s: Any, x: Any) -> Any:
        y = s.a(x)
        y[:, 0] = 1.0
        y.view(y.shape[0], -1)[:, 3:7].mul_(2)
        made = engine.zeros(2, 4, 5, 5)
        made[:, 1:3] += y[:, 1:3]
        return s.b(y) + made

    planned(Net(forward, a=conv(3, 4), b=conv(4, 4)).eval(), engine.randn(2, 3, 5, 5))


def test_an_input_written_in_place_is_written_each_time() -> None:
    module = nn.Sequential(nn.ReLU(inplace=True), conv(3, 4)).eval()
    compiled = engine.compile(module)
    with engine.no_grad():
        for _ in range(3):
            x = engine.randn(2, 3, 5, 5)
            wanted, kept = module(x.clone()), x.clone()
            engine.testing.assert_close(compiled(x), wanted)
            assert engine.equal(x, kept.relu())
    assert not isinstance(compiled.plans[0], str)


def test_results_that_are_views_inputs_and_constants() -> None:
    def forward(s: Any, x: Any) -> Any:
        y = s.a(x)
        return {
            "same": x,
            "half": y[:, :2],
            "flat": y.flatten(1),
            "ones": engine.ones(3),
            "all": [y, y.detach()],
        }

    compiled = planned(Net(forward, a=conv(3, 4)).eval(), x := engine.randn(2, 3, 5, 5))
    with engine.no_grad():
        one, two = compiled(x), compiled(x)
        assert one["same"] is x
        one["ones"].zero_()
        assert compiled(x)["ones"].sum() == 3
        one["flat"].zero_()
        assert not one["half"].any() and two["half"].any()


def test_threads_get_results_of_their_own() -> None:
    module = settled(nn.Sequential(Block(True), Block(True)))
    compiled = engine.compile(module)
    inputs = [engine.randn(1, 6, 9, 9) for _ in range(4)]
    with engine.no_grad():
        compiled(inputs[0])
        wanted = [module(x) for x in inputs]
    wrong = []

    def work(x: Any, want: Any) -> None:
        with engine.no_grad():
            for _ in range(20):
                if not engine.allclose(compiled(x), want, 1e-5, 1e-5):
                    wrong.append(x)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(inputs, wanted)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# --- what ends a plan


def test_changed_weights_are_seen(kernels: str) -> None:
    module = settled(nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU()))
    compiled = engine.compile(module)
    x = engine.randn(2, 3, 5, 5)

    def check() -> None:
        for _ in range(3):
            engine.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)

    with engine.no_grad():
        check()
        module[0].weight.mul_(2)
        check()
        module[1].running_mean.add_(1)
        check()
        module[0].weight = nn.Parameter(engine.randn(4, 3, 3, 3))
        check()
        module[0].bias.data = engine.randn(4)
        check()
        module.load_state_dict({k: v + 1 for k, v in module.state_dict().items()})
        check()
        module[2] = nn.Tanh()
        check()
    assert not isinstance(compiled.plans[-1], str)


CHANGES = {
    "a parameter is written to": lambda m: m[0].weight.mul_(2),
    "through a view": lambda m: m[0].weight[0].zero_(),
    "through detach": lambda m: m[0].bias.detach().add_(1),
    "through its data": lambda m: m[0].weight.data.mul_(2),
    "through a view of its data": lambda m: m[1].running_mean.data[1:].add_(1),
    "two tensors are swapped": lambda m: engine.utils.swap_tensors(m[0].bias, nn.Parameter(engine.randn(4))),
    "a buffer is written to": lambda m: m[1].running_mean.add_(1),
    "a parameter is another": lambda m: setattr(m[0], "weight", nn.Parameter(engine.randn(4, 3, 3, 3))),
    "in the table itself": lambda m: m[0]._parameters.update(weight=nn.Parameter(engine.randn(4, 3, 3, 3))),
    "its data is": lambda m: setattr(m[0].bias, "data", engine.randn(4)),
    "a module is": lambda m: m.__setitem__(2, nn.Tanh()),
    "a module more": lambda m: m.append(nn.Tanh()),
    "a module less": lambda m: m.pop(2),
    "all are loaded": lambda m: m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}),
    "a hook": lambda m: m[2].register_forward_hook(lambda module, args, out: out + 1),
    "a hook before": lambda m: m[0].register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "training": lambda m: m[1].train(),
    "a number": lambda m: setattr(m[1], "eps", 1.0),
    "a tuple": lambda m: setattr(m[0], "padding", (2, 2)),
    "forward of one": lambda m: setattr(m[2], "forward", lambda x: x * 2),
    "a class": lambda m: setattr(m[2], "__class__", nn.Tanh),
    "all of a dict": lambda m: setattr(m[1], "__dict__", m[1].__dict__ | {"eps": 1.0}),
    "a table": lambda m: setattr(m[0], "_parameters", m[0]._parameters | {"bias": None}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_each_change_is_seen_by_a_watch(change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not generated_guards.available():
        pytest.skip("nothing is watched here")
    module = settled(nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU()))
    compiled, x = engine.compile(module), engine.randn(2, 3, 5, 5)
    with engine.no_grad():
        for _ in range(6):
            compiled(x)
        assert compiled._state.unchanged()
        with monkeypatch.context() as watched:  # no object is looked at
            for name in ("holds", "plain"):
                watched.setattr(guards.Guard, name, lambda self: pytest.fail("looked at"))
            engine.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)
        CHANGES[change](module)
        assert not compiled._state.unchanged()
        want = copy.deepcopy(module)(x)
        for _ in range(3):
            engine.testing.assert_close(compiled(x), want, rtol=1e-5, atol=1e-5)


def test_changed_attributes_are_seen() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor, self.factors, self.function, self.seen = 2, [1, 2.0], F.relu, 0

        def forward(self, x: Any) -> Any:
            self.seen = len(x)  # what it sets itself says nothing
            return self.function(x * self.factor) * self.factors[0]

    module, own = Net().eval(), Net.forward
    compiled, x = engine.compile(module), engine.randn(2, 3)

    def swapped() -> None:
        Net.forward = lambda self, x: -own(self, x)  # type: ignore[method-assign]

    with engine.no_grad():
        for one in (x, x, x[:1], x[:1], x):
            compiled(one)
        assert [isinstance(p, str) for p in compiled.plans] == [False, False]
        first = [*compiled.plans]
        compiled(x)
        assert first == compiled.plans
        for change in (
            lambda: setattr(module, "factor", 3),
            lambda: setattr(module, "factor", 3.5),
            lambda: setattr(module, "function", F.gelu),
            lambda: module.factors.__setitem__(0, 5),
            swapped,
            lambda: delattr(module, "factors") or setattr(module, "factors", [7]),
        ):
            for _ in range(6):
                compiled(x)
            change()
            for _ in range(3):
                engine.testing.assert_close(compiled(x), module(x))
    assert not isinstance(compiled.plans[-1], str)


def test_a_hook_of_all_modules_is_seen_by_a_watch() -> None:
    if not generated_guards.available():
        pytest.skip("nothing is watched here")
    compiled, x = engine.compile(nn.Linear(3, 3).eval()), engine.randn(2, 3)
    with engine.no_grad():
        for _ in range(6):
            before = compiled(x)
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, out: out + 1)
        try:
            assert not engine.equal(compiled(x), before)
        finally:
            handle.remove()
        engine.testing.assert_close(compiled(x), before)


def test_what_changes_and_changes_back_is_watched_again_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    if not generated_guards.available():
        pytest.skip("nothing is watched here")
    module = nn.Linear(3, 3).eval()
    compiled, x, made = engine.compile(module), engine.randn(2, 3), []
    watch = generated_guards.Watch
    monkeypatch.setattr(generated_guards, "Watch", lambda *a: made.append(1) or watch(*a))
    with engine.no_grad():
        for _ in range(300):
            compiled(x)
            module.note = object()  # a dict that is watched has another number
        assert len(made) == len(guards.WATCHED) and len(compiled.plans) == 1
        engine.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)


def test_writes_to_data_that_is_held_are_seen() -> None:
    module = settled(nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU()))
    held = [module[0].weight.data, module[1].bias.data.data, *(module[0].bias.data for _ in range(40))]
    compiled, x = engine.compile(module), engine.randn(2, 3, 5, 5)
    with engine.no_grad():
        for tensor in (held[0], held[1], held[-1], held[2]):
            for _ in range(12):
                compiled(x)
            tensor.add_(1)
            for _ in range(3):
                engine.testing.assert_close(compiled(x), module(x), rtol=1e-5, atol=1e-5)
        plans = [*compiled.plans]
        del held, tensor
        for _ in range(100):  # read only
            module[0].bias.data.sum()
            compiled(x)
    assert compiled.plans == plans and len(module[0].bias._aliases.counters) < 20


def test_tensors_that_are_no_parameters_are_seen() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.more = engine.ones(3), [engine.ones(3)]

        def forward(self, x: Any) -> Any:
            return x * (self.scale + 1) + self.more[0] * outside

    outside, module = engine.ones(3), Net().eval()
    compiled, x = engine.compile(module), engine.randn(2, 3)
    with engine.no_grad():
        for change in (
            lambda: module.scale.mul_(3),
            lambda: module.more[0].mul_(3),
            lambda: outside.mul_(2),
            lambda: setattr(module, "scale", engine.zeros(3)),
            lambda: module.more.__setitem__(0, engine.zeros(3)),
        ):
            for _ in range(12):
                compiled(x)
            change()
            for _ in range(3):
                engine.testing.assert_close(compiled(x), module(x))
    assert not isinstance(compiled.plans[-1], str)


def test_a_watch_sees_dicts_and_counters() -> None:
    if not generated_guards.available():
        pytest.skip("nothing is watched here")
    table, counter = {"a": 1}, [1000]
    for change in (
        lambda: table.update(a=2),
        lambda: table.pop("a"),
        lambda: table.__setitem__("b", 1),
        table.clear,
        lambda: counter.__setitem__(0, counter[0] + 1),
    ):
        watch = generated_guards.Watch([table], [counter])
        assert watch.same() and watch.same()
        assert table.get("a", 5) and counter[0]
        assert watch.same()
        change()
        assert not watch.same()


def test_weights_that_change_every_time_make_no_plans() -> None:
    module = nn.Linear(3, 3).eval()
    compiled = engine.compile(module)
    x = engine.randn(2, 3)
    with engine.no_grad():
        compiled(x)
        first = compiled.plans[0]
        for _ in range(4):
            module.weight.add_(1)
            engine.testing.assert_close(compiled(x), module(x))
        assert compiled.plans == [first]


def test_training_and_gradients_are_the_modules() -> None:
    module = nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU())
    compiled = engine.compile(module)
    x = engine.randn(2, 3, 5, 5, requires_grad=True)
    out = compiled(x)
    out.sum().backward()
    assert x.grad is not None and module[0].weight.grad is not None
    assert int(module[1].num_batches_tracked) == 1
    with engine.no_grad():
        compiled(x)
    assert int(module[1].num_batches_tracked) == 2
    assert compiled.plans == []
    compiled.eval()
    assert not module.training
    assert compiled(x).requires_grad
    assert compiled.plans == []


def test_shapes_dtypes_and_arguments_have_plans_of_their_own() -> None:
    net = Net(lambda s, x, scale=1.0, twice=False: s.a(x) * scale + (1 if twice else 0), a=conv(3, 4))
    compiled = engine.compile(net.eval())
    calls = [
        ((2, 3, 5, 5), {}),
        ((1, 3, 5, 5), {}),
        ((2, 3, 5, 5), {"scale": 2.0}),
        ((2, 3, 5, 5), {"twice": True}),
    ]
    with engine.no_grad():
        for _ in range(2):
            for shape, options in calls:
                x = engine.randn(shape)
                engine.testing.assert_close(compiled(x, **options), net(x, **options))
        assert len(compiled.plans) == 4
        for n in range(1, 12):
            compiled(engine.randn(n, 3, 4, 4))
        assert len(compiled.plans) == 8
        net.double()
        x = engine.randn(2, 3, 5, 5, dtype=engine.float64)
        for _ in range(3):
            engine.testing.assert_close(compiled(x), net(x))


def test_hooks_run() -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).eval()
    compiled = engine.compile(module)
    x = engine.randn(2, 3)
    seen = []
    with engine.no_grad():
        compiled(x)
        handle = module[0].register_forward_hook(lambda *a: seen.append(1))
        compiled(x)
        handle.remove()
        compiled(x)
    assert seen == [1]


def test_the_first_call_of_a_process_is_traced_whole() -> None:
    """Ops are compiled, and written anew for the first converted tensor, while the trace watches them."""
    code = (
        "import engine; from engine import nn;m = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), "
        "nn.Conv2d(16, 16, 3)).eval();c = engine.compile(m); engine.set_grad_enabled(False); c(engine.randn(1, 3, 32, "
        "32));print(sum(n.count('convolution') for n in c.plans[0].names), type(engine.add).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["3", "function"], done.stderr


# --- arguments and results


def test_structures_of_inputs_and_results() -> None:
    def forward(s: Any, pair: Any, *, more: Any) -> Any:
        a, b = pair
        y = s.a(a) + more["x"][0]
        return Pair(y, {"list": [b * 2, 3, None], "tuple": (y.sum(), "text")})

    net = Net(forward, a=nn.Linear(3, 4)).eval()
    a, b, c = engine.randn(2, 3), engine.arange(4), engine.randn(2, 4)
    compiled = planned(net, (a, b), more={"x": [c]})
    with engine.no_grad():
        found = compiled((a, b), more={"x": [c]})
    assert type(found) is Pair and found.second["list"][1:] == [3, None]
    assert found.second["tuple"][1] == "text" and found.second["list"][0].dtype is engine.int64


def test_several_outputs_and_lists() -> None:
    def forward(s: Any, x: Any) -> Any:
        values, indices = s.a(x).max(1)
        left, right = s.b(x).chunk(2, -1)
        return values, indices, left * right, engine.stack([left, right]), x.topk(2)

    planned(Net(forward, a=nn.Linear(4, 6), b=nn.Linear(4, 6)).eval(), engine.randn(3, 4))


def test_one_tensor_twice_is_not_two() -> None:
    net = Net(lambda s, x, y: s.a(x) * y.add_(1), a=nn.Linear(3, 3)).eval()
    compiled = engine.compile(net)
    with engine.no_grad():
        x, y = engine.randn(2, 3), engine.randn(2, 3)
        compiled(x.clone(), y.clone())
        same, twin = x.clone(), x.clone()
        engine.testing.assert_close(compiled(same, same), net(twin, twin))
        engine.testing.assert_close(same, twin)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_recurrent_layers(kind: Any) -> None:
    planned(kind(4, 5, 2, batch_first=True, bidirectional=True).eval(), engine.randn(2, 6, 4))


def test_transformers_and_embeddings() -> None:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    net = Net(
        lambda s, x: s.out(s.layers(s.table(x))),
        table=nn.Embedding(11, 16),
        layers=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        out=nn.Linear(16, 11),
    )
    planned(net.eval(), engine.randint(0, 11, (2, 7)))


def test_constants_are_computed_once() -> None:
    net = Net(lambda s, x: s.a(x) + s.table.softmax(0) + engine.arange(4) * 2.0, a=nn.Linear(3, 4))
    net.register_buffer("table", engine.randn(4))
    compiled = planned(net.eval(), engine.randn(2, 3))
    assert "softmax" not in names(compiled) and "arange" not in names(compiled)


def test_small_and_empty_batches() -> None:
    planned(settled(nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU())), engine.randn(0, 3, 5, 5))
    planned(settled(nn.Sequential(conv(1, 1), nn.BatchNorm2d(1), nn.ReLU())), engine.randn(1, 1, 1, 1))
    planned(nn.Sequential(nn.Linear(3, 1), nn.ReLU()).eval(), engine.randn(3))


# --- no plan


def test_values_read_in_python() -> None:
    net = Net(lambda s, x: s.a(x) if x.sum() > 0 else -s.a(x), a=nn.Linear(3, 3)).eval()
    compiled = falls_back(net, r"values of a tensor are read in Python \(Tensor.__bool__\)", engine.ones(2, 3))
    with engine.no_grad():
        engine.testing.assert_close(compiled(-engine.ones(2, 3)), net(-engine.ones(2, 3)))


def test_random_numbers() -> None:
    net = Net(lambda s, x: s.a(x) + 0 * engine.rand(3), a=nn.Linear(3, 3)).eval()
    falls_back(net, "random", engine.randn(2, 3))


def test_results_of_other_types() -> None:
    @dataclass
    class Result:
        logits: Any

    compiled = engine.compile(Net(lambda s, x: Result(s.a(x)), a=nn.Linear(3, 3)).eval())
    with (
        engine.no_grad(),
        pytest.warns(UserWarning, match="Net runs op by op: it returns a Result"),
    ):
        assert compiled(engine.randn(2, 3)).logits.shape == (2, 3)


def test_a_buffer_that_counts() -> None:
    def forward(s: Any, x: Any) -> Any:
        s.count.add_(1)
        return s.a(x) * s.count

    net = Net(forward, a=nn.Linear(3, 3)).eval()
    net.register_buffer("count", engine.zeros(()))
    compiled = engine.compile(net)
    with engine.no_grad(), pytest.warns(UserWarning, match="writes to parameters, buffers"):
        compiled(engine.randn(2, 3))
        compiled(engine.randn(2, 3))
    assert net.count == 2


def test_what_depends_on_the_input_behind_the_trace_is_found_by_verification() -> None:
    def forward(s: Any, x: Any) -> Any:
        top = engine.from_numpy(x._array[:, :1].copy())  # no op: the trace takes it for a constant
        return s.a(x) * top

    falls_back(Net(forward, a=nn.Linear(3, 3)).eval(), "differs by .* on other values", engine.randn(2, 3))


def test_inputs_in_a_memory_format_of_the_callers_are_left_alone() -> None:
    module = nn.Sequential(conv(3, 4), nn.ReLU()).eval()
    compiled = engine.compile(module)
    x = engine.randn(2, 3, 5, 5).contiguous(memory_format=engine.channels_last)
    with engine.no_grad():
        assert compiled(x).stride() == module(x).stride()
    assert compiled.plans == []
    planned(module.to(memory_format=engine.channels_last), engine.randn(2, 3, 5, 5))


def test_other_arguments_are_left_alone() -> None:
    net = Net(lambda s, x, option: s.a(x), a=nn.Linear(3, 3)).eval()
    compiled = engine.compile(net)
    with engine.no_grad():
        compiled(engine.randn(2, 3), object())
    assert compiled.plans == []


def test_errors_are_the_modules_and_leave_ops_as_they_were() -> None:
    engine.add(engine.ones(1), 1)  # so that it is compiled
    compiled = engine.compile(nn.Linear(3, 3).eval())
    with engine.no_grad():
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            compiled(engine.randn(2, 4))
        assert compiled(engine.randn(2, 3)).shape == (2, 3)
    assert "_traced_" not in engine.add.__globals__ and engine.add.__code__.co_name == "add"


# --- the compiled module as a module


def test_it_is_a_module() -> None:
    module = settled(nn.Sequential(conv(3, 4), nn.BatchNorm2d(4)))
    compiled = engine.compile(module, fullgraph=True, mode="reduce-overhead")
    assert isinstance(compiled, nn.Module) and compiled._orig_mod is module
    assert next(iter(compiled.state_dict())) == "_orig_mod.0.weight"
    assert len(list(compiled.parameters())) == 4
    x = engine.randn(1, 3, 4, 4)
    with engine.no_grad():
        wanted = compiled(x)
        for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
            engine.testing.assert_close(twin(x), wanted)
            assert twin._orig_mod is not module


def test_compile_of_functions_and_as_a_decorator() -> None:
    def double(x: Any) -> Any:
        return x * 2

    assert engine.compile(double, disable=True) is double
    assert engine.compile(double)(engine.ones(2)).tolist() == double(engine.ones(2)).tolist()
    assert engine.compile(mode="x", disable=True)(double) is double
    assert engine.compile(mode="x")(double).function is double
    module = nn.Linear(2, 2)
    assert engine.compile(module, disable=True) is module
    assert isinstance(engine.compile(dynamic=True)(module), OptimizedModule)


@pytest.fixture(params=["bfloat16", "int8"])
def narrow(request: Any, kernels: str) -> str:
    """A type that plans compute in, on a processor that multiplies it."""
    from engine.backends.onednn import library

    if kernels != "onednn" or library.instructions() not in plan._MULTIPLY[request.param][0]:
        pytest.skip(f"this processor has no instructions for {request.param}, or oneDNN is left out")
    return str(request.param)


class Mixed(nn.Module):
    """Convolutions, grouped ones, a sum, pooling, rows, and an op that oneDNN does not compute between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16)
        self.wide, self.each = nn.Conv2d(16, 32, 1), nn.Conv2d(32, 32, 3, 1, 1, groups=32)
        self.back, self.last = nn.Conv2d(32, 16, 1), nn.Conv2d(16, 16, 3, padding=1)
        self.pool, self.rows, self.head = nn.MaxPool2d(2), nn.Linear(16, 64), nn.Linear(64, 5)

    def forward(self, x: Any) -> Any:
        x = F.relu6(self.norm(self.first(x)))
        x = x + self.back(F.relu6(self.each(F.relu6(self.wide(x)))))
        x = self.last(self.pool(F.relu(x)))
        x = engine.cumsum(x, 2).mean((2, 3))
        return self.head(F.gelu(self.rows(x))), x


class Picks(nn.Module):
    """A row a sample, by the place of its largest number, as CLIP takes the last word of a text."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 4)

    def forward(self, x: engine.Tensor, words: engine.Tensor) -> tuple[engine.Tensor, ...]:
        rows = x[engine.arange(x.shape[0]), words.argmax(dim=-1)]
        return self.head(rows), x[:, words[0] > 3].sum(1), x[1, :2]


def test_an_index_of_tensors_is_an_operand_of_a_plan() -> None:
    module = Picks().eval()
    compiled, x = engine.compile(module, verify=False), engine.randn(3, 5, 8)
    with engine.no_grad():
        for words in (
            [[1, 9, 2, 3, 4]] * 3,
            [[7, 1, 2, 3, 4], [5, 5, 6, 5, 5], [0, 0, 0, 0, 1]],
            [[0, 4, 4, 9, 5]] * 3,
        ):
            given = engine.tensor(words)
            for a, b in zip(compiled(x, given), module(x, given), strict=True):
                assert a.shape == b.shape and engine.allclose(a, b)
    (made,) = compiled.plans
    assert not isinstance(made, str) and "getitem" in str(made)


@pytest.mark.parametrize("batch", [1, 4])
def test_plans_in_narrow_types_are_near_and_say_how_near(batch: int, narrow: str) -> None:
    engine.manual_seed(0)
    module = settled(Mixed())
    compiled = engine.compile(module, dtype=getattr(engine, narrow))
    x, near = engine.randn(batch, 3, 24, 24), {"bfloat16": 0.03, "int8": 0.15}[narrow]
    with engine.no_grad():
        first = compiled(x)
        (made,) = compiled.plans
        layers = [name for name in made.names if name.startswith(("convolution", "linear"))]
        assert len(layers) == 7 and sum(f"in {narrow}" in name for name in layers) >= 6
        (error,) = compiled.plan_errors
        for given in (x, engine.randn(batch, 3, 24, 24), x):
            found, wanted = compiled(given), module(given)
            apart = [float((a - b).abs().max()) for a, b in zip(found, wanted)]
            assert all(a.dtype is engine.float32 for a in found)
            assert all(0 < a < near * float(b.abs().max()) for a, b in zip(apart, wanted))
        assert error is not None
        assert error[0] == pytest.approx(max(apart), rel=1e-5)  # the last were those of the first input
        assert 0 < error[1] < near
        for a, b in zip(first, wanted):  # the first call is the module's own, but for the route that a trial may choose
            assert engine.allclose(a, b, 1e-5, 1e-5)
        copied = copy.deepcopy(compiled)
        copied(x)
        assert engine.equal(copied(x)[0], compiled(x)[0])


def test_numbers_that_the_type_has_come_out_exactly(narrow: str) -> None:
    """Sums are in float32; of int8 the largest of an output channel and of the input are 127 times a power of 2."""
    layer = nn.Linear(64, 8)
    with engine.no_grad():
        layer.weight.copy_(engine.randint(-8, 9, (8, 64)))
        layer.bias.copy_(engine.randint(-8, 9, (8,)))
        x = engine.randint(-8, 9, (3, 64)).float()
        if narrow == "int8":
            layer.weight[:, 0], x[0, 0] = 127.0, 127 / 4
            layer.weight[3] /= 2
        compiled = engine.compile(layer.eval(), dtype=getattr(engine, narrow))
        x = x.mul(4).floor().div(4)
        compiled(x)
        assert compiled.plans[0].names == [f"linear in {narrow}"]
        assert engine.allclose(compiled(x), layer(x), rtol=1e-6, atol=1e-5)
        assert compiled.plan_errors[0][0] < 1e-4


def test_channels_of_zeros_and_inputs_of_zeros(narrow: str) -> None:
    layer = nn.Conv2d(16, 16, 3).eval()
    with engine.no_grad():
        layer.weight[3] = 0
        compiled = engine.compile(layer, dtype=getattr(engine, narrow))
        for x in (engine.zeros(1, 16, 5, 5), engine.zeros(1, 16, 5, 5)):
            assert engine.allclose(compiled(x), layer(x), atol=1e-6)


def test_gradients_of_a_module_with_narrow_plans_are_its_own(narrow: str) -> None:
    module = settled(Mixed())
    compiled, x = engine.compile(module, dtype=getattr(engine, narrow)), engine.randn(2, 3, 24, 24)
    for _ in range(3):
        assert engine.allclose(compiled(x)[0], module(x)[0], 1e-5, 1e-5)


def test_types_and_processors_without_such_plans_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.backends.onednn import library

    layer = nn.Linear(2, 2)
    with pytest.raises(NotImplementedError, match=r"torch\.bfloat16 or torch\.int8, not torch\.float16"):
        engine.compile(layer, dtype=engine.float16)
    with pytest.raises(NotImplementedError, match="takes a Module"):
        engine.compile(lambda x: x, dtype=engine.bfloat16)
    assert isinstance(engine.compile(layer, dtype=engine.float32), OptimizedModule)
    if library.load() is None:
        with pytest.raises(RuntimeError, match="which is not in use here"):
            engine.compile(layer, dtype=engine.bfloat16)
        return
    monkeypatch.setattr(library, "instructions", lambda: "AVX2")
    for dtype, needed in ((engine.bfloat16, "AVX512_BF16"), (engine.int8, "AVX512_VNNI or AVX_VNNI")):
        with pytest.raises(RuntimeError, match=f"need {needed}, oneDNN's instructions on this processor are AVX2"):
            engine.compile(layer, dtype=dtype)


def test_without_verification_no_error_is_known(narrow: str) -> None:
    compiled = engine.compile(settled(Mixed()), dtype=getattr(engine, narrow), verify=False)
    with engine.no_grad():
        compiled(engine.randn(1, 3, 24, 24))
    assert compiled.plan_errors == [None]


def test_a_module_compiled_in_place_stays_itself() -> None:
    module = settled(nn.Sequential(conv(3, 4), nn.BatchNorm2d(4), nn.ReLU()))
    x = engine.randn(2, 3, 5, 5)
    names = list(module.state_dict())
    with engine.no_grad():
        wanted = module(x)
        assert module.compile() is None
        found = [module(x) for _ in range(3)]
    compiled = module._compiled_call_impl.__self__
    assert isinstance(compiled, OptimizedModule) and not isinstance(compiled.plans[0], str) and len(compiled.plans) == 1
    for one in found:
        engine.testing.assert_close(one, wanted, rtol=1e-5, atol=1e-5)
    assert list(module.state_dict()) == names and "Optimized" not in repr(module)
    seen: list[Any] = []
    handle = module.register_forward_hook(lambda *given: seen.append(given[0]))
    with engine.no_grad():
        engine.testing.assert_close(module(x), wanted)
    assert seen == [module]
    handle.remove()
    other = copy.deepcopy(module)
    assert other._compiled_call_impl is None
    module.compile(disable=True)
    assert module._compiled_call_impl is None


def test_a_module_compiled_in_place_is_trained_by_a_plan() -> None:
    engine.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    plain = copy.deepcopy(module)
    module.compile()
    for _ in range(4):
        x = engine.randn(3, 4)
        plain.zero_grad(), module.zero_grad()
        plain(x).square().sum().backward()
        module(x).square().sum().backward()
        for a, b in zip(module.parameters(), plain.parameters()):
            engine.testing.assert_close(a.grad, b.grad)
    (program,) = module._compiled_call_impl.__self__.training_plans
    assert program is not None and not isinstance(program, str)


@pytest.mark.parametrize("grad", [False, True])
def test_compiled_modules_within_compiled_ones_are_part_of_their_plans(grad: bool) -> None:
    """The trace of one inside the trace of the other waited for itself."""
    inner, inplace = engine.compile(nn.Linear(4, 4).eval()), nn.Linear(4, 4).eval()
    inplace.compile()
    outer = engine.compile(nn.Sequential(inner, nn.ReLU(), inplace).eval())
    x = engine.randn(2, 4)
    with engine.set_grad_enabled(grad):
        found = [outer(x) for _ in range(4)]
        wanted = inplace._call_impl(inner._orig_mod(x).relu())
    for one in found:
        engine.testing.assert_close(one, wanted)
    plans = outer.training_plans if grad else outer.plans
    assert len(plans) == 1 and not isinstance(plans[0], str | None)


def test_a_module_that_keeps_its_state_has_no_plan_and_is_not_run_more_often() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.state = nn.LSTM(3, 4), (engine.zeros(1, 1, 4), engine.zeros(1, 1, 4))

        def forward(self, x: Any) -> Any:
            out, self.state = self.lstm(x, self.state)
            return out

    engine.manual_seed(0)
    module = Counts().eval()
    plain, compiled = copy.deepcopy(module), engine.compile(module)
    with engine.no_grad(), pytest.warns(UserWarning, match="op by op: its forward sets state"):
        for _ in range(4):
            x = engine.randn(2, 1, 3)
            assert engine.equal(compiled(x), plain(x))
    assert compiled.plans == ["its forward sets state"]


def test_a_module_that_makes_something_at_its_first_call_has_a_plan() -> None:
    class Lazily(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.known = None, {}

        def forward(self, x: Any) -> Any:
            if self.table is None:
                self.table = engine.arange(float(x.shape[-1]))
            if x.shape not in self.known:
                self.known[x.shape] = 2.0
            return x * self.table * self.known[x.shape]

    compiled = engine.compile(Lazily().eval())
    with engine.no_grad():
        for _ in range(4):
            x = engine.randn(2, 5)
            engine.testing.assert_close(compiled(x), x * engine.arange(5.0) * 2)
    (found,) = compiled.plans
    assert not isinstance(found, str)


def test_convolutions_over_one_dim_are_layers_with_what_follows(kernels: str) -> None:
    engine.manual_seed(0)
    module = settled(
        nn.Sequential(
            nn.Conv1d(3, 8, 5, stride=2, padding=2),
            nn.BatchNorm1d(8),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Conv1d(8, 8, 3, padding=2, dilation=2, groups=4),
            nn.GELU(),
            nn.Conv1d(8, 4, 1),
        )
    )
    for n in (1, 4):
        compiled = planned(module, engine.randn(n, 3, 40))
        if kernels == "onednn":
            assert str(compiled.plans[0]).splitlines()[0] == "convolution+eltwise"


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    ("geometry", "bias"),
    [((4, 2, 1, 0, 1, 1), True), ((3, 2, 1, 1, 2, 1), False), ((5, 3, 2, 1, 2, 1), True), ((2, 2, 0, 0, 4, 1), True)],
)
def test_transposed_convolutions_are_layers_with_what_follows(
    dims: int, geometry: tuple, bias: bool, kernels: str
) -> None:
    engine.manual_seed(0)
    layer = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)[dims - 1]
    size, stride, padding, more, groups, dilation = geometry
    options = dict(output_padding=more, groups=groups, bias=bias, dilation=dilation)
    net = Net(
        lambda s, x: s.b(y := s.a(x).relu()) + y.amax(),
        a=layer(8, 12, size, stride, padding, **options),
        b=layer(12, 4, size, stride, padding, **options),
    )
    compiled = planned(net.eval(), engine.randn(2, 8, *(7, 6, 5)[:dims]))
    from engine.backends.onednn import library

    apart = groups > 1 or "SSE" in (library.instructions() or "")  # oneDNN does what follows element by element
    if kernels == "onednn" and not apart:
        assert str(compiled.plans[0]).splitlines()[0] == "convolution+eltwise"


@pytest.mark.parametrize("name", ["bfloat16", "int8"])
def test_transposed_convolutions_stay_wide_in_narrow_plans(name: str, kernels: str) -> None:
    from engine.backends.onednn import library

    if kernels != "onednn" or library.instructions() not in plan._MULTIPLY[name][0]:
        pytest.skip(f"the processor has no instructions for {name}")
    engine.manual_seed(0)
    module = nn.Sequential(conv(3, 8), nn.ConvTranspose2d(8, 4, 2, 2), conv(4, 2)).eval()
    compiled, x = engine.compile(module, dtype=getattr(engine, name)), engine.randn(2, 3, 8, 8)
    with engine.no_grad():
        compiled(x)
        engine.testing.assert_close(compiled(x), module(x), rtol=0.05, atol=0.1)
    assert str(compiled.plans[0]).splitlines() == [f"convolution in {name}", "convolution", f"convolution in {name}"]


@pytest.mark.parametrize("normed", [nn.utils.weight_norm, nn.utils.spectral_norm])
@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_weights_that_hooks_make_of_parameters_are_made_once(normed: Any) -> None:
    engine.manual_seed(0)
    module = nn.Sequential(normed(conv(3, 4)), nn.ReLU(), normed(nn.Conv2d(4, 2, 1))).eval()
    compiled = planned(module, x := 0.01 * engine.randn(2, 3, 5, 5))
    assert "div" not in str(compiled.plans[0])
    with engine.no_grad():
        for p in module.parameters():
            p.mul_(1.5)
        for _ in range(3):  # changed weights are seen
            engine.testing.assert_close(compiled(x), module(x), rtol=1e-4, atol=1e-4)
    module[0].register_forward_pre_hook(lambda m, given: (given[0] + 1,))
    with engine.no_grad():
        engine.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("form", ["pow", "mul", "once", "turned"])
def test_layer_norms_that_are_written_out(form: str) -> None:
    """As the first BERT in PyTorch has them."""

    def forward(self: Any, x: Any) -> Any:
        low = x.mean(-1, keepdim=True)
        apart = x - low
        square = apart * apart if form == "mul" else apart.pow(2)
        spread = (square.mean(-1, keepdim=True) + 1e-12).sqrt()
        normed = (apart if form == "once" else x - low) / spread
        return normed * self.weight + self.bias if form == "turned" else self.bias + self.weight * normed

    module = Net(forward)
    module.weight, module.bias = nn.Parameter(engine.randn(20)), nn.Parameter(engine.randn(20))
    compiled = planned(module.eval(), 3 + engine.randn(4, 5, 20))
    assert names(compiled) == ["layer_norm_inference"]


def test_what_is_nearly_a_layer_norm() -> None:
    weight, bias = engine.randn(20), engine.randn(20)

    def normed(form: str) -> Any:
        def forward(self: Any, x: Any) -> Any:
            low = x.mean(1 if form == "of others" else -1, keepdim=True)
            apart = x - low
            if form == "other mean":
                apart = x - x.abs().mean(-1, keepdim=True)
            power = 3 if form == "cubes" else 2
            spread = (apart.abs() if form == "cubes" else apart).pow(power).mean(-1, keepdim=True)
            eps = x[:, :, :1] ** 2 if form == "tensor" else 1e-3
            result = weight * (apart / (spread + eps).sqrt()) + bias
            return (result, spread) if form == "told" else result

        return forward

    for form in ("of others", "other mean", "cubes", "tensor", "told", "plain"):
        planned(Net(normed(form)).eval(), 3 + engine.randn(4, 5, 20))

    def written(self: Any, x: Any) -> Any:  # the input changes before it is read again
        x = x * 1
        low = x.mean(-1, keepdim=True)
        spread = ((x - low).pow(2).mean(-1, keepdim=True) + 1e-12).sqrt()
        x.view(-1).mul_(2)
        return weight * ((x - low) / spread) + bias

    planned(Net(written).eval(), 3 + engine.randn(4, 5, 20))


_ROOT, _PART = (2 / np.pi) ** 0.5, 0.044715
GELUS = {
    "bert": lambda x: x * 0.5 * (1.0 + engine.erf(x / 2**0.5)),
    "other order": lambda x: 0.5 * (engine.erf(x * 0.5**0.5) + 1) * x,
    "halved": lambda x: x * (1 + engine.erf(x / 2**0.5)) / 2,
    "gpt": lambda x: 0.5 * x * (1 + engine.tanh(_ROOT * (x + _PART * engine.pow(x, 3)))),
    "gpt other order": lambda x: x * 0.5 * (1 + engine.tanh((_PART * x**3 + x) * _ROOT)),
}


@pytest.mark.parametrize("form", GELUS)
def test_gelus_that_are_written_out(form: str, kernels: str) -> None:
    module = Net(lambda self, x: GELUS[form](self.layer(x)), layer=nn.Linear(12, 20))
    compiled = planned(module.eval(), 2 * engine.randn(7, 12))
    assert names(compiled) == (["linear", "gelu"] if kernels == "numpy" else ["linear+eltwise"])


def test_what_is_nearly_a_gelu() -> None:
    def told(x: Any) -> Any:
        gate = 1.0 + engine.erf(x / 2**0.5)
        return x * 0.5 * gate, gate

    def written(x: Any) -> Any:
        x = x * 3
        gate = 1.0 + engine.erf(x / 2**0.5)
        x.view(-1).add_(1)
        return x * 0.5 * gate

    for form in (
        told,
        written,
        lambda x: x * 0.5 * (1.0 + engine.erf(x / 2)),
        lambda x: x * 0.4 * (1.0 + engine.erf(x / 2**0.5)),
        lambda x: x * 0.5 * (2.0 + engine.erf(x / 2**0.5)),
        lambda x: x.abs() * 0.5 * (1.0 + engine.erf(x / 2**0.5)),
        lambda x: 0.5 * x * (1 + engine.tanh(_ROOT * (x + _PART * engine.pow(x, 2)))),
        lambda x: 0.5 * x * (1 + engine.tanh(_ROOT * (x + _PART * engine.pow(x.abs(), 3)))),
        lambda x: 0.5 * x * (1 + engine.tanh(x + _PART * engine.pow(x, 3))),
        lambda x: 0.5 * x * (1 + engine.tanh(_ROOT * (x.abs() + _PART * engine.pow(x, 3)))),
    ):
        module = Net(lambda self, x, form=form: form(self.layer(x)), layer=nn.Linear(12, 20))
        assert "gelu" not in names(planned(module.eval(), engine.randn(7, 12)))


# --- layers that are joined


def blocks(width: int) -> nn.Module:
    """Inverted residuals as MobileNetV2 has them: with a sum, without, of stride 2, without what widens."""

    class Inverted(nn.Module):
        def __init__(self, inside: int, outside: int, step: int, expand: int) -> None:
            super().__init__()
            wide = inside * expand
            first = [nn.Conv2d(inside, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()] if expand > 1 else []
            self.conv = nn.Sequential(
                *first,
                nn.Conv2d(wide, wide, 3, step, 1, groups=wide, bias=False),
                nn.BatchNorm2d(wide),
                nn.ReLU6(),
                nn.Conv2d(wide, outside, 1, bias=False),
                nn.BatchNorm2d(outside),
            )
            self.sum = step == 1 and inside == outside

        def forward(self, x: Any) -> Any:
            return x + self.conv(x) if self.sum else self.conv(x)

    steps = [(1, 1), (1, 3), (1, 3), (2, 3), (1, 3), (1, 3)]
    layers = [Inverted(width, width, step, expand) for step, expand in steps]
    return settled(nn.Sequential(nn.Conv2d(3, width, 3, 1, 1), *layers))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("band", [1, 1 << 17])
def test_joined_layers_leave_what_others_read(batch: int, band: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.ops.generated import stages

    monkeypatch.setattr(stages, "_BAND", band)
    made, join = [], stages.joined
    monkeypatch.setattr(stages, "joined", lambda *layers: (made.append(join(*layers)), made[-1])[1])
    planned(blocks(16), engine.randn(batch, 3, 20, 20))
    if programs._LEAST == 0:  # whatever takes longer
        assert sum(one is not None for one in made) >= 5


def test_a_sum_before_a_depthwise_convolution_is_not_lost() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 1))
            self.rest = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, groups=16), nn.Conv2d(16, 32, 1), nn.Conv2d(32, 8, 3))

        def forward(self, x: Any) -> Any:
            return self.rest(x + self.first(x))

    planned(Net().eval(), engine.randn(2, 16, 20, 20))  # no warning of a wrong one


def test_layers_that_are_joined_wrongly_are_found(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    from engine.ops.generated import stages

    if not processor.available() or kernels == "numpy":
        return
    monkeypatch.setattr(programs, "_LEAST", 0)
    join = stages.joined

    def wrong(before: Any, each: Any, after: Any) -> Any:
        after.given["high"] = stages._bits(0.125)
        return join(before, each, after)

    monkeypatch.setattr(stages, "joined", wrong)
    with pytest.warns(RuntimeWarning, match="layers that are joined in plans is switched off"):
        planned(blocks(16), engine.randn(1, 3, 20, 20))


def test_weights_packed_in_two_ways_while_a_plan_is_made_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    def runs(width: int) -> list[int]:
        layers = [nn.Linear(width, width) for _ in range(6)]
        compiled = planned(nn.Sequential(*layers).eval(), engine.randn(2, width))
        return [name.count("linear") for name in compiled.plans[-1].names if name.startswith("program")]

    whole = runs(32)
    monkeypatch.setattr(programs, "_HELD", 3 * 32 * 32)
    cut = runs(32)
    monkeypatch.setattr(programs, "_HEAVY", 32 * 32 - 1)
    assert (whole, cut, runs(32)) in [([6], [3, 3], []), ([], [], [])]  # without programs


# --- attention


class Heads(nn.Module):
    """Attention of heads as models write it; `form` says how query, key and value come about."""

    def __init__(self, form: str, width: int = 24, heads: int = 3, bias: Any = (True, True, True)) -> None:
        super().__init__()
        self.form, self.heads = form, heads
        self.query, self.key, self.value = (nn.Linear(width, width, bias=b) for b in bias)
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        for layer in self.children():
            layer.weight.data.mul_(3)

    def split(self, x: Any) -> Any:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: Any, other: Any = None, mask: Any = None, causal: bool = False) -> Any:
        batch, length, width = x.shape
        source = x if other is None else other
        if self.form == "apart":
            q, k, v = (
                self.split(layer(y)) for layer, y in zip((self.query, self.key, self.value), (x, source, source))
            )
        elif self.form == "unbind":
            q, k, v = self.all(x).reshape(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        elif self.form == "chunk":
            q, k, v = map(self.split, self.all(x).chunk(3, dim=-1))
        else:
            q, k, v = map(self.split, self.all(x).split(width, dim=2))
        found = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        return x + self.out(found.transpose(1, 2).reshape(batch, length, width))


def attends(compiled: OptimizedModule) -> bool:
    """Whether a plan has attention with what is around it as one step."""
    return "attention" in names(compiled) and not {"view", "transpose", "split"} & {*names(compiled)}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("form", ["apart", "unbind", "chunk", "split"])
def test_attention_is_a_step_with_its_views(form: str, batch: int, kernels: str) -> None:
    module = nn.Sequential(Heads(form), nn.LayerNorm(24), Heads(form)).eval()
    compiled = planned(module, engine.randn(batch, 7, 24))
    if kernels == "onednn":
        assert attends(compiled)
        assert names(compiled).count("linear") == 2  # of query, key and value together


@pytest.mark.parametrize("bias", [(True, False, True), (False, False, False)])
@pytest.mark.parametrize("batch", [1, 2])
def test_layers_of_one_input_become_one_where_attention_reads_them(bias: Any, batch: int, kernels: str) -> None:
    module = Heads("apart", bias=bias).eval()
    compiled = planned(module, engine.randn(batch, 5, 24), engine.randn(batch, 9, 24))
    if kernels == "onednn":
        assert attends(compiled) and names(compiled).count("linear") == 2


@pytest.mark.parametrize("near", [1, 1 << 18])
@pytest.mark.parametrize("shape", [(5, 5), (1, 1, 5, 5), (4, 1, 5, 5), (4, 3, 1, 5)])
def test_masks_that_the_module_has_are_a_part_of_the_step(
    shape: tuple[int, ...], near: int, monkeypatch: pytest.MonkeyPatch, kernels: str
) -> None:
    from engine.programs.inference import attention

    monkeypatch.setattr(attention, "_NEAR", near)
    mask = engine.randn(*shape)
    mask[..., 2] = -float("inf")
    compiled = planned(
        Net(lambda self, x: self.heads(x, None, mask), heads=Heads("apart")).eval(), engine.randn(4, 5, 24)
    )
    assert kernels == "numpy" or attends(compiled)
    boolean = engine.ones(5, 5, dtype=engine.bool).tril()
    compiled = planned(
        Net(lambda self, x: self.heads(x, None, boolean), heads=Heads("split")).eval(), engine.randn(4, 5, 24)
    )
    assert kernels == "numpy" or attends(compiled)
    compiled = planned(
        Net(lambda self, x: self.heads(x, causal=True), heads=Heads("unbind")).eval(), engine.randn(4, 5, 24)
    )
    assert kernels == "numpy" or attends(compiled)


@pytest.mark.parametrize("scaled", ["div", "mul", "neither", "twice"])
@pytest.mark.parametrize("masked", ["", "before", "after", "in place", "of one picture"])
@pytest.mark.parametrize("copied", ["contiguous", "reshape"])
def test_products_and_a_softmax_are_attention(scaled: str, masked: str, copied: str, kernels: str) -> None:
    """As models have it that are older than the function, with a mask that each call gives."""

    def forward(self: Any, x: Any, mask: Any) -> Any:
        heads = self.heads
        q, k, v = (heads.split(layer(x)) for layer in (heads.query, heads.key, heads.value))
        scores = q @ k.transpose(-1, -2)
        if scaled != "neither":
            scores = scores / 8**0.5 if scaled == "div" else scores * 0.3
        if scaled == "twice":
            scores = scores / 2
        if masked == "before":
            scores = mask + scores
        elif masked == "in place":
            scores += mask
        elif masked:
            scores = scores + (mask[:1] if masked == "of one picture" else mask)
        rows = engine.matmul(F.dropout(F.softmax(scores, dim=-1), 0.1, self.training), v).permute(0, 2, 1, 3)
        rows = rows.contiguous().view(x.shape) if copied == "contiguous" else rows.reshape(x.shape)
        return heads.out(rows) + x

    mask = engine.zeros(3, 1, 1, 5)
    mask[1, ..., 3:] = -10000.0
    compiled = planned(Net(forward, heads=Heads("apart")).eval(), engine.randn(3, 5, 24), mask)
    assert kernels == "numpy" or (attends(compiled) and names(compiled).count("linear") == 1)
    hidden = engine.zeros(3, 1, 1, 5)
    hidden[2] = -float("inf")  # a row that sees nothing is nan, as it is without a plan
    with engine.no_grad():
        x = engine.randn(3, 5, 24)
        engine.testing.assert_close(compiled(x, hidden), compiled._orig_mod(x, hidden), equal_nan=True)


def test_products_and_a_softmax_that_are_no_attention() -> None:
    heads = Heads("apart")

    def wholly(form: str) -> Any:
        def forward(self: Any, x: Any) -> Any:
            q, k, v = (heads.split(layer(x)) for layer in (heads.query, heads.key, heads.value))
            turned = k.transpose(-1, -2)
            if form == "of other rows":
                return heads.out((F.softmax(q @ turned, dim=-2) @ v).transpose(1, 2).reshape(x.shape))
            weights = F.softmax(q @ turned * (q[:, :, :1, :1] if form == "tensor" else 0.4), dim=-1)
            if form == "broadcast":
                v = v[:, :1]
            found = heads.out((weights @ v.expand(q.shape)).transpose(1, 2).reshape(x.shape))
            return (found, weights) if form == "told" else found

        return forward

    for form in ("of other rows", "tensor", "broadcast", "told"):
        planned(Net(wholly(form), heads=heads).eval(), engine.randn(2, 5, 24))

    def written(self: Any, x: Any, mask: Any) -> Any:  # the mask changes after it was added
        mask = mask * 1
        q, k, v = (heads.split(layer(x)) for layer in (heads.query, heads.key, heads.value))
        scores = q @ k.transpose(-1, -2) + mask
        mask.add_(5 * x[:, None, :, :1])
        return heads.out((F.softmax(scores, dim=-1) @ v).transpose(1, 2).reshape(x.shape)) + mask[:, 0, :, :1]

    planned(Net(written, heads=heads).eval(), engine.randn(2, 5, 24), engine.randn(2, 1, 5, 5))


@pytest.mark.parametrize("written", [False, True])
def test_keys_that_heads_share_leave_the_layers_around_as_they_are(written: bool, kernels: str) -> None:
    """What seemed to be a step, but has no kernel: the calls are those of the module again, where they were."""

    def forward(self: Any, x: Any) -> Any:
        batch, length, _ = x.shape
        q = self.query(x).view(batch, length, 3, 8).transpose(1, 2)
        k, v = self.both(x).view(batch, length, 1, 16).transpose(1, 2).split(8, -1)
        k, v = k.expand(q.shape), v.expand(q.shape)
        found = F.softmax(q @ k.transpose(-1, -2) / 3, -1) @ v if written else F.scaled_dot_product_attention(q, k, v)
        rows = F.relu(self.out(found.transpose(1, 2).reshape(x.shape)))
        return x + self.last(F.relu(self.more(rows)))

    layers = {name: nn.Linear(24, 24) for name in ("query", "out", "more", "last")}
    compiled = planned(Net(forward, both=nn.Linear(24, 16), **layers).eval(), engine.randn(2, 7, 24))
    if kernels == "onednn":
        found = names(compiled)
        assert found.count("linear") == 2 and found.count("transpose") == 3 + written
        assert found[-3:] == ["linear+eltwise", "linear+eltwise", "linear+binary"]


def test_a_mask_that_hides_all_of_a_row_gives_zeros_in_later_calls_too(kernels: str) -> None:
    heads = Heads("apart")
    compiled = planned(Net(lambda self, x, mask: self.heads(x, None, mask), heads=heads).eval(), *given_masks(False))
    assert kernels == "numpy" or attends(compiled)
    with engine.no_grad():
        for some in (True, False):
            x, mask = given_masks(some)
            engine.testing.assert_close(compiled(x, mask), compiled._orig_mod(x, mask))


def given_masks(some: bool) -> tuple[Any, Any]:
    mask = engine.randn(2, 1, 5, 5)
    if some:
        mask[1, 0, 2] = -float("inf")
    return engine.randn(2, 5, 24), mask


def test_a_product_with_a_bias_is_a_layer(kernels: str) -> None:
    weight, bias = nn.Parameter(engine.randn(12, 20)), nn.Parameter(engine.randn(20))

    def forward(self: Any, x: Any) -> Any:
        return F.relu(engine.addmm(self.bias, x, self.weight))

    module = Net(forward)
    module.weight, module.bias = weight, bias
    compiled = planned(module.eval(), engine.randn(9, 12))
    assert kernels == "numpy" or names(compiled) == ["linear+eltwise"]
    scaled = Net(lambda self, x: engine.addmm(self.bias, x, self.weight, beta=2, alpha=0.5))
    scaled.weight, scaled.bias = weight, bias
    planned(scaled.eval(), engine.randn(9, 12))


def test_attention_that_others_look_into_stays_an_op() -> None:
    x, heads = engine.randn(2, 5, 24), Heads("apart")

    def told(self: Any, x: Any) -> Any:  # the value is a result, too
        v = self.heads.split(self.heads.value(x))
        found = F.scaled_dot_product_attention(self.heads.split(self.heads.query(x)), self.heads.split(x), v)
        return found.transpose(1, 2).reshape(x.shape), v

    def masked(self: Any, x: Any, mask: Any) -> Any:
        return self.heads(x, None, mask)

    def blind(self: Any, x: Any) -> Any:  # a row that sees nothing
        mask = engine.zeros(5, 5)
        mask[2] = -float("inf")
        return self.heads(x, None, mask)

    def changed(self: Any, x: Any) -> Any:  # layers of one tensor, written to between them
        x = x * 1
        q = self.heads.split(self.heads.query(x))
        x.view(-1).add_(1)
        k, v = (self.heads.split(layer(x)) for layer in (self.heads.key, self.heads.value))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape) + 1

    def viewed(self: Any, x: Any) -> Any:  # the result is looked at in another form
        found = self.heads.out(x) + 1
        q, k, v = (self.heads.split(layer(x)) for layer in (self.heads.query, self.heads.key, self.heads.value))
        rows = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        return found + rows, rows.flatten(1)

    for forward, more in ((told, ()), (blind, ()), (changed, ()), (viewed, ()), (masked, (engine.randn(2, 1, 5, 5),))):
        planned(Net(forward, heads=heads).eval(), x, *more)


@pytest.mark.parametrize("batch_first", [True, False])
def test_plans_of_attention_modules(batch_first: bool) -> None:
    for module in (
        nn.TransformerEncoderLayer(24, 3, 48, batch_first=batch_first, activation="gelu"),
        nn.TransformerEncoderLayer(24, 3, 48, batch_first=batch_first, norm_first=True),
    ):
        planned(module.eval(), engine.randn(4, 6, 24))
    decoder = nn.TransformerDecoderLayer(24, 3, 48, batch_first=batch_first).eval()
    planned(decoder, engine.randn(4, 6, 24), engine.randn(4, 6, 24))


# --- batches in parts


class Separable(nn.Module):
    """Wide between narrow ends, with a sum; what lies between is asked for too."""

    def __init__(self, inside: int, between: int, tell: bool = False) -> None:
        super().__init__()
        self.expand, self.narrow = nn.Conv2d(inside, between, 1), nn.Conv2d(between, inside, 1)
        self.each, self.pool = conv(between, between, groups=between), nn.MaxPool2d(3, 1, 1)
        self.tell = tell

    def forward(self, x: Any) -> Any:
        wide = F.relu6(self.expand(x))
        out = x + self.narrow(F.relu6(self.each(self.pool(wide))))
        return (out, wide) if self.tell else out


def made_in_parts(compiled: OptimizedModule) -> list[int]:
    return [int(name.split()[0]) for name in compiled.plans[-1].names if " parts of " in name]


@pytest.mark.parametrize("batch", [1, 2, 5, 6])
@pytest.mark.parametrize("tell", [False, True])
def test_layers_that_wait_for_memory_take_a_few_images_at_a_time(
    batch: int, tell: bool, monkeypatch: pytest.MonkeyPatch, kernels: str
) -> None:
    monkeypatch.setattr(parts, "NEAR", 2 * 4 * (2 * 24) * 16 * 16 // engine.get_num_threads())  # two images
    monkeypatch.setattr(parts, "BUSY", 32)
    compiled = planned(Separable(3, 24, tell).eval(), engine.randn(batch, 3, 16, 16))
    if kernels == "onednn":
        assert made_in_parts(compiled) == {1: [], 2: [], 5: [5], 6: [3]}[batch]


def test_blocks_of_parts_read_one_another_and_what_is_not_in_parts(kernels: str) -> None:
    first, second, third = Separable(4, 20), Separable(4, 20), Separable(4, 12)

    def forward(self: Any, x: Any) -> Any:
        y = self.second(self.first(x))
        z = self.third(y.flip(0))
        return self.last(z + y).mean((2, 3)), y

    module = Net(forward, first=first, second=second, third=third, last=conv(4, 8))
    compiled = planned(module.eval(), engine.randn(4, 4, 10, 10))
    assert kernels == "numpy" or not made_in_parts(compiled) or max(made_in_parts(compiled)) == 4


def test_memory_between_layers_in_parts_is_that_of_a_part(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    if kernels == "numpy":
        return
    taken: list[int] = []
    block = lowering._Lowering._block
    monkeypatch.setattr(
        lowering._Lowering, "_block", lambda self, n, size: (taken.append(size), block(self, n, size))[1]
    )
    monkeypatch.setattr(parts, "NEAR", 0)
    monkeypatch.setattr(parts, "BUSY", 32)
    module = nn.Sequential(nn.Conv2d(2, 32, 1), nn.ReLU(), conv(32, 32, groups=32), nn.Conv2d(32, 2, 1)).eval()
    planned(module, engine.randn(8, 2, 20, 20))
    assert taken and max(taken) == 4 * 32 * 20 * 20


def test_many_products_a_byte_keep_the_batch_whole(monkeypatch: pytest.MonkeyPatch, kernels: str) -> None:
    monkeypatch.setattr(parts, "NEAR", 0)
    monkeypatch.setattr(parts, "BUSY", 32)
    compiled = planned(nn.Sequential(conv(32, 32), nn.ReLU(), conv(32, 32)).eval(), engine.randn(4, 32, 8, 8))
    assert made_in_parts(compiled) == []


def test_what_a_call_reads_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes over a graph ask each call again and again, and plans may have thousands of calls."""
    searched = []
    search = tracing.refs_in
    monkeypatch.setattr(tracing, "refs_in", lambda value: searched.append(value) or search(value))
    call = tracing.Call(engine.add, (tracing.Ref(1), [tracing.Ref(2)]), {"alpha": tracing.Ref(3)}, [4], False)
    assert (call.refs, call.refs) == ([1, 2, 3], [1, 2, 3])
    assert len(searched) == 1
    call.kwargs = {}
    assert call.refs == [1, 2]
    call.args = (tracing.Ref(5),)
    assert (call.refs, call.refs) == ([5], [5])
    assert len(searched) == 3
