"""The binder: writes, per op, the Python source of its public function and of its node's `apply`.

What the text of every public function does, in this order: take the arrays of its tensor arguments (promoting where
types differ), call the kernel, make the result Tensors and, if grad mode is on and an input requires grad, a node with
the edges to the inputs and exactly what the needed formulas read.  Equal texts share one code object.

Note [Floating point warnings]
torch never warns of a division by zero or an overflow; numpy does, through Python's warnings.  `engine/__init__`
silences them for the engine's own modules only (the user's numpy keeps its settings: np.errstate round each call would
cost three times a small op).  Where the user made warnings errors, the kernel is run again under np.errstate.

To read the text of an op: `print(engine.binder.source(engine.dispatch.OPS["mul"]))`.
"""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from engine import backends, dtypes
from engine._checks import broadcast_shapes, size_of
from engine.autograd import anomaly, graph
from engine.autograd.graph import MAYBE, Node, View, handed
from engine.autograd.inplace import check_writable, rebase
from engine.autograd.versions import SavedResult, check_input, second_time, unpack_result
from engine.dispatch import (
    Op,
    argument_error,
    devices_error,
    plain_float_number,
    plain_number,
    prepare,
    promote_arrays,
)
from engine.dtypes import INEXACT
from engine.grad_mode import mode
from engine.tensor import Tensor, wrap

_F32 = np.dtype("float32")
MISSING = type("MISSING", (), {"__repr__": lambda self: "..."})()
_codes: dict[str, CodeType] = {}


def compile_into(
    function: FunctionType, record: Op, namespace: dict[str, Any], inplace: bool, unsupported: Any
) -> None:
    """Give the stub `function` its real code, and its namespace what that code reads."""
    if record.node is None and record.differentiable:
        record.node = node_class(record)
    text = source(record, inplace)
    code = _compiled(text, record.name + "_" * inplace)
    namespace.update(_SHARED)
    namespace.update(
        _op=record, _name=function.__name__, _unsupported=unsupported, _Node=record.node, kernel=cpu_kernel(record),
        _Result=record.result_type, _self=function,
    )  # fmt: skip
    for name, value in record.defaults.items():
        namespace["_d_" + name] = value
    scope: dict[str, Any] = {}
    exec(code, namespace, scope)
    made = scope["call"]
    function.__defaults__ = made.__defaults__
    function.__kwdefaults__ = made.__kwdefaults__
    function.__code__ = made.__code__.replace(
        co_name=function.__name__, co_qualname=function.__name__
    )
    record.namespaces.append(namespace)


def cpu_kernel(record: Op) -> Any:
    """The kernel CPU calls use now: the op's own, or its oneDNN variant in front of it, or a profiler's wrapper."""
    base = record.kernel
    for wrapper in wrappers:
        base = wrapper(record, base)
    return base


wrappers: list[Any] = []  # f(record, kernel) -> kernel; see `instrument`


def instrument() -> None:
    """Apply the present `wrappers` to every compiled op (profilers, kernel variants)."""
    from engine.dispatch import OPS

    for record in OPS.values():
        for namespace in record.namespaces:
            namespace["kernel"] = cpu_kernel(record)


def _compiled(text: str, label: str) -> CodeType:
    code = _codes.get(text)
    if code is None:
        filename = f"<engine op {label}>"
        code = _codes[text] = compile(text, filename, "exec")
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    return code


# --- the public function


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, line: str, deeper: int = 0) -> None:
        self.lines.append("    " * (self.depth + deeper) + line)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def _header(record: Op, inplace: bool) -> str:
    parts = []
    for p in record.positional:
        if p == record.varargs:
            parts.append("*_v_" + p)
        else:
            parts.append(f"{p}=_d_{p}" if p in record.defaults else p)
    keyword = [f"{p}=_d_{p}" if p in record.defaults else p for p in record.keyword]
    if record.varargs:  # the same sizes by keyword
        keyword.append(f"{record.varargs}=MISSING")
    if record.out and not inplace:
        keyword.append("out=None")
    keyword += [f"{alias}=MISSING" for alias in record.aliases]
    if keyword:
        parts += keyword if record.varargs else ["*", *keyword]
    return f"def call({', '.join(parts)}):"


def formula_params(formula: Any) -> tuple[str, ...]:
    """The names a formula reads."""
    code = formula.__code__
    return code.co_varnames[: code.co_argcount]


class _Plan:
    """What the formulas of an op read: from saved tensors, from results, from arguments."""

    def __init__(self, record: Op) -> None:
        readers: dict[str, set[str]] = {}
        formulas = (
            [(p, record.formulas[p]) for p in record.differentiable] if not record.joint else []
        )
        if record.joint:
            formulas = [(p, record.joint[1]) for p in record.differentiable]
        for p, formula in formulas:
            for name in formula_params(formula):
                readers.setdefault(name, set()).add(p)
        self.readers = readers
        tensors = (*record.lists, *record.tensors)
        self.saved = [p for p in tensors if p in readers]
        self.results = [
            n for n in readers if n.startswith("result") and (n == "result" or n[6:].isdigit())
        ]
        self.shapes = [p for p in tensors if f"{p}_shape" in readers]
        self.dtypes = [p for p in tensors if f"{p}_dtype" in readers]
        self.plain = [p for p in record.params if p in readers and p not in tensors]
        self.grads = [n for n in readers if n.startswith("grad") and n[4:].isdigit()]
        known = {*self.saved, *self.results, *self.plain, *self.grads, "grad", "grads", "needs"}
        known |= {f"{p}_shape" for p in self.shapes} | {f"{p}_dtype" for p in self.dtypes}
        unknown = set(readers) - known
        if unknown:
            raise TypeError(
                f"op {record.name}: a formula reads {sorted(unknown)}, which is no input, argument or result"
            )
        self.mixed = (
            record.promote is not None and len(record.tensors) > 1
        )  # operands may be numbers
        # shapes to sum gradients back to, and dtypes to cast them back to
        self.back = [p for p in record.differentiable if self.mixed and p in record.tensors]

    def condition(self, name: str) -> str:
        return " or ".join(f"_r_{p}" for p in sorted(self.readers[name]))

    def arg_names(self) -> list[str]:
        """The entries of node.args, in order (names as in `apply`)."""
        names = [f"n_{p}" for p in self.saved if self.mixed]
        names += (
            [f"{p}_shape" for p in self.shapes]
            + [f"{p}_dtype" for p in self.dtypes]
            + list(self.plain)
        )
        names += [f"s_{p}" for p in self.back] + [f"c_{p}" for p in self.back]
        return names


def source(record: Op, inplace: bool = False) -> str:
    """The Python text of the public function (or of the in-place twin) of an op."""
    w = _Text()
    w(_header(record, inplace))
    w.depth = 1
    plan = _Plan(record)
    tensors, lists = record.tensors, record.lists
    for alias, p in record.aliases.items():
        w(f"if {alias} is not MISSING: {p} = {alias}")
    if record.varargs:
        v = record.varargs
        w(f"{v} = size_of(*_v_{v}) if {v} is MISSING else size_of({v})")
    if record.out and not inplace:
        arguments = [f"*{p}" if p == record.varargs else p for p in record.positional]
        arguments += [f"{p}={p}" for p in record.keyword]
        w(f"if out is not None: return write_out(_op, _self, out, {', '.join(arguments)})")
    _take_arrays(w, record, plan)
    first = lists[0] if lists else tensors[0] if tensors else None
    if inplace:
        w("_w = input._array")
        w("if _r_input or 0 in _w.strides: check_writable(input)")
        for p in tensors[1:]:
            w(f"if {p}.__class__ is Tensor and {p}._vc is input._vc: check_overlap(_w, {p}._array)")
    if first is None:
        w("_xp = np")
    elif lists:
        w(f"_xp = xp_of(_a_{first}[0])")
    else:
        w(
            f"_xp = np if _a_{first}.__class__ is ndarray else xp_of(_a_{first})"
            if not plan.mixed
            else f"_xp = np if _a_{first}.__class__ is ndarray else xp_for({', '.join('_a_' + p for p in tensors)})"
        )
    if inplace and plan.saved and "input" in plan.saved:
        w(f"_old = input.clone() if _mode.enabled and ({plan.condition('input')}) else input")
    inner = [f"_a_{p}" if p in tensors or p in lists else p for p in record.positional]
    inner += [f"{p}={'_a_' + p if p in tensors else p}" for p in record.keyword]
    call = f"({', '.join(['_xp', *inner])})"
    pick = "kernel" if first is None else "(kernel if _xp is np else _op.choose(kind_of(_xp)))"
    if inplace and record.kernel_out:  # the kernel writes into the target itself; never run twice
        w("with np.errstate(all='ignore'):")
        w(f"_r = {pick}{call[:-1]}, out=_w)", 1)
    else:
        _call_kernel(w, f"{pick}{call}")
        if record.broadcast and len(tensors) > 1:
            w("except ValueError:")
            w(f"check_broadcast({', '.join('_a_' + p for p in tensors)})", 1)
            w("raise", 1)
        if tensors:
            w("except (TypeError, NotImplementedError) as _e:")
            if inplace and plan.mixed and record.promote != "compare":
                w("check_cast(_w, _a_input)", 1)
            w(f"not_supported(_op, _e, {', '.join('_a_' + p for p in tensors)})", 1)
            w("raise", 1)
    if inplace:
        w("write(_name, _w, _r)")
        w("input._vc[0] += 1")
        _record(w, record, plan, inplace=True)
        w("return input")
    elif record.many or record.outputs:
        _several(w, record, plan)
    else:
        w("if _r.__class__ is not ndarray: _r = as_array(_xp, _r)")
        if record.broadcast and len(tensors) > 1 and not record.view:
            arrays = ", ".join("_a_" + p for p in tensors)
            w(
                f"if _r.ndim > 1 and not getattr(_a_{first}, 'flags', _r.flags).c_contiguous: _r = "
                f"laid_out(_r, {arrays})"
            )
        w("_t = new(Tensor)")
        w("_t._array = _r")
        if record.view:
            w("_v = _t._vc = input._vc")
            w("_t._base = input if input._base is None else input._base")
            w("_t._edge = None")
        else:
            w("_t._vc = [0]")
        _record(w, record, plan, inplace=False)
        if record.view:
            w(f"_t._view = View(None, _v[0], {_step(record)}, _mode.enabled)")
            w("_t._requires_grad = _r_input or (MAYBE if _r.dtype in INEXACT else False)")
        else:
            w("_t._requires_grad = False")
            w("_t._edge = None")
        w("return _t")
    return w.text()


def _call_kernel(w: _Text, call: str) -> None:
    w("try:")
    w(f"_r = {call}", 1)
    w("except RuntimeWarning:")  # Note [Floating point warnings]
    w("with np.errstate(all='ignore'):", 1)
    w(f"_r = {call}", 2)


def _step(record: Op) -> str:
    arguments = [f"*{p}" if p == record.varargs else p for p in record.params if p != "input"]
    inner = ", ".join(arguments)
    return f"(input._view, _self, ({inner}{',' if inner else ''}))"


def _take_arrays(w: _Text, record: Op, plan: _Plan) -> None:
    tensors, lists = record.tensors, record.lists
    for p in lists:
        w(f"{p} = list_of(_op, _name, {p})")
        if record.promote is not None:
            w(f"_a_{p} = promoted_list(_op, {p})")
        else:
            w(f"_a_{p} = [_x._array for _x in {p}]")
        w(f"_r_{p} = any_requires_grad({p})")
    if record.promote is None:
        for p in tensors:
            if p in record.optional:
                w(f"if {p} is None:")
                w(f"_a_{p} = None; _r_{p} = False", 1)
                w(f"elif isinstance({p}, Tensor):")
            else:
                w(f"if isinstance({p}, Tensor):")
            w(f"_a_{p} = {p}._array; _r_{p} = {p}._requires_grad", 1)
            w("else:")
            w(f"raise argument_error(_op, _name, '{p}', {p})", 1)
        required = [p for p in tensors if p not in record.optional]
        for p in required[1:]:
            w(
                f"if _a_{p}.__class__ is not _a_{required[0]}.__class__: different_devices(_a_{required[0]}, _a_{p})"
            )
    elif len(tensors) == 1:
        p = tensors[0]
        w(f"if isinstance({p}, Tensor):")
        w(f"_a_{p} = {p}._array; _r_{p} = {p}._requires_grad", 1)
        w("else:")
        w(f"raise argument_error(_op, _name, '{p}', {p})", 1)
        if record.promote == "float":
            w(
                f"if _a_{p}.dtype is not F32 and _a_{p}.dtype not in INEXACT: _a_{p} = to_float(_a_{p})"
            )
    elif tensors:
        arrays = ", ".join(f"_a_{p}" for p in tensors)
        flags = ", ".join(f"_c_{p}" for p in tensors)
        w(f"if {' and '.join(f'isinstance({p}, Tensor)' for p in tensors)}:")
        for p in tensors:
            w(f"_a_{p} = {p}._array; _r_{p} = {p}._requires_grad; _c_{p} = None", 1)
        a0 = tensors[0]
        w(f"_d = _a_{a0}.dtype", 1)
        tests = [
            f"_d is not _a_{p}.dtype or _a_{a0}.__class__ is not _a_{p}.__class__"
            for p in tensors[1:]
        ]
        if record.promote == "float":
            tests.append("_d is not F32 and _d not in INEXACT")
        w(f"if {' or '.join(tests)}:", 1)
        w(f"({arrays}), ({flags}) = promote_arrays(_op, [{arrays}])", 2)
        if len(tensors) == 2 and (
            record.numbers is True or tensors[1] in record.numbers
        ):  # a tensor and a Python number of its own kind
            plain = "plain_float_number" if record.promote == "float" else "plain_number"
            p, q = tensors
            w(f"elif isinstance({p}, Tensor) and {plain}({p}._array, {q}):")
            w(f"_a_{p} = {p}._array; _r_{p} = {p}._requires_grad; _a_{q} = {q}", 1)
            w(f"_r_{q} = False; _c_{p} = _c_{q} = None", 1)
        w("else:")
        w(f"_p = prepare(_op, _name, [{', '.join(tensors)}], _unsupported)", 1)
        w("if _p is NotImplemented: return _p", 1)
        w(f"({', '.join(tensors)}), ({arrays}), ({flags}) = _p", 1)
        for p in tensors:
            w(f"_r_{p} = {p}._requires_grad if isinstance({p}, Tensor) else False", 1)


def _save(w: _Text, record: Op, plan: _Plan, deep: int, inplace: bool) -> None:
    """Lines that fill node.saved and node.args (after the results exist)."""
    saved: list[str] = []
    conditions: list[str] = []
    for p in plan.saved:
        cond = plan.condition(p)
        name = "_old" if inplace and p == "input" else p
        if p in record.lists:
            saved += [
                f"tuple({p}) if {cond} else None",
                f"tuple([_x._vc[0] for _x in {p}]) if {cond} else None",
            ]
            conditions.append(cond)
            continue
        if plan.mixed or p in record.optional:
            w(f"_k_{p} = ({cond}) and isinstance({p}, Tensor)", deep)
            cond = f"_k_{p}"
        elif record.differentiable == (p,):
            cond = "True"
        saved += [f"{name} if {cond} else None", f"{name}._vc[0] if {cond} else None"]
        conditions.append(cond)
    if inplace:
        # the target as saved above was read before the write; the version it is compared with must be the old one
        saved = [s.replace("input._vc[0]", "(input._vc[0] - 1)") for s in saved]
        for p in plan.saved:
            if p != "input" and p not in record.lists:
                saved = [
                    s.replace(f"{p}._vc[0]", f"({p}._vc[0] - ({p}._vc is input._vc))")
                    for s in saved
                ]
    for name in plan.results:
        cond = plan.condition(name)
        nr = int(name[6:] or 0)
        if inplace:
            holder = "SavedResult(input._array, input._vc, 0)"
        elif record.many:
            raise TypeError(f"op {record.name}: results of a list-valued op cannot be saved")
        elif record.outputs:
            holder = f"SavedResult(_r[{nr}], _ts[{nr}]._vc, {nr})"
        else:
            holder = "SavedResult(_r, _t._vc, 0)"
        saved.append(holder if len(record.differentiable) == 1 else f"{holder} if {cond} else None")
        conditions.append("True" if len(record.differentiable) == 1 else cond)
    if not saved:
        w("_n.saved = ()", deep)
    elif "True" in conditions:
        w(f"_n.saved = ({', '.join(saved)},)", deep)
    else:
        w(f"_n.saved = ({', '.join(saved)},) if {' or '.join(conditions)} else ()", deep)
    args = [f"None if isinstance({p}, Tensor) else {p}" for p in plan.saved if plan.mixed]
    args += [f"[_x.shape for _x in _a_{p}]" if p in record.lists else f"{p}._array.shape if {p} is not None else None"
             if p in record.optional else f"{p}._array.shape" for p in plan.shapes]  # fmt: skip
    args += [
        f"[_x.dtype for _x in {p}]" if p in record.lists else f"{p}.dtype" for p in plan.dtypes
    ]
    args += plan.plain
    args += [f"_a_{p}.shape if _r_{p} else None" for p in plan.back] + [
        f"_c_{p}" for p in plan.back
    ]
    w(f"_n.args = ({', '.join(args)}{',' if args else ''})", deep)


def _begin_record(w: _Text, record: Op, inplace: bool = False) -> None:
    diff = record.differentiable
    w(f"if ({' or '.join('_r_' + p for p in diff)}) and _mode.enabled:")
    for p in diff:
        if p not in record.lists:
            w(f"if _r_{p} is MAYBE: _r_{p} = requires_grad_of({p})", 1)
    test = " or ".join(f"_r_{p}" for p in diff)
    if record.saves_integer:
        test = f"({test}) and _r.dtype in INEXACT"
    w(f"if {test}:", 1)
    w("_n = new(_Node)", 2)
    w("_n.sequence_nr = next_seq()", 2)
    w("_n._extra = None", 2)
    edges = []
    for p in diff:
        if p in record.lists:
            edges.append(f"*edges_of({p})")
        else:
            edge = f"{p}._edge or edge_of({p})"
            if inplace and p == "input":  # a view's is replaced by its base's (CopySlices)
                edge = "None if input._view is not None else " + edge
            edges.append(edge if len(diff) == 1 else f"({edge}) if _r_{p} else None")
    w(f"_n.next_edges = ({', '.join(edges)},)", 2)


def _record(w: _Text, record: Op, plan: _Plan, inplace: bool) -> None:
    if not record.differentiable:
        if inplace:
            w("if _r_input and _mode.enabled and requires_grad_of(input): rebase_constant(input)")
        return
    _begin_record(w, record, inplace)
    _save(w, record, plan, 2, inplace)
    w("if anomaly.enabled: record_traceback(_n)", 2)
    if inplace:
        w("if input._view is None:", 2)
        w("input._edge = (_n, 0); input._requires_grad = True", 3)
        w("else:", 2)
        w("rebase(input, _n)", 3)
        return
    w("_t._requires_grad = True", 2)
    if record.view:
        w(f"_t._view = View((_n, 0), _v[0], {_step(record)}, True)", 2)
    else:
        w("_t._edge = (_n, 0)", 2)
    w("return _t", 2)


def _several(w: _Text, record: Op, plan: _Plan) -> None:
    """Several outputs: a named tuple, or a list ("many")."""
    w("_r = [_x if _x.__class__ is ndarray else as_array(_xp, _x) for _x in _r]")
    w("_ts = [wrap(_x) for _x in _r]")
    if record.view:
        w("_base = input if input._base is None else input._base")
        w("for _t in _ts: _t._base = _base; _t._vc = input._vc")
    if record.differentiable:
        _begin_record(w, record)
        _save(w, record, plan, 2, False)
        w("if anomaly.enabled: record_traceback(_n)", 2)
        if record.many:
            w("_n.n_outputs = len(_ts)", 2)
        w("for _i, _t in enumerate(_ts):", 2)
        skip = sorted(i for i, n in enumerate(record.outputs) if n in record.nondifferentiable)
        if skip:
            w(f"if _i in {tuple(skip)}: continue", 3)
        w("_t._requires_grad = True", 3)
        if record.view:
            w(f"_t._view = View((_n, _i), _t._vc[0], {_many_step(record)}, True, True)", 3)
        else:
            w("_t._edge = (_n, _i)", 3)
        if record.view:
            w("return tuple(_ts)", 2)
    if record.view:
        w("for _i, _t in enumerate(_ts):")
        w(f"_t._view = View(None, _t._vc[0], {_many_step(record)}, _mode.enabled, False)", 1)
        w("_t._requires_grad = _r_input or (MAYBE if _t._array.dtype in INEXACT else False)", 1)
    w("return tuple(_ts)" if record.many else "return _Result(*_ts)")


def _many_step(record: Op) -> str:
    arguments = [p for p in record.params if p != "input"]
    inner = ", ".join(arguments)
    return f"(input._view, pick(_self, _i), ({inner}{',' if inner else ''}))"


# --- the node


def node_class(record: Op) -> type[Node]:
    """The Node subclass of an op, with its compiled `apply`."""
    text = apply_source(record)
    code = _compiled(text, record.name + " backward")
    namespace = dict(_SHARED)
    for p in record.differentiable:
        formula = record.joint[1] if record.joint else record.formulas[p]
        label = f"{record.node_name}.{p}"
        if not record.joint:
            formula = FunctionType(
                formula.__code__.replace(co_name=label, co_qualname=label), formula.__globals__, label,
                formula.__defaults__, formula.__closure__,
            )  # fmt: skip
        namespace[f"_f_{p}"] = formula
    exec(code, namespace)
    slots = ("n_outputs",) if record.many else ()
    attributes: dict[str, Any] = {
        "__slots__": slots,
        "apply": namespace["apply"],
        "__module__": "engine",
        "op": record,
    }
    if record.outputs:
        attributes["n_outputs"] = len(record.outputs)
    return type(record.node_name, (Node,), attributes)


def apply_source(record: Op) -> str:
    """The Python text of the backward of an op."""
    plan = _Plan(record)
    w = _Text()
    w("def apply(self, grads, needs):")
    w.depth = 1
    names = []
    for p in plan.saved:
        names += [p, f"v_{p}"]
    names += [f"h_{n}" for n in plan.results]
    if names:
        w("saved = self.saved")
        w("if saved is None: second_time()")
        w("if saved:")
        w(f"({', '.join(names)},) = saved", 1)
        w("else:")
        w(f"{' = '.join(names)} = None", 1)
    args = plan.arg_names()
    if args:
        w(f"({', '.join(args)},) = self.args")
    for p in plan.saved:
        if p in record.lists:
            w(f"if v_{p} is not None:")
            w(f"for _x, _v in zip({p}, v_{p}):", 1)
            w("if _x._vc[0] != _v: check_input(_x, _v)", 2)
            continue
        w(f"if v_{p} is not None:")
        w(f"if {p}._vc[0] != v_{p}: check_input({p}, v_{p})", 1)
        if plan.mixed:
            w("else:")
            w(f"{p} = n_{p}", 1)
    for n in plan.results:
        w(f"{n} = None if h_{n} is None else unpack_result(h_{n}, self, wrap)")
    if record.many or not record.outputs:
        w("grad = grads[0]")
    else:
        w("grad = grad0 = grads[0]")
        for n in plan.grads:
            if n != "grad0":
                w(f"{n} = grads[{n[4:]}]")
    list_first = bool(record.lists) and record.differentiable[0] in record.lists
    if record.joint:
        inputs = record.differentiable
        formula = record.joint[1]
        arguments = ", ".join("needs" if n == "needs" else n for n in formula_params(formula))
        w(f"_g = _f_{inputs[0]}({arguments})")
        order = record.joint[0]
        for p in inputs:
            w(f"g_{p} = _g[{order.index(p)}]")
    else:
        for i, p in enumerate(record.differentiable):
            arguments = ", ".join(formula_params(record.formulas[p]))
            if p in record.lists:
                w(f"g_{p} = _f_{p}({arguments}) if any(needs) else [None] * len(needs)")
            else:
                index = (
                    f"needs[{i - 1} - {len(record.differentiable) - 1}]"
                    if list_first
                    else f"needs[{i}]"
                )
                w(f"g_{p} = _f_{p}({arguments}) if {index} else None")
    for p in plan.back:
        w(f"if g_{p} is not None:")
        w(
            f"if g_{p}._array.shape != s_{p} and s_{p} is not None: g_{p} = handed.sum_to_size(g_{p}, s_{p})",
            1,
        )
        w(f"if c_{p} is not None: g_{p} = handed.cast(g_{p}, c_{p})", 1)
    parts = [f"*g_{p}" if p in record.lists else f"g_{p}" for p in record.differentiable]
    w(f"return ({', '.join(parts)},)")
    return w.text()


# --- what the texts call


def as_array(xp: Any, value: Any) -> Any:
    """A kernel's result as an array: numpy's ufuncs give scalars for 0-dim operands."""
    return np.asarray(value) if xp is np and not backends.is_array(value) else value


def check_broadcast(*operands: Any) -> None:
    """Raise torch's error when the operands' shapes do not broadcast."""
    broadcast_shapes(*(x.shape for x in operands if hasattr(x, "shape")))


def check_cast(target: Any, promoted: Any) -> None:
    """Raise when results of the promoted operand's type cannot be stored in `target`."""
    have, want = dtypes.from_numpy(promoted.dtype), dtypes.from_numpy(target.dtype)
    if not dtypes.can_cast(have, want):
        raise RuntimeError(
            f"result type {dtypes.scalar_name(have)} can't be cast to the desired output type "
            f"{dtypes.scalar_name(want)}"
        ) from None


def check_overlap(target: Any, other: Any) -> None:
    """Raise torch's error for an in-place op whose operand shares a part of the target's memory."""
    if target.size == 0 or other.size == 0 or not (_dense(target) and _dense(other)):
        return  # torch does not look closer either
    t, o = backends.of_array(target).pointer(target), backends.of_array(other).pointer(other)
    if (t, target.nbytes) == (o, other.nbytes) and target.strides == other.strides:
        return
    if t < o + other.nbytes and o < t + target.nbytes:
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def _dense(array: Any) -> bool:
    """Whether the cells of an array lie side by side, in whatever order of dims."""
    expected = array.itemsize
    for stride, size in sorted(zip(array.strides, array.shape)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def laid_out(result: Any, *operands: Any) -> Any:
    """The result in the order of dims that torch gives it: the first operand decides, then the next.

    numpy decides otherwise where operands disagree.
    """
    if result.size < 2:
        return result
    arrays = [a for a in operands if hasattr(a, "strides") and a.ndim]
    order = list(range(result.ndim))[::-1]  # fastest dim first
    for i in range(1, len(order)):
        k = i
        for j in range(i - 1, -1, -1):
            swap = _swap(order[j], order[k], arrays, result)
            if swap > 0:
                order[j], order[k] = order[k], order[j]
                k = j
            elif swap < 0:
                break
    order.reverse()
    step = result.itemsize
    for d in reversed(order):
        if result.shape[d] != 1:
            if result.strides[d] != step:
                break
            step *= result.shape[d]
    else:
        return result
    made = backends.xp_of(result).empty([result.shape[d] for d in order], result.dtype)
    made = made.transpose([order.index(d) for d in range(result.ndim)])
    made[...] = result
    return made


def _swap(first: int, second: int, arrays: list[Any], result: Any) -> int:
    """1 if dim `second` changes faster than dim `first`, -1 if not, 0 if no operand can tell."""
    for a in arrays:
        d, e = first - result.ndim + a.ndim, second - result.ndim + a.ndim
        x = a.strides[d] if d >= 0 and a.shape[d] != 1 else 0
        y = a.strides[e] if e >= 0 and a.shape[e] != 1 else 0
        if x and y and x != y:
            return 1 if x > y else -1
        if x and y and result.shape[first] > result.shape[second]:
            return 1
    return 0


def not_supported(record: Op, error: Exception, *operands: Any) -> None:
    """Raise torch's error where numpy has no loop for the operands' type."""
    if (
        str(error).startswith(("ufunc '", "did not contain a loop"))
        or type(error).__name__ == "_UFuncNoLoopError"
    ):
        for x in operands:
            if hasattr(x, "dtype"):
                found = dtypes.scalar_name(dtypes.from_numpy(x.dtype))
                raise NotImplementedError(
                    f"\"{record.label}\" not implemented for '{found}'"
                ) from None


def to_float(array: Any) -> Any:
    """Integers as the default float type; bfloat16 stays."""
    found = dtypes.from_numpy(array.dtype)
    if found.category >= dtypes.FLOATING:
        return array
    return array.astype(dtypes.to_numpy(dtypes.get_default_dtype()))


def xp_for(*arrays: Any) -> Any:
    """The array module of the first operand that is an array."""
    for a in arrays:
        if hasattr(a, "ndim") and not isinstance(a, np.generic):
            return backends.xp_of(a)
    return np


def kind_of(xp: Any) -> str:
    """The backend kind of an array module."""
    for backend in backends.registered():
        if backend.xp is xp:
            return backend.kind
    return "cpu"


def different_devices(first: Any, second: Any) -> None:
    """Raise unless both arrays are of one device."""
    a, b = backends.of_array(first), backends.of_array(second)
    if a is not b:
        raise devices_error([str(a.device_of(first)), str(b.device_of(second))])


def list_of(record: Op, name: str, tensors: Any) -> list[Tensor]:
    """A list of Tensors from any sequence of them; torch's errors otherwise."""
    if isinstance(tensors, Tensor) or not isinstance(tensors, Sequence):
        try:
            if isinstance(tensors, Tensor):
                raise TypeError
            tensors = list(tensors)
        except TypeError:
            raise argument_error(record, name, record.lists[0], tensors) from None
    for i, t in enumerate(tensors):
        if not isinstance(t, Tensor):
            raise TypeError(
                f"expected Tensor as element {i} in argument 0, but got {type(t).__name__}"
            )
    if not tensors:
        raise ValueError(f"torch.{name}(): expected a non-empty list of Tensors")
    return list(tensors)


def promoted_list(record: Op, tensors: list[Tensor]) -> list[Any]:
    """The arrays of a list, of one dtype and one device."""
    arrays = [t._array for t in tensors]
    first = arrays[0]
    for a in arrays:
        if a.dtype is not first.dtype or type(a) is not type(first):
            return promote_arrays(record, arrays)[0]
    return arrays


def any_requires_grad(tensors: list[Tensor]) -> bool:
    """Whether one of them requires grad."""
    return any(t._requires_grad and graph.requires_grad_of(t) for t in tensors)


def edges_of(tensors: list[Tensor]) -> list[Any]:
    """An edge for each tensor that requires grad, else None."""
    return [
        (t._edge or graph.edge_of(t)) if t._requires_grad and graph.requires_grad_of(t) else None
        for t in tensors
    ]


def pick(function: Any, index: int) -> Any:
    """One output of a list-valued view op, for replay."""
    return lambda *args: function(*args)[index]


def rebase_constant(tensor: Tensor) -> None:
    """History of a write whose result depends on nothing: a node without inputs' gradients."""
    rebase(tensor, ConstantBackward0([None]))


class ConstantBackward0(Node):
    """The node of an in-place op without gradient (`zero_`, `fill_` with a number, random fills)."""

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        return (None,) * len(self.next_edges)


def write(name: str, target: Any, result: Any) -> None:
    """Store an in-place result; refused, before anything is written, when shape or dtype do not fit."""
    if result is target:
        return
    shape = getattr(result, "shape", ())
    if shape != target.shape and broadcast_shapes(shape, target.shape) != target.shape:
        raise RuntimeError(
            f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(shape)}"
        )
    if result.dtype != target.dtype:
        have, want = dtypes.from_numpy(result.dtype), dtypes.from_numpy(target.dtype)
        if not dtypes.can_cast(have, want):
            raise RuntimeError(
                f"result type {dtypes.scalar_name(have)} can't be cast to the desired output type "
                f"{dtypes.scalar_name(want)}"
            )
    target[...] = result


def write_out(record: Op, function: Any, out: Any, *args: Any, **kwargs: Any) -> Any:
    """`out=`: the op without history, stored into `out`, which is resized if it is empty or of another shape."""
    outs = list(out) if isinstance(out, tuple | list) else [out]
    tensors = [a for a in args if isinstance(a, Tensor)]
    for a in args:
        if isinstance(a, tuple | list):
            tensors += [t for t in a if isinstance(t, Tensor)]
    if mode.enabled and any(t.requires_grad for t in tensors + outs):
        raise RuntimeError(
            f"{record.name}(): functions with out=... arguments don't support automatic differentiation, but "
            f"one of the "
            "arguments requires grad."
        )
    enabled, mode.enabled = mode.enabled, False
    try:
        result = function(*args, **kwargs)
    finally:
        mode.enabled = enabled
    results = list(result) if isinstance(result, tuple) else [result]
    if len(results) != len(outs):
        raise TypeError(f"{record.name}(): out must hold {len(results)} Tensors, got {len(outs)}")
    for target, value in zip(outs, results):
        if not isinstance(target, Tensor):
            raise TypeError(
                f"{record.name}(): argument 'out' must be Tensor, not {type(target).__name__}"
            )
        have, want = value.dtype, target.dtype
        if not dtypes.can_cast(have, want):
            raise RuntimeError(
                f"result type {dtypes.scalar_name(have)} can't be cast to the desired output type "
                f"{dtypes.scalar_name(want)}"
            )
    for target, value in zip(outs, results):
        if target._array.shape != value._array.shape:
            handed.resize_out(target, value._array.shape)
        check_writable(target)
        target._array[...] = value._array
        target._vc[0] += 1
    return out


_SHARED: dict[str, Any] = dict(
    any_requires_grad=any_requires_grad, argument_error=argument_error, as_array=as_array,
    check_broadcast=check_broadcast, check_cast=check_cast, check_input=check_input, check_overlap=check_overlap,
    check_writable=check_writable, different_devices=different_devices, edges_of=edges_of, handed=handed,
    INEXACT=INEXACT, kind_of=kind_of, laid_out=laid_out, list_of=list_of, MAYBE=MAYBE, MISSING=MISSING,
    not_supported=not_supported, np=np, pick=pick, plain_float_number=plain_float_number,
    plain_number=plain_number, prepare=prepare, promote_arrays=promote_arrays, promoted_list=promoted_list,
    rebase=rebase, rebase_constant=rebase_constant, SavedResult=SavedResult, second_time=second_time,
    size_of=size_of, Tensor=Tensor, to_float=to_float, unpack_result=unpack_result, View=View, wrap=wrap,
    write=write, write_out=write_out, xp_for=xp_for,
)  # fmt: skip
_SHARED.update(
    _mode=mode, F32=_F32, ndarray=np.ndarray, new=object.__new__, next_seq=graph.next_seq, edge_of=graph.edge_of,
    requires_grad_of=graph.requires_grad_of, xp_of=backends.xp_of, anomaly=anomaly.state,
    record_traceback=anomaly.record,
)  # fmt: skip
