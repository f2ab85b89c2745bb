"""The modules that no case of tests/engine/nn/cases makes: how each is made, and what it is called with."""

from __future__ import annotations

from typing import Any

import numpy as np

import engine
from engine import nn


def _draw(seed: int = 0) -> Any:
    return np.random.default_rng(seed)


def real(*shape: int, seed: int = 0) -> engine.Tensor:
    return engine.tensor(_draw(seed).standard_normal(shape)).requires_grad_()


def inside(*shape: int, seed: int = 1) -> engine.Tensor:
    return engine.tensor(_draw(seed).uniform(0.1, 0.9, shape))


def signs(*shape: int) -> engine.Tensor:
    return engine.tensor(np.sign(_draw(2).standard_normal(shape)))


def classes(count: int, *shape: int) -> engine.Tensor:
    return engine.tensor(_draw(3).integers(0, count, shape))


a, b, c = (4, 5), (4, 5), (4, 5)
x3, x4, x5 = (2, 3, 8), (2, 3, 8, 6), (2, 3, 4, 6, 5)


def _unpool(size: tuple[int, ...], dims: int) -> tuple[engine.Tensor, engine.Tensor]:
    pool = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)
    values, indices = pool(real(*size).detach())
    return values.requires_grad_(), indices


# name -> (make the module, its inputs)
FURTHER: dict[str, tuple[Any, Any]] = {
    "AdaptiveMaxPool1d": (lambda: nn.AdaptiveMaxPool1d(5), lambda: [real(*x3)]),
    "AdaptiveMaxPool3d": (lambda: nn.AdaptiveMaxPool3d((2, 3, 4)), lambda: [real(*x5)]),
    "AlphaDropout": (lambda: nn.AlphaDropout(0.5), lambda: [real(*x3)]),
    "BCELoss": (lambda: nn.BCELoss(), lambda: [inside(*a).requires_grad_(), inside(*a, seed=6)]),
    "BCEWithLogitsLoss": (lambda: nn.BCEWithLogitsLoss(), lambda: [real(*a), inside(*a)]),
    "CircularPad1d": (lambda: nn.CircularPad1d(2), lambda: [real(*x3)]),
    "CircularPad3d": (lambda: nn.CircularPad3d(1), lambda: [real(*x5)]),
    "ConstantPad1d": (lambda: nn.ConstantPad1d(2, 1.5), lambda: [real(*x3)]),
    "CosineEmbeddingLoss": (lambda: nn.CosineEmbeddingLoss(0.2), lambda: [real(*a), real(*b, seed=4), signs(4)]),
    "CrossMapLRN2d": (lambda: nn.CrossMapLRN2d(2), lambda: [real(*x4)]),
    "Dropout1d": (lambda: nn.Dropout1d(0.5), lambda: [real(*x3)]),
    "Dropout2d": (lambda: nn.Dropout2d(0.5), lambda: [real(*x4)]),
    "Dropout3d": (lambda: nn.Dropout3d(0.5), lambda: [real(*x5)]),
    "FeatureAlphaDropout": (lambda: nn.FeatureAlphaDropout(0.5), lambda: [real(*x4)]),
    "FractionalMaxPool2d": (
        lambda: nn.FractionalMaxPool2d(2, output_size=(4, 3), _random_samples=inside(2, 3, 2)),
        lambda: [real(*x4)],
    ),
    "FractionalMaxPool3d": (
        lambda: nn.FractionalMaxPool3d(2, output_size=(2, 3, 2), _random_samples=inside(2, 3, 3)),
        lambda: [real(*x5)],
    ),
    "GaussianNLLLoss": (lambda: nn.GaussianNLLLoss(), lambda: [real(*a), real(*b, seed=4).detach(), inside(*a)]),
    "HingeEmbeddingLoss": (lambda: nn.HingeEmbeddingLoss(0.7), lambda: [real(*a), signs(*a)]),
    "HuberLoss": (lambda: nn.HuberLoss(delta=0.5), lambda: [real(*a), real(*b, seed=4)]),
    "InstanceNorm3d": (lambda: nn.InstanceNorm3d(3, affine=True), lambda: [real(*x5).float()]),
    "KLDivLoss": (lambda: nn.KLDivLoss(reduction="batchmean"), lambda: [real(*a), inside(*a)]),
    "L1Loss": (lambda: nn.L1Loss(), lambda: [real(*a), real(*b, seed=4)]),
    "LPPool3d": (lambda: nn.LPPool3d(2, 2), lambda: [inside(*x5).requires_grad_()]),
    "LazyBatchNorm1d": (lambda: nn.LazyBatchNorm1d(), lambda: [real(*x3).float()]),
    "LazyBatchNorm3d": (lambda: nn.LazyBatchNorm3d(), lambda: [real(*x5).float()]),
    "LazyConv1d": (lambda: nn.LazyConv1d(4, 3), lambda: [real(*x3).float()]),
    "LazyConv3d": (lambda: nn.LazyConv3d(4, 2), lambda: [real(*x5).float()]),
    "LazyConvTranspose1d": (lambda: nn.LazyConvTranspose1d(4, 3), lambda: [real(*x3).float()]),
    "LazyConvTranspose2d": (lambda: nn.LazyConvTranspose2d(4, 3), lambda: [real(*x4).float()]),
    "LazyConvTranspose3d": (lambda: nn.LazyConvTranspose3d(4, 2), lambda: [real(*x5).float()]),
    "LazyInstanceNorm1d": (lambda: nn.LazyInstanceNorm1d(), lambda: [real(*x3).float()]),
    "LazyInstanceNorm2d": (lambda: nn.LazyInstanceNorm2d(), lambda: [real(*x4).float()]),
    "LazyInstanceNorm3d": (lambda: nn.LazyInstanceNorm3d(), lambda: [real(*x5).float()]),
    "LinearCrossEntropyLoss": (lambda: nn.LinearCrossEntropyLoss(5, 3), lambda: [real(*a).float(), classes(3, 4)]),
    "MSELoss": (lambda: nn.MSELoss(), lambda: [real(*a), real(*b, seed=4)]),
    "MarginRankingLoss": (lambda: nn.MarginRankingLoss(0.3), lambda: [real(*a), real(*b, seed=4), signs(*a)]),
    "MaxUnpool1d": (lambda: nn.MaxUnpool1d(2), lambda: [*_unpool(x3, 1)]),
    "MaxUnpool2d": (lambda: nn.MaxUnpool2d(2), lambda: [*_unpool(x4, 2)]),
    "MaxUnpool3d": (lambda: nn.MaxUnpool3d(2), lambda: [*_unpool((2, 3, 4, 6, 4), 3)]),
    "MultiLabelMarginLoss": (
        lambda: nn.MultiLabelMarginLoss(),
        lambda: [real(*a), engine.tensor([[3, 0, -1, 1, 2]] * 4)],
    ),
    "MultiLabelSoftMarginLoss": (lambda: nn.MultiLabelSoftMarginLoss(), lambda: [real(*a), inside(*a).round()]),
    "MultiMarginLoss": (lambda: nn.MultiMarginLoss(p=2, margin=0.6), lambda: [real(*a), classes(5, 4)]),
    "NLLLoss": (lambda: nn.NLLLoss(ignore_index=2), lambda: [real(*a), classes(5, 4)]),
    "NLLLoss2d": (lambda: nn.NLLLoss2d(), lambda: [real(2, 5, 3, 4), classes(5, 2, 3, 4)]),
    "PoissonNLLLoss": (lambda: nn.PoissonNLLLoss(full=True), lambda: [real(*a), inside(*a)]),
    "RReLU": (lambda: nn.RReLU(0.1, 0.4), lambda: [real(*x3)]),
    "ReflectionPad3d": (lambda: nn.ReflectionPad3d(1), lambda: [real(*x5)]),
    "ReplicationPad1d": (lambda: nn.ReplicationPad1d(2), lambda: [real(*x3)]),
    "ReplicationPad3d": (lambda: nn.ReplicationPad3d(1), lambda: [real(*x5)]),
    "SmoothL1Loss": (lambda: nn.SmoothL1Loss(beta=0.5), lambda: [real(*a), real(*b, seed=4)]),
    "SoftMarginLoss": (lambda: nn.SoftMarginLoss(), lambda: [real(*a), signs(*a)]),
    "TransformerDecoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0), 2),
        lambda: [real(3, 2, 8).float(), real(4, 2, 8, seed=4).float()],
    ),
    "TripletMarginLoss": (
        lambda: nn.TripletMarginLoss(0.8, 1.5),
        lambda: [real(*a), real(*b, seed=4), real(*c, seed=5)],
    ),
    "TripletMarginWithDistanceLoss": (
        lambda: nn.TripletMarginWithDistanceLoss(margin=0.8),
        lambda: [real(*a), real(*b, seed=4), real(*c, seed=5)],
    ),
    "ZeroPad3d": (lambda: nn.ZeroPad3d(1), lambda: [real(*x5)]),
}
