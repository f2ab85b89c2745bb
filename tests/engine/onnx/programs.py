"""What the ONNX tests export: every sample of the op registry that has an ONNX form, and small modules."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import engine
from engine import nn
from engine.nn import functional as F
from engine.onnx import export
from engine.onnx.builders import BUILDERS
from engine.tensor import Tensor, wrap
from tests.engine.samples import Case, cases, mapped, tensors_of


def sampled() -> list[Case]:
    """Samples with tensors, none of them complex, that the operator takes in float32."""
    found = []
    for case in cases():
        if case.name in BUILDERS and case.deterministic:
            args, kwargs = single(case)
            given = tensors_of((args, kwargs))
            if given and not any(t.is_complex() for t in given):
                found.append(case)
    return found


def single(case: Case) -> tuple[tuple, dict[str, Any]]:
    """The arguments of a sample in float32."""

    def change(t: Tensor) -> Tensor:
        array = np.array(t.detach().numpy())
        return wrap(array.astype(np.float32) if array.dtype == np.float64 else array)

    args, kwargs = case.arguments()
    return mapped(tuple(args), change), mapped(kwargs, change)


@dataclass
class Program:
    """An exported program, its inputs, and what the engine gives for them."""

    data: bytes
    names: list[str]
    inputs: list[Tensor]
    expected: list[np.ndarray]


def program(function: Any, args: tuple, kwargs: dict[str, Any] | None = None, **options: Any) -> Program:
    """Export a call."""
    inputs = list({id(t): t for t in tensors_of((args, kwargs or {}))}.values())
    file = io.BytesIO()
    with engine.no_grad():
        expected = [np.array(t.numpy()) for t in tensors_of(function(*args, **(kwargs or {})))]
    made = export(function, args, file, kwargs=kwargs, **options)
    return Program(file.getvalue(), made.input_names, inputs, expected)


def differences(found: Any, expected: list[np.ndarray], tolerance: float = 1e-4) -> Iterator[str]:
    """What differs between two lists of arrays."""
    for i, (got, want) in enumerate(zip(found, expected, strict=True)):
        if got.shape != want.shape or got.dtype != want.dtype:
            yield f"{i}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
        elif want.dtype.kind == "f" and want.size:
            with np.errstate(all="ignore"):
                same = (got == want) | (np.isnan(got) & np.isnan(want))
                apart = np.where(same, 0, np.abs(got - want)).max()
            if not apart <= tolerance * max(1, np.abs(want[np.isfinite(want)]).max(initial=0)):
                yield f"{i}: differs by {apart}"
        elif want.dtype.kind != "f" and not (got == want).all():
            yield f"{i}: {got} not {want}"


class Net(nn.Module):
    """Convolutions, a transformer's layer, an LSTM and a GRU, writes in place and sizes of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, ceil_mode=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 4),
            nn.LayerNorm(4),
            nn.GELU(),
            nn.Softmax(-1),
            nn.Dropout(),
        )
        self.encoder = nn.TransformerEncoderLayer(8, 2, dim_feedforward=16, batch_first=True)
        self.lstm = nn.LSTM(8, 4, 2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(8, 3, batch_first=True)
        self.group = nn.GroupNorm(1, 3)
        self.shuffle = nn.Sequential(nn.Conv2d(3, 4, 1), nn.PixelShuffle(2), nn.PReLU(), nn.ConvTranspose2d(1, 2, 2))

    def forward(self, x: Tensor, y: Tensor) -> Any:
        a = self.front(x)
        written = engine.zeros(x.size(0), 3)
        written[:, 1] = a[:, 1]
        copied = y.clone()
        copied[:, 1:3].mul_(2)
        copied.view(-1)[0] = 7.0
        copied.transpose(0, 1)[0] += 1
        first, second = copied.chunk(2, -1)
        second.add_(first)
        out, (hidden, _) = self.lstm(y)
        places = engine.arange(y.size(1)) + engine.zeros(y.shape[1], dtype=engine.long)
        return {
            "a": a,
            "encoded": self.encoder(y),
            "written": written,
            "copied": copied,
            "product": y @ y.transpose(1, 2),
            "einsum": engine.einsum("bij,bkj->bik", y, y),
            "larger": F.interpolate(x, scale_factor=2, mode="nearest") + 1,
            "cut": x[:, None, ..., ::2, 1:-1],
            "lstm": out,
            "hidden": hidden,
            "gru": self.gru(y)[0],
            "places": places,
            "flat": y.view(y.size(0) * y.shape[1], -1),
            "padded": F.pad(x, (1, 1, 2, 2), mode="reflect"),
            "masked": y.masked_fill(y > 0, 0.5).clamp(0, 1),
            "largest": y.max(1).values,
            "normed": self.group(x),
            "shuffled": self.shuffle(x),
        }


def net() -> tuple[Net, tuple[Tensor, Tensor]]:
    """The module in eval mode, and inputs."""
    engine.manual_seed(0)
    return Net().eval(), (engine.randn(2, 3, 8, 8), engine.randn(2, 5, 8))


AXES = {"x": {0: "batch"}, "y": {0: "batch", 1: "time"}}


def other_sizes() -> tuple[Tensor, Tensor]:
    """Inputs of other sizes, where `AXES` lets them vary."""
    engine.manual_seed(1)
    return engine.randn(5, 3, 8, 8), engine.randn(5, 7, 8)
