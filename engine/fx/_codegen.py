"""The Python text of a graph, in torch's form."""

from __future__ import annotations

import builtins
import enum
import keyword
import math
import re
import types
import typing
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.core import dtypes
from engine.core.device import device
from engine.fx import _pytree as fx_pytree
from engine.fx._names import is_from_torch, qualified_name
from engine.fx.node import Node, type_repr
from engine.fx.tensor_metadata import TensorMetadata
from engine.fx.wrapping import wrap
from engine.tensor import Size, Tensor
from engine.torch_names.facade import facade
from engine.utils import _pytree as pytree

if TYPE_CHECKING:
    from engine.fx.graph import _node_list

__all__ = ["CodeGen", "PythonCode"]

_REFLECTABLE = {
    "add": "{} + {}",
    "sub": "{} - {}",
    "mul": "{} * {}",
    "floordiv": "{} // {}",
    "truediv": "{} / {}",
    "div": "{} / {}",
    "mod": "{} % {}",
    "pow": "{} ** {}",
    "lshift": "{} << {}",
    "rshift": "{} >> {}",
    "and_": "{} & {}",
    "or_": "{} | {}",
    "xor": "{} ^ {}",
    "getitem": "{}[{}]",
    "matmul": "{} @ {}",
}
reflectable_magic_methods = _REFLECTABLE
magic_methods = {
    "eq": "{} == {}",
    "ne": "{} != {}",
    "lt": "{} < {}",
    "gt": "{} > {}",
    "le": "{} <= {}",
    "ge": "{} >= {}",
    "pos": "+{}",
    "neg": "-{}",
    "invert": "~{}",
    **_REFLECTABLE,
}
inplace_methods = {
    "iadd": "{} += {}",
    "iand": "{} &= {}",
    "ifloordiv": "{} //= {}",
    "ilshift": "{} <<= {}",
    "imod": "{} %= {}",
    "imul": "{} *= {}",
    "imatmul": "{} @= {}",
    "ior": "{} |= {}",
    "ipow": "{} **= {}",
    "irshift": "{} >>= {}",
    "isub": "{} -= {}",
    "itruediv": "{} /= {}",
    "ixor": "{} ^= {}",
    "setitem": "{}[{}] = {}",
}

_SHORT = {
    "bfloat16": "bf16",
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "complex32": "c32",
    "complex64": "c64",
    "complex128": "c128",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "bool": "b8",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
}


class _CustomBuiltin(NamedTuple):
    """A name that every generated function has, and the line that imports it."""

    import_str: str
    obj: Any


_custom_builtins: dict[str, _CustomBuiltin] = {}


def _register_custom_builtin(name: str, import_str: str, obj: Any) -> None:
    _custom_builtins[name] = _CustomBuiltin(import_str, obj)


_register_custom_builtin("inf", "from math import inf", math.inf)
_register_custom_builtin("nan", "from math import nan", math.nan)
_register_custom_builtin("NoneType", "NoneType = type(None)", type(None))
_register_custom_builtin("torch", "import torch", facade())
_register_custom_builtin("device", "from torch import device", device)
_register_custom_builtin("fx_pytree", "import torch.fx._pytree as fx_pytree", fx_pytree)
_register_custom_builtin("pytree", "import torch.utils._pytree as pytree", pytree)


def _snake_case(s: str) -> str:
    """`AddBmm` as `add_bmm`."""
    if s.islower():
        return s
    return re.sub(r"(?<=[a-z])([A-Z])", r"_\1", s).lower()


def _is_magic(x: str) -> bool:
    return x.startswith("__") and x.endswith("__")


class _Namespace:
    """Names that are taken, and the objects that have them."""

    def __init__(self) -> None:
        self._obj_to_name: dict[Any, str] = {}
        self._used_names: set[str] = set()
        self._base_count: dict[str, int] = defaultdict(int)

    def create_name(self, candidate: str, obj: Any) -> str:
        """A free name like `candidate`, an identifier; the one that `obj` has if it has one."""
        if obj is not None and _hashable(obj) and obj in self._obj_to_name:
            return self._obj_to_name[obj]
        if not (candidate.isascii() and candidate.isidentifier()):
            candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
            if candidate[0].isdigit():
                candidate = f"_{candidate}"
        base, line, digits = candidate.rpartition("_")
        if line and digits.isdigit():
            number = int(digits)
            candidate = f"{base}_{number}"
        else:
            base, number = candidate, 0
        if not number:
            number = self._base_count[base]
        while candidate in self._used_names or self._is_illegal_name(candidate, obj):
            number += 1
            candidate = f"{base}_{number}"
        self._used_names.add(candidate)
        self._base_count[base] = number
        if obj is not None and _hashable(obj):
            self._obj_to_name[obj] = candidate
        return candidate

    def associate_name_with_obj(self, name: str, obj: Any) -> None:
        """Note that `obj` has this name."""
        self._obj_to_name[obj] = name

    def _is_illegal_name(self, name: str, obj: Any) -> bool:
        if keyword.iskeyword(name):
            return True
        if name in builtins.__dict__:
            return obj is not builtins.__dict__[name]
        if name in _custom_builtins:
            return obj is not _custom_builtins[name].obj
        return False

    def _rename_object(self, obj: Any, name: str) -> None:
        self._obj_to_name[obj] = name
        self._used_names.add(name)


def _hashable(obj: Any) -> bool:
    try:
        hash(obj)
    except TypeError:
        return False
    return True


@dataclass
class PythonCode:
    """The text of a graph and what its names stand for."""

    src: str
    globals: dict[str, Any]
    _lineno_map: dict[int, int | None] | None = None
    _prologue_start: int = 0


def _format_target(base: str, target: str) -> str:
    """An attribute under a dotted name, with getattr where a part is no identifier."""
    for part in target.split("."):
        base = f"{base}.{part}" if part.isidentifier() else f'getattr({base}, "{part}")'
    return base


def short_dtype(dtype: Any) -> str:
    """`f32` for torch.float32."""
    return _SHORT.get(str(dtype).removeprefix("torch."), str(dtype))


class CodeGen:
    """Writes `forward`; subclasses change its head, its return and what a call does with its inputs and outputs."""

    def __init__(self) -> None:
        self._body_transformer: Callable[[list[str]], list[str]] | None = None

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        """The line that begins the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        if expanded_def:
            inner = "".join(f"    {v},\n" for v in free_vars)
            return f"def forward(\n{inner}){maybe_return_annotation}:"
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, descs: Any = None, repr_fn: Callable[[Any], str] = repr) -> str:
        """The line that returns the result."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The values of the placeholders of the arguments of a call."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """Return the graph's outputs in the form that a call returns."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the text uses beside those of its steps."""
        return []

    def _gen_python_code(
        self,
        nodes: _node_list,
        root_module: str,
        namespace: _Namespace,
        *,
        verbose: bool = False,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
        expanded_def: bool = False,
        record_func: bool = False,
        additional_meta: list[str] | None = None,
    ) -> PythonCode:
        writer = _Writer(self, list(nodes), root_module, namespace, verbose, include_stride, include_device)
        return writer.write(expanded_def)


class _Writer:
    """One run of CodeGen."""

    def __init__(
        self,
        codegen: CodeGen,
        nodes: Sequence[Node],
        root_module: str,
        namespace: _Namespace,
        verbose: bool,
        include_stride: bool,
        include_device: bool,
    ) -> None:
        self.codegen, self.nodes, self.root = codegen, nodes, root_module
        self.namespace, self.verbose = namespace, verbose
        self.include_stride, self.include_device = include_stride, include_device
        self.free_vars: list[str] = []
        self.body: list[str] = []
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.returns = ""
        self.trace: str | None = None
        self.last_uses: dict[Node, list[Node]] = {}
        seen: set[Node] = set()
        for node in reversed(nodes):
            for used in node._input_nodes:
                if used not in seen:
                    seen.add(used)
                    self.last_uses.setdefault(node, []).append(used)

    def write(self, expanded_def: bool) -> PythonCode:
        for name, builtin in _custom_builtins.items():
            self.namespace.create_name(name, builtin.obj)
            self.globals[name] = builtin.obj
        for name, value in self.codegen.additional_globals():
            self.add_global(name, value)
        lines: dict[int, int | None] = {}
        for i, node in enumerate(self.nodes):
            if self.verbose:
                self.stack_summary(node)
            self.body.append(f"# COUNTER: {i}\n")
            self.emit(node)
            self.delete_unused(node)
        if all(line.startswith("# COUNTER: ") for line in self.body):
            self.body.append("pass\n")
        wraps = ""
        if self.wrapped:
            name = self.add_global("wrap", wrap)
            wraps = "\n".join(f'{name}("{n}")' for n in self.wrapped)
        if self.codegen._body_transformer is not None:
            self.body = self.codegen._body_transformer(self.body)
        for name, value in self.codegen.additional_globals():
            self.add_global(name, value)
        head = self.codegen.gen_fn_def(self.free_vars, self.returns, expanded_def=expanded_def)
        prologue = f"\n{wraps}\n\n{head}\n"
        first = prologue.count("\n")
        kept: list[str] = []
        counter: int | None = None
        for line in "".join(self.body).lstrip("\n").split("\n"):
            if line.startswith("# COUNTER: "):
                counter = int(line[len("# COUNTER: ") :])
            else:
                kept.append("    " + line)
                lines[len(kept)] = counter
        while len(kept) > 1 and not kept[0].strip():  # a blank line before the first comment
            del kept[0]
        return PythonCode(prologue + "\n".join(kept), self.globals, lines, first)

    def add_global(self, name_hint: str, obj: Any) -> str:
        """The text that stands for an object; what is torch's by its dotted name, all else by a name of its own."""
        if is_from_torch(obj) and obj is not device:
            return qualified_name(obj)
        name = self.namespace.create_name(name_hint, obj)
        self.globals.setdefault(name, obj)
        return name

    def type_repr(self, o: Any) -> str:
        """An annotation."""
        if o == ():
            return "()"
        if isinstance(o, types.UnionType):
            return "|".join(self.type_repr(arg) for arg in o.__args__)
        origin = typing.get_origin(o)
        if origin is None:
            return self.add_global(type_repr(o), o)
        names = {list: "List", dict: "Dict", set: "Set", frozenset: "FrozenSet", tuple: "Tuple"}
        generic = origin if isinstance(o, types.GenericAlias) or origin not in names else getattr(typing, names[origin])
        name = "typing.Union" if origin is typing.Union else type_repr(generic).partition("[")[0]
        head = self.add_global(name, generic)
        args = [self.type_repr(arg) for arg in typing.get_args(o)]
        return f"{head}[{','.join(args)}]" if args else head

    def text(self, arg: Any) -> str:
        """An argument."""
        if isinstance(arg, Node):
            return repr(arg)
        if isinstance(arg, tuple) and hasattr(arg, "_fields"):
            name = self.add_global(type_repr(type(arg)), type(arg))
            return f"{name}({', '.join(map(self.text, arg))})"
        if isinstance(arg, Size):
            return repr(tuple(arg))
        if isinstance(arg, tuple):
            return f"({', '.join(map(self.text, arg))}{',' if len(arg) == 1 else ''})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.text, arg))}]"
        if isinstance(arg, slice):
            return f"slice({self.text(arg.start)}, {self.text(arg.stop)}, {self.text(arg.step)})"
        if isinstance(arg, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v)}" for k, v in arg.items()) + "}"
        if isinstance(arg, enum.Enum):
            return f"{self.add_global(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, Tensor):
            return f"torch.Tensor(size={list(arg.size())}, dtype={arg.dtype})"
        if isinstance(arg, type):
            return self.add_global(type_repr(arg), arg)
        if isinstance(arg, dtypes.dtype):
            return str(arg)
        return repr(arg)

    def arguments(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """The arguments of a call."""
        return ", ".join([*map(self.text, args), *(f"{k} = {self.text(v)}" for k, v in kwargs.items())])

    def delete_unused(self, user: Node) -> None:
        """The end of a step's line: values that no later step reads are let go."""
        if user.op == "placeholder":
            return
        if user.op == "output":
            self.body.append("\n")
            return
        gone = [*self.last_uses.get(user, []), *([] if user.users else [user])]
        self.body.append(f";  {' = '.join([*map(repr, gone), 'None'])}\n" if gone else "\n")

    def stack_summary(self, node: Node) -> None:
        """A comment where the steps of another line of the source begin."""
        if node.op in ("placeholder", "output"):
            return
        trace = node.meta.get("stack_trace")
        if (trace or "") == self.trace:
            return
        self.trace = trace or ""
        summary = "No stacktrace found for following nodes"
        if trace:
            found = re.findall(r'File "(.*)", line (\d+), in (.+)\n\s*(.*)', trace)
            if not found:
                return
            file, line, function, code = found[-1]
            summary = f"File: {file}:{line} in {function}, code: {code.strip()}"
        self.body.append(f"\n# {summary}\n")

    def type_of(self, node: Node) -> str:
        """The annotation of a value: its type or, in the long form, its dtype and shape."""
        if self.verbose:
            value = node.meta.get("val", node.meta.get("tensor_meta", node.meta.get("example_value")))
            if isinstance(value, Tensor | TensorMetadata):
                stride = f"{list(value.stride() if isinstance(value, Tensor) else value.stride)}"
                more = stride if self.include_stride else ""
                where = str(value.device) if self.include_device and isinstance(value, Tensor) else ""
                return f': "{short_dtype(value.dtype)}{list(value.shape)}{more}{where}"'
        return "" if node.type is None else f" : {self.type_repr(node.type)}"

    def emit(self, node: Node) -> None:
        """The line of a step, without its end."""
        typed, target = self.type_of(node), node.target
        if node.op == "placeholder":
            assert isinstance(target, str)
            default = f" = {self.text(node.args[0])}" if node.args else ""
            self.free_vars.append(f"{target}{typed}{default}")
            raw = target.replace("*", "")
            if raw != repr(node):
                self.body.append(f"{node!r} = {raw}\n")
        elif node.op == "call_method":
            call = (
                f"{_format_target(self.text(node.args[0]), str(target))}({self.arguments(node.args[1:], node.kwargs)})"
            )
            self.body.append(f"{node!r}{typed} = {call}")
        elif node.op == "call_function":
            self.emit_function(node, typed)
        elif node.op == "call_module":
            call = f"{_format_target(self.root, str(target))}({self.arguments(node.args, node.kwargs)})"
            self.body.append(f"{node!r}{typed} = {call}")
        elif node.op == "get_attr":
            self.body.append(f"{node!r}{typed} = {_format_target(self.root, str(target))}")
        elif node.op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type_repr(node.type)}"
            self.body.append(self.codegen.generate_output(node.args[0], repr_fn=self.text))
        else:
            raise NotImplementedError(f"node: {node.op} {target}")

    def emit_function(self, node: Node, typed: str) -> None:
        target: Any = node.target
        name = getattr(target, "__name__", "")
        if getattr(target, "__module__", None) == "_operator" and name in magic_methods:
            self.body.append(f"{node!r}{typed} = {magic_methods[name].format(*map(self.text, node.args))}")
        elif getattr(target, "__module__", None) == "_operator" and name in inplace_methods:
            line = inplace_methods[name].format(*map(self.text, node.args))
            self.body.append(f"{line};  {node!r}{typed} = {self.text(node.args[0])}")
        else:
            text = self.add_global(qualified_name(target), target)
            args = node.args
            if text == "getattr" and len(args) == 2 and isinstance(args[1], str) and args[1].isidentifier():
                self.body.append(f"{node!r}{typed} = {_format_target(self.text(args[0]), args[1])}")
                return
            self.body.append(f"{node!r}{typed} = {text}({self.arguments(args, node.kwargs)})")
            if node.meta.get("is_wrapped", False):
                self.wrapped[text] = None


class _PyTreeInfo(NamedTuple):
    """The names of a function's parameters, and the form of its arguments and of what it returns."""

    orig_args: list[str]
    in_spec: Any
    out_spec: Any


class _PyTreeCodeGen(CodeGen):
    """The code of a graph whose inputs are the leaves of nested arguments."""

    def __init__(self, pytree_info: _PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs: Any) -> Any:
        return pytree.tree_leaves(inputs)

    def process_outputs(self, outputs: Any) -> Any:
        if self.pytree_info.out_spec is None:
            return outputs
        leaves = outputs if isinstance(outputs, list | tuple) else [outputs]
        return pytree.tree_unflatten(leaves, self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, *, expanded_def: bool = False) -> str:
        head = super().gen_fn_def(list(self.pytree_info.orig_args), maybe_return_annotation, expanded_def=expanded_def)
        without = [v.partition(":")[0].partition("=")[0].strip() for v in free_vars]
        if not without:
            return head
        given = [a for a in self.pytree_info.orig_args if a != "self"]
        return f"{head}\n    {', '.join(without)}, = fx_pytree.tree_flatten_spec([{', '.join(given)}], self._in_spec)"

    def generate_output(self, output_args: Any, *, descs: Any = None, repr_fn: Callable[[Any], str] = repr) -> str:
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        leaves = output_args if isinstance(output_args, list | tuple) else [output_args]
        return f"return pytree.tree_unflatten([{', '.join(map(repr_fn, leaves))}], self._out_spec)"
