"""Modules that exist so that `import torch.X` works, and do nothing of their own.

`engine.X` and `torch.X` are the module `engine.torch_names.X`: see `home`.
"""

__all__ = ["MODULES", "home"]

MODULES = frozenset(
    [
        "_C", "_dynamo", "_higher_order_ops", "_jit_internal", "_prims_common", "_six", "_subclasses",
        "_tensor", "accelerator", "ao", "cpu", "functional", "futures", "mps", "mtia",
        "overrides", "quantization", "torch_version", "types", "xpu",
    ]
)  # fmt: skip


def home(name: str) -> str:
    """The dotted name of the engine's module for one of torch: torch.ao.nn -> engine.torch_names.ao.nn."""
    inner = name.partition(".")[2]
    root = "engine.torch_names" if inner.partition(".")[0] in MODULES else "engine"
    return f"{root}.{inner}" if inner else root
