"""torch.onnx.utils: where older code finds `export`."""

from engine.onnx.exporting import export

__all__ = ["export"]
