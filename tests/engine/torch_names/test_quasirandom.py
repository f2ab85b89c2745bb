"""Sobol sequences: the points of torch 2.13 bit by bit, and what scrambling keeps."""

from __future__ import annotations

import numpy as np
import pytest

import engine as torch
from engine.torch_names.quasirandom import SobolEngine

SUM, WEIGHTED = 17932991659939, 298008561092397286  # of torch's directions of 1111 dims


def test_points_are_torchs_in_any_pieces():
    expected = [
        [0.0, 0.0, 0.0],
        [0.5, 0.5, 0.5],
        [0.75, 0.25, 0.25],
        [0.25, 0.75, 0.75],
        [0.375, 0.375, 0.625],
        [0.875, 0.875, 0.125],
    ]
    assert SobolEngine(3).draw(6).tolist() == expected
    pieces = SobolEngine(3)
    assert torch.cat([pieces.draw(n) for n in (1, 2, 0, 3)]).tolist() == expected
    assert pieces.num_generated == 6
    assert pieces.reset().draw(2).tolist() == expected[:2]


def test_fast_forward_is_drawing():
    # of torch: SobolEngine(3), 4 points, fast_forward(5); SobolEngine(1), one point, fast_forward(1000)
    engine = SobolEngine(3)
    engine.draw(4)
    assert engine.fast_forward(5).draw(2).tolist() == [[0.6875, 0.8125, 0.4375], [0.9375, 0.0625, 0.6875]]
    assert SobolEngine(1).fast_forward(1000).draw(2, dtype=torch.float64).tolist() == [[0.2197265625], [0.7197265625]]
    for skipped in (0, 1, 7):
        drawn = SobolEngine(5)
        if skipped:
            drawn.draw(skipped)
        assert torch.equal(SobolEngine(5).fast_forward(skipped).draw(9), drawn.draw(9))


def test_all_directions_that_are_carried_are_torchs():
    state = SobolEngine(1111).sobolstate._array
    assert int(state.sum()) == SUM
    weights = np.arange(1, state.size + 1, dtype=np.int64).reshape(state.shape) % 65521
    assert int((state * weights).sum()) == WEIGHTED
    assert (np.diff(np.sort(state, 1)[:, ::-1], axis=1) != 0).all()


def test_more_dimensions_come_from_scipy():
    pytest.importorskip("scipy")
    engine = SobolEngine(21201)
    engine.draw(1)
    points = (engine.draw(5, dtype=torch.float64) * 2**30).to(torch.int64)
    assert int(points.sum()) == 56884962787328  # torch's
    assert points[4, ::2000].tolist() == [
        939524096,
        939524096,
        671088640,
        402653184,
        402653184,
        134217728,
        402653184,
        402653184,
        134217728,
        134217728,
        402653184,
    ]


def test_without_scipy_the_error_names_it(monkeypatch):
    import importlib.resources

    def missing(name):
        raise ModuleNotFoundError(f"No module named '{name}'")

    monkeypatch.setattr(importlib.resources, "files", missing)
    with pytest.raises(NotImplementedError, match=r"1112 dimensions .* install scipy"):
        SobolEngine(1112)


@pytest.mark.parametrize("scramble", [False, True])
def test_every_box_of_a_power_of_two_has_one_point(scramble):
    points = SobolEngine(4, scramble=scramble, seed=3).draw(256, dtype=torch.float64)._array
    for column in points.T:  # each coordinate alone: one point in each of 256 intervals
        assert sorted(np.floor(column * 256).astype(int)) == list(range(256))
    cells = np.floor(points[:, :2] * 16).astype(int)  # the first two are a (0, 8, 2)-net
    assert len({tuple(c) for c in cells}) == 256


def test_scrambling_follows_the_seed():
    first = SobolEngine(3, scramble=True, seed=7)
    a = first.draw(5)
    assert torch.equal(a, SobolEngine(3, True, 7).draw(5)) and torch.equal(a, first.reset().draw(5))
    assert not torch.equal(a, SobolEngine(3, scramble=True, seed=8).draw(5))
    torch.manual_seed(1)
    b = SobolEngine(3, scramble=True).draw(5)
    torch.manual_seed(1)
    assert torch.equal(b, SobolEngine(3, scramble=True).draw(5))
    assert repr(first) == "SobolEngine(dimension=3, scramble=True, seed=7)"
    assert repr(SobolEngine(2)) == "SobolEngine(dimension=2)"


def test_dtypes_out_and_powers_of_two():
    assert SobolEngine(2).draw_base2(2).shape == (4, 2)
    out = torch.empty(0)
    assert SobolEngine(2).draw(2, out=out) is out and out.tolist() == [[0, 0], [0.5, 0.5]]
    assert SobolEngine(2).draw(1, dtype=torch.float16).dtype is torch.float16
    engine = SobolEngine(2)
    engine.draw(1)
    with pytest.raises(NotImplementedError, match="\"_sobol_engine_draw\" not implemented for 'Half'"):
        engine.draw(1, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"1 points have been previously generated, then: n=1\+2\*\*2=5\. If you"):
        engine.draw_base2(2)
    assert engine.draw_base2(0).tolist() == [[0.5, 0.5]]
    with pytest.raises(RuntimeError, match=r"Trying to create tensor with negative dimension -1: \[-1, 2\]"):
        SobolEngine(2).draw(0)
    for d in (0, 21202):
        with pytest.raises(ValueError, match=r"Supported range of dimensionality for SobolEngine is \[1, 21201\]"):
            SobolEngine(d)
    with pytest.raises(RuntimeError, match="has 1073741824 points and no more"):
        engine.fast_forward(2**30).draw(1)
