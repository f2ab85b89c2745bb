"""The communication that modules across several processes need; `engine.distributed` registers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.autograd import Function
from engine.core.slots import Slot, Slots
from engine.tensor import Tensor

__all__ = ["Sum", "registered"]


def _nobody(*args: Any) -> Any:
    raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")


class Registered(Slots):
    """group(process_group): the group that an argument names (None: all processes), with `rank()` and `size()`; None
    outside it.  sum_(tensor, group, asynchronous): in place, gives a Work if asynchronous.  broadcast_(tensor, group):
    in place, from the group's first process.  size(process_group): 1 before `init_process_group`.
    """

    size: Slot[Callable[[Any], int]] = lambda process_group: 1

    group: Slot[Callable[[Any], Any]] = _nobody
    sum_: Slot[Callable[[Any, Any, bool], Any]] = _nobody
    broadcast_: Slot[Callable[[Any, Any], None]] = _nobody


registered = Registered()


class Sum(Function):
    """The sum over the processes of a group; so is its gradient."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, group: Any) -> Tensor:
        """input: any shape; the sum in a new tensor."""
        ctx.group = group
        total = input.contiguous().clone()
        registered.sum_(total, group, False)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The sum of the gradients that the processes have for it."""
        total = grad.contiguous().clone()
        registered.sum_(total, ctx.group, False)
        return total, None
