"""Programs whose writes `writes.py` compares with torch, beside the samples of the registry: modules, views of a base.

Each takes the library and returns (tensors to write to before backward, function that gives the results).  Weights are
ones: what is saved does not depend on values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _filled(lib: Any, *shape: int) -> Any:
    count = 1
    for n in shape:
        count *= n
    return ((lib.arange(count, dtype=lib.float32) * 7 % 11 - 5) / 6).reshape(shape).requires_grad_()


def module(make: Callable[[Any], Any], *shapes: tuple[int, ...], train: bool = True) -> Callable[[Any], Any]:
    def program(lib: Any) -> Any:
        made = make(lib.nn)
        made.train(train)
        with lib.no_grad():
            for p in made.parameters():
                p.fill_(0.1)
        inputs = [_filled(lib, *s) for s in shapes]
        return [*inputs, *made.parameters(), *made.buffers()], lambda: made(*inputs)

    return program


def call(function: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[Any], Any]:
    def program(lib: Any) -> Any:
        inputs = [_filled(lib, *s) for s in shapes]
        return inputs, lambda: function(lib, *inputs)

    return program


def given(function: Callable[..., Any], shape: tuple[int, ...], make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`function(lib, x, made)`, of which `made` is written to as well."""

    def program(lib: Any) -> Any:
        inputs = [_filled(lib, *shape), make(lib)]
        return inputs, lambda: function(lib, *inputs)

    return program


def view_of(make: Callable[[Any], Any], use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The base of the views is written after they were used."""

    def program(lib: Any) -> Any:
        x = _filled(lib, 4, 4)
        base = x * 2

        return [x, base], lambda: use(make(base))

    return program


IMAGE = (2, 4, 8, 8)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    f"{name}{d}d": module(lambda nn, c=f"{name}{d}d": getattr(nn, c)(2), (2, 4, *(8,) * d))
    for name in (
        "MaxPool",
        "AvgPool",
        "AdaptiveAvgPool",
        "AdaptiveMaxPool",
        "ReplicationPad",
        "ReflectionPad",
        "ZeroPad",
    )
    for d in (1, 2, 3)
}
PROGRAMS |= {
    f"{name}{d}d": module(lambda nn, c=f"{name}{d}d": getattr(nn, c)(4, affine=True), (2, 4, *(8,) * d))
    for name in ("BatchNorm", "InstanceNorm")
    for d in (1, 2, 3)
}
PROGRAMS |= {
    "BatchNorm2d eval": module(lambda nn: nn.BatchNorm2d(4), IMAGE, train=False),
    "GroupNorm": module(lambda nn: nn.GroupNorm(2, 4), IMAGE),
    "LayerNorm": module(lambda nn: nn.LayerNorm(8), IMAGE),
    "RMSNorm": module(lambda nn: nn.RMSNorm(8), IMAGE),
    "LocalResponseNorm": module(lambda nn: nn.LocalResponseNorm(2), IMAGE),
    "RNN": module(lambda nn: nn.RNN(3, 4, 2), (5, 2, 3)),
    "RNN relu": module(lambda nn: nn.RNN(3, 4, nonlinearity="relu"), (5, 2, 3)),
    "RNN both": module(lambda nn: nn.RNN(3, 4, bidirectional=True), (5, 2, 3)),
    "RNN batch first": module(lambda nn: nn.RNN(3, 4, batch_first=True), (5, 2, 3)),
    "LSTM": module(lambda nn: nn.LSTM(3, 4, 2), (5, 2, 3)),
    "LSTM one": module(lambda nn: nn.LSTM(3, 4), (5, 2, 3)),
    "LSTM both": module(lambda nn: nn.LSTM(3, 4, bidirectional=True), (5, 2, 3)),
    "LSTM batch first": module(lambda nn: nn.LSTM(3, 4, batch_first=True), (5, 2, 3)),
    "GRU": module(lambda nn: nn.GRU(3, 4, 2), (5, 2, 3)),
    "GRU one": module(lambda nn: nn.GRU(3, 4), (5, 2, 3)),
    "GRU both": module(lambda nn: nn.GRU(3, 4, bidirectional=True), (5, 2, 3)),
    "RNNCell": module(lambda nn: nn.RNNCell(3, 4), (2, 3)),
    "LSTMCell": module(lambda nn: nn.LSTMCell(3, 4), (2, 3)),
    "GRUCell": module(lambda nn: nn.GRUCell(3, 4), (2, 3)),
    "Linear": module(lambda nn: nn.Linear(3, 4), (2, 3)),
    "Bilinear": module(lambda nn: nn.Bilinear(3, 4, 2), (2, 3), (2, 4)),
    "Conv1d": module(lambda nn: nn.Conv1d(4, 4, 3), (2, 4, 8)),
    "Conv2d": module(lambda nn: nn.Conv2d(4, 4, 3), IMAGE),
    "ConvTranspose2d": module(lambda nn: nn.ConvTranspose2d(4, 4, 3), IMAGE),
    "PReLU": module(lambda nn: nn.PReLU(4), IMAGE),
    "Upsample": module(lambda nn: nn.Upsample(scale_factor=2), IMAGE),
    "PixelShuffle": module(lambda nn: nn.PixelShuffle(2), IMAGE),
    **{
        name: module(lambda nn, c=name: getattr(nn, c)(), IMAGE)
        for name in (
            "ReLU", "ReLU6", "ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Sigmoid", "Tanh", "LogSigmoid", "Softplus",
            "Softshrink", "Softsign", "Tanhshrink", "Hardtanh", "Hardswish", "Hardsigmoid", "LeakyReLU", "Flatten",
            "Softmax2d", "Hardshrink",
        )
    },
    **{
        name: call(lambda lib, x, y, c=name: getattr(lib.nn, c)()(x, y.detach()), (2, 4), (2, 4))
        for name in (
            "MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss", "SoftMarginLoss", "KLDivLoss", "CosineSimilarity",
            "PairwiseDistance", "PoissonNLLLoss", "BCEWithLogitsLoss",
        )
    },
    "cross_entropy": call(lambda lib, x: lib.nn.functional.cross_entropy(x, lib.arange(3)), (3, 4)),
    "cross_entropy none": call(
        lambda lib, x: lib.nn.functional.cross_entropy(x, lib.arange(3), reduction="none"), (3, 4)
    ),
    "cross_entropy image": call(
        lambda lib, x: lib.nn.functional.cross_entropy(x, lib.zeros(2, 5, 5, dtype=lib.int64)), (2, 3, 5, 5)
    ),
    "nll_loss": call(lambda lib, x: lib.nn.functional.nll_loss(x, lib.arange(3)), (3, 4)),
    "nll_loss none": call(lambda lib, x: lib.nn.functional.nll_loss(x, lib.arange(3), reduction="none"), (3, 4)),
    "cat": call(lambda lib, a, b: lib.cat([a, b]), (2, 3), (2, 3)),
    "stack": call(lambda lib, a, b: lib.stack([a, b]), (2, 3), (2, 3)),
    "hstack": call(lambda lib, a, b: lib.hstack([a, b]), (2, 3), (2, 3)),
    "matmul broadcast": call(lambda lib, a, b: a @ b, (5, 2, 3), (3, 4)),
    "matmul batch": call(lambda lib, a, b: a @ b, (5, 2, 3), (5, 3, 4)),
    "matmul batch broadcast": call(lambda lib, a, b: a @ b, (2, 1, 2, 3), (5, 3, 4)),
    "matmul vector": call(lambda lib, a, b: a @ b, (5, 2, 3), (3,)),
    "einsum two": call(lambda lib, a, b: lib.einsum("bij,jk->bik", a, b), (5, 2, 3), (3, 4)),
    "einsum three": call(lambda lib, a, b, c: lib.einsum("ij,jk,kl->il", a, b, c), (2, 3), (3, 4), (4, 5)),
    "addmm": call(lambda lib, a, b, c: lib.addmm(a, b, c), (2, 4), (2, 3), (3, 4)),
    "gather": call(lambda lib, x: x.gather(1, lib.zeros(2, 2, dtype=lib.int64)), (2, 3)),
    "take": call(lambda lib, x: x.take(lib.zeros(2, 2, dtype=lib.int64)), (2, 3)),
    "index_select": call(lambda lib, x: x.index_select(1, lib.zeros(2, dtype=lib.int64)), (2, 3)),
    "getitem": call(lambda lib, x: x[lib.zeros(2, dtype=lib.int64)], (2, 3)),
    "masked_fill": call(lambda lib, x: x.masked_fill(x > 0, 0.0), (2, 3)),
    "where": call(lambda lib, x, y: lib.where(x > 0, x, y), (2, 3), (2, 3)),
    "embedding": call(lambda lib, w: lib.nn.functional.embedding(lib.arange(3), w), (5, 3)),
    "sdpa": call(
        lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v),
        (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4),
    ),
    "sdpa of three dims": call(
        lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v), (2, 5, 4), (2, 5, 4), (2, 5, 4)
    ),
    "sdpa mask": call(
        lambda lib, q, k, v, m: lib.nn.functional.scaled_dot_product_attention(q, k, v, m),
        (2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 4), (5, 5),
    ),
    "sdpa broadcast": call(
        lambda lib, q, k, v: lib.nn.functional.scaled_dot_product_attention(q, k, v),
        (2, 5, 4), (3, 2, 5, 4), (3, 2, 5, 4),
    ),
    "masked sum": given(lambda lib, x, m: lib.masked.sum(x, 1, mask=m), (2, 3), lambda lib: lib.ones(2, 3) > 0),
    "masked sum broadcast": given(lambda lib, x, m: lib.masked.sum(x, 1, mask=m), (2, 3), lambda lib: lib.ones(3) > 0),
    "getitem mask": given(lambda lib, x, m: x[m], (2, 3), lambda lib: lib.ones(2, 3, dtype=lib.bool)),
    "getitem mask of rows": given(
        lambda lib, x, m: x[1:, m], (3, 2), lambda lib: lib.tensor([True, False])
    ),
    "index_put mask": given(
        lambda lib, x, m: x.index_put((m,), lib.tensor(1.0)), (2, 3), lambda lib: lib.ones(2) > 0
    ),
    "embedding_bag weights": call(
        lambda lib, w, p: lib.nn.functional.embedding_bag(
            lib.arange(4).reshape(2, 2), w, mode="sum", per_sample_weights=p
        ),
        (5, 3), (2, 2),
    ),
    "embedding_bag steps": given(
        lambda lib, w, i: lib.nn.functional.embedding_bag(i, w),
        (5, 3),
        lambda lib: (lib.arange(8) % 5).reshape(2, 4)[:, ::2],
    ),
    "lstsq": call(lambda lib, a, b: lib.linalg.lstsq(a, b)[:2], (4, 2), (4, 3)),
    "lstsq vector": call(lambda lib, a, b: lib.linalg.lstsq(a, b)[:2], (4, 2), (4,)),
    "native_batch_norm": call(
        lambda lib, x, m, v: lib.native_batch_norm(x, None, None, m.detach(), v.detach(), True, 0.1, 1e-5),
        (4, 3, 2), (3,), (3,),
    ),
    "native_group_norm": call(lambda lib, x: lib.native_group_norm(x, None, None, 2, 4, 3, 2, 1e-5), (2, 4, 3)),
    "lu": call(lambda lib, x: lib.linalg.lu(x @ x + 9 * lib.eye(3)), (3, 3)),
    "lu wide": call(lambda lib, x: lib.linalg.lu(x), (2, 3)),
    "lu tall": call(lambda lib, x: lib.linalg.lu(x), (3, 2)),
    "lu_solve": call(
        lambda lib, a, b: lib.linalg.lu_solve(a, lib.arange(1, 4, dtype=lib.int32), b, adjoint=True), (3, 3), (3, 2)
    ),
    "as_strided": call(lambda lib, x: x.as_strided((2, 2), (1, 2)), (3, 3)),
    "as_strided of steps": call(lambda lib, x: x.as_strided((2, 2), (1, 1)), (3, 3)),
    "fractional_max_pool2d": call(
        lambda lib, x: lib.nn.functional.fractional_max_pool2d(
            x, 2, 2, return_indices=True, _random_samples=lib.ones(1, 2, 2) / 2
        ),
        (1, 2, 5, 5),
    ),
    "adaptive_max_pool2d": call(
        lambda lib, x: lib.nn.functional.adaptive_max_pool2d(x, 3, return_indices=True), (1, 2, 5, 5)
    ),
    "index_put": given(
        lambda lib, x, i: x.index_put((i,), lib.ones(2)), (4,), lambda lib: lib.tensor([0, 2])
    ),
    "det empty": call(lambda lib, x: lib.linalg.det(x), (0, 2, 2)),
    "matrix_power": call(lambda lib, x: lib.linalg.matrix_power(x, 0), (2, 2)),
    "vecdot complex": call(lambda lib, x, y: lib.linalg.vecdot(lib.complex(x, x), lib.complex(y, y)), (2, 3), (2, 3)),
    "matmul batch of one": call(lambda lib, a, b: a @ b, (5, 2, 3), (1, 3, 4)),
    "multihead": module(lambda nn: nn.MultiheadAttention(4, 2), (5, 2, 4), (5, 2, 4), (5, 2, 4)),
    "TransformerEncoderLayer": module(lambda nn: nn.TransformerEncoderLayer(4, 2, 8, 0.0), (5, 2, 4)),
    "chunk of a base": view_of(lambda b: b.chunk(2), lambda v: v[0].exp() + v[1]),
    "split of a base": view_of(lambda b: b.split(2), lambda v: v[0] * v[1]),
    "unbind of a base": view_of(lambda b: b.unbind(), lambda v: v[0] * v[1]),
    "chunk returned": view_of(lambda b: b.chunk(2), lambda v: list(v)),
    "split returned": view_of(lambda b: b.split(2), lambda v: list(v)),
    "unbind returned": view_of(lambda b: b.unbind(), lambda v: list(v)),
    "view of a base": view_of(lambda b: b.view(2, 8), lambda v: v * v),
    "view returned": view_of(lambda b: b.view(2, 8), lambda v: v),
    "select of a base": view_of(lambda b: b[0], lambda v: v * v),
}  # fmt: skip
