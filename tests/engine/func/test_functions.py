"""`autograd.Function` under transforms, and whole programs of the tutorials: `tutorials.json` has PyTorch's numbers."""

from __future__ import annotations

import json
from typing import Any

import pytest

import engine
from engine.func import grad, vmap
from tests.engine.func import programs, tutorials

TABLE = json.loads(tutorials.FILE.read_text("utf-8"))
PROGRAMS = tutorials.programs(engine)


@pytest.mark.filterwarnings("error:There is a performance drop")
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers(name: str) -> None:
    programs.compare(PROGRAMS[name](), engine.Tensor, TABLE[name])


def test_every_program_has_numbers() -> None:
    assert TABLE.keys() == PROGRAMS.keys()


class Product(engine.autograd.Function):
    """A product that broadcasts in each slice, and a result without gradient."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Any, w: Any, power: int) -> Any:
        return x**power * w, x > 0

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, w, ctx.power = inputs
        ctx.save_for_backward(x, w)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx: Any, slope: Any, _: Any) -> Any:
        x, w = ctx.saved_tensors
        return slope * ctx.power * x ** (ctx.power - 1) * w, slope * x**ctx.power, None


def test_a_generated_rule_sums_what_was_broadcast_in_a_slice_and_over_slices() -> None:
    x, w = engine.randn(3, dtype=engine.float64), engine.randn(4, dtype=engine.float64)

    def by_function(x: Any, w: Any) -> Any:
        return vmap(Product.apply, in_dims=(0, None, None))(x, w, 3)

    assert by_function(x, w)[1].tolist() == (x > 0).tolist()
    ready = [x.requires_grad_(), w.requires_grad_()]
    assert engine.autograd.gradcheck(lambda x, w: by_function(x, w)[0], ready)
    assert engine.autograd.gradgradcheck(lambda x, w: by_function(x, w)[0], ready)
    each = vmap(grad(lambda x, w: Product.apply(x, w, 2)[0].sum()), in_dims=(0, None))(x.detach(), w.detach())
    assert engine.allclose(each, 2 * x * w.sum())


def test_rules_that_contradict_each_other_and_those_without_a_context() -> None:
    class Both(Product):
        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
            return args[0], 0

    class Old(engine.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

    class Alone(engine.autograd.Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            """Nothing."""

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            return x

    for one, args, sentence in [
        (Both, (engine.ones(1), 2), "it has both generate_vmap_rule=True and an overriden vmap"),
        (Old, (), "it must override the setup_context staticmethod"),
        (Alone, (), "Expected the vmap staticmethod to have two returns"),
    ]:
        with pytest.raises(RuntimeError, match=sentence):
            vmap(one.apply, in_dims=(0, *(None for _ in args)))(engine.ones(3), *args)


def test_a_function_without_a_rule_is_a_loop() -> None:
    class Twice(engine.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            return slope * 2

    with pytest.warns(UserWarning, match="performance drop.*neither a vmap staticmethod nor generate_vmap_rule"):
        assert vmap(Twice.apply)(engine.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_batch_norms_lose_their_statistics() -> None:
    net = engine.nn.Sequential(engine.nn.BatchNorm1d(2), engine.nn.InstanceNorm1d(2, track_running_stats=True))
    assert engine.func.replace_all_batch_norm_modules_(net) is net
    assert net[0].running_mean is None and net[0].track_running_stats is False
    assert net[1].running_mean is not None
    x = engine.randn(3, 5, 2)
    assert vmap(net[0])(x).shape == (3, 5, 2)
