"""Copies of transposed matrices by generated code: the same bits as numpy's, and what is left to numpy."""

from __future__ import annotations

import numpy as np
import pytest

from engine.backends.cpu import relayout
from engine.kernels import processor
from engine.ops.generated import route, transposes

pytestmark = [
    pytest.mark.skipif(not processor.available(), reason=f"generated code is {processor.describe()}"),
    pytest.mark.usefixtures("launched"),
]


@pytest.mark.parametrize("widest", [4, 8, 16])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 37, 20), (2, 100, 17), (1, 5, 4), (4, 9, 300)])
def test_transposed(shape: tuple[int, ...], dtype: str, widest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transposes, "lanes", lambda: widest)
    monkeypatch.setattr(route, "SHARE", 0)
    bits = np.random.default_rng(0).integers(0, 256, (shape[0], shape[1], shape[2], 4), np.uint8).view(dtype)[..., 0]
    four = np.random.default_rng(1).integers(0, 256, (3, 9, shape[1], shape[2], 4), np.uint8).view(dtype)[..., 0]
    views = (
        four.transpose(0, 3, 2, 1),
        four.transpose(3, 0, 1, 2),
        four[::2].transpose(1, 3, 0, 2),
        four.transpose(2, 3, 0, 1),
    )
    for source in (bits.swapaxes(1, 2), bits[:, 1:].swapaxes(1, 2)[:, : shape[2]], bits[0].T, *views):
        target = np.zeros(source.shape, dtype)
        if source.ndim < 4 and min(source.shape[-2:]) < 4:
            assert not transposes.transposed(target, source)
            continue
        assert transposes.transposed(target, source)
        assert target.tobytes() == source.copy("C").tobytes()


def test_what_is_left_to_numpy() -> None:
    for source in (
        np.zeros((40, 30)).T,
        np.zeros((40, 30), "float32"),
        np.zeros((40, 3), "float32").T,
        np.zeros((3, 40), "float32").T,
        np.zeros((4, 40, 5, 6, 30), "float32")[:, :, :3, ::2].transpose(0, 2, 4, 3, 1),
        np.zeros((40, 60), "float32")[:, ::2].T,
    ):
        assert not transposes.transposed(np.empty(source.shape, source.dtype), source)


def test_images_take_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """To channels-last and back, where there is no program of oneDNN's."""
    taken = []
    monkeypatch.setattr(relayout, "_by_program", lambda *arrays: False)
    monkeypatch.setattr(
        relayout.providers, "transposed", lambda *given: taken.append(1) or transposes.transposed(*given)
    )
    x = np.random.default_rng(0).standard_normal((2, 24, 30, 31)).astype("float32")
    made = relayout.to_channels_last(x)
    np.testing.assert_array_equal(np.asarray(made), x)
    np.testing.assert_array_equal(relayout.plainly(made.view(np.ndarray)), x)
    assert taken == [1, 1]
