"""torch.ao.nn.intrinsic: modules that quantization treats as one, as containers of their parts.

https://docs.pytorch.org/docs/2.13/generated/torch.ao.nn.intrinsic.ConvReLU2d.html
"""

from __future__ import annotations

from typing import Any

from engine.nn.modules.container import Sequential

__all__ = [
    "BNReLU2d",
    "BNReLU3d",
    "ConvBn1d",
    "ConvBn2d",
    "ConvBn3d",
    "ConvBnReLU1d",
    "ConvBnReLU2d",
    "ConvBnReLU3d",
    "ConvReLU1d",
    "ConvReLU2d",
    "ConvReLU3d",
    "LinearBn1d",
    "LinearReLU",
]


class _FusedModule(Sequential):
    """Modules that run one after the other and are quantized as one."""


def _fused(name: str, *parts: str) -> Any:
    def __init__(self: Any, *modules: Any) -> None:
        given = [type(module).__name__ for module in modules]
        if len(given) != len(parts) or any(part not in kind.lower() for part, kind in zip(parts, given)):
            raise TypeError(f"Incorrect types for input modules of {name}: {', '.join(given) or 'none'}")
        super(made, self).__init__(*modules)

    made = type(
        name, (_FusedModule,), {"__init__": __init__, "__module__": __name__, "__doc__": f"{' and '.join(parts)}."}
    )
    return made


ConvReLU1d, ConvReLU2d, ConvReLU3d = (_fused(f"ConvReLU{n}d", f"conv{n}d", "relu") for n in (1, 2, 3))
ConvBn1d, ConvBn2d, ConvBn3d = (_fused(f"ConvBn{n}d", f"conv{n}d", f"batchnorm{n}d") for n in (1, 2, 3))
ConvBnReLU1d, ConvBnReLU2d, ConvBnReLU3d = (
    _fused(f"ConvBnReLU{n}d", f"conv{n}d", f"batchnorm{n}d", "relu") for n in (1, 2, 3)
)
BNReLU2d, BNReLU3d = (_fused(f"BNReLU{n}d", f"batchnorm{n}d", "relu") for n in (2, 3))
LinearReLU, LinearBn1d = _fused("LinearReLU", "linear", "relu"), _fused("LinearBn1d", "linear", "batchnorm1d")
