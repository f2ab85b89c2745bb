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
from engine.kernels import processor
from engine.ops import products, reduction, shape
from engine.programs.passes.chains import elementwise
from engine.programs.training.step import accumulate_grad
from engine.tensor import Tensor, wrap

if TYPE_CHECKING:
    from engine.core.arrays import Array, ArrayModule
    from engine.dispatch import Op
    from engine.dispatch.record import Arrays, Kernel, Launch, Public
    from engine.fx.node import Argument

    Lines = Callable[[Node, str, list[str], Callable[[object], str]], list[str]]

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


class _Source:
    """A function in the making: its lines, and the objects that they name."""

    def __init__(self, **space: object) -> None:
        self.space, self.lines = dict(space), list[str]()

    def named(self, value: object) -> str:
        """Return a name for an object."""
        name = f"c{len(self.space)}"
        self.space[name] = value
        return name

    def text(self, value: Argument, of: Callable[[Node], str]) -> str:
        """Return the text of an argument, in which a node is spelt as `of` says."""
        if isinstance(value, Node):
            return of(value)
        inner: list[object] = []
        map_arg(value, inner.append)
        if not inner:
            return self.named(value)
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k!r}: {self.text(v, of)}" for k, v in value.items()) + "}"
        return ("[%s]" if isinstance(value, list) else "(%s)") % "".join(f"{self.text(v, of)}, " for v in value)

    def function(self, name: str, takes: str) -> Public:
        """Return the function."""
        text = f"def {name}({takes}):\n " + "\n ".join(self.lines) + "\n"
        exec(compile(text, "<small plan>", "exec"), self.space)
        return self.space[name]  # type: ignore[return-value]  # what the text defines


def on_arrays(graph: Graph, plain: Public) -> Public:
    """The function of a graph that `is_small`, for a list of its values; `plain` is its program on Tensors."""
    number = {node: n for n, node in enumerate(graph.nodes)}
    found = [node for node in graph.nodes if _on_arrays(node)]
    takes = [node for node in graph.nodes if node.op == "placeholder"]
    given = [node for node in takes if any(_on_arrays(user) for user in node.users)]
    made = [node for node in found if not all(map(_on_arrays, node.users))]
    for node in found:
        into = getattr(node.target, "into", None)
        if into is not None and node.args[into] in made:  # which is used when all has been computed
            node.target.into = None  # type: ignore[union-attr]
    compute, launches = (_computing(number, found, given, made, by) for by in (_computed, _launched))
    source = _Source(
        np=np,
        ndarray=np.ndarray,
        F32=_F32,
        plain=plain,
        wrap=wrap,
        add_to=_add_to,
        accumulate_grad=accumulate_grad,
        compute=compute,
        direct=_direct(compute, launches),
        __name__=__name__,
    )
    lines = source.lines

    def text(value: Argument) -> str:
        return source.text(value, lambda node: f"wrap(a{number[node]})" if node in made else f"v{number[node]}")

    lines.append(f"[{', '.join(f'v{number[n]}' for n in takes)}] = box")
    as_found = []
    for n, size in [(number[node], node.meta["kind"][0]) for node in given]:
        lines.append(f"a{n} = v{n}._array")
        as_found.append(f"a{n}.__class__ is ndarray and a{n}.dtype is F32 and a{n}.shape == {source.named(size)}")
    lines += [f"if not ({' and '.join(as_found)}): return plain(box)", "box.clear()"]
    arrays = ", ".join(f"a{number[node]}" for node in given)
    lines += [f"found = direct({arrays})", f"if found is NotImplemented: found = compute({arrays})"]
    lines += [f"{''.join(f'a{number[node]}, ' for node in made)}= found", "found = None"]
    for node in graph.nodes:
        if node.op == "output":
            lines.append(f"return {text(node.args[0])}")
        elif node.target is accumulate_grad and node.args[1] in made:
            leaf, gradient, own = node.args
            g = f"a{number[gradient]}"
            lines.append(f"if not add_to({text(leaf)}, {g}):")
            lines.append(f" t = wrap({g})" + f"; {g} = None" * bool(own))  # nobody else holds it
            lines.append(f" accumulate_grad({text(leaf)}, t, {own}); t = None")
        elif node.op == "call_function" and node not in found:
            args = [text(a) for a in node.args] + [f"{k}={text(v)}" for k, v in node.kwargs.items()]
            lines.append(f"v{number[node]} = {source.named(node.target)}({', '.join(args)})")
    return source.function("step", "box")


def _computing(number: dict[Node, int], found: list[Node], given: list[Node], made: list[Node], by: Lines) -> Public:
    """What is computed on arrays: those of `given` to a tuple of those of `made`; `by` has the lines of a node."""
    source, last = _Source(np=np), {node: user for user in found for node in user.all_input_nodes}
    for node in found:
        given_texts = [source.text(a, lambda node: f"a{number[node]}") for a in node.args]
        source.lines += by(node, f"a{number[node]}", given_texts, source.named)
        done = [f"a{number[s]}" for s in node.all_input_nodes if last[s] is node and s in found and s not in made]
        if done:
            source.lines.append(f"{' = '.join(done)} = None")
    source.lines.append(f"return {''.join(f'a{number[node]}, ' for node in made) or '()'}")
    return source.function("compute", f"{', '.join(f'a{number[node]}' for node in given)}, xp=np")


def _direct(compute: Public, launches: Public) -> Launch:
    """All that is computed as one direct call, once such steps are repeated; NotImplemented until then."""

    def never(*arrays: Array) -> Arrays:
        return NotImplemented  # type: ignore[no-any-return]  # of no type

    if not processor.available():
        return never
    from engine.ops.generated import small

    return small.function_for("small step", lambda xp, *arrays: launches(*arrays, xp=xp), compute) or never


def _computed(node: Node, name: str, given: list[str], thing: Callable[[object], str]) -> list[str]:
    """Lines that compute a node."""
    target: Any = node.target
    if hasattr(target, "on_arrays"):
        return [f"{name} = {thing(target.on_arrays)}({', '.join(given)})"]
    lines = [f"{name} = {thing(_kernel(target.op, node))}({', '.join(['np', *given])})"]
    lines = ["try: " + lines[0], "except RuntimeWarning:", f" with np.errstate(all='ignore'): {lines[0]}"]
    return lines if node.meta["kind"][0] else [*lines, f"{name} = np.asarray({name})"]


def _launched(node: Node, name: str, given: list[str], thing: Callable[[object], str]) -> list[str]:
    """A line that computes a node by launches of generated code alone, with an array module `xp`."""
    return [f"{name} = {thing(_launching(node))}(xp, {', '.join(given)})"]


def _launching(node: Node) -> Kernel:
    """The function of a node that does nothing but launch; one that raises Unfit for what has none."""
    target: Any = node.target
    variant: Any = None

    def launch_it(xp: ArrayModule, *args: Any) -> Array:
        nonlocal variant
        from engine.ops import generated
        from engine.ops.cuda.elementwise import kernel_from
        from engine.ops.generated import launch, layers

        if variant is None:
            if hasattr(target, "chain"):
                variant = kernel_from(*target.chain)
            elif target.op in _VIEWS:
                variant = target.op.kernel
            elif target.op is OPS["mm"]:
                variant = layers.product
            else:
                variant = generated.variant_of(target.op, small=True)
        found: Array = variant(xp, *args)
        if found is NotImplemented:
            raise launch.Unfit("no launch for such operands")
        return found

    return launch_it


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
