"""A pickle writer (protocol 2) that names torch's globals without torch being there.

`pickle.Pickler` insists that every global it writes can be imported, and `torch._utils._rebuild_tensor_v2`
cannot.  Containers, scalars, numpy arrays and the tensors of a `Saver` are written here; other objects by their
`__reduce_ex__`, as pickle does.
"""

from __future__ import annotations

import struct
import types
from collections import OrderedDict
from collections.abc import Callable
from pickle import PicklingError
from typing import Any

import numpy as np

__all__ = ["Global", "Instance", "Persistent", "Pickler", "PicklingError", "Reduce", "Token"]

_BATCH = 1000


class Token:
    """An object with a serialized form of its own."""

    __slots__ = ()


class Global(Token):
    """A global name to write as it is."""

    __slots__ = ("module", "name")

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Persistent(Token):
    """An object outside the pickle, under the id `pid`."""

    __slots__ = ("pid",)

    def __init__(self, pid: tuple) -> None:
        self.pid = pid


class Reduce(Token):
    """A call to write: `function(*args)`."""

    __slots__ = ("args", "function")

    def __init__(self, function: Any, *args: Any) -> None:
        self.function, self.args = function, args


class Member(Token):
    """A member of an enumeration of TorchScript: a call whose argument stands without a tuple around it."""

    __slots__ = ("cls", "value")

    def __init__(self, cls: Global, value: Any) -> None:
        self.cls, self.value = cls, value


class Instance(Token):
    """An object to write: an empty one of a class, and its state."""

    __slots__ = ("cls", "state")

    def __init__(self, cls: Global, state: Any) -> None:
        self.cls, self.state = cls, state


class Pickler:
    """Write objects as protocol-2 pickles.

    substitute(obj) gives a Token for an object that is not to be written as itself, or None; rename(module, name)
    gives the names to write for a class or function.
    """

    def __init__(
        self,
        substitute: Callable[[Any], Token | None] = lambda obj: None,
        rename: Callable[[str, str], tuple[str, str]] = lambda module, name: (module, name),
    ) -> None:
        self.substitute, self.rename = substitute, rename
        self.out = bytearray()
        self.memo: dict[int, tuple[int, Any]] = {}
        self.names: dict[tuple[str, str], int] = {}
        self.count = 0

    def dump(self, obj: Any) -> bytes:
        """The pickle of `obj`.  Raises PicklingError for what cannot be written."""
        self.out += b"\x80\x02"
        try:
            self.save(obj)
        except RecursionError:
            raise PicklingError("the object is nested too deeply to be saved") from None
        self.out += b"."
        return bytes(self.out)

    def memoize(self, obj: Any) -> None:
        """Let later occurrences of `obj` refer to what has just been written; keeps it alive."""
        self.memo[id(obj)] = (self._put(), obj)

    def _put(self) -> int:
        index = self.count
        self.out += b"q" + bytes((index,)) if index < 256 else b"r" + struct.pack("<I", index)
        self.count += 1
        return index

    def _get(self, index: int) -> None:
        self.out += b"h" + bytes((index,)) if index < 256 else b"j" + struct.pack("<I", index)

    def save(self, obj: Any) -> None:
        """Write one object."""
        kind = type(obj)
        plain = _PLAIN.get(kind)
        if plain is not None:
            plain(self, obj)
            return
        known = self.memo.get(id(obj))
        if known is not None:
            self._get(known[0])
            return
        container = _CONTAINERS.get(kind)
        if container is not None:
            container(self, obj)
            return
        token = obj if isinstance(obj, Token) else self.substitute(obj)
        if isinstance(obj, np.dtype):
            _save_dtype(self, obj)
        elif token is not None:
            self._save_token(token, obj)
        elif type(obj) is np.ndarray:
            _save_ndarray(self, obj)
        elif isinstance(obj, (type, types.FunctionType, types.BuiltinFunctionType)):
            self._save_global(*self.rename(*_names(obj)))
        else:
            self._save_object(obj)

    def _save_token(self, token: Token, obj: Any) -> None:
        if isinstance(token, Global):
            self._save_global(token.module, token.name)
        elif isinstance(token, Persistent):
            self.save(token.pid)
            self.out += b"Q"
        elif isinstance(token, Reduce):
            self.save(token.function)
            self.save(token.args)
            self.out += b"R"
            self.memoize(obj)
        elif isinstance(token, Member):
            self._save_global(token.cls.module, token.cls.name)
            self.save(token.value)
            self.out += b"R"
            self.memoize(obj)
        elif isinstance(token, Instance):
            self._save_global(token.cls.module, token.cls.name)
            self.out += b")\x81"
            self.memoize(obj)
            self.save(token.state)
            self.out += b"b"
        else:
            raise PicklingError(f"cannot save {type(token).__name__}")

    def _save_global(self, module: str, name: str) -> None:
        known = self.names.get((module, name))
        if known is not None:
            self._get(known)
            return
        module_3to2 = {"builtins": "__builtin__", "copyreg": "copy_reg"}.get(module, module)
        if "\n" in module or "\n" in name:
            raise PicklingError(f"cannot save the global {module}.{name}")
        self.out += b"c" + module_3to2.encode() + b"\n" + name.encode() + b"\n"
        self.names[module, name] = self._put()

    def _save_object(self, obj: Any) -> None:
        reduced = obj.__reduce_ex__(2)
        if isinstance(reduced, str):
            self._save_global(*self.rename(_names(obj)[0], reduced))
            return
        function, args, state, items, pairs, *_ = *reduced, None, None, None
        if getattr(function, "__name__", "") == "__newobj__":
            self.save(args[0])
            self.save(tuple(args[1:]))
            self.out += b"\x81"
        else:
            self.save(function)
            self.save(args)
            self.out += b"R"
        self.memoize(obj)
        if items is not None:
            self._batches(list(items), b"a", b"e")
        if pairs is not None:
            self._pairs(pairs)
        if state is not None:
            self.save(state)
            self.out += b"b"

    def _batches(self, items: list, one: bytes, many: bytes) -> None:
        for start in range(0, len(items), _BATCH):
            batch = items[start : start + _BATCH]
            if len(batch) == 1:
                self.save(batch[0])
                self.out += one
            else:
                self.out += b"("
                for item in batch:
                    self.save(item)
                self.out += many

    def _pairs(self, pairs: Any) -> None:
        pairs = list(pairs)
        for start in range(0, len(pairs), _BATCH):
            self.out += b"("
            for key, value in pairs[start : start + _BATCH]:
                self.save(key)
                self.save(value)
            self.out += b"u"


_MODULES = {"pathlib._local": "pathlib"}  # Python 3.13 has classes elsewhere than the versions before and after it


def _names(obj: Any) -> tuple[str, str]:
    module, name = (
        _MODULES.get(getattr(obj, "__module__", None) or "builtins", getattr(obj, "__module__", None) or "builtins"),
        getattr(obj, "__qualname__", type(obj).__qualname__),
    )
    if "<locals>" in name or name == "<lambda>":
        raise PicklingError(f"cannot save {module}.{name}: it is not a module's own class or function")
    return module, name


def _save_int(p: Pickler, obj: int) -> None:
    if 0 <= obj < 256:
        p.out += b"K" + bytes((obj,))
    elif 0 <= obj < 65536:
        p.out += b"M" + struct.pack("<H", obj)
    elif -(1 << 31) <= obj < 1 << 31:
        p.out += b"J" + struct.pack("<i", obj)
    else:
        raw = obj.to_bytes(obj.bit_length() // 8 + 1, "little", signed=True)
        p.out += (b"\x8a" + bytes((len(raw),)) if len(raw) < 256 else b"\x8b" + struct.pack("<i", len(raw))) + raw


def _save_str(p: Pickler, obj: str) -> None:
    known = p.memo.get(id(obj))
    if known is not None:
        p._get(known[0])
        return
    raw = obj.encode("utf-8", "surrogatepass")
    p.out += b"X" + struct.pack("<I", len(raw)) + raw
    p.memoize(obj)


def _save_bytes(p: Pickler, obj: bytes) -> None:
    """Protocol 2 has no bytes: they are text, encoded."""
    p._save_token(Reduce(Global("_codecs", "encode"), str(obj, "latin1"), "latin1"), obj)


def _save_tuple(p: Pickler, obj: tuple) -> None:
    if not obj:
        p.out += b")"
        return
    if len(obj) > 3:
        p.out += b"("
    for item in obj:
        p.save(item)
    known = p.memo.get(id(obj))
    if known is not None:  # the tuple contains itself, by way of a list or dict
        p.out += b"1" if len(obj) > 3 else b"0" * len(obj)
        p._get(known[0])
        return
    p.out += b"t" if len(obj) > 3 else (b"\x85", b"\x86", b"\x87")[len(obj) - 1]
    p.memoize(obj)


def _save_list(p: Pickler, obj: list) -> None:
    p.out += b"]"
    p.memoize(obj)
    p._batches(obj, b"a", b"e")


def _save_dict(p: Pickler, obj: dict) -> None:
    p.out += b"}"
    p.memoize(obj)
    p._pairs(obj.items())


def _save_ordered(p: Pickler, obj: OrderedDict) -> None:
    p._save_token(Reduce(Global("collections", "OrderedDict")), obj)
    p._pairs(obj.items())
    if obj.__dict__:
        p.save(obj.__dict__)
        p.out += b"b"


def _save_set(p: Pickler, obj: Any) -> None:
    p._save_token(Reduce(Global("builtins", type(obj).__name__), list(obj)), obj)


def _save_dtype(p: Pickler, obj: np.dtype) -> None:
    if obj.hasobject or obj.names or obj.subdtype or obj.kind not in "biufcSU":
        raise PicklingError(f"cannot save the numpy dtype {obj}")
    code = f"{obj.kind}{obj.itemsize // 4 if obj.kind == 'U' else obj.itemsize}"
    p._save_token(Reduce(Global("numpy", "dtype"), code, False, True), obj)
    size, alignment = (obj.itemsize, obj.alignment) if obj.kind in "SU" else (-1, -1)
    p.save((3, obj.str[0], None, None, None, size, alignment, 0))
    p.out += b"b"


def _save_ndarray(p: Pickler, obj: np.ndarray) -> None:
    function, cls = Global("numpy.core.multiarray", "_reconstruct"), Global("numpy", "ndarray")
    p._save_token(Reduce(function, cls, (0,), b"b"), obj)
    p.save((1, obj.shape, obj.dtype, False, np.ascontiguousarray(obj).tobytes()))
    p.out += b"b"


_PLAIN: dict[type, Callable[[Pickler, Any], None]] = {
    type(None): lambda p, obj: p.out.extend(b"N"),
    bool: lambda p, obj: p.out.extend(b"\x88" if obj else b"\x89"),
    int: _save_int,
    float: lambda p, obj: p.out.extend(b"G" + struct.pack(">d", obj)),
    str: _save_str,
}
_CONTAINERS: dict[type, Callable[[Pickler, Any], None]] = {
    tuple: _save_tuple,
    list: _save_list,
    dict: _save_dict,
    OrderedDict: _save_ordered,
    set: _save_set,
    frozenset: _save_set,
    bytes: _save_bytes,
    bytearray: lambda p, obj: p._save_token(Reduce(Global("builtins", "bytearray"), bytes(obj)), obj),
    complex: lambda p, obj: p._save_token(Reduce(Global("builtins", "complex"), obj.real, obj.imag), obj),
}


def _save_np_scalar(p: Pickler, obj: np.generic) -> None:
    p._save_token(Reduce(Global("numpy.core.multiarray", "scalar"), obj.dtype, obj.tobytes()), obj)


for _kind in (
    np.bool_,
    np.int8,
    np.int16,
    np.int32,
    np.int64,
    np.uint8,
    np.uint16,
    np.uint32,
    np.uint64,
    np.float16,
    np.float32,
    np.float64,
    np.complex64,
    np.complex128,
):
    _CONTAINERS[_kind] = _save_np_scalar
del _kind
