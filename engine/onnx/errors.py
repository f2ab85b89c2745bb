"""The errors of engine.onnx, under torch's names."""

from __future__ import annotations

from engine.onnx.wire import FormatError

__all__ = ["FormatError", "OnnxExporterError", "UnsupportedOperatorError"]


class OnnxExporterError(RuntimeError):
    """A program cannot be written as ONNX; the message says what of it."""


class UnsupportedOperatorError(OnnxExporterError):
    """An operator has no ONNX form here; the message names it."""
