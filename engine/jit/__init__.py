"""torch.jit's names.

`load` reads TorchScript archives; `script` compiles Python to the same form (`emitter`), `trace` records what a call
did (`tracing`), `save` writes any of them.  `fork` runs at once.
An archive is read by `archive`, its text checked by `grammar`, resolved by `program` and written anew by `compiler`;
`operators` is the list of what it may call, `objects` has the modules that users get.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction",
    "ScriptMethod", "ScriptModule", "ScriptObject", "TracerWarning", "TracingCheckError", "annotate", "export",
    "export_opnames", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance",
    "jit_module_from_flatbuffer", "load", "onednn_fusion_enabled", "optimize_for_inference", "optimized_execution",
    "save", "script", "script_if_tracing", "script_method", "set_fusion_strategy", "strict_fusion", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip

T = TypeVar("T")
_isinstance = isinstance

# Classes of loaded programs: imported at first use.
_OBJECTS = ("Error", "RecursiveScriptModule", "ScriptFunction", "ScriptMethod", "ScriptModule", "ScriptObject")

if TYPE_CHECKING:
    from engine.jit.objects import (
        Error,
        RecursiveScriptModule,
        ScriptFunction,
        ScriptMethod,
        ScriptModule,
        ScriptObject,
    )  # fmt: skip
else:

    def __getattr__(name: str) -> Any:
        if name in ("Block", "Graph", "Node", "Value"):
            from engine.jit import graphs

            return getattr(graphs, name)
        if name in _OBJECTS:
            from engine.jit import objects

            found = globals()[name] = getattr(objects, name)
            return found
        raise AttributeError(f"module 'torch.jit' has no attribute {name!r}")


class TracerWarning(Warning):
    """A trace fixes something that Python computed from the values of tensors."""

    @staticmethod
    def ignore_lib_warnings() -> None:
        """Nothing."""


class TracingCheckError(Exception):
    """A trace that does not give what the function gives."""


def _refuse(what: str, instead: str) -> Any:
    raise NotImplementedError(f"torch.jit.{what} is not supported: {instead}")


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """A function, class or module compiled to a program: a `ScriptFunction`, the class, a `RecursiveScriptModule`.

    The language is TorchScript's part of Python; `engine/jit/emitter.py` tells how a function becomes one of an
    archive.  A module shares parameters and buffers with what it was made from.  Raises
    torch.jit.frontend.NotSupportedError for what the language lacks, RuntimeError for types that do not fit and
    operators that are not on the list, OSError where there is no source.  Source: torch.jit.script of release 2.13.
    """
    if not _is_enabled():
        return obj
    from engine.jit import scripting

    return scripting.script(obj)


def _is_enabled() -> bool:
    """False with PYTORCH_JIT=0 in the environment, as in torch: functions stay Python."""
    import os

    return os.environ.get("PYTORCH_JIT", "1") != "0"


def script_method(fn: T) -> T:
    """Mark a method for compilation (`export`)."""
    return export(fn)


def script_if_tracing(fn: Any) -> Any:
    """A function that is compiled when it is first called while a trace runs, and else runs as it is."""
    compiled: list[Any] = []

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return fn(*args, **kwargs)
        if not compiled:
            compiled.append(script(fn))
        return compiled[0](*args, **kwargs)

    wrapper.__original_fn = fn  # type: ignore[attr-defined]
    wrapper.__script_if_tracing_wrapper = True  # type: ignore[attr-defined]
    return wrapper


def _marked(fn: T, modifier: str) -> T:
    inner: Any = fn.fget if _isinstance(fn, property) else fn
    inner._torchscript_modifier = modifier
    return fn


def export(fn: T) -> T:
    """Mark a method: `script` compiles it although `forward` does not call it."""
    return _marked(fn, "export")


def unused(fn: T) -> T:
    """Mark a function: in a compiled program, calling it raises."""
    return _marked(fn, "unused")


def interface(obj: Any) -> Any:
    """Mark a class: its methods are what a module or an object must have to stand where it is the declared type."""
    obj._is_interface = True
    return obj


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Mark a function: a compiled program calls it as Python (and cannot be saved); `drop=True` is `unused`."""
    if callable(drop):
        return _marked(drop, "ignore")
    return lambda fn: _marked(fn, "unused" if drop else "ignore")


_overloads: dict[tuple[str, str], list[Any]] = {}  # module and qualified name -> the declarations


def _overload(fn: T) -> T:
    """One of the forms of a function, before the function itself: its annotations are kept, its body is empty."""
    function: Any = fn
    _overloads.setdefault((function.__module__, function.__qualname__), []).append(function)
    return fn


_overload_method = _overload


_script_if_tracing = script_if_tracing


def is_scripting() -> bool:
    """False: this is Python; in a compiled program the same call is True."""
    return False


_tracing: list[Any] = []  # the traces that run


def is_tracing() -> bool:
    """Whether `trace` is recording."""
    return bool(_tracing)


_is_tracing = is_tracing


def annotate(the_type: Any, the_value: T) -> T:
    """The value; in a compiled program it has the type."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether a value is of a type, the parts of a generic type included (`List[int]`)."""
    from engine.jit.frontend import annotation
    from engine.jit.kinds import fits

    kinds = target_type if _isinstance(target_type, tuple | list) else (target_type,)
    for kind in kinds:
        try:
            if fits(obj, annotation(kind, lambda cls: None)):
                return True
        except ValueError:
            if _isinstance(kind, type) and _isinstance(obj, kind):
                return True
    return False


class Attribute:
    """A value with its type, as ScriptModules declare them."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value, self.type = value, type


class CompilationUnit:
    """Functions of a source text: `CompilationUnit(text).name(...)`; the text is checked as an archive's code is."""

    def __init__(self, lang: Any = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, Any] = {}
        if lang is not None:
            self.define(lang, _frames_up)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Add the functions of a text in TorchScript."""
        from engine.jit import scripting

        self._functions.update(scripting.script_text(lang))

    def __getattr__(self, attr: str) -> Any:
        found = self.__dict__.get("_functions", {}).get(attr)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{attr}'")
        return found

    def get_functions(self) -> list[Any]:
        """All functions."""
        return list(self._functions.values())


class Future:
    """A result that is there already."""

    def __init__(self, value: Any = None) -> None:
        self._value = value

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def done(self) -> bool:
        """True."""
        return True

    def value(self) -> Any:
        """The result."""
        return self._value

    wait = value

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """A Future of `callback(self)`."""
        return Future(callback(self))

    def set_result(self, result: Any) -> None:
        """Replace the result."""
        self._value = result


def fork(func: Callable, *args: Any, **kwargs: Any) -> Future:
    """Call `func` at once; its result as a Future."""
    return Future(func(*args, **kwargs))


def wait(future: Future) -> Any:
    """The result of a Future."""
    return future.wait()


_fork, _wait = fork, wait


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """A copy of a compiled module in eval mode whose parameters and buffers are plain attributes, not to be trained.

    Raises RuntimeError for other modules, and for one in training mode.  Source: torch.jit.freeze of release 2.13.
    """
    from engine.jit import objects

    if not _isinstance(mod, objects.RecursiveScriptModule):
        raise RuntimeError(
            "Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your "
            "'nn.Module'."
        )
    if mod.training:
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module "
            "before freezing."
        )
    return objects.frozen(mod)


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module, frozen if it is not: there are no passes over a program here, its operators run as they are.

    Raises as `freeze`.  Source: torch.jit.optimize_for_inference of release 2.13.
    """
    return freeze(mod.eval() if hasattr(mod, "training") else mod, other_methods)


@contextlib.contextmanager
def optimized_execution(should_optimize: bool = True) -> Iterator[None]:
    """A context without effect."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """A context without effect."""
    yield


class strict_fusion:
    """A context without effect."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def set_fusion_strategy(strategy: Any) -> list:
    """Without effect; there was no strategy before."""
    return []


def enable_onednn_fusion(enabled: bool) -> None:
    """Without effect."""


def onednn_fusion_enabled() -> bool:
    """False."""
    return False


def trace(
    func: Any, example_inputs: Any = None, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
    check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
    _compilation_unit: Any = None, example_kwarg_inputs: Any = None, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """What a function or module does on example inputs, as a program: a `ScriptFunction` or `RecursiveScriptModule`.

    example_inputs: a tensor, or a tuple of the arguments (tensors, lists, tuples, dicts of them).
    Values that Python reads (a branch, a loop's length, `item()`) are fixed as they were, with a TracerWarning; sizes
    follow the inputs.  check_trace: the trace is compared with the function once more, a difference warns; on each of
    `check_inputs` (tuples of arguments) instead, where given: TracingCheckError if one of them makes another program.
    strict: a list or dict as the result is refused.  RuntimeError for what cannot be traced.
    Source: torch.jit.trace of release 2.13.
    """
    from engine.jit import tracing
    from engine.nn.modules.module import Module

    if not _is_enabled():
        return func
    if _isinstance(func, _script_classes()):
        return func
    inputs = _inputs_of(func, example_inputs, example_kwarg_inputs)
    if _isinstance(func, Module):
        several = None if check_inputs is None else [{"forward": one} for one in check_inputs]
        return trace_module(func, {"forward": inputs}, None, check_trace, several, check_tolerance, strict)
    owner = getattr(func, "__self__", None)
    if _isinstance(owner, Module):
        if func.__name__ == "forward":
            return trace(owner, inputs, None, check_trace, check_inputs, check_tolerance, strict)
        raise AttributeError(
            f"trace doesn't support compiling individual module's functions.\nPlease use trace_module: {func.__name__}"
        )
    made = tracing.trace_function(func, tracing._copied(inputs), strict)
    if check_trace and check_inputs is not None:
        tracing.check_function(made, func, check_inputs, check_tolerance, strict)
    elif check_trace:
        tracing.check(made, func, inputs, check_tolerance)
    return made


def _script_classes() -> tuple[type, ...]:
    from engine.jit import objects

    return (objects.RecursiveScriptModule, objects.ScriptFunction)


def _inputs_of(func: Any, inputs: Any, named: Any) -> tuple:
    from engine.tensor import Tensor

    if inputs is None:
        if named is None:
            raise RuntimeError("example_kwarg_inputs should be a dict")
        import inspect

        target = getattr(func, "forward", func)
        order = [n for n in inspect.signature(target).parameters if n in named]
        return tuple(named[n] for n in order)
    if _isinstance(inputs, Tensor | dict):
        return (inputs,)
    return inputs if _isinstance(inputs, tuple) else tuple(inputs)


def trace_module(
    mod: Any, inputs: Any, optimize: Any = None, check_trace: bool = True, check_inputs: Any = None,
    check_tolerance: float = 1e-5, strict: bool = True, _force_outplace: bool = False, _module_class: Any = None,
    _compilation_unit: Any = None, example_inputs_is_kwarg: bool = False, _store_inputs: bool = True,
) -> Any:  # fmt: skip
    """A module whose methods are what they did on example inputs: `inputs` has a tuple for each method's name.

    Parameters and buffers are shared with the module.  As `trace`; check_inputs are dicts like `inputs`.
    Source: torch.jit.trace_module of release 2.13.
    """
    from engine.jit import tracing
    from engine.nn.modules.module import Module

    if not _isinstance(mod, Module):
        raise AttributeError("expected torch.nn.Module as the first argument")
    if not _isinstance(inputs, dict):
        raise AttributeError("expected a dictionary of (method_name, input) pairs")
    given = {name: _inputs_of(mod, one, None) for name, one in inputs.items()}
    made = tracing.trace_module(mod, {name: tracing._copied(one) for name, one in given.items()}, strict)
    if check_trace and check_inputs is not None:
        tracing.check_module(made, mod, check_inputs, check_tolerance, strict)
    elif check_trace:
        for name, one in given.items():
            called = mod if name == "forward" else getattr(mod, name)
            tracing.check(made if name == "forward" else getattr(made, name), called, one, check_tolerance)
    return made


def _get_trace_graph(
    f: Any, args: Any = (), kwargs: Any = None, strict: bool = True, _force_outplace: bool = False,
    return_inputs: bool = False, _return_inputs_states: bool = False,
) -> Any:  # fmt: skip
    """The graph of a call of a function or module, calls of modules written out, and its result."""
    args = args if _isinstance(args, tuple) else (args,)
    traced = trace(f, args, check_trace=False, strict=strict, example_kwarg_inputs=kwargs or None)
    found = traced.inlined_graph, f(*args, **(kwargs or {}))
    return (*found, args) if return_inputs or _return_inputs_states else found


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """The module in an archive that torch.jit.save wrote, as a `RecursiveScriptModule`.

    f: path or binary file object.  map_location: as in `load`.  _extra_files: a dict whose values are replaced by the
    content of the archive's extra files of those names.
    The archive's code is checked against the part of Python that TorchScript is, and against a list of operators, and
    written anew (`engine/jit/grammar.py`): it can compute, print and raise, and reach nothing else.  UnpicklingError
    for a file that is damaged or refused.  Source: torch.jit.load of release 2.13.
    """
    import os

    from engine.jit import archive

    if isinstance(f, (str, os.PathLike)):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {f} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {f} is a directory")
    return archive.read(f, map_location, _extra_files)


def jit_module_from_flatbuffer(f: Any) -> Any:
    """NotImplementedError, as `load`."""
    _refuse("jit_module_from_flatbuffer", "build the model from its Python code")


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Write a compiled module or function as an archive that torch.jit.load opens.

    f: path (replaced in one step at the end) or binary file object.  _extra_files: content by name, text or bytes.
    Raises NotImplementedError for modules of Python (`script` or `trace` them first), RuntimeError for a program that
    calls Python (`@ignore`).  Source: torch.jit.save of release 2.13.
    """
    from engine.jit import objects, saving

    if _isinstance(m, objects.ScriptFunction):
        from engine.jit import scripting

        m = scripting.module_of(m)
    if not _isinstance(m, objects.RecursiveScriptModule):
        _refuse("save of a module of Python", "make it a program by torch.jit.script or torch.jit.trace, or save its "
                "state_dict()")  # fmt: skip
    saving.write(m, f, _extra_files)


def export_opnames(m: Any) -> list[str]:
    """NotImplementedError: there is no compiled form to list."""
    return _refuse("export_opnames", "there is no list of compiled operators")


def _jit_internal_is_scripting() -> bool:
    return False


_unwrap_optional = functools.partial(lambda x: x)
_overload_typing = overload
