"""torch.quantization: the old name of torch.ao.quantization."""

from engine.torch_names.ao.quantization import (
    DeQuantStub,
    QuantStub,
    QuantWrapper,
    convert,
    fuse_modules,
    get_default_qat_qconfig,
    get_default_qconfig,
    prepare,
    prepare_qat,
    quantize,
    quantize_dynamic,
)

__all__ = [
    "DeQuantStub", "QuantStub", "QuantWrapper", "convert", "fuse_modules", "get_default_qat_qconfig",
    "get_default_qconfig", "prepare", "prepare_qat", "quantize", "quantize_dynamic",
]  # fmt: skip
