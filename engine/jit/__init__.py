"""torch.jit's names.

`load` reads TorchScript archives, `save` writes them (`archive`); `script` compiles Python to the same form and `trace`
records what a call did (`scripting`).  README.md has the walk of each.  `fork` runs at once.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

__all__ = [
    "Attribute", "CompilationUnit", "Error", "Final", "Future", "RecursiveScriptModule", "ScriptFunction",
    "ScriptMethod", "ScriptModule", "ScriptObject", "TracerWarning", "TracingCheckError", "annotate", "export",
    "export_opnames", "fork", "freeze", "ignore", "interface", "is_scripting", "is_tracing", "isinstance",
    "jit_module_from_flatbuffer", "load", "onednn_fusion_enabled", "optimize_for_inference", "optimized_execution",
    "save", "script", "script_if_tracing", "script_method", "set_fusion_strategy", "strict_fusion", "trace",
    "trace_module", "unused", "wait",
]  # fmt: skip

from engine.jit.archive.futures import Future, fork, wait
from engine.jit.archive.registered import registered
from engine.jit.scripting.markers import (
    Attribute,
    TracerWarning,
    TracingCheckError,
    annotate,
    export,
    ignore,
    interface,
    is_scripting,
    is_tracing,
    unused,
)
from engine.jit.scripting.markers import (
    _is_tracing as _is_tracing,
)
from engine.jit.scripting.markers import (
    _overload as _overload,
)
from engine.jit.scripting.markers import (
    _overload_method as _overload_method,
)
from engine.jit.scripting.markers import (
    _overloads as _overloads,
)
from engine.jit.scripting.markers import (
    _tracing as _tracing,
)
from engine.jit.scripting.markers import (
    _unwrap_optional as _unwrap_optional,
)

T = TypeVar("T")
_fork, _wait = fork, wait
_isinstance = isinstance

# Classes of loaded programs: imported at first use.
_OBJECTS = ("Error", "RecursiveScriptModule", "ScriptFunction", "ScriptMethod", "ScriptModule", "ScriptObject")

if TYPE_CHECKING:
    from engine.jit.archive.objects import (
        Error,
        RecursiveScriptModule,
        ScriptFunction,
        ScriptMethod,
        ScriptModule,
        ScriptObject,
    )
else:

    def __getattr__(name: str) -> Any:
        if name in ("Block", "Graph", "Node", "Value"):
            from engine.jit.archive import listing

            return listing.Listing if name == "Graph" else getattr(listing, name)
        if name in _OBJECTS:
            from engine.jit.archive import objects

            found = globals()[name] = getattr(objects, name)
            return found
        raise AttributeError(f"module 'torch.jit' has no attribute {name!r}")


def _refuse(what: str, instead: str) -> Any:
    raise NotImplementedError(f"torch.jit.{what} is not supported: {instead}")


def script(obj: Any, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """Compile a function, class or module to a program.

    The language is TorchScript's part of Python; `engine/jit/README.md` tells how a function becomes one of an
    archive.  A module shares parameters and buffers with what it was made from.
    Source: torch.jit.script of release 2.13.

    Args:
        obj: A function, a class or an nn.Module, with its source at hand.
        optimize: Accepted.
        example_inputs: Accepted.

    Returns:
        A `ScriptFunction`, the class, or a `RecursiveScriptModule`.

    Raises:
        torch.jit.frontend.NotSupportedError: something that the language lacks.
        RuntimeError: types that do not fit, and operators that are not on the list.
        OSError: there is no source.
    """
    if not _is_enabled():
        return obj
    from engine.jit.scripting import programs

    return programs.script(obj)


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


_script_if_tracing = script_if_tracing


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether a value is of a type, the parts of a generic type included (`List[int]`)."""
    from engine.jit.archive.kinds import fits
    from engine.jit.scripting.frontend import annotation

    kinds = target_type if _isinstance(target_type, tuple | list) else (target_type,)
    for kind in kinds:
        try:
            if fits(obj, annotation(kind, lambda cls: None)):
                return True
        except ValueError:
            if _isinstance(kind, type) and _isinstance(obj, kind):
                return True
    return False


class CompilationUnit:
    """Functions of a source text: `CompilationUnit(text).name(...)`; the text is checked as an archive's code is."""

    def __init__(self, lang: Any = None, _frames_up: int = 0) -> None:
        self._functions: dict[str, Any] = {}
        if lang is not None:
            self.define(lang, _frames_up=_frames_up + 1)

    def define(self, lang: str, rcb: Any = None, _frames_up: int = 0) -> None:
        """Add the functions of a text in TorchScript.  RuntimeError for a function that is there already.

        rcb: gives what a name stands for that the text does not define; without it the caller's variables do.
        """
        from engine.jit.scripting import programs

        if rcb is None:
            frame = sys._getframe(_frames_up + 1)
            rcb = lambda name: frame.f_locals.get(name, frame.f_globals.get(name))

        self._functions.update(programs.script_text(lang, self._functions, rcb))

    def __getattr__(self, attr: str) -> Any:
        found = self.__dict__.get("_functions", {}).get(attr)
        if found is None:
            raise AttributeError(f"'CompilationUnit' has no attribute '{attr}'")
        return found

    def get_functions(self) -> list[Any]:
        """All functions."""
        return list(self._functions.values())


def _unique_state_dict(module: Any, keep_vars: bool = False) -> dict[str, Any]:
    """Return the `state_dict` of a module with each tensor once, under the first of its names."""
    seen: set[int] = set()
    found = {}
    for name, value in module.state_dict(keep_vars=True).items():
        if id(value) not in seen:
            seen.add(id(value))
            found[name] = value if keep_vars else value.data
    return found


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """Return a copy of a compiled module whose parameters and buffers are plain attributes, not to be trained.

    Source: torch.jit.freeze of release 2.13.

    Args:
        mod: A `RecursiveScriptModule` in eval mode.
        preserved_attrs: Names of attributes and methods that stay.
        optimize_numerics: Accepted.

    Returns:
        The copy.

    Raises:
        RuntimeError: another module, or one in training mode.
    """
    from engine.jit.archive import objects

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
    func: Any,
    example_inputs: Any = None,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_kwarg_inputs: Any = None,
    _store_inputs: bool = True,
) -> Any:
    """Record what a function or module does on example inputs, as a program.

    Values that Python reads (a branch, a loop's length, `item()`) are fixed as they were, with a TracerWarning; sizes
    follow the inputs.  Source: torch.jit.trace of release 2.13.

    Args:
        func: The function or module.
        example_inputs: A tensor, or a tuple of the arguments (tensors, lists, tuples, dicts of them).
        check_trace: Compare the trace with the function once more; a difference warns.
        check_inputs: Tuples of arguments that are compared instead.
        check_tolerance: The relative difference that is allowed.
        strict: Refuse a list or dict as the result.
        example_kwarg_inputs: Keyword arguments.

    Returns:
        A `ScriptFunction` or `RecursiveScriptModule`.

    Raises:
        TracingCheckError: one of check_inputs makes another program.
        RuntimeError: something cannot be traced.
    """
    from engine.jit.scripting import tracing
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
    from engine.jit.archive import objects

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
    mod: Any,
    inputs: Any,
    optimize: Any = None,
    check_trace: bool = True,
    check_inputs: Any = None,
    check_tolerance: float = 1e-5,
    strict: bool = True,
    _force_outplace: bool = False,
    _module_class: Any = None,
    _compilation_unit: Any = None,
    example_inputs_is_kwarg: bool = False,
    _store_inputs: bool = True,
) -> Any:
    """Record what methods of a module do on example inputs, as a module.

    Parameters and buffers are shared with the module.  Source: torch.jit.trace_module of release 2.13.

    Args:
        mod: The module.
        inputs: A tuple of arguments by the name of each method.
        check_inputs: Dicts like `inputs`; the other options are those of `trace`.

    Returns:
        A `RecursiveScriptModule`.

    Raises:
        TracingCheckError: one of check_inputs makes another program.
        RuntimeError: something cannot be traced.
    """
    from engine.jit.scripting import tracing
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
    f: Any,
    args: Any = (),
    kwargs: Any = None,
    strict: bool = True,
    _force_outplace: bool = False,
    return_inputs: bool = False,
    _return_inputs_states: bool = False,
) -> Any:
    """The graph of a call of a function or module, calls of modules written out, and its result."""
    args = args if _isinstance(args, tuple) else (args,)
    traced = trace(f, args, check_trace=False, strict=strict, example_kwarg_inputs=kwargs or None)
    found = traced.inlined_graph, f(*args, **(kwargs or {}))
    return (*found, args) if return_inputs or _return_inputs_states else found


def load(f: Any, map_location: Any = None, _extra_files: Any = None, _restore_shapes: bool = False) -> Any:
    """Read the module in an archive that torch.jit.save wrote.

    The archive's code is checked against the part of Python that TorchScript is, and against a list of operators, and
    written anew (`engine/jit/archive/grammar.py`): it can compute, print and raise, and reach nothing else.
    Source: torch.jit.load of release 2.13.

    Args:
        f: A path or binary file object.
        map_location: As in `engine.load`.
        _extra_files: A dict whose values are replaced by the content of the archive's extra files of those names.

    Returns:
        A `RecursiveScriptModule`.

    Raises:
        UnpicklingError: the file is damaged or refused.
    """
    import os

    from engine.jit.archive import loading

    if isinstance(f, (str, os.PathLike)):
        if not os.path.exists(f):
            raise ValueError(f"The provided filename {f} does not exist")
        if os.path.isdir(f):
            raise ValueError(f"The provided filename {f} is a directory")
    return loading.read(f, map_location, _extra_files)


def jit_module_from_flatbuffer(f: Any) -> Any:
    """NotImplementedError, as `load`."""
    _refuse("jit_module_from_flatbuffer", "build the model from its Python code")


def save(m: Any, f: Any, _extra_files: Any = None) -> None:
    """Write a compiled module or function as an archive that torch.jit.load opens.

    Source: torch.jit.save of release 2.13.

    Args:
        m: A compiled module or function.
        f: A path, which is replaced in one step at the end, or a binary file object.
        _extra_files: Content by name, text or bytes.

    Raises:
        NotImplementedError: a module of Python (`script` or `trace` it first).
        RuntimeError: a program that calls Python (`@ignore`).
    """
    from engine.jit.archive import objects, saving

    if _isinstance(m, objects.ScriptFunction):
        from engine.jit.scripting import programs

        m = programs.module_of(m)
    if not _isinstance(m, objects.RecursiveScriptModule):
        _refuse(
            "save of a module of Python",
            "make it a program by torch.jit.script or torch.jit.trace, or save its state_dict()",
        )
    saving.write(m, f, _extra_files)


def export_opnames(m: Any) -> list[str]:
    """NotImplementedError: there is no compiled form to list."""
    return _refuse("export_opnames", "there is no list of compiled operators")


def _finish(module: ScriptModule) -> None:
    from engine.jit.scripting import declared  # the compiler weighs: only who derives a class pays for it

    declared.finish(module)


def _define(module: ScriptModule, text: str) -> None:
    from engine.jit.scripting import declared

    declared.define(module, text)


registered.save, registered.finish, registered.define = save, _finish, _define
