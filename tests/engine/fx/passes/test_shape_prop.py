"""ShapeProp."""

from __future__ import annotations

import pytest

import engine
from engine import fx, nn
from engine.fx.passes.shape_prop import ShapeProp


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 3)

    def forward(self, x, n=2):
        a, b = self.lin(x).chunk(2, dim=1)
        return a + n, b


def test_what_is_noted() -> None:
    module = fx.symbolic_trace(Net())
    ShapeProp(module).propagate(engine.ones(1, 2))
    found = {n.name: n.meta for n in module.graph.nodes}
    assert found["lin"]["tensor_meta"]._asdict() == {
        "shape": (1, 3),
        "dtype": engine.float32,
        "requires_grad": True,
        "stride": (3, 1),
        "memory_format": engine.contiguous_format,
        "is_quantized": False,
        "qparams": {},
    }
    assert "tensor_meta" not in found["n"] and found["n"]["type"] is int
    assert [m.shape for m in found["chunk"]["tensor_meta"]] == [(1, 2), (1, 1)]
    text = module.print_readable(print_output=False)
    assert 'def forward(self, x: "f32[1, 2]", n = 2):' in text and 'lin: "f32[1, 3]" = self.lin(x);  x = None' in text


def test_channels_last() -> None:
    module = fx.symbolic_trace(lambda x: x * 2)
    ShapeProp(module).propagate(engine.ones(1, 2, 3, 3).contiguous(memory_format=engine.channels_last))
    assert next(iter(module.graph.nodes)).meta["tensor_meta"].memory_format is engine.channels_last


def test_error_names_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match=r"ShapeProp error for: node=%lin : .* with meta=\{"):
        ShapeProp(fx.symbolic_trace(Net())).propagate(engine.ones(1, 5))
    assert "cannot be multiplied" in capsys.readouterr().err
    with pytest.raises(NotImplementedError, match="fake tensors"):
        ShapeProp(fx.symbolic_trace(Net()), fake_mode=object())
