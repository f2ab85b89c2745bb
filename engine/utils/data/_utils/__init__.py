"""The parts of a DataLoader: collating, fetching, worker processes, pinned memory."""

from engine.utils.data._utils import collate, fetch, pin_memory, segments, worker
from engine.utils.torch_utils import ExceptionWrapper

MP_STATUS_CHECK_INTERVAL = 5.0  # seconds between two looks at whether the other process lives

__all__ = ["MP_STATUS_CHECK_INTERVAL", "ExceptionWrapper", "collate", "fetch", "pin_memory", "segments", "worker"]
