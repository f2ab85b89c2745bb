"""torch.distributed.nn's names: collectives that gradients pass through; each raises without a group of processes."""

from engine.distributed.nn.functional import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    gather,
    reduce,
    reduce_scatter,
    scatter,
)

__all__ = ["all_gather", "all_reduce", "all_to_all", "broadcast", "gather", "reduce", "reduce_scatter", "scatter"]
