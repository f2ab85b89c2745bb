"""The binder: gives the function and the node of an op the code of their texts, again where something has changed.

`function_source.py` writes the text of a function, `gradients.py` that of a node's `apply`.  Equal texts share one
code object.  To read the text of an op: `print(engine.dispatch.binder.source(engine.dispatch.OPS["mul"]))`.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

from engine.autograd.graph import Node, named, registered
from engine.backends import routes
from engine.core.slots import Several
from engine.core.storage import registered as storages
from engine.dispatch import autocast
from engine.dispatch.choosing import direct_calls, large_kernel
from engine.dispatch.choosing import onednn_kernels as onednn_kernels  # for plans: who asks has the binder, too
from engine.dispatch.function_source import source as source  # to read it, who asks has the binder
from engine.dispatch.gate import rewritten
from engine.dispatch.gradients import FormulaReads, apply_source, arrays_source
from engine.dispatch.record import Op
from engine.dispatch.runtime import SHARED
from engine.dispatch.table import OPS, providers

if TYPE_CHECKING:
    from engine.dispatch.record import Kernel, Namespace, Shows

_codes: dict[str, CodeType] = {}


def compile_into(function: FunctionType, record: Op, namespace: Namespace, inplace: bool, unsupported: object) -> None:
    """Give the stub `function` its real code, and its namespace what that code reads."""
    if record.node is None and record.differentiable:
        record.node = node_class(record)
    text = source(record, inplace)
    code = _compiled(text, record.name + "_" * inplace)
    namespace.update(SHARED, autocast_state=autocast.state, cast_operands=autocast.cast_operands)
    namespace["_large"] = large_kernel(record)  # it knows what trials decided, so that a profile keeps it
    namespace["large"] = cpu_kernel(record, namespace["_large"])
    namespace["direct"] = None if wrappers or inplace else direct_calls(record)
    for wrapper in wrappers:
        namespace["kernel_for"] = getattr(wrapper, "elsewhere", namespace["kernel_for"])
    namespace.update(
        _op=record,
        _name=function.__name__,
        _unsupported=unsupported,
        _Node=record.node,
        kernel=cpu_kernel(record),
        _Result=record.result_type,
        _self=function,
        _inplace=inplace,
    )
    for i, (test, name) in enumerate(record.node_names.items()):
        namespace[f"_Node{i}"] = record.node and named(record.node, name)
        known = inspect.unwrap(record.kernel).__globals__  # the op's module may hold what the tests call
        for used in compile(test, record.name, "eval").co_names:
            if used in known and used not in SHARED:
                namespace[used] = known[used]
    for name, value in record.defaults.items():
        namespace["_d_" + name] = value
    scope: dict[str, FunctionType] = {}
    exec(code, namespace, scope)
    made = scope["call"]
    function.__defaults__ = made.__defaults__
    function.__kwdefaults__ = made.__kwdefaults__
    function.__code__ = made.__code__.replace(co_name=function.__name__, co_qualname=function.__name__)
    record.namespaces.append(namespace)
    rewritten(function)


def begin_conversion() -> None:
    """The first converted tensor: the ops that keep layouts are written again, so that they ask for them."""
    rewrite(lambda record: record.channels_last)


def routes_changed(names: set[str]) -> None:
    """Other routes of these ops: their texts, in which the elements stand, are written again."""
    rewrite(lambda record: record.name in names)


def begin_following() -> None:
    """The first storage that moves with several tensors: views are written again, Note [Tensors of a storage]."""
    rewrite(lambda record: record.view)


def rewrite(chosen: Callable[[Op], bool]) -> None:
    """Write the texts of the functions of these ops again."""
    for record in [r for r in OPS.values() if chosen(r)]:
        namespaces, record.namespaces = record.namespaces, []
        for namespace in namespaces:
            compile_into(
                namespace["_self"],
                record,
                namespace,
                namespace["_inplace"],
                namespace["_unsupported"],
            )


registered.begin_conversion = begin_conversion
storages.begin_following = begin_following
routes.providers.changed = routes_changed
providers.rewrite = rewrite


def cpu_kernel(record: Op, base: Kernel | None = None) -> Kernel:
    """The kernel CPU calls use now: `base` (the op's own), or a profiler's wrapper round it."""
    base = base or record.kernel
    for wrapper in wrappers:
        base = wrapper(record, base)
    return base


# f(record, kernel) -> kernel; see `instrument`.  f.elsewhere: what stands for `kernel_for`
wrappers: Several[Callable[[Op, Kernel], Kernel]] = Several()


def instrument() -> None:
    """Apply the present `wrappers` to every compiled op (profilers, kernel variants)."""
    for record in OPS.values():
        for namespace in record.namespaces:
            namespace["kernel"] = cpu_kernel(record)
            namespace["large"] = cpu_kernel(record, namespace["_large"])
            namespace["direct"] = None if wrappers or namespace["_inplace"] else direct_calls(record)


def _compiled(text: str, label: str) -> CodeType:
    code = _codes.get(text)
    if code is None:
        filename = f"<engine op {label}>"
        code = _codes[text] = compile(text, filename, "exec")
        linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    return code


# --- the node


def _shown(shows: Shows) -> Callable[[Node], object]:
    def next_functions(self: Node) -> object:
        """(node, output_nr) for each input, as of torch's nodes."""
        more = self._more()
        if more.shown is None:
            more.shown = tuple((None, 0) if e is None else e for e in shows(self.name(), *self.next_edges))
        return more.shown

    return next_functions


def node_class(record: Op) -> type[Node]:
    """The Node subclass of an op, with its compiled `apply`."""
    text = apply_source(record)
    code = _compiled(text, record.name + " backward")
    namespace = dict(SHARED)
    for p in record.differentiable:
        formula = record.joint[1] if record.joint else record.formulas[p]
        label = f"{record.node_name}.{p}"
        if not record.joint:
            formula = FunctionType(
                formula.__code__.replace(co_name=label, co_qualname=label),
                formula.__globals__,
                label,
                formula.__defaults__,
                formula.__closure__,
            )
        namespace[f"_f_{p}"] = formula
    exec(code, namespace)
    if record.array_formulas is not None:
        for p in ("by",) if record.joint else record.differentiable:
            namespace[f"_fa_{p}"] = record.array_formulas.get(p) or record.formulas[p]
        exec(_compiled(arrays_source(record), record.name + " backward of arrays"), namespace)
    slots = ("n_outputs",) if record.many else ()
    attributes: dict[str, object] = {
        "__slots__": slots,
        "apply": namespace["apply"],
        "__module__": "engine",
        "op": record,
    }
    if record.adds is not None:
        attributes["adds"] = staticmethod(record.adds)
    kept = [n for n in FormulaReads(record).results if n.startswith("kept_")]
    if kept:
        attributes["kept_results"] = frozenset(int(n.removeprefix("kept_result") or 0) for n in kept)
    if record.outputs:
        # those behind the last one that has a gradient get none: hooks are not handed them
        attributes["n_outputs"] = 1 + max(
            (i for i, n in enumerate(record.outputs) if n not in record.nondifferentiable), default=0
        )
    if record.array_formulas is not None:
        attributes["arrays"] = namespace["arrays"]
    if record.shows is not None:
        attributes["next_functions"] = property(_shown(record.shows))
    return type(record.node_name, (Node,), attributes)
