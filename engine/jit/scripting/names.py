"""Names: of variables as the text has them, of functions and classes as an archive has them."""

from __future__ import annotations

from typing import Any

from engine.jit.scripting import library

__all__ = ["qualified", "spelt"]

_RESERVED = frozenset(
    """torch ops inf nan infj nanj annotate unchecked_cast uninitialized CONSTANTS range getattr isinstance fork int
    float bool str print tuple list complex unwrap_optional""".split()
)


def spelt(name: str) -> str:
    """A variable's name as the text has it."""
    if name in _RESERVED or name.startswith("__torch__"):
        return name + "_"
    return name if name.isascii() else "u_" + name.encode("unicode_escape").decode().replace("\\", "_")


def qualified(obj: Any) -> str:
    """The name of a class or function in an archive."""
    module = getattr(obj, "__module__", None) or "__main__"
    name = getattr(obj, "__qualname__", obj.__class__.__name__).replace("<locals>.", "").replace("<lambda>", "_lambda")
    name = name.rpartition(".")[2]
    if module == "engine" or module.startswith("engine."):
        module = "torch" + module[6:]
        if module.startswith("torch" + library.__name__[6:]):
            module = "torch.nn.functional"
    if module == "__main__":
        return f"__torch__.{name}"
    parts = [p if p.isidentifier() and p.isascii() else "m" for p in module.split(".")]
    return f"__torch__.{'.'.join(parts)}.{name}"
