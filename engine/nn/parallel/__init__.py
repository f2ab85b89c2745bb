"""DataParallel and DistributedDataParallel on one device: they hold the module and pass calls through."""

from engine.nn.parallel.data_parallel import DataParallel, data_parallel
from engine.nn.parallel.distributed import DistributedDataParallel

DistributedDataParallelCPU = DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
