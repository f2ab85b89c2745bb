"""Tests mirror the source: `engine/x/y.py` has `tests/engine/x/test_y.py`, or a row says which tests stand for it.

A row is a path or a pattern of modules and the tests that hold them, most often because those run over a whole registry
(every op, every Module, every distribution), where a file a module would repeat the same checks by hand.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[1]

OPS = "engine/ops/test_registry.py engine/ops/test_node_names.py engine/test_messages_arguments.py"
MODULES = "engine/nn/test_against_torch.py engine/nn/test_modules_and_functions.py engine/nn/test_first_use.py"
NAMES = "engine/test_import_names.py engine/test_api.py"
DATA = "engine/utils/test_data.py engine/utils/test_dataloader.py engine/utils/test_segments.py"

STANDS_FOR = {
    # every op with every sample: values, gradients, views, dtypes, layouts, in place, out=, messages
    "engine/ops/*": OPS,
    "engine/ops/pointwise/*": OPS,
    "engine/ops/special/*": OPS,
    "engine/ops/linalg/*": f"{OPS} engine/test_linalg.py engine/test_messages_linalg.py",
    "engine/ops/nn/*": f"{OPS} engine/nn/test_against_torch.py",
    "engine/ops/*/*": f"{OPS} engine/nn/test_against_torch.py",
    "engine/ops/*/onednn.py": "engine/ops/test_onednn.py engine/ops/test_fused.py engine/ops/test_registry.py",
    "engine/ops/*/cuda.py": "engine/ops/test_cuda.py",
    "engine/ops/*/cudnn.py": "engine/ops/test_cudnn.py",
    "engine/ops/*/images.py": "engine/ops/convolution/test_images.py",
    # recorded and generated kernels: every sample on the CPU shim, layouts, planted faults, bounds
    "engine/ops/cuda/*": "engine/ops/test_cuda.py",
    "engine/kernels/*": "engine/kernels/test_form.py engine/kernels/test_trace.py engine/ops/test_cuda.py",
    "engine/ops/blocks.py": "engine/backends/cpu/test_blocks.py engine/backends/cpu/test_reduce.py",
    "engine/core/*": f"engine/test_messages_arguments.py engine/test_storage_types.py "
    f"engine/core/test_slots.py {NAMES}",
    "engine/dispatch/*": "engine/ops/test_registry.py engine/test_messages_arguments.py "
    "engine/test_tensor_dtype_promotion.py engine/ops/test_array_derivative.py",
    "engine/backends/onednn/*": "engine/backends/test_onednn.py engine/ops/test_onednn.py",
    "engine/backends/*": f"{NAMES} engine/ops/test_registry.py",
    "engine/backends/cuda/*": f"{NAMES} engine/ops/test_registry.py",
    "engine/backends/cpu/__init__.py": "engine/backends/cpu/test_allocator.py",
    "engine/backends/cpu/fast.py": "engine/backends/cpu/test_blocks.py",
    # every Module and function against PyTorch's stored numbers
    "engine/nn/*": MODULES,
    "engine/nn/modules/*": MODULES,
    "engine/nn/utils/*": MODULES,
    "engine/nn/parallel/*": NAMES,
    "engine/nn/quantized/*": "engine/nn/quantized/test_static.py engine/nn/quantized/test_dynamic.py",
    "engine/sparse/*": "engine/sparse/test_documented.py engine/sparse/test_coordinates.py",
    "engine/torch_names/ao/quantization/*": "engine/nn/quantized/test_static.py engine/nn/quantized/test_dynamic.py",
    "engine/torch_names/ao/nn/intrinsic/*": "engine/nn/quantized/test_static.py",
    "engine/torch_names/ao/nn/intrinsic/quantized/*": "engine/nn/quantized/test_static.py",
    "engine/torch_names/ao/nn/*": f"engine/nn/quantized/test_dynamic.py {NAMES}",
    "engine/torch_names/ao/nn/quantized/*": f"engine/nn/quantized/test_dynamic.py {NAMES}",
    "engine/torch_names/ao/nn/quantized/dynamic/*": f"engine/nn/quantized/test_dynamic.py {NAMES}",
    "engine/torch_names/ao/nn/quantized/dynamic/modules/*": f"engine/nn/quantized/test_dynamic.py {NAMES}",
    "engine/torch_names/ao/nn/quantized/modules/*": f"engine/nn/quantized/test_dynamic.py {NAMES}",
    "engine/nn/backends/*": NAMES,
    "engine/nn/attention/*": "engine/nn/test_flex_attention.py",
    "engine/optim/*": "engine/optim/test_trajectories.py engine/optim/test_newer.py engine/optim/test_optimizer.py",
    "engine/distributions/*": "engine/distributions/test_distributions.py",
    "engine/serialization/*": "engine/serialization/test_formats.py engine/serialization/test_hostile.py "
    "engine/serialization/test_fuzz.py engine/serialization/test_interchange.py",
    "engine/utils/*": f"{DATA} {NAMES}",
    "engine/utils/tensorboard/*": "engine/utils/test_tensorboard.py",
    "engine/utils/bottleneck/__main__.py": "engine/utils/test_bottleneck.py",
    "engine/utils/data/*": DATA,
    "engine/utils/data/_utils/*": DATA,
    "engine/programs/*": "engine/test_plan.py engine/programs/training/test_training.py",
    "engine/programs/inference/*": "engine/test_plan.py",
    "engine/programs/passes/*": "engine/test_plan.py engine/programs/training/test_training.py",
    "engine/programs/training/*": "engine/programs/training/test_training.py",
    # every sample under vmap, and torch's numbers for the transforms of one another
    "engine/func/*": "engine/func/test_lanes.py engine/func/test_transforms.py engine/func/test_func.py",
    # one rule of the documentation a test
    "engine/autograd/*": "engine/autograd/test_rules_complete.py engine/autograd/test_profiler.py",
    "engine/library/extensions/*": "engine/ops/test_detection.py engine/ops/test_audio.py "
    "engine/library/extensions/test_image.py",
    "engine/library/*": "engine/library/test_library.py",
    "engine/utils/data/datapipes/*": "engine/data/test_datapipes.py",
    "engine/utils/data/datapipes/iter/*": "engine/data/test_datapipes.py",
    "engine/distributed/*": "engine/distributed/test_collectives.py engine/distributed/test_groups.py "
    "engine/distributed/test_training.py engine/distributed/test_store.py",
    "engine/nn/_communication.py": "engine/distributed/test_training.py",
    "engine/nn/parallel/distributed.py": "engine/distributed/test_training.py",
    # modules that are names
    "engine/torch_names/*": NAMES,
    "engine/torch_names/*/*": NAMES,
    "engine/*": NAMES,
    "engine/encoded/*": "engine/encoded/test_quantized.py engine/encoded/test_float8.py",
    "engine/amp/*": NAMES,
    "engine/cuda/*": NAMES,
    "engine/cuda/amp/*": NAMES,
    "engine/distributed/*/*": NAMES,
    "engine/fx/*": "engine/fx/test_programs.py engine/fx/test_proxy.py",
    "engine/fx/passes/*": "engine/fx/passes/test_shape_prop.py",
    "engine/fx/passes/infra/*": "engine/fx/passes/infra/test_pass_base.py",
    "engine/fx/experimental/*": NAMES,
    "engine/jit/*": "engine/jit/archive/test_loading.py engine/jit/scripting/test_scripting.py",
    "engine/jit/archive/*": "engine/jit/archive/test_loading.py engine/jit/archive/test_hostile.py",
    "engine/jit/scripting/*": "engine/jit/scripting/test_scripting.py engine/jit/scripting/test_tracing.py",
    "engine/nested/_internal/*": "engine/nested/test_nested.py",
    "engine/package/*": "engine/package/test_package.py",
    "engine/onnx/*": "engine/onnx/test_wire.py engine/onnx/test_exporting.py engine/onnx/test_importing.py",
    "engine/onnx/builders/*": "engine/onnx/test_builders.py",
    "engine/onnx/functions/*": "engine/onnx/test_importing.py engine/onnx/test_builders.py",
    "engine/torch_names/signal/*": NAMES,
    "engine/multiprocessing/__init__.py": "engine/multiprocessing/test_reductions.py",
    # a Tensor's own parts, by subject
    "engine/tensor.py": "engine/test_tensor_creation.py engine/test_tensor_indexing.py engine/test_tensor_pickle.py",
    "engine/core/storage.py": "engine/test_tensor_storage_views.py",
    "engine/core/layouts.py": "engine/test_channels_last.py engine/test_tensor_storage_views.py",
    "engine/core/dtypes.py": "engine/test_tensor_dtype_promotion.py",
    "engine/core/grad_mode.py": "engine/autograd/test_grad_mode.py",
    "engine/core/hooks.py": "engine/autograd/test_hooks.py",
    "engine/random.py": "engine/ops/random/test_random.py",
    "engine/core/printing.py": "engine/test_tensor_printing.py",
    # the hub by what a user does
    "hubcli/terminal/commands/*": "hubcli/test_json.py hubcli/test_status.py hubcli/terminal/test_cli.py",
    "hubcli/cache/*": "hubcli/cache/test_cache.py hubcli/cache/test_prune_verify.py hubcli/test_faults.py",
    "hubcli/confined/*": "hubcli/confined/test_sandbox.py hubcli/terminal/commands/test_check.py",
    "hubcli/reading/*": "hubcli/reading/test_hubconf.py hubcli/reading/test_listing.py",
    "hubcli/running/*": "hubcli/running/test_invoke.py hubcli/terminal/commands/test_run.py "
    "hubcli/terminal/commands/test_profile.py",
    "hubcli/running/child_site/*": "hubcli/running/test_subprocess_env.py",
    "hubcli/net/*": "hubcli/net/http/test_fetch.py hubcli/net/git/test_remote.py",
    "hubcli/net/http/*": "hubcli/net/http/test_fetch.py hubcli/net/http/test_endless.py",
    "hubcli/net/git/*": "hubcli/net/git/test_remote.py hubcli/net/git/test_access.py",
    "hubcli/terminal/*": "hubcli/terminal/test_cli.py hubcli/test_json.py hubcli/test_clumsy.py",
    "hubcli/base/*": "hubcli/test_api.py hubcli/terminal/test_cli.py",
    "hubcli/text/*": "hubcli/text/test_network.py hubcli/terminal/commands/test_run_prompt.py",
    "hubcli/trust/*": "hubcli/trust/test_gates.py",
    "hubcli/workflows/*": "hubcli/test_states.py hubcli/terminal/commands/test_cache.py "
    "hubcli/terminal/commands/test_run.py",
    "hubcli/workflows/locking.py": "hubcli/cache/test_lockfile.py",
    "hubcli/workflows/environment.py": "hubcli/terminal/commands/test_env.py",
    "hubcli/net/storage/*": "hubcli/net/storage/test_objects.py",
    "hubcli/workflows/check.py": "hubcli/terminal/commands/test_check.py",
    "hubcli/errors.py": "hubcli/test_status.py",
    "hubcli/workflows/catalogue.py": "hubcli/terminal/commands/test_search.py",
    "hubcli/workflows/preview.py": "hubcli/terminal/commands/test_pull.py",
    "hubcli/workflows/migration.py": "hubcli/terminal/commands/test_import_torch_hub.py",
    "hubcli/workflows/mirror.py": "hubcli/terminal/commands/test_mirror.py hubcli/net/storage/test_objects.py",
    "hubcli/net/storage/mirror.py": "hubcli/terminal/commands/test_mirror.py",
    "hubcli/net/storage/targets.py": "hubcli/terminal/commands/test_mirror.py hubcli/net/storage/test_objects.py",
    "hubcli/workflows/scaffold.py": "hubcli/terminal/commands/test_new.py",
    "hubcli/*": "hubcli/test_api.py hubcli/terminal/test_cli.py",
}


def namesakes(module: Path) -> list[Path]:
    """Where a test of this module may stand."""
    package = module.name == "__init__.py"
    name = (module.parent.name if package else module.stem).lstrip("_")
    folders = [module.parent, module.parent.parent] if package else [module.parent, module.parent / name]
    return [ROOT / "tests" / folder / f"test_{name}.py" for folder in folders]


def row(module: Path) -> str | None:
    """The longest pattern that fits; `*` stays within a folder."""
    fitting = [pattern for pattern in STANDS_FOR if module.match(pattern)]
    return max(fitting, key=len, default=None)


def modules() -> list[Path]:
    return sorted(p.relative_to(ROOT) for top in ("engine", "hubcli") for p in (ROOT / top).rglob("*.py"))


def test_every_module_has_its_tests() -> None:
    lacking = [str(m) for m in modules() if not any(p.exists() for p in namesakes(m)) and row(m) is None]
    assert not lacking


def test_the_rows_are_true() -> None:
    """Each names tests that exist, and stands for a module that is there and has no test of its own."""
    absent = [one for tests in STANDS_FOR.values() for one in tests.split() if not (ROOT / "tests" / one).exists()]
    used = {row(m) for m in modules() if not any(p.exists() for p in namesakes(m))}
    assert not absent and not sorted(set(STANDS_FOR) - used)
