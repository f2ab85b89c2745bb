"""`jit.load`: the zip archive that torch.jit.save writes, read without pickle and without executing its text.

Layout (torch/csrc/jit/serialization/export_module.cpp): `code/**.py`, `constants.pkl` with `constants/N`, `data.pkl`
with `data/N`, `version`, `byteorder`, `extra/*`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from engine.jit.archive.grammar import MAX_TEXT
from engine.jit.archive.kinds import Kind, fits
from engine.jit.archive.objects import RecursiveScriptModule, ScriptObject, run
from engine.jit.archive.program import ClassRecord, Program
from engine.nn.modules.module import Module
from engine.nn.parameter import Parameter
from engine.serialization._tensors import TensorBuilder
from engine.serialization.errors import DEFAULT_LIMITS, CallerError, UnpicklingError, shown
from engine.serialization.globals import Function, SafeResolver
from engine.serialization.readers import storage_reader
from engine.serialization.source import Source, naming
from engine.serialization.unpickler import Unpickler
from engine.serialization.ziparchive import ZipArchive
from engine.tensor import Tensor

__all__ = ["read"]

_MAX_CODE = 64 << 20  # bytes of all files of code
_MAX_DEPTH = 200  # of modules inside modules
_MAX_VERSION = 100
_QUANTIZED = "the archive is quantized: {}; TorchScript has no quantized tensors here"
_TAGS = ("build_intlist", "build_tensorlist", "build_doublelist", "build_boollist", "build_complexlist")


def read(f: Any, map_location: Any = None, extra_files: dict | None = None) -> RecursiveScriptModule:
    """The module in an archive; UnpicklingError, with the reason, for a file that is damaged or refused."""
    with naming(f):
        source = Source(f)
        try:
            archive = ZipArchive(source)
            root = _root(archive)
            archive.check().verify()
            module = _Reader(archive, root, TensorBuilder(map_location)).module()
            for name in extra_files or ():
                entry = f"{root}extra/{name}"
                if entry in archive.entries:
                    content = archive.text(entry, 1 << 30)
                    extra_files[name] = content if isinstance(extra_files[name], bytes) else content.decode("utf-8")
            source.finish(source.size)
            return module
        except CallerError as e:
            raise e.original from None
        finally:
            source.close()


def _root(archive: ZipArchive) -> str:
    """The folder of the archive, after a look at all names."""
    for name in archive.entries:
        parts = name.removesuffix("/").split("/")
        if "\\" in name or name.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise UnpicklingError(f"the archive has an entry with the name {shown(name)}, which leads out of it")
    roots = [
        n.removesuffix("constants.pkl") for n in archive.entries if n.count("/") == 1 and n.endswith("/constants.pkl")
    ]
    if len(roots) != 1:
        old = any(n.count("/") == 1 and n.endswith("/model.json") for n in archive.entries)
        raise UnpicklingError(
            "the archive was written by torch before 1.2 (it has a model.json), whose form is not supported"
            if old
            else "the file is not a TorchScript archive: it has no constants.pkl"
            if not roots
            else "the archive has more than one constants.pkl"
        )
    outside = next((n for n in archive.entries if not n.startswith(roots[0])), None)
    if outside is not None:
        raise UnpicklingError(f"the archive has the entry {shown(outside)} outside its folder {shown(roots[0])}")
    return roots[0]


class _Reader:
    def __init__(self, archive: ZipArchive, root: str, builder: TensorBuilder) -> None:
        self.archive, self.root, self.builder = archive, root, builder

    def module(self) -> RecursiveScriptModule:
        files = self._code()
        constants = self._pickle("constants", None)
        if type(constants) not in (tuple, list):
            raise UnpicklingError("the archive's constants are not a tuple")
        program = Program(files, list(constants), self._version())
        found = self._pickle("data", program)
        if not isinstance(found, RecursiveScriptModule):
            raise UnpicklingError("the archive's data.pkl holds something other than a module")
        _check_tree(found)
        return found

    def _code(self) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        total, folder = 0, f"{self.root}code/"
        for name in self.archive.entries:
            if name.startswith(folder) and name.endswith(".py"):
                content = self.archive.text(name, MAX_TEXT)
                total += len(content)
                if total > _MAX_CODE:
                    raise UnpicklingError(f"the archive has more than {_MAX_CODE} bytes of code")
                files[name[len(self.root) :]] = content
        return files

    def _version(self) -> int:
        for name in (f"{self.root}version", f"{self.root}.data/version"):
            if name in self.archive.entries:
                text = bytes(self.archive.read(name)[:16]).strip()
                if not text.isdigit() or not 1 <= int(text) <= _MAX_VERSION:
                    raise UnpicklingError(f"the archive has the version {shown(text)}")
                return int(text)
        raise UnpicklingError("the archive has no version")

    def _pickle(self, name: str, program: Program | None) -> Any:
        entry = f"{self.root}{name}.pkl"
        if entry not in self.archive.entries:
            raise UnpicklingError(f"the archive has no {name}.pkl")
        resolver = _Resolver(self.builder, program)
        u = Unpickler(
            self.archive.read(entry),
            resolver=resolver,
            limits=DEFAULT_LIMITS,
            persistent_load=storage_reader(self.archive, self.root, name),
        )
        found = u.load()
        resolver.settle()
        return found


class _Resolver(SafeResolver):
    """Answers for the classes of the program as well, and makes their objects."""

    def __init__(self, builder: TensorBuilder, program: Program | None) -> None:
        super().__init__(builder)
        self.program = program
        self.views: dict[tuple, Tensor] = {}
        self.parameters: dict[int, Parameter] = {}
        self.kept: list[Any] = []

    def find_global(self, u: Unpickler, module: str, name: str) -> Any:
        if module == "torch.jit._pickle":
            if name in _TAGS:
                return Function(f"{module}.{name}", lambda r, u, items: items)
            if name == "restore_type_tag":
                return Function(f"{module}.{name}", lambda r, u, value, tag: value)
        if module == "__torch__" or module.startswith("__torch__."):
            path = f"{module}.{name}"
            record = self.program.classes.get(path) if self.program is not None else None
            if record is not None and record.kind != "interface":
                return record
            if path.startswith("__torch__.torch.classes."):
                if ".quantized." in path:
                    raise UnpicklingError(_QUANTIZED.format(f"it holds packed parameters ({shown(path)})"))
                raise UnpicklingError(f"the archive holds an object of the C++ class {shown(path)}")
            raise UnpicklingError(f"the archive's code does not define {shown(path)}, of which its data has an object")
        if module == "torch._utils" and name == "_rebuild_qtensor":
            raise UnpicklingError(_QUANTIZED.format("it holds quantized tensors"))
        return super().find_global(u, module, name)

    def call(self, u: Unpickler, function: Any, args: tuple) -> Any:
        if type(function) is ClassRecord:
            u.budget.spend(512)
            return self._value_of(function, args)
        if type(function) is Function and function.path == "torch._utils._rebuild_tensor_v2" and len(args) >= 5:
            storage, offset, size, stride, *_ = args
            if type(offset) is int and all(type(t) is tuple and all(type(n) is int for n in t) for t in (size, stride)):
                key = (id(storage), offset, size, stride, args[4] is True)
                found = self.views.get(key)
                if found is None:
                    found = self.views[key] = super().call(u, function, args)
                    self.kept.append(storage)
                return found
        return super().call(u, function, args)

    def settle(self) -> None:
        """Give parameters memory of their own, but those that share a storage with others.

        Kernels keep the packed form of a weight only where nobody else holds its memory, a mapped file included.
        """
        uses = Counter(key[0] for key in self.views)
        for key, value in self.views.items():
            parameter = self.parameters.get(id(value))
            if parameter is not None and uses[key[0]] == 1:
                parameter.data = parameter.data.clone()

    def _value_of(self, record: ClassRecord, args: tuple) -> Any:
        """A named tuple, or a member of an enumeration."""
        try:
            if record.kind == "tuple" and len(args) == len(record.attributes):
                return record.made(*args)
            if record.kind == "enum" and len(args) == 1:
                return record.made(args[0])
        except (TypeError, ValueError) as e:
            raise UnpicklingError(f"an object of {shown(record.path)} cannot be made: {shown(e)}") from None
        raise UnpicklingError(f"an object of {shown(record.path)} is made from the wrong number of values")

    def new(self, u: Unpickler, cls: Any, args: tuple, kwargs: dict) -> Any:
        if type(cls) is not ClassRecord:
            return super().new(u, cls, args, kwargs)
        if cls.kind not in ("module", "object") or args or kwargs:
            raise UnpicklingError(f"an object of {shown(cls.path)} is made with arguments")
        u.budget.spend(4096 if cls.kind == "module" else 512)
        return cls.made() if cls.kind == "module" else object.__new__(cls.made)

    def build(self, u: Unpickler, instance: Any, state: Any) -> Any:
        if isinstance(instance, RecursiveScriptModule | ScriptObject):
            self._fill(instance, state)
            return instance
        return super().build(u, instance, state)

    def _fill(self, instance: Any, state: Any) -> None:
        record: ClassRecord = type(instance).Λrecord
        setter = record.methods.get("__setstate__")
        if setter is not None:
            if isinstance(instance, Module):
                instance.training = True
            function = type(instance).Λprogram.callable(setter)
            run(type(instance).Λprogram, function, (instance, state), {})
            return
        if type(state) is not dict or not all(type(key) is str for key in state):
            raise UnpicklingError(f"an object of {shown(record.path)} has a state that is not a dict of names")
        unknown = state.keys() - record.attributes.keys()
        if unknown:
            raise UnpicklingError(f"the class {shown(record.path)} does not declare {shown(min(unknown))}")
        missing = record.attributes.keys() - state.keys()
        if missing:
            raise UnpicklingError(f"an object of {shown(record.path)} lacks its attribute {shown(min(missing))}")
        for name, kind in record.attributes.items():
            _check_value(record, name, state[name], kind)
        if isinstance(instance, ScriptObject):
            for name in record.attributes:
                setattr(instance, "λ" + name, state[name])
            return
        self._fill_module(instance, record, state)

    def _fill_module(self, module: RecursiveScriptModule, record: ClassRecord, state: dict) -> None:
        parameters = frozenset(record.lists.get("parameters", ()))
        buffers = record.lists.get("buffers")
        for name in record.attributes:
            value = state[name]
            if name in parameters and isinstance(value, Tensor):
                module._parameters[name] = self._parameter(value)
            elif name in parameters and value is None:
                module._parameters[name] = None
        for name, kind in record.attributes.items():
            value = state[name]
            if name in module._parameters:
                continue
            if isinstance(value, Module):
                module._modules[name] = value
            elif name == "training":
                module.__dict__["training"] = value is True
            elif name == "_is_full_backward_hook":
                module.__dict__[name] = value if isinstance(value, bool) else None
            elif kind.name == "Tensor" and (buffers is None or name in buffers):
                module._buffers[name] = value
            else:
                module._values[name] = self._with_parameters(value)

    def _parameter(self, value: Tensor) -> Parameter:
        found = self.parameters.get(id(value))
        if found is None:
            self.kept.append(value)
            found = self.parameters[id(value)] = Parameter(value.detach(), value.requires_grad)
        return found

    def _with_parameters(self, value: Any) -> Any:
        """Lists of weights (an LSTM has one) hold the parameters themselves, so that training reaches them."""
        if type(value) is list:
            for i, item in enumerate(value):
                value[i] = self.parameters.get(id(item), item) if isinstance(item, Tensor) else item
            return value
        return self.parameters.get(id(value), value)


def _check_value(record: ClassRecord, name: str, value: Any, kind: Kind) -> None:
    """Refuse a value of another kind than its attribute is declared to have, where that matters to the program."""
    if kind.name == "Tensor" and value is None:  # a parameter or buffer that is not there
        return
    if kind.name.startswith("__torch__."):
        if (
            isinstance(value, RecursiveScriptModule | ScriptObject | tuple)
            or value is None
            or not hasattr(value, "shape")
        ):
            return
    elif (kind.name == "int" and isinstance(value, bool)) or fits(value, kind):
        return
    raise UnpicklingError(
        f"the attribute {shown(name)} of {shown(record.path)} is declared as {shown(str(kind))}, but has a "
        f"{shown(type(value).__name__)}"
    )


def _check_tree(root: RecursiveScriptModule) -> None:
    """Refuse modules that contain themselves, and those nested too deeply to be walked."""
    finished: set[int] = set()
    open_: list[tuple[Module, Any]] = [(root, iter(root._modules.values()))]
    inside = {id(root)}
    while open_:
        module, rest = open_[-1]
        child = next(rest, None)
        if child is None:
            open_.pop()
            inside.discard(id(module))
            finished.add(id(module))
        elif id(child) in inside:
            raise UnpicklingError("the archive's modules contain themselves")
        elif id(child) not in finished:
            inside.add(id(child))
            open_.append((child, iter(child._modules.values())))
            if len(open_) > _MAX_DEPTH:
                raise UnpicklingError(f"the archive's modules are nested more than {_MAX_DEPTH} deep")
