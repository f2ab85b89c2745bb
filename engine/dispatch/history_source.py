"""The lines of a function's text that record a call: the node, its edges, and what it saves for the formulas."""

from __future__ import annotations

from engine.dispatch.gradients import FormulaReads, Text
from engine.dispatch.record import Op
from engine.tensor import Tensor

__all__ = ["array_of", "begin_record", "many_step", "record_call", "save", "view_step"]


def array_of(record: Op, tensor: str) -> str:
    """Return the text of a tensor's array, in its own layout for ops with `channels_last` once one is converted."""
    if record.channels_last and "_array" in Tensor.__dict__:
        return f"{tensor}._array if (_l := {tensor}._channels_last) is None else _l"
    return f"{tensor}._array"


def begin_record(w: Text, record: Op, inplace: bool = False) -> None:
    diff = record.differentiable
    w(f"if ({' or '.join('_r_' + p for p in diff)}) and _mode.enabled:")
    for p in diff:
        if p not in record.lists:
            w(f"if _r_{p} is MAYBE: _r_{p} = requires_grad_of({p})", 1)
    test = " or ".join(f"_r_{p}" for p in diff)
    if record.saves_integer:
        test = f"({test}) and _r.dtype in INEXACT"
    w(f"if {test}:", 1)
    choice = [f"_Node{i} if {test} else " for i, test in enumerate(record.node_names)]
    w(f"_n = new({''.join(choice)}_Node)", 2)
    w("_n._extra = None", 2)
    edges = []
    for p in diff:
        if p in record.lists:
            edges.append(f"*edges_of({p})")
        else:
            edge = f"{p}._edge or edge_of({p})"
            if inplace and p != "input":
                edge = f"{p}._edge or edge_beside({p}, input)"
            elif inplace:  # a view's is replaced by its base's (CopySlices)
                edge = "None if input._view is not None else " + edge
            edges.append(edge if len(diff) == 1 else f"({edge}) if _r_{p} else None")
    w(f"_n.next_edges = ({', '.join(edges)},)", 2)
    w("_n.sequence_nr = next_seq()", 2)  # edge_of may have made nodes: Note [Passes without a plan]


def save(w: Text, record: Op, plan: FormulaReads, deep: int, inplace: bool) -> None:
    """Lines that fill node.saved and node.args (after the results exist)."""
    saved: list[str] = []
    conditions: list[str] = []
    for p in plan.saved:
        cond = plan.condition(p)
        name = "_old" if inplace and p == "input" else p
        if p in record.lists:
            saved += [
                f"tuple({p}) if {cond} else None",
                f"tuple([_x._vc[-1] for _x in {p}]) if {cond} else None",
            ]
            conditions.append(cond)
            continue
        if plan.mixed or p in record.optional:
            w(f"_k_{p} = ({cond}) and isinstance({p}, Tensor)", deep)
            cond = f"_k_{p}"
        elif record.differentiable == (p,):
            cond = "True"
        saved += [f"{name} if {cond} else None", f"{name}._vc[-1] if {cond} else None"]
        conditions.append(cond)
    if inplace:
        # the target as saved above was read before the write; the version it is compared with must be the old one
        saved = [s.replace("input._vc[-1]", "(input._vc[-1] - 1)") for s in saved]
        for p in plan.saved:
            if p != "input" and p not in record.lists:
                saved = [s.replace(f"{p}._vc[-1]", f"({p}._vc[-1] - ({p}._vc is input._vc))") for s in saved]
    for name in plan.results:
        cond = plan.condition(name)
        nr = int(name.removeprefix("kept_")[6:] or 0)
        if inplace:
            holder = "new_tuple(SavedResult, (_w, input._vc, input._vc[0], 0))"
        elif record.many:
            raise TypeError(f"op {record.name}: results of a list-valued op cannot be saved")
        elif record.outputs:
            holder = f"new_tuple(SavedResult, (_r[{nr}], _ts[{nr}]._vc, _ts[{nr}]._vc[0], {nr}))"
        else:
            holder = "new_tuple(SavedResult, (_r, _t._vc, _t._vc[0], 0))"
        if isinstance(record.keeps, dict) and name in record.keeps:  # by the nodes of that name only
            place = list(record.node_names.values()).index(record.keeps[name])
            cond = f"_n.__class__ is _Node{place}"
        elif len(record.differentiable) == 1:
            cond = "True"
        saved.append(holder if cond == "True" else f"{holder} if {cond} else None")
        conditions.append(cond)
    if not saved:
        w("_n.saved = ()", deep)
    elif "True" in conditions:
        w(f"_n.saved = ({', '.join(saved)},)", deep)
    else:
        w(f"_n.saved = ({', '.join(saved)},) if {' or '.join(conditions)} else ()", deep)
    args = [f"None if isinstance({p}, Tensor) else {p}" for p in plan.saved if plan.mixed]
    args += [
        f"[_x.shape for _x in _a_{p}]"
        if p in record.lists
        else f"_a_{p}.shape if {p} is not None else None"
        if p in record.optional
        else f"_a_{p}.shape"
        for p in plan.shapes
    ]
    args += [
        f"[_x.dtype for _x in {p}]" if p in record.lists else f"({array_of(record, p)}).dtype" for p in plan.dtypes
    ]
    args += plan.plain
    args += [f"_a_{p}.shape if _r_{p} else None" for p in plan.back] + [f"_c_{p}" for p in plan.back]
    w(f"_n.args = ({', '.join(args)}{',' if args else ''})", deep)


def record_call(w: Text, record: Op, plan: FormulaReads, inplace: bool) -> None:
    if not record.differentiable:
        if inplace:
            name = "".join(f"{name!r} if {test} else " for test, name in record.node_names.items())
            w("if _r_input and _mode.enabled and requires_grad_of(input):")
            w(f"rebase_constant(input, {name}{record.node_name!r})", 1)
        return
    begin_record(w, record, inplace)
    save(w, record, plan, 2, inplace)
    w("if anomaly.enabled: record_traceback(_n)", 2)
    if inplace:
        w("if input._view is None:", 2)
        w("if (_e := input._edge) is not None and _e[0]._extra is not None: move_retained(input, _e, (_n, 0))", 3)
        w("input._edge = (_n, 0); input._requires_grad = True", 3)
        w("else:", 2)
        w("rebase(input, _n)", 3)
        return
    w("_t._requires_grad = True", 2)
    if record.view:
        w(f"_t._view = View((_n, 0), _v[0], {view_step(record)}, True)", 2)
    else:
        w("_t._edge = (_n, 0)", 2)
    w("return _t", 2)


def view_step(record: Op) -> str:
    inner = ", ".join([p for p in record.params if p != "input"])
    return f"(input._view, _self, ({inner}{',' if inner else ''}))"


def many_step(record: Op) -> str:
    arguments = [p for p in record.params if p != "input"]
    inner = ", ".join(arguments)
    return f"(input._view, pick(_self, _i), ({inner}{',' if inner else ''}))"
