"""What the modules of an archive need of the compiler above them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from engine.core.slots import Slot, Slots

if TYPE_CHECKING:
    from engine.jit.archive.objects import ScriptModule

__all__ = ["registered"]


class Registered(Slots):
    """Filled by `engine.jit`, which every module below it is imported after."""

    save: Slot[Callable[[Any, Any, Any], None]]  # torch.jit.save
    finish: Slot[Callable[[ScriptModule], None]]  # compile what the class of a module declares
    define: Slot[Callable[[ScriptModule, str], None]]  # add the methods of a source text


registered = Registered()
