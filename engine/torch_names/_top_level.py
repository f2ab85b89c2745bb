"""Small functions of torch's top level: assertions, names of types, and settings that have one value here."""

from __future__ import annotations

import builtins
import warnings
from typing import Any

import numpy as np

from engine.core import dtypes, tensor_messages
from engine.cuda import Event, OutOfMemoryError, Stream  # noqa: F401
from engine.dispatch.autocast import state as autocast_state
from engine.encoded.scaled_products import _scaled_mm, _scaled_mm_v2  # noqa: F401
from engine.nn import functional
from engine.nn._functional_loss import by_number
from engine.ops.along import segment_reduce as _segment_reduce  # noqa: F401
from engine.optim import foreach as _foreach
from engine.tensor import Tensor
from engine.torch_names import compiler, home
from engine.torch_names._C.types import JitType as Type  # noqa: F401
from engine.torch_names._names import FOREACH, STORAGES, TOP_LEVEL
from engine.torch_names.facade import facade

__all__ = [*TOP_LEVEL.split(), *FOREACH]

globals().update({name: getattr(_foreach, name) for name in FOREACH})
AcceleratorError = RuntimeError
torch: Any = facade()  # `torch.torch`, which some annotations say


has_lapack = has_spectral = has_openmp = True
has_mkl = False


def _legacy_classes() -> tuple[set[Any], set[Any]]:
    """Return the legacy types of tensors, and those of storages."""
    from engine.ops import typed
    from engine.sparse import typed as sparse_typed
    from engine.torch_names import typed_storage

    tensors = {typed.typed(dtype) for dtype in typed.NAMES.values()} | set(sparse_typed.CLASSES.values())
    storages = {getattr(typed_storage, f"{name}Storage") for name in STORAGES.split()}
    return tensors, storages | {typed_storage.TypedStorage, typed_storage.UntypedStorage}


def __getattr__(name: str) -> Any:
    """`_tensor_classes` and `_storage_classes`, whose modules are loaded at first use."""
    if name not in ("_tensor_classes", "_storage_classes"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    tensors, storages = _legacy_classes()
    globals().update(_tensor_classes=tensors, _storage_classes=storages)
    return globals()[name]


def _empty_affine_quantized(
    size: Any, *, dtype: Any = None, scale: float = 1.0, zero_point: int = 0, device: Any = None
) -> Tensor:
    """Return a quantized tensor of undefined integers.  -> (*size).  RuntimeError unless the dtype is quantized."""
    from engine.encoded import quantized

    if dtype not in quantized.STORED:
        raise RuntimeError("Creation of quantized tensor requires quantized dtype like torch.quint8")
    integers = np.zeros(size, quantized.STORED[dtype])
    return quantized.from_integers(integers, float(scale), int(zero_point))


def _convert_indices_from_coo_to_csr(input: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """Return the start of each row of sorted row indices: input (n) -> (size + 1)."""
    kind = dtypes.int32 if out_int32 else dtypes.int64
    return torch.searchsorted(input, torch.arange(size + 1, dtype=input.dtype, device=input.device)).to(kind)


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor, col_indices: Tensor, *, out_int32: bool = False, transpose: bool = False
) -> Tensor:
    """Row and column of each element: crow_indices (rows + 1), col_indices (n) -> (2, n)."""
    kind = dtypes.int32 if out_int32 else dtypes.int64
    rows = torch.arange(crow_indices.shape[0] - 1, dtype=kind, device=crow_indices.device)
    pair = [rows.repeat_interleave(crow_indices.diff().to(dtypes.int64)), col_indices.to(kind)]
    return torch.stack(pair[::-1] if transpose else pair)


def _grouped_mm(mat_a: Tensor, mat_b: Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Tensor:
    """Products of the groups of rows that end at `offs` (g): mat_a (n, k), mat_b (g, k, m) -> (n, m).

    Of two 3-d operands the batched product; of two 2-d ones the groups are of the dimension that they share.
    """
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if offs is None:
        result = torch.bmm(mat_a, mat_b)
    else:
        ends = offs.tolist()
        pieces = list(zip([0, *ends], ends))
        if mat_a.dim() == 2 and mat_b.dim() == 2:
            result = torch.stack([mat_a[:, i:j] @ mat_b[i:j] for i, j in pieces])
        elif mat_a.dim() == 2:
            parts = [mat_a[i:j] @ mat_b[g] for g, (i, j) in enumerate(pieces)]
            rest = mat_a.shape[0] - (ends[-1] if ends else 0)
            result = torch.cat([*parts, mat_a.new_zeros((rest, mat_b.shape[-1]))])
        else:
            result = torch.cat([mat_a[g] @ mat_b[:, i:j] for g, (i, j) in enumerate(pieces)], 1)
    return result if out_dtype is None else result.to(out_dtype)


def sparse_compressed_tensor(*args: Any, **kwargs: Any) -> Tensor:
    """NotImplementedError: sparse layouts are COO and CSR."""
    raise NotImplementedError("compressed sparse layouts but CSR are not supported: use torch.sparse_csr_tensor")


sparse_csc_tensor = sparse_compressed_tensor
legacy_contiguous_format = torch.contiguous_format


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """true_fn(*operands) if `pred`, a bool or a Tensor of one element, else false_fn(*operands)."""
    if isinstance(pred, Tensor) and pred.numel() != 1:
        raise RuntimeError(f"Expected pred to be bool or single-element tensor, but got {pred}.")
    if not isinstance(pred, bool | Tensor):
        raise RuntimeError(f"Expected pred to be bool or tensor, but got {pred}.")
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Any, body_fn: Any, carried_inputs: Any) -> Any:
    """The values that body_fn(*values) gives when cond_fn(*values) is first False, from `carried_inputs` on."""
    values = tuple(carried_inputs)
    while cond_fn(*values):
        values = body_fn(*values)
        if not isinstance(values, tuple):
            values = tuple(values) if isinstance(values, list) else (values,)
    return values


kl_div = by_number(functional.kl_div)
binary_cross_entropy_with_logits = by_number(functional.binary_cross_entropy_with_logits)
cosine_embedding_loss = by_number(functional.cosine_embedding_loss)
ctc_loss = by_number(functional.ctc_loss)
hinge_embedding_loss = by_number(functional.hinge_embedding_loss)
margin_ranking_loss = by_number(functional.margin_ranking_loss)
poisson_nll_loss = by_number(functional.poisson_nll_loss)
triplet_margin_loss = by_number(functional.triplet_margin_loss)


def _assert(condition: Any, message: str) -> None:
    """`assert condition, message`."""
    assert condition, message


def _check_with(error: type[Exception], condition: Any, message: Any = None) -> None:
    if not condition:
        text = "Expected cond to be True, but got False." if message is None else message()
        raise error(text)


def _check(cond: Any, message: Any = None) -> None:
    """RuntimeError with the text of message() unless `cond`."""
    _check_with(RuntimeError, cond, message)


def _check_is_size(i: Any, message: Any = None, *, max: Any = None) -> None:
    """Raise RuntimeError unless i >= 0 (and <= max, if given)."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_index(cond: Any, message: Any = None) -> None:
    """IndexError with the text of message() unless `cond`."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Any = None) -> None:
    """ValueError with the text of message() unless `cond`."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Any = None) -> None:
    """TypeError with the text of message() unless `cond`."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Any = None) -> None:
    """NotImplementedError with the text of message() unless `cond`."""
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all_with(error: type[Exception], cond: Tensor, message: Any = None) -> None:
    """`error` with the text of message() unless every element of `cond`, bool (*), is True."""
    _check_with(error, bool(cond.all()), message)


def _check_tensor_all(cond: Tensor, message: Any = None) -> None:
    """RuntimeError with the text of message() unless every element of `cond`, bool (*), is True."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(condition: Tensor, message: str = "Expected Tensor with single nonzero value, but got zero") -> None:
    """RuntimeError where the one element of `condition` is zero.  condition: (1) or ()."""
    if condition.numel() != 1:
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
    if not condition:
        raise RuntimeError(message)


def _has_compatible_shallow_copy_type(input: Tensor, other: Tensor) -> bool:
    """Return whether `input.data = other` is possible: both are tensors of this engine."""
    return True


def _shape_as_tensor(input: Tensor) -> Tensor:
    """The sizes as int64: (*a) -> (n)."""
    return torch.tensor(list(input.shape), dtype=dtypes.int64)


def typename(obj: Any) -> str:
    """`torch.FloatTensor` for a tensor, the dotted name of anything else's class."""
    if isinstance(obj, Tensor):
        return obj.type()
    owner = obj if hasattr(obj, "__qualname__") else type(obj)
    module = (
        (getattr(owner, "__module__", None) or "").replace("engine.torch_names", "engine").replace("engine", "torch", 1)
    )
    return owner.__qualname__ if module in ("", "builtins") else f"{module}.{owner.__qualname__}"


def compile(model: Any = None, **kwargs: Any) -> Any:
    """Compile a module or function: plans for inference, recorded steps in training.

    Args:
        model: A Module or a function; None returns a decorator.
        **kwargs: Those of `engine.compiler.compile`: `verify`, `dtype`, `mode`, and torch's, which change nothing.

    Returns:
        A Module of the same behaviour, or a function.

    Raises:
        NotImplementedError: `dtype` is no type of plans, or is given for a function.
        RuntimeError: the processor lacks the instructions for `dtype`.
    """
    return compiler.compile(model, **kwargs)


# --- threads


def get_num_threads() -> int:
    """Return the number of threads that one operation may use: see ENGINE_NUM_THREADS in docs/reference/settings.md."""
    from engine.backends.cpu import threads

    return threads.get_num_threads()


def set_num_threads(int: int) -> None:
    """Let one operation use this many threads, in the engine's own loops, in BLAS and in oneDNN.

    Results do not depend on it, but for products of matrices.

    Args:
        int: The number of threads.

    Raises:
        RuntimeError: the number is not positive.
    """
    from engine.backends.cpu import threads

    if isinstance(int, bool) or not isinstance(int, builtins.int):
        raise TypeError(f"set_num_threads expects an int, but got {type(int).__name__}")
    if int <= 0:
        raise RuntimeError("set_num_threads expects a positive integer")
    threads.set_num_threads(int)


def get_num_interop_threads() -> int:
    """1: operations run one after another."""
    return 1


def set_num_interop_threads(int: int) -> None:
    """Without effect."""


# --- settings with one value: results are deterministic, float32 is computed as such, dtypes are never changed


# What was set and has no effect: operations are deterministic and in full precision.  It is read back as it was set.
_settings: dict[str, Any] = {"deterministic": 0, "precision": "highest"}
_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Without effect but on `are_deterministic_algorithms_enabled`: operations are deterministic."""
    _settings["deterministic"] = 0 if not mode else 1 if warn_only else 2


def are_deterministic_algorithms_enabled() -> bool:
    """As set by `use_deterministic_algorithms`."""
    return bool(_settings["deterministic"])


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """As set by `use_deterministic_algorithms`."""
    return bool(_settings["deterministic"] == 1)


def get_deterministic_debug_mode() -> int:
    """As set: 0 default, 1 warn, 2 error."""
    return int(_settings["deterministic"])


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Without effect but on what is read back.  TypeError, RuntimeError for another mode."""
    if not isinstance(debug_mode, int | str):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _DEBUG_MODES:
            raise RuntimeError(
                "invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got " + debug_mode
            )
        debug_mode = _DEBUG_MODES[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    _settings["deterministic"] = debug_mode


def get_float32_matmul_precision() -> str:
    """As set by `set_float32_matmul_precision`."""
    return str(_settings["precision"])


def set_float32_matmul_precision(precision: str) -> None:
    """Without effect but on what is read back: products are in full precision.  "highest", "high" or "medium"."""
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current setFloat32MatmulPrecision call has "
            "no effect.",
            stacklevel=2,
        )
        return
    _settings["precision"] = precision


def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are kept."""
    return False


def is_warn_always_enabled() -> bool:
    """Return whether what is warned of once per process is warned of each time."""
    return tensor_messages.always[0]


def set_warn_always(b: bool) -> None:
    """Warn each time of what is otherwise warned of once per process."""
    tensor_messages.always[0] = bool(b)


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Return whether an autocast context for a kind of device ("cuda" by default) is active."""
    return autocast_state.enabled.get(device_type or "cuda", False)


def is_autocast_cpu_enabled() -> bool:
    """Return whether one for the CPU is active."""
    return is_autocast_enabled("cpu")


def is_autocast_cache_enabled() -> bool:
    """Return whether casts of weights are cached until the outermost context ends."""
    return autocast_state.caching


def set_autocast_enabled(device_type: Any, enabled: Any = None) -> None:
    """Switch autocast for a kind of device; `set_autocast_enabled(True)` means "cuda"."""
    if enabled is None:
        device_type, enabled = "cuda", device_type
    autocast_state.enable(device_type, bool(enabled))


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Switch autocast for the CPU."""
    autocast_state.enable("cpu", bool(enabled))


def set_autocast_dtype(device_type: str, dtype: Any) -> None:
    """The dtype of later contexts for a kind of device."""
    autocast_state.types[device_type] = dtype


def set_autocast_gpu_dtype(dtype: Any) -> None:
    """As `set_autocast_dtype("cuda", dtype)`."""
    autocast_state.types["cuda"] = dtype


def set_autocast_cpu_dtype(dtype: Any) -> None:
    """As `set_autocast_dtype("cpu", dtype)`."""
    autocast_state.types["cpu"] = dtype


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of weights, or not."""
    autocast_state.caching = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of weights."""
    autocast_state.casts.clear()


def get_autocast_dtype(device_type: str = "cuda") -> Any:
    """The dtype of autocast for a kind of device.  RuntimeError for one without autocast."""
    found = autocast_state.types.get(device_type)
    if found is None:
        raise RuntimeError(f"unsupported device type for autocast: {device_type}")
    return found


def get_autocast_gpu_dtype() -> Any:
    """As `get_autocast_dtype("cuda")`."""
    return autocast_state.types["cuda"]


def get_autocast_cpu_dtype() -> Any:
    """As `get_autocast_dtype("cpu")`."""
    return autocast_state.types["cpu"]


# --- symbolic sizes: sizes are numbers


class SymInt:
    """A size that is not known yet; none is."""


class SymFloat:
    """A number that is not known yet; none is."""


class SymBool:
    """A condition that is not known yet; none is."""


sym_int, sym_float = int, float
sym_max, sym_min = max, min


def sym_sum(args: Any) -> Any:
    """The sum of numbers."""
    return sum(args)


def sym_ite(b: bool, t: Any, f: Any) -> Any:
    """`t if b else f`."""
    return t if b else f


def sym_not(a: Any) -> bool:
    """`not a`."""
    return not a


def sym_sqrt(a: Any) -> float:
    """The square root of a number."""
    return a**0.5


def get_device(input: Tensor) -> int:
    """`input.get_device()`."""
    return input.get_device()


def get_device_module(device: Any = None) -> Any:
    """The module of a device: `torch.cuda` or `torch.cpu`."""
    import importlib

    from engine.core.device import device as make

    return importlib.import_module(home(f"torch.{'cpu' if device is None else make(device).type}"))


def unify_type_list(types: Any) -> Any:
    """The first."""
    return types[0]


def vmap(func: Any, in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", *, chunk_size: Any = None) -> Any:
    """A function that calls `func` for each slice of its arguments: see `torch.func`."""
    from engine.func import vmap as mapped

    return mapped(func, in_dims, out_dims, randomness, chunk_size=chunk_size)
