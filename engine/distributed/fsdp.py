"""torch.distributed.fsdp's names: no model is spread over processes, so nothing is an instance."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from engine.nn.modules.module import Module
from engine.torch_names import refused

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
]


class ShardingStrategy(Enum):
    """The choice of what is sharded: parameters, gradients, optimizer states."""

    FULL_SHARD = auto()
    SHARD_GRAD_OP = auto()
    NO_SHARD = auto()
    HYBRID_SHARD = auto()
    _HYBRID_SHARD_ZERO2 = auto()


class BackwardPrefetch(Enum):
    """When the next parameters are fetched."""

    BACKWARD_PRE = auto()
    BACKWARD_POST = auto()


class StateDictType(Enum):
    """In what form a state_dict is."""

    FULL_STATE_DICT = auto()
    LOCAL_STATE_DICT = auto()
    SHARDED_STATE_DICT = auto()


class OptimStateKeyType(Enum):
    """The kind of a parameter's key in an optimizer's state: its name or its number."""

    PARAM_NAME = auto()
    PARAM_ID = auto()


def _refuse() -> Any:
    raise NotImplementedError("torch.distributed.fsdp is not supported: use DistributedDataParallel")


def fully_shard(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse()


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Nothing: torch has it do nothing for a module that is not spread, too."""


class FullyShardedDataParallel(Module):
    """NotImplementedError when it is made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse()

    @staticmethod
    def fsdp_modules(module: Any, root_only: bool = False) -> list:
        """Empty: no module is one."""
        return []

    @staticmethod
    def state_dict_type(*args: Any, **kwargs: Any) -> Any:
        """NotImplementedError."""
        _refuse()

    set_state_dict_type = get_state_dict_type = summon_full_params = state_dict_type
    optim_state_dict = optim_state_dict_to_load = rekey_optim_state_dict = state_dict_type
    full_optim_state_dict = sharded_optim_state_dict = state_dict_type


# fmt: off
(
    CPUOffload, CPUOffloadPolicy, FSDPModule, FullOptimStateDictConfig, FullStateDictConfig, LocalOptimStateDictConfig,
    LocalStateDictConfig, MixedPrecision, MixedPrecisionPolicy, OffloadPolicy, OptimStateDictConfig,
    ShardedOptimStateDictConfig, ShardedStateDictConfig, StateDictConfig, StateDictSettings, UnshardHandle,
) = (
    refused.kind("distributed.fsdp", name, "use DistributedDataParallel") for name in (
        "CPUOffload", "CPUOffloadPolicy", "FSDPModule", "FullOptimStateDictConfig", "FullStateDictConfig",
        "LocalOptimStateDictConfig", "LocalStateDictConfig", "MixedPrecision", "MixedPrecisionPolicy", "OffloadPolicy",
        "OptimStateDictConfig", "ShardedOptimStateDictConfig", "ShardedStateDictConfig", "StateDictConfig",
        "StateDictSettings", "UnshardHandle",
    )
)
# fmt: on
