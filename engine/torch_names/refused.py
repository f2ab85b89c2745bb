"""Modules of torch whose names can be imported and whose use raises NotImplementedError, from one table.

Packages import them at their top and use them on a path that is not taken here: several processes, export, compilation.
A name with a capital is a class: it can be subclassed, asked for with isinstance and written in annotations, and raises
when it is made.  `Name(A B)` is an Enum, `name~` makes decorators without effect.  Others are functions that raise when
they are called.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["ALSO", "MODULES", "PARENTS", "function", "has", "kind", "module", "names"]

_ONE = "use DistributedDataParallel"
_SIZES = "sizes are numbers, or ints that remember an input's, and never symbols"
_SYMBOLIC = "the exporter has a table of its own, engine/onnx/builders"
_COMPILER = "the engine compiles no Python"

# module -> (why, names)
MODULES: dict[str, tuple[str, str]] = {
    "distributed._composable": (_ONE, "checkpoint fully_shard replicate"),
    "distributed._composable.fsdp": (
        _ONE,
        "CPUOffloadPolicy FSDPModule MixedPrecisionPolicy OffloadPolicy fully_shard",
    ),
    "distributed._functional_collectives": (
        _ONE,
        "AsyncCollectiveTensor all_gather_tensor all_gather_tensor_autograd all_reduce all_to_all_single "
        "all_to_all_single_autograd broadcast permute_tensor reduce_scatter_tensor reduce_scatter_tensor_autograd "
        "wait_tensor",
    ),
    "distributed._tensor": (
        _ONE,
        "DTensor DeviceMesh Placement Replicate Shard distribute_module distribute_tensor init_device_mesh",
    ),
    "distributed._tensor.experimental": (_ONE, "implicit_replication local_map"),
    "distributed.algorithms": (_ONE, "Join JoinHook Joinable"),
    "distributed.algorithms._checkpoint": (_ONE, ""),
    "distributed.algorithms._checkpoint.checkpoint_wrapper": (
        _ONE,
        "CheckpointImpl(REENTRANT NO_REENTRANT) CheckpointWrapper OffloadWrapper apply_activation_checkpointing "
        "checkpoint_wrapper offload_wrapper",
    ),
    "distributed.algorithms.ddp_comm_hooks": (_ONE, "DDPCommHookType register_ddp_comm_hook"),
    "distributed.algorithms.ddp_comm_hooks.default_hooks": (
        _ONE,
        "allreduce_hook bf16_compress_hook bf16_compress_wrapper fp16_compress_hook fp16_compress_wrapper",
    ),
    "distributed.algorithms.ddp_comm_hooks.debugging_hooks": (_ONE, "noop_hook"),
    "distributed.algorithms.ddp_comm_hooks.optimizer_overlap_hooks": (_ONE, "_OptimizerHookState"),
    "distributed.algorithms.ddp_comm_hooks.post_localSGD_hook": (_ONE, "PostLocalSGDState post_localSGD_hook"),
    "distributed.algorithms.ddp_comm_hooks.powerSGD_hook": (
        _ONE,
        "PowerSGDState batched_powerSGD_hook powerSGD_hook",
    ),
    "distributed.algorithms.join": (_ONE, "Join JoinHook Joinable"),
    "distributed.algorithms.model_averaging": (_ONE, ""),
    "distributed.algorithms.model_averaging.averagers": (_ONE, "ModelAverager PeriodicModelAverager"),
    "distributed.checkpoint": (
        _ONE,
        "DefaultLoadPlanner DefaultSavePlanner FileSystemReader FileSystemWriter LoadPlan LoadPlanner Metadata "
        "ReadItem SavePlan SavePlanner StorageReader StorageWriter async_save load load_state_dict save "
        "save_state_dict",
    ),
    "distributed.checkpoint._consolidate_hf_safetensors": (_ONE, "consolidate_safetensors_files"),
    "distributed.checkpoint.default_planner": (_ONE, "DefaultLoadPlanner DefaultSavePlanner"),
    "distributed.checkpoint.filesystem": (_ONE, "FileSystemReader FileSystemWriter"),
    "distributed.checkpoint.format_utils": (
        _ONE,
        "_EmptyStateDictLoadPlanner _load_state_dict dcp_to_torch_save torch_save_to_dcp",
    ),
    "distributed.checkpoint.hf_storage": (_ONE, "HuggingFaceStorageReader HuggingFaceStorageWriter"),
    "distributed.checkpoint.metadata": (_ONE, "Metadata MetadataIndex StorageMeta TensorStorageMetadata"),
    "distributed.checkpoint.optimizer": (_ONE, "load_sharded_optimizer_state_dict"),
    "distributed.checkpoint.planner": (_ONE, "LoadPlan LoadPlanner SavePlan SavePlanner"),
    "distributed.checkpoint.state_dict": (
        _ONE,
        "StateDictOptions get_model_state_dict get_optimizer_state_dict get_state_dict set_model_state_dict "
        "set_optimizer_state_dict set_state_dict",
    ),
    "distributed.checkpoint.state_dict_loader": (_ONE, "_load_state_dict load load_state_dict"),
    "distributed.checkpoint.state_dict_saver": (_ONE, "_save_state_dict async_save save save_state_dict"),
    "distributed.checkpoint.stateful": (_ONE, "Stateful"),
    "distributed.elastic": (_ONE, ""),
    "distributed.elastic.agent": (_ONE, ""),
    "distributed.elastic.agent.server": (_ONE, "WorkerSpec"),
    "distributed.elastic.agent.server.api": (_ONE, "WorkerSpec"),
    "distributed.elastic.multiprocessing": (_ONE, "DefaultLogsSpecs LogsSpecs Std start_processes"),
    "distributed.elastic.multiprocessing.errors": (_ONE, "ChildFailedError ProcessFailure record"),
    "distributed.elastic.utils": (_ONE, ""),
    "distributed.elastic.utils.data": (_ONE, "CyclingIterator ElasticDistributedSampler"),
    "distributed.fsdp.sharded_grad_scaler": (_ONE, "ShardedGradScaler"),
    "distributed.fsdp.wrap": (
        _ONE,
        "CustomPolicy ModuleWrapPolicy _FSDPPolicy _or_policy _module_wrap_policy always_wrap_policy enable_wrap "
        "lambda_auto_wrap_policy size_based_auto_wrap_policy transformer_auto_wrap_policy wrap",
    ),
    "distributed.launcher": (_ONE, "LaunchConfig elastic_launch launch_agent"),
    "distributed.launcher.api": (_ONE, "LaunchConfig elastic_launch launch_agent"),
    "distributed.optim": (
        _ONE,
        "DistributedOptimizer PostLocalSGDOptimizer ZeroRedundancyOptimizer _apply_optimizer_in_backward",
    ),
    "distributed.optim.zero_redundancy_optimizer": (_ONE, "ZeroRedundancyOptimizer"),
    "distributed.pipelining": (
        _ONE,
        "Pipe PipelineStage Schedule1F1B ScheduleGPipe SplitPoint(BEGINNING END) build_stage pipe_split pipeline",
    ),
    "distributed.rpc.api": (_ONE, "_all_gather _require_initialized init_rpc rpc_async rpc_sync shutdown"),
    "distributed.rpc.backend_registry": (_ONE, "init_backend"),
    "distributed.run": (_ONE, "config_from_args get_args_parser main run"),
    "distributed.tensor._utils": (_ONE, "compute_local_shape_and_global_offset"),
    "distributed.tensor.device_mesh": (_ONE, "DeviceMesh init_device_mesh"),
    "distributed.tensor.experimental": (_ONE, "context_parallel implicit_replication local_map register_sharding"),
    "distributed.tensor.experimental._attention": (_ONE, "context_parallel set_rotate_method"),
    "distributed.tensor.parallel": (
        _ONE,
        "ColwiseParallel ParallelStyle PrepareModuleInput PrepareModuleOutput RowwiseParallel SequenceParallel "
        "loss_parallel parallelize_module",
    ),
    "distributed.tensor.parallel.fsdp": (_ONE, "DTensorExtensions"),
    "distributed.distributed_c10d": (_ONE, "_get_default_group _get_pg_default_device _object_to_tensor"),
    "distributed.utils": (_ONE, "_sync_module_states _sync_params_and_buffers _verify_param_shape_across_processes"),
    "export._trace": ("use torch.export.export", "_export"),
    "export.decomp_utils": ("programs have the engine's operators and are not decomposed", "CustomDecompTable"),
    "_inductor": (_COMPILER, "aoti_compile_and_package aoti_load_package compile list_mode_options list_options"),
    "_inductor.config": (_COMPILER, ""),
    "_inductor.utils": (_COMPILER, "run_and_get_code"),
    "_prims": (_COMPILER, ""),
    "_C._distributed_c10d": (_ONE, "Reducer ReduceOp ProcessGroup Store"),
    "_C._distributed_rpc": (_ONE, "TensorPipeAgent WorkerInfo"),
    "numa": ("processes are not bound to nodes of memory", ""),
    "numa.binding": (
        "processes are not bound to nodes of memory",
        "AffinityMode(NODE SOCKET EXCLUSIVE CORE_COMPLEX) NumaOptions",
    ),
    "onnx.symbolic_helper": (
        _SYMBOLIC,
        "_get_const _get_tensor_sizes cast_pytorch_to_onnx parse_args~ quantized_args~",
    ),
    **dict.fromkeys(
        [f"onnx.symbolic_opset{number}" for number in range(7, 21)],
        (_SYMBOLIC, "add cast div dropout masked_fill mul softmax squeeze sub unsqueeze"),
    ),
    "onnx.operators": (_SYMBOLIC, "reshape_from_tensor_shape shape_as_tensor"),
    "jit._recursive": (
        "use torch.jit.script, which keeps no store of types",
        "concrete_type_store create_script_module",
    ),
    "jit.mobile": ("archives of the lite interpreter are not read: use torch.jit.load", "_load_for_lite_interpreter"),
    "utils._sympy": (_SIZES, ""),
    "utils._sympy.numbers": (_SIZES, "IntInfinity NegativeIntInfinity"),
    "utils._sympy.value_ranges": (_SIZES, "ValueRanges"),
    "utils.mobile_optimizer": (
        "archives of the lite interpreter are not written: use torch.jit.save",
        "MobileOptimizerType generate_mobile_module_lints optimize_for_mobile",
    ),
    "ao.quantization.fx": ("only dynamic quantization is", "convert fuse prepare"),
    "ao.quantization.fx._decomposed": ("only dynamic quantization is", ""),
    "ao.quantization.quantize_fx": ("only dynamic quantization is", "convert_fx fuse_fx prepare_fx prepare_qat_fx"),
    "ao.nn.qat": ("only dynamic quantization is", "Conv2d Linear"),
}

# further names of a module that is there already
ALSO = {
    "distributed.fsdp.api": "distributed.fsdp",
    "distributed.fsdp.fully_sharded_data_parallel": "distributed.fsdp",
    "distributed.tensor.placement_types": "distributed.tensor",
    "distributed.constants": "distributed",
    "export.dynamic_shapes": "export",
    "export.exported_program": "export",
    "export.graph_signature": "export",
    "distributed.distributed_c10d": "distributed",
    "profiler.profiler": "profiler",
}
# modules under which the tables have others
PARENTS = frozenset(name.rpartition(".")[0] for name in (*MODULES, *ALSO)) - {""}


def function(module: str, name: str, why: str) -> Any:
    """A function that raises NotImplementedError, naming itself."""

    def call(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"torch.{module}.{name} is not supported: {why}")

    call.__name__ = call.__qualname__ = name
    call.__module__ = f"torch.{module}"
    call.__doc__ = "NotImplementedError."
    return call


def _decorators(*args: Any, **kwargs: Any) -> Any:
    """A decorator that returns its function."""
    return lambda fn: fn


def kind(module: str, name: str, why: str, base: type = object) -> Any:
    """A class that raises NotImplementedError when it is made, naming itself."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(f"torch.{module}.{type(self).__name__} is not supported: {why}")

    body = {
        "__init__": __init__,
        "__module__": f"torch.{module}",
        "__doc__": "NotImplementedError when it is made.",
        "__class_getitem__": classmethod(lambda cls, item: cls),
    }
    return type(name, (base,), body)


def names(module: str, text: str, why: str) -> dict[str, Any]:
    """The functions, classes and Enums of a text of names."""
    made: dict[str, Any] = {}
    for name, decorator, members in re.findall(r"(\w+)(~?)(?:\(([\w ]+)\))?", text):
        if decorator:
            made[name] = _decorators
        elif members:
            made[name] = enum.Enum(name, members, module=f"torch.{module}")
        else:
            make = kind if name.lstrip("_")[0].isupper() else function
            made[name] = make(module, name, why)
    return made


def has(name: str) -> bool:
    """Return whether the tables have this module."""
    return name in MODULES or name in ALSO


def module(name: str, load: Callable[[str], ModuleType]) -> ModuleType | None:
    """The module of the tables for `distributed.checkpoint`, made anew; None if they have no such name.

    load(name) gives a module that is there already.
    """
    if not has(name):
        return None
    why, text = MODULES.get(name, ("", ""))
    made = ModuleType(f"torch.{name}", f"torch.{name}'s names; using one raises NotImplementedError.")
    made.__path__ = []  # whose sub-modules the import system asks for, too
    made.__dict__.update(names(name, text, why))
    if name in ALSO:
        home = load(ALSO[name])
        made.__getattr__ = lambda attribute: getattr(home, attribute)  # type: ignore[method-assign]
    made.__all__ = [n for n in made.__dict__ if n[0] != "_"]  # type: ignore[attr-defined]
    return made
