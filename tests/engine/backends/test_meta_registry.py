"""Every sample of the registry on the device `meta`: shape, dtype and strides are those of the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import engine
from engine.tensor import Tensor
from tests.engine.samples import Case, cases

# The shape of the result depends on values: NotImplementedError, as in torch.
BY_VALUES = frozenset(["bincount", "masked_select", "nms", "nonzero_rows", "unique", "unique_consecutive"])

# of views, and of results whose memory has another order than their dims
STRIDES = frozenset(
    [
        "clone_strided",
        "conv_tbc",
        "linalg_svd",
        "lu_permutation",
        "nanquantile",
        "quantile",
        "slice",
        "stft",
        "svd",
        "to_copy",
        "unsafe_chunk",
        "unsafe_split",
        "unsafe_split_every",
        "unsafe_split_with_sizes",
    ]
)


def on_meta(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("meta")
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)([on_meta(v) for v in value])
    return value


def tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for r in result for t in tensors(r)] if isinstance(result, list | tuple) else []


def told(case: Case, where: Any) -> list[tuple[Any, ...]]:
    """(shape, dtype, strides) of each result; strides None of views and where memory is laid out otherwise."""
    args, kwargs = case.arguments()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = case.function(*map(where, args), **{k: where(v) for k, v in kwargs.items()})
    found = tensors(result)
    if where is on_meta:
        assert all(t.device.type == "meta" for t in found)
    return [(tuple(t.shape), t.dtype, t.stride()) for t in found]


@pytest.mark.parametrize("case", cases(), ids=str)
def test_shapes_and_dtypes_are_those_of_the_cpu(case: Case) -> None:
    on_cpu = told(case, lambda v: v.detach() if isinstance(v, Tensor) else v)
    if case.name in BY_VALUES:
        with pytest.raises(NotImplementedError, match="attempted to run this operator with Meta tensors"):
            told(case, on_meta)
        return
    found = told(case, on_meta)
    assert [f[:2] for f in found] == [c[:2] for c in on_cpu]
    if case.name not in STRIDES and not (case.op is not None and case.op.view):
        assert [f[2] for f in found] == [c[2] for c in on_cpu]


def test_values_are_refused_outside_of_ops() -> None:
    with pytest.raises(RuntimeError, match=r"Tensor.item\(\) cannot be called on meta tensors"):
        engine.ones(1, device="meta").item()
    with pytest.raises(
        NotImplementedError, match="aten::nonzero_rows: attempted to run this operator with Meta tensors"
    ):
        engine.ones(3, device="meta").nonzero()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        engine.ones(2, 3, device="meta") @ engine.ones(2, 3, device="meta")


def test_a_mask_without_values_selects_nothing_that_is_known_and_writes_nowhere() -> None:
    values = engine.ones(3, 4, device="meta")
    with pytest.raises(NotImplementedError, match="aten::nonzero: attempted to run this operator with Meta tensors"):
        values[values > 0]
    values[values > 0] = 1
    values[0, engine.ones(4, device="meta", dtype=engine.bool)] = 0.5
    assert values.shape == (3, 4) and values._version == 2
    known = engine.tensor([True, False, True])
    assert values[known].shape == (2, 4)
    values[known] = engine.zeros(2, 4, device="meta")
    with pytest.raises(IndexError, match="The shape of the mask"):
        values[engine.ones(2, dtype=engine.bool, device="meta")] = 1


def test_repeats_without_values_need_the_size() -> None:
    values, repeats = engine.ones(3, 2, device="meta"), engine.ones(3, dtype=engine.int64, device="meta")
    assert engine.repeat_interleave(values, repeats, 0, output_size=7).shape == (7, 2)
    assert engine.repeat_interleave(repeats, output_size=4).shape == (4,)
    assert engine.repeat_interleave(values, 2).shape == (12,)
    for call in (lambda: engine.repeat_interleave(values, repeats, 0), lambda: engine.repeat_interleave(repeats)):
        with pytest.raises(RuntimeError, match="cannot repeat_interleave a meta tensor without output_size"):
            call()


def test_gradients_have_shapes() -> None:
    weight = engine.ones(5, 3, device="meta", requires_grad=True)
    at = engine.ones(4, dtype=engine.int64, device="meta")
    bags = engine.nn.functional.embedding_bag(at, weight, at[:2], mode="sum", padding_idx=0)
    assert bags.shape == (2, 3)
    bags.sum().backward()
    assert weight.grad.shape == (5, 3) and weight.grad.device.type == "meta"
    scores = engine.ones(4, 5, device="meta", requires_grad=True)
    engine.nn.functional.multi_margin_loss(scores, at).backward()
    assert scores.grad.shape == (4, 5)
