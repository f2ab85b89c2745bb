"""torch.distributed.nn.functional: collective calls that gradients go through.

https://docs.pytorch.org/docs/2.13/distributed.html#torch.distributed.nn.functional
"""

from __future__ import annotations

from typing import Any

from engine import distributed
from engine.autograd import Function
from engine.distributed.reducing import ReduceOp
from engine.nn._communication import Sum
from engine.ops import functions as torch
from engine.tensor import Tensor
from engine.torch_names import refused

__all__ = ["all_gather", "all_reduce"]

globals().update(
    refused.names(
        "distributed.nn", "all_to_all broadcast gather reduce reduce_scatter scatter", "it is not written yet"
    )
)


class _AllGather(Function):
    """The tensors of all processes in a new first dimension; the gradient of each goes back to its process."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, group: Any) -> Tensor:
        """input: any shape; (processes, *shape)."""
        ctx.group = group
        output = torch.empty(distributed.get_world_size(group), *input.shape, dtype=input.dtype, device=input.device)
        distributed.all_gather_into_tensor(output, input.contiguous(), group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        """The sum of what all processes have for this one's tensor."""
        own = torch.empty(grad.shape[1:], dtype=grad.dtype)
        distributed.reduce_scatter_tensor(own, grad.contiguous(), ReduceOp.SUM, ctx.group)
        return own, None


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The sum over all processes, in a new tensor.  NotImplementedError for another `op`."""
    if op is not ReduceOp.SUM:
        raise NotImplementedError(f"torch.distributed.nn.all_reduce is not supported for {op}: it has no gradient here")
    return Sum.apply(tensor, group)  # type: ignore[no-any-return]


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """The tensors of all processes."""
    return tuple(_AllGather.apply(tensor, group).unbind(0))
