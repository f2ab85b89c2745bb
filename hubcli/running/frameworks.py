"""Which framework `torch` names in this process: the engine, or torch itself."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from hubcli.base import settings
from hubcli.errors import DependencyError, HubError, UsageError
from hubcli.reading import dependencies


def loaded_framework() -> str | None:
    """Return what `torch` means in this process already: `torch`, `engine`, or None."""
    module = sys.modules.get("torch")
    if module is None:
        return None
    return "engine" if module is sys.modules.get("engine") else "torch"


def choose_framework(wanted: str = "auto") -> str:
    """`engine` or `torch`: what is wanted, where this process can still have it.

    `auto` is torch if the process has imported it already, else the engine.
    """
    loaded = loaded_framework()
    if wanted == "auto":
        return loaded or "engine"
    if wanted not in settings.FRAMEWORKS:
        raise UsageError(f"unknown framework {wanted!r}", hint=f"one of auto, {', '.join(settings.FRAMEWORKS)}")
    if loaded not in (None, wanted):
        raise HubError(
            f"this process has loaded {loaded} as `torch`; it cannot run code on {wanted} too",
            hint=f"use framework={loaded!r}, or start another process",
        )
    if wanted == "torch" and loaded is None and not dependencies.torch_installed():
        raise DependencyError(
            "framework 'torch' was asked for, but torch is not installed",
            hint="run: python -m pip install torch, or use the engine (--framework engine)",
        )
    return wanted


def import_framework(framework: str) -> Any:
    """Return the module that `torch` names in this process: the engine, or torch itself."""
    if choose_framework(framework) == "engine":
        from engine.torch_alias import install

        install()
    return importlib.import_module("torch")
