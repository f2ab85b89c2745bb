"""Answers of torch 2.13, found by comparing every sample of the registry with it, where ours once differed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import engine
from engine import nn

F = nn.functional


def matches(found: Any, values: Any, dtype: Any = None) -> None:
    np.testing.assert_allclose(found.detach().to(engine.float64).numpy(), values, 1e-6, 1e-6)
    if dtype is not None:
        assert found.dtype is dtype


@pytest.mark.parametrize("dtype", [engine.bfloat16, engine.float16, engine.float32])
def test_numbers_beside_16_bit_floats_keep_the_dtype(dtype: Any) -> None:
    x = engine.tensor([-2.0, 0.5, 3.0], dtype=dtype, requires_grad=True)
    matches(x.clamp(-1, 1), [-1, 0.5, 1], dtype)
    matches(engine.addr(x, x, x, beta=2, alpha=0.5)[0], [-2, 0.5, 3.0], dtype)
    for loss in (F.huber_loss(x, x * 2, delta=0.5), x.logcumsumexp(0).sum()):
        (grad,) = engine.autograd.grad(loss, x)
        assert grad.dtype is dtype
    assert [r.dtype for r in engine.native_layer_norm(x, (3,), None, None, 1e-5)] == [dtype] * 3


def test_any_and_all_over_no_dim_at_all() -> None:
    x = engine.tensor([[0, 2], [0, 0]])
    for keepdim in (False, True):
        assert engine.any(x, (), keepdim).tolist() == [[False, True], [False, False]]
        assert engine.all(x, (), keepdim).tolist() == [[False, True], [False, False]]


def test_average_of_integers_rounds_towards_zero() -> None:
    x = engine.tensor([[[-1, 0, -3, -2]]])
    assert F.avg_pool1d(x, 2).tolist() == [[[0, -2]]]


def test_the_threshold_takes_the_dtype_of_the_input() -> None:
    assert F.threshold(engine.tensor([0, 1]), -0.2, 3.0).tolist() == [3, 1]


def test_cosine_similarity_broadcasts_first() -> None:
    x, y = engine.tensor([[1.0, 2, 3], [0, 1, 0]]), engine.tensor([3.0, 0, 1])
    matches(F.cosine_similarity(x, y, dim=-1), [0.50709255, 0.0])
    matches(F.cosine_similarity(x, engine.tensor(2.0)), [0.92582010, 0.57735027])


@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((5, 1, 3), (1, 4, 3)), ((5, 1, 3), (4, 1)), ((2, 3, 4), (4,))])
@pytest.mark.parametrize("dim", [-1, 0])
def test_cosine_similarity_of_all_pairs(shapes: tuple[tuple[int, ...], ...], dim: int) -> None:
    engine.manual_seed(1)
    x, y = (engine.randn(s, requires_grad=True) for s in shapes)
    found = F.cosine_similarity(x, y, dim=dim)
    a, b = np.broadcast_arrays(x.detach().numpy(), y.detach().numpy())
    want = (a * b).sum(dim) / np.sqrt((a * a).sum(dim) * (b * b).sum(dim))
    np.testing.assert_allclose(found.detach().numpy(), want, rtol=1e-5, atol=1e-6)
    found.sum().backward()
    assert x.grad.shape == x.shape and y.grad.shape == y.shape
    step = engine.randn(x.shape) * 1e-3
    ahead, behind = (F.cosine_similarity(x + s, y, dim=dim).sum() for s in (step, -step))
    assert float((ahead - behind) / 2) == pytest.approx(float((x.grad * step).sum()), rel=2e-2, abs=2e-5)


def test_the_norm_that_counts_has_no_gradient() -> None:
    x = engine.tensor([1.0, 0.0], requires_grad=True)
    norm = engine.linalg.vector_norm(x, 0)
    assert norm.requires_grad
    norm.backward()
    assert x.grad is None


def test_positive_is_the_tensor_itself() -> None:
    x = engine.ones(2, requires_grad=True)
    assert engine.positive(x) is x and (+x) is x
    with pytest.raises(RuntimeError, match=r"The `\+` operator, on a bool tensor is not supported"):
        engine.positive(engine.tensor([True]))


@pytest.mark.parametrize("name", ["heaviside", "floor_divide"])
def test_no_derivative_is_an_error_at_backward(name: str) -> None:
    x = engine.tensor([1.0, 2.0], requires_grad=True)
    result = getattr(engine, name)(x, engine.ones(2))
    assert result.requires_grad
    with pytest.raises(RuntimeError, match=f"derivative for aten::{name} is not implemented"):
        result.sum().backward()


def test_a_number_passes_for_a_vector_of_one_in_gather_and_scatter() -> None:
    x = engine.tensor([1.0, 2.0, 3.0], requires_grad=True)
    picked = engine.gather(x, 0, engine.tensor(2))
    assert picked.shape == () and picked == 3
    source = engine.tensor([5.0, 6.0], requires_grad=True)
    for found, values, gradient in (
        (engine.scatter(x, 0, engine.tensor(1), source), [1, 5, 3], [1, 0]),
        (engine.scatter_add(x, 0, engine.tensor(1), source), [1, 7, 3], [1, 0]),
        (engine.scatter_reduce(x, 0, engine.tensor(1), source, "amax"), [1, 5, 3], [1, 0]),
    ):
        matches(found, values)
        (grad,) = engine.autograd.grad(found.sum(), source)
        assert grad.tolist() == gradient
    number = engine.tensor(4.0)
    assert engine.scatter_add(number, 0, engine.tensor([0]), engine.tensor([2.0])) == 6


def test_index_add_wants_sources_of_the_same_dims() -> None:
    for input, source in (
        (engine.tensor(1.0), engine.ones(1)),
        (engine.ones(3), engine.tensor(1.0)),
    ):
        with pytest.raises(RuntimeError, match="source tensor shape must match self tensor shape, excluding"):
            engine.index_add(input, 0, engine.tensor([0]), source)


def test_histograms_without_a_range() -> None:
    one = engine.histogram(engine.tensor([2.0]), 2)
    assert one.bin_edges.tolist() == [1.5, 2, 2.5] and one.hist.tolist() == [0, 1]
    assert engine.histogram(engine.ones(0), 2).bin_edges.tolist() == [0, 0.5, 1]
    assert engine.histogram(engine.ones(3)).hist.shape == (100,)


def test_out_of_functions_that_are_no_ops() -> None:
    x = engine.tensor([[3.0, 1.0], [1.0, 2.0]])
    for name, args in (
        ("renorm", (2, 0, 1.0)),
        ("msort", ()),
        ("narrow_copy", (0, 0, 1)),
        ("qr", ()),
        ("svd", ()),
        ("float_power", (2,)),
        ("triangular_solve", (x,)),
        ("histogram", (3,)),
    ):
        function = getattr(engine, name)
        expected = function(x, *args)
        many = isinstance(expected, tuple)
        outs = [engine.empty(0, dtype=e.dtype) for e in (expected if many else (expected,))]
        function(x, *args, out=tuple(outs) if many else outs[0])
        for found, want in zip(outs, expected if many else (expected,)):
            assert engine.equal(found, want)
    with pytest.raises(RuntimeError, match=r"renorm\(\): functions with out=\.\.\. arguments don't support"):
        engine.renorm(x.requires_grad_(), 2, 0, 1.0, out=engine.empty(0))


def test_split_by_the_names_of_both_forms() -> None:
    x = engine.arange(6)
    for found in (
        engine.tensor_split(x, sections=2),
        engine.hsplit(x, indices=[3]),
        x.tensor_split(2),
    ):
        assert [t.tolist() for t in found] == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(TypeError, match="takes one of indices and sections, but 0 were given"):
        x.hsplit()


@pytest.mark.parametrize("name", ["matmul", "outer", "inner"])
def test_out_of_products(name: str) -> None:
    x, out = engine.tensor([1.0, 2.0]), engine.empty(0)
    getattr(engine, name)(x, x, out=out)
    assert engine.equal(out, getattr(engine, name)(x, x))


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize(
    ("name", "args", "text"),
    [
        ("glu", ((2, 4),), "\"glu_cpu\" not implemented for 'Long'"),
        ("prelu", ((2, 3), (1,)), "\"prelu_cpu\" not implemented for 'Long'"),
        ("max_pool1d", ((1, 2, 4), 2), "\"max_pool1d_impl\" not implemented for 'Long'"),
        (
            "adaptive_max_pool2d",
            ((1, 2, 4, 4), 2),
            "\"adaptive_max_pool2d\" not implemented for 'Long'",
        ),
        ("rms_norm", ((2, 3), (3,)), "\"rms_norm\" not implemented for 'Long'"),
        (
            "binary_cross_entropy_with_logits",
            ((3,), (3,)),
            "\"log_sigmoid_cpu\" not implemented for 'Long'",
        ),
        (
            "grid_sample",
            ((1, 1, 2, 2), (1, 2, 2, 2)),
            "\"grid_sampler_2d_cpu_kernel_impl\" not implemented for 'Long'",
        ),
        ("kl_div", ((3,), (3,)), "kl_div: Integral inputs not supported."),
        (
            "soft_margin_loss",
            ((3,), (3,)),
            "result type Float can't be cast to the desired output type Long",
        ),
        ("cholesky_solve", ((2, 1), (2, 2)), "\"cholesky_solve_cpu\" not implemented for 'Long'"),
    ],
)
def test_integers_are_refused_in_torchs_words(name: str, args: Any, text: str) -> None:
    is_shape = [isinstance(a, tuple) and (i == 0 or name not in ("rms_norm",)) for i, a in enumerate(args)]
    values = [engine.ones(a, dtype=engine.int64) if shape else a for a, shape in zip(args, is_shape)]
    function = getattr(F, name, None) or getattr(engine, name)
    with pytest.raises((NotImplementedError, RuntimeError)) as caught:
        function(*values)
    assert str(caught.value) == text


def test_bools_and_complex_numbers_are_refused_in_torchs_words() -> None:
    flags, turns = engine.tensor([True, False, True]), engine.ones(2, 3, dtype=engine.complex64)
    for call, text in (
        (lambda: flags.topk(1), "topk does not support bool dtypes on CPU"),
        (lambda: turns.topk(1), " topk does not support complex dtypes on CPU"),
        (lambda: turns.max(1), "max(): does not support complex input"),
        (lambda: flags.kthvalue(1), "\"kthvalue_cpu\" not implemented for 'Bool'"),
        (lambda: flags.median(0), "\"median_out\" not implemented for 'Bool'"),
        (lambda: engine.linalg.cross(flags, flags), "\"cross\" not implemented for 'Bool'"),
        (lambda: turns.nansum(), "nansum on CPU does not support complex inputs"),
        (lambda: engine.var_mean(flags), "var_mean only support floating point and complex dtypes"),
        (lambda: engine.mvlgamma(flags, 1), "The input tensor may not be a boolean tensor."),
        (
            lambda: engine.bucketize(flags, flags),
            "\"searchsorted_out_cpu\" not implemented for 'Bool'",
        ),
    ):
        with pytest.raises((NotImplementedError, RuntimeError)) as caught:
            call()
        assert str(caught.value) == text


def test_the_names_of_nodes() -> None:
    x = engine.eye(2, requires_grad=True)
    for result, name in (
        (x.deg2rad(), "Deg2RadBackward0"),
        (x.inverse(), "LinalgInvExBackward0"),
        (engine.matrix_exp(x), "LinalgMatrixExpBackward0"),
        (x.nanmedian(1)[0], "NanmedianBackward1"),
        (x.lerp(x, x), "LerpBackward1"),
        (engine.cdist(x, x), "CdistBackward0"),
        (engine.div(x, 0.8, rounding_mode="trunc"), "DivBackward2"),
        (x / 2, "DivBackward0"),
    ):
        assert type(result.grad_fn).__name__ == name


def test_the_public_name_stands_in_errors_of_its_forms() -> None:
    for name in ("max", "div", "prod", "median"):
        with pytest.raises(
            TypeError,
            match=rf"^{name}\(\): argument 'input' \(position 1\) must be Tensor, not str",
        ):
            getattr(engine, name)("a", *(("b",) if name == "div" else ()))
    assert repr(engine.max(engine.ones(1, 1), 0)).startswith("torch.return_types.max(")
