"""`GraphModule`: a module whose forward is a Graph's code.

Note [Pickled graph modules]
A GraphModule is pickled as its attributes and its code, the imports in front; loading it runs that code and traces
forward again.  So a pickle of one is a program: the engine's safe reader (`engine.load`) refuses it, as it refuses
every function that it does not know; Python's pickle does what its caller asked for.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import importlib
import itertools
import linecache
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from engine.fx._codegen import CodeGen, PythonCode, _custom_builtins, _PyTreeCodeGen
from engine.fx._names import _engine_module
from engine.fx.graph import Graph
from engine.fx.tracer import Tracer
from engine.nn.modules.module import Module, _addindent
from engine.nn.parameter import Parameter
from engine.tensor import Tensor
from engine.torch_names.facade import facade

__all__ = ["GraphModule", "reduce_graph_module"]

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"
_numbers = itertools.count()
_HOOKS = ("_replace_hooks", "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks")


def _import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
    """`import` of generated code: torch's modules are the engine's, whatever else is installed."""
    if name == "torch" or name.startswith("torch."):
        from engine import torch_names

        module = importlib.import_module(torch_names.home(name))
        return module if fromlist else facade()
    return builtins.__import__(name, globals, locals, fromlist, level)


def _run_source(src: str, globals: dict[str, Any]) -> None:
    """Run generated code under a file name that tracebacks can show."""
    name = f"<eval_with_key>.{next(_numbers)}"
    linecache.cache[name] = (len(src), None, src.splitlines(True), name)
    globals.setdefault("__builtins__", {**vars(builtins), "__import__": _import})
    exec(compile(src, name, "exec"), globals)


def _forward_from_src(src: str, globals: dict[str, Any]) -> Callable[..., Any]:
    own = dict(globals)
    _run_source(src, own)
    forward: Callable[..., Any] = own["forward"]
    return forward


def _format_import_statement(name: str, obj: Any) -> str:
    if name in _custom_builtins:
        return _custom_builtins[name].import_str
    if name == "torch":
        return "import torch"
    module = _engine_module(getattr(obj, "__module__", None) or "builtins").replace("_operator", "operator", 1)
    own: Any = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or getattr(obj, "_name", name)
    if "<" in own:
        raise RuntimeError(f"{own} of {module} cannot be imported, so the code that uses it cannot be saved")
    head, _, rest = own.partition(".")
    return f"from {module} import {head} as {name}" + (f"\n{name} = {name}.{rest}" if rest else "")


def _format_import_block(globals: dict[str, Any]) -> str:
    return "\n".join(sorted({_format_import_statement(name, obj) for name, obj in globals.items()}))


class _CodeOnlyModule(Module):
    """A module of attributes alone."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__ = body


def reduce_graph_module(body: dict[Any, Any], import_block: str) -> Module:
    """A GraphModule of the attributes and the code of one; the code is run.  See Note [Pickled graph modules]."""
    forward = _forward_from_src(import_block + body["_code"], {})
    return _deserialize_graph_module(forward, body)


def _deserialize_graph_module(forward: Callable[..., Any], body: dict[Any, Any]) -> GraphModule:
    kind = type("GraphModule", (_CodeOnlyModule,), {"forward": forward})
    name = body.get("_graphmodule_cls_name", "GraphModule")

    class KeepModules(Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    own = {k: v for k, v in body.items() if k not in ("_graphmodule_cls_name", "_codegen")}
    root = kind(dict(own))
    tracer_cls = body.get("_tracer_cls") or Tracer
    graph = KeepModules().trace(root)
    graph._tracer_cls = tracer_cls
    if body.get("_codegen") is not None:
        graph.set_codegen(body["_codegen"])
    made = GraphModule(root, graph, class_name=name)
    for key, value in own.items():
        if not hasattr(made, key):
            setattr(made, key, value)
    return made


def _copy_attr(from_module: Module, to_module: Module, target: str) -> None:
    """Set what `from_module` has under a dotted name in `to_module`, with empty modules on the way."""
    *path, last = target.split(".")
    for name in path:
        inner = getattr(from_module, name)
        if inner is getattr(to_module, name, None):
            return
        if not hasattr(to_module, name):
            setattr(to_module, name, Module())
        from_module, to_module = inner, getattr(to_module, name)
    value = getattr(from_module, last)
    _set(to_module, last, value)


def _set(module: Module, name: str, value: Any) -> None:
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        if name in module.__dict__:
            del module.__dict__[name]
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Set an object under a dotted name, with empty modules on the way."""
    *path, last = target.split(".")
    for name in path:
        if getattr(to_module, name, None) is None:
            setattr(to_module, name, Module())
        to_module = getattr(to_module, name)
    _set(to_module, last, from_obj)


def _del_attr(module: Module, target: str) -> None:
    """Delete what stands under a dotted name."""
    *path, last = target.split(".")
    delattr(_get_attr_via(module, path), last)


def _get_attr_via(module: Any, path: list[str]) -> Any:
    for name in path:
        module = getattr(module, name)
    return module


def _get_attr(module: Module, target: str) -> Any:
    """Return the object under a dotted name."""
    return _get_attr_via(module, target.split("."))


class GraphModule(Module):
    """A module made of a Graph: its `forward` is the Graph's code, its submodules and attributes those it names.

    root: the module they are taken from, or a dict by dotted name.  After changing the graph call `recompile()`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        """An instance of a class of its own: `forward` belongs to the class."""
        base = next(c for c in cls.__mro__ if c.__qualname__ != "GraphModuleImpl")
        own = type("GraphModuleImpl", (base,), {"__module__": base.__module__})
        made: GraphModule = object.__new__(own)
        return made

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        type(self).__name__ = class_name
        named = [str(n.target) for n in graph.nodes if n.op in ("get_attr", "call_module")]
        if isinstance(root, Module):
            self.training = getattr(root, "training", True)
            preserved = (root.meta if isinstance(getattr(root, "meta", None), dict) else {}).get(
                _USER_PRESERVED_ATTRIBUTES_KEY, {}
            )
            for name, value in preserved.items():
                setattr(self, name, value)
            for target in named:
                _copy_attr(root, self, target)
        elif isinstance(root, dict):
            for target in named:
                if target not in root:
                    raise RuntimeError(
                        f"Node in the graph referenced target {target} but that target was not provided in ``root``!"
                    )
            for target in sorted(dict.fromkeys(named), key=lambda t: t.count(".")):
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError("Unsupported type " + str(root) + " passed for root!")
        self.meta: dict[str, Any] = dict(getattr(root, "meta", None) or {}) if isinstance(root, Module) else {}
        for name in _HOOKS:
            setattr(self, name, [])
        cls = graph._tracer_cls
        self._tracer_cls = cls if cls is not None and "<locals>" not in cls.__qualname__ else None
        self._tracer_extras = graph._tracer_extras or {}
        self.graph = graph

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        """Take another graph and compile it."""
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self._graph = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The Python text of forward."""
        if not hasattr(self, "_code"):
            raise RuntimeError("Code has not been generated! Please report a bug to PyTorch")
        return self._code

    def recompile(self) -> PythonCode:
        """Write and compile forward after a change of the graph."""
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):
            self._in_spec = codegen.pytree_info.in_spec
            self._out_spec = codegen.pytree_info.out_spec
        python_code = self._graph.python_code("self")
        self._code = python_code.src
        self._lineno_map, self._prologue_start = python_code._lineno_map, python_code._prologue_start
        cls: Any = type(self)
        cls.forward = _forward_from_src(self._code, python_code.globals)
        call = cls.__call__ if "__call__" in vars(cls) and not hasattr(cls.__call__, "_shows_code") else None
        cls.__call__ = _showing_code(cls, call)
        return python_code

    # --- submodules

    def add_submodule(self, target: str, m: Module) -> bool:
        """Add a module under a dotted name, empty ones on the way; False if something else stands there."""
        *path, last = target.split(".")
        module: Module = self
        for name in path:
            inner = getattr(module, name, None)
            if inner is None:
                inner = Module()
                setattr(module, name, inner)
            if not isinstance(inner, Module):
                return False
            module = inner
        module.add_module(last, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the module under a dotted name; False if there is none."""
        *path, last = target.split(".")
        module: Any = self
        for name in path:
            module = getattr(module, name, None)
            if not isinstance(module, Module):
                return False
        if not isinstance(getattr(module, last, None), Module):
            return False
        delattr(module, last)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Delete the modules that no step calls or reads from."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            path = str(node.target).split(".")
            used.update(".".join(path[:i]) for i in range(1, len(path) + 1))
            if node.op == "call_module":
                with contextlib.suppress(AttributeError):
                    inner = self.get_submodule(str(node.target))
                    used.update(f"{node.target}.{name}" for name, _ in inner.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # --- copies

    def __deepcopy__(self, memo: Any) -> GraphModule:
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        fake = _CodeOnlyModule(copy.deepcopy(_plain(self), memo))
        GraphModule.__init__(made, fake, fake.__dict__["_graph"], type(self).__name__)
        for key in (*_HOOK_DICTS, "_is_full_backward_hook"):
            if key in fake.__dict__:
                setattr(made, key, fake.__dict__[key])
        made.meta = copy.copy(self.meta)
        for name in self.meta.get(_USER_PRESERVED_ATTRIBUTES_KEY, {}):
            setattr(made, name, copy.deepcopy(getattr(self, name), memo))
        for hook in self._deepcopy_hooks:
            hook(made)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = self.meta
        return made

    def __reduce__(self) -> Any:
        body = {k: v for k, v in _plain(self).items() if k != "_graph"}
        for name in _HOOKS:
            body[name] = []
        body["_graphmodule_cls_name"] = type(self).__name__
        codegen = self._graph._codegen
        if isinstance(codegen, _PyTreeCodeGen):  # the code that takes inputs apart cannot be traced
            body["_codegen"] = codegen
            self._graph.set_codegen(CodeGen())
        try:
            python_code = self._graph.python_code("self")
        finally:
            self._graph.set_codegen(codegen)
        body["_code"] = python_code.src
        return (reduce_graph_module, (body, _format_import_block(python_code.globals)))

    def _replicate_for_data_parallel(self) -> Any:
        made = self.__copy__()
        made._is_replica = True
        return made

    # --- printing

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        *,
        fast_sympy_print: bool = False,
        expanded_def: bool = False,
        additional_meta: list[str] | None = None,
    ) -> str:
        """The code as that of a class, and those of submodules that are GraphModules; printed unless told otherwise."""
        code = self._graph.python_code(
            "self",
            verbose=True,
            include_stride=include_stride,
            include_device=include_device,
            expanded_def=expanded_def,
        ).src.lstrip("\n")
        text = _addindent(f"class {self._get_name()}(torch.nn.Module):\n{code}", 4)
        inner = [
            module.print_readable(print_output=False, include_stride=include_stride, include_device=include_device)
            for _, module in self.named_children()
            if isinstance(module, GraphModule)
        ]
        if inner:
            text += "\n" + _addindent("\n" + "\n".join(inner), 4)
        text = "\n".join(line.rstrip() if not line.strip() else line for line in text.split("\n"))
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        note = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self._code, note])

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the module as a Python package: its code, and its state beside it."""
        from engine.serialization import save

        where = Path(folder)
        where.mkdir(exist_ok=True)
        save(self.state_dict(), where / "state_dict.pt")
        lines = ["", *(builtin.import_str for builtin in _custom_builtins.values())]
        python_code = self._graph.python_code("self")
        lines += [line for line in _format_import_block(python_code.globals).split("\n") if line and line not in lines]
        lines += ["", "from torch.nn import *", f"class {module_name}(torch.nn.Module):", "    def __init__(self):"]
        lines.append("        super().__init__()")
        for name, module in self.named_children():
            if type(module).__module__.startswith("engine.nn") and not list(module.children()):
                text = repr(module).split("\n")[0]
            else:
                save(module, where / f"{name}.pt")
                text = f"torch.load(r'{where / f'{name}.pt'}', weights_only=False) # {type(module).__name__}"
            lines.append(f"        setattr(self, '{name}', {text})")
        for name, buffer in self._buffers.items():
            if buffer is not None:
                empty = f"torch.empty({list(buffer.shape)}, dtype={buffer.dtype})"
                lines.append(f"        self.register_buffer('{name}', {empty})")
        for name, parameter in self._parameters.items():
            if parameter is not None:
                empty = f"torch.nn.Parameter(torch.empty({list(parameter.shape)}, dtype={parameter.dtype}))"
                lines.append(f"        setattr(self, '{name}', {empty})")
        lines.append(f"        self.load_state_dict(torch.load(r'{where / 'state_dict.pt'}'))")
        lines += [_addindent("\n" + self.code.lstrip("\n"), 4), ""]
        (where / "module.py").write_text("\n".join(lines))
        (where / "__init__.py").write_text("from .module import *\n")

    # --- hooks

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        """Call `f(old=, new=, user=)` where a step's input is replaced."""
        self._replace_hooks.append(f)

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(f)

    def _register_create_node_hook(self, f: Callable[..., Any]) -> None:
        """Call `f(node)` for each new step."""
        self._create_node_hooks.append(f)

    def _unregister_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.remove(f)

    def _register_erase_node_hook(self, f: Callable[..., Any]) -> None:
        """Call `f(node)` for each step that is erased."""
        self._erase_node_hooks.append(f)

    def _unregister_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.remove(f)

    def _register_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        """Call `f(copy)` for each deep copy."""
        self._deepcopy_hooks.append(f)

    def _unregister_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.remove(f)

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)


_HOOK_DICTS = (
    "_state_dict_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
    "_state_dict_pre_hooks",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
)


def _plain(module: GraphModule) -> dict[str, Any]:
    return dict(module.__dict__)


def _showing_code(cls: type, own: Callable[..., Any] | None) -> Callable[..., Any]:
    """A `__call__` that shows the line of generated code where an error came from."""

    kind: Any = cls

    def __call__(self: Module, *args: Any, **kwargs: Any) -> Any:
        try:
            return own(self, *args, **kwargs) if own else super(kind, self).__call__(*args, **kwargs)
        except Exception as error:
            if not error.__traceback__:
                raise
            frames = traceback.extract_tb(error.__traceback__)
            at = next((f for f in reversed(frames) if f.filename.startswith("<eval_with_key>")), None)
            if at is not None and frames[-1].filename.startswith("<eval_with_key>"):
                print(_where(at), file=sys.stderr)
            raise

    vars(__call__)["_shows_code"] = True
    return __call__


def _where(frame: traceback.FrameSummary) -> str:
    lines = linecache.getlines(frame.filename)
    number = frame.lineno or 0
    before, after = "".join(lines[max(0, number - 3) : number]), "".join(lines[number : number + 2])
    head = f"Call using an FX-traced Module, line {number} of the traced Module's generated forward function:"
    return "\n".join([head, before, "~~~~~~~~~~~~~~~~~~~~~~~~~~~ <--- HERE", after])
