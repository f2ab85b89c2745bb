"""Names that third-party model code uses while it is imported: each exists, and is inert or refuses clearly."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import engine
from engine.torch_names import home

ROOT = Path(__file__).parents[2]

# reference/corpus.md, "Import-time names", and the modules that hub repositories import beside them
NAMES = """
quantization.QuantStub ao.quantization.DeQuantStub nn.quantized.FloatFunctional _jit_internal.boolean_dispatch
_six.string_classes _tensor.Tensor futures.wait_all testing.assert_close cuda.amp.autocast_mode.autocast __config__.show
Tensor randn no_grad device randint stack float32 einsum save LongTensor zeros Size floor load manual_seed
tensor FloatTensor __version__ arange cartesian_prod cat float is_tensor pi set_printoptions _assert compile
typename FloatStorage vmap utils.data.Dataset utils.data.DataLoader utils.data.Subset
utils.data.dataloader.DataLoader utils.data.distributed utils.data.IterableDataset utils.checkpoint.checkpoint
utils._pytree.tree_flatten utils._pytree.tree_map utils._pytree.tree_unflatten utils.hooks.RemovableHandle
utils.dlpack.from_dlpack autograd.Variable autograd.Function autograd.variable.Variable
autograd.grad_mode.no_grad autograd.profiler autograd.grad _dynamo.allow_in_graph _dynamo.config
_dynamo.disable _dynamo.is_compiling compiler.disable compiler.is_compiling nn.parameter.Parameter
nn.utils.clip_grad_norm_ nn.utils.parametrizations.weight_norm nn.utils.rnn.pack_padded_sequence
nn.utils.rnn.pad_packed_sequence nn.utils.weight_norm nn.utils.rnn.pad_sequence nn.utils.spectral_norm
nn.utils.fusion nn.attention.SDPBackend nn.attention.sdpa_kernel nn.modules.utils._ntuple
nn.modules.utils._pair nn.modules.batchnorm._BatchNorm nn.modules.conv._ConvNd nn.modules.loss._Loss
nn.parallel.DistributedDataParallel nn.parallel.DataParallel nn.parallel.scatter_gather.scatter
nn.parallel.replicate.replicate nn.parallel.parallel_apply.get_a_var multiprocessing.spawn.start_processes
autograd.anomaly_mode.detect_anomaly autograd.function.InplaceFunction nn.functional.grad.conv2d_input
utils.hooks.unserializable_hook
nn.backends.thnn.backend nn.common_types nn.init.trunc_normal_ optim.Adam optim.Optimizer
optim.optimizer.required optim.lr_scheduler.LambdaLR jit.script jit.ignore jit.unused jit.export
jit.is_scripting jit.is_tracing jit.annotate jit.ScriptModule jit.Final jit._overload_method jit.script_method
jit.trace jit.fork distributions.Categorical distributions.Independent distributions.Uniform
distributions.Normal amp.autocast amp.GradScaler amp.custom_fwd amp.custom_bwd cuda.amp.autocast
cuda.amp.GradScaler cuda.amp.custom_fwd cuda.is_available cuda.device_count cuda.empty_cache
cuda.manual_seed_all cuda.nvtx.range_push cuda.comm.broadcast cuda.FloatTensor cuda.Stream cuda.Event
backends.cudnn.benchmark backends.cudnn.deterministic backends.cuda.matmul.allow_tf32 backends.cuda.sdp_kernel
backends.mkldnn.enabled backends.mkl.is_available backends.mps.is_available backends.opt_einsum.enabled
backends.openmp.is_available distributed.ReduceOp.SUM distributed.is_available distributed.is_initialized
distributed.get_rank func.functional_call func.grad_and_value func.vmap fft.rfft linalg.norm special.expit
onnx.export fx.wrap multiprocessing.Queue multiprocessing.Pool multiprocessing.spawn
multiprocessing.get_context overrides.has_torch_function overrides.handle_torch_function types.Device
types.Number types.Storage storage.UntypedStorage serialization.load functional.einsum functional.Tensor
version.__version__ version.cuda version.hip jit.annotations.List accelerator.is_available nested.nested_tensor
profiler.ProfilerActivity profiler.schedule signal.windows.hann optim.swa_utils.AveragedModel torch.Tensor
nn.attention.flex_attention.BlockMask distributed.nn.all_gather distributed.tensor.DTensor distributed.rpc.init_rpc
distributed.device_mesh.DeviceMesh distributed.fsdp.FullyShardedDataParallel autograd.graph.save_on_cpu
autograd.graph.increment_version cuda.CUDAGraph cuda.graph cuda.is_current_stream_capturing optim.optimizer.ParamsT
optim.optimizer._default_to_fused_or_foreach float8_e4m3fn float8_e5m2 qint8 OutOfMemoryError Stream Event
_check _assert_async sym_sum _tensor_str._tensor_str _dynamo.mark_static_address ops.aten
_dynamo._trace_wrapped_higher_order_op.TransformGetItemToIndex _subclasses.fake_tensor.is_fake
fx.experimental.proxy_tensor.get_proxy_mode
Type _check_is_size torch_version.TorchVersion utils._contextlib._DecoratorContextManager accelerator.device_index
autograd.grad_mode._DecoratorContextManager autograd.grad_mode.set_multithreading_enabled autograd._is_checkpoint_valid
autograd.kineto_available autograd.Variable._execution_engine.queue_callback ByteStorage.from_buffer cpu.amp.autocast
_C._jit_set_autocast_mode _C._jit_set_bailout_depth _C._is_tracing _jit_internal._copy_to_script_wrapper
_utils.is_compiling onnx.TensorProtoDataType
optim.Optimizer._group_tensors_by_device_and_dtype profiler._default_schedule_fn serialization.MAP_LOCATION
serialization._is_zipfile serialization._open_file_like sparse.FloatTensor sparse.DoubleTensor storage.TypedStorage
utils.benchmark.Timer utils.collect_env.get_pretty_env_info utils.cpp_extension.BuildExtension.with_options xpu.init
utils.file_baton.FileBaton utils._foreach_utils._has_foreach_support utils._python_dispatch.TorchDispatchMode
distributed.get_default_backend_for_device
_utils._rebuild_tensor_v2 _C._log_api_usage_once random.fork_rng return_types.max
"""


@pytest.mark.parametrize("name", NAMES.split())
def test_the_name_exists(name: str) -> None:
    *path, last = name.split(".")
    found = engine
    for i, part in enumerate(path):
        try:
            found = importlib.import_module(home(".".join(["torch", *path[: i + 1]])))
        except ModuleNotFoundError:
            found = getattr(found, part)
    if not hasattr(found, last):
        importlib.import_module(home(f"torch.{name}"))


def test_the_hubs_names() -> None:
    code = (
        "import engine.torch_alias as a; a.install()\nimport torch, torch.utils.model_zoo as zoo\nfrom torch.utils "
        "import model_zoo\nfrom torch.hub import load_state_dict_from_url, _get_torch_home\nassert model_zoo is zoo is "
        "torch.hub and zoo.load_url is load_state_dict_from_url\nassert list(zoo.tqdm([1, 2])) == [1, 2] and "
        "isinstance(_get_torch_home(), str)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_decorators_return_the_function() -> None:
    def f(x: int) -> int:
        return x + 1

    for decorated in (
        engine.jit.ignore(f),
        engine.jit.ignore(drop=True)(f),
        engine.jit.unused(f),
        engine.jit.export(f),
        engine.compile(f, disable=True),
        engine.compiler.disable(f),
        engine.compiler.disable(recursive=False)(f),
        engine._dynamo.allow_in_graph(f),
        engine.jit._overload_method(f),
    ):
        assert decorated is f
    assert engine.jit.script_if_tracing(f)(1) == 2
    assert engine.jit.fork(f, 1).wait() == 2
    assert engine.jit.isinstance([1], list[int]) and not engine.jit.isinstance(1, list[int])


@pytest.mark.parametrize(
    "call",
    [
        lambda: engine.jit.export_opnames(None),
        lambda: engine.onnx.dynamo_export(None),
        lambda: engine.distributed.split_group(),
        lambda: engine.distributed.all_reduce_coalesced([]),
        lambda: engine.cuda.comm.broadcast(None),
        lambda: importlib.import_module("engine.utils.cpp_extension").load("x", []),
    ],
)
def test_what_cannot_work_names_the_feature(call) -> None:
    with pytest.raises(NotImplementedError, match=r"torch\.[a-z_.]+(\w+)? is not supported[:;]"):
        call()


@pytest.mark.skipif(engine.cuda.is_available(), reason="a GPU is there")
def test_cuda_without_a_gpu_answers_and_refuses() -> None:
    cuda = engine.cuda
    assert cuda.device_count() == 0 and cuda.memory_allocated() == 0 and not cuda.is_initialized()
    assert cuda._initialized is False and cuda._is_in_bad_fork() is False
    cuda._lazy_call(lambda: pytest.fail("there is no GPU to use"))
    assert cuda._get_device_index("cpu", optional=True, allow_cpu=True) == -1
    with pytest.raises(ValueError, match="with a specified index or an integer, but got:None"):
        cuda._get_device_index(None)
    cuda.manual_seed_all(1)
    cuda.empty_cache()
    with cuda.device(None), cuda.device(-1), cuda.stream(None):
        pass
    made = lambda: cuda.FloatTensor(2)
    starts = (cuda.Stream, cuda.Event, cuda.synchronize, cuda.current_device, made, cuda.init, cuda._lazy_init)
    for call in (*starts, cuda.CUDAGraph):
        with pytest.raises(RuntimeError, match=r"device 'cuda' (needs CuPy|is not available)"):
            call()


def test_functional_call() -> None:
    layer = engine.nn.Linear(2, 1, bias=False)
    x = engine.tensor([[1.0, 2.0]])
    given = {"weight": engine.tensor([[3.0, 4.0]])}
    assert engine.func.functional_call(layer, given, (x,)).item() == 11.0
    assert engine.func.functional_call(layer, (given, {}), x).item() == 11.0
    with pytest.raises(ValueError, match="weight appears in multiple dictionaries"):
        engine.func.functional_call(layer, (given, given), x)


def test_typed_storages() -> None:
    storage = engine.FloatStorage([1, 2])
    assert storage.tolist() == [1.0, 2.0] and storage.dtype is engine.float32
    assert isinstance(storage, engine.FloatStorage) and not isinstance(storage, engine.LongStorage)
    assert isinstance(engine.zeros(2, dtype=engine.int64).storage(), engine.LongStorage)


def test_rebuilding_and_flattening() -> None:
    t = engine.arange(6.0)
    view = engine._utils._rebuild_tensor_v2(t.storage(), 1, (2, 2), (2, 1), False, None)
    assert view.tolist() == [[1.0, 2.0], [3.0, 4.0]] and view.data_ptr() == t.data_ptr() + 4
    parts = [engine.ones(2, 1), engine.zeros(3)]
    flat = engine._utils._flatten_dense_tensors(parts)
    assert flat.shape == (5,)
    assert [p.shape for p in engine._utils._unflatten_dense_tensors(flat, parts)] == [(2, 1), (3,)]


def test_threads_and_names() -> None:
    assert engine.get_num_threads() >= 1
    with pytest.raises(RuntimeError, match="expects a positive integer"):
        engine.set_num_threads(0)
    assert engine.typename(engine.ones(1)) == "torch.FloatTensor"
    assert engine.typename(engine.nn.Linear).startswith("torch.nn.")
    with pytest.raises(AssertionError, match="no"):
        engine._assert(False, "no")
    assert engine.__version__ >= "1.0" and engine.get_device_module("cpu").is_available()
    with pytest.raises(AttributeError, match="nowhere"):
        _ = engine.backends.nowhere


def test_stubs_and_assert_close() -> None:
    x = engine.ones(2, 2)
    assert engine.quantization.QuantWrapper(engine.nn.Identity())(x) is x
    functional = importlib.import_module("engine.nn.quantized").FloatFunctional()
    assert functional.add_relu(x, -3 * x).sum() == 0 and functional.cat([x, x], 1).shape == (2, 4)
    with pytest.raises(NotImplementedError, match="prepare_qat is not supported"):
        engine.quantization.prepare_qat(None)
    engine.testing.assert_close({"a": [x]}, {"a": [x + 1e-7]})
    for other, message in ((x + 1, "not close"), (x.double(), "'dtype'"), (x[0], "'shape'")):
        with pytest.raises(AssertionError, match=message):
            engine.testing.assert_close(x, other)
    assert engine.futures.wait_all([engine.jit.fork(abs, -1)]) == [1]


def _double(index: int, path: str) -> None:
    Path(path, str(index)).write_text(str(2 * index))


def _fail(index: int) -> None:
    raise ValueError(f"number {index}")


@pytest.mark.slow
def test_spawn(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    engine.multiprocessing.spawn(_double, (str(folder),), nprocs=2)
    assert sorted(p.read_text() for p in folder.iterdir()) == ["0", "2"]
    with pytest.raises(engine.multiprocessing.ProcessRaisedException, match="number 0"):
        engine.multiprocessing.spawn(_fail, nprocs=1)


def test_operators_by_their_internal_names() -> None:
    aten = engine.ops.aten
    x = engine.tensor([3.0, 4.0])
    assert engine.equal(aten.add.Tensor(x, x), x + x) and engine.equal(aten.relu.default(-x), engine.zeros(2))
    assert engine.equal(aten.add_(x.clone(), 1), x + 1) and aten.mul.overloads() == ["default"]
    assert repr(aten.add) == "<OpOverloadPacket(op='aten.add')>" and aten.add is aten.add
    with pytest.raises(NotImplementedError, match=r"aten\._fused_sdp_choice is not supported"):
        aten._fused_sdp_choice.default(x)
    with pytest.raises(AttributeError, match="'_OpNamespace' 'nobody' object has no attribute 'nms'"):
        engine.ops.nobody.nms  # noqa: B018
    assert not hasattr(engine.ops, "__path_of_no_module__")


def test_checks() -> None:
    engine._check(True)
    for name, error in (("", RuntimeError), ("_index", IndexError), ("_value", ValueError), ("_type", TypeError)):
        with pytest.raises(error, match="too long"):
            getattr(engine, f"_check{name}")(False, lambda: "too long")
    engine._assert_async(engine.tensor(1))
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value"):
        engine._assert_async(engine.tensor([0]))


def test_dtypes_that_are_names_only() -> None:
    assert engine.finfo(engine.float8_e4m3fn).max == 448 and engine.finfo(engine.float8_e5m2).max == 57344
    assert engine.float8_e4m3fn.is_floating_point and repr(engine.qint8) == "torch.qint8"
    with pytest.raises(TypeError, match="float8_e4m3fn is not supported"):
        engine.zeros(2, dtype=engine.float8_e4m3fn)


@pytest.mark.parametrize(
    "call",
    [
        lambda: engine.nested.nested_tensor([engine.ones(1)]),
        lambda: engine.distributed.nn.broadcast(engine.ones(1)),
        lambda: engine.distributed.fsdp.FullyShardedDataParallel(engine.nn.Linear(1, 1)),
        lambda: engine.distributed.init_device_mesh("cpu", (1,)),
        lambda: engine.distributed.rpc.init_rpc("me"),
    ],
)
def test_what_cannot_work_names_itself(call) -> None:
    with pytest.raises(NotImplementedError, match="is not supported"):
        call()
