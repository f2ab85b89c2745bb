"""The meaning of global names in a checkpoint: torch's own list, each with a constructor written here.

The list is that of torch 2.13's `weights_only` (torch/_weights_only_unpickler.py), plus numpy scalars and
plain arrays, defaultdict over plain factories, values of the standard library (`plain`), members of enumerations whose
class cannot be imported, and the names of files older than torch 0.4.  A name found here
is never looked up in a module: each stands for a function below that checks its arguments.
"""

from __future__ import annotations

import re
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from engine.core import dtypes

from . import numpy_values, plain
from .allow import AllowList, is_blocked
from .errors import UnpicklingError, UnsupportedGlobalError, shown
from .placeholders import Absent, EnumValue, Placeholder, is_scalar
from .records import ELEMENT_TYPES, QUANTIZED, STORAGE_NAMES, RawStorage, numpy_dtype, sparse_of, strided
from .unpickler import Unpickler

__all__ = ["Builder", "DtypeName", "InertResolver", "SafeResolver", "StorageType"]


class Builder(Protocol):
    """Makes the objects of the result; `_tensors.TensorBuilder` and `arrays.ArrayBuilder` do."""

    def tensor(self, array: np.ndarray, storage: RawStorage | None, requires_grad: bool) -> Any: ...
    def parameter(self, data: Any, requires_grad: bool) -> Any: ...
    def storage(self, storage: RawStorage) -> Any: ...
    def set_data(self, tensor: Any, data: Any) -> Any: ...
    def set_requires_grad(self, tensor: Any, requires_grad: bool) -> None: ...
    def set_attributes(self, tensor: Any, state: dict) -> None: ...
    def is_tensor(self, obj: Any) -> bool: ...
    def to_numpy(self, tensor: Any) -> np.ndarray: ...
    def device(self, *args: Any) -> Any: ...
    def size(self, sizes: tuple) -> Any: ...


class _Named:
    """A global name with a meaning of ours."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"<{self.path}>"


class StorageType(_Named):
    """A storage class of torch; `element` is the name of its element type."""

    __slots__ = ("element",)

    def __init__(self, path: str, element: str) -> None:
        super().__init__(path)
        self.element = element


class DtypeName(_Named):
    """An element type that the engine lacks (`torch.qint8`): it may be named, not used."""

    __slots__ = ()


class Function(_Named):
    """A callable of the list: `run(resolver, u, *args)`."""

    __slots__ = ("run",)

    def __init__(self, path: str, run: Callable[..., Any]) -> None:
        super().__init__(path)
        self.run = run


class TensorClass(_Named):
    """`torch.FloatTensor` and its like: makes an empty tensor, which BUILD fills."""

    __slots__ = ("element", "parameter")

    def __init__(self, path: str, element: str, parameter: bool = False) -> None:
        super().__init__(path)
        self.element, self.parameter = element, parameter


# -- plain values --------------------------------------------------------------------------------------

_RENAMED = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "numpy._core": "numpy.core",
    "pathlib._local": "pathlib",
}
_OLD_NAMES = {
    "builtins.unicode": "builtins.str",
    "builtins.long": "builtins.int",
    "builtins.xrange": "builtins.range",
    "torch.TorchVersion": "torch.torch_version.TorchVersion",
}
# Classes that may stand as values (factories, annotations) and be nothing but that.
_FACTORIES: dict[str, Any] = {
    f"builtins.{c.__name__}": c for c in (int, float, bool, str, bytes, list, dict, tuple, object)
}
_FACTORIES["typing.Any"] = typing.Any
_CONTAINERS = {
    "builtins.set": set,
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": Counter,
    "collections.deque": deque,
}
_QSCHEMES = ("per_tensor_affine", "per_tensor_symmetric", "per_channel_affine", "per_channel_symmetric",
             "per_channel_affine_float_qparams")  # fmt: skip
_UNSUPPORTED = {
    "torch._utils._rebuild_nested_tensor": "nested tensors",
    "torch._utils._rebuild_meta_tensor_no_storage": "tensors on the meta device",
    "torch._utils._rebuild_wrapper_subclass": "tensor subclasses without a storage",
}
_TENSOR_NAMES = {
    name.replace("Storage", "Tensor"): element for name, element in STORAGE_NAMES.items() if element in ELEMENT_TYPES
}
_BUILTIN_FUNCTIONS = "torch._C._VariableFunctionsClass"
_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def _function(*paths: str) -> Callable:
    def register(run: Callable[..., Any]) -> Callable[..., Any]:
        for path in paths:
            _FUNCTIONS[path] = run
        return run

    return register


@_function("collections.OrderedDict")
def _ordered_dict(r: SafeResolver, u: Unpickler, pairs: Any = ()) -> OrderedDict:
    result: OrderedDict = OrderedDict()
    u.budget.spend(320)
    if pairs:
        u.set_items(result, _flat_pairs(u, pairs))
    return result


def _flat_pairs(u: Unpickler, pairs: Any) -> list[Any]:
    if isinstance(pairs, dict):
        pairs = list(pairs.items())
    if type(pairs) not in (list, tuple) or not all(type(p) in (list, tuple) and len(p) == 2 for p in pairs):
        raise UnpicklingError("a dictionary is made from something other than pairs")
    u.budget.spend(128 * len(pairs))
    return [x for pair in pairs for x in pair]


@_function("collections.Counter")
def _counter(r: SafeResolver, u: Unpickler, counts: Any = None) -> Counter:
    result: Counter = Counter()
    u.budget.spend(320)
    if counts is not None:
        if type(counts) is not dict:
            raise UnpicklingError("a Counter is made from something other than a dict")
        u.budget.spend(64 * len(counts))
        u.check_keys(counts)
        dict.update(result, counts)
    return result


@_function("collections.defaultdict")
def _defaultdict(r: SafeResolver, u: Unpickler, factory: Any = None, pairs: Any = ()) -> defaultdict:
    if type(factory) is Function:
        factory = _CONTAINERS.get(factory.path, factory)
    if factory is not None and not any(factory is f for f in (*_FACTORIES.values(), *_CONTAINERS.values())):
        raise UnpicklingError("a defaultdict has a factory that is not a plain container or number")
    result: defaultdict = defaultdict(factory)
    u.budget.spend(320)
    if pairs:
        u.set_items(result, _flat_pairs(u, pairs))
    return result


def _members(u: Unpickler, items: Any) -> Any:
    if type(items) not in (list, tuple, set, frozenset):
        raise UnpicklingError("a set is made from something other than a list")
    u.budget.spend(256 + 64 * len(items))
    u.check_keys(items)
    return items


@_function("builtins.set")
def _set(r: SafeResolver, u: Unpickler, items: Any = ()) -> set:
    return set(_members(u, items))


@_function("builtins.frozenset")
def _frozenset(r: SafeResolver, u: Unpickler, items: Any = ()) -> frozenset:
    return frozenset(_members(u, items))


@_function("builtins.complex")
def _complex(r: SafeResolver, u: Unpickler, real: Any = 0.0, imag: Any = 0.0) -> complex:
    if not all(type(x) in (int, float) for x in (real, imag)):
        raise UnpicklingError("a complex number is made from something other than numbers")
    return complex(real, imag)


@_function("_codecs.encode")
def _encode(r: SafeResolver, u: Unpickler, text: Any, encoding: Any = "utf-8", errors: Any = "strict") -> bytes:
    if type(text) is not str or encoding not in ("latin1", "latin-1", "utf-8", "utf8", "ascii") or errors != "strict":
        raise UnpicklingError("_codecs.encode is for turning text into bytes with latin1, utf-8 or ascii")
    u.budget.spend(len(text) + 64)
    return text.encode(encoding)


@_function("builtins.bytearray")
def _bytearray(r: SafeResolver, u: Unpickler, content: Any = b"", encoding: Any = None) -> bytearray:
    raw = _encode(r, u, content, encoding) if encoding is not None else content
    if type(raw) is not bytes:  # an integer would allocate that many bytes
        raise UnpicklingError("a bytearray is made from something other than bytes")
    u.budget.spend(len(raw) + 64)
    return bytearray(raw)


@_function("builtins.bytes")
def _bytes(r: SafeResolver, u: Unpickler, content: Any = b"", encoding: Any = None) -> bytes:
    return bytes(_bytearray(r, u, content, encoding))


@_function("builtins.getattr")
def _getattr(r: SafeResolver, u: Unpickler, owner: Any, name: Any) -> Any:
    """A function of torch written in C, as Python pickles it: a name of `torch._C._VariableFunctionsClass`."""
    if getattr(owner, "path", None) != _BUILTIN_FUNCTIONS or not isinstance(name, str):
        raise UnpicklingError("Unsupported global: builtins.getattr was refused, but of torch's own functions")
    return r.find_global(u, "torch", name)


@_function("torch.Size")
def _size(r: SafeResolver, u: Unpickler, sizes: Any = ()) -> Any:
    if type(sizes) not in (list, tuple) or not all(type(n) is int and abs(n) < 1 << 63 for n in sizes):
        raise UnpicklingError("a torch.Size is made from something other than integers")
    u.budget.spend(64 + 8 * len(sizes))
    return r.builder.size(tuple(sizes))


@_function("torch.device")
def _device(r: SafeResolver, u: Unpickler, *args: Any) -> Any:
    if not 1 <= len(args) <= 2 or type(args[0]) is not str or not all(type(a) in (int, type(None)) for a in args[1:]):
        raise UnpicklingError("a torch.device is made from something other than a name and an index")
    return r.builder.device(*args)


@_function("torch.serialization._get_layout")
def _layout(r: SafeResolver, u: Unpickler, name: Any) -> Any:
    if name not in ("torch.strided", "torch.sparse_coo", "torch.sparse_csr"):
        raise UnpicklingError(f"the layout {shown(name)} is not supported")
    return name


@_function("torch.nn.backends.thnn._get_thnn_function_backend")
def _thnn(r: SafeResolver, u: Unpickler) -> None:
    """Modules saved before torch 1.2 carry it; nothing has used it since."""


def _plain(make: Callable[..., Any]) -> Callable[..., Any]:
    return lambda r, u, *args: make(u, *args)


_FUNCTIONS.update((path, _plain(make)) for path, make in {**plain.CONSTRUCTORS, **numpy_values.CONSTRUCTORS}.items())
# What protocol 2 makes by NEWOBJ: a class called without a constructor of its own.
_BY_NEW = frozenset({
    "collections.OrderedDict", "collections.Counter", "builtins.set", "argparse.Namespace", "types.SimpleNamespace",
    "uuid.UUID", "torch.torch_version.TorchVersion",
})  # fmt: skip


# -- tensors -------------------------------------------------------------------------------------------


def _storage(storage: Any) -> RawStorage:
    if type(storage) is not RawStorage:
        raise UnpicklingError(f"a tensor is built on a {shown(type(storage).__name__)} instead of a storage")
    return storage


def _tensor(r: SafeResolver, u: Unpickler, storage: Any, name: str, offset: Any, size: Any, stride: Any,
            requires_grad: Any = False, metadata: Any = None) -> Any:  # fmt: skip
    u.budget.spend(1024)
    if name in QUANTIZED:
        raise UnpicklingError(f"a tensor of type torch.{name} lacks its scale")
    array = strided(_storage(storage), name, offset, size, stride, u.limits)
    origin: RawStorage | None = storage
    if metadata:
        if type(metadata) is not dict or set(metadata) - {"conj", "neg"}:
            raise UnpicklingError(f"a tensor has unknown metadata {shown(metadata)}")
        u.budget.spend_on(storage, 2 * array.nbytes)
        array = np.conjugate(array) if metadata.get("conj") else array
        array, origin = np.negative(array) if metadata.get("neg") else array, None
    return r.builder.tensor(array, origin, requires_grad is True)


@_function("torch._utils._rebuild_tensor")
def _rebuild_tensor(r: SafeResolver, u: Unpickler, storage: Any, offset: Any, size: Any, stride: Any) -> Any:
    return _tensor(r, u, storage, _storage(storage).name, offset, size, stride)


@_function("torch._utils._rebuild_tensor_v2")
def _rebuild_v2(r: SafeResolver, u: Unpickler, storage: Any, offset: Any, size: Any, stride: Any,
                requires_grad: Any = False, hooks: Any = None, metadata: Any = None) -> Any:  # fmt: skip
    return _tensor(r, u, storage, _storage(storage).name, offset, size, stride, requires_grad, metadata)


@_function("torch._utils._rebuild_tensor_v3")
def _rebuild_v3(r: SafeResolver, u: Unpickler, storage: Any, offset: Any, size: Any, stride: Any,
                requires_grad: Any, hooks: Any, dtype: Any, metadata: Any = None) -> Any:  # fmt: skip
    return _tensor(r, u, storage, r.element_name(dtype), offset, size, stride, requires_grad, metadata)


@_function("torch._utils._rebuild_parameter", "torch._utils._rebuild_parameter_with_state")
def _rebuild_parameter(
    r: SafeResolver, u: Unpickler, data: Any, requires_grad: Any = True, hooks: Any = None, state: Any = None
) -> Any:
    u.budget.spend(512)
    result = r.builder.parameter(r.tensor_of(data), requires_grad is True)
    if state:
        r.set_state(result, state)
    return result


@_function("torch._tensor._rebuild_from_type_v2")
def _rebuild_from_type(r: SafeResolver, u: Unpickler, function: Any, cls: Any, args: Any, state: Any) -> Any:
    if not isinstance(function, Function) or not function.path.startswith("torch._utils._rebuild_"):
        raise UnpicklingError("a tensor subclass is rebuilt by something other than a tensor function")
    if not isinstance(cls, TensorClass):
        raise UnpicklingError(f"the tensor subclass {shown(cls)} is not supported")
    result = r.call(u, function, args if type(args) is tuple else (args,))
    if cls.parameter and r.builder.is_tensor(result):
        result = r.builder.parameter(result, True)
    if state:
        r.set_state(result, state)
    return result


@_function(
    "torch._utils._rebuild_device_tensor_from_numpy",
    "torch._utils._rebuild_xla_tensor",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor",
)
def _rebuild_device_tensor(
    r: SafeResolver, u: Unpickler, data: Any, dtype: Any, device: Any, requires_grad: Any
) -> Any:
    array = data if isinstance(data, np.ndarray) else r.builder.to_numpy(r.tensor_of(data))
    u.budget.spend(1024 + array.size * 16)
    return r.builder.tensor(array.astype(numpy_dtype(r.element_name(dtype))), None, requires_grad is True)


@_function("torch._utils._rebuild_sparse_tensor")
def _rebuild_sparse(r: SafeResolver, u: Unpickler, layout: Any, data: Any) -> Any:
    u.budget.spend(2048)
    return sparse_of(r, layout, data)


@_function("torch._utils._rebuild_qtensor")
def _rebuild_qtensor(r: SafeResolver, u: Unpickler, storage: Any, offset: Any, size: Any, stride: Any, params: Any,
                     requires_grad: Any = False, hooks: Any = None) -> Any:  # fmt: skip
    """A quantized tensor; where arrays are read, dequantised: (q - zero_point) * scale as float32."""
    if _storage(storage).name not in QUANTIZED:
        raise UnpicklingError(f"a quantized tensor has elements of type {_storage(storage).name}")
    if type(params) is not tuple or not params or not isinstance(params[0], DtypeName):
        raise UnpicklingError("a quantized tensor has no quantizer")
    q = strided(storage, storage.name, offset, size, stride, u.limits)
    u.budget.spend(1024)
    u.budget.spend_on(storage, 4 * q.size)
    scheme, axis = params[0].path, None
    if scheme == "torch.per_tensor_affine" and len(params) == 3:
        scale, zero = params[1:]
        if type(scale) not in (int, float) or type(zero) is not int or abs(zero) >= 1 << 31:
            raise UnpicklingError("a quantized tensor has a scale or zero point that is not a number")
    elif scheme in ("torch.per_channel_affine", "torch.per_channel_affine_float_qparams") and len(params) == 4:
        dim = params[3]
        if type(dim) is not int or not 0 <= dim < q.ndim:
            raise UnpicklingError(f"a quantized tensor has the channel dimension {shown(dim)}")
        around = [1] * q.ndim
        around[dim] = q.shape[dim]
        both = [np.asarray(p if type(p) is list else r.builder.to_numpy(r.tensor_of(p))) for p in params[1:3]]
        if any(p.shape != (q.shape[dim],) or p.dtype.kind not in "if" for p in both):
            raise UnpicklingError("a quantized tensor has not one scale and zero point for each channel")
        scale, zero = (p.reshape(around) for p in both)
        axis = dim
    else:
        raise UnpicklingError(f"the quantization scheme {shown(scheme)} is not supported")
    if scheme != "torch.per_channel_affine_float_qparams" and (make := getattr(r.builder, "quantized", None)):
        return make(q, scale, zero, axis)
    return r.builder.tensor(_dequantized(q, scale, zero), None, requires_grad is True)


def _dequantized(q: np.ndarray, scale: Any, zero: Any) -> np.ndarray:
    """(q - zero) * scale as float32, computed in float64 by pieces: nothing but the result has the tensor's size."""
    result = np.empty(q.shape, np.float32)
    flags = ["external_loop", "buffered", "zerosize_ok"]
    operands = [q, np.asarray(zero, np.float64), np.asarray(scale, np.float64), result]
    access = [["readonly"], ["readonly"], ["readonly"], ["writeonly"]]
    with np.nditer(operands, flags, access, [np.float64] * 4, casting="unsafe", buffersize=1 << 16) as pieces:
        for part, zeros, scales, out in pieces:
            np.multiply(part - zeros, scales, out=out)
    return result


# -- the resolvers -------------------------------------------------------------------------------------


def canonical(module: str, name: str) -> str:
    """The path of a global under today's names: Python 2's modules and numpy 2's private ones renamed."""
    if module.startswith("numpy._core"):
        module = "numpy.core" + module[len("numpy._core") :]
    path = f"{_RENAMED.get(module, module)}.{name}"
    return _OLD_NAMES.get(path, path)


def named(path: str) -> Any:
    """The object that stands for a global of torch's list, or None if it is not on the list."""
    run = _FUNCTIONS.get(path)
    if run is not None:
        return Function(path, run)
    if path == _BUILTIN_FUNCTIONS:
        return _Named(path)
    if path in _FACTORIES:
        return _FACTORIES[path]
    module, _, name = path.rpartition(".")
    if module in ("torch", "torch.cuda", "torch.storage") and name in STORAGE_NAMES:
        return StorageType(path, STORAGE_NAMES[name])
    if module in ("torch", "torch.cuda"):
        if name in _TENSOR_NAMES or name == "Tensor":
            return TensorClass(path, _TENSOR_NAMES.get(name, "float32"))
        if name in _QSCHEMES or name in QUANTIZED:
            return DtypeName(path)
    if path in ("torch.nn.parameter.Parameter", "torch.autograd.variable.Variable", "torch.nn.parameter.Buffer"):
        return TensorClass(path, "float32", name == "Parameter")
    if path == "torch._tensor.Tensor" or path == "torch.tensor.Tensor":
        return TensorClass(path, "float32")
    return None


class SafeResolver:
    """Answers the interpreter from the list above and from the caller's allow-list; refuses the rest."""

    def __init__(self, builder: Builder, allow: AllowList | None = None) -> None:
        self.builder = builder
        self.allow = AllowList() if allow is None else allow

    def knows(self, path: str) -> bool:
        """Return whether a global is on torch's list."""
        module, _, name = path.rpartition(".")
        return named(path) is not None or (module == "torch" and name in ELEMENT_TYPES)

    def would_refuse(self, path: str, made: bool) -> bool:
        """Return whether a global has to be permitted first; made: whether the file makes objects of it."""
        module, _, name = path.rpartition(".")
        if self.knows(path) or path in _UNSUPPORTED or is_blocked(path):
            return False
        return self.allow.find(path, module, name) is None and (made or not self.allow.is_absent(path))

    def find_global(self, u: Unpickler, module: str, name: str) -> Any:
        path = canonical(module, name)
        found = named(path)
        if found is not None:
            return found
        if module == "torch" and name in ELEMENT_TYPES:
            return getattr(dtypes, name)
        if path in _UNSUPPORTED:
            raise UnpicklingError(f"the file contains {_UNSUPPORTED[path]}, which are not supported")
        found = self.allow.find(path, module, name)
        if found is not None:
            return found
        if module == "torch" and re.fullmatch(r"(float|bfloat|complex|u?int|bits|q?u?int)\d+\w*", name):
            raise UnpicklingError(f"the element type torch.{shown(name)} is not supported")
        if is_blocked(path):
            raise UnpicklingError(
                f"Unsupported global: {shown(path)} was refused, its module is blocked for every file"
            )
        if self.allow.is_absent(path):
            return Absent(path)
        raise UnsupportedGlobalError(path)

    def call(self, u: Unpickler, function: Any, args: tuple) -> Any:
        if type(function) is Function:
            return function.run(self, u, *args)
        if isinstance(function, TensorClass):
            return self._empty(u, function, args)
        if type(function) is Absent:
            u.budget.spend(512)
            if function.permitted:
                return Placeholder(function.path, args, called=True)
            if len(args) == 1 and is_scalar(args[0]):
                return EnumValue(function.path, args[0])
            raise UnsupportedGlobalError(function.path)
        if self.allow.may_call(function):
            return _user(function, function, *args)
        raise UnpicklingError(f"the file calls {_what(function)}, which is refused")

    def new(self, u: Unpickler, cls: Any, args: tuple, kwargs: dict) -> Any:
        if isinstance(cls, TensorClass):
            return self._empty(u, cls, args)
        if type(cls) is Function and cls.path in _BY_NEW and not kwargs:
            return cls.run(self, u, *args)
        if type(cls) is Absent:
            if not cls.permitted:
                raise UnsupportedGlobalError(cls.path)
            u.budget.spend(512)
            return Placeholder(cls.path, args, kwargs)
        if isinstance(cls, type) and self.allow.may_build(cls):
            u.budget.spend(512)
            if self.allow.may_call(cls) or (cls.__new__ is object.__new__ and not args and not kwargs):
                return _user(cls, cls.__new__, cls, *args, **kwargs)
            for base in (dict, list, OrderedDict):
                if cls.__new__ is base.__new__ and not args and not kwargs:
                    return _user(cls, cls.__new__, cls)
        raise UnpicklingError(f"the file creates {_what(cls)}, which is refused")

    def _empty(self, u: Unpickler, cls: TensorClass, args: tuple) -> Any:
        u.budget.spend(1024)
        if args and self.builder.is_tensor(args[0]):
            data = args[0]
        elif args:
            raise UnpicklingError(f"{cls.path} is called with arguments, which is refused")
        else:
            data = self.builder.tensor(np.empty((0,), numpy_dtype(cls.element)), None, False)
        return self.builder.parameter(data, True) if cls.parameter else data

    def build(self, u: Unpickler, instance: Any, state: Any) -> Any:
        kind = type(instance)
        if kind is OrderedDict:
            if type(state) is not dict or not all(type(k) is str and not hasattr(OrderedDict, k) for k in state):
                raise UnpicklingError("an OrderedDict has attributes that would hide its methods")
            instance.__dict__.update(state)
        elif kind is Placeholder:
            instance._state = state
        elif plain.set_state(instance, state):
            pass
        elif isinstance(instance, np.dtype) or (kind is np.ndarray and numpy_values.is_state(state)):
            numpy_values.set_state(u, instance, state)
        elif self.builder.is_tensor(instance):
            return self._build_tensor(u, instance, state)
        elif self.allow.may_build(kind):
            self._build_object(u, instance, state)
        else:
            raise UnpicklingError(f"the file changes the state of {_what(kind)}, which is refused")
        return instance

    def _build_tensor(self, u: Unpickler, tensor: Any, state: Any) -> Any:
        """States of old files: set_(storage, offset, size, stride), or those of a Variable (3 or 5 parts)."""
        before = tensor
        if type(state) is tuple and len(state) == 4:
            tensor = self.builder.set_data(tensor, _rebuild_tensor(self, u, *state))
        elif type(state) is tuple and len(state) == 5:
            tensor = self.builder.set_data(tensor, self.tensor_of(state[0]))
            self.builder.set_requires_grad(tensor, state[3] is True)
        elif type(state) is tuple and len(state) == 3:
            self.builder.set_requires_grad(tensor, state[0] is True)
        else:
            self.set_state(tensor, state)
        if tensor is not before:
            u.replace(before, tensor)
        return tensor

    def _build_object(self, u: Unpickler, instance: Any, state: Any) -> None:
        setter = getattr(instance, "__setstate__", None)
        if setter is not None:
            _user(type(instance), setter, state)
            return
        slots = None
        if type(state) is tuple and len(state) == 2:
            state, slots = state
        for part in (state, slots):
            if part is not None and (type(part) is not dict or not all(type(k) is str for k in part)):
                raise UnpicklingError(f"{_what(type(instance))} has a state that is not a dict of names")
        if state:
            vars(instance).update(state)
            u.attributes.append(vars(instance))
        for key, value in (slots or {}).items():
            setattr(instance, key, value)

    def fill(self, u: Unpickler, target: Any, items: list, kind: str) -> None:
        if type(target) is Placeholder:
            if kind == "list":
                target._items.extend(items)
            else:
                u.set_items(target._pairs, items)
            return
        if kind == "list" and plain.extend(target, items):
            return
        base = list if kind == "list" else dict
        if not isinstance(target, base) or not self.allow.may_build(type(target)):
            raise UnpicklingError(f"the file puts items into {_what(type(target))}, which is refused")
        if kind == "list":
            _user(type(target), target.extend, items)
            return
        for key, value in zip(items[::2], items[1::2]):
            u.check_key(key, len(target))
            _user(type(target), target.__setitem__, key, value)

    def storage(self, storage: RawStorage) -> Any:
        return self.builder.storage(storage)

    # -- what the functions above need

    def tensor_of(self, obj: Any) -> Any:
        if not self.builder.is_tensor(obj):
            raise UnpicklingError(f"a tensor is expected where the file has {_what(type(obj))}")
        return obj

    def element_name(self, dtype: Any) -> str:
        name = str(getattr(dtype, "name", ""))
        if isinstance(dtype, _Named) or name not in ELEMENT_TYPES:
            raise UnpicklingError(f"{_what(dtype)} is not an element type")
        return name

    def set_state(self, tensor: Any, state: Any) -> None:
        """Attributes that a program has put on a tensor; those that would hide the tensor's own are refused."""
        parts = state if type(state) is tuple and len(state) == 2 else (state,)
        for part in parts:
            if part is None:
                continue
            if type(part) is not dict or not all(type(k) is str and k.isidentifier() for k in part):
                raise UnpicklingError("a tensor has a state that is not a dict of names")
            self.builder.set_attributes(tensor, part)


@_function("copyreg._reconstructor")
def _reconstructor(r: SafeResolver, u: Unpickler, cls: Any, base: Any, state: Any) -> Any:
    """Build an object of a plain class, as protocols 0 and 1 write it."""
    if base is not object or state is not None:
        raise UnpicklingError(f"the file creates {_what(cls)} on a base other than object, which is refused")
    return r.new(u, cls, (), {})


def _what(obj: Any) -> str:
    if isinstance(obj, _Named | Absent):
        return shown(obj.path)
    if isinstance(obj, type):
        return shown(f"{obj.__module__}.{obj.__qualname__}")
    return "an object of type " + shown(type(obj).__name__)


def _user(owner: Any, function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call into a class that the caller allowed; its exceptions become refusals that keep their cause."""
    try:
        return function(*args, **kwargs)
    except Exception as e:
        raise UnpicklingError(f"{_what(owner)} failed with {type(e).__name__}: {shown(e)}") from e


class Inert(_Named):
    """The stand-in for a global, and for everything made by it, when a pickle is only inspected."""

    __slots__ = ()


class InertResolver:
    """Builds nothing: records the global names, for listing them and for finding a pickle's end.

    paths: every name.  made: those of which the file makes objects, or calls with more than one scalar.
    """

    def __init__(self) -> None:
        self.paths: dict[str, None] = {}
        self.made: set[str] = set()

    def find_global(self, u: Unpickler, module: str, name: str) -> Any:
        path = canonical(module, name)
        self.paths[path] = None
        found = named(path)
        return found if isinstance(found, StorageType) else Inert(path)

    def call(self, u: Unpickler, function: Any, args: tuple) -> Any:
        u.budget.spend(64)
        if isinstance(function, Inert) and not (len(args) == 1 and is_scalar(args[0])):
            self.made.add(function.path)
            if function.path == "copyreg._reconstructor" and args and isinstance(args[0], Inert):
                self.made.add(args[0].path)
        return Inert("object")

    def new(self, u: Unpickler, cls: Any, args: tuple, kwargs: dict) -> Any:
        u.budget.spend(64)
        if isinstance(cls, Inert):
            self.made.add(cls.path)
        return Inert("object")

    def build(self, u: Unpickler, instance: Any, state: Any) -> Any:
        return instance

    def fill(self, u: Unpickler, target: Any, items: list, kind: str) -> None:
        pass
