"""What the documents of 1.1 say of tensors: layouts of results, writes to expanded memory, old names."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import engine as torch
from engine import nn


def test_singular_vectors_are_laid_out_by_columns() -> None:
    for shape in ((4, 4), (5, 3), (2, 3, 5), (0, 3)):
        U, _, V = torch.svd(torch.randn(shape))
        assert U.stride()[-2:] == (1, max(shape[-2], 1)), shape
        assert V.is_contiguous(), shape
    x = torch.randn(4, 4, dtype=torch.float64)
    U, S, V = torch.svd(x)
    assert torch.allclose(U @ S.diag() @ V.t(), x)


def test_strides_of_empty_slices() -> None:
    x = torch.zeros(2, 3, 4, 5)
    assert x[:, :, :, 1][:, 1:1].stride() == (60, 20, 5)
    assert x[:, :0].stride() == x[:0].stride() == (60, 20, 5, 1)
    assert x[:0].contiguous().is_contiguous()


ROW = torch.tensor([[True, False, False], [False, True, False]])
WRITES: list[tuple[str, tuple[Any, ...], list[float], str]] = [
    ("fill_", (2,), [2, 2, 2], ""),
    ("zero_", (), [0, 0, 0], ""),
    ("masked_fill_", (ROW, 5), [5, 5, 1], "masked_fill_"),
    ("masked_fill_", (ROW, torch.tensor(5.0)), [5, 5, 1], "masked_fill_"),
    ("index_fill_", (1, torch.tensor([2]), 5), [1, 1, 5], "index_fill_"),
    ("index_put_", ((torch.tensor([0]), torch.tensor([1])), torch.tensor(5.0)), [1, 5, 1], "index_put_"),
]


@pytest.mark.parametrize(("name", "args", "want", "warned"), WRITES)
def test_equal_values_are_written_to_expanded_memory(name: str, args: tuple, want: list, warned: str) -> None:
    x = torch.ones(3)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        getattr(x.expand(2, 3), name)(*args)
    assert x.tolist() == want
    assert [str(w.message).split(" on ")[0] for w in told] == ([f"Use of {warned}"] if warned else [])


def test_triangles_of_expanded_matrices() -> None:
    x = torch.ones(2, 2)
    x.expand(3, 2, 2).triu_()
    assert x.tolist() == [[1, 1], [0, 1]]
    x.expand(3, 2, 2).tril_()
    assert x.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1),
        lambda x: x.fill_(torch.tensor(1.0)),
        lambda x: x.__setitem__((slice(None), 0), 1.0),
        lambda x: x.index_put_((torch.tensor([0]),), torch.tensor(1.0), accumulate=True),
        lambda x: x.copy_(torch.zeros(2, 3)),
    ],
)
def test_other_writes_to_expanded_memory_are_refused(write: Any) -> None:
    x = torch.ones(3)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        write(x.expand(2, 3))
    assert x.tolist() == [1, 1, 1]


def test_sums_and_products_have_the_dtype_of_out() -> None:
    x = torch.ones(3, 3, dtype=torch.bool)
    for function in (torch.prod, torch.sum):
        assert function(x, 0, out=torch.empty(0, dtype=torch.bool)).tolist() == [True] * 3
        assert function(x.short(), 0, out=torch.empty(0, dtype=torch.int16)).dtype is torch.int16
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.sum(torch.ones(2, dtype=torch.complex64), 0, out=torch.empty(0))
    assert torch.sum(torch.full((3,), 2**62), 0, out=torch.empty(0, dtype=torch.float64)).item() == 3 * 2.0**62


def test_files_without_seek_are_refused() -> None:
    class Stream:
        def read(self, size: int = -1) -> bytes:
            return b""

        def tell(self) -> int:
            return 0

    with pytest.raises(AttributeError, match=r"has no attribute 'seek'\. You can only torch.load from a file that is"):
        torch.load(Stream())


def test_the_old_types() -> None:
    assert torch.FloatTensor in torch._tensor_classes
    assert torch.sparse.FloatTensor in torch._tensor_classes
    assert torch.BoolStorage in torch._storage_classes
    assert not any(kind.is_cuda is True for kind in torch._tensor_classes | torch._storage_classes)
    assert {kind.is_sparse for kind in torch._tensor_classes} == {True, False}
    assert torch.cuda.FloatStorage.is_cuda


def test_quantized_tensors_that_are_not_filled() -> None:
    x = torch._empty_affine_quantized([2, 3], dtype=torch.qint8, scale=0.5, zero_point=10)
    assert (x.shape, x.dtype, x.q_scale(), x.q_zero_point()) == ((2, 3), torch.qint8, 0.5, 10)
    with pytest.raises(RuntimeError, match="requires quantized dtype"):
        torch._empty_affine_quantized([2], dtype=torch.float32)


@pytest.mark.parametrize("bags", [torch.tensor([[1, 1], [2, 4]]), torch.tensor([1, 1, 2, 4])])
def test_bags_have_sparse_gradients(bags: torch.Tensor) -> None:
    offsets = None if bags.dim() == 2 else torch.tensor([0, 2])
    found = []
    for sparse in (True, False):
        table = nn.EmbeddingBag.from_pretrained(torch.ones(6, 2), freeze=False, mode="sum", sparse=sparse)
        table(bags, offsets).sum().backward()
        assert table.weight.grad is not None
        assert table.weight.grad.is_sparse is sparse
        found.append(table.weight.grad)
    assert found[0].to_dense().tolist() == found[1].tolist()


def test_backward_hooks_are_handed_what_has_gradients() -> None:
    seen: list[tuple[int, int]] = []
    for module, x in ((nn.BatchNorm1d(3), torch.randn(4, 3)), (nn.LayerNorm(3), torch.randn(4, 3))):
        result = module(x.requires_grad_())
        result.grad_fn.register_hook(lambda given, got: seen.append((len(given), len(got))))
        result.sum().backward()
    assert seen == [(3, 1), (3, 1)]


def test_ranges_of_more_elements_than_can_be_counted() -> None:
    for bounds in ((1e-38, 3e38), (0, 2**70), (0, -1e30, -1e-3)):
        with pytest.raises(RuntimeError, match="invalid size, possible overflow"):
            torch.arange(*bounds)
