"""torch._subclasses' names: no tensor is without values, so nothing is a FakeTensor."""

from engine.torch_names._subclasses.fake_tensor import FakeTensor

__all__ = ["FakeTensor"]
