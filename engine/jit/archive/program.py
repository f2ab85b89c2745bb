"""The program of an archive: its files of code, parsed and checked, and the functions compiled from them."""

from __future__ import annotations

import ast
import bisect
import builtins
import enum
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.core.device import device as Device
from engine.jit.archive import kinds, objects, python_operators
from engine.jit.archive.compiler import FunctionWriter, Scope, text_of
from engine.jit.archive.futures import Future
from engine.jit.archive.grammar import check_identifier, parse, refused
from engine.jit.archive.kinds import ANY, TENSOR, Kind, dotted, parse_kind
from engine.serialization import UnpicklingError
from engine.serialization.errors import shown
from engine.tensor import Tensor

__all__ = ["ClassRecord", "FunctionRecord", "Program"]

_LISTS = {
    "__parameters__": "parameters",
    "__buffers__": "buffers",
    "__forward_hooks__": "hooks",
    "__forward_pre_hooks__": "pre_hooks",
    "__constants__": "ignored",
    "__overloads__": "ignored",
    "__annotations__": "ignored",
}
_BASES = {
    "Module": "module",
    "NamedTuple": "tuple",
    "Interface": "interface",
    "ModuleInterface": "interface",
    "Enum": "enum",
}


@dataclass
class FunctionRecord:
    """A function or method: its names, its parameters as (name, type, default or None), its tree and its place."""

    name: str
    path: str
    node: ast.FunctionDef
    where: str
    key: int
    parameters: list[tuple[str, Kind, ast.expr | None]]
    returns: Kind

    @property
    def schema(self) -> str:
        """`forward(Tensor x, int n=1) -> Tensor`."""
        parts = [
            f"{kind.schema_text} {name}" + ("" if default is None else f"={ast.unparse(default)}")
            for name, kind, default in self.parameters
        ]
        return f"{self.name}({', '.join(parts)}) -> {self.returns.schema_text}"


@dataclass
class ClassRecord:
    """A class of the archive.  kind: module, object, tuple, interface or enum."""

    name: str
    path: str
    kind: str
    where: str
    key: int
    node: ast.ClassDef
    attributes: dict[str, Kind] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    constant_kinds: dict[str, Kind] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)
    methods: dict[str, FunctionRecord] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    made: Any = None

    @property
    def takes_one(self) -> bool:
        """Whether its values are written as a call of one argument without a tuple: members of an enumeration."""
        return self.kind == "enum"


class Program:
    """Classes and functions of an archive by qualified name (`__torch__.M`), and the functions that they became.

    files: path in the archive (`code/__torch__/a.py`) -> text.  constants: what `CONSTANTS.c0` and so on are.
    version: of the operators (the archive's `version`).  python: functions that code compiled in this process calls
    as they are (`ops.python.call0`), None for an archive: no such name is bound there.  Raises UnpicklingError for code
    that is refused.
    """

    def __init__(
        self, files: Mapping[str, bytes], constants: list[Any], version: int, python: Sequence[Any] | None = None
    ) -> None:
        self.python = None if python is None else list(python)
        self.files, self.constants, self.version = dict(files), constants, version
        self.filename = f"<torchscript {id(self):x}>"
        self.classes: dict[str, ClassRecord] = {}
        self.functions: dict[str, FunctionRecord] = {}
        self._all: list[FunctionRecord] = []
        self._lines: dict[str, list[str]] = {}
        self._starts: list[int] = []
        self._places: list[tuple[str, list[int]]] = []
        for path in sorted(files):
            self._read(path, files[path])
        self.scope = Scope(self.resolve, len(constants), version, self.python)
        self._functions: dict[str, Callable[..., Any]] = {}
        self._compile()

    # -- reading

    def _read(self, path: str, text: bytes) -> None:
        tree = parse(text, path)
        prefix = path.removeprefix("code/").removesuffix(".py").replace("/", ".")
        for part in prefix.split("."):
            check_identifier(path, None, part)
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                self._read_class(path, prefix, node)
            elif isinstance(node, ast.FunctionDef):
                name = f"{prefix}.{node.name}"
                self._unused(path, node, name)
                self.functions[name] = self._read_function(path, node, name)
            elif not self._is_header(node):
                raise refused(path, node, f"{type(node).__name__} stands outside functions and classes")

    @staticmethod
    def _is_header(node: ast.stmt) -> bool:
        """`op_version_set = 1` and `import __torch__.a.b`, which older torch writes."""
        if isinstance(node, ast.Import):
            return all(a.name.split(".")[0] == "__torch__" and a.asname is None for a in node.names)
        return (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "op_version_set"
            and isinstance(node.value, ast.Constant)
        )

    def _unused(self, path: str, node: ast.stmt, name: str) -> None:
        if name in self.classes or name in self.functions:
            raise refused(path, node, f"{shown(name)} is defined twice")
        check_identifier(path, node, name.rpartition(".")[2])

    def _read_function(self, path: str, node: ast.FunctionDef, name: str) -> FunctionRecord:
        a, parameters = node.args, []
        defaults = [None] * (len(a.args) - len(a.defaults)) + list(a.defaults)
        for i, (arg, default) in enumerate(zip(a.args, defaults)):
            untyped = ANY if i == 0 and arg.annotation is None and arg.arg == "self" else TENSOR
            kind = untyped if arg.annotation is None else self._kind(path, arg.annotation)
            parameters.append((arg.arg, kind, default))
        returns = ANY if node.returns is None else self._kind(path, node.returns)
        record = FunctionRecord(node.name, name, node, path, len(self._all), parameters, returns)
        check_identifier(path, node, node.name)
        self._all.append(record)
        return record

    def _kind(self, path: str, node: ast.AST) -> Kind:
        try:
            return parse_kind(node)
        except ValueError as e:
            raise refused(path, node, str(e)) from None

    def _read_class(self, path: str, prefix: str, node: ast.ClassDef) -> None:
        name = f"{prefix}.{node.name}"
        self._unused(path, node, name)
        if node.decorator_list or node.keywords or len(node.bases) > 1:
            raise refused(path, node, "a class has decorators, keywords or several bases")
        base = dotted(node.bases[0]) if node.bases else ""
        if node.bases and base not in _BASES:
            raise refused(path, node, f"a class is based on {shown(base or 'an expression')}")
        kind = _BASES[base] if base else "object"
        record = ClassRecord(node.name, name, kind, path, len(self.classes), node)
        for statement in node.body:
            self._read_member(record, statement)
        self._check_names(record)
        self.classes[name] = record

    def _read_member(self, record: ClassRecord, node: ast.stmt) -> None:
        path = record.where
        if isinstance(node, ast.FunctionDef):
            if node.name in record.methods:
                raise refused(path, node, f"the method {shown(node.name)} is defined twice")
            method = self._read_function(path, node, f"{record.path}.{node.name}")
            if record.kind == "interface":
                self._all.pop()
            record.methods[node.name] = method
            if not method.parameters:
                raise refused(path, node, "methods must have a self argument")
            if method.parameters[0][2] is not None:
                raise refused(path, node, "a method's self has a default")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            self._declare(record, node, node.target.id, node.annotation, node.value)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Subscript) and dotted(target.value) == "__annotations__":
                key = target.slice
                if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                    raise refused(path, node, "an attribute is declared under a name that is not text")
                self._declare(record, node, text_of(key.value), node.value, None)
            elif isinstance(target, ast.Name) and target.id in _LISTS:
                names = self.literal(path, node.value)
                if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
                    raise refused(path, node, f"{target.id} is not a list of names")
                record.lists[_LISTS[target.id]] = names
            elif isinstance(target, ast.Name) and record.kind == "enum":
                record.constants[check_identifier(path, node, target.id)] = self.literal(path, node.value)
            else:
                raise refused(path, node, "a class assigns something other than a list of its attributes")
        elif not isinstance(node, ast.Pass):
            raise refused(path, node, f"{type(node).__name__} stands in a class")

    def _declare(self, record: ClassRecord, node: ast.stmt, name: str, annotation: ast.AST, value: Any) -> None:
        if name in record.attributes or name in record.constants:
            raise refused(record.where, node, f"the attribute {shown(name)} is declared twice")
        kind = self._kind(record.where, annotation)
        if record.kind == "enum" and value is not None:
            record.constants[check_identifier(record.where, node, name)] = self.literal(record.where, value)
        elif kind.name == "Final":
            if value is None:
                raise refused(record.where, node, f"the constant {shown(name)} has no value")
            record.constants[name] = self.literal(record.where, value)
            record.constant_kinds[name] = kind.inner[0]
        else:
            record.attributes[name] = kind
            if value is not None:
                record.defaults[name] = self.literal(record.where, value)

    def _check_names(self, record: ClassRecord) -> None:
        """Refuse attributes that would stand in the way of Python's own."""
        both = record.methods.keys() & (record.attributes.keys() | record.constants.keys())
        if both:
            raise refused(record.where, record.node, f"{shown(min(both))} is both an attribute and a method")
        for name in (*record.attributes, *record.constants):
            if not name or len(name) > 1000 or not name.isprintable() or "." in name:
                raise refused(record.where, record.node, f"an attribute is called {shown(name)!r}")
            if name.startswith("__"):
                raise refused(record.where, record.node, f"the attribute {shown(name)} would hide one of Python's own")
            if record.kind == "module" and name in objects.own_names() | {"_values"}:
                raise refused(record.where, record.node, f"the attribute {shown(name)} would hide one of nn.Module's")
        if record.kind in ("tuple", "enum"):
            for name in (record.name, *record.attributes, *record.constants):
                check_identifier(record.where, record.node, name)

    def literal(self, where: str, node: ast.AST, depth: int = 0) -> Any:
        """The value of an expression that consists of constants."""
        if depth > 16:
            raise refused(where, node, "a constant is nested more than 16 deep")
        if isinstance(node, ast.Constant):
            if isinstance(node.value, bytes) or node.value is ...:
                raise refused(where, node, "a constant has a type that TorchScript lacks")
            if isinstance(node.value, int) and abs(node.value) >= 1 << 64:
                raise refused(where, node, "a number does not fit 64 bits")
            return text_of(node.value) if isinstance(node.value, str) else node.value
        if isinstance(node, ast.UnaryOp):
            value = self.literal(where, node.operand, depth + 1)
            if isinstance(value, int | float | complex):
                return -value
        if isinstance(node, ast.List | ast.Tuple):
            items = [self.literal(where, item, depth + 1) for item in node.elts]
            return items if isinstance(node, ast.List) else tuple(items)
        if isinstance(node, ast.Dict) and None not in node.keys:
            keys = [self.literal(where, key, depth + 1) for key in node.keys if key is not None]
            if not all(isinstance(key, str | int | float) for key in keys):
                raise refused(where, node, "a constant dictionary has keys that are not text or numbers")
            return dict(zip(keys, [self.literal(where, value, depth + 1) for value in node.values]))
        if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
            return float(node.id)
        if isinstance(node, ast.Attribute):
            text = dotted(node) or ""
            if text.startswith("CONSTANTS.c") and text[11:].isdecimal() and int(text[11:]) < len(self.constants):
                return self.constants[int(text[11:])]
            found = self.resolve(text)
            if found is not None and found[0] == "enum":
                return self._class(self._by_key(found[1]))[found[2]]
        if isinstance(node, ast.Call) and len(node.args) == 1 and dotted(node.func) == "torch.device":
            name = self.literal(where, node.args[0], depth + 1)
            if isinstance(name, str):
                return Device(name)
        if isinstance(node, ast.Call) and len(node.args) == 2 and dotted(node.func) == "annotate":
            return self.literal(where, node.args[1], depth + 1)
        raise refused(where, node, "a constant is expected here")

    # -- resolving

    def resolve(self, path: str) -> tuple | None:
        """What a path `__torch__....` stands for: ("function" or "class", key), ("enum", key, member)."""
        found = self.functions.get(path)
        if found is not None:
            return "function", found.key
        record = self.classes.get(path)
        if record is not None:
            return None if record.kind in ("interface", "enum") else ("class", record.key)
        owner, _, member = path.rpartition(".")
        record = self.classes.get(owner)
        if record is not None and record.kind == "enum" and member in record.constants:
            return "enum", record.key, member
        return None

    def _by_key(self, key: int) -> ClassRecord:
        return list(self.classes.values())[key]

    def _class(self, record: ClassRecord) -> Any:
        if record.made is None:
            if record.kind == "module":
                record.made = objects.module_class(record, self)
            elif record.kind == "tuple":
                record.made = _guarded(record, lambda: objects.tuple_class(record))
            elif record.kind == "enum":
                record.made = _guarded(record, lambda: enum.Enum(record.name, dict(record.constants)))
                record.made.Λname = record.path
            else:
                record.made = objects.object_class(record, self)
        return record.made

    # -- compiling

    def _compile(self) -> None:
        lines: list[str] = []
        for record in self._all:
            writer = FunctionWriter(self.scope, record.where)
            try:
                writer.function(record.node, f"λf{record.key}")
            except RecursionError:
                raise refused(record.where, record.node, "an expression is nested too deeply") from None
            self._starts.append(len(lines) + 1)
            self._places.append((record.where, writer.origin))
            lines += writer.out
        try:
            code = compile("\n".join(lines) + "\n", self.filename, "exec", dont_inherit=True)
        except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError) as e:
            raise UnpicklingError(f"the archive's code is refused: {shown(e)}") from None
        bound = self.scope.bound
        bound.update(_BASICS)
        bound.update((f"λk{i}", value) for i, value in enumerate(self.constants))
        for record in self.classes.values():
            if record.kind != "interface":
                bound[f"λc{record.key}"] = self._class(record)
        exec(code, bound)
        self._functions = bound
        for record in self.classes.values():
            if record.kind in ("module", "object"):
                for name, method in record.methods.items():
                    setattr(record.made, "λ" + name, bound[f"λf{method.key}"])

    def callable(self, record: FunctionRecord) -> Callable[..., Any]:
        """The compiled form of a function."""
        return self._functions[f"λf{record.key}"]

    # -- telling

    def place(self, line: int) -> tuple[str, int]:
        """File and line of the archive for a line of the new text."""
        i = bisect.bisect_right(self._starts, line) - 1
        where, origin = self._places[i]
        return where, origin[min(line - self._starts[i], len(origin) - 1)]

    def line(self, where: str, number: int) -> str:
        """A line of a file of the archive."""
        lines = self._lines.get(where)
        if lines is None:
            lines = self._lines[where] = self.files[where].decode("utf-8").split("\n")
        return lines[number - 1] if 0 < number <= len(lines) else ""

    def shown_name(self, name: str) -> str:
        """The archive's name of a compiled function."""
        return self._all[int(name[2:])].name if name.startswith("λf") and name[2:].isdecimal() else name

    def text(self, record: FunctionRecord) -> str:
        """The archive's text of a function."""
        first, last = record.node.lineno, record.node.end_lineno or record.node.lineno
        self.line(record.where, 1)
        lines = self._lines[record.where][first - 1 : last]
        indent = len(lines[0]) - len(lines[0].lstrip())
        return "\n".join(line[indent:] for line in lines) + "\n"


def _guarded(record: ClassRecord, make: Callable[[], Any]) -> Any:
    try:
        return make()
    except (ValueError, TypeError, AttributeError) as e:
        raise refused(record.where, record.node, shown(e)) from None


# -- what every program may mention ------------------------------------------------------------------------


class _With:
    """A `with` statement of a program: the object's own methods, called as torch does."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __enter__(self) -> Any:
        return self.value.λ__enter__()

    def __exit__(self, *exc: object) -> None:
        self.value.λ__exit__(None, None, None)


def _new(cls: type) -> Any:
    if issubclass(cls, objects.RecursiveScriptModule):
        raise RuntimeError("a program creates a module, which TorchScript cannot")
    return object.__new__(cls)


def _make(cls: Any, *args: Any) -> Any:
    if issubclass(cls, tuple):
        return cls(*args)
    made = _new(cls)
    made.λ__init__(*args)
    return made


def _raise(message: Any = "", kind: Any = "builtins.RuntimeError", *rest: Any) -> None:
    raise objects.Raised(message, "builtins.RuntimeError" if kind is None else kind)


def _as_int(value: Any) -> Any:
    return int(value) if isinstance(value, Tensor) else value


def _as_float(value: Any) -> Any:
    return float(value) if isinstance(value, Tensor) else value


def _as_number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def _isinstance(value: Any, of: tuple[Kind, ...]) -> bool:
    return any(kinds.fits(value, kind) for kind in of)


def _fork(function: Callable[..., Any], *args: Any) -> Any:
    return Future(function(*args))


def _text(value: Any = "") -> str:
    return python_operators.shown(value)


_BASICS: dict[str, Any] = {
    "__builtins__": {},
    "λint": int,
    "λfloat": float,
    "λbool": bool,
    "λstr": _text,
    "λcomplex": complex,
    "λtuple": tuple,
    "λlist": list,
    "λrange": range,
    "λinf": math.inf,
    "λnan": math.nan,
    "λinfj": complex(0, math.inf),
    "λnanj": complex(0, math.nan),
    "λwith": _With,
    "λnew": _new,
    "λmake": _make,
    "λraise": _raise,
    "λas_int": _as_int,
    "λas_float": _as_float,
    "λas_number": _as_number,
    "λas_scalar": _as_number,
    "λas_complex": _as_number,
    "λas_bool": _as_number,
    "λisinstance": _isinstance,
    "λfork": _fork,
    "λprint": python_operators.print_,
    "λgetattr": builtins.getattr,
    "λdtype": python_operators.to_dtype,
    "λmemory_format": python_operators.to_memory_format,
    "λis": lambda a, b: a is b or a == b,
}
