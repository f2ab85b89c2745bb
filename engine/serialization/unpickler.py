"""An interpreter of pickle opcodes that can build data and nothing else.

Note [Why an interpreter]
`pickle.Unpickler` with a guarded `find_class` has been walked around more than once (CVE-2025-32434 in torch
itself), because the machine below it calls whatever is on its stack.  Here the machine knows containers and
scalars only.  Everything else - what a global name stands for, what REDUCE, NEWOBJ and BUILD do - is asked of
a `Resolver`, and the default answer is a refusal that names the global.  The opcodes are those of protocols 0
to 5 (https://docs.python.org/3/library/pickletools.html) but for the ones that import by number (EXT*), that
instantiate classic classes (INST, OBJ) or need the producer's side channel (PERSID, NEXT_BUFFER).

Time and memory are bounded: each opcode costs a constant, counted against `Limits`; copies and containers are
charged to a budget proportional to the pickle's size; keys are checked before they are hashed, since the hash
of a tuple that shares its halves ("billion laughs") takes exponential time.  A dictionary whose keys collide takes
a step for every key that is there: that worst case is charged for every key whose hash a file can choose.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Protocol

from .depth import check_depth
from .errors import DEFAULT_LIMITS, Limits, UnpicklingError, shown
from .records import Budget, RawStorage

__all__ = ["Resolver", "Unpickler"]

_CONTAINER = 128  # bytes charged for a container, about what CPython needs
_DICTS = frozenset({dict, OrderedDict, Counter, defaultdict})
_FREE_KEYS = frozenset({str, bytes, bool, type(None)})  # hashes that are salted, or of which there are few


class Resolver(Protocol):
    """The interface through which the interpreter resolves everything that is not a container or a scalar."""

    def find_global(self, u: Unpickler, module: str, name: str) -> Any:
        """The object that stands for `module.name`, or UnpicklingError."""

    def call(self, u: Unpickler, function: Any, args: tuple) -> Any:
        """The value of REDUCE."""

    def new(self, u: Unpickler, cls: Any, args: tuple, kwargs: dict) -> Any:
        """The value of NEWOBJ and NEWOBJ_EX."""

    def build(self, u: Unpickler, instance: Any, state: Any) -> Any:
        """The value of BUILD: normally `instance`, changed."""

    def storage(self, storage: RawStorage) -> Any:
        """Return the value of a storage that stands in the result by itself."""

    def fill(self, u: Unpickler, target: Any, items: list, kind: str) -> None:
        """Put items (kind `list`, or `dict` with keys and values alternating) into a foreign container."""


class Unpickler:
    """Read one pickle from `data` at `position`; `load` returns the object, `position` is then behind it.

    data: bytes or memoryview.  persistent_load(pid) gives the object of BINPERSID.  encoding: of Python 2
    strings (`bytes` keeps them as bytes; strings that do not decode stay bytes too).
    """

    def __init__(
        self,
        data: Any,
        position: int = 0,
        *,
        resolver: Resolver,
        persistent_load: Callable[[Any], Any] | None = None,
        encoding: str = "utf-8",
        limits: Limits = DEFAULT_LIMITS,
        budget: Budget | None = None,
    ) -> None:
        self.data = memoryview(data)
        self.end = len(self.data)
        self.position = position
        self.resolver = resolver
        self.persistent_load = persistent_load
        self.encoding = encoding
        self.limits = limits
        self.budget = budget or Budget(limits.base_memory + limits.memory_ratio * (self.end - position))
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: list[Any] = []  # a pickle numbers what it remembers in order
        self.sparse: dict[int, Any] = {}  # or else here
        self.globals: dict[tuple[str, str], Any] = {}
        self.attributes: list[dict[str, Any]] = []  # of objects of the program, which may hold storages, too
        self.made: dict[int, tuple[Any, Any]] = {}  # by id: a storage or tuple and its value
        self.probes = 0

    def load(self) -> Any:
        """Run to STOP.  Raises UnpicklingError for everything that is wrong with the pickle."""
        start, data, dispatch = self.position, self.data, _DISPATCH
        try:
            for _ in range(self.limits.opcodes):
                opcode = data[self.position]
                self.position += 1
                handler = dispatch[opcode]
                if handler is None:
                    if opcode == _STOP:
                        result = self.stack.pop()
                        return self.finish(result)
                    self.refuse_opcode(opcode)
                handler(self)
        except UnpicklingError:
            raise
        except (IndexError, KeyError, struct.error) as e:
            what = "is truncated" if self.position >= self.end else "is malformed"
            raise UnpicklingError(f"the pickle {what} at byte {self.position - start}") from e
        except (ValueError, TypeError, OverflowError, AttributeError, RuntimeError, MemoryError) as e:
            raise UnpicklingError(f"the pickle is malformed at byte {self.position - start}: {shown(e)}") from e
        raise UnpicklingError(f"the pickle has more than {self.limits.opcodes} opcodes")

    def finish(self, result: Any) -> Any:
        """Check the depth of the result, and let storages that stand in it by themselves become values."""
        for holder in check_depth((result, *self.attributes), self.limits.depth + 1):
            self.resolve(holder)
        return self.resolved(result)

    def resolve(self, holder: list[Any] | dict[Any, Any]) -> None:
        """Let the storages that a list or dict holds by themselves, or in tuples, become values."""
        for key, value in [*(holder.items() if isinstance(holder, dict) else enumerate(holder))]:
            if type(value) is RawStorage or isinstance(value, tuple):
                holder[key] = self.resolved(value)

    def resolved(self, value: Any) -> Any:
        """`value`, or where it is a storage or a tuple that holds some, what is made of it: the same every time."""
        if type(value) is RawStorage:
            if id(value) not in self.made:
                self.made[id(value)] = value, self.resolver.storage(value)
            return self.made[id(value)][1]
        if not isinstance(value, tuple):
            return value
        if id(value) not in self.made:
            parts = [self.resolved(part) for part in value]
            same = all(part is old for part, old in zip(parts, value))
            kind: Any = type(value)
            self.made[id(value)] = value, value if same else kind(*parts) if hasattr(value, "_fields") else kind(parts)
        return self.made[id(value)][1]

    def refuse_opcode(self, opcode: int) -> None:
        raise UnpicklingError(f"the pickle opcode {_REFUSED.get(opcode, 'is unknown')} (0x{opcode:02x}) is refused")

    # -- reading ---------------------------------------------------------------------------------------

    def take(self, n: int) -> memoryview:
        """The next `n` bytes."""
        start = self.position
        stop = start + n
        if stop > self.end:
            raise UnpicklingError(f"the pickle is truncated: {n} bytes are announced, {self.end - start} are left")
        self.position = stop
        return self.data[start:stop]

    def line(self) -> bytes:
        """The next bytes up to a newline, without it."""
        start = self.position
        chunk = bytes(self.data[start : start + self.limits.line])
        length = chunk.find(b"\n")
        if length < 0:
            raise UnpicklingError("the pickle has a line without an end, or one that is too long")
        self.position = start + length + 1
        return chunk[:length]

    def pop_mark(self) -> list[Any]:
        """The items above the last MARK, removed."""
        items = self.stack
        self.stack = self.marks.pop()
        return items

    def old_string(self, raw: Any) -> Any:
        """A Python 2 string: decoded, or bytes if that is not possible."""
        raw = bytes(raw)
        if self.encoding == "bytes":
            return raw
        try:
            return raw.decode(self.encoding)
        except UnicodeDecodeError:
            return raw

    def check_key(self, key: Any, filled: int) -> None:
        """Refuse keys whose hash would be slow to take or easy to make collide, in a container of `filled` others."""
        kind = type(key)
        if kind in _FREE_KEYS:
            return
        weight = 16  # two that have the same hash are compared
        if kind is int:
            if 0 <= key <= filled + (filled >> 1) or 0 <= key < 8:
                return  # smaller than the table: no two such keys begin at the same place
            if key.bit_length() > 64:
                raise UnpicklingError("an integer of more than 64 bits is refused as a key")
            weight = 1
        elif isinstance(key, (tuple, frozenset)):
            numbers = self._numbers_in(key)
            if not numbers:
                return
            weight += 4 * numbers
        self.probes += weight * filled
        if self.probes > self.limits.probes:
            raise UnpicklingError(
                f"its dictionaries may take more than {self.limits.probes} steps to fill: too many keys are numbers"
            )

    def check_keys(self, keys: Iterable[Any]) -> None:
        """`check_key` for all keys of a container that is about to be made."""
        for filled, key in enumerate(keys):
            if type(key) is not str:
                self.check_key(key, filled)

    def _numbers_in(self, key: Any) -> int:
        """Count the parts of a tuple, 0 if all are text; one that is too large or too deep is refused."""
        pending, parts, numbers = list(key), len(key), False
        while pending:
            part = pending.pop()
            numbers = numbers or type(part) is not str
            if isinstance(part, (tuple, frozenset)):
                parts += len(part)
                if parts <= self.limits.key_parts:
                    pending.extend(part)
            elif type(part) is int and part.bit_length() > 64:
                raise UnpicklingError("an integer of more than 64 bits is refused as a key")
            if parts > self.limits.key_parts:
                raise UnpicklingError(f"a key of more than {self.limits.key_parts} parts is refused")
        return parts if numbers else 0

    def find_global(self, module: str, name: str) -> Any:
        found = self.globals.get((module, name), self)
        if found is self:
            found = self.globals[module, name] = self.resolver.find_global(self, module, name)
        return found

    def set_items(self, target: Any, items: list[Any]) -> None:
        """Put alternating keys and values into a dict."""
        if len(items) % 2:
            raise UnpicklingError("the pickle sets a key without a value")
        if type(target) not in _DICTS:
            self.resolver.fill(self, target, items, "dict")
            return
        for i in range(0, len(items), 2):
            key = items[i]
            if type(key) is not str:
                self.check_key(key, len(target))
            target[key] = items[i + 1]

    def replace(self, old: Any, new: Any) -> None:
        """Let the memo's latest entries that are `old` be `new` (an object that cannot be filled in place)."""
        memo, sparse = self.memo, self.sparse
        for index in range(max(len(memo) - 64, 0), len(memo)):
            if memo[index] is old:
                memo[index] = new
        for index in list(islice(reversed(sparse), 64)):
            if sparse[index] is old:
                sparse[index] = new

    def remember(self, index: int) -> None:
        memo = self.memo
        if index == len(memo):
            memo.append(self.stack[-1])
            if self.sparse:
                self.sparse.pop(index, None)
        elif index < len(memo):
            memo[index] = self.stack[-1]
        else:
            if index not in self.sparse:
                self.budget.spend(_CONTAINER)
            self.sparse[index] = self.stack[-1]

    def recall(self, index: int) -> None:
        memo = self.memo
        self.stack.append(memo[index] if index < len(memo) else self.sparse[index])


# -- opcodes -------------------------------------------------------------------------------------------

_DISPATCH: list[Callable[[Unpickler], None] | None] = [None] * 256
_STOP = ord(".")
_REFUSED = {
    ord("i"): "INST",
    ord("o"): "OBJ",
    ord("P"): "PERSID",
    0x82: "EXT1",
    0x83: "EXT2",
    0x84: "EXT4",
    0x97: "NEXT_BUFFER",
    0x98: "READONLY_BUFFER",
}

_u16, _i32, _u32 = struct.Struct("<H").unpack_from, struct.Struct("<i").unpack_from, struct.Struct("<I").unpack_from
_u64, _f64 = struct.Struct("<Q").unpack_from, struct.Struct(">d").unpack_from


def _opcode(code: bytes | int) -> Callable:
    def register(handler: Callable[[Unpickler], None]) -> Callable[[Unpickler], None]:
        _DISPATCH[code if isinstance(code, int) else code[0]] = handler
        return handler

    return register


def _constant(code: bytes | int, value: Any) -> None:
    _opcode(code)(lambda u: u.stack.append(value))


_constant(b"N", None)
_constant(0x88, True)
_constant(0x89, False)
_constant(b")", ())


def _number(code: bytes | int, unpack: Callable, width: int) -> None:
    def handler(u: Unpickler) -> None:
        u.stack.append(unpack(u.data, u.position)[0])
        u.position += width

    _opcode(code)(handler)


_number(b"J", _i32, 4)
_number(b"M", _u16, 2)
_number(b"G", _f64, 8)


@_opcode(b"K")
def _binint1(u: Unpickler) -> None:
    u.stack.append(u.data[u.position])
    u.position += 1


@_opcode(0x80)
def _proto(u: Unpickler) -> None:
    protocol = u.take(1)[0]
    if protocol > 5:
        raise UnpicklingError(f"the pickle has protocol {protocol}, newer than 5")


@_opcode(0x95)
def _frame(u: Unpickler) -> None:
    length = _u64(u.data, u.position)[0]
    u.position += 8
    if length > u.end - u.position:
        raise UnpicklingError(f"the pickle is truncated: a frame of {length} bytes is announced")


# Containers.


@_opcode(b"(")
def _mark(u: Unpickler) -> None:
    if len(u.marks) >= u.limits.marks:
        raise UnpicklingError(f"the pickle nests more than {u.limits.marks} deep")
    u.marks.append(u.stack)
    u.stack = []


@_opcode(b"0")
def _pop(u: Unpickler) -> None:
    if u.stack:
        u.stack.pop()
    else:
        u.pop_mark()


@_opcode(b"1")
def _pop_mark(u: Unpickler) -> None:
    u.pop_mark()


@_opcode(b"2")
def _dup(u: Unpickler) -> None:
    u.stack.append(u.stack[-1])


@_opcode(b"]")
def _empty_list(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    u.stack.append([])


@_opcode(b"}")
def _empty_dict(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    u.stack.append({})


@_opcode(0x8F)
def _empty_set(u: Unpickler) -> None:
    u.budget.spend(2 * _CONTAINER)
    u.stack.append(set())


@_opcode(b"l")
def _list(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    items = u.pop_mark()  # first: it changes which list u.stack is
    u.stack.append(items)


@_opcode(b"d")
def _dict(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    items, target = u.pop_mark(), {}
    u.set_items(target, items)
    u.stack.append(target)


@_opcode(b"t")
def _tuple(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    items = u.pop_mark()
    u.stack.append(tuple(items))


@_opcode(0x85)
def _tuple1(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    u.stack[-1] = (u.stack[-1],)


@_opcode(0x86)
def _tuple2(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    second = u.stack.pop()
    u.stack[-1] = (u.stack[-1], second)


@_opcode(0x87)
def _tuple3(u: Unpickler) -> None:
    u.budget.spend(_CONTAINER)
    third, second = u.stack.pop(), u.stack.pop()
    u.stack[-1] = (u.stack[-1], second, third)


@_opcode(0x91)
def _frozenset(u: Unpickler) -> None:
    items = u.pop_mark()
    u.budget.spend(2 * _CONTAINER + 64 * len(items))
    u.check_keys(items)
    u.stack.append(frozenset(items))


def _extend(u: Unpickler, items: list[Any]) -> None:
    target = u.stack[-1]
    if type(target) is list:
        target.extend(items)
    else:
        u.resolver.fill(u, target, items, "list")


@_opcode(b"a")
def _append(u: Unpickler) -> None:
    item = u.stack.pop()
    _extend(u, [item])


@_opcode(b"e")
def _appends(u: Unpickler) -> None:
    items = u.pop_mark()
    _extend(u, items)


@_opcode(0x90)
def _additems(u: Unpickler) -> None:
    items = u.pop_mark()
    target = u.stack[-1]
    if type(target) is not set:
        raise UnpicklingError(f"ADDITEMS is for sets, not for {shown(type(target).__name__)}")
    for item in items:
        u.check_key(item, len(target))
        target.add(item)


@_opcode(b"s")
def _setitem(u: Unpickler) -> None:
    value, key = u.stack.pop(), u.stack.pop()
    u.set_items(u.stack[-1], [key, value])


@_opcode(b"u")
def _setitems(u: Unpickler) -> None:
    items = u.pop_mark()
    u.set_items(u.stack[-1], items)


# The memo.


def _index(u: Unpickler) -> int:
    text = u.line()
    if len(text) > 10 or not text.isdigit():
        raise UnpicklingError(f"the pickle has the memo index {shown(text)}")
    return int(text)


@_opcode(b"q")
def _binput(u: Unpickler) -> None:
    u.remember(u.data[u.position])
    u.position += 1


@_opcode(b"r")
def _long_binput(u: Unpickler) -> None:
    u.remember(_u32(u.data, u.position)[0])
    u.position += 4


@_opcode(b"p")
def _put(u: Unpickler) -> None:
    u.remember(_index(u))


@_opcode(0x94)
def _memoize(u: Unpickler) -> None:
    u.remember(len(u.memo) + len(u.sparse))


@_opcode(b"h")
def _binget(u: Unpickler) -> None:
    u.recall(u.data[u.position])
    u.position += 1


@_opcode(b"j")
def _long_binget(u: Unpickler) -> None:
    u.recall(_u32(u.data, u.position)[0])
    u.position += 4


@_opcode(b"g")
def _get(u: Unpickler) -> None:
    u.recall(_index(u))


# Numbers as text, and integers of any width.


def _digits(u: Unpickler) -> bytes:
    text = u.line()
    if len(text) >= u.limits.digits:
        raise UnpicklingError(f"the pickle has a number of more than {u.limits.digits} digits")
    return text


@_opcode(b"I")
def _int(u: Unpickler) -> None:
    text = _digits(u)
    u.stack.append({b"00": False, b"01": True}[text] if text in (b"00", b"01") else int(text))


@_opcode(b"L")
def _long(u: Unpickler) -> None:
    text = _digits(u)
    u.stack.append(int(text[:-1] if text.endswith(b"L") else text))


@_opcode(b"F")
def _float(u: Unpickler) -> None:
    u.stack.append(float(_digits(u)))


def _wide_int(u: Unpickler, length: int) -> None:
    if not 0 <= length <= u.limits.digits:
        raise UnpicklingError(f"the pickle has an integer of {length} bytes")
    u.stack.append(int.from_bytes(u.take(length), "little", signed=True))


@_opcode(0x8A)
def _long1(u: Unpickler) -> None:
    _wide_int(u, u.take(1)[0])


@_opcode(0x8B)
def _long4(u: Unpickler) -> None:
    _wide_int(u, _i32(u.take(4))[0])


# Strings.


def _counted(code: bytes | int, length: Callable, width: int, make: Callable[[Unpickler, memoryview], Any]) -> None:
    def handler(u: Unpickler) -> None:
        n = length(u.data, u.position)[0]
        u.position += width
        u.stack.append(make(u, u.take(n)))

    _opcode(code)(handler)


def _utf8(u: Unpickler, raw: memoryview) -> str:
    return str(raw, "utf-8", "surrogatepass")


_u8 = struct.Struct("<B").unpack_from
_counted(b"X", _u32, 4, _utf8)
_counted(0x8C, _u8, 1, _utf8)
_counted(0x8D, _u64, 8, _utf8)
_counted(b"B", _u32, 4, lambda u, raw: bytes(raw))
_counted(b"C", _u8, 1, lambda u, raw: bytes(raw))
_counted(0x8E, _u64, 8, lambda u, raw: bytes(raw))
_counted(0x96, _u64, 8, lambda u, raw: bytearray(raw))
_counted(b"T", _u32, 4, Unpickler.old_string)
_counted(b"U", _u8, 1, Unpickler.old_string)


@_opcode(b"V")
def _unicode(u: Unpickler) -> None:
    u.stack.append(u.line().decode("raw-unicode-escape"))


_ESCAPED = re.compile(rb"""(?:[^\\]|\\(?:[\\'"abfnrtv]|x[0-9a-fA-F]{2}|[0-3]?[0-7]{1,2}))*""")


@_opcode(b"S")
def _string(u: Unpickler) -> None:
    text = u.line()
    if len(text) < 2 or text[0] != text[-1] or text[:1] not in (b"'", b'"'):
        raise UnpicklingError("the pickle has a string without quotes")
    inner = text[1:-1]
    if not _ESCAPED.fullmatch(inner):
        raise UnpicklingError("the pickle has a string with an unknown escape")
    u.stack.append(u.old_string(inner.decode("unicode_escape").encode("latin-1")))


# Objects: everything here is the resolver's business.


@_opcode(b"c")
def _global(u: Unpickler) -> None:
    module, name = u.line(), u.line()
    u.stack.append(u.find_global(module.decode("utf-8"), name.decode("utf-8")))


@_opcode(0x93)
def _stack_global(u: Unpickler) -> None:
    name, module = u.stack.pop(), u.stack.pop()
    if type(name) is not str or type(module) is not str or len(name) + len(module) > u.limits.line:
        raise UnpicklingError("STACK_GLOBAL needs two short strings")
    u.stack.append(u.find_global(module, name))


def _arguments(args: Any) -> tuple:
    if type(args) is not tuple:
        raise UnpicklingError(f"the arguments of a call are a {shown(type(args).__name__)}, not a tuple")
    return args


@_opcode(b"R")
def _reduce(u: Unpickler) -> None:
    given = u.stack.pop()
    if type(given) is not tuple and getattr(u.stack[-1], "takes_one", False):  # TorchScript's enumerations
        given = (given,)
    u.stack[-1] = u.resolver.call(u, u.stack[-1], _arguments(given))


@_opcode(0x81)
def _newobj(u: Unpickler) -> None:
    args = _arguments(u.stack.pop())
    u.stack[-1] = u.resolver.new(u, u.stack[-1], args, {})


@_opcode(0x92)
def _newobj_ex(u: Unpickler) -> None:
    kwargs, args = u.stack.pop(), u.stack.pop()
    if type(kwargs) is not dict or not all(type(k) is str for k in kwargs):
        raise UnpicklingError("the keyword arguments of a call are not a dict of names")
    u.stack[-1] = u.resolver.new(u, u.stack[-1], _arguments(args), kwargs)


@_opcode(b"b")
def _build(u: Unpickler) -> None:
    state = u.stack.pop()
    u.stack[-1] = u.resolver.build(u, u.stack[-1], state)


@_opcode(b"Q")
def _binpersid(u: Unpickler) -> None:
    if u.persistent_load is None:
        raise UnpicklingError("the pickle refers to an object outside itself where none is expected")
    u.stack[-1] = u.persistent_load(u.stack[-1])
