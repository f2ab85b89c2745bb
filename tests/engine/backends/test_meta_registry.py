"""Every sample of the registry on the device `meta`: shape, dtype and strides are those of the CPU."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import engine
from engine.tensor import Tensor
from tests.engine.samples import Case, cases

BY_VALUES = "the shape of the result depends on values: NotImplementedError, as in torch"
READS = "reads values in Python before it calls an op"
EXEMPT = {
    **dict.fromkeys(
        ["bincount", "masked_select", "nms", "nonzero_rows", "nonzero_static", "unique", "unique_consecutive"],
        BY_VALUES,
    ),
    **dict.fromkeys(
        ["embedding_bag", "fake_quantize_per_channel_affine", "histogram", "istft", "multi_margin_loss",
         "multilabel_margin_loss", "nanquantile", "quantile", "scaled_dot_product_attention", "segment_reduce"],
        READS,
    ),
}  # fmt: skip

# of views, and of results whose memory has another order than their dims
STRIDES = frozenset(["clone_strided", "conv_tbc", "lu_permutation", "overlap_add", "stft", "svd", "to_copy"])


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
    if case.name in EXEMPT:
        try:
            found = told(case, on_meta)
        except (NotImplementedError, RuntimeError):
            return
        assert [f[:2] for f in found] == [c[:2] for c in on_cpu] and EXEMPT[case.name] is not BY_VALUES
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
