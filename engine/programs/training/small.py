"""The program of a step whose tensors are all small, on arrays: no Tensor is made between its ops.

Of an op on 64 elements numpy takes half a microsecond, and as much is spent on each of arguments, Tensor and choice of
a kernel, which for one program are the same in each call.  What the step finds is looked at once per call; where it is
not what was recorded the program on Tensors runs.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.dispatch import OPS
from engine.fx.graph import Graph
from engine.fx.node import Node, map_arg
from engine.ops import products, reduction, shape
from engine.programs.passes.chains import elementwise
from engine.programs.training.step import accumulate_grad
from engine.tensor import Tensor, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array, ArrayModule
    from engine.dispatch import Op
    from engine.dispatch.record import Kernel, Public

__all__ = ["is_small", "on_arrays"]

_MOST = 1 << 12  # elements of a tensor
_F32 = np.dtype("float32")
# ops beside those element by element whose kernels, given float32, do all there is to do; those that give views
_KERNELS = {f.op for f in (products.linear, reduction.mean, products.mm, reduction.sum, reduction.sum_to_size)}
_VIEWS = {f.op for f in (shape.expand, shape.t, shape.transpose)}


def is_small(graph: Graph) -> bool:
    """Return whether a graph has only such tensors and ops."""
    reads = [n for n, node in enumerate(graph.nodes) if _on_arrays(node)]
    for n, node in enumerate(graph.nodes):
        shape, kind = node.meta.get("kind", ((), _F32))
        if kind != _F32 or prod(shape) > _MOST:
            return False
        if _on_arrays(node) and not all(s.op == "placeholder" or _on_arrays(s) for s in node.all_input_nodes):
            return False
        if node.op != "call_function" or _on_arrays(node) or node.target is accumulate_grad:
            continue
        if node.meta.get("inplace") or not node.meta.get("effect") or any(map(_on_arrays, node.all_input_nodes)):
            return False
        if reads and reads[0] < n < reads[-1]:  # what it writes is read
            return False
    outputs = graph.output_node().all_input_nodes
    return bool(reads) and not any(n.meta.get("view") or getattr(n.target, "op", 0) in _VIEWS for n in outputs)


def _on_arrays(node: Node) -> bool:
    if node.op != "call_function" or node.meta.get("inplace") or node.meta.get("effect") or node.kwargs:
        return False
    if hasattr(node.target, "on_arrays"):
        return True
    record: Any = getattr(node.target, "op", None)
    if record is None or any("kind" not in n.meta for n in (node, *node.all_input_nodes)):
        return False
    return record in _KERNELS or record in _VIEWS or elementwise(record, {})


def _add_to(leaf: Tensor, array: Array) -> bool:
    """Return whether a gradient was added to `leaf.grad`, in place."""
    had: Tensor = leaf._grad
    if had.__class__ is not Tensor or leaf._array.dtype is not _F32:
        return False
    total = had._array
    if total.__class__ is not np.ndarray or total.dtype is not _F32 or total.shape != array.shape:
        return False
    total += array
    had._vc[0] += 1
    return True


def on_arrays(graph: Graph, plain: Public) -> Public:
    """The function of a graph that `is_small`, for a list of its values; `plain` is its program on Tensors."""
    space: dict[str, Any] = dict(
        np=np,
        ndarray=np.ndarray,
        F32=_F32,
        plain=plain,
        wrap=wrap,
        add_to=_add_to,
        accumulate_grad=accumulate_grad,
        __name__=__name__,
    )
    number = {node: n for n, node in enumerate(graph.nodes)}
    found = {node for node in graph.nodes if _on_arrays(node)}
    last = {source: node for node in graph.nodes for source in node.all_input_nodes}

    def thing(value: object) -> str:
        name = f"c{len(space)}"
        space[name] = value
        return name

    def text(value: Any, arrays: bool) -> str:
        if isinstance(value, Node):
            n = number[value]
            return f"a{n}" if arrays else f"wrap(a{n})" if value in found else f"v{n}"
        inner: list[object] = []
        map_arg(value, inner.append)
        if not inner:
            return thing(value)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {text(v, arrays)}" for k, v in value.items()) + "}"
        return ("[%s]" if isinstance(value, list) else "(%s)") % "".join(f"{text(v, arrays)}, " for v in value)

    takes = [node for node in graph.nodes if node.op == "placeholder"]
    lines = [f"[{', '.join(f'v{number[n]}' for n in takes)}] = box"]
    as_found = []
    for node in takes:
        if any(user in found for user in node.users):
            n = number[node]
            lines.append(f"a{n} = v{n}._array")
            as_found.append(
                f"a{n}.__class__ is ndarray and a{n}.dtype is F32 and a{n}.shape == {thing(node.meta['kind'][0])}"
            )
    lines += [f"if not ({' and '.join(as_found)}): return plain(box)", "box.clear()"]
    for node in graph.nodes:
        n = number[node]
        if node.op == "output":
            lines.append(f"return {text(node.args[0], False)}")
        elif node in found:
            lines += _computed(node, f"a{n}", [text(a, True) for a in node.args], thing)
        elif node.target is accumulate_grad and node.args[1] in found:
            leaf, gradient, own = node.args
            g = f"a{number[gradient]}"
            lines.append(f"if not add_to({text(leaf, False)}, {g}):")
            lines.append(f" t = wrap({g})" + f"; {g} = None" * bool(own))  # nobody else holds it
            lines.append(f" accumulate_grad({text(leaf, False)}, t, {own}); t = None")
        elif node.op == "call_function":
            given = [text(a, False) for a in node.args] + [f"{k}={text(v, False)}" for k, v in node.kwargs.items()]
            lines.append(f"v{n} = {thing(node.target)}({', '.join(given)})")
        done = [f"a{number[s]}" for s in node.all_input_nodes if last[s] is node and s in found]
        if done and node.op != "output":
            lines.append(f"{' = '.join(done)} = None")
    source = "def step(box):\n " + "\n ".join(lines) + "\n"
    exec(compile(source, "<small plan>", "exec"), space)
    step: Public = space["step"]
    return step


def _computed(node: Node, name: str, given: list[str], thing: Callable[[object], str]) -> list[str]:
    """Lines that compute a node."""
    target: Any = node.target
    if hasattr(target, "on_arrays"):
        return [f"{name} = {thing(target.on_arrays)}({', '.join(given)})"]
    lines = [f"{name} = {thing(_kernel(target.op, node))}({', '.join(['np', *given])})"]
    lines = ["try: " + lines[0], "except RuntimeWarning:", f" with np.errstate(all='ignore'): {lines[0]}"]
    return lines if node.meta["kind"][0] else [*lines, f"{name} = np.asarray({name})"]


def _kernel(record: Op, node: Node) -> Kernel:
    """The op's kernel, or what it comes to for the recorded shapes."""
    shape, size = node.args[0].meta["kind"][0], node.meta["kind"][0]
    if record is OPS["mm"]:
        return _product
    if record in (OPS["t"], OPS["transpose"]) and len(shape) == 2 and len({d % 2 for d in node.args[1:]}) != 1:
        return _transposed
    if record is OPS["sum_to_size"] and 0 < len(size) < len(shape) and shape[len(shape) - len(size) :] == size:
        lead = tuple(range(len(shape) - len(size)))
        return lambda xp, array, _: np.add.reduce(array, lead)
    return record.kernel


def _product(xp: ArrayModule, a: Array, b: Array) -> Array:
    return a.dot(b)  # type: ignore[no-any-return]  # an array, as numpy has it


def _transposed(xp: ArrayModule, array: Array, *dims: int) -> Array:
    return array.T
