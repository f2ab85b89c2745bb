"""Operators that programs of torch's compilers call: values and errors of torch 2.13, written down."""

from __future__ import annotations

import math

import pytest

import engine
from engine.nn import functional as F

INF = math.inf
GRID = engine.arange(6.0).view(2, 3)
aten = engine._ops.OpNamespace("aten")


def test_safe_softmax_is_zero_where_everything_is_minus_infinity() -> None:
    x = engine.tensor([[1.0, 2, -INF], [-INF, -INF, -INF]], requires_grad=True)
    y = engine._safe_softmax(x, 1)
    assert engine.allclose(y, engine.tensor([[0.26894143, 0.7310586, 0], [0, 0, 0]]))
    (grad,) = engine.autograd.grad(y, x, engine.tensor([[1.0, 2, 3], [1, 2, 3]]))
    assert engine.allclose(grad, engine.tensor([[-0.19661194, 0.19661197, 0], [0, 0, 0]]))
    assert engine._safe_softmax(engine.tensor([math.nan, 1.0]), 0).isnan().all()
    assert engine._safe_softmax(x, 1, engine.float64).dtype is engine.float64


def test_softmax_as_compiled_code_calls_it() -> None:
    x = engine.tensor([[1.0, 2.0, 0.5]], requires_grad=True)
    for name in ("softmax", "log_softmax"):
        y = getattr(engine, f"_{name}")(x, 1, False)
        assert y.equal(getattr(engine, name)(x, 1))
        (grad,) = engine.autograd.grad(y, x, GRID[:1], retain_graph=True)
        found = getattr(engine, f"_{name}_backward_data")(GRID[:1], y, 1, engine.float32)
        assert found.equal(grad)
        with pytest.raises(RuntimeError, match=f"{name} with half to float conversion is not supported on CPU"):
            getattr(engine, f"_{name}")(x, 1, True)


def test_chunk_cat_pads_each_tensor_to_equal_pieces() -> None:
    found = engine._chunk_cat([GRID.view(3, 2), engine.arange(5.0).view(5, 1)], 0, 2)
    assert found.tolist() == [[0, 1, 2, 3, 0, 1, 2], [4, 5, 0, 0, 3, 4, 0]]
    inner = engine._chunk_cat([engine.ones(4, 2), engine.ones(4, 3)], -1, 2)
    assert inner.shape == (4, 2, 3) and inner[0].tolist() == [[1, 1, 1], [1, 1, 0]]
    for tensors, dim, count, text in (
        ([], 0, 2, "expects a non-empty input tensor list"),
        ([engine.ones(3)], 0, 0, "expects positive num_chunks"),
        ([engine.ones(0)], 0, 2, "expects non-empty tensor"),
        ([engine.ones(2), engine.ones(2).double()], 0, 2, "expects all input tensors with the same dtype"),
        ([engine.ones(2, 2), engine.ones(3, 3)], 1, 2, "expects same sizes of 0,...,dim-1 dimensions"),
        (
            [engine.ones(2, 2), engine.ones(2)],
            -1,
            2,
            "expects non-negative dim when input tensors have different ndims",
        ),
        ([engine.ones(2, 2), engine.ones(2)], 1, 2, "expects dim < ndim for all input tensors"),
    ):
        with pytest.raises(RuntimeError, match="_chunk_cat " + text):
            engine._chunk_cat(tensors, dim, count)


def test_masked_indices_may_lie_outside() -> None:
    x = GRID.clone().requires_grad_()
    mask = engine.tensor([True, False, True])
    rows, columns = engine.tensor([0, 9, 1]), engine.tensor([0, 1, 2])
    found = engine._unsafe_masked_index(x, mask, [rows, columns], 7)
    assert found.tolist() == [0, 7, 5]
    assert engine.autograd.grad(found.sum(), x)[0].tolist() == [[1, 0, 0], [0, 0, 1]]
    assert engine._unsafe_masked_index(x, mask, [None, rows], 7).tolist() == [[0, 7, 1], [3, 7, 4]]
    assert engine._unsafe_masked_index(x[:0], mask, [rows, columns], 7).tolist() == [7, 7, 7]
    values = engine.ones(3, requires_grad=True)
    total = engine._unsafe_masked_index_put_accumulate(x, mask, [rows, columns], values)
    assert total.tolist() == [[1, 1, 2], [3, 4, 6]]
    ofx, ofv = engine.autograd.grad((total * GRID).sum(), (x, values))
    assert ofx.equal(GRID) and ofv.tolist() == [0, 0, 5]


@pytest.mark.parametrize("dtype", [engine.float16, engine.bfloat16, engine.float32, engine.float64])
def test_hash_of_floats_is_that_of_float64(dtype: engine.dtype) -> None:
    x = engine.tensor([1.5, -2, 3, 0]).to(dtype)
    assert engine.hash_tensor(x).item() == 0xBFF0000000000000
    assert [hex(engine.hash_tensor(x[i]).item()) for i in range(3)] == [
        "0x3ff8000000000000",
        "0xc000000000000000",
        "0x4008000000000000",
    ]


def test_hash_of_integers_and_its_dims() -> None:
    x = engine.tensor([[1, -2], [3, 0]])
    assert engine.hash_tensor(x).item() == 0xFFFFFFFFFFFFFFFC and engine.hash_tensor(x).dtype is engine.uint64
    assert engine.hash_tensor(x, 0, keepdim=True).tolist() == [[2, 0xFFFFFFFFFFFFFFFE]]
    assert not x.double().requires_grad_().hash_tensor().requires_grad
    with pytest.raises(NotImplementedError, match="\"xor_sum_cpu\" not implemented for 'ComplexFloat'"):
        engine.hash_tensor(engine.ones(2) * 1j)
    with pytest.raises(RuntimeError, match="Unknown hash_tensor mode: 1"):
        engine.hash_tensor(x, mode=1)
    with pytest.raises(RuntimeError, match="Expected result to be of dtype uint64, but got Float"):
        engine.hash_tensor(x, out=engine.empty(0))


def test_slice_is_a_view_in_the_graph() -> None:
    x = GRID.clone()
    part = aten.slice.Tensor(x, 1, 0, 99, 2)
    assert part.tolist() == [[0, 2], [3, 5]] and part._base is x
    assert aten.slice(x, 1, -2).tolist() == [[1, 2], [4, 5]]
    assert engine.slice_inverse(x[1:2], x, 0, 1, 2).equal(x)
    assert aten.slice(x.requires_grad_()).grad_fn.name() == "SliceBackward0"
    for args, error, text in (
        ((x, 0, 0, 1, 0), RuntimeError, "slice step must be positive"),
        ((engine.tensor(1.0),), IndexError, r"slice\(\) cannot be applied to a 0-dim tensor"),
        ((x, 2), IndexError, r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"),
    ):
        with pytest.raises(error, match=text):
            aten.slice(*args)


def test_pooling_and_dropout_go_back() -> None:
    x = engine.tensor([[[[1.0, 5, 2], [0, 3, 4], [9, 8, 7]]]], requires_grad=True)
    out, places = F.max_pool2d_with_indices(x, 2, 1)
    found = aten.max_pool2d_with_indices_backward.default(engine.ones_like(out), x, 2, 1, 0, 1, False, places)
    assert found.tolist() == [[[[0, 2, 0], [0, 0, 0], [1, 1, 0]]]] and found.requires_grad
    with pytest.raises(RuntimeError, match=r"shape of the indices, \[1, 1, 2, 2\], but got \[1, 1, 3, 3\]"):
        aten.max_pool2d_with_indices_backward(engine.ones(1, 1, 3, 3), x, 2, 1, 0, 1, False, places)
    mask = engine.tensor([True, False, True])
    assert aten.native_dropout_backward(GRID, mask, 2.0).tolist() == [[0, 0, 4], [6, 0, 10]]
    assert engine.native_dropout(GRID, 0.5, None)[1].dtype is engine.bool


def test_resampling_by_name_reads_the_factors() -> None:
    x = engine.arange(36.0).view(1, 1, 6, 6).sin()
    same = F.interpolate(x, scale_factor=0.6, mode="bilinear", antialias=True)
    assert aten._upsample_bilinear2d_aa(x, None, False, [0.6, 0.6]).equal(same)
    assert aten._upsample_bilinear2d_aa(x, [3, 3], align_corners=False, scales_h=0.6, scales_w=0.6).equal(same)
    assert aten._upsample_bilinear2d_aa(x, [3, 3], False).equal(F.interpolate(x, 3, mode="bilinear", antialias=True))
    assert aten.upsample_nearest2d(x, [3, 3]).equal(F.interpolate(x, 3))
    with pytest.raises(RuntimeError, match=r"missing 1 required positional argument: 'align_corners'"):
        aten.upsample_bilinear2d(x, [3, 3])


def test_lanczos() -> None:
    x = engine.arange(36.0).view(1, 1, 6, 6).sin()
    found = F.interpolate(x, (3, 3), mode="lanczos", antialias=True)
    want = [[0.4188, 0.6215, -0.8372], [-0.0956, 0.8602, -0.4836], [-0.5800, 0.8298, 0.0213]]
    assert engine.allclose(found[0, 0], engine.tensor(want), atol=6e-5)
    assert F.interpolate((x * 100 + 100).byte(), (3, 3), mode="lanczos", antialias=True)[0, 0].tolist() == [
        [142, 162, 16],
        [90, 186, 51],
        [41, 182, 102],
    ]
    with pytest.raises(ValueError, match="Lanczos mode requires antialias=True"):
        F.interpolate(x, (3, 3), mode="lanczos")


def test_batch_norm_with_its_statistics() -> None:
    x, weight, bias = engine.arange(24.0).view(2, 3, 4).sin().requires_grad_(), engine.ones(3), engine.zeros(3)
    running = [engine.zeros(3), engine.ones(3)]
    plain = F.batch_norm(x, None, None, weight, bias, True)
    out, mean, rstd, reserve = aten._batch_norm_with_update(x, weight, bias, *running, 0.5, 1e-5)
    assert out.equal(plain) and mean.requires_grad is False and reserve.dtype is engine.uint8
    assert engine.allclose(running[0], mean / 2) and engine.allclose(rstd, x.var((0, 2), correction=0).rsqrt(), 1e-4)
    for more in ((True, 0.1, 1e-5), (None, None, True, 0.1, 1e-5)):
        assert engine._native_batch_norm_legit(x, weight, bias, *more)[0].equal(plain)
    kept = [engine.empty(0) for _ in range(3)]
    assert engine.native_batch_norm(x.detach(), weight, bias, None, None, True, 0.1, 1e-5, out=kept) is kept
    assert kept[0].equal(plain) and kept[1].equal(mean)
    with pytest.raises(RuntimeError, match="expected scalar type Float but found Long"):
        engine.native_batch_norm(
            x.detach(), None, None, None, None, True, 0.1, 1e-5, out=(kept[0], kept[1].long(), kept[2])
        )


def test_group_norm_s_statistics_have_gradients() -> None:
    x = engine.arange(24.0, dtype=engine.float64).view(2, 3, 4).sin().requires_grad_()

    def statistics(x: engine.Tensor) -> tuple[engine.Tensor, ...]:
        return engine.native_group_norm(x, None, None, 2, 3, 4, 1, 1e-5)

    assert all(t.requires_grad for t in statistics(x))
    assert engine.autograd.gradcheck(statistics, (x,)) and engine.autograd.gradgradcheck(statistics, (x,))
    empty = engine.native_group_norm(x[:0], None, None, 0, 3, 4, 1, 1e-5)
    assert empty[1].shape == (0, 1)


@pytest.mark.filterwarnings("ignore:at::")
def test_norms_under_their_old_names() -> None:
    x = GRID.to_sparse()
    assert engine.native_norm(x, 1).item() == 15 and engine.native_norm(x).item() == pytest.approx(55**0.5)
    with pytest.raises(NotImplementedError, match="it is for sparse tensors"):
        engine.native_norm(GRID)
    assert engine.frobenius_norm(GRID, (0, 1), True).shape == (1, 1)
    assert engine.nuclear_norm(GRID).item() == pytest.approx(engine.linalg.svdvals(GRID).sum().item())


def test_arguments_that_do_not_fit_are_a_runtime_error() -> None:
    with pytest.raises(RuntimeError, match=r"aten::relu.*unexpected keyword argument 'wrong'"):
        aten.relu(GRID, wrong=1)
    with pytest.raises(RuntimeError, match=r"aten::relu.*missing 1 required positional argument"):
        aten.relu.default()
