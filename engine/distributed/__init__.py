"""torch.distributed: processes that work together, on one machine by shared memory, on several by MPI.

https://docs.pytorch.org/docs/2.13/distributed.html
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from engine.distributed.collectives import (
    P2POp,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    irecv,
    isend,
    monitored_barrier,
    recv,
    recv_object_list,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    scatter_object_list,
    send,
    send_object_list,
)
from engine.distributed.file_store import FileStore
from engine.distributed.groups import (
    Backend,
    GroupMember,
    ProcessGroup,
    Work,
    default_pg_timeout,
    destroy_process_group,
    get_backend,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    group,
    init_process_group,
    is_available,
    is_backend_available,
    is_gloo_available,
    is_initialized,
    is_mpi_available,
    is_nccl_available,
    member,
    new_group,
)
from engine.distributed.reducing import ReduceOp, reduce_op
from engine.distributed.rendezvous import register_rendezvous_handler, rendezvous
from engine.distributed.store import (
    DistBackendError,
    DistError,
    DistNetworkError,
    DistStoreError,
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)
from engine.nn import _communication
from engine.torch_names import refused

__all__ = [
    "Backend", "DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "FileStore", "GroupMember",
    "HashStore", "P2POp", "PrefixStore", "ProcessGroup", "ReduceOp", "Store", "TCPStore", "Work", "all_gather",
    "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all", "all_to_all_single", "barrier",
    "batch_isend_irecv", "broadcast", "broadcast_object_list", "default_pg_timeout", "destroy_process_group", "gather",
    "gather_object", "get_backend", "get_default_backend_for_device", "get_global_rank", "get_group_rank",
    "get_process_group_ranks", "get_rank", "get_world_size",
    "group", "init_process_group", "irecv", "is_available", "is_backend_available",
    "is_gloo_available", "is_initialized", "is_mpi_available", "is_nccl_available", "is_torchelastic_launched",
    "is_ucc_available", "is_xccl_available", "isend", "monitored_barrier", "new_group", "recv", "recv_object_list",
    "reduce", "reduce_op", "reduce_scatter", "reduce_scatter_tensor", "register_rendezvous_handler", "rendezvous",
    "scatter", "scatter_object_list", "send", "send_object_list",
]  # fmt: skip

# names without a body here; each raises NotImplementedError
_MORE = """
BackendConfig ProcessGroupGloo all_gather_coalesced all_gather_multigpu all_reduce_coalesced all_reduce_multigpu
get_backend_config new_subgroups new_subgroups_by_enumeration split_group
"""
globals().update(refused.names("distributed", _MORE, "it is not written yet"))


def _sum(tensor: Any, group: ProcessGroup, asynchronous: bool) -> Any:
    return all_reduce(tensor, ReduceOp.SUM, group, asynchronous)


def _size(group: Any) -> int:
    return get_world_size(group) if is_initialized() else 1


def _broadcast(tensor: Any, group: ProcessGroup) -> None:
    broadcast(tensor, group=group, group_src=0)


def is_torchelastic_launched() -> bool:
    """Return whether `python -m engine.distributed.run` (torchrun) started this process."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_ucc_available() -> bool:
    """False."""
    return False


is_xccl_available = is_ucc_available

_communication.registered.size = _size
_communication.registered.group = member
_communication.registered.sum_ = _sum
_communication.registered.broadcast_ = _broadcast


if TYPE_CHECKING:
    from engine.distributed import device_mesh as device_mesh
    from engine.distributed import fsdp as fsdp
    from engine.distributed import nn as nn
    from engine.distributed import rpc as rpc
    from engine.distributed import tensor as tensor
    from engine.distributed.device_mesh import DeviceMesh as DeviceMesh
    from engine.distributed.device_mesh import init_device_mesh as init_device_mesh
else:

    def __getattr__(name: str) -> Any:
        """The sub-modules, imported at first use."""
        if name in ("device_mesh", "fsdp", "nn", "rpc", "tensor"):
            return importlib.import_module(f"engine.distributed.{name}")
        if name in ("DeviceMesh", "init_device_mesh"):
            return getattr(importlib.import_module("engine.distributed.device_mesh"), name)
        raise AttributeError(f"module 'engine.distributed' has no attribute '{name}'")
