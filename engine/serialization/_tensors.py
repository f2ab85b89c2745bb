"""The one place where arrays become Tensors and Tensors become arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import backends
from engine.core import dtypes, layouts
from engine.core.checks import numel
from engine.core.device import CPU, device
from engine.core.hooks import warn_if_unserializable
from engine.core.storage import Memory, Storage, UntypedStorage, root_of, strided
from engine.encoded import EncodedTensor, float8
from engine.tensor import _INTERNAL, Size, Tensor, wrap
from engine.torch_names.facade import facade

from .errors import CallerError, UnpicklingError, shown
from .pickler import Global, Persistent, Reduce, Token
from .placeholders import Absent, EnumValue
from .records import RawStorage, numpy_dtype
from .writers import ArchiveLayout

__all__ = ["LocatedStorage", "TensorBuilder", "default_restore_location", "rename", "substitute"]


class LocatedStorage(Storage):
    """The argument of a `map_location` function: a storage on the CPU that can be requested for a device.

    `cuda(i)`, `cpu()` and `to(device)` return the same storage, marked for that device; the copy is made once,
    when its tensors are built.
    """

    def __init__(self, array: np.ndarray, name: str, target: device | None = None) -> None:
        super().__init__(Memory.of(array), getattr(dtypes, name, dtypes.uint8))
        self._name = name
        self.target = target or device("cpu")

    def to(self, where: Any) -> LocatedStorage:
        """This storage, marked for a device."""
        moved = LocatedStorage(self._memory.root, self._name, device(where))
        moved._memory = self._memory
        return moved

    def cuda(self, device: Any = None, non_blocking: bool = False) -> LocatedStorage:
        """This storage, marked for a CUDA device (the current one by default)."""
        return self.to("cuda" if device is None else device)

    def cpu(self) -> LocatedStorage:
        """This storage, marked for the CPU."""
        return self.to("cpu")


def default_restore_location(storage: Any, location: str) -> Any:
    """`storage` where its tag says (`cpu`, `cuda:1`); RuntimeError, as torch, for a device that is not there."""
    try:
        where = device(location)
    except (RuntimeError, TypeError):
        where = None
    if where is None or where.type not in ("cpu", "cuda", "meta"):
        raise RuntimeError(
            f"don't know how to restore data location of {type(storage).__name__} (tagged with {shown(location)})"
        )
    if where.type == "cuda":
        try:
            backends.of_device(where)
        except (RuntimeError, ImportError) as e:
            raise RuntimeError(
                "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If you are "
                "running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') to map "
                "your storages to the CPU."
            ) from e
    return storage.to(where) if storage is not None else where


class TensorBuilder:
    """Makes Tensors and Parameters over the arrays of a file, on the devices that `map_location` gives."""

    def __init__(self, map_location: Any = None) -> None:
        if isinstance(map_location, bytes):
            map_location = map_location.decode("ascii")
        if (
            map_location is not None
            and not isinstance(map_location, (str, device, dict))
            and not callable(map_location)
        ):
            raise TypeError(f"map_location must be a device, a string, a dict or a function, not {map_location!r}")
        self.map_location = map_location
        self._everywhere: device | None = None
        if isinstance(map_location, (str, device)):
            self._everywhere = default_restore_location(None, str(map_location))

    def _place(self, storage: RawStorage | None) -> device:
        """The device of a storage's tensors; asked once for each storage."""
        if self._everywhere is not None:
            return self._everywhere
        if storage is None or (self.map_location is None and storage.location == "cpu"):
            return CPU
        if storage.moved is None:
            try:
                storage.moved = {"device": self._ask(storage)}
            except Exception as e:
                raise CallerError(e) from e
        return storage.moved["device"]

    def _ask(self, storage: RawStorage) -> device:
        located, tag = LocatedStorage(storage.array, storage.name), storage.location
        if isinstance(self.map_location, dict):
            tag = str(self.map_location.get(tag, tag))
        elif self.map_location is not None:
            result = self.map_location(located, tag)
            if isinstance(result, LocatedStorage):
                return default_restore_location(None, str(result.target))
            if result is not None:
                raise TypeError(f"map_location returned a {type(result).__name__}; it must return the storage or None")
        return default_restore_location(located, tag).target

    def tensor(self, array: np.ndarray, storage: RawStorage | None, requires_grad: bool) -> Tensor:
        where = self._place(storage)
        if array.dtype.name in float8.NAMES:
            return float8.from_array(array).to(where)
        if where.type != "cpu":
            array = self._moved(array, storage, where)
        result = wrap(array)
        if requires_grad:
            result.requires_grad = True
        return result

    def _moved(self, array: np.ndarray, storage: RawStorage | None, where: device) -> Any:
        """The array on a device; views of one storage share memory there as well."""
        backend = backends.of_device(where)
        if where.type == "meta":
            return backend.from_host(array, where)
        if storage is None or array.size == 0:
            return backend.from_host(np.ascontiguousarray(array), where)
        storage.moved = storage.moved or {}
        whole = storage.moved.get(array.dtype)
        flat = storage.native(array.dtype)
        if whole is None:
            count = flat.size // array.itemsize
            whole = storage.moved[array.dtype] = backend.from_host(np.ndarray((count,), array.dtype, flat), where)
        offset = array.__array_interface__["data"][0] - flat.__array_interface__["data"][0]
        return strided(whole, array.shape, tuple(s // array.itemsize for s in array.strides), offset // array.itemsize)

    def quantized(self, integers: np.ndarray, scale: Any, zero: Any, axis: int | None) -> Any:
        """A quantized tensor; (n) scales and zero points along `axis`."""
        from engine.encoded.quantized import from_integers

        if axis is not None:
            scale, zero = scale.reshape(-1), zero.reshape(-1)
        return from_integers(np.asarray(integers), scale, zero, axis)

    def sparse(self, by_rows: bool, parts: list[Any], size: tuple[int, ...], coalesced: bool) -> Any:
        """A sparse tensor of its parts; UnpicklingError where they do not fit; order is checked."""
        from engine import sparse  # only files with such tensors need it
        from engine.sparse.compressed import sparse_csr_tensor

        try:
            if numel(size) >= 1 << 62:
                raise ValueError(f"the size {size} has too many elements")
            if by_rows:
                return sparse_csr_tensor(*parts, size)
            indices, values = parts
            if indices.dtype is not dtypes.int64 or indices.ndim != 2:
                raise ValueError(f"indices are {indices.dtype} of {indices.ndim} dims")
            made = sparse.sparse_coo_tensor(indices, values, size, check_invariants=True)
        except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            raise UnpicklingError(f"the parts of a sparse tensor do not fit: {shown(str(error))}") from None
        return made._coalesced_(made.is_coalesced() or (coalesced and made.in_order()))

    def parameter(self, data: Any, requires_grad: bool) -> Any:
        from engine.nn.parameter import Parameter

        return data if isinstance(data, float8.Float8Tensor) else Parameter(data, requires_grad)

    def storage(self, storage: RawStorage) -> UntypedStorage:
        array = storage.numpy()
        if array.nbytes != root_of(array).nbytes:  # a slice, in files of torch 0.3: a root of its own
            array = np.frombuffer(memoryview(array.view(np.uint8)), np.uint8).view(array.dtype)
        where = self._place(storage)
        memory = Memory.of(array if where.type == "cpu" else self._moved(array, storage, where))
        return UntypedStorage(memory) if storage.name == "uint8" else Storage(memory, dtypes.from_numpy(array.dtype))

    def set_data(self, tensor: Any, data: Any) -> Any:
        tensor.data = data
        return tensor

    def set_requires_grad(self, tensor: Any, requires_grad: bool) -> None:
        tensor.requires_grad = requires_grad

    def set_attributes(self, tensor: Any, state: dict) -> None:
        for key, value in state.items():
            own = key.startswith("_") and isinstance(tensor, EncodedTensor)
            if key.startswith("__") or own or key in _INTERNAL or hasattr(type(tensor), key):
                raise UnpicklingError(f"a tensor has the attribute {shown(key)}, which would hide its own")
            setattr(tensor, key, value)

    def is_tensor(self, obj: Any) -> bool:
        return isinstance(obj, Tensor)

    def to_numpy(self, tensor: Any) -> np.ndarray:
        if isinstance(tensor, float8.Float8Tensor):
            return tensor._q
        return backends.of_array(tensor._array).to_host(tensor._array)

    def device(self, *args: Any) -> Any:
        return device(*args)

    def size(self, sizes: tuple) -> Any:
        return Size(sizes)


# -- writing -------------------------------------------------------------------------------------------


def host_array(plan: ArchiveLayout, tensor: Tensor) -> tuple[np.ndarray, str]:
    """The tensor as a host array and its device tag; tensors that share device memory share the host copy."""
    where = tensor.device
    if where.type == "cpu":
        return tensor._array, "cpu"
    memory = Memory.of(tensor._array)
    host = plan.copies.get(id(memory))
    if host is None:
        flat = backends.of_array(tensor._array).to_host(memory.flat(dtypes.uint8))
        host = plan.copies[id(memory)] = (np.ascontiguousarray(flat), memory)
    width = tensor.element_size()
    array = np.ndarray(
        tuple(tensor.shape),
        dtypes.to_numpy(tensor.dtype),
        host[0],
        tensor.storage_offset() * width,
        [s * width for s in tensor.stride()],
    )
    return array, f"cuda:{where.index or 0}"


def substitute(plan: ArchiveLayout, obj: Any) -> Token | None:
    """Return the form in which torch's pickles write a tensor, parameter, storage, dtype, device or size; None for
    other objects."""
    if isinstance(obj, Tensor):
        return _tensor_token(plan, obj)
    if isinstance(obj, Absent | EnumValue):
        return obj.token()
    if isinstance(obj, dtypes.dtype):
        return Global("torch", obj.name)
    if isinstance(obj, device):
        return Reduce(Global("torch", "device"), *((obj.type,) if obj.index is None else (obj.type, obj.index)))
    if isinstance(obj, Size):
        return Reduce(Global("torch", "Size"), tuple(obj))
    if isinstance(obj, UntypedStorage):
        name = obj.dtype.name if isinstance(obj, Storage) else "uint8"
        if obj.device.type != "cpu":
            obj = type(obj)(Memory.of(backends.of_array(obj._memory.root).to_host(obj._memory.flat(dtypes.uint8))))
        return _storage_token(plan, obj._memory.flat(dtypes.uint8), name)
    return None


def _storage_token(plan: ArchiveLayout, root: np.ndarray, name: str) -> Persistent:
    token, first = plan.storage(root, name)
    if first != name and numpy_dtype(first).itemsize != numpy_dtype(name).itemsize:
        token, _ = plan.storage(root.copy(), name)
    return token


def _sparse_token(plan: ArchiveLayout, tensor: Any) -> Reduce:
    layout = Reduce(Global("torch.serialization", "_get_layout"), repr(tensor.layout))
    size = Reduce(Global("torch", "Size"), tuple(tensor.shape))
    parts = (tensor._crow, tensor._col) if tensor.layout is layouts.sparse_csr else (tensor._i,)
    tokens = [_tensor_token(plan, part.detach()) for part in (*parts, tensor._v)]
    more = () if tensor.layout is layouts.sparse_csr else (tensor.is_coalesced(),)
    return Reduce(Global("torch._utils", "_rebuild_sparse_tensor"), layout, (*tokens, size, *more))


def _tensor_token(plan: ArchiveLayout, tensor: Tensor) -> Reduce:
    from engine.nn.parameter import Parameter

    if tensor.is_quantized:
        return _quantized_token(plan, tensor)
    if isinstance(tensor, float8.Float8Tensor):
        return plan.tensor(tensor._q, tensor.dtype.name)
    if tensor.layout in (layouts.sparse_coo, layouts.sparse_csr):
        return _sparse_token(plan, tensor)
    state = {k: v for k, v in vars(tensor).items() if k not in _INTERNAL}
    hooks = Reduce(Global("collections", "OrderedDict"))
    if isinstance(tensor, Parameter):
        array, location = host_array(plan, tensor)
        data = plan.tensor(array, tensor.dtype.name, False, location)
        if not state:
            return Reduce(Global("torch._utils", "_rebuild_parameter"), data, tensor.requires_grad, hooks)
        return Reduce(Global("torch._utils", "_rebuild_parameter_with_state"), data, tensor.requires_grad, hooks, state)
    warn_if_unserializable(tensor._backward_hooks)
    array, location = host_array(plan, tensor)
    token = plan.tensor(array, tensor.dtype.name, tensor.requires_grad, location)
    if not state:
        return token
    cls = Global("torch._tensor", "Tensor") if type(tensor) is Tensor else type(tensor)
    return Reduce(Global("torch._tensor", "_rebuild_from_type_v2"), token.function, cls, token.args, state)


def _quantized_token(plan: ArchiveLayout, tensor: Any) -> Reduce:
    token = plan.tensor(tensor._q, tensor.dtype.name)
    scheme = Global("torch", tensor.qscheme().name)
    if tensor._axis is None:
        params: tuple[Any, ...] = (scheme, float(tensor._scale), int(tensor._zero))
    else:
        each = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        both = (_tensor_token(plan, one) for one in each)
        params = (scheme, *both, tensor._axis)
    hooks = Reduce(Global("collections", "OrderedDict"))
    return Reduce(Global("torch._utils", "_rebuild_qtensor"), *token.args[:4], params, False, hooks)


def rename(module: str, name: str) -> tuple[str, str]:
    """Return the module and name under which real torch has a class or function of the engine: `engine.nn.modules.conv`
    is `torch.nn.modules.conv`."""
    if module != "engine" and not module.startswith("engine."):
        return module, name
    if module.startswith(("engine.nn._functional", "engine.ops.")):  # functions, which a model keeps as activations
        return ("torch" if module[7:10] == "ops" and hasattr(facade(), name) else "torch.nn.functional"), name
    for package in ("nn.modules", "nn.functional", "nn", "optim"):
        if module == f"engine.{package}" or module.startswith(f"engine.{package}."):
            return (f"torch{module[6:]}" if package == "nn.modules" else f"torch.{package}"), name
    return "torch" + module[6:], name
