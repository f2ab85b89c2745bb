"""ONNX files: `export` writes a module as one, `load` reads one back as a module."""
from engine.onnx.exporting import export
