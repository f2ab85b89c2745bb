"""Modules whose functions are written for Python: scripted, saved and loaded they compute what they compute plainly."""

from __future__ import annotations

import io
from typing import Any

import pytest

import engine
from engine import jit, nn

A, B = engine.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]]), engine.tensor([[1.0, 0.0, -1.0], [0.5, 2.0, 0.5]])
SIGN, PLANES = engine.tensor([1.0, -1.0]), engine.arange(32.0).reshape(1, 2, 4, 4)
BAG = engine.tensor([[0, 2, 1], [3, 3, 0]])
LENGTHS = engine.tensor([3]), engine.tensor([2])

CASES: list[tuple[Any, tuple[Any, ...]]] = [
    *((nn.CosineEmbeddingLoss(0.1, reduction=r), (A, B, SIGN)) for r in ("mean", "sum", "none")),
    (nn.HingeEmbeddingLoss(2.0), (A, engine.sign(A))),
    (nn.MarginRankingLoss(0.5), (A[:, 0], B[:, 0], SIGN)),
    (nn.MultiLabelMarginLoss(), (A, engine.tensor([[1, -1, 0], [0, 2, -1]]))),
    (nn.MultiMarginLoss(p=2, margin=0.5, weight=engine.tensor([1.0, 2.0, 3.0])), (A, engine.tensor([2, 0]))),
    (nn.MultiMarginLoss(), (A[0], engine.tensor(1))),
    (nn.MultiLabelSoftMarginLoss(weight=engine.tensor([1.0, 2.0, 3.0])), (A, (B > 0).float())),
    (nn.MultiLabelSoftMarginLoss(reduction="none"), (A, (B > 0).float())),
    (nn.SoftMarginLoss(reduction="sum"), (A, engine.sign(A))),
    (nn.TripletMarginLoss(swap=True), (A, B, A + 0.5)),
    (nn.PoissonNLLLoss(full=True), (A, B + 1)),
    (nn.CTCLoss(), (engine.log_softmax(engine.arange(12.0).reshape(3, 1, 4), 2), engine.tensor([[1, 2]]), *LENGTHS)),
    (nn.LPPool1d(2, 2), (A,)),
    (nn.LPPool2d(3, (2, 1), ceil_mode=True), (PLANES,)),
    (nn.LPPool2d(2, 2, stride=1), (PLANES,)),
    (nn.LPPool3d(2, 2), (PLANES,)),
    (nn.CrossMapLRN2d(3), (PLANES,)),
    (nn.ReflectionPad1d(1), (A,)),
    (nn.ReflectionPad2d((1, 0, 2, 1)), (PLANES,)),
    (nn.ReflectionPad3d(1), (PLANES,)),
    (nn.ReplicationPad1d(2), (A,)),
    (nn.ReplicationPad3d(1), (PLANES,)),
    (nn.CircularPad1d(1), (A,)),
    (nn.CircularPad2d(1), (PLANES,)),
    (nn.RNNCell(3, 2), (A,)),
    (nn.RNNCell(3, 2, nonlinearity="relu"), (A[0], engine.ones(2))),
    *((nn.EmbeddingBag(4, 2, mode=m), (BAG,)) for m in ("sum", "mean", "max")),
    (nn.EmbeddingBag(4, 2, mode="sum", padding_idx=0), (BAG, None, engine.ones(2, 3) * 0.5)),
    (nn.EmbeddingBag(4, 2, include_last_offset=True), (BAG.reshape(-1), engine.tensor([0, 2, 6]))),
    (nn.FeatureAlphaDropout().eval(), (PLANES,)),
]


@pytest.mark.parametrize(("module", "inputs"), CASES, ids=[f"{type(m).__name__}{i}" for i, (m, _) in enumerate(CASES)])
def test_scripted_as_plain(module: Any, inputs: tuple[Any, ...]) -> None:
    wanted, scripted, file = module(*inputs), jit.script(module), io.BytesIO()
    jit.save(scripted, file)
    file.seek(0)
    for found in (scripted(*inputs), jit.load(file)(*inputs)):
        assert found.shape == wanted.shape and engine.allclose(found, wanted, equal_nan=True)


def test_checks_stay() -> None:
    with pytest.raises(engine.jit.Error, match="expected 3D or 4D input"):
        jit.script(nn.CircularPad2d(1))(A)
    with pytest.raises(engine.jit.Error, match="max_norm of embedding_bag is not compiled"):
        jit.script(nn.EmbeddingBag(4, 2, max_norm=1.0))(BAG)


def test_modes_of_cdist() -> None:
    def distances(x: engine.Tensor, y: engine.Tensor, mode: str) -> engine.Tensor:
        return engine.cdist(x, y) + engine.cdist(x, y, 1.0) + engine.cdist(x, y, compute_mode=mode)

    scripted = jit.script(distances)
    for mode in ("use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist", "use_mm_for_euclid_dist_if_necessary"):
        assert engine.allclose(scripted(A, B, mode), distances(A, B, mode))
    with pytest.raises(engine.jit.Error, match="auto is not a valid value for compute_mode"):
        scripted(A, B, "auto")
