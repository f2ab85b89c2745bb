"""A module gives what its function in nn.functional gives, for every pair that differs in nothing but the form."""

from __future__ import annotations

import numpy as np
import pytest

import engine
from engine import nn
from engine.nn import functional as F


def real(*shape: int, seed: int = 0) -> engine.Tensor:
    return engine.tensor(np.random.default_rng(seed).standard_normal(shape))


def inside(*shape: int, seed: int = 1) -> engine.Tensor:
    return engine.tensor(np.random.default_rng(seed).uniform(0.1, 0.9, shape))


def signs(*shape: int) -> engine.Tensor:
    return real(*shape, seed=2).sign()


def classes(count: int, *shape: int) -> engine.Tensor:
    return engine.tensor(np.random.default_rng(3).integers(0, count, shape))


a, b, c = real(4, 5), real(4, 5, seed=4), real(4, 5, seed=5)
many = engine.tensor([[3, 0, -1, 1, 2]] * 4)
LOSSES = {
    "L1Loss": ("l1_loss", (a, b), {}),
    "MSELoss": ("mse_loss", (a, b), {}),
    "SmoothL1Loss": ("smooth_l1_loss", (a, b), {"beta": 0.5}),
    "HuberLoss": ("huber_loss", (a, b), {"delta": 0.5}),
    "NLLLoss": ("nll_loss", (a, classes(5, 4)), {"ignore_index": 2}),
    "CrossEntropyLoss": ("cross_entropy", (a, classes(5, 4)), {"label_smoothing": 0.1}),
    "KLDivLoss": ("kl_div", (a, inside(4, 5)), {"log_target": True}),
    "BCELoss": ("binary_cross_entropy", (inside(4, 5), inside(4, 5, seed=6)), {}),
    "BCEWithLogitsLoss": ("binary_cross_entropy_with_logits", (a, inside(4, 5)), {}),
    "PoissonNLLLoss": ("poisson_nll_loss", (a, inside(4, 5)), {"full": True}),
    "GaussianNLLLoss": ("gaussian_nll_loss", (a, b, inside(4, 5)), {}),
    "HingeEmbeddingLoss": ("hinge_embedding_loss", (a, signs(4, 5)), {"margin": 0.7}),
    "MultiLabelMarginLoss": ("multilabel_margin_loss", (a, many), {}),
    "MultiLabelSoftMarginLoss": ("multilabel_soft_margin_loss", (a, inside(4, 5).round()), {}),
    "MultiMarginLoss": ("multi_margin_loss", (a, classes(5, 4)), {"p": 2, "margin": 0.6}),
    "SoftMarginLoss": ("soft_margin_loss", (a, signs(4, 5)), {}),
    "CosineEmbeddingLoss": ("cosine_embedding_loss", (a, b, signs(4)), {"margin": 0.2}),
    "MarginRankingLoss": ("margin_ranking_loss", (a, b, signs(4, 5)), {"margin": 0.3}),
    "TripletMarginLoss": ("triplet_margin_loss", (a, b, c), {"margin": 0.8, "p": 1.5}),
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses(name, reduction):
    function, inputs, options = LOSSES[name]
    if name == "KLDivLoss" and reduction == "mean":
        reduction = "batchmean"
    module = getattr(nn, name)(reduction=reduction, **options)
    wanted = getattr(F, function)(*inputs, reduction=reduction, **options)
    made = module(*inputs)
    assert engine.equal(made, wanted) and made.isfinite().all()
    assert made.dim() == (0 if reduction != "none" else wanted.dim())


x3, x4, x5 = real(2, 3, 8), real(2, 3, 8, 6), real(2, 3, 4, 6, 5)
LAYERS = {
    "AdaptiveMaxPool1d": ("adaptive_max_pool1d", x3, (5,)),
    "AdaptiveMaxPool2d": ("adaptive_max_pool2d", x4, ((5, 4),)),
    "AdaptiveMaxPool3d": ("adaptive_max_pool3d", x5, ((2, 3, 4),)),
    "AdaptiveAvgPool3d": ("adaptive_avg_pool3d", x5, ((2, 3, 4),)),
    "LPPool1d": ("lp_pool1d", inside(2, 3, 8), (2.0, 3, 2)),
    "LPPool2d": ("lp_pool2d", inside(2, 3, 8, 6), (1.5, 2)),
    "AlphaDropout": ("alpha_dropout", x3, (0.5,)),
    "Dropout2d": ("dropout2d", x4, (0.5,)),
    "Dropout3d": ("dropout3d", x5, (0.5,)),
    "RReLU": ("rrelu", x3, (0.1, 0.4)),
}


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, training):
    function, x, arguments = LAYERS[name]
    module = getattr(nn, name)(*arguments).train(training)
    draws = "rop" in name or name == "RReLU"
    engine.manual_seed(0)
    made = module(x)
    engine.manual_seed(0)
    more = {"training": training} if draws else {}
    assert engine.equal(made, getattr(F, function)(x, *arguments, **more))
    if draws:
        assert engine.equal(made, x) == (not training and name != "RReLU")


PADDINGS = {
    "ConstantPad1d": (x3, (1, 2), {"mode": "constant", "value": 3.5}),
    "ReplicationPad1d": (x3, (1, 2), {"mode": "replicate"}),
    "ReplicationPad3d": (x5, (1, 0, 2, 1, 0, 1), {"mode": "replicate"}),
    "ReflectionPad1d": (x3, (1, 2), {"mode": "reflect"}),
    "CircularPad2d": (x4, (1, 2, 3, 0), {"mode": "circular"}),
}


@pytest.mark.parametrize("name", PADDINGS)
def test_paddings(name):
    x, pad, options = PADDINGS[name]
    module = getattr(nn, name)(pad, *([options["value"]] if "value" in options else []))
    assert engine.equal(module(x), F.pad(x, pad, **options))


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_unpooling(dims):
    x = {1: x3, 2: x4, 3: x5}[dims]
    pooled, where = getattr(nn, f"MaxPool{dims}d")(2, return_indices=True)(x)
    module = {1: nn.MaxUnpool1d, 2: nn.MaxUnpool2d, 3: nn.MaxUnpool3d}[dims](2)
    function = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}[dims]
    made = module(pooled, where, output_size=x.shape)
    assert engine.equal(made, function(pooled, where, 2, output_size=x.shape)) and made.shape == x.shape
    flat, indices = made.flatten(2), where.flatten(2)
    assert engine.equal(flat.gather(2, indices), pooled.flatten(2))
    assert engine.count_nonzero(flat) == engine.count_nonzero(pooled)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_adaptive_maxima_of_no_images_have_gradients(dims):
    x = engine.randn(0, 3, *(5, 4, 3)[:dims], requires_grad=True)
    found = getattr(F, f"adaptive_max_pool{dims}d")(x, 2)
    found.sum().backward()
    assert found.shape == (0, 3, *(2,) * dims) and x.grad.shape == x.shape


def test_embedding_bag():
    weight = real(7, 3)
    where, starts = engine.tensor([1, 2, 4, 6, 0]), engine.tensor([0, 2])
    for mode in ("sum", "mean", "max"):
        module = nn.EmbeddingBag.from_pretrained(weight, mode=mode)
        made = module(where, starts)
        assert engine.equal(made, F.embedding_bag(where, weight, starts, mode=mode))
        first = weight[where[:2]]
        wanted = first.amax(0) if mode == "max" else getattr(first, mode)(0)
        engine.testing.assert_close(made[0], wanted)


def test_transposed_convolution_is_the_gradient_of_convolution():
    weight, x = real(4, 3, 3), real(2, 3, 9, seed=7).requires_grad_()
    y = real(2, 4, 5, seed=8)
    (wanted,) = engine.autograd.grad(F.conv1d(x, weight, stride=2, padding=1), x, y)
    made = F.conv_transpose1d(y, weight, stride=2, padding=1)
    engine.testing.assert_close(made, wanted)
    module = nn.ConvTranspose1d(4, 3, 3, stride=2, padding=1, bias=False, dtype=engine.float64)
    module.weight = nn.Parameter(weight)
    assert engine.equal(module(y), made)


def test_instance_norm_3d():
    module = nn.InstanceNorm3d(3, affine=True, dtype=engine.float64)
    made = module(x5)
    assert engine.equal(made, F.instance_norm(x5, weight=module.weight, bias=module.bias))
    engine.testing.assert_close(made.mean((2, 3, 4)), engine.zeros(2, 3, dtype=engine.float64), atol=1e-12, rtol=0)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated:FutureWarning")
def test_norms_can_be_removed():
    engine.manual_seed(0)
    layer = nn.Linear(4, 3, dtype=engine.float64)
    before = layer.weight.detach().clone()
    for wrap, unwrap in (
        (nn.utils.weight_norm, nn.utils.remove_weight_norm),
        (nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
    ):
        wrap(layer)
        layer(engine.ones(2, 4, dtype=engine.float64))
        kept = layer.weight.detach().clone()
        unwrap(layer)
        assert isinstance(layer.weight, nn.Parameter) and engine.equal(layer.weight, kept)
        with pytest.raises(ValueError, match="not found in"):
            unwrap(layer)
    assert engine.linalg.matrix_norm(layer.weight, 2) < engine.linalg.matrix_norm(before, 2) * 1.5


def test_packed_sequences():
    sequences = [real(n, 2, seed=n) for n in (3, 2, 1)]
    packed = nn.utils.rnn.pack_sequence(sequences)
    assert isinstance(packed, nn.utils.rnn.PackedSequence)
    assert packed.batch_sizes.tolist() == [3, 2, 1] and packed.data.shape == (6, 2)
    assert engine.equal(packed.data[:3], engine.stack([s[0] for s in sequences]))
    padded, lengths = nn.utils.rnn.pad_packed_sequence(packed)
    assert engine.equal(padded, nn.utils.rnn.pad_sequence(sequences)) and lengths.tolist() == [3, 2, 1]
    assert packed.to(engine.float32).data.dtype is engine.float32 and not packed.is_cuda


@pytest.mark.parametrize("name", ["celu", "elu", "hardtanh", "leaky_relu", "relu", "rrelu", "selu", "threshold"])
def test_functions_with_an_underscore_work_in_place(name: str) -> None:
    more = {"threshold": (0.1, 0.2), "rrelu": (0.2, 0.2)}.get(name, ())
    x = real(4, 5)
    expected = getattr(F, name)(x, *more)
    assert getattr(F, f"{name}_")(x, *more) is x and engine.equal(x, expected)
