"""Training plans: the numbers of steps op by op, whatever changes between two, and a reason where there is none."""

from __future__ import annotations

import copy
import pickle
import random
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import engine
from engine import nn
from engine.core import trials
from engine.nn import functional as F
from engine.programs import training
from engine.programs.training import Recorded
from engine.programs.training.program import compiled


@pytest.fixture(autouse=True)
def static(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program serves however long it takes here."""
    monkeypatch.setenv("ENGINE_ROUTES", "static")


class Block(nn.Module):
    """A residual block as ResNet-18's."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, x: Any) -> Any:
        out = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        out += self.short(x)
        return self.relu(out)


class Inverted(nn.Module):
    """A block as MobileNetV2's."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(channels, 2 * channels, 1, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU6(inplace=True),
            nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, groups=2 * channels, bias=False),
            nn.BatchNorm2d(2 * channels),
            nn.ReLU6(inplace=True),
            nn.Conv2d(2 * channels, channels, 1, bias=False),
        )

    def forward(self, x: Any) -> Any:
        return x + self.conv(x)


class Encoder(nn.Module):
    """Tokens to logits by an encoder layer with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, activation="gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 10)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.layers(self.embed(tokens))[:, 0])


class Language(nn.Module):
    """Tokens to logits by an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(20, 12), nn.LSTM(12, 16, 2, batch_first=True), nn.Linear(16, 10)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.lstm(self.embed(tokens))[0][:, -1])


def pictures() -> Any:
    return engine.randn(4, 3, 12, 12)


def tokens() -> Any:
    return engine.randint(20, (4, 6))


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 10))


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "mlp": (mlp, lambda: engine.randn(4, 12)),
    "cnn": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 10)
        ),
        pictures,
    ),
    "resnet": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            Block(8, 8, 1),
            Block(8, 16, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        ),
        pictures,
    ),
    "mobilenet": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            Inverted(8),
            nn.ReLU6(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        ),
        pictures,
    ),
    "encoder": (Encoder, tokens),
    "lstm": (Language, tokens),
}
OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: engine.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: engine.optim.Adam(p, lr=1e-2),
    "adamw": lambda p: engine.optim.AdamW(p, lr=1e-2),
}


def trained(net: str, optimizer: str, how: str, steps: int = 20) -> tuple[list, list, Any]:
    """(losses, parameters and buffers and a last draw, plans) of a training."""
    engine.manual_seed(9)
    build, inputs = NETS[net]
    model = build()
    run = engine.compile(model) if how == "module" else model
    opt = OPTIMIZERS[optimizer](model.parameters())
    scheduler = engine.optim.lr_scheduler.StepLR(opt, 4, 0.5)

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = F.cross_entropy(run(x), y)
        loss.backward()
        opt.step()
        return loss

    call = engine.compile(step) if how == "step" else step
    losses = []
    for _ in range(steps):
        losses.append(call(inputs(), engine.randint(10, (4,))).item())
        scheduler.step()
    found = [t.detach().numpy().copy() for t in (*model.parameters(), *model.buffers())]
    for (name, _), array in zip(model.named_parameters(), found):
        # softmax does not see the bias of the keys: its gradient is rounding alone, which Adam scales up
        if name.endswith("in_proj_bias"):
            array[len(array) // 3 : 2 * len(array) // 3] = 0
    plans = call.plans if how == "step" else run.training_plans if how == "module" else None
    return losses, [*found, engine.randn(3).numpy()], plans


@pytest.mark.parametrize("how", ["step", "module"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("net", NETS)
def test_twenty_steps_are_those_op_by_op(net: str, optimizer: str, how: str) -> None:
    wanted = trained(net, optimizer, "eager")
    found = trained(net, optimizer, how)
    assert [type(p).__name__ for p in found[2]] == ["StepProgram" if how == "step" else "PairProgram"]
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)
    for a, b in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    assert np.array_equal(found[1][-1], wanted[1][-1])  # the generator is where it would be


# --- both a compiled step and one op by op, on twins


class Pair:
    """A model and its twin; `both(x)` takes a step of each and compares all there is."""

    def __init__(self, build: Callable[[], nn.Module] = mlp, body: Any = None, how: str = "step") -> None:
        engine.manual_seed(3)
        self.models = [build()]
        self.models.append(copy.deepcopy(self.models[0]))
        self.optimizers = [engine.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in self.models]
        body = body or plain_step
        runs = list(self.models)
        if how == "module":
            runs[1] = engine.compile(self.models[1])
        self.module = runs[1]
        self.steps = [body(m, o) for m, o in zip(runs, self.optimizers)]
        self.recorded = None
        if how == "step":
            self.recorded = self.steps[1] = engine.compile(self.steps[1])

    @property
    def plans(self) -> list:
        return self.recorded.plans if self.recorded is not None else self.module.training_plans

    def both(self, *args: Any) -> list:
        state = engine.default_generator.get_state()
        results = []
        for step in self.steps:
            engine.default_generator.set_state(state)
            results.append(step(*args))
        self.compare()
        if isinstance(results[0], engine.Tensor):
            np.testing.assert_allclose(results[0].detach().numpy(), results[1].detach().numpy(), rtol=1e-5)
        return results

    def compare(self) -> None:
        first, second = ([*m.parameters(), *m.buffers()] for m in self.models)
        for a, b in zip(first, second, strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-5, atol=1e-6)

    def warm(self, n: int = 3) -> Pair:
        for _ in range(n):
            self.both(engine.randn(4, 12))
        return self


def plain_step(model: Any, optimizer: Any) -> Any:
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def is_plan(plan: Any) -> bool:
    return plan is not None and not isinstance(plan, str)


@pytest.fixture(params=["step", "module"])
def how(request: Any) -> str:
    return request.param


def test_the_third_call_runs_a_program(how: str) -> None:
    pair = Pair(how=how).warm(2)
    assert [is_plan(p) for p in pair.plans] == [True]
    recorded = pair.recorded or pair.module._trained
    recorded.function = lambda *args: pytest.fail("the function itself ran")
    pair.both(engine.randn(4, 12))


ATTRIBUTES = {
    "a number": lambda m: setattr(m[1], "negative_slope", -2.0),
    "a tuple": lambda m: setattr(m[0], "padding", (1, 1)),
    "forward of one": lambda m: setattr(m[1], "forward", lambda x: x * 2),
    "a class": lambda m: setattr(m[1], "__class__", nn.SELU),
    "all of a dict": lambda m: setattr(m[1], "__dict__", m[1].__dict__ | {"negative_slope": -2.0}),
    "a table": lambda m: setattr(m[0], "_parameters", m[0]._parameters | {"bias": None}),
}


@pytest.mark.parametrize("change", ATTRIBUTES)
def test_changed_attributes_are_seen(how: str, change: str) -> None:
    pair = Pair(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.LeakyReLU()), how=how)
    x = engine.randn(2, 1, 5, 5)
    for _ in range(4):
        pair.both(x)
    for model in pair.models:
        ATTRIBUTES[change](model)
    for _ in range(4):
        pair.both(x)


def test_weights_loaded_later_are_used(how: str) -> None:
    pair = Pair(how=how).warm()
    other = mlp().state_dict()
    for model in pair.models:
        model.load_state_dict(other)
    pair.warm()
    assert len(pair.plans) == 1


def test_another_batch_size_has_a_plan_of_its_own(how: str) -> None:
    pair = Pair(how=how).warm()
    for n in (7, 4, 7, 7, 4):
        pair.both(engine.randn(n, 12))
    assert [is_plan(p) for p in pair.plans] == [True, True]


def test_dtypes_have_plans_of_their_own() -> None:
    pair = Pair(lambda: mlp().double(), lambda m, o: plain_step(lambda x: m(x.double()), o))
    for dtype in (engine.float32, engine.float64) * 3:
        pair.both(engine.randn(4, 12).to(dtype))
    assert [is_plan(p) for p in pair.plans] == [True, True]


def test_a_forward_hook_added_later_is_called(how: str) -> None:
    pair = Pair(how=how).warm()
    seen: list[int] = []
    for i, model in enumerate(pair.models):
        model[0].register_forward_hook(lambda m, a, out, i=i: seen.append(i))
    with pytest.warns(UserWarning, match="hooks"):
        pair.both(engine.randn(4, 12))
    pair.both(engine.randn(4, 12))
    assert seen == [0, 1, 0, 1]


def test_a_hook_on_a_parameter_added_later_is_called(how: str) -> None:
    pair = Pair(how=how).warm()
    handles = [model[0].weight.register_hook(lambda g: g * 2) for model in pair.models]
    with pytest.warns(UserWarning, match="hooks"):
        pair.both(engine.randn(4, 12))
    pair.both(engine.randn(4, 12))
    for handle in handles:
        handle.remove()
    pair.warm(1)


def test_a_parameter_frozen_later_stays(how: str) -> None:
    pair = Pair(how=how).warm()
    for model in pair.models:
        model[0].weight.requires_grad_(False)
        model[0].weight.grad = None
    before = pair.models[1][0].weight.detach().clone()
    pair.warm(4)
    assert engine.equal(pair.models[1][0].weight, before)
    assert len(pair.plans) == 2


def test_eval_midway(how: str) -> None:
    pair = Pair(how=how).warm()
    for mode in (False, False, False, True, False):
        for model in pair.models:
            model.train(mode)
        if how == "module":
            pair.module.train(mode)
        pair.both(engine.randn(4, 12))
    assert [is_plan(p) for p in pair.plans] == [True, True]


def test_a_parameter_replaced_later(how: str) -> None:
    pair = Pair(how=how).warm()
    fresh = engine.randn(16, 12)
    for model, optimizer in zip(pair.models, pair.optimizers):
        model[0].weight = nn.Parameter(fresh.clone())
        optimizer.add_param_group({"params": [model[0].weight]})
    pair.warm(4)
    assert sum(map(is_plan, pair.plans)) == 2


def test_plain_attributes_of_modules_are_read(how: str) -> None:
    pair = Pair(how=how).warm()
    for model in pair.models:
        model[2].p = 0.7
    pair.warm(4)


def test_learning_rate_and_momentum_are_read_anew() -> None:
    pair = Pair().warm()
    for lr in (0.01, 0.5):
        for optimizer in pair.optimizers:
            optimizer.param_groups[0].update(lr=lr, momentum=lr)
        pair.both(engine.randn(4, 12))
    assert len(pair.plans) == 1


def test_a_scheduler_clipping_and_a_scaler_inside_the_step() -> None:
    def body(model: Any, optimizer: Any) -> Any:
        scheduler = engine.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        scaler = engine.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            return loss

        return step

    pair = Pair(body=body).warm(8)
    assert is_plan(pair.plans[-1])
    assert pair.optimizers[0].param_groups[0]["lr"] == pair.optimizers[1].param_groups[0]["lr"] == 0.1 * 0.5**8


def test_gradients_accumulate_without_zero_grad(how: str) -> None:
    def body(model: Any, optimizer: Any) -> Any:
        def step(x: Any) -> Any:
            loss = model(x).square().mean()
            loss.backward()
            return loss

        return step

    pair = Pair(body=body, how=how).warm(5)
    for model in pair.models:
        for p in model.parameters():
            p.grad = None
    pair.warm(2)
    held = pair.models[1][0].weight.grad
    pair.warm(1)
    assert pair.models[1][0].weight.grad is held  # added to in place
    assert [is_plan(p) for p in pair.plans] == [True]


def test_closure_values_that_change_are_not_fixed() -> None:
    engine.manual_seed(0)
    weight = engine.ones(3, requires_grad=True)
    factor = 1.0

    def step(x: Any) -> None:
        (weight * x * factor).sum().backward()

    run = engine.compile(step)
    x = engine.ones(3)
    for _ in range(4):
        run(x)
    factor = 10.0
    run(x)
    assert weight.grad is not None and weight.grad.tolist() == [14.0] * 3


def _shift() -> float:
    return SHIFT


SHIFT = 0.0
OPTIONS = {"rate": 1.0}


class _Trainer:
    """A step as a method, with its options in an object."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.args, self.factor = model, SimpleNamespace(loss=SimpleNamespace(weight=1.0)), 1.0

    def loss(self, x: Any) -> Any:
        return self.model(x).sum() * self.args.loss.weight * self.factor

    def step(self, x: Any) -> Any:
        return self.loss(x) * OPTIONS["rate"] + _shift()


class _Scaled(nn.Module):
    """A module with options that are no attributes of plain types."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.config, self.table = nn.Linear(3, 2), SimpleNamespace(scale=1.0), {"bias": 0.0}

    def shifted(self, x: Any) -> Any:
        return x + self.table["bias"]

    def forward(self, x: Any) -> Any:
        return self.shifted(self.linear(x)) * self.config.scale + SHIFT


def test_options_in_objects_dicts_and_called_functions_are_not_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is annealed between epochs: `args.beta`, `config["beta"]`, a global that a called function reads."""
    trainer, x = _Trainer(nn.Linear(3, 2)), engine.randn(4, 3)
    planned = engine.compile(trainer.step)
    changes: list[Callable[[], Any]] = [
        lambda: setattr(trainer.args.loss, "weight", 2.0),
        lambda: setattr(trainer, "factor", 3.0),
        lambda: monkeypatch.setitem(OPTIONS, "rate", 0.5),
        lambda: monkeypatch.setitem(globals(), "SHIFT", 1.0),
    ]
    for change in (lambda: None, *changes):
        change()
        for _ in range(3):
            assert planned(x).item() == trainer.step(x).item()
    assert callable(planned.plans[-1])  # and each has a program
    module = _Scaled()
    compiled_module = engine.compile(module)
    for change in (
        lambda: None,
        lambda: setattr(module.config, "scale", 2.0),
        lambda: module.table.update(bias=1.0),
        lambda: monkeypatch.setitem(globals(), "SHIFT", 2.0),
    ):
        change()
        for _ in range(3):
            assert engine.equal(compiled_module(x), module(x))


@pytest.mark.parametrize("draw", [random.random, lambda: np.random.rand()])
def test_draws_of_python_and_numpy_are_not_fixed(draw: Callable[[], float]) -> None:
    """Stochastic depth: two steps that happen to take the same way say nothing of the third."""
    linear = nn.Linear(3, 3)

    def step(x: Any) -> Any:
        return (linear(x) if draw() < 2 else x).sum()

    planned = engine.compile(step)
    with pytest.warns(UserWarning, match="random numbers are drawn by Python or numpy"):
        for _ in range(3):
            planned(engine.ones(2, 3))
    assert planned.plans == ["random numbers are drawn by Python or numpy"]


def test_in_place_ops_of_the_step() -> None:
    def body(model: Any, optimizer: Any) -> Any:
        average = engine.zeros(())

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            y = model(x)
            y += 1
            y[:, 0] *= 2
            loss = y.relu_().mean()
            loss.backward()
            with engine.no_grad():
                average.mul_(0.9).add_(loss * 0.1)
                for p in model.parameters():
                    p.sub_(0.1 * p.grad)
            return average.clone()

        return step

    pair = Pair(body=body).warm(6)
    assert is_plan(pair.plans[0])


def test_an_input_that_is_a_parameter(how: str) -> None:
    pair = Pair(lambda: nn.Sequential(nn.Linear(12, 12)), how=how)
    for i in range(6):
        states = [m[0].weight for m in pair.models] if i % 2 else [engine.ones(12, 12)] * 2
        for step, x in zip(pair.steps, states):
            step(x)
        pair.compare()
    assert all(map(is_plan, pair.plans)) and len(pair.plans) == 2


def test_an_input_that_shares_memory_with_a_parameter() -> None:
    pair = Pair(lambda: nn.Sequential(nn.Linear(12, 12)))
    for _ in range(5):
        for step, model in zip(pair.steps, pair.models):
            step(model[0].weight.detach()[:6])
        pair.compare()


def test_an_exception_in_the_middle() -> None:
    def body(model: Any, optimizer: Any) -> Any:
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    pair = Pair(body=body).warm()

    def fails(*args: Any) -> None:
        raise KeyboardInterrupt

    handles = [o.register_step_pre_hook(fails) for o in pair.optimizers]
    state = engine.default_generator.get_state()
    for step in pair.steps:
        engine.default_generator.set_state(state)
        with pytest.raises(KeyboardInterrupt):
            step(engine.ones(4, 12))
    assert engine.is_grad_enabled()
    pair.compare()
    for handle in handles:
        handle.remove()
    pair.warm(2)


def test_an_exception_while_recording_leaves_nothing_behind() -> None:
    def step(x: Any) -> None:
        engine.relu(x)
        raise LookupError("here")

    code = engine.relu.__code__
    prop = engine.Tensor.__dict__["grad"]
    run = engine.compile(step)
    for _ in range(2):
        with pytest.raises(LookupError, match="here"):
            run(engine.ones(2))
    assert engine.relu.__code__ is code and engine.Tensor.__dict__["grad"] is prop
    from engine.autograd.engine import observers
    from engine.core.hooks import watchers

    assert not observers and not watchers


# --- backward as the user's own


def compiled_layer() -> tuple[Any, Any, Any]:
    layer = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    run = engine.compile(layer)
    x = engine.randn(3, 4, requires_grad=True)
    for _ in range(3):
        run(x).sum().backward()
    layer.zero_grad()
    x.grad = None
    return layer, run, x


def test_gradients_flow_to_inputs_and_to_what_made_them() -> None:
    layer, run, x = compiled_layer()
    for _ in range(3):
        run(x * 2).sum().backward()
    found = x.grad.clone()
    x.grad = None
    for _ in range(3):
        layer(x * 2).sum().backward()
    np.testing.assert_allclose(found.numpy(), x.grad.numpy(), rtol=1e-5)
    assert sum(map(is_plan, run.training_plans)) == 2


def test_double_backward_runs_op_by_op_with_a_warning() -> None:
    layer, run, x = compiled_layer()

    def second(module: Any) -> Any:
        (first,) = engine.autograd.grad(module(x).square().sum(), x, create_graph=True)
        return engine.autograd.grad(first.square().sum(), [x, layer[0].weight])

    wanted = second(layer)
    with pytest.warns(UserWarning, match="create_graph"):
        found = second(run)
    for a, b in zip(found, wanted):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-4, atol=1e-6)


def test_retain_graph_and_a_second_pass() -> None:
    _, run, x = compiled_layer()
    y = run(x)
    y.sum().backward(retain_graph=True)
    once = x.grad.clone()
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 2 * once.numpy(), rtol=1e-6)
    with pytest.raises(RuntimeError, match="second time"):
        y.sum().backward()


def test_a_parameter_written_to_before_backward_is_an_error() -> None:
    layer, run, x = compiled_layer()
    y = run(x)
    with engine.no_grad():
        layer[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_output_nobody_used() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return {"a": self.a(x), "b": (self.b(x), 3)}

    model = Two()
    run = engine.compile(model)
    for _ in range(3):
        model.zero_grad()
        out = run(engine.ones(2, 3))
        assert out["b"][1] == 3
        out["a"].sum().backward()
        assert model.a.weight.grad is not None and model.b.weight.grad is None
    assert is_plan(run.training_plans[0])


def test_what_a_step_returns_has_lost_its_graph() -> None:
    pair = Pair().warm()
    results = pair.both(engine.randn(4, 12))
    for loss in results:
        assert loss.requires_grad
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()


# --- what is not recorded says why


def reason(step: Callable[..., Any], *args: Any, calls: int = 5) -> str:
    run = engine.compile(step)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(calls):
            run(*args)
    texts = [str(w.message) for w in found]
    assert len(texts) == 1, texts
    assert texts[0].startswith(f"{step.__name__} runs op by op in training: ")
    assert any(isinstance(p, str) for p in run.plans)
    return texts[0]


def test_reasons() -> None:
    weight = engine.ones(3, requires_grad=True)
    other = engine.ones(3, requires_grad=True)

    def reads(x: Any) -> float:
        loss = (weight * x).sum()
        loss.backward()
        return loss.item()

    def looks_at_grad(x: Any) -> None:
        if weight.grad is not None:
            weight.grad = None
        (weight * x).sum().backward()

    def keeps(x: Any) -> Any:
        loss = (weight * x).sum()
        loss.backward(retain_graph=True)
        return loss

    def hooked(x: Any) -> None:
        y = weight * x
        y.register_hook(lambda g: g * 2)
        y.sum().backward()

    made = other * 2

    def earlier(x: Any) -> None:
        (made * x).sum().backward(retain_graph=True)

    numbers = iter(range(100))

    def counts(x: Any) -> None:
        (weight * x * next(numbers)).sum().backward()

    def wraps_arrays(x: Any) -> None:
        y = weight * x
        (y * engine.from_numpy(np.random.default_rng().random(3, np.float32))).sum().backward()

    def cast(x: Any) -> None:
        with engine.autocast("cpu"):
            engine.mm(weight[:, None], x[None]).sum().backward()

    def closes(x: Any) -> None:
        optimizer.step(lambda: (weight * x).sum())

    optimizer = engine.optim.SGD([weight], lr=0.1)
    for step, part in (
        (reads, "Tensor.item"),
        (looks_at_grad, "reads .grad"),
        (keeps, "retain_graph"),
        (hooked, "hooks"),
        (earlier, "computed before"),
        (counts, "mul had"),
        (wraps_arrays, "values each step"),
        (cast, "autocast"),
        (closes, "closure"),
    ):
        assert part in reason(step, engine.ones(3)), step.__name__


def test_a_step_that_never_settles_is_left_alone() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.layer = 0, nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return self.layer(x)

    model = Counting()
    run = engine.compile(model)
    with pytest.warns(UserWarning, match="recorded 8 times"):
        for _ in range(12):
            run(engine.ones(1, 2)).sum().backward()
    assert model.calls == 12


def test_draws_in_numpy_that_go_into_the_step_are_noticed() -> None:
    weight = engine.ones(3, requires_grad=True)

    def step(x: Any) -> None:
        (weight * x + engine.tensor(np.random.default_rng().random(3))).sum().backward()

    assert "each step" in reason(step, engine.ones(3))


def test_random_ops_advance_the_generator_as_op_by_op() -> None:
    def body(model: Any, optimizer: Any) -> Any:
        def step(x: Any) -> Any:
            optimizer.zero_grad()
            noise = engine.randn_like(x) + engine.rand(12) + engine.empty(12).normal_()
            loss = F.dropout(model(x + noise), 0.3).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        return step

    pair = Pair(body=body)
    for _ in range(5):
        pair.both(engine.randn(4, 12))
        after = engine.default_generator.get_state()
        assert not np.array_equal(after.numpy(), np.zeros_like(after.numpy()))
    assert is_plan(pair.plans[0])


def test_without_gradients_and_with_other_defaults_it_is_the_function() -> None:
    pair = Pair().warm()
    with engine.no_grad():
        layer = engine.compile(nn.Linear(2, 2).train())
        layer(engine.ones(1, 2))
    assert layer.training_plans == []
    x = engine.randn(4, 12)
    engine.set_default_dtype(engine.float64)
    try:
        pair.both(x)
    finally:
        engine.set_default_dtype(engine.float32)


def test_torch_compile_decorates_methods_and_functions() -> None:
    class Trainer:
        def __init__(self) -> None:
            self.model = nn.Linear(3, 1)
            self.optimizer = engine.optim.SGD(self.model.parameters(), lr=0.1)

        @engine.compile
        def step(self, x: Any) -> Any:
            """One step."""
            self.optimizer.zero_grad()
            loss = self.model(x).square().sum()
            loss.backward()
            self.optimizer.step()
            return loss

    assert isinstance(Trainer.step, Recorded) and Trainer.step.__doc__ == "One step."
    trainer = Trainer()
    losses = [trainer.step(engine.ones(2, 3)).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


def test_a_compiled_module_is_copied_and_pickled() -> None:
    layer = engine.compile(nn.Linear(2, 2))
    for _ in range(3):
        layer(engine.ones(1, 2)).sum().backward()
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.training_plans == []
        for _ in range(3):
            other(engine.ones(1, 2)).sum().backward()
        assert is_plan(other.training_plans[0])


def test_a_program_is_a_graph() -> None:
    pair = Pair().warm()
    graph = pair.plans[0].graph
    graph.lint()
    assert isinstance(graph, engine.fx.Graph)
    assert "linear" in str(graph)
    assert callable(compiled(graph, "again"))


# --- whether a program is worth it


class Watch:
    """A clock that shows how much the calls of programs and those op by op are said to take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, program: float, plain: float) -> None:
        self.now, self.plain, self.programs = [0.0], plain, 0  # a list: not a value that a recording depends on
        monkeypatch.setattr(trials, "clock", lambda: self.now[0])
        monkeypatch.delenv("ENGINE_ROUTES")
        for kind in (training.StepProgram, training.PairProgram):
            own = kind.__call__

            def call(*args: Any, own: Any = own) -> Any:
                self.programs += 1
                self.now[0] += program
                return own(*args)

            monkeypatch.setattr(kind, "__call__", call)


class Dropped(nn.Module):
    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.layer, self.watch = nn.Linear(12, 12), watch

    def forward(self, x: Any) -> Any:
        self.watch.now[0] += self.watch.plain
        return F.dropout(engine.tanh(self.layer(x)), 0.3)


def taken(watch: Watch, how: str, steps: int) -> tuple[list[float], Any]:
    """The losses of some steps, then the plans."""
    engine.manual_seed(4)
    model = Dropped(watch)
    optimizer = engine.optim.SGD(model.parameters(), lr=0.1)
    step = plain_step(engine.compile(model) if how == "module" else model, optimizer)
    run = engine.compile(step) if how == "step" else step
    found = [float(run(engine.randn(4, 12)).detach()) for _ in range(steps)]
    plans = run.plans if how == "step" else [] if how == "eager" else step.__closure__[0].cell_contents.training_plans
    return [*found, float(engine.rand(()))], plans


@pytest.mark.parametrize(("program", "plain", "kept"), [(1.0, 1.0, True), (1.09, 1.0, True), (1.2, 1.0, False)])
def test_a_program_that_is_slower_is_dropped(
    program: float, plain: float, kept: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = Watch(monkeypatch, program, plain)
    want, _ = taken(watch, "eager", 20)
    assert not watch.programs
    found, (plan,) = taken(watch, how, 20)
    np.testing.assert_allclose(found, want, rtol=1e-5)
    assert found[-1] == want[-1]  # the generator is where it would be
    if kept:
        assert is_plan(plan) and watch.programs == 20 - 2 - trials.STEP.fewest
    else:
        assert (
            plan == "its program was slower: 1.2e+03 ms a call, op by op 1e+03" and watch.programs == trials.STEP.fewest
        )


def test_a_step_that_takes_little_has_more_turns(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, 2e-3, 1e-3)
    _, (plan,) = taken(watch, how, 2 + 2 * trials.STEP.most - 1)
    assert is_plan(plan)
    _, (plan,) = taken(watch, how, 2 + 2 * trials.STEP.most)
    assert isinstance(plan, str)


def test_few_slow_calls_of_a_program_do_not_count() -> None:
    turns = trials.Trial(("program", "op by op"), trials.STEP)
    turns.times.update({"program": [9.0, 8.0, 7.0, 1.0, 1.0, 9.0], "op by op": [1.0] * 6})
    assert turns.over and not turns.slower("program", "op by op")
    turns.times.update({"program": [1.0] * 6, "op by op": [0.1, 1.0, 1.0, 1.0, 1.0, 1.0]})
    assert not turns.slower("program", "op by op")


def test_other_shapes_have_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, 2.0, 1.0)
    model = Dropped(watch)
    step = engine.compile(plain_step(model, engine.optim.SGD(model.parameters(), lr=0.1)))
    for _ in range(2 + 2 * trials.STEP.fewest):
        step(engine.randn(4, 12))
    assert isinstance(step.plans[0], str) and len(step.plans) == 1
    step(engine.randn(4, 12))
    for _ in range(training._REST + 3):  # those that are not looked at are few
        step(engine.randn(5, 12))
    assert isinstance(step.plans[0], str) and is_plan(step.plans[1])
    used = watch.programs
    for n in (5, 4) * 2 * trials.STEP.turn:
        step(engine.randn(n, 12))
    assert watch.programs == used + trials.STEP.turn  # the others were turns op by op


def test_turns_leave_no_memory_to_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, order = Watch(monkeypatch, 1.0, 1.0), []
    monkeypatch.setattr(training, "empty_cache", lambda: order.append(watch.programs))
    taken(watch, "step", 2 + 2 * trials.STEP.fewest)
    runs = trials.STEP.fewest // trials.STEP.turn
    assert order == [0, *(n * trials.STEP.turn for n in range(1, runs + 1) for _ in range(2))]


def test_static_routes_take_no_turns(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch, 9.0, 1.0)
    monkeypatch.setenv("ENGINE_ROUTES", "static")
    _, (plan,) = taken(watch, how, 20)
    assert is_plan(plan) and watch.programs == 18


# --- the ones that a backward pass begins with


def calls_of(plan: Any) -> list[str]:
    return [getattr(n.target, "__name__", "") for n in plan.graph.nodes if n.op == "call_function"]


def test_nothing_is_multiplied_by_ones() -> None:
    a, b = (engine.randn(3, 5, requires_grad=True) for _ in range(2))

    def step() -> None:
        (engine.tanh(a) * b).sum().backward()

    run = Recorded(step)
    for _ in range(5):
        a.grad = b.grad = None
        run()
        np.testing.assert_allclose(b.grad.numpy(), np.tanh(a.detach().numpy()), rtol=1e-6)
        want = b.detach().numpy() * (1 - np.tanh(a.detach().numpy()) ** 2)
        np.testing.assert_allclose(a.grad.numpy(), want, rtol=1e-5)
        kept = b.detach().numpy().copy()
        a.grad.mul_(7), b.grad.mul_(7)  # nobody else's memory
        assert np.array_equal(b.detach().numpy(), kept)
    assert not {"expand", "mul"} & set(calls_of(run.plans[0]))


def test_a_factor_that_is_written_to_is_kept_as_it_was() -> None:
    a, b = engine.randn(4, requires_grad=True), engine.randn(4)

    def step() -> Any:
        (gradient,) = engine.autograd.grad((a * b).sum(), [a])
        b.add_(1)
        return gradient * 2, gradient

    run = Recorded(step)
    for _ in range(5):
        want = b.numpy().copy()
        twice, once = run()
        assert np.array_equal(once.numpy(), want) and np.array_equal(twice.numpy(), 2 * want)
    assert is_plan(run.plans[0])
