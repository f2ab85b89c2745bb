"""What is compiled together: functions, classes and modules under qualified names, and the archive's files of them."""

from __future__ import annotations

import enum
import inspect
import types
from typing import Any, get_type_hints

from engine.jit.archive import objects
from engine.jit.archive.kinds import NONE, TENSOR, Kind
from engine.jit.archive.schemas import MISSING, Value, subtype
from engine.jit.scripting import library, library_modules, markers
from engine.jit.scripting.context import Context
from engine.jit.scripting.expressions import EXPRESSIONS
from engine.jit.scripting.frontend import (
    CompileError,
    NotSupportedError,
    Source,
    annotation,
    broadcast_count,
    kind_of_value,
    source_of,
)
from engine.jit.scripting.infos import ClassInfo, FunctionInfo, modifier
from engine.jit.scripting.linking import joined, merge
from engine.jit.scripting.names import qualified
from engine.jit.scripting.signatures import signature, type_comment
from engine.jit.scripting.statements import compile_function
from engine.jit.scripting.values import constant, fitted
from engine.nn.modules.module import Module
from engine.tensor import Tensor

__all__ = ["Unit"]

_MODULE_OWN = frozenset(vars(Module())) | {"_values"}


class Unit:
    """Functions and classes that are compiled together, by qualified name."""

    def __init__(self) -> None:
        self.classes: dict[str, ClassInfo] = {}
        self.functions: dict[str, FunctionInfo] = {}
        self.constants: list[Tensor] = []
        self.python: list[Any] = []
        self._of_python: dict[Any, ClassInfo] = {}
        self._of_function: dict[Any, FunctionInfo] = {}
        self._of_module: dict[int, ClassInfo] = {}
        self._shared: dict[Any, ClassInfo] = {}
        self._foreign: dict[int, dict[str, str]] = {}
        self._running: list[Any] = []
        self.declared: dict[str, Any] = {}  # the functions of a source text

    def constant(self, tensor: Tensor) -> str:
        """A tensor as a constant of the archive."""
        for i, known in enumerate(self.constants):
            if known is tensor:
                return f"CONSTANTS.c{i}"
        self.constants.append(tensor)
        return f"CONSTANTS.c{len(self.constants) - 1}"

    def unused(self, path: str) -> str:
        """The name, or one like it that is free."""
        home, _, name = path.rpartition(".")
        found, number = path, 0
        while found in self.classes or found in self.functions:
            found = f"{home}.___torch_mangle_{number}.{name}"
            number += 1
        return found

    # -- what a type is

    def is_class(self, kind: Kind) -> bool:
        return kind.name in self.classes

    def is_module(self, kind: Kind) -> bool:
        return kind.name in self.classes and self.classes[kind.name].kind == "module"

    def is_tuple(self, kind: Kind) -> bool:
        return kind.name in self.classes and self.classes[kind.name].kind == "tuple"

    def is_enum(self, kind: Kind) -> bool:
        return kind.name in self.classes and self.classes[kind.name].kind == "enum"

    def is_interface(self, kind: Kind) -> bool:
        return kind.name in self.classes and self.classes[kind.name].kind == "interface"

    def conforms(self, kind: Kind, of: Kind) -> bool:
        """Whether a value of one type may stand where another is declared; interfaces ask for their methods."""
        if of.name == "Optional" and of.inner[0].name in self.classes and kind.name in self.classes:
            of = of.inner[0]
        target = self.classes.get(of.name)
        if target is not None and target.kind == "interface" and kind.name in self.classes and kind != of:
            return all(self.method(kind, name) is not None for name in target.methods)
        if self.is_tuple(kind) and of.name == "Tuple":
            return False
        return subtype(kind, of)

    def named(self, cls: type) -> Kind | None:
        """The type of a class of the user's, compiled now if need be."""
        if isinstance(cls, type) and issubclass(cls, Module) and not vars(cls).get("_is_interface"):
            return None
        try:
            cls = library_modules.CLASSES.get(cls, cls)
            info = self._of_python.get(cls)
        except TypeError:
            return None
        if info is None:
            info = self._new_class(cls)
        return None if info is None else Kind(info.path)

    def named_or_none(self, cls: type) -> Kind | None:
        """The type of a class that is known to the program already, or may be."""
        return self.named(cls)

    def _new_class(self, cls: type) -> ClassInfo | None:
        if issubclass(cls, enum.Enum):
            kinds = {kind_of_value(m.value, self.named) for m in cls}
            if len(kinds) != 1 or None in kinds:
                raise CompileError(f"Enum values of {cls.__name__} do not all have one type that TorchScript has")
            info = self._add(cls, "enum")
            info.attributes["value"] = kinds.pop()  # type: ignore[assignment]
            info.constants = {m.name: m.value for m in cls}
            return info
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            info = self._add(cls, "tuple")
            try:
                hints = get_type_hints(cls)
            except Exception:
                hints = getattr(cls, "__annotations__", {})
            names = dict(vars(inspect.getmodule(cls) or types))
            for name in cls._fields:
                info.attributes[name] = annotation(hints[name], self.named, names) if name in hints else TENSOR
            info.constants = dict(getattr(cls, "_field_defaults", {}))
            return info
        if getattr(cls, "_is_interface", False):
            info = self._add(cls, "interface")
            for name, function in vars(cls).items():
                if isinstance(function, types.FunctionType):
                    info.methods[name] = self._declared(info, function)
            return info
        if cls.__module__.split(".")[0] in ("builtins", "typing", "numpy") or issubclass(cls, Tensor):
            return None
        if getattr(cls, "_is_script_class", False) or cls in library_modules.CLASSES.values():
            return self._object_class(cls)
        return self._object_class(cls) if self._may_be_class(cls) else None

    @staticmethod
    def _may_be_class(cls: type) -> bool:
        """torch compiles a plain class that a function uses."""
        if issubclass(cls, BaseException) or cls.__module__.startswith("engine") or cls.__mro__[1:] != (object,):
            return False
        try:
            inspect.getsource(cls)
        except (OSError, TypeError):
            return False
        return True

    def _object_class(self, cls: type) -> ClassInfo:
        if cls.__mro__[1:] != (object,):
            raise CompileError(
                "TorchScript classes does not support inheritance yet. Please directly inherit from "
                f"object: {cls.__name__}"
            )
        info = self._add(cls, "object")
        for name, given in getattr(cls, "__annotations__", {}).items():
            names = dict(vars(inspect.getmodule(cls) or types))
            kind = annotation(given, self.named, names)
            if not str(given).startswith(("typing.Final", "Final")):
                info.attributes[name] = kind
        members = {n: f for n, f in vars(cls).items() if isinstance(f, types.FunctionType | staticmethod | property)}
        for name, function in members.items():
            plain = function.fget if isinstance(function, property) else function
            if isinstance(plain, types.FunctionType) and modifier(plain) not in ("ignore", "unused"):
                info.methods[name] = self._method(info, plain, name)
        for name in sorted(info.methods, key=lambda n: n != "__init__"):
            self._compile(info.methods[name], info)
        return info

    def _add(self, cls: type, kind: str) -> ClassInfo:
        path = self.unused(
            qualified(cls) if cls not in library_modules.CLASSES.values() else library_modules.PATHS[cls.__name__]
        )
        info = ClassInfo(cls.__name__, path, kind, cls)
        self.classes[path] = self._of_python[cls] = info
        return info

    # -- functions

    def function(self, obj: Any) -> FunctionInfo | None:
        """A Python function, compiled; None for what is none."""
        if isinstance(obj, objects.ScriptFunction):  # traced, or of an archive
            return self.functions[joined(self, obj.program)[obj.record.path]]
        replaced = library.replaced(obj)
        obj = obj if replaced is None else replaced
        if isinstance(obj, types.MethodType) and isinstance(obj.__self__, Module):
            return None
        obj = inspect.unwrap(obj) if callable(obj) and hasattr(obj, "__wrapped__") else obj
        if self.declared.get(getattr(obj, "__name__", "")) is obj:
            return self._of_function[obj]
        if not isinstance(obj, types.FunctionType):
            return None
        found = self._of_function.get(obj)
        if found is None:
            if not _plain(obj):
                return None
            found = FunctionInfo(obj.__name__, self.unused(qualified(obj)))
            found.name = found.path.rpartition(".")[2]
            self._of_function[obj] = found
            self.functions[found.path] = found
            if modifier(obj) == "ignore":
                return self._ignored(found, obj)
            self._describe(found, source_of(obj), None)
            self._compile(found, None)
        return found

    def _ignored(self, info: FunctionInfo, function: Any) -> FunctionInfo:
        self._describe(info, source_of(function), None)
        info.python = f"call{len(self.python)}"
        self.python.append(function)
        return info

    def _describe(self, info: FunctionInfo, source: Source, owner: ClassInfo | None) -> None:
        """Parameters and result, from the annotations."""
        parameters, info.returns = signature(self, source, owner)
        info.source = source
        context = self._context(info, source, owner)
        function = source.function
        values: dict[str, Any] = {}
        if isinstance(function, types.FunctionType):
            names = [p for p, _, _ in parameters]
            given = function.__defaults__ or ()
            positional = names[: function.__code__.co_argcount]
            values = dict(zip(reversed(positional), reversed(given)))
            values.update(function.__kwdefaults__ or {})
        elif hasattr(function, "defaults"):
            values = function.defaults
        for i, (name, kind, default) in enumerate(parameters):
            if i == 0 and owner is not None:
                kind = Kind(owner.path)
            value = None
            count = broadcast_count(getattr(function, "__annotations__", {}).get(name), source.names)
            if count is not None:
                info.counts[name] = count
                if isinstance(values.get(name), int | float):
                    values[name] = [values[name]] * count
            if name in values:
                value = constant(context, values[name])
                if value is None:
                    raise CompileError(
                        f"the default of the parameter '{name}' of {info.name} is no constant", source, default
                    )
                if values[name] == [] and kind.name == "List":
                    value = Value("[]", kind)
                if (
                    isinstance(value.const, int)
                    and kind.name in ("float", "Optional")
                    and Kind("float") in (kind, *kind.inner)
                ):
                    value = Value(repr(float(value.const)), Kind("float"), float(value.const))
                fit = fitted(context, value, kind)
                if fit is None:
                    raise CompileError(
                        f'Expected a default value of type {kind} on parameter "{name}"', source, default
                    )
                value = Value(
                    fit.text.removeprefix(f"annotate({kind}, ").removesuffix(")")
                    if fit.text.startswith("annotate(")
                    else fit.text,
                    fit.kind,
                    fit.const,
                )
            info.parameters.append((name, kind, value))

    def _compile(self, info: FunctionInfo, owner: ClassInfo | None) -> None:
        if info.lines is not None or info.source is None or info.python is not None:
            return
        if info in self._running:
            return
        self._running.append(info)
        try:
            if modifier(info.source.function) == "unused":
                name = info.source.name
                message = f"{name} is ignored: it was marked with @torch.jit.unused, and its Python code is not there"
                result = "None" if (info.returns or NONE) == NONE else f"uninitialized({info.returns})"
                info.lines = [f"  ops.prim.RaiseException({message!r})", f"  return {result}"]
                return
            compile_function(self._context(info, info.source, owner))
        finally:
            self._running.remove(info)

    def _context(self, info: FunctionInfo, source: Source, owner: ClassInfo | None) -> Context:
        return Context(unit=self, owner=owner, info=info, source=source, expressions=EXPRESSIONS)

    def result(self, info: FunctionInfo) -> Kind:
        """The type of what a function returns."""
        if info.returns is None and info.lines is None:
            if info in self._running:
                raise CompileError(f"function '{info.name}' is called recursively. Recursive calls are not supported")
            return TENSOR
        return info.returns or NONE

    # -- methods

    def has_method(self, kind: Kind, name: str) -> bool:
        return self.method(kind, name) is not None

    def method(self, kind: Kind, name: str) -> FunctionInfo | None:
        """The method of a class, compiled; None if it has none."""
        info = self.classes.get(kind.name)
        if info is None:
            return None
        found = info.methods.get(name)
        if found is None and info.kind == "module" and info.foreign is None:
            found = self._module_method(info, name)
        return found

    def _module_method(self, info: ClassInfo, name: str) -> FunctionInfo | None:
        if self.forms(Kind(info.path), name):
            return info.methods[name]
        cls = info.python
        given = library_modules.method(cls, name)
        if given is None:
            given = inspect.getattr_static(cls, name, None)
            own = info.module.__dict__.get(name)
            if isinstance(own, types.MethodType) and own.__self__ is info.module:
                given = own.__func__
            if isinstance(given, property):
                given = given.fget
            if given is None or getattr(Module, name, None) is given:
                return None
        if getattr(given, "__module__", "") == "engine.nn.modules.container":
            return None
        if isinstance(given, staticmethod) or not isinstance(given, types.FunctionType):
            return None
        method = self._method(info, given, name)
        self._compile(method, info)
        return method

    def _method(self, info: ClassInfo, function: Any, name: str) -> FunctionInfo:
        method = FunctionInfo(name, f"{info.path}.{name}")
        info.methods[name] = method
        kind = modifier(function)
        function = getattr(function, "_original", function)
        source = source_of(function, name)
        self._describe(method, source, info)
        if kind == "ignore":
            method.python = f"call{len(self.python)}"
            self.python.append(function)
        return method

    def forms(self, kind: Kind, name: str) -> list[FunctionInfo]:
        """The forms of a method that was declared with `torch.jit._overload_method`, compiled; none of any other."""
        info = self.classes[kind.name]
        function = getattr(info.python, name, None)
        if info.kind != "module" or info.foreign is not None or not isinstance(function, types.FunctionType):
            return []
        declared = markers._overloads.get((function.__module__, function.__qualname__), [])
        found = []
        for i, one in enumerate(declared):
            own = name if i == 0 else f"{name}__{i}"
            if own not in info.methods:
                method = info.methods[own] = FunctionInfo(own, f"{info.path}.{own}")
                source = source_of(function, own)
                told = types.FunctionType(
                    function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
                )
                told.__annotations__ = one.__annotations__
                source.function = told
                source.node.type_comment = source_of(one).node.type_comment
                if not one.__annotations__:
                    comment = type_comment(source_of(one))
                    source.node.type_comment = None if comment is None else f"({', '.join(comment[0])}) -> {comment[1]}"
                source.names = {**source.names, **source_of(one).names}
                self._describe(method, source, info)
                self._compile(method, info)
            found.append(info.methods[own])
        return found

    def _declared(self, info: ClassInfo, function: Any) -> FunctionInfo:
        """A method of an interface."""
        method = FunctionInfo(function.__name__, f"{info.path}.{function.__name__}")
        self._describe(method, source_of(function), info)
        method.returns = method.returns or NONE
        return method

    def base_method(self, owner: ClassInfo, info: FunctionInfo, function: Any, name: str) -> FunctionInfo | None:
        """What `super().name` means in a method."""
        mro = list(owner.python.__mro__)
        home = next((i for i, c in enumerate(mro) if function in vars(c).values()), 0)
        for i, cls in enumerate(mro[home + 1 :], home + 1):
            given = library_modules.method(cls, name, exact=True) or vars(cls).get(name)
            if isinstance(given, types.FunctionType):
                own = f"__{name.strip('_')}_of_base_{i}"
                if own not in owner.methods:
                    method = FunctionInfo(own, f"{owner.path}.{own}")
                    owner.methods[own] = method
                    self._describe(method, source_of(given, own), owner)
                    method.name = own
                    self._compile(method, owner)
                return owner.methods[own]
        return None

    # -- modules

    def module(self, module: Module) -> ClassInfo:
        """The class of a module: one for all whose types and constants are the same."""
        found = self._of_module.get(id(module))
        if found is not None:
            return found
        if isinstance(module, objects.RecursiveScriptModule):
            found = self._of_module[id(module)] = merge(self, module)
            return found
        children = {n: self.module(m) for n, m in module._modules.items() if m is not None}
        info = ClassInfo(type(module).__name__, "", "module", type(module), module, children=children)
        self._attributes(info, module)
        self._constants(info, module)
        key = self._key(info)
        found = self._shared.get(key)
        if found is None:
            info.path = self.unused(qualified(type(module)))
            self.classes[info.path] = self._shared[key] = found = info
            self._of_module[id(module)] = found
            self._module_methods(found)
        self._of_module[id(module)] = found
        return found

    @staticmethod
    def _key(info: ClassInfo) -> Any:
        own = tuple(n for n, v in vars(info.module).items() if callable(v) and n not in _MODULE_OWN)
        children = tuple((name, child.path) for name, child in info.children.items())
        attributes, module = tuple(info.attributes.items()), id(info.module) if own else 0
        return (info.python, attributes, repr(info.constants), children, tuple(info.failed), module)

    def _attributes(self, info: ClassInfo, module: Module) -> None:
        hints = self._hints(module)
        info.lists["parameters"] = list(module._parameters)
        info.lists["buffers"] = list(module._buffers)
        for name, value in (*module._parameters.items(), *module._buffers.items()):
            info.attributes[name] = hints.get(name, NONE if value is None else TENSOR)
        for name, child in module._modules.items():
            if child is None:
                info.attributes[name] = NONE
            elif self.is_interface(hints.get(name, NONE)):
                info.interfaces[name] = hints[name]
        info.attributes["training"] = Kind("bool")
        info.attributes["_is_full_backward_hook"] = Kind("Optional", (Kind("bool"),))
        constants = self._constant_names(module)
        for name, value in module.__dict__.items():
            if name in _MODULE_OWN or name in info.attributes or name in constants or name.startswith("__"):
                continue
            kind = hints.get(name)
            if kind is None and name in library_modules.HIDDEN.get(type(module).__name__, ()):
                continue
            if kind is None:
                kind = kind_of_value(value, self.named)
            if kind is None:
                info.failed[name] = (
                    f"(This attribute exists on the Python module, but we failed to convert Python type: "
                    f"'{type(value).__name__}' to a TorchScript type. Only tensors and (possibly nested) tuples of "
                    "tensors, lists, or dictsare supported as inputs or outputs of traced functions.)"
                    if not isinstance(value, list | dict | tuple) or value
                    else f"(This attribute exists on the Python module, but its type cannot be told from an empty "
                    f"{type(value).__name__}: annotate it)"
                )
                continue
            if name.isprintable() and "." not in name and name:
                info.attributes[name] = kind

    def _hints(self, module: Module) -> dict[str, Kind]:
        found: dict[str, Kind] = {}
        for name, given in vars(module).get("_attribute_types", {}).items():
            found[name] = annotation(given, self.named, dict(vars(inspect.getmodule(type(module)) or types)))
        for cls in reversed(type(module).__mro__):
            names = dict(vars(inspect.getmodule(cls) or types))
            if cls.__module__.startswith("engine."):
                continue
            for name, given in vars(cls).get("__annotations__", {}).items():
                try:
                    found[name] = annotation(given, self.named, names)
                except (ValueError, CompileError, NotSupportedError):
                    continue
        return found

    @staticmethod
    def _constant_names(module: Module) -> list[str]:
        """Return the names of constants in the order of the classes: archives are the same in each process."""
        names = dict.fromkeys(getattr(module, "__constants__", ()))
        for cls in type(module).__mro__:
            for name, given in vars(cls).get("__annotations__", {}).items():
                text = given if isinstance(given, str) else str(given)
                if text.split("[")[0].rpartition(".")[2] == "Final":
                    names[name] = None
        return [n for n in names if n not in module._parameters | module._buffers | module._modules]

    def _constants(self, info: ClassInfo, module: Module) -> None:
        for name in self._constant_names(module):
            value = getattr(module, name, MISSING)
            if value is not MISSING:
                info.constants[name] = value
        for name in library_modules.HIDDEN.get(type(module).__name__, ()):
            info.constants.setdefault(name, getattr(module, name, None))

    def _module_methods(self, info: ClassInfo) -> None:
        """Compile `forward` and what is exported."""
        cls = info.python
        names = [n for n in dir(cls) if modifier(inspect.getattr_static(cls, n, None)) == "export"]
        forward = inspect.getattr_static(cls, "forward", None)
        if issubclass(cls, objects.ScriptModule) and modifier(forward) != "export":
            forward = None  # not a script_method: it stays Python
        if forward is not None and forward is not Module.__dict__.get("forward") and modifier(forward) != "ignore":
            names.insert(0, "forward")
        for name in dict.fromkeys(names):
            self.method(Kind(info.path), name)

    # -- the files

    def files(self) -> dict[str, bytes]:
        """The text of everything that was compiled, by path in the archive."""
        found: dict[str, list[str]] = {}

        def place(path: str) -> list[str]:
            home = path.rpartition(".")[0]
            return found.setdefault(f"code/{home.replace('.', '/')}.py", [])

        for info in self.classes.values():
            place(info.path).extend(self.class_text(info))
        for path, function in self.functions.items():
            if function.lines is not None:
                place(path).extend(function.text(""))
        return {path: ("\n".join(lines) + "\n").encode() for path, lines in found.items()}

    def class_text(self, info: ClassInfo) -> list[str]:
        """The definition of a class."""
        if info.foreign is not None:
            return info.foreign
        of_modules = isinstance(info.python, type) and issubclass(info.python, Module)
        base = {
            "module": "(Module)",
            "tuple": "(NamedTuple)",
            "interface": "(ModuleInterface)" if of_modules else "(Interface)",
            "enum": "(Enum)",
            "object": "",
        }[info.kind]
        name = info.path.rpartition(".")[2]
        out = [f"class {name}{base}:"]
        if info.kind == "module":
            for label in ("parameters", "buffers"):
                out.append(
                    f"  __{label}__ = [{''.join(repr(n) + ', ' for n in info.lists.get(label, ()))}]".replace("'", '"')
                )
            for child, of in info.children.items():
                out.append(_declaration(child, info.interfaces.get(child, Kind(of.path))))
        if info.kind == "enum":
            kind = info.attributes["value"]
            out += [f"  {n} : {kind} = {v!r}" for n, v in info.constants.items()]
            return out
        for attribute, kind in info.attributes.items():
            out.append(_declaration(attribute, kind))
        if info.kind == "module":
            out += self._final(info)
        for method in info.methods.values():
            if method.python is None:
                out += method.text("  ")
        return out if len(out) > 1 else [*out, "  pass"]

    def _final(self, info: ClassInfo) -> list[str]:
        out = []
        for name, value in info.constants.items():
            kind = kind_of_value(value, self.named)
            if kind is not None and name.isidentifier() and kind.name in ("int", "float", "bool", "str"):
                text = repr(value)
                if text not in ("inf", "nan", "-inf"):
                    out.append(f"  {name} : Final[{kind}] = {text}")
        return out


def _declaration(name: str, kind: Kind) -> str:
    if name.isidentifier() and name.isascii():
        return f"  {name} : {kind}"
    return f"  __annotations__[{name!r}] = {kind}".replace("'", '"')


def _plain(function: Any) -> bool:
    """Whether a function may be compiled: of the engine's own those that are written for it."""
    home = str(function.__module__)
    return home.split(".")[0] != "engine" or home.startswith(("engine.nn.modules.", library.__name__))
