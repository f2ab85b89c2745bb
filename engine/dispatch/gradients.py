"""The texts of nodes' methods: `apply`, and `arrays` where an op has it; and what formulas read (`FormulaReads`).

Note [Gradients over arrays]
A backward pass that records nothing computes with numbers only, yet its formulas work on Tensors, which on small
tensors costs several times the arithmetic.  So the ops of small everyday graphs say `@array_derivative`: their nodes
have a second method, `arrays`, which does what `apply` does with numpy arrays in and out.  It serves one gradient of
float32 or float64, of at most SMALL elements (of any number where the formulas are `moving` and nothing was broadcast),
where all that it reads is of that dtype, and returns None for anything else: then the engine makes Tensors and calls
`apply`.  A joint formula (`by`) returns NotImplemented for what it leaves to `apply`.  A test compares the two for
every sample of these ops.
"""

from __future__ import annotations

from types import CodeType, FunctionType

from engine.dispatch.record import Op


class Text:
    """Lines of Python, indented."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def __call__(self, line: str, deeper: int = 0) -> None:
        self.lines.append("    " * (self.depth + deeper) + line)

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


# what an error shows of a saved tensor that was written to: what torch saves, where that is a view of it
_SHOWN = {("linear", "weight"): "weight.t()"}


def _numbered(name: str, start: str) -> bool:
    return name.startswith(start) and name[len(start) :].isdigit()


def formula_params(formula: FunctionType) -> tuple[str, ...]:
    """The names a formula reads."""
    code: CodeType = formula.__code__
    return code.co_varnames[: code.co_argcount]


class FormulaReads:
    """The names that the formulas of an op read: saved tensors, results, arguments."""

    def __init__(self, record: Op) -> None:
        readers: dict[str, set[str]] = {}
        formulas = [(p, record.formulas[p]) for p in record.differentiable] if not record.joint else []
        if record.joint:
            formulas = [(p, record.joint[1]) for p in record.differentiable]
        for p, formula in formulas:
            for name in formula_params(formula):
                readers.setdefault(name, set()).add(p)
        self.unread = [name for name in record.keeps if name not in readers]
        for name in record.keeps:
            readers.setdefault(name, set()).update(record.differentiable)
        self.readers = readers
        tensors = (*record.lists, *record.tensors)
        self.saved = [p for p in tensors if p in readers]
        self.results = [n for n in readers if (s := n.removeprefix("kept_")) == "result" or _numbered(s, "result")]
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
        self.mixed = record.promote is not None and len(record.tensors) > 1  # operands may be numbers
        # shapes to sum gradients back to, and dtypes to cast them back to
        self.back = [p for p in record.differentiable if self.mixed and p in record.tensors]

    def condition(self, name: str) -> str:
        return " or ".join(f"_r_{p}" for p in sorted(self.readers[name]))

    def arg_names(self) -> list[str]:
        """The entries of node.args, in order (names as in `apply`)."""
        names = [f"n_{p}" for p in self.saved if self.mixed]
        names += [f"{p}_shape" for p in self.shapes] + [f"{p}_dtype" for p in self.dtypes] + list(self.plain)
        names += [f"s_{p}" for p in self.back] + [f"c_{p}" for p in self.back]
        return names


def apply_source(record: Op) -> str:
    """The Python text of the backward of an op."""
    plan = FormulaReads(record)
    w = Text()
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
    for p in plan.dtypes:
        if p not in record.lists:
            w(f"{p}_dtype = from_numpy({p}_dtype)")
    for p in plan.saved:
        if p in record.lists:
            w(f"if v_{p} is not None:")
            w(f"for _x, _v in zip({p}, v_{p}):", 1)
            w("if _x._vc[0] != _v: check_input(_x, _v)", 2)
            continue
        w(f"if v_{p} is not None:")
        w(f"if {p}._vc[0] != v_{p}: check_input({_SHOWN.get((record.name, p), p)}, v_{p})", 1)
        if plan.mixed:
            w("else:")
            w(f"{p} = n_{p}", 1)
    for n in plan.results:
        if n in plan.unread:
            w(f"if h_{n} is not None and h_{n}.counter[0] != h_{n}.version: unpack_result(h_{n}, self, rewrap)")
            continue
        stale = f" or h_{n}.counter[0] != h_{n}.version" * n.startswith("kept_")
        w(f"{n} = None if h_{n} is None{stale} else unpack_result(h_{n}, self, rewrap)")
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
                index = f"needs[{i - 1} - {len(record.differentiable) - 1}]" if list_first else f"needs[{i}]"
                w(f"g_{p} = _f_{p}({arguments}) if {index} else None")
    for p in plan.back:
        w(f"if g_{p} is not None:")
        w(
            f"if (g_{p}._array if (_l := g_{p}._channels_last) is None else _l).shape != s_{p} and s_{p} is not None: "
            f"g_{p} = registered.sum_to_size(g_{p}, s_{p})",
            1,
        )
        w(f"if c_{p} is not None: g_{p} = registered.cast(g_{p}, c_{p})", 1)
    parts = [f"*g_{p}" if p in record.lists else f"g_{p}" for p in record.differentiable]
    w(f"return ({', '.join(parts)},)")
    return w.text()


def arrays_source(record: Op) -> str:
    """The Python text of the backward of an op over arrays: Note [Gradients over arrays]."""
    plan = FormulaReads(record)
    formulas = record.array_formulas or {}
    if record.lists or (record.joint and "by" not in formulas) or record.outputs or record.many:
        raise TypeError(f"op {record.name}: array_derivative is for ops with one output and no lists")
    w = Text()
    w("def arrays(self, grads, needs):")
    w.depth = 1
    w("grad = grads[0]")
    w("if grad.__class__ is not ndarray:")
    w("if grad is None or grad._channels_last is not None: return None", 1)
    w("grad = grad._array", 1)
    w("if grad.__class__ is not ndarray: return None", 1)
    w("d = grad.dtype")
    moves = bool(formulas) and all(getattr(formula, "moves", False) for formula in formulas.values())
    w(f"if {'' if moves else 'grad.size > SMALL or '}d is not F32 and d is not F64: return None")
    names = []
    for p in plan.saved:
        names += [p, f"v_{p}"]
    names += [f"h_{n}" for n in plan.results]
    if names:
        w("saved = self.saved")
        w("if saved is None: second_time()")
        w("if not saved: return None")
        w(f"({', '.join(names)},) = saved")
    args = plan.arg_names()
    if args:
        w(f"({', '.join(args)},) = self.args")
    if plan.back:
        w(f"if {' or '.join(f'c_{p} is not None' for p in plan.back)}: return None")
    for p in plan.dtypes:
        w(f"if {p}_dtype is not d: return None")
    for p in plan.saved:
        w(f"if v_{p} is not None:")
        w(f"if {p}._vc[0] != v_{p}: check_input({_SHOWN.get((record.name, p), p)}, v_{p})", 1)
        w(f"if {p}._channels_last is not None: return None", 1)
        w(f"{p} = {p}._array", 1)
        large = "" if record.joint else f" or {p}.size > SMALL"
        w(f"if {p}.__class__ is not ndarray or {p}.dtype is not d{large}: return None", 1)
        if plan.mixed:
            w("else:")
            w(f"{p} = n_{p}", 1)
            w(
                f"if {p}.__class__ is not float and {p}.__class__ is not int and {p} is not None: return None",
                1,
            )
    for n in plan.results:
        w(f"if h_{n}.counter[0] != h_{n}.version: unpack_result(h_{n}, self, rewrap)")
        w(f"{n} = h_{n}.array")
        w(f"if {n}.__class__ is not ndarray or {n}.dtype is not d: return None")
    w("try:")
    if record.joint:
        w(f"_g = _fa_by({', '.join(formula_params(formulas['by']))})", 1)
    for i, p in enumerate(record.differentiable if not record.joint else ()):
        formula = formulas.get(p, record.formulas[p])
        deep = 1
        if len(record.differentiable) > 1:
            w(f"g_{p} = None", 1)
            w(f"if needs[{i}]:", 1)
            deep = 2
        w(f"g_{p} = _fa_{p}({', '.join(formula_params(formula))})", deep)
        w(f"if g_{p}.__class__ is not ndarray:", deep)
        w(f"if g_{p} is NotImplemented or g_{p} is None: return None", deep + 1)
        w(f"g_{p} = np.asarray(g_{p})", deep + 1)
        if p in plan.back:
            w(f"if g_{p}.shape != s_{p}:", deep)
            if moves:
                w(f"if g_{p}.size > SMALL: return None", deep + 1)
            w(f"g_{p} = summed_to(g_{p}, s_{p})", deep + 1)
    w("except RuntimeWarning:")
    w("return None", 1)
    if record.joint:
        w("if _g is NotImplemented: return None")
        parts = [f"_g[{record.joint[0].index(p)}]" for p in record.differentiable]
    else:
        parts = [f"g_{p}" for p in record.differentiable]
    w(f"return ({', '.join(parts)},)")
    return w.text()
