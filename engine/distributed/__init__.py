"""torch.distributed's names: one process.  Questions are answered for it; what needs a group raises.

`is_available()` is False, so code that asks takes its single-process path.
"""

from __future__ import annotations

import datetime
import importlib
from enum import Enum
from typing import TYPE_CHECKING, Any

from engine.torch_names import refused

__all__ = [
    "Backend", "GroupMember", "ProcessGroup", "ReduceOp", "all_gather", "all_gather_object", "all_reduce", "all_to_all",
    "barrier", "broadcast", "broadcast_object_list", "destroy_process_group", "gather", "get_backend", "get_rank",
    "get_world_size", "group", "init_process_group", "irecv", "is_available", "is_gloo_available", "is_initialized",
    "is_mpi_available", "is_nccl_available", "is_torchelastic_launched", "isend", "new_group", "recv", "reduce",
    "reduce_op", "reduce_scatter", "scatter", "send",
]  # fmt: skip


class ReduceOp(Enum):
    """How values are combined."""

    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


class reduce_op:
    """The old name of `ReduceOp`."""

    SUM, PRODUCT, MIN, MAX = ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX


class ProcessGroup:
    """A set of processes; none can be made."""


class Backend(str):
    """The name of a way to communicate."""

    UNDEFINED, GLOO, NCCL, MPI, UCC = "undefined", "gloo", "nccl", "mpi", "ucc"


class group:
    """`group.WORLD`: all processes, that is this one."""

    WORLD = None


class GroupMember:
    """`GroupMember.WORLD`."""

    WORLD = None
    NON_GROUP_MEMBER = -100


def is_available() -> bool:
    """False: processes do not communicate yet."""
    return False


is_gloo_available = is_nccl_available = is_mpi_available = is_ucc_available = is_available


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def get_rank(group: Any = None) -> int:
    """0: this is the one process."""
    return 0


def get_world_size(group: Any = None) -> int:
    """1."""
    return 1


def destroy_process_group(group: Any = None) -> None:
    """Nothing: there is none."""


def _refuse(name: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.distributed.{name} is not supported: the engine runs in one process")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "NotImplementedError."
    return function


init_process_group, new_group, get_backend = map(_refuse, ["init_process_group", "new_group", "get_backend"])
all_reduce, reduce, broadcast, barrier = map(_refuse, ["all_reduce", "reduce", "broadcast", "barrier"])
all_gather, gather, scatter, all_to_all = map(_refuse, ["all_gather", "gather", "scatter", "all_to_all"])
reduce_scatter, send, recv = map(_refuse, ["reduce_scatter", "send", "recv"])
isend, irecv = map(_refuse, ["isend", "irecv"])
all_gather_object, broadcast_object_list = map(_refuse, ["all_gather_object", "broadcast_object_list"])
all_gather_into_tensor, reduce_scatter_tensor = map(_refuse, ["all_gather_into_tensor", "reduce_scatter_tensor"])
all_reduce_multigpu, all_gather_multigpu = map(_refuse, ["all_reduce_multigpu", "all_gather_multigpu"])

# names of torch 2 without a body here; each raises NotImplementedError
_MORE = """
BackendConfig DistBackendError DistError DistNetworkError DistStoreError FileStore HashStore P2POp PrefixStore
ProcessGroupGloo Store TCPStore Work
all_gather_coalesced all_reduce_coalesced all_to_all_single batch_isend_irecv gather_object get_backend_config
get_global_rank get_group_rank get_process_group_ranks monitored_barrier new_subgroups new_subgroups_by_enumeration
recv_object_list register_rendezvous_handler rendezvous scatter_object_list send_object_list split_group
"""
globals().update(refused.names("distributed", _MORE, "the engine runs in one process"))
ReduceOp.RedOpType = ReduceOp  # type: ignore[attr-defined]
Backend.default_device_backend_map = {"cpu": "gloo", "cuda": "nccl"}  # type: ignore[attr-defined]
default_pg_timeout = datetime.timedelta(minutes=30)


def is_backend_available(backend: str) -> bool:
    """False."""
    return False


is_xccl_available = is_available


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
