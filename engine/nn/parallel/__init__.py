"""DataParallel (one process, several GPUs) and DistributedDataParallel (one process a device)."""

from engine.nn.parallel.data_parallel import DataParallel, data_parallel
from engine.nn.parallel.distributed import DistributedDataParallel

DistributedDataParallelCPU = DistributedDataParallel

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]
