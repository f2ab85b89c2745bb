"""DataParallel (one process, several GPUs) and DistributedDataParallel (one process a device)."""

from engine.core.packages import functions_first as _functions_first
from engine.nn.parallel.data_parallel import DataParallel, data_parallel
from engine.nn.parallel.distributed import DistributedDataParallel
from engine.nn.parallel.parallel_apply import parallel_apply
from engine.nn.parallel.replicate import replicate
from engine.nn.parallel.scatter_gather import gather, scatter

DistributedDataParallelCPU = DistributedDataParallel

_functions_first(__name__)

__all__ = [
    "DataParallel",
    "DistributedDataParallel",
    "data_parallel",
    "gather",
    "parallel_apply",
    "replicate",
    "scatter",
]
