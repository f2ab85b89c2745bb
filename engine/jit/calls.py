"""From the source of a function to the text of an archive: calls."""

from __future__ import annotations

import ast
import collections
import contextlib
import functools
import math
import typing
import warnings
from typing import Any

from engine.nn.modules.container import ModuleDict
from engine.tensor import Tensor

from . import library
from .frontend import CompileError, annotation, unstarred, unsupported
from .kinds import ANY, NONE, TENSOR, Kind
from .pycalls import PythonFunctions
from .schemas import MISSING, Value, converted, find, names, subtype, unified
from .sugared import Bound, Many, Py, Test

__all__ = ["Calls", "builtin_of"]

INT, FLOAT, BOOL, STR = Kind("int"), Kind("float"), Kind("bool"), Kind("str")
_CASTS = {"byte": 0, "char": 1, "short": 2, "int": 3, "long": 4, "half": 5, "float": 6, "double": 7, "bool": 11,
          "bfloat16": 15}  # fmt: skip
_METHODS = {"ndimension": "dim", "nelement": "numel", "absolute": "abs", "multiply": "mul", "type_as": "type_as"}
_PYTHON = {"len": "len", "ord": "ord", "chr": "chr", "hex": "hex", "oct": "oct", "bin": "bin", "hash": "hash",
           "round": "round", "pow": "pow", "sorted": "sorted", "divmod": "divmod"}  # fmt: skip
MODULE_METHODS = frozenset(("keys", "values", "items"))


@functools.cache
def _functional_as_aten() -> frozenset[str]:
    """Functions of `nn.functional` whose parameters are those of aten's operator of that name."""
    return frozenset(
        """adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d bilinear celu_
        channel_shuffle conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d
        cosine_similarity elu_ gelu hardshrink hardtanh_ leaky_relu_ linear native_channel_shuffle one_hot
        pairwise_distance pdist pixel_shuffle pixel_unshuffle prelu relu_ rms_norm rrelu_
        scaled_dot_product_attention selu_ sigmoid softplus softshrink tanh threshold_""".split()
    )


@functools.cache
def _operators() -> dict[int, tuple[Any, str]]:
    """The names of operators by the Python functions that are them."""
    import engine
    from engine import fft, linalg, special
    from engine.nn import functional

    found: dict[int, tuple[Any, str]] = {}
    homes: list[tuple[Any, str, Any]] = [
        (engine, "", None), (linalg, "linalg_", None), (fft, "fft_", None), (special, "special_", None),
        (functional, "", _functional_as_aten()), (Tensor, "", None), (math, "", None),
    ]  # fmt: skip
    for home, prefix, only in homes:
        for name in names():
            if not name.startswith(prefix) or (only is not None and name not in only):
                continue
            obj = getattr(home, name[len(prefix) :], None)
            if callable(obj) and not isinstance(obj, type):
                found.setdefault(id(obj), (obj, name))
    for name, aten in (("logsigmoid", "log_sigmoid"),):
        found.setdefault(id(getattr(functional, name)), (getattr(functional, name), aten))
    found[id(math.remainder)] = (math.remainder, "mathremainder")
    return found


def builtin_of(obj: Any) -> tuple[str, str] | None:
    """(namespace, name) of the operator that a Python function is, None if it is none."""
    from engine import _ops

    if isinstance(obj, _ops.OpOverloadPacket | _ops.OpOverload):
        qualified = str(getattr(obj, "_qualified_op_name", None) or obj._name).partition(".")[0]
        space, _, name = qualified.partition("::")
        return (space, name) if find(qualified) else None
    known = _operators().get(id(obj))
    return None if known is None else ("aten", known[1])


class Calls(PythonFunctions):
    """What an Emitter does with calls."""

    def _call(self, node: ast.Call, hint: Kind | None) -> Any:
        function = node.func
        if isinstance(function, ast.Name) and function.id not in self.env and function.id not in self.gone:
            obj = self.source.names.get(function.id, MISSING)
            import builtins

            if getattr(builtins, function.id, None) is obj and obj is not MISSING:
                made = self.python_builtin(function.id, node, hint)
                if made is not MISSING:
                    return made
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
            inner = function.value.func
            if isinstance(inner, ast.Name) and inner.id == "super" and self.owner is not None:
                return self.super_call(function, node)
        found = self.sugared(function)
        if isinstance(found, Bound) and found.name == "tolist" and found.value.kind == TENSOR:
            if hint is None:
                raise self.error("Expected type hint for result of tolist()", node)
            return Value(f"annotate({hint}, {self.held(found.value).text}.tolist())", hint)
        if isinstance(found, Py):
            special = _special().get(_identity(found.obj))
            if special is not None:
                return special(self, node, hint)
        if isinstance(found, Bound) and found.name in MODULE_METHODS and self.unit.is_module(found.value.kind) and (
            isinstance(self.unit.classes[found.value.kind.name].module, ModuleDict)
        ):  # fmt: skip
            return self.of_container(found.value, found.name)
        args, named = self.arguments(node, self.hints_of(found))
        return self.call(found, args, named, node, hint)

    def of_container(self, value: Value, name: str) -> Many:
        """`keys()`, `values()`, `items()` of a ModuleDict."""
        info = self.unit.classes[value.kind.name]
        names = [Value(repr(n), STR, n) for n in info.children]
        parts = self.children(value)
        if name == "keys":
            return Many(list(names))
        return Many(parts) if name == "values" else Many([Many([n, p]) for n, p in zip(names, parts)])

    def hints_of(self, found: Any) -> list[tuple[str, Kind]] | None:
        """The parameters of a function that is compiled, so that `[]` gets its type."""
        info = None
        if isinstance(found, Bound) and self.unit.is_class(found.value.kind):
            info = self.unit.method(found.value.kind, found.name)
        elif isinstance(found, Value) and self.unit.is_class(found.kind):
            info = self.unit.method(found.kind, "forward" if self.unit.is_module(found.kind) else "__call__")
        if (
            isinstance(found, Bound)
            and found.value.kind.name == "List"
            and found.name in ("append", "insert", "extend")
        ):
            kind = found.value.kind if found.name == "extend" else found.value.kind.inner[0]
            return [("", INT)] * (found.name == "insert") + [("", kind)]
        return None if info is None else [(n, k) for n, k, _ in info.parameters[1:]]

    def arguments(self, node: ast.Call, hints: Any = None) -> tuple[list[Any], dict[str, Any]]:
        """The arguments in order; a starred tuple is taken apart."""
        nodes = [*map(unstarred, node.args), *(k.value for k in node.keywords)]
        if any(k.arg is None for k in node.keywords):
            raise unsupported(self.source, node, "with keyword-arg expansion")
        known = [h[1] for h in hints or ()]
        by_name = dict(hints or ())
        given = [known[i] if i < len(known) else None for i in range(len(node.args))]
        given += [by_name.get(k.arg) for k in node.keywords]
        found = self.in_order(nodes, given)
        args = self.taken_apart(node.args, found, node)
        return args, dict(zip([str(k.arg) for k in node.keywords], found[len(node.args) :]))

    def values(self, args: list[Any], named: dict[str, Any], node: Any) -> tuple[list[Value], dict[str, Value]]:
        return [self.value_of(a, node) for a in args], {k: self.value_of(v, node) for k, v in named.items()}

    def call(self, found: Any, args: list[Any], named: dict[str, Any], node: Any, hint: Any = None) -> Any:
        """The call of what an expression gave."""
        if isinstance(found, Bound):
            return self.call_method(found.value, found.name, args, named, node)
        if isinstance(found, Value):
            if self.unit.is_module(found.kind):
                return self.call_method(found, "forward", args, named, node)
            if self.unit.is_class(found.kind):
                return self.call_method(found, "__call__", args, named, node)
            raise self.error(f"'{found.kind}' object is not callable", node)
        if not isinstance(found, Py):
            raise self.error("something that is no function is called", node)
        return self.call_python(found.obj, args, named, node)

    def call_python(self, obj: Any, args: list[Any], named: dict[str, Any], node: Any) -> Any:
        from .unit import script_source

        given = script_source(obj)
        if given is not None:
            obj = given
        if forms := library.forms(obj, args, named):
            return self.call_forms(forms, node)
        known = builtin_of(obj)
        if known is not None:
            values, keys = self.values(args, named, node)
            keys.pop("out", None) if keys.get("out", Value("", ANY)).kind == NONE else None
            if known[1] in ("max", "min") and len(values) == 2 and TENSOR not in (values[0].kind, values[1].kind):
                return self.builtin("prim", known[1], values, keys, node)
            return self.builtin(*known, values, keys, node)
        if isinstance(obj, type):
            return self.construct(obj, args, named, node)
        return self.call_function(obj, args, named, node)

    def call_forms(self, forms: list[tuple[Any, list[Any], dict[str, Any]]], node: Any) -> Value:
        """A call of the first of several functions, each with its arguments, that takes them."""
        for form, args, named in forms[:-1]:
            with contextlib.suppress(CompileError):
                return self.call_function(form, args, named, node)
        return self.call_function(*forms[-1], node)

    def call_function(self, obj: Any, args: list[Any], named: dict[str, Any], node: Any) -> Value:
        """A call of a Python function that is compiled for it."""
        info = self.unit.function(obj, self, node)
        if info is None:
            raise self.error(f"Python function {getattr(obj, '__name__', obj)!r} of {getattr(obj, '__module__', '?')} "
                             "cannot be compiled", node)  # fmt: skip
        return self.call_info(info.path, info, args, named, node)

    def construct(self, cls: type, args: list[Any], named: dict[str, Any], node: Any) -> Value:
        """An object of a class of the user's; a named tuple."""
        if issubclass(cls, Exception):
            raise self.error("an exception is made but not raised", node)
        kind = self.unit.named(cls)
        if kind is None:
            raise self.error(
                f"Class {cls.__name__} does not have an __init__ function defined, or is not compiled as a TorchScript "
                "class", node
            )  # fmt: skip
        info = self.unit.classes[kind.name]
        if info.kind == "tuple":
            values, keys = self.values(args, named, node)
            out = []
            for i, (name, of) in enumerate(info.attributes.items()):
                value = values[i] if i < len(values) else keys.get(name)
                if value is None:
                    if name not in info.constants:
                        raise self.error(f"{info.name} is missing value for argument '{name}'", node)
                    value = self.value_of(Py(info.constants[name]), node)
                out.append(self.required(value, of, node))
            return Value(f"{kind.name}({', '.join(v.text for v in out)})", kind)
        init = self.unit.method(kind, "__init__")
        if init is None:
            if args or named:
                raise self.error(f"{info.name} takes no arguments", node)
            return Value(f"{kind.name}()", kind)
        return Value(f"{kind.name}({self.bound(init, args, named, node, 1)})", kind)

    def call_info(self, path: str, info: Any, args: list[Any], named: dict[str, Any], node: Any) -> Value:
        """A call of a function that is compiled."""
        text = self.bound(info, args, named, node, 0)
        return Value(f"{path}({text})", self.unit.result(info))

    def bound(self, info: Any, args: list[Any], named: dict[str, Any], node: Any, skip: int) -> str:
        """Arguments in the order of the parameters, as text."""
        parameters = info.parameters[skip:]
        values, keys = self.values(args, named, node)
        if len(values) > len(parameters):
            raise self.error(
                f"{info.name}() expected at most {len(parameters)} argument(s) but received {len(values)} argument(s). "
                f"Declaration: {info.schema}", node,
            )  # fmt: skip
        out: list[str] = []
        for i, (name, kind, default) in enumerate(parameters):
            value = values[i] if i < len(values) else keys.pop(name, None)
            if value is None:
                if default is None:
                    raise self.error(
                        f"{info.name}() is missing value for argument '{name}'. Declaration: {info.schema}", node
                    )
                value = default
            fit = self.fitted(value, kind)
            if fit is None and name in info.counts:
                fit = self.broadcast(value, kind, info.counts[name])
            if fit is None:
                raise self.error(
                    f"\n{info.schema}:\nExpected a value of type '{kind}' for argument '{name}' but instead found type "
                    f"'{value.kind}'", node,
                )  # fmt: skip
            out.append(fit.text)
        if keys:
            raise self.error(f"{info.schema}:\nUnknown keyword argument '{next(iter(keys))}'", node)
        return ", ".join(out)

    def broadcast(self, value: Value, kind: Kind, count: int) -> Value | None:
        """One number, or none, where a list of `count` is declared."""
        if value.kind.name != "Optional" or kind.name != "Optional":
            return converted(value, kind, True, count)
        one, name = self.held(value), self.fresh()
        inner = converted(
            Value(f"unchecked_cast({value.kind.inner[0]}, {one.text})", value.kind.inner[0]), kind, True, count
        )
        if inner is None:
            return None
        self.put(f"if torch.__isnot__({one.text}, None):")
        self.put(f"  {name} = annotate({kind}, {inner.text})")
        self.put("else:")
        self.put(f"  {name} = annotate({kind}, None)")
        return Value(name, kind)

    # -- methods

    def method_info(self, value: Value, name: str, node: Any) -> Any:
        info = self.unit.method(value.kind, name)
        if info is None:
            raise self.error(f"Tried to access nonexistent attribute or method '{name}' of type '{value.kind}'.", node)
        return info

    def call_method(self, value: Value, name: str, args: list[Any], named: dict[str, Any], node: Any) -> Any:
        if self.unit.is_class(value.kind):
            forms = self.unit.forms(value.kind, name)
            for info in forms[:-1]:
                try:
                    text = self.bound(info, args, named, node, 1)
                except CompileError:
                    continue
                return Value(f"{value.text}.{info.name}({text})", self.unit.result(info))
            info = forms[-1] if forms else self.method_info(value, name, node)
            if info.python is not None:
                return self.call_ignored(info, [value, *args], named, node)
            text = self.bound(info, args, named, node, 1)
            return Value(f"{value.text}.{info.name}({text})", self.unit.result(info))
        if value.kind == TENSOR:
            return self.tensor_method(value, name, args, named, node)
        values, keys = self.values(args, named, node)
        if value.kind == STR and name == "format":
            return Value(f"torch.format({', '.join([value.text, *(v.text for v in values)])})", STR)
        if value.kind == STR and name == "join" and values and values[0].kind.name == "Tuple":
            values = [Value(f"[{', '.join(p.text for p in values[0].parts or ())}]", Kind("List", (STR,)))]
        if value.kind.name == "Optional" or value.kind == NONE:
            raise self.error(f"'{value.kind}' object has no attribute or method '{name}'.", node)
        return self.builtin("aten", name, [value, *values], keys, node)

    def call_ignored(self, info: Any, args: list[Any], named: dict[str, Any], node: Any) -> Value:
        """A call of Python code that is not compiled (`@torch.jit.ignore`)."""
        text = self.bound(info, args, named, node, 0)
        return Value(f"ops.python.{info.python}({text})", info.returns or TENSOR)

    def tensor_method(self, value: Value, name: str, args: list[Any], named: dict[str, Any], node: Any) -> Value:
        values, keys = self.values(args, named, node)
        name = _METHODS.get(name, name)
        if name in _CASTS and not values and not keys:
            return Value(f"torch.to({value.text}, {_CASTS[name]})", TENSOR)
        if name in ("is_contiguous", "contiguous") and values:
            keys["memory_format"] = values.pop()
        if name == "type" and len(values) == 1 and values[0].kind == INT:
            name = "to"
        if name == "split" and values and values[0].kind.name == "List":
            name = "split_with_sizes"
        if name == "apply_" or name == "register_hook":
            raise self.error(f"the method Tensor.{name} takes a Python function, which TorchScript cannot pass", node)
        if name == "nonzero" and keys.get("as_tuple") is not None and keys.pop("as_tuple").const is True:
            name = "nonzero_numpy"
        if name == "cpu":
            return self.operator("cpu", [value], node)
        if not find(f"aten::{name}"):
            raise self.error(f"'Tensor' object has no attribute or method '{name}'.", node)
        return self.operator(name, [value, *values], node, keys)

    def super_call(self, function: ast.Attribute, node: ast.Call) -> Value:
        """`super().method(...)`: the method of a base class under a name of its own."""
        assert self.owner is not None
        info = self.unit.base_method(self.owner, self.info, self.source.function, function.attr)
        if info is None:
            raise self.error(f"super() has no method '{function.attr}'", node)
        args, named = self.arguments(node)
        own = self.env[self.info.parameters[0][0]]
        return Value(f"{own.text}.{info.name}({self.bound(info, args, named, node, 1)})", self.unit.result(info))

    # -- conditions that are calls

    def told_by_call(self, node: ast.Call) -> Test | None:
        """`isinstance`, `hasattr`, `is_scripting`: what is known at compile time; None for other calls."""
        function = node.func
        if isinstance(function, ast.Name) and function.id == "isinstance" and len(node.args) == 2:
            return self.is_instance(node.args[0], node.args[1], node)
        if isinstance(function, ast.Name) and function.id == "hasattr" and len(node.args) == 2:
            name = self.expr(node.args[1]).const
            if not isinstance(name, str):
                raise self.error("hasattr's second argument must be a string literal", node)
            found = self.has(self.sugared(node.args[0]), name)
            return Test(repr(found), found)
        if isinstance(function, ast.Name | ast.Attribute):
            name = function.attr if isinstance(function, ast.Attribute) else function.id
            if name == "isinstance" and len(node.args) == 2:  # torch.jit.isinstance
                return self.is_instance(node.args[0], node.args[1], node)
            known = {"is_scripting": True, "is_tracing": False, "_is_tracing": False, "is_compiling": False,
                     "is_exporting": False, "_get_tracing_state": False, "is_dynamo_compiling": False,
                     "is_in_onnx_export": False, "has_torch_function": False, "has_torch_function_unary": False,
                     "has_torch_function_variadic": False}.get(name)  # fmt: skip
            if known is not None:
                return Test(repr(known), known)
            if name in ("is_tensor", "is_storage") and len(node.args) == 1 and not isinstance(function, ast.Name):
                value = self.expr(node.args[0])
                if value.kind.name not in ("Optional", "Any", "Union"):
                    return Test(repr(value.kind == TENSOR), value.kind == TENSOR and name == "is_tensor")
                return self.is_instance(
                    node.args[0], ast.copy_location(ast.Name("Tensor", ast.Load()), node), node, Tensor
                )
        return None

    def is_instance(self, given: ast.expr, types: ast.expr, node: Any, of: Any = None) -> Test:
        found = self.sugared(given)
        wanted = [of] if of is not None else self.python_types(types)
        if isinstance(found, Py) and self.constant(found.obj) is None:
            plain = tuple(t for t in wanted if isinstance(t, type))
            static = isinstance(found.obj, plain)
            return Test(repr(static), static)
        value = self.value_of(found, node)
        if self.unit.is_module(value.kind):
            static = isinstance(
                self.unit.classes[value.kind.name].module, tuple(t for t in wanted if isinstance(t, type))
            )
            return Test(repr(static), static)
        kinds: list[Kind] = []
        for one in wanted:
            try:
                kinds.append(annotation(one, self.unit.named_or_none, self.source.names))
            except ValueError:
                continue  # a class that no value of the program can be of
        parts = self.parts_of_kind(value.kind)
        yes = [p for p in parts if any(_is(p, k) for k in kinds)]
        no = [p for p in parts if p not in yes]
        if value.kind == ANY:
            name = {given.id: kinds[0]} if isinstance(given, ast.Name) and len(kinds) == 1 else {}
            return Test(self.instance_text(value, kinds), None, name, {})
        if not yes or not no:
            refined = {given.id: value.kind} if isinstance(given, ast.Name) else {}
            return Test(repr(bool(yes)), bool(yes), refined, refined)
        true = {given.id: _joined(yes)} if isinstance(given, ast.Name) else {}
        false = {given.id: _joined(no)} if isinstance(given, ast.Name) else {}
        return Test(self.instance_text(value, yes), None, true, false)

    @staticmethod
    def instance_text(value: Value, kinds: list[Kind]) -> str:
        names = ", ".join(map(str, kinds))
        return f"isinstance({value.text}, ({names},))" if len(kinds) > 1 else f"isinstance({value.text}, {names})"

    @staticmethod
    def parts_of_kind(kind: Kind) -> list[Kind]:
        if kind.name == "Optional":
            return [*Calls.parts_of_kind(kind.inner[0]), NONE]
        if kind.name == "Union":
            return list(kind.inner)
        return [Kind("int"), Kind("float"), Kind("complex")] if kind.name in ("number", "Scalar") else [kind]

    def python_types(self, node: ast.expr) -> list[Any]:
        """The classes that `isinstance` is given."""
        if isinstance(node, ast.Tuple | ast.List):
            return [t for part in node.elts for t in self.python_types(part)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return [*self.python_types(node.left), *self.python_types(node.right)]
        if isinstance(node, ast.Subscript):
            return [ast.unparse(node)]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
            return [type(None)]
        found = self.sugared(node)
        if isinstance(found, Value) and found.kind == NONE:
            return [type(None)]
        if not isinstance(found, Py):
            raise self.error("isinstance is given something that is no type", node)
        return list(found.obj) if isinstance(found.obj, tuple) else [found.obj]

    # -- torch's own special functions

    def _annotate(self, node: ast.Call, hint: Any) -> Value:
        kind = self.annotated(node.args[0])  # type: ignore[attr-defined]
        value = self.required(self.expr(node.args[1], kind), kind, node)
        return Value(f"annotate({kind}, {value.text})" if not value.text.startswith("annotate(") else value.text, kind)

    def _typing_cast(self, node: ast.Call, hint: Any) -> Value:
        kind = self.annotated(node.args[0])  # type: ignore[attr-defined]
        return Value(f"unchecked_cast({kind}, {self.expr(node.args[1], kind).text})", kind)

    def _unwrap_optional(self, node: ast.Call, hint: Any) -> Value:
        value = self.single(node)
        if value.kind.name != "Optional":
            return value
        return Value(f"unwrap_optional({value.text})", value.kind.inner[0])

    def _fork(self, node: ast.Call, hint: Any) -> Value:
        """A call that may run beside others: here and in the text, one that runs at once, in a Future."""
        found = self.sugared(node.args[0])
        inner = ast.copy_location(ast.Call(node.args[0], list(node.args[1:]), node.keywords), node)
        args, named = self.arguments(inner, self.hints_of(found))
        args = [self.held(self.value_of(a, node)) for a in args]
        named = {k: self.held(self.value_of(v, node)) for k, v in named.items()}
        name = self.fresh()
        self.depth += 1
        kept, self.lines = self.lines, []
        value = self.value_of(self.call(found, args, named, node), node)
        self.put(f"return {value.text}")
        self.depth -= 1
        body, self.lines = self.lines, kept
        self.put(f"def {name}():")
        self.lines += body
        return Value(f"fork({name})", Kind("Future", (value.kind,)))

    def _wait(self, node: ast.Call, hint: Any) -> Value:
        value = self.single(node)
        if value.kind.name != "Future":
            raise self.error(f"wait is given a {value.kind}, not a Future", node)
        return Value(f"torch.wait({value.text})", value.kind.inner[0])

    def _scripting(self, node: ast.Call, hint: Any) -> Value:
        return Value("True", BOOL, True)

    def _not_so(self, node: ast.Call, hint: Any) -> Value:
        return Value("False", BOOL, False)

    def _nothing(self, node: ast.Call, hint: Any) -> Value:
        return Value("None", NONE, None)

    def _device(self, node: ast.Call, hint: Any) -> Value:
        values = [self.expr(a) for a in node.args]
        if len(values) == 1 and values[0].kind == Kind("Device"):
            return values[0]
        return Value(f"torch.device({', '.join(v.text for v in values)})", Kind("Device"))

    def _checkpoint(self, node: ast.Call, hint: Any) -> Any:
        raise self.error("torch.utils.checkpoint cannot be compiled: it takes a function as an argument", node)

    def _warn(self, node: ast.Call, hint: Any) -> Value:
        return Value(f"torch.warn({self.text_of(self.expr(node.args[0])).text})", NONE)

    def _size(self, node: ast.Call, hint: Any) -> Any:
        value = self.single(node)
        return self.required(value, Kind("List", (INT,)), node)


def _joined(kinds: list[Kind]) -> Kind:
    found: Kind | None = kinds[0]
    for kind in kinds[1:]:
        found = None if found is None else unified(found, kind)
    return found if found is not None else Kind("Union", tuple(kinds))


def _is(kind: Kind, of: Kind) -> bool:
    if of.name == "list" and kind.name == "List":
        return True
    if of.name == "tuple" and (kind.name == "Tuple" or kind.name.startswith("__torch__")):
        return True
    if {kind.name, of.name} <= {"int", "bool"} and kind != of:
        return False
    return subtype(kind, of) and of != ANY


def _identity(obj: Any) -> Any:
    try:
        hash(obj)
    except TypeError:
        return id(obj)
    return obj


@functools.cache
def _special() -> dict[Any, Any]:
    """Functions that the compiler understands itself."""
    import engine
    from engine import jit
    from engine.device import device as Device
    from engine.nn.modules import utils
    from engine.tensor import Size
    from engine.utils import checkpoint

    return {
        warnings.warn: Calls._warn, collections.OrderedDict: Calls._py_dict, jit.annotate: Calls._annotate,
        typing.cast: Calls._typing_cast, jit._unwrap_optional: Calls._unwrap_optional,
        jit.fork: Calls._fork, jit.wait: Calls._wait, jit.is_scripting: Calls._scripting, jit.is_tracing: Calls._not_so,
        jit._is_tracing: Calls._not_so, Device: Calls._device, Size: Calls._size,
        checkpoint.checkpoint: Calls._checkpoint,
        **{getattr(utils, f"_{name}"): functools.partial(_as_many, n) for n, name in (
            (1, "single"), (2, "pair"), (3, "triple"), (4, "quadruple"))},
        getattr(engine, "_assert", None): Calls._asserted, engine.is_tensor: Calls._py_isinstance,
    }  # fmt: skip


def _as_many(count: int, self: Calls, node: ast.Call, hint: Any) -> Value:
    """`_pair(x)`: one number as several."""
    value = self.single(node)
    if value.kind.name in ("List", "Tuple"):
        return value
    return self.tuple_of([self.held(value)] * count)


def _asserted(self: Calls, node: ast.Call, hint: Any) -> Value:
    made = ast.copy_location(ast.Assert(node.args[0], node.args[1] if len(node.args) > 1 else None), node)
    self._assert(made)  # type: ignore[attr-defined]
    return Value("None", NONE, None)


Calls._asserted = _asserted  # type: ignore[attr-defined]
