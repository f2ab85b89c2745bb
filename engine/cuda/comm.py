"""torch.cuda.comm's names: several GPUs in one process are not supported."""

from __future__ import annotations

from typing import Any

__all__ = ["broadcast", "broadcast_coalesced", "gather", "reduce_add", "reduce_add_coalesced", "scatter"]


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(
            f"torch.cuda.comm.{name} is not supported: the engine uses one GPU a process; use torch.distributed"
        )

    function.__name__, function.__doc__ = name, "NotImplementedError."
    return function


broadcast, broadcast_coalesced, gather = _refuse("broadcast"), _refuse("broadcast_coalesced"), _refuse("gather")
reduce_add, reduce_add_coalesced = _refuse("reduce_add"), _refuse("reduce_add_coalesced")
scatter = _refuse("scatter")
