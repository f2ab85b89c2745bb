"""The Python text of the public function, or of the in-place twin, of an op.

What the text of every public function does, in this order: take the arrays of its tensor arguments (promoting where
types differ), call the kernel, make the result Tensors and, if grad mode is on and an input requires grad, a node with
the edges to the inputs and exactly what the needed formulas read (`history_source.py`).

Note [Floating point warnings]
torch never warns of a division by zero or an overflow; numpy does, through Python's warnings.  `engine/__init__`
silences them for the engine's own modules only (the user's numpy keeps its settings: np.errstate round each call would
cost three times a small op).  Where the user made warnings errors, the kernel is run again under np.errstate.

Note [Size of a result]
What is large is the result: a column of 4096 and a row of 1024 have four million sums.  The product of the operands'
sizes is no less than that, and tells of most small calls that they are small; of the others `few` broadcasts shapes.
"""

from __future__ import annotations

from engine.core.storage_tensors import following
from engine.dispatch import autocast
from engine.dispatch.arguments import INTS, renamed
from engine.dispatch.choosing import asked_from, generated, several_elements
from engine.dispatch.gradients import FormulaReads, Text
from engine.dispatch.history_source import array_of, begin_record, many_step, record_call, save, view_step
from engine.dispatch.record import Op
from engine.tensor import Tensor

__all__ = ["source"]


def source(record: Op, inplace: bool = False) -> str:
    """The Python text of the public function (or of the in-place twin) of an op."""
    w = Text()
    w(_header(record, inplace))
    w.depth = 1
    plan = FormulaReads(record)
    _take_arguments(w, record, inplace)
    if not inplace and (casting := autocast.line(record)):
        w(casting)
    _take_arrays(w, record, plan)
    if record.itself:
        w(f"if {record.itself} and _a_input.shape == {record.itself}: return input")
    if inplace:
        w(f"_w = {array_of(record, 'input')}")
        others = [p for p in record.differentiable if p != "input" and p not in record.lists]
        more = f", {record.expanded!r}" if record.expanded or others else ""
        more += f", ({', '.join(others)},)" if others else ""
        w(f"if _r_input or 0 in _w.strides: check_writable(input{more})")
        for p in record.tensors[1:]:
            w(f"if {p}.__class__ is Tensor and {p}._vc is input._vc: check_overlap(_w, _a_{p})")
    _choose_module(w, record, plan)
    if inplace and plan.saved and "input" in plan.saved:
        w(f"_old = input.clone() if _mode.enabled and ({plan.condition('input')}) else input")
    _compute(w, record, plan, inplace)
    if inplace:
        _finish_inplace(w, record, plan)
    elif record.many or record.outputs:
        _several(w, record, plan)
    else:
        _finish(w, record, plan)
    return w.text()


def _header(record: Op, inplace: bool) -> str:
    parts = []
    _, late = renamed(record.aliases, record.positional, (*record.defaults, record.varargs or ""))
    for p in record.positional:
        if p == record.varargs:
            parts.append("*_v_" + p)
        else:
            parts.append(f"{p}=_d_{p}" if p in record.defaults else f"{p}=MISSING" if p in late else p)
    if record.number_first:
        parts.append("_last=MISSING")
    keyword = [f"{p}=_d_{p}" if p in record.defaults else p for p in record.keyword]
    if record.varargs:  # the same sizes by keyword
        keyword.append(f"{record.varargs}=MISSING")
    if record.out and not inplace:
        keyword.append("out=None")
    keyword += [f"{alias}=MISSING" for alias in record.aliases]
    if keyword:
        parts += keyword if record.varargs else ["*", *keyword]
    return f"def call({', '.join(parts)}):"


def _values(record: Op) -> str:
    return f"({', '.join(record.params)},)"


def _checking(record: Op) -> str:
    return f"check_arguments(_op.arguments, _name, {_values(record)})"


def _no_tensor(w: Text, record: Op, depth: int = 1) -> None:
    """An operand is no Tensor: what handles the call itself does, anything else is refused."""
    w(f"if (_s := second_look(_self, _op, {_values(record)})) is not NotImplemented: return _s", depth)


def _first(record: Op) -> str | None:
    """The text of the first operand's array; None for an op that takes none."""
    if record.lists:
        return f"_a_{record.lists[0]}[0]"
    return f"_a_{record.tensors[0]}" if record.tensors else None


def _take_arguments(w: Text, record: Op, inplace: bool) -> None:
    """Numpy's names, separate ints, `out=`, and the check of every argument."""
    if record.number_first:
        given = ", ".join((*record.positional, "_last"))
        out = ", out=out" * (record.out and not inplace)
        w(f"if _last is not MISSING: return old_order(_op, _self, _name, ({given}){out})")
    for line in renamed(record.aliases, record.positional, (*record.defaults, record.varargs or ""))[0]:
        w(line)
    if record.varargs:
        v = record.varargs
        deep = v in record.defaults  # given nothing at all it is None: squeeze()
        if deep:
            w(f"if not _v_{v} and ({v} is MISSING or {v} is None) or _v_{v} == (None,): {v} = None")
            w("else:")
        w(f"try: {v} = size_of(*_v_{v}) if _v_{v} else size_of({v})", deep)
        w("except TypeError:", deep)
        w(f"if {v} is MISSING and not _v_{v}: raise missing(_name, {v}={v}) from None", 1 + deep)
        w(f"raise sizes_error(_name, '{v}', _v_{v} or ({v},)) from None", 1 + deep)
    if record.out and not inplace:
        arguments = list(record.positional)
        arguments += [f"{p}={p}" for p in record.keyword]
        w(f"if out is not None: return write_out(_op, _self, out, {', '.join(arguments)})")
    tests = record.arguments.tests(skip=(*record.tensors, record.varargs or ""))
    if tests and record.called == record.name:  # else the function that picks the form has looked
        w(f"if {' or '.join(tests)}: {', '.join(record.params)}, = {_checking(record)}")
    for k in record.arguments.kinds:
        if INTS in k.allowed and k.name != record.varargs:  # kernels keep what they found for these sizes
            w(f"if {k.name}.__class__ is list: {k.name} = tuple({k.name})")


def _take_arrays(w: Text, record: Op, plan: FormulaReads) -> None:
    tensors, lists = record.tensors, record.lists
    for p in lists:
        w(f"if (_q := plain_list({p})) is not None: {p}, _a_{p}, _r_{p} = _q")
        w("else:")
        w(f"{p} = list_of(_op, _name, _given := {p})", 1)
        w(f"if {p} is NotImplemented:", 1)
        w(f"{p} = _given", 2)
        w(f"return second_look(_self, _op, {_values(record)})", 2)
        if record.promote is not None:
            w(f"_a_{p} = promoted_list(_op, {p})", 1)
        else:
            w(f"_a_{p} = [{array_of(record, '_x')} for _x in {p}]", 1)
        w(f"_r_{p} = any_requires_grad({p})", 1)
    if record.promote is None:
        for p in tensors:
            if p in record.optional:
                w(f"if {p} is None:")
                w(f"_a_{p} = None; _r_{p} = False", 1)
                w(f"elif isinstance({p}, Tensor):")
            else:
                w(f"if isinstance({p}, Tensor):")
            w(f"_a_{p} = {array_of(record, p)}; _r_{p} = {p}._requires_grad", 1)
            w("else:")
            _no_tensor(w, record)
            w(_checking(record), 1)
        required = [p for p in tensors if p not in record.optional]
        for p in required[1:]:
            w(f"if _a_{p}.__class__ is not _a_{required[0]}.__class__: different_devices(_a_{required[0]}, _a_{p})")
    elif len(tensors) == 1:
        p = tensors[0]
        w(f"if isinstance({p}, Tensor):")
        w(f"_a_{p} = {array_of(record, p)}; _r_{p} = {p}._requires_grad", 1)
        w("else:")
        _no_tensor(w, record)
        w(_checking(record), 1)
        if record.promote == "float":
            w(f"if _a_{p}.dtype is not F32 and _a_{p}.dtype not in INEXACT: _a_{p} = to_float(_a_{p})")
    elif tensors:
        arrays = ", ".join(f"_a_{p}" for p in tensors)
        flags = ", ".join(f"_c_{p}" for p in tensors)
        w(f"if {' and '.join(f'isinstance({p}, Tensor)' for p in tensors)}:")
        for p in tensors:
            w(f"_a_{p} = {array_of(record, p)}; _r_{p} = {p}._requires_grad; _c_{p} = None", 1)
        a0 = tensors[0]
        w(f"_d = _a_{a0}.dtype", 1)
        tests = [f"_d is not _a_{p}.dtype or _a_{a0}.__class__ is not _a_{p}.__class__" for p in tensors[1:]]
        if record.promote == "float":
            tests.append("_d is not F32 and _d not in INEXACT")
        w(f"if {' or '.join(tests)}:", 1)
        w(f"({arrays}), ({flags}) = promote_arrays(_op, [{arrays}])", 2)
        if len(tensors) == 2 and (
            record.numbers is True or tensors[1] in record.numbers
        ):  # a tensor and a Python number of its own kind
            plain = "plain_float_number" if record.promote == "float" else "plain_number"
            p, q = tensors
            w(f"elif isinstance({p}, Tensor) and {plain}(_a_{p} := ({array_of(record, p)}), {q}):")
            w(f"_r_{p} = {p}._requires_grad; _a_{q} = {q}", 1)
            w(f"_r_{q} = False; _c_{p} = _c_{q} = None", 1)
        w("else:")
        w(f"_p = prepare(_op, _name, [{', '.join(tensors)}], _unsupported)", 1)
        w(f"if _p is NotImplemented: return second_look(_self, _op, {_values(record)})", 1)
        w(f"({', '.join(tensors)}), ({arrays}), ({flags}) = _p", 1)
        for p in tensors:
            w(f"_r_{p} = {p}._requires_grad if isinstance({p}, Tensor) else False", 1)


def _choose_module(w: Text, record: Op, plan: FormulaReads) -> None:
    """`_xp`, the array module of the operands."""
    first = _first(record)
    if first is None:
        w("_xp = np")
    elif record.lists:
        w(f"_xp = xp_of({first})")
    else:
        converted = f" or {first}.__class__ is ChannelsLast" * (record.channels_last and "_array" in Tensor.__dict__)
        found = f"xp_for({', '.join('_a_' + p for p in record.tensors)})" if plan.mixed else f"xp_of({first})"
        w(f"_xp = np if {first}.__class__ is ndarray{converted} else {found}")


def _compute(w: Text, record: Op, plan: FormulaReads, inplace: bool) -> None:
    """`_r`, what the kernel gives; its errors in torch's words."""
    tensors, lists, first = record.tensors, record.lists, _first(record)
    inner = [f"_a_{p}" if p in tensors or p in lists else p for p in record.positional]
    inner += [f"{p}={'_a_' + p if p in tensors else p}" for p in record.keyword]
    call = f"({', '.join(['_xp', *inner])})"
    pick = "kernel" if first is None else _pick(record, plan, first, inplace)
    if inplace and record.kernel_out:  # the kernel writes into the target itself; never run twice
        w("with np.errstate(all='ignore'):")
        w(f"_r = {pick}{call[:-1]}, out=_w)", 1)
    else:
        given = ", ".join(f"_a_{p}" if p in tensors else f"*_a_{p}" if p in lists else p for p in record.params)
        direct = "" if inplace or not generated(record) else given
        _call_kernel(w, f"{pick}{call}", direct, _never_direct(record, first))
        if tensors:
            w("except (TypeError, ValueError, NotImplementedError) as _e:")
            if record.broadcast and len(tensors) > 1:
                w(f"check_broadcast({', '.join('_a_' + p for p in tensors)})", 1)
            if inplace and plan.mixed and record.promote != "compare":
                w("check_cast(_w, _a_input)", 1)
            w(f"refused(_op, _e, {', '.join('_a_' + p for p in tensors)})", 1)
            w("raise", 1)


def _pick(record: Op, plan: FormulaReads, first: str, inplace: bool) -> str:
    """Return the text that picks a kernel of a call: the op's own, that for large (and converted) arrays, or that of
    another backend."""
    size = f"{first}.size"
    if record.large_by:
        size = " * ".join(f"_a_{p}.size" for p in record.large_by)
    large = asked_from(record)
    small = f"{size} < {large}"
    if several_elements(record) and not inplace:  # Note [Size of a result]
        others = [f"_a_{p}" for p in record.tensors[1:]]
        few = f"few({large}, {', '.join([first, *others])})"
        if len(others) == 1:
            few = f"({others[0]}.__class__ is not ndarray or {size} * {others[0]}.size < {large} or {few})"
        small += f" and {few}"
    converted = record.channels_last and "_array" in Tensor.__dict__
    if plan.mixed:  # the first operand may be a number; then the second is the array
        small = f"{small} if {first}.__class__ is ndarray else _xp is np"
        if len(record.tensors) == 2:
            second = f"_a_{record.tensors[1]}"
            if converted and record.broadcast:  # numpy gives the result the order that both operands have
                alike = f"{second}.__class__ is not ndarray and {size} < {large}"
                small += f" and ({alike} if {first}.__class__ is ChannelsLast else {second}.size < {large})"
            else:
                small += f" and {first}.__class__ is not ChannelsLast" * converted
                small += f" and {second}.size < {large}"
        else:
            small += f" and {first}.__class__ is not ChannelsLast" * converted
        small = f"({small})"
    elif record.view:
        small = f"{first}.__class__ is ndarray"
    elif converted and _pointwise(record):
        small = f"_xp is np and {small}"
    else:
        small = f"{first}.__class__ is ndarray and {small}"
    chosen = "partial(large, into=_w)" if inplace and not record.kernel_out else "large"
    return f"(kernel if {small} else {chosen} if _xp is np else kernel_for(_op, _xp))"


def _pointwise(record: Op) -> bool:
    """Return whether each element of the result depends on that of the one operand, so that the result has its
    layout.
    """
    return record.blocks == "elements"


def _never_direct(record: Op, first: str | None) -> str:
    """Return the text that says for which calls no launch is ever cached: of fewer elements than the op asks generated
    code for, where it says how many that is; "" for the others."""
    if first is None or record.blocks == "elements" or record.lists or record.large_by or len(record.tensors) > 1:
        return ""
    few = asked_from(record)
    return f"{first}.size < {few} or " if 64 < few < Op.large else ""


def _call_kernel(w: Text, call: str, direct: str = "", never: str = "") -> None:
    w("try:")
    if direct:  # Note [Direct calls] in engine/kernels/direct.py
        w(f"if direct is None or {never}(_r := direct({direct})) is NotImplemented:", 1)
        w(f"_r = {call}", 2)
    else:
        w(f"_r = {call}", 1)
    w("except (RuntimeWarning, MemoryError) as _e:")  # Note [Floating point warnings]
    w("if _e.__class__ is not RuntimeWarning: make_room(_e)", 1)
    w("with np.errstate(all='ignore'):", 1)
    w(f"_r = {call}", 2)


def _finish_inplace(w: Text, record: Op, plan: FormulaReads) -> None:
    """The result into the target; its version and its node."""
    if record.channels_last:
        w("_w = raw_array(input)")
        w("if _w.__class__ is ChannelsLast: _w.packed = None")
    w("write(_name, _w, _r)")
    w("input._vc[0] += 1")
    record_call(w, record, plan, inplace=True)
    w("return input")


def _finish(w: Text, record: Op, plan: FormulaReads) -> None:
    """A Tensor of the result, a view of `input` where the op gives one, and its node."""
    tensors, first = record.tensors, _first(record)
    deep = 0
    if record.channels_last:
        w("_t = new(Tensor)")
        w(f"if _r.__class__ is not ndarray or {first}.__class__ is ChannelsLast: _r = hold(_t, _xp, _r, {first})")
        w("else:")
        deep = 1
    else:
        w("if _r.__class__ is not ndarray: _r = as_array(_xp, _r)")
    if record.broadcast and len(tensors) > 1 and not record.view:
        arrays = ", ".join("_a_" + p for p in tensors)
        other = f"getattr({first}, 'flags', _r.flags)"  # the first operand may be a number
        w(
            f"if _r.ndim > 1 and not ({first}.flags if {first}.__class__ is ndarray else {other}).c_contiguous: _r = "
            f"laid_out(_r, {arrays})",
            deep,
        )
    if not record.channels_last:
        w("_t = new(Tensor)")
    w("_t._array = _r", deep)
    if record.view:
        w("_v = _t._vc = input._vc")
        w("_t._base = input if input._base is None else input._base")
        w("_t._edge = None")
        if following.on:
            w("follow(_t, _r)")
    else:
        w("_t._vc = [0]")
    record_call(w, record, plan, inplace=False)
    if record.view:
        w(f"_t._view = View(None, _v[0], {view_step(record)}, _mode.enabled)")
        w("_t._requires_grad = MAYBE if _r.dtype in INEXACT else False")  # as the base does
    else:
        w("_t._requires_grad = False")
        w("_t._edge = None")
        w("if inferring[0]: mark(_t)")
    w("return _t")


def _several(w: Text, record: Op, plan: FormulaReads) -> None:
    """Several outputs: a named tuple, or a list ("many")."""
    file, make = ("as_result", "rewrap") if record.channels_last else ("as_array", "wrap")
    count = len(record.outputs)
    if count:  # as it mostly is, without a loop
        w(f"if {' is '.join(f'_r[{i}].__class__' for i in range(count))} is ndarray:")
        w(f"_ts = ({', '.join(f'wrap(_r[{i}])' for i in range(count))},)", 1)
        w("else:")
    deep = 1 if count else 0
    w(f"_r = [_x if _x.__class__ is ndarray else {file}(_xp, _x) for _x in _r]", deep)
    w(f"_ts = [{make}(_x) for _x in _r]", deep)
    if record.view:
        w("_base = input if input._base is None else input._base")
        w("for _t in _ts: _t._base = _base; _t._vc = input._vc")
        if following.on:
            w("for _t in _ts: follow(_t, _t._array)")
    if record.differentiable:
        begin_record(w, record)
        save(w, record, plan, 2, False)
        w("if anomaly.enabled: record_traceback(_n)", 2)
        if record.many:
            w("_n.n_outputs = len(_ts)", 2)
        w("for _i, _t in enumerate(_ts):", 2)
        skip = sorted(i for i, n in enumerate(record.outputs) if n in record.nondifferentiable)
        if skip:
            w(f"if _i in {tuple(skip)}: continue", 3)
        w("_t._requires_grad = True", 3)
        if record.view:
            w(f"_t._view = View((_n, _i), _t._vc[0], {many_step(record)}, True, True)", 3)
        else:
            w("_t._edge = (_n, _i)", 3)
        if record.view:
            w("return tuple(_ts)", 2)
    if record.view:
        w("for _i, _t in enumerate(_ts):")
        w(f"_t._view = View(None, _t._vc[0], {many_step(record)}, _mode.enabled, _mode.enabled)", 1)
        w("_t._requires_grad = MAYBE if _t._array.dtype in INEXACT else False", 1)
    w("return tuple(_ts)" if record.many else "return _Result(*_ts)")
