"""Private switches and passes of torch's compiler of TorchScript: they can be called, and change nothing.

Programs are executed as they were compiled here, so there is nothing to turn on or off; a switch remembers what it was
set to and gives what stood before, since code that sets one for a while puts that back.
"""

from __future__ import annotations

from typing import Any

__all__ = ["NAMES", "function"]

# What a switch is at the beginning; None: it gives nothing.
_SWITCHES: dict[str, Any] = {
    "_jit_set_profiling_mode": True,
    "_jit_set_profiling_executor": True,
    "_get_graph_executor_optimize": True,
    "_set_graph_executor_optimize": None,
    "_jit_override_can_fuse_on_cpu": None,
    "_jit_override_can_fuse_on_gpu": None,
    "_jit_override_can_fuse_on_cpu_legacy": None,
    "_jit_set_autocast_mode": False,
    "_jit_set_bailout_depth": 20,
    "_jit_set_nvfuser_guard_mode": False,
    "_jit_set_texpr_fuser_enabled": False,
    "_jit_set_nvfuser_enabled": False,
    "_jit_set_num_profiled_runs": 1,
    "_jit_set_fusion_strategy": [],
    "_jit_set_inline_everything_mode": None,
    "_jit_set_emit_hooks": None,
    "_debug_set_autodiff_subgraph_inlining": None,
    "_debug_set_fusion_group_inlining": None,
    "_debug_get_fusion_group_inlining": False,
    "_jit_texpr_set_fallback_allowed": None,
    "_jit_set_te_must_use_llvm_cpu": None,
    "_jit_texpr_fuser_enabled": False,
    "_jit_nvfuser_enabled": False,
    "_jit_clear_class_registry": None,
    "_jit_texpr_fallback_allowed": False,
    "_jit_get_te_must_use_llvm_cpu": False,
    "_jit_set_print_ir": None,
    "_jit_check_alias_annotation": None,
    "_jit_set_logging_option": None,
    "_jit_get_logging_option": "",
    "_jit_set_python_print": None,
    "_get_jit_profiling_executor": True,
    "_jit_get_num_profiled_runs": 1,
    "_llvm_enabled": False,
}
_PASSES = frozenset(
    """inline dce cse lint constant_propagation constant_pooling peephole canonicalize erase_number_types fuse
    remove_expands remove_mutation remove_inplace_ops lower_all_tuples lower_graph complete_shape_analysis
    propagate_shapes_on_graph loop_unrolling erase_shape_information batch_mm decompose_ops specialize_autogradzero
    create_autodiff_subgraphs canonicalize_graph_fuser_ops inline_fork_wait inline_functional_graphs
    normalize_ops concat_frozen_linear optimize_frozen_graph fold_frozen_conv_bn fold_convbn""".split()
)
_OTHERS = {"_create_function_from_graph", "_jit_assert_is_instance", "_jit_get_emit_hooks", "_jit_get_all_schemas"}
NAMES = frozenset(_SWITCHES) | {f"_jit_pass_{name}" for name in _PASSES} | _OTHERS
_now: dict[str, Any] = dict(_SWITCHES)
_hooks: list[Any] = [None, None]


def _set_hooks(module: Any = None, function: Any = None) -> None:
    _hooks[:] = [module, function]


def _all_schemas() -> list[Any]:
    from engine.jit.archive.schemas import lines
    from engine.library.schema import parse_schema

    return [parse_schema(line) for forms in lines().values() for line in forms]


def _function_of(name: str, graph: Any) -> Any:
    """Return the compiled function that a graph was read from.  TypeError for a graph that is of no program."""
    from engine.jit.archive.objects import ScriptFunction

    if getattr(graph, "_origin", None) is None:
        raise TypeError(f"_create_function_from_graph(): {graph!r} is not the graph of a compiled function")
    program, record = graph._origin
    found = ScriptFunction(record, program)
    found.name = found.__name__ = name
    return found


def _assert_is_instance(obj: Any, type: Any) -> None:
    """RuntimeError unless a value can be passed where a graph's type is declared."""
    from engine.jit.archive.kinds import convert

    try:
        convert(obj, type._kind)
    except TypeError as error:
        raise RuntimeError(str(error)) from None


def function(name: str) -> Any:
    """The switch or pass of that name."""
    if name == "_create_function_from_graph":
        return _function_of
    if name == "_jit_assert_is_instance":
        return _assert_is_instance
    if name == "_jit_set_emit_hooks":
        return _set_hooks
    if name == "_jit_get_emit_hooks":
        return lambda: tuple(_hooks)
    if name == "_jit_get_all_schemas":
        return _all_schemas
    if name.startswith("_jit_pass_"):
        return _pass_over

    def switch(*values: Any) -> Any:
        before = _now[name]
        if values and before is not None:
            _now[name] = values[0]
        return before

    switch.__name__ = name
    return switch


def _pass_over(graph: Any = None, *options: Any, **more: Any) -> None:
    """Leave the graph as it is: it is read from a program, and does not stand for one."""
