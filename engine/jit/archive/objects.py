"""What a program consists of at run time: modules, objects of its classes, functions, and how errors are told."""

from __future__ import annotations

import collections
import copy
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from engine.core.grad_mode import mode
from engine.jit.archive.kinds import Kind, convert
from engine.jit.archive.listing import Listing
from engine.jit.archive.reading import graph_of
from engine.jit.archive.registered import registered
from engine.nn.modules.module import Module
from engine.nn.parameter import Parameter
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.jit.archive.program import ClassRecord, FunctionRecord, Program

__all__ = ["Error", "Raised", "RecursiveScriptModule", "ScriptFunction", "ScriptMethod", "ScriptModule", "ScriptObject"]

# Attributes that Python code gives modules for itself.
_OWN = frozenset(vars(Module()))


class Error(Exception):
    """What a program raises by itself; the text names the line and the exception that the source raised."""


class Raised(Exception):
    """A raise statement of a program, on its way to the caller."""

    def __init__(self, message: Any = "", kind: Any = "builtins.RuntimeError") -> None:
        super().__init__(message)
        self.message, self.kind = str(message), str(kind)


def _told(program: Program, error: BaseException) -> str:
    """The lines of the archive that led to an error, innermost last, as torch writes them."""
    lines = [
        "The following operation failed in the TorchScript interpreter.",
        "Traceback of TorchScript, serialized code (most recent call last):",
    ]
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == program.filename:
            where, number = program.place(trace.tb_lineno)
            text = program.line(where, number)
            lines.append(f'  File "{where}", line {number}, in {program.shown_name(code.co_name)}')
            lines += [f"    {text.strip()}", "    ~~~~~ <--- HERE"]
        trace = trace.tb_next
    if isinstance(error, Raised):
        lines.append(f"{error.kind}: {error.message}")
    else:
        lines.append(f"{type(error).__name__}: {error}")
    return "\n".join(lines) + "\n"


def run(program: Program, function: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """Call a function of the program; its errors tell the archive's lines, and the grad mode stays as it was."""
    grad = mode.enabled
    try:
        return function(*args, **kwargs)
    except Raised as e:
        raise Error(_told(program, e)) from None
    except (
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
        KeyError,
        AttributeError,
        NameError,
        ZeroDivisionError,
    ) as e:
        if isinstance(e, NotImplementedError | RecursionError) or type(e).__module__.startswith("engine."):
            raise
        raise RuntimeError(_told(program, e)) from e
    finally:
        if mode.enabled is not grad:
            mode.enabled = grad


class _Callable:
    """What a method and a function of a program show of it."""

    record: FunctionRecord
    program: Program

    @property
    def code(self) -> str:
        """Its text in the archive."""
        return self.program.text(self.record)

    @property
    def schema(self) -> str:
        """Parameters and result with their types."""
        return self.record.schema

    @property
    def graph(self) -> Listing:
        """Its nodes and values."""
        return graph_of(self.program, self.record)

    @property
    def inlined_graph(self) -> Listing:
        """`graph`, with the nodes of what it calls."""
        return graph_of(self.program, self.record, inlined=True)


class ScriptMethod(_Callable):
    """A method of a loaded module or object, as users call it: arguments by the schema, converted and checked."""

    def __init__(self, owner: Any, record: FunctionRecord, program: Program) -> None:
        self.owner, self.record, self.program = owner, record, program
        self.name = self.__name__ = record.name
        self.__doc__ = f"{record.name} of the archive."
        self.__signature__ = inspect.Signature(list(_signature(record).parameters.values())[1:])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.program.callable(self.record)
        args, kwargs = checked(self.record, (self.owner, *args), kwargs)
        return run(self.program, function, args, kwargs)


class ScriptFunction(_Callable):
    """A function of a program that is no method."""

    _python: Any = None  # the Python function that it was compiled from

    def __init__(self, record: FunctionRecord, program: Program) -> None:
        self.record, self.program = record, program
        self.name = self.__name__ = record.name
        self.qualified_name = record.path
        self.__signature__ = _signature(record)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = self.program.callable(self.record)
        args, kwargs = checked(self.record, args, kwargs)
        return run(self.program, function, args, kwargs)

    def graph_for(self, *args: Any, **kwargs: Any) -> Listing:
        """`graph`: it is the same for all arguments."""
        return self.graph

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """Write the function as the `forward` of a module (`torch.jit.save`)."""
        registered.save(self, f, _extra_files)


def _signature(record: FunctionRecord) -> inspect.Signature:
    parameters = []
    for name, kind, default in record.parameters:
        given = inspect.Parameter.empty if default is None else ...
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=given, annotation=str(kind))
        )
    return inspect.Signature(parameters, return_annotation=str(record.returns))


def checked(record: FunctionRecord, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments as the program has values; RuntimeError in torch's words for those that do not fit."""
    parameters = record.parameters
    name = f"{record.name}()"
    declared = f"Declaration: {record.schema}"
    if len(args) > len(parameters):
        raise RuntimeError(
            f"{name} expected at most {len(parameters)} argument(s) but received {len(args)} argument(s). {declared}"
        )
    out = []
    for position, (value, (parameter, kind, _)) in enumerate(zip(args, parameters)):
        if parameter in kwargs:
            raise RuntimeError(f"{name} got multiple values for argument '{parameter}'. {declared}")
        out.append(_converted(name, declared, parameter, kind, value, position))
    named, given = {}, len(args)
    kinds = {parameter: (kind, i) for i, (parameter, kind, _) in enumerate(parameters)}
    for key, value in kwargs.items():
        if key not in kinds:
            raise RuntimeError(
                f"Unknown keyword argument '{key}' for operator '{record.name}'. Schema: {record.schema}"
            )
        named[key] = _converted(name, declared, key, kinds[key][0], value, kinds[key][1])
    for parameter, _, default in parameters[given:]:
        if default is None and parameter not in named:
            raise RuntimeError(f"{name} is missing value for argument '{parameter}'. {declared}")
    return tuple(out), named


def _converted(name: str, declared: str, parameter: str, kind: Kind, value: Any, position: int) -> Any:
    if kind.name == "Tensor" and isinstance(value, Tensor):
        return value
    try:
        return convert(value, kind)
    except TypeError:
        shown = repr(value)
        raise RuntimeError(
            f"{name} Expected a value of type '{kind}' for argument '{parameter}' but instead found type "
            f"'{type(value).__name__}'.\nPosition: {position}\nValue: {shown[:200]}\n{declared}\nCast error details: "
            f"Unable to cast {shown[:200]} to {kind}"
        ) from None


class ScriptObject:
    """An object of a class of a program that is no module: its attributes, its methods.

    Every subclass belongs to one class of one archive; attributes are kept under names with the program's prefix.
    """

    __slots__ = ()
    Λname = ""
    Λrecord: ClassRecord
    Λprogram: Program

    def __getattr__(self, name: str) -> Any:
        record = type(self).Λrecord
        if name in record.methods:
            return ScriptMethod(self, record.methods[name], type(self).Λprogram)
        if name in record.attributes:
            return getattr(self, "λ" + name)
        raise AttributeError(f"'{record.name}' object has no attribute '{name}'")

    def __repr__(self) -> str:
        return f"<{type(self).Λname} object of a TorchScript archive>"


class _Compiling(type):
    """The class of ScriptModule: what a user derives from it is compiled when its `__init__` is done."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        made = super().__call__(*args, **kwargs)
        if isinstance(made, ScriptModule) and not isinstance(made, RecursiveScriptModule):
            registered.finish(made)
        return made


class ScriptModule(Module, metaclass=_Compiling):
    """A module that is, or will be, a TorchScript program.

    A subclass names its compiled methods by `torch.jit.script_method`, constants by `__constants__`, and adds methods
    of a source text by `define`; they are compiled when its `__init__` is done.
    """

    def define(self, src: str) -> None:
        """Add the methods of a source text in TorchScript: `def name(self, x): ...`, and no other code."""
        registered.define(self, src)

    def save(self, f: Any, _extra_files: Any = None) -> None:
        """Write the module as an archive (`torch.jit.save`)."""
        registered.save(self, f, _extra_files)


class RecursiveScriptModule(ScriptModule):
    """A loaded module: an `nn.Module` whose `forward` and other methods are those of the archive.

    Parameters, buffers and children are where every module has them; other attributes are in `_values`, where the
    program changes them.  Every subclass belongs to one class of one archive.
    """

    Λname = ""
    Λrecord: ClassRecord
    Λprogram: Program
    _values: dict[str, Any]

    def __init__(self) -> None:
        Module.__init__(self)  # not that of a user's class, which follows where one was compiled
        object.__setattr__(self, "_values", {})

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        values = own.get("_values")
        if values is not None and name in values:
            return values[name]
        record = type(self).Λrecord
        method = record.methods.get(name)
        if method is not None:
            return ScriptMethod(self, method, type(self).Λprogram)
        if name in record.constants:
            return record.constants[name]
        try:
            return super().__getattr__(name)
        except AttributeError:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'") from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name[:1] == "λ":
            if name[1:] not in type(self).Λrecord.attributes:
                raise AttributeError(f"the class {type(self).Λname} declares no attribute '{name[1:]}'")
            object.__setattr__(self, name, value)
        elif name in type(self).Λrecord.attributes and name != "training":
            _put(self, name, value)
        else:
            super().__setattr__(name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The archive's `forward`."""
        cls = type(self)
        record = cls.Λrecord.methods.get("forward")
        if record is None:
            raise NotImplementedError(f"the archive's class {cls.Λname} has no forward")
        args, kwargs = checked(record, (self, *args), kwargs)
        return run(cls.Λprogram, cls.Λprogram.callable(record), args, kwargs)

    @property
    def qualified_name(self) -> str:
        """The name of the class in the archive, from `__torch__` on."""
        return type(self).Λname

    @property
    def program_version(self) -> int:
        """The version of the operators that the archive was written for."""
        return type(self).Λprogram.version

    @property
    def original_name(self) -> str:
        """The name of the class that was compiled."""
        return type(self).Λrecord.name

    @property
    def code(self) -> str:
        """The archive's text of `forward`."""
        return self.script_method().code

    @property
    def code_with_constants(self) -> tuple[str, dict[str, Any]]:
        """`code`, and the constants of the archive by the names that it uses."""
        values = type(self).Λprogram.constants
        return self.code, {f"c{i}": value for i, value in enumerate(values)}

    @property
    def graph(self) -> Listing:
        """`forward` as nodes and values."""
        return self.script_method().graph

    @property
    def inlined_graph(self) -> Listing:
        """`graph`, with the nodes of what it calls."""
        return self.script_method().inlined_graph

    def script_method(self, name: str = "forward") -> ScriptMethod:
        """The archive's method of a name, with its `code` and `schema`."""
        record = type(self).Λrecord.methods.get(name)
        if record is None:
            raise RuntimeError(f"Method '{name}' is not defined in {type(self).Λname}")
        return ScriptMethod(self, record, type(self).Λprogram)

    def graph_for(self, *args: Any, **kwargs: Any) -> Listing:
        """`graph`: it is the same for all arguments."""
        return self.graph

    def _method_names(self) -> list[str]:
        return list(type(self).Λrecord.methods)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._values, *self._method_names()})

    def __len__(self) -> int:
        return self._special("__len__")

    def __bool__(self) -> bool:
        return True

    def __contains__(self, key: Any) -> bool:
        return self._special("__contains__", key)

    def __iter__(self) -> Iterator:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            return self._modules[index]
        return list(self._modules.values())[index]

    def _special(self, name: str, *args: Any) -> Any:
        record = type(self).Λrecord.methods.get(name)
        if record is None:
            raise TypeError(f"a '{self.original_name}' of the archive has no {name}")
        return ScriptMethod(self, record, type(self).Λprogram)(*args)

    def extra_repr(self) -> str:
        """The name of the class that was compiled."""
        return f"original_name={self.original_name}"

    def _get_name(self) -> str:
        return "RecursiveScriptModule"

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RuntimeError("ScriptModules are saved by torch.jit.save, not pickled: their program is no Python class")

    def __deepcopy__(self, memo: dict) -> RecursiveScriptModule:
        return copied(self, memo)


def copied(value: Any, memo: dict) -> Any:
    """A deep copy of a module with the same program."""
    new = type(value)()
    memo[id(value)] = new
    for key, item in value.__dict__.items():
        new.__dict__[key] = copy.deepcopy(item, memo)
    return new


def frozen(module: RecursiveScriptModule) -> RecursiveScriptModule:
    """A copy whose parameters and buffers are attributes."""
    made = copy.deepcopy(module)
    for one in made.modules():
        if isinstance(one, RecursiveScriptModule):
            for kept in (one._parameters, one._buffers):
                one._values.update((n, v if v is None else v.detach()) for n, v in kept.items())
                kept.clear()
    return made


def _put(module: RecursiveScriptModule, name: str, value: Any) -> None:
    """Set an attribute of the archive where its kind is kept."""
    for kept in (module._parameters, module._buffers, module._modules):
        if name in kept:
            if kept is module._parameters and value is not None and not isinstance(value, Parameter):
                value = Parameter(value, value.requires_grad) if isinstance(value, Tensor) else value
            kept[name] = value
            return
    module._values[name] = value


def reader(name: str, record: ClassRecord) -> property:
    """How the program reads and writes an attribute of a module."""
    if name == "training":
        return property(
            lambda self: self.__dict__["training"], lambda self, value: self.__dict__.__setitem__("training", value)
        )

    def read(self: Any) -> Any:
        own = self.__dict__
        found = own["_parameters"].get(name)
        if found is None:
            found = own["_modules"].get(name)
            if found is None:
                found = own["_values"].get(name)
                if found is None:
                    return own["_buffers"].get(name)
        return found

    return property(read, lambda self, value: _put(self, name, value))


def module_class(record: ClassRecord, program: Program) -> type[RecursiveScriptModule]:
    """The class of the modules of one class of an archive."""
    body: dict[str, Any] = {"Λname": record.path, "Λrecord": record, "Λprogram": program}
    for name in (*record.attributes, *record.constants):
        body["λ" + name] = reader(name, record) if name in record.attributes else record.constants[name]
    return type("RecursiveScriptModule", (RecursiveScriptModule,), body)


def object_class(record: ClassRecord, program: Program) -> type[ScriptObject]:
    """The class of the objects of one class of an archive."""
    body: dict[str, Any] = {
        "__slots__": tuple("λ" + name for name in record.attributes),
        "Λname": record.path,
        "Λrecord": record,
        "Λprogram": program,
    }
    body.update(("λ" + name, value) for name, value in record.constants.items())
    return type(record.name, (ScriptObject,), body)


def tuple_class(record: ClassRecord) -> type[tuple]:
    """The named tuple of a class of an archive."""
    made = collections.namedtuple(record.name, list(record.attributes), defaults=list(record.defaults.values()))
    made.__module__ = "torch.jit"
    made.Λname = record.path  # type: ignore[attr-defined]
    for i, name in enumerate(record.attributes):
        setattr(made, "λ" + name, _field(i))
    return made


def _field(index: int) -> property:
    return property(lambda self: tuple.__getitem__(self, index))


def own_names() -> frozenset[str]:
    """Names in a module's instance that Python code keeps for itself."""
    return _OWN - {"training", "_is_full_backward_hook"}
