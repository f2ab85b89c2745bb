"""Nested tensors of the layout jagged: values against the rows one by one, texts against those of torch 2.13."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest

import engine as torch
from engine import nested
from engine.nn import functional as F

ROWS = (2, 3, 1)


def rows(*rest: int, grad: bool = False) -> list[Any]:
    torch.manual_seed(0)
    return [torch.randn(n, *rest, dtype=torch.float64).requires_grad_(grad) for n in ROWS]


def jagged(*rest: int, grad: bool = False) -> Any:
    return nested.nested_tensor(rows(*rest), layout=torch.jagged, requires_grad=grad)


def small() -> Any:
    a, b = torch.arange(6.0).view(2, 3), torch.arange(9.0).view(3, 3)
    return nested.nested_tensor([a, b], layout=torch.jagged)


def same(found: Any, expected: list[Any]) -> None:
    parts = found.unbind()
    assert len(parts) == len(expected)
    for part, want in zip(parts, expected):
        torch.testing.assert_close(part, want)


# --- what it is


def test_a_nested_tensor_tells_its_sizes_with_a_name_for_the_ragged_one():
    nt = small()
    j = nt.size(1)
    assert repr(nt) == f"NestedTensor(size=(2, {j}, 3), offsets=tensor([0, 2, 5]), contiguous=True)"
    assert repr(nt.shape) == f"torch.Size([2, {j}, 3])"
    assert nt.shape[0] == 2 and nt.size(-1) == 3 and nt.dim() == 3 and len(nt) == 2 and nt.numel() == 15
    assert nt.is_nested and nt.layout is torch.jagged and isinstance(nt, torch.Tensor) and nt.is_contiguous()
    assert nt.offsets().tolist() == [0, 2, 5] and nt.lengths() is None
    assert str(nt.stride()) == f"(3*{j}, 3, 1)"
    assert nt.values().shape == (5, 3)
    assert (nt._get_min_seqlen(), nt._get_max_seqlen()) == (2, 3)


def test_ragged_sizes_are_equal_for_the_same_offsets_only():
    nt = small()
    j = nt.size(1)
    assert j == nt.clone().size(1) == nested.nested_tensor_from_jagged(torch.ones(5), nt.offsets()).size(1)
    assert j != small().size(1) and j != 3
    assert repr(2 * j) == repr(j * 2) == f"2*{j}" and hash(j) == hash(nt.size(1)) and bool(j)
    assert j >= 2 and j > 1
    with pytest.raises(ValueError, match="ge: relation is indeterminate"):
        _ = j > 2
    with pytest.raises(TypeError, match="differs from row to row"):
        int(j)


def test_the_known_sizes_of_offsets_are_forgotten_with_them():
    from engine.nested._internal import nested_int

    nt = small()
    key = id(nt.offsets())
    assert key in nested_int._known
    del nt
    gc.collect()
    assert key not in nested_int._known


# --- making


def test_every_way_to_make_one_gives_the_rows():
    r = rows(4)
    same(nested.nested_tensor(r, layout=torch.jagged), r)
    same(nested.as_nested_tensor(r, layout=torch.jagged), r)
    values = torch.cat(r)
    same(nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 5, 6])), r)
    same(nested.nested_tensor_from_jagged(values, lengths=torch.tensor(ROWS)), r)
    dense = torch.arange(24.0).view(2, 3, 4)
    same(nested.as_nested_tensor(dense, layout=torch.jagged), list(dense))
    nt = small()
    assert nested.as_nested_tensor(nt, layout=torch.jagged) is nt
    assert nested.nested_tensor([[1, 2], [3]], layout=torch.jagged).values().tolist() == [1, 2, 3]
    assert nested.nested_tensor(r, layout=torch.jagged, dtype=torch.float32).dtype is torch.float32


def test_a_ragged_dim_that_is_not_the_first():
    parts = [torch.ones(2, 3, 4), torch.zeros(2, 5, 4)]
    nt = nested.nested_tensor(parts, layout=torch.jagged)
    assert str(nt.shape) == f"torch.Size([2, 2, {nt.size(2)}, 4])" and nt.offsets().tolist() == [0, 3, 8]
    same(nt, parts)
    same(
        nested.nested_tensor_from_jagged(torch.arange(10.0).view(2, 5), torch.tensor([0, 2, 5]), jagged_dim=2),
        [torch.tensor([[0.0, 1], [5, 6]]), torch.tensor([[2.0, 3, 4], [7, 8, 9]])],
    )


def test_narrow_has_gaps_and_is_a_view():
    dense = torch.arange(24.0).view(2, 4, 3)
    nt = nested.narrow(dense, 1, torch.tensor([0, 1]), torch.tensor([2, 3]), layout=torch.jagged)
    same(nt, [dense[0, :2], dense[1, 1:]])
    assert nt.offsets().tolist() == [0, 5, 8] and nt.lengths().tolist() == [2, 3] and not nt.is_contiguous()
    assert nt.contiguous().offsets().tolist() == [0, 2, 5] and nt.contiguous().is_contiguous()
    same(nt + 1, [dense[0, :2] + 1, dense[1, 1:] + 1])
    dense[0, 0, 0] = 100.0
    assert nt[0][0, 0] == 100.0
    with pytest.raises(RuntimeError, match=r"^to_padded_tensor\(\): not supported for nested tensors with holes"):
        nt.to_padded_tensor(0.0)
    with pytest.raises(RuntimeError, match=r"^sum\(\): reducing across the ragged dimension is not supported"):
        nt.sum(1)


def test_masked_select_gives_a_row_for_each_row():
    found = nested.masked_select(torch.arange(6).view(2, 3), torch.tensor([[True, False, True], [False, True, True]]))
    assert [r.tolist() for r in found.unbind()] == [[0, 2], [4, 5]]


@pytest.mark.parametrize(
    ("kind", "text", "make"),
    [
        (RuntimeError, "When constructing a nested tensor, all tensors in list must have the same dim",
         lambda: nested.nested_tensor([torch.ones(2, 3), torch.ones(2)], layout=torch.jagged)),
        (RuntimeError, "When constructing a nested tensor, all tensors in list must have the same dtype",
         lambda: nested.nested_tensor([torch.ones(2), torch.ones(2).double()], layout=torch.jagged)),
        (RuntimeError, "Cannot construct a nested tensor from an empty tensor list",
         lambda: nested.nested_tensor([], layout=torch.jagged)),
        (RuntimeError, "Cannot construct a nested tensor from a list of zero-dim tensors",
         lambda: nested.nested_tensor([1.0, 2.0], layout=torch.jagged)),
        (RuntimeError, "Cannot represent given tensor list as a nested tensor with the jagged layout. ",
         lambda: nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 4)], layout=torch.jagged)),
        (RuntimeError, "Specified layout is unsupported for nested tensors: torch.sparse_coo",
         lambda: nested.nested_tensor([torch.ones(2)], layout=torch.sparse_coo)),
        (NotImplementedError, "torch.nested.nested_tensor of the layout torch.strided is not supported",
         lambda: nested.nested_tensor([torch.ones(2)])),
        (TypeError, "as_nested_tensor(): Expected first argument to be a tensor or a list / tuple of tensors",
         lambda: nested.as_nested_tensor([torch.ones(2), [1.0]], layout=torch.jagged)),
        (RuntimeError, "as_nested_tensor(): Expected tensor argument to have dim() > 1",
         lambda: nested.as_nested_tensor(torch.ones(2), layout=torch.jagged)),
        (RuntimeError, "nested_tensor_from_jagged(): At least one of offsets or lengths is required.",
         lambda: nested.nested_tensor_from_jagged(torch.ones(2))),
        (TypeError, "_nested_view_from_jagged(): argument 'offsets' (position 2) must be Tensor, not list",
         lambda: nested.nested_tensor_from_jagged(torch.ones(2), [0, 2])),
        (AssertionError, "offsets must be 1D, but got 2D",
         lambda: nested.nested_tensor_from_jagged(torch.ones(2), torch.ones(2, 2, dtype=torch.int64))),
        (ValueError, "Expected jagged_dim >=1, but got 0.",
         lambda: nested.nested_tensor_from_jagged(torch.ones(2), torch.tensor([0, 2]), jagged_dim=0)),
        (RuntimeError, "the offsets and lengths do not fit the values",
         lambda: nested.nested_tensor_from_jagged(torch.ones(2), torch.tensor([0, 9]))),
        (RuntimeError, "jagged layout only supports dim=1",
         lambda: nested.narrow(torch.ones(2, 3, 4), 2, 0, 1, layout=torch.jagged)),
        (RuntimeError, "narrow(): start [0, 0] and length [9, 9] exceed the size (3) of dim 1",
         lambda: nested.narrow(torch.ones(2, 3), 1, 0, 9, layout=torch.jagged)),
    ],
)  # fmt: skip
def test_what_cannot_be_made_says_why(kind, text, make):
    with pytest.raises(kind) as found:
        make()
    assert str(found.value).startswith(text)


# --- functions against the rows


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x + 1, lambda x: 2 - x, lambda x: 1 / (x + 5), lambda x: x * x, lambda x: x > 0, lambda x: -x,
        torch.exp, torch.sigmoid, torch.abs, lambda x: x.clamp(-0.5, 0.5), lambda x: x**2, lambda x: 2**x,
        lambda x: torch.where(x > 0, x, 0.0), lambda x: x.masked_fill(x > 0, 9.0), F.relu, F.gelu, F.silu,
        lambda x: F.leaky_relu(x, 0.1), lambda x: torch.lerp(x, x * 2, 0.5), torch.zeros_like,
        lambda x: torch.full_like(x, 3.0), lambda x: x.to(torch.float32), lambda x: x.half(), lambda x: x.clone(),
        lambda x: x.detach(), lambda x: torch.isnan(x), lambda x: x.add(x, alpha=3), lambda x: x.type(torch.float16),
        lambda x: x.softmax(-1), lambda x: F.log_softmax(x, dim=-1), lambda x: F.layer_norm(x, (4,)),
        lambda x: F.layer_norm(x, (3, 4)), lambda x: F.rms_norm(x, (4,)), lambda x: F.dropout(x, 0.5, False),
        lambda x: x @ torch.arange(8.0, dtype=torch.float64).view(4, 2), lambda x: x.flatten(-2),
        lambda x: F.linear(x, torch.ones(2, 4, dtype=torch.float64), torch.ones(2, dtype=torch.float64)),
        lambda x: x.sum(-1), lambda x: x.mean(-1, keepdim=True), lambda x: x.amax(-1), lambda x: x.argmax(-1),
        lambda x: x.max(-1).values, lambda x: x.prod(-2), lambda x: x.sum((-2, -1)), lambda x: x.unsqueeze(-1),
        lambda x: x.transpose(-1, -2), lambda x: x.mT, lambda x: x[..., 0], lambda x: x[..., 1:3],
        lambda x: x.narrow(-1, 1, 2), lambda x: x.select(-1, 0), lambda x: x.chunk(2, -1)[1],
        lambda x: x.unflatten(-1, [2, 2]),
        lambda x: x.split([1, 3], -1)[1], lambda x: torch.cat([x, x * 2], -1), lambda x: torch.stack([x, x], -1),
        lambda x: x.unsqueeze(-1).squeeze(-1), lambda x: x + torch.arange(4.0, dtype=torch.float64),
        lambda x: x.unsqueeze(-1).expand_as(torch.cat([x.unsqueeze(-1)] * 2, -1)), lambda x: x.clone().tanh_(),
    ],
)  # fmt: skip
def test_a_function_of_nested_tensors_is_that_of_each_row(function):
    r = rows(3, 4)
    same(function(nested.nested_tensor(r, layout=torch.jagged)), [function(row.clone()) for row in r])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * x).sum(-1),
        lambda x: x.softmax(-1),
        lambda x: F.layer_norm(x, (4,)),
        lambda x: F.gelu(x),
        lambda x: x @ torch.arange(8.0, dtype=torch.float64).view(4, 2),
        lambda x: x.transpose(1, 2).exp(),
        lambda x: torch.cat([x, x.sin()], -1),
        lambda x: x.chunk(2, -1)[1] * 3,
        lambda x: x[..., 1] ** 2,
    ],
)
def test_gradients_are_those_of_each_row(function):
    nt, r = jagged(3, 4, grad=True), rows(3, 4, grad=True)
    # rows have one dim less: those of dims 1 and 2 are counted from the end
    weights = [1.0, -2.0, 3.0]
    for weight, part in zip(weights, function(nt).unbind()):
        (weight * part).sum().backward(retain_graph=True)
    for weight, row in zip(weights, r):
        try:
            own = function(row)
        except IndexError:
            own = row.transpose(0, 1).exp()
        if own.shape != function(row.unsqueeze(0))[0].shape:
            own = function(row.unsqueeze(0))[0]
        (weight * own).sum().backward()
    assert nt.grad.is_nested and nt.grad.size(1) == nt.size(1)
    same(nt.grad, [row.grad for row in r])


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "amax", "amin", "argmax", "argmin"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_a_reduction_over_the_rows_is_dense(name, keepdim):
    r = rows(4)
    nt = nested.nested_tensor(r, layout=torch.jagged, requires_grad=True)
    found = getattr(nt, name)(1, keepdim=keepdim)
    expected = torch.stack([getattr(row, name)(0, keepdim=keepdim) for row in r])
    torch.testing.assert_close(found, expected)
    if found.requires_grad:
        (gradient,) = torch.autograd.grad((found * found).sum(), nt)
        leaves = rows(4, grad=True)
        sum((getattr(row, name)(0) ** 2).sum() for row in leaves).backward()
        same(gradient, [row.grad for row in leaves])


def test_more_reductions():
    nt, flat = jagged(4), torch.cat(rows(4))
    torch.testing.assert_close(nt.sum(), flat.sum())
    torch.testing.assert_close(nt.mean((0, 1)), flat.mean(0))
    torch.testing.assert_close(nt.sum((0, 1), keepdim=True), flat.sum(0).reshape(1, 1, 4))
    torch.testing.assert_close(nt.max(1).indices, torch.stack([row.argmax(0) for row in rows(4)]))
    assert bool((nt == nt).all()) and not bool((nt != nt).any())
    assert (nt > 0).any(1).shape == (3, 4)
    integers = nested.nested_tensor([torch.tensor([-5, -7]), torch.tensor([-3])], layout=torch.jagged)
    assert integers.amax(1).tolist() == [-5, -3] and integers.amin(1).tolist() == [-7, -3]


def test_softmax_over_the_rows_sums_to_one_in_each():
    nt = jagged(4, grad=True)
    found = nt.softmax(1)
    same(found, [row.softmax(0) for row in rows(4)])
    (found**2).sum().backward()
    leaves = rows(4, grad=True)
    sum((row.softmax(0) ** 2).sum() for row in leaves).backward()
    same(nt.grad, [row.grad for row in leaves])


def test_dense_operands_go_to_the_rows_of_their_sample():
    nt, r = jagged(4), rows(4)
    each = torch.randn(3, 1, 4, dtype=torch.float64, requires_grad=True)
    same(nt + each, [row + each[i] for i, row in enumerate(r)])
    (nt * each).sum().backward()
    torch.testing.assert_close(each.grad[:, 0], torch.stack([row.sum(0) for row in r]))
    placed = torch.randn(3, 3, 1, dtype=torch.float64)
    same(placed - nt, [placed[i, : len(row)] - row for i, row in enumerate(r)])


def test_padding_and_its_gradient():
    nt = jagged(4, grad=True)
    padded = nt.to_padded_tensor(-1.0)
    assert padded.shape == (3, 3, 4) and bool((padded[2, 1:] == -1).all())
    torch.testing.assert_close(padded[1], rows(4)[1])
    padded.pow(2).sum().backward()
    same(nt.grad, [2 * row for row in rows(4)])
    assert nested.to_padded_tensor(nt, 0.0, (3, 5, 4)).shape == (3, 5, 4)
    torch.testing.assert_close(nt.to_padded_tensor(0.0, (3, 1, 4))[:, 0], torch.stack([row[0] for row in rows(4)]))
    assert nt.transpose(1, 2).to_padded_tensor(0.0).shape == (3, 4, 3)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_that_of_each_sample_alone(causal):
    parts = [rows(2, 4, grad=True) for _ in "qkv"]
    nts = [nested.as_nested_tensor(p, layout=torch.jagged) for p in parts]
    first = nts[0]
    nts = [first] + [nested.nested_tensor_from_jagged(nt.values(), first.offsets()) for nt in nts[1:]]
    q, k, v = (nt.transpose(1, 2) for nt in nts)
    found = F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
    expected = [
        F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in row), is_causal=causal)[0].transpose(0, 1)
        for row in zip(*parts)
    ]
    assert found.size(1) == first.size(1)
    same(found, expected)
    found.pow(2).sum().backward()
    grads = [[row.grad.clone() for row in p] for p in parts]
    for p in parts:
        for row in p:
            row.grad = None
    sum(e.pow(2).sum() for e in expected).backward()
    for p, found_grads in zip(parts, grads):
        for row, g in zip(p, found_grads):
            torch.testing.assert_close(row.grad, g)


def test_keys_may_have_rows_of_other_lengths():
    q = [torch.randn(n, 2, 4) for n in (2, 3)]
    k = [torch.randn(n, 2, 4) for n in (5, 1)]
    nq, nk = (nested.nested_tensor(x, layout=torch.jagged).transpose(1, 2) for x in (q, k))
    found = F.scaled_dot_product_attention(nq, nk, nk)
    for i, part in enumerate(found.unbind()):
        dense = [x[i].transpose(0, 1)[None] for x in (q, k, k)]
        torch.testing.assert_close(part, F.scaled_dot_product_attention(*dense)[0])
    with pytest.raises(RuntimeError, match=r"^No viable backend for scaled_dot_product_attention was found\."):
        F.scaled_dot_product_attention(nq, nk, nk, is_causal=True)


def test_modules_train_through_nested_tensors():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Embedding(10, 8),
        torch.nn.Linear(8, 8),
        torch.nn.LayerNorm(8),
        torch.nn.GELU(),
        torch.nn.Dropout(0.0),
        torch.nn.Linear(8, 1),
    )
    tokens = [torch.tensor([1, 2]), torch.tensor([3, 4, 5])]
    model(nested.nested_tensor(tokens, layout=torch.jagged)).mean(1).sum().backward()
    found = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.stack([model(row).mean(0) for row in tokens]).sum().backward()
    for gradient, p in zip(found, model.parameters()):
        torch.testing.assert_close(gradient, p.grad)


def test_products_with_dense_and_nested_operands():
    nt, r = jagged(4, grad=True), rows(4)
    weights = torch.randn(3, 4, 2, dtype=torch.float64)
    same(nt @ weights, [row @ w for row, w in zip(r, weights)])
    same(torch.bmm(nt, weights), [row @ w for row, w in zip(r, weights)])
    torch.testing.assert_close(nt.transpose(1, 2) @ nt, torch.stack([row.T @ row for row in r]))
    same(weights.transpose(1, 2) @ nt.transpose(1, 2), [w.T @ row.T for row, w in zip(r, weights)])
    same(weights[0].T @ nt.transpose(1, 2), [weights[0].T @ row.T for row in r])
    (nt @ weights).pow(2).sum().backward()
    leaves = rows(4, grad=True)
    sum((row @ w).pow(2).sum() for row, w in zip(leaves, weights)).backward()
    same(nt.grad, [row.grad for row in leaves])


# --- the graph


def test_leaves_views_hooks_and_assigned_gradients():
    leaf = jagged(4, grad=True)
    assert leaf.is_leaf and leaf.grad_fn is None and not leaf.values().is_leaf
    seen = []
    leaf.register_hook(lambda g: seen.append(g) or g * 10)
    (leaf * 2).sum().backward()
    assert seen[0].is_nested
    torch.testing.assert_close(leaf.grad.values(), torch.full((6, 4), 20.0, dtype=torch.float64))
    leaf.grad = None
    y = leaf * 3
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        y.backward()
    y.backward(torch.ones_like(y))
    assert leaf.grad.values()[0, 0] == 30.0
    assert type(y.grad_fn).__name__ == "MulBackward0"

    values = torch.randn(5, 2, requires_grad=True)
    view = nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 5]))
    assert not view.is_leaf
    view.sum().backward()
    assert values.grad.tolist() == [[1.0, 1.0]] * 5


def test_second_derivatives():
    nt = jagged(4, grad=True)
    (first,) = torch.autograd.grad(nt.pow(3).sum(), nt, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), nt)
    torch.testing.assert_close(second.values(), 6 * torch.cat(rows(4)))


def test_writing_in_place_reaches_the_values_and_their_versions():
    values = torch.zeros(5, 2)
    nt = nested.nested_tensor_from_jagged(values, torch.tensor([0, 2, 5]))
    assert nt.add_(1) is nt and bool((values == 1).all())
    nt[0, 1] = 7.0
    nt[1] = torch.zeros(3, 2)
    assert values.tolist() == [[1, 1], [7, 7], [0, 0], [0, 0], [0, 0]]
    leaf = jagged(4, grad=True)
    y = leaf * 1
    z = (y * y).sum()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_copies_and_pickles_have_the_values():
    nt = jagged(4, grad=True)
    deep = copy.deepcopy(nt)
    assert deep.requires_grad and deep.size(1) == nt.size(1)
    same(deep, [row for row in rows(4)])
    again = pickle.loads(pickle.dumps(nt))
    assert again.requires_grad
    same(again, rows(4))


# --- torch's refusals


@pytest.mark.parametrize(
    ("kind", "text", "use"),
    [
        (
            RuntimeError,
            "cannot call binary pointwise function add.Tensor with inputs of shapes torch.Size([2, {j}, 3]) and "
            "torch.Size([5, 4, 3])",
            lambda nt: nt + torch.ones(5, 4, 3),
        ),
        (
            RuntimeError,
            "cannot call binary pointwise function sub.Tensor with inputs of shapes torch.Size([5, 3, 3]) and "
            "torch.Size([2, {j}, 3])",
            lambda nt: torch.ones(5, 3, 3) - nt,
        ),
        (
            RuntimeError,
            "cannot call binary pointwise function maximum.default with inputs of shapes torch.Size([2, {j}, 3]) "
            "and torch.Size([5, 3, 3])",
            lambda nt: torch.maximum(nt, torch.ones(5, 3, 3)),
        ),
        (NotImplementedError, "NYI: broadcasting NT with T with larger dim", lambda nt: nt + torch.ones(1, 2, 3, 3)),
        (
            RuntimeError,
            "sum(): reducing along the batch dimension but not the ragged dimension is not supported for nested "
            "tensors",
            lambda nt: nt.sum(0),
        ),
        (
            RuntimeError,
            "sum(): reducing along a ragged and non-batch dimension is not supported for nested tensors",
            lambda nt: nt.sum((1, 2)),
        ),
        (
            RuntimeError,
            "softmax(): not supported when reducing across the batch dimension for NestedTensor",
            lambda nt: nt.softmax(0),
        ),
        (
            RuntimeError,
            "log_softmax(): not supported when reducing along the ragged dimension for NestedTensor",
            lambda nt: nt.log_softmax(1),
        ),
        (RuntimeError, "unbind(): only supported for NestedTensor on dim=0", lambda nt: nt.unbind(1)),
        (RuntimeError, "slice(): not supported for NestedTensor on dim=0", lambda nt: nt[:, 0]),
        (RuntimeError, "select(): not supported for NestedTensor on ragged dim", lambda nt: nt.select(1, 0)),
        (IndexError, "tuple index out of range", lambda nt: nt[2]),
        (ValueError, "Transpose is not supported on the batch dimension for jagged NT", lambda nt: nt.transpose(0, 1)),
        (ValueError, "Permute is not supported on the batch dimension for jagged NT", lambda nt: nt.permute(1, 0, 2)),
        (RuntimeError, "view(): cannot view shape (2, {j}, 3) as [2, 3, 3]", lambda nt: nt.view(2, 3, 3)),
        (RuntimeError, "flatten(): not supported for NestedTensor on ragged dim", lambda nt: nt.flatten(1, 2)),
        (RuntimeError, "unsqueeze(): not supported for NestedTensor on dim=0", lambda nt: nt.unsqueeze(0)),
        (RuntimeError, "cat(): not supported for NestedTensor on dim=0", lambda nt: torch.cat([nt, nt], 0)),
        (RuntimeError, "split(): not supported for NestedTensor on ragged dim", lambda nt: nt.split(1, 1)),
        (
            RuntimeError,
            "matmul(): not supported between inputs of shapes (2, {j}, 3) and torch.Size([2, 3, {j}])",
            lambda nt: nt @ nt.transpose(1, 2),
        ),
        (RuntimeError, "mat1 and mat2 shapes cannot be multiplied (5x3 and 4x4)", lambda nt: nt @ torch.ones(4, 4)),
        (RuntimeError, "new_empty() not supported for NJT with shape != ()", lambda nt: nt.new_zeros(2)),
        (RuntimeError, ".numpy() is not supported for tensor subclasses.", lambda nt: nt.numpy()),
        (
            ValueError,
            "rms_norm(): Normalization over the ragged dim not supported for nested tensors",
            lambda nt: F.rms_norm(nt, (5, 3)),
        ),
        (
            ValueError,
            "Masks are not yet supported!",
            lambda nt: F.scaled_dot_product_attention(nt, nt, nt, attn_mask=torch.ones(3, 3)),
        ),
        (
            ValueError,
            "Expected query, key, and value to be nested tensors, but got query.is_nested: True, key.is_nested: "
            "False, and value.is_nested: False instead.",
            lambda nt: F.scaled_dot_product_attention(nt, torch.ones(1), torch.ones(1)),
        ),
        (NotImplementedError, "aten.cumsum.default", lambda nt: nt.cumsum(1)),
        (NotImplementedError, "this operation is not implemented for nested tensors", lambda nt: nt.var(1)),
        (
            AssertionError,
            "MultiheadAttention does not support NestedTensor outside of its fast path. The fast path was not "
            "hit because training is enabled",
            lambda nt: torch.nn.MultiheadAttention(3, 1)(nt, nt, nt),
        ),
    ],
)
def test_what_torch_refuses_is_refused_with_its_words(kind, text, use):
    nt = small()
    with pytest.raises(kind) as found:
        use(nt)
    assert str(found.value).startswith(text.replace("{j}", str(nt.size(1))))


def test_rows_of_other_offsets_are_other_rows():
    a, b = small(), small()
    with pytest.raises(RuntimeError) as found:
        a + b
    assert str(found.value) == (
        f"cannot call binary pointwise function add.Tensor with inputs of shapes (2, {a.size(1)}, 3) and (2, "
        f"{b.size(1)}, 3)"
    )
