"""torch.distributed.nn: collective calls that gradients go through."""

from engine.distributed.nn.functional import all_gather, all_reduce
from engine.torch_names import refused

globals().update(
    refused.names(
        "distributed.nn", "all_to_all broadcast gather reduce reduce_scatter scatter", "it is not written yet"
    )
)

__all__ = ["all_gather", "all_reduce"]
