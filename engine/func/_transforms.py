"""`grad`, `vjp`, `jvp` and what is made of them.

All work on the ordinary graph.  A transform makes its own inputs of what it is given (leaves, or where those are part
of an outer transform's graph views of them), under vmap with all slices of every level, so that what is asked of the
graph is the derivative of each slice.  Tangents are found by differentiating a backward pass with respect to the
gradient that it begins with, in which it is linear.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

from engine.autograd.api import grad as _grad
from engine.autograd.function import forward_mode
from engine.autograd.graph import AccumulateGrad
from engine.core.grad_mode import mode, no_grad
from engine.func._lanes import Lane, lane, levels, plain
from engine.func._vmap import vmap
from engine.ops import functions as torch
from engine.tensor import Tensor
from engine.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize", "vjp"]

_nested = threading.local()


def _spread(x: Any, level: int, size: int) -> Any:
    """`x` with all slices of that level."""
    if x.__class__ is Lane:
        if x._level == level:
            return x
        if x._level > level:
            return lane(_spread(x._value, level, size), x._level)
    return lane(x.expand(size, *x.shape), level)


def _everywhere(x: Any) -> Any:
    for level, size in levels():
        x = _spread(x, level, size)
    return x


def _like(value: Tensor, tensor: Any) -> Any:
    """The plain `value` as one slice, of the levels that `tensor` has."""
    found = []
    while tensor.__class__ is Lane:
        found.append(tensor._level)
        tensor = tensor._value
    for level in reversed(found):
        value = lane(value, level)
    return value


class _Inputs:
    """A transform's own inputs: `seen` for the function, `leaves` to differentiate with respect to."""

    def __init__(self, tensors: Sequence[Any], name: str) -> None:
        self.outer = getattr(_nested, "depth", 0) > 0
        self.seen, self.leaves = [], []
        for t in tensors:
            if not isinstance(t, Tensor):
                raise ValueError(f"{name}: Expected all inputs to be Tensors, got {type(t).__name__}")
            if not (t.is_floating_point() or t.is_complex()):
                raise RuntimeError(f"{name}: only Tensors of floating point and complex dtype can require gradients")
            wide = _everywhere(t)
            value = plain(wide)
            if value.requires_grad:
                self.outer = True
                value = value.view_as(value)
            else:
                value = value.detach().requires_grad_()
            self.leaves.append(value)
            self.seen.append(_like(value, wide))

    def __enter__(self) -> _Inputs:
        _nested.depth = getattr(_nested, "depth", 0) + 1
        self._mode = mode.enabled
        mode.enabled = True
        return self

    def __exit__(self, *exc: object) -> None:
        _nested.depth -= 1
        mode.enabled = self._mode

    def again(self, outputs: Sequence[Tensor]) -> bool:
        """Return whether the derivative is to be differentiable itself: an outer transform asks, or a graph around
        this.
        """
        return self._mode and (self.outer or _reaches_more(outputs, self.leaves))

    def result(self, value: Any, again: bool) -> Any:
        """Return a result of the function in the form that the caller gets."""
        return value if again else _like(plain(value).detach(), value)


def _reaches_more(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> bool:
    """Return whether the graph of the outputs has leaves beside those."""
    own = {id(x) for x in leaves}
    stack = [o.grad_fn for o in outputs]
    seen = set()
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.__class__ is AccumulateGrad:
            if id(node.variable) not in own:
                return True
            continue
        stack += [edge[0] for edge in node.next_edges if edge is not None]
    return False


def _gradients(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], starts: Sequence[Tensor | None], keep: bool, again: bool
) -> list[Tensor]:
    """The gradients of plain outputs; zeros where there is no path."""
    pairs = [(o, s) for o, s in zip(outputs, starts) if o.requires_grad and s is not None]
    found: Sequence[Any] = [None] * len(leaves)
    if pairs:
        found = _grad(
            [o for o, _ in pairs],
            list(leaves),
            [s for _, s in pairs],
            retain_graph=keep or again,
            create_graph=again,
            allow_unused=True,
        )
    return [torch.zeros(x.shape, dtype=x.dtype, device=x.device) if g is None else g for g, x in zip(found, leaves)]


def _start(value: Any, output: Any) -> Tensor:
    """The plain gradient `value` of an output, with all slices that the output has."""
    found = value
    levels_of = []
    x = output
    while x.__class__ is Lane:
        levels_of.append((x._level, x._value.shape[0]))
        x = x._value
    for level, size in reversed(levels_of):
        found = _spread(found, level, size)
    flat = plain(found)
    if flat.shape != x.shape:
        raise RuntimeError(
            f"Expected cotangent of shape {list(output.shape)} for an output of that shape, got {list(value.shape)}"
        )
    return flat


def _picked(args: Sequence[Any], argnums: Any, name: str) -> tuple[list[Any], bool]:
    single = isinstance(argnums, int)
    numbers = (argnums,) if single else tuple(argnums)
    if not numbers:
        raise RuntimeError(f"{name}: argnums must be non-empty")
    for n in numbers:
        if not isinstance(n, int):
            raise RuntimeError(f"{name}: argnums must be int or Tuple[int, ...], got {argnums}")
        if not -len(args) <= n < len(args):
            raise RuntimeError(
                f"Got argnum={n}, but only {len(args)} positional inputs. Note that grad only differentiates with "
                "respect to positional arguments."
            )
    return [n % len(args) for n in numbers], single


def grad_and_value(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """A function that gives (gradient, value) of `func`, a function with one 0-dim result (and aux with has_aux).

    argnums: the positional arguments, trees of tensors, to differentiate by.  RuntimeError for another result.
    https://docs.pytorch.org/docs/2.13/generated/torch.func.grad_and_value.html
    """

    @functools.wraps(func, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers, single = _picked(args, argnums, "grad")
        trees = [tree_flatten(args[n]) for n in numbers]
        inputs = _Inputs([x for leaves, _ in trees for x in leaves], "grad")
        with inputs:
            given, rest = list(args), iter(inputs.seen)
            for n, (leaves, spec) in zip(numbers, trees):
                given[n] = tree_unflatten([next(rest) for _ in leaves], spec)
            output = func(*given, **kwargs)
            aux = None
            if has_aux:
                if not (isinstance(output, tuple) and len(output) == 2):
                    raise RuntimeError(
                        "grad_and_value(f)(*args): output of function f should be a tuple: (output, aux) if has_aux is "
                        "True"
                    )
                output, aux = output
            if not isinstance(output, Tensor):
                raise RuntimeError(
                    f"grad_and_value(f)(*args): Expected f(*args) to return a Tensor, got {type(output)}"
                )
            if output.dim():
                raise RuntimeError(
                    "grad_and_value(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
                    f"{output.dim()} dims. Maybe you wanted to use the vjp or jacrev APIs instead?"
                )
            value = plain(output)
            again = inputs.again([value])
            found = _gradients([value], inputs.leaves, [torch.ones_like(value)], False, again)
        back = iter([_like(g if again else g.detach(), s) for g, s in zip(found, inputs.seen)])
        results = tuple(tree_unflatten([next(back) for _ in leaves], spec) for leaves, spec in trees)
        result = inputs.result(output, again)
        if has_aux:
            aux = tree_map(lambda x: inputs.result(x, again) if isinstance(x, Tensor) else x, aux)
            return (results[0] if single else results), (result, aux)
        return (results[0] if single else results), result

    return wrapped


def grad(func: Callable, argnums: Any = 0, has_aux: bool = False) -> Callable:
    """Return a function that computes the gradient of `func`; see `grad_and_value`.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.grad.html

    Args:
        func: A function whose first result is one element.
        argnums: Which positional arguments the gradient is by: a number or a tuple.
        has_aux: `func` returns (result, anything else), which is passed on.

    Returns:
        The function; its result has the shape of the argument, a tuple for several, and (gradient, aux) with has_aux.

    Raises:
        RuntimeError: the result of `func` is not one floating-point element, when the function is called.
    """
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return wrapped


def _called(func: Callable, primals: Sequence[Any], has_aux: bool, name: str) -> Any:
    """(inputs, their trees, outputs, their structure, aux) of one call with a transform's own inputs."""
    trees = [tree_flatten(p) for p in primals]
    inputs = _Inputs([x for leaves, _ in trees for x in leaves], name)
    with inputs:
        rest = iter(inputs.seen)
        output = func(*[tree_unflatten([next(rest) for _ in leaves], spec) for leaves, spec in trees])
    aux = None
    if has_aux:
        if not (isinstance(output, tuple) and len(output) == 2):
            raise RuntimeError(f"{name}(f, *primals): output of function f should be a tuple: (output, aux) if has_aux")
        output, aux = output
    outputs, spec = tree_flatten(output)
    for o in outputs:
        if not isinstance(o, Tensor):
            raise RuntimeError(
                f"{name}(f, *primals): Expected f(*primals) to return only tensors, got {type(o).__name__}"
            )
    return inputs, trees, outputs, spec, aux


def vjp(func: Callable, *primals: Any, has_aux: bool = False) -> Any:
    """(results, function from gradients of the results to those of `primals`), and aux with has_aux.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.vjp.html
    """
    inputs, trees, outputs, spec, aux = _called(func, primals, has_aux, "vjp")
    values = [plain(o) for o in outputs]
    again = inputs.again(values)

    def backward(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        given, given_spec = tree_flatten(cotangents)
        if len(given) != len(outputs):
            raise RuntimeError(
                "Expected pytree structure of cotangents to be the same as pytree structure of outputs to the "
                f"function. cotangents: {given_spec}, primal output: {spec}"
            )
        more = sorted(_levels_of(given) - _levels_of(outputs) - _levels_of(inputs.seen))
        if more:  # a vmap over gradients of results that it did not compute: one pass a slice
            return _each(backward, cotangents, more[-1])
        twice = again or any(plain(g).requires_grad for g in given) or getattr(_nested, "depth", 0) > 0
        enabled, mode.enabled = mode.enabled, True
        try:
            # an output that lacks slices which the inputs have does not depend on them
            starts = [None if _levels_of([g]) - _levels_of([o]) else _start(g, o) for g, o in zip(given, outputs)]
            found = _gradients(values, inputs.leaves, starts, True, twice)
        finally:
            mode.enabled = enabled
        back = iter([_like(g if twice else g.detach(), s) for g, s in zip(found, inputs.seen)])
        results = tuple(tree_unflatten([next(back) for _ in leaves], s) for leaves, s in trees)
        return results

    result = tree_unflatten([inputs.result(o, again) for o in outputs], spec)
    return (result, backward, aux) if has_aux else (result, backward)


def _chain(x: Any) -> list[Any]:
    found = []
    while x.__class__ is Lane:
        found.append(x)
        x = x._value
    return found


def _levels_of(tensors: Sequence[Any]) -> set[int]:
    return {x._level for t in tensors for x in _chain(t)}


def _each(function: Callable, tree: Any, level: int) -> Any:
    """`function` once per slice of that level, stacked."""
    leaves, spec = tree_flatten(tree)
    size = next(x._value.shape[0] for leaf in leaves for x in _chain(leaf) if x._level == level)

    def slice_of(x: Any, i: int) -> Any:
        if x.__class__ is not Lane:
            return x
        return x._value[i] if x._level == level else lane(slice_of(x._value, i), x._level)

    rows, structure = [], None
    for i in range(size):
        found, structure = tree_flatten(function(tree_unflatten([slice_of(x, i) for x in leaves], spec)))
        rows.append(found)
    return tree_unflatten([lane(torch.stack(list(column)), level) for column in zip(*rows)], structure)


def _linear_map(func: Callable, primals: Sequence[Any], has_aux: bool, name: str) -> Any:
    """Return the results, and a function from plain tangents to plain tangents, for `jvp` and `linearize`."""
    forward_mode.depth += 1
    try:
        inputs, trees, outputs, spec, aux = _called(func, primals, has_aux, name)
    finally:
        forward_mode.depth -= 1
    values = [plain(o) for o in outputs]
    again = inputs.again(values)
    enabled, mode.enabled = mode.enabled, True
    finding, forward_mode.finding = forward_mode.finding, _grad
    try:
        starts = [torch.zeros(v.shape, dtype=v.dtype, device=v.device).requires_grad_() for v in values]
        found = _gradients(values, inputs.leaves, starts, True, True)
    finally:
        mode.enabled, forward_mode.finding = enabled, finding

    def push(tangents: Sequence[Any], keep: bool) -> list[Any]:
        twice = again or any(plain(t).requires_grad for t in tangents)
        enabled, mode.enabled = mode.enabled, True
        try:
            given = [_start(t, s) for t, s in zip(tangents, inputs.seen)]
            result = _gradients(found, starts, given, keep, twice)
        finally:
            mode.enabled = enabled
        return [_like(r if twice else r.detach(), o) for r, o in zip(result, outputs)]

    result = tree_unflatten([inputs.result(o, again) for o in outputs], spec)
    return result, spec, aux, push, trees


def _same_trees(primals: Any, tangents: Any, name: str) -> list[Any]:
    spec = tree_flatten(tuple(primals))[1]
    second, other = tree_flatten(tuple(tangents))
    if spec != other:
        raise RuntimeError(
            f"{name}(f, primals, tangents): Expected primals and tangents to have the same python structure. For "
            f"example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure {spec} "
            f"and tangents with structure {other}"
        )
    return second


def jvp(func: Callable, primals: Any, tangents: Any, *, strict: bool = False, has_aux: bool = False) -> Any:
    """(results, their tangents) for tangents of the tuple `primals`, and aux with has_aux.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.jvp.html
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"jvp(f, primals, tangents): Expected primals to be a tuple. E.g. it should be valid to call f(*primals). "
            f"Got {type(primals)}"
        )
    given = _same_trees(primals, tangents, "jvp")
    result, spec, aux, push, _ = _linear_map(func, primals, has_aux, "jvp")
    found = tree_unflatten(push(given, False), spec)
    return (result, found, aux) if has_aux else (result, found)


def linearize(func: Callable, *primals: Any) -> tuple[Any, Callable]:
    """(results, function from tangents of `primals` to those of the results), computed once.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.linearize.html
    """
    result, spec, _, push, _ = _linear_map(func, primals, False, "linearize")

    def tangents_of(*tangents: Any) -> Any:
        given = _same_trees(primals, tangents, "linearize")
        known = {level for level, _ in levels()}
        more = sorted(
            _levels_of(given) & known - _levels_of(tree_flatten(result)[0]) - _levels_of(tree_flatten(primals)[0])
        )
        if more:
            return _each(lambda t: tangents_of(*t), tangents, more[-1])
        return tree_unflatten(push(given, True), spec)

    return result, tangents_of


def _basis(tensors: Sequence[Any]) -> tuple[list[Tensor], list[int]]:
    """For each tensor the rows of the identity that are its own, (N, *shape), N the elements of all."""
    sizes = [int(t.numel()) for t in tensors]
    total, start, found = sum(sizes), 0, []
    for t, n in zip(tensors, sizes):
        rows = torch.zeros(total, n, dtype=t.dtype)
        rows[start : start + n] = torch.eye(n, dtype=t.dtype)
        found.append(rows.reshape(total, *t.shape))
        start += n
    return found, sizes


def jacrev(
    func: Callable,
    argnums: Any = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable:
    """A function that gives the Jacobian of `func`, (*output, *input), by backward passes for all outputs at once.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.jacrev.html
    """
    return _jacobian(func, argnums, has_aux, chunk_size, forward=False)


def jacfwd(
    func: Callable,
    argnums: Any = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable:
    """A function that gives the Jacobian of `func`, (*output, *input), by tangents for all inputs at once.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.jacfwd.html
    """
    return _jacobian(func, argnums, has_aux, chunk_size, forward=True, randomness=randomness)


def _jacobian(
    func: Callable, argnums: Any, has_aux: bool, chunk_size: int | None, forward: bool, randomness: str = "error"
) -> Callable:
    @functools.wraps(func, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        numbers, single = _picked(args, argnums, "jacfwd" if forward else "jacrev")
        trees = [tree_flatten(args[n]) for n in numbers]
        flat = [x for leaves, _ in trees for x in leaves]

        def of_leaves(*leaves: Any) -> Any:
            given, rest = list(args), iter(leaves)
            for n, (own, spec) in zip(numbers, trees):
                given[n] = tree_unflatten([next(rest) for _ in own], spec)
            return func(*given, **kwargs)

        kept: dict[str, Any] = {}

        def results(*leaves: Any) -> Any:
            output = of_leaves(*leaves)
            if has_aux:
                output, kept["aux"] = output
            found, kept["spec"] = tree_flatten(output)
            return tuple(found)

        if forward:
            rows, _ = _basis(flat)
            tangents = vmap(
                lambda *t: jvp(results, tuple(flat), tuple(t))[1], randomness=randomness, chunk_size=chunk_size
            )(*rows)
            if has_aux:
                results(*flat)
            aux = kept.get("aux")
            sizes = [int(x.numel()) for x in flat]
            table = [
                [piece.movedim(0, -1).reshape(*piece.shape[1:], *x.shape) for piece, x in zip(t.split(sizes), flat)]
                for t in tangents
            ]
        else:
            with no_grad():
                shapes = results(*flat)
            aux = kept.get("aux")
            rows, _ = _basis(shapes)
            found = vmap(lambda *c: vjp(results, *flat)[1](tuple(c)), chunk_size=chunk_size)(*rows)
            sizes = [int(x.numel()) for x in shapes]
            columns = [g.split(sizes) for g in found]
            table = [
                [columns[j][i].reshape(*o.shape, *x.shape) for j, x in enumerate(flat)] for i, o in enumerate(shapes)
            ]
        out = []
        for row in table:
            rest = iter(row)
            per = [tree_unflatten([next(rest) for _ in leaves], spec) for leaves, spec in trees]
            out.append(per[0] if single else tuple(per))
        value = tree_unflatten(out, kept["spec"])
        return (value, tree_map(_detached, aux)) if has_aux else value

    return wrapped


def _detached(x: Any) -> Any:
    return x.detach() if isinstance(x, Tensor) else x


def hessian(func: Callable, argnums: Any = 0) -> Callable:
    """A function that gives the second derivatives of `func`: `jacfwd(jacrev(func))`.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.hessian.html
    """
    return jacfwd(jacrev(func, argnums), argnums)
