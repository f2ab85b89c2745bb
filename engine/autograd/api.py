"""`backward`, `grad`, `Variable` (https://docs.pytorch.org/docs/2.13/autograd.html)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from numpy import dtype as np_dtype
from numpy import ndarray, ones

from engine.autograd.engine import ImperativeEngine, run_backward
from engine.autograd.graph import (
    AccumulateGrad,
    Edge,
    GradientEdge,
    accumulate,
    edge_of,
    registered,
    requires_grad_of,
    view_edge,
)
from engine.backends import xp_of
from engine.core.grad_mode import mode
from engine.core.tensor_messages import warn_once
from engine.tensor import Tensor, wrap

__all__ = ["Variable", "backward", "grad"]

_Root = Tensor | GradientEdge
_Tensors = _Root | Sequence[_Root]


_ONES = {dtype: ones((), dtype) for dtype in map(np_dtype, ("float32", "float64"))}  # a copy takes a fifth of the time


def _as_tuple(tensors: Any) -> tuple[Any, ...]:
    return (tensors,) if isinstance(tensors, Tensor | GradientEdge) else tuple(tensors)


def _root(output: _Root, gradient: Tensor | None, i: int) -> tuple[Edge, Any]:
    """The edge of root `i` and its gradient: 1, an array, where one element has none given.  Raises torch's errors."""
    if output.__class__ is not Tensor:
        if isinstance(output, GradientEdge):
            if gradient is None:
                raise RuntimeError("grad can be implicitly created only for scalar outputs")
            if not isinstance(gradient, Tensor):
                raise _not_a_gradient(gradient)
            return (output.node, output.output_nr), gradient
        if not isinstance(output, Tensor):
            raise TypeError(f"expected a Tensor as output {i}, got {type(output).__name__}")
        of_values = getattr(output, "_of_gradient", None)
        if of_values is not None:  # a sparse tensor: its values are in the graph
            gradient = None if gradient is None else of_values(gradient)
            output = output._v  # type: ignore[attr-defined]
            assert isinstance(output, Tensor)
    if output._requires_grad is not True and (output._view is None or view_edge(output) is None):
        raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
    if gradient is None:
        array = output._array
        if array.size != 1:
            raise RuntimeError("grad can be implicitly created only for scalar outputs")
        if array.dtype.kind in "cW":
            raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {output.dtype}")
        if array.shape == () and (one := _ONES.get(array.dtype)) is not None and array.__class__ is ndarray:
            return output._edge or edge_of(output), one.copy()
        return edge_of(output), xp_of(array).ones(array.shape, array.dtype)
    if not isinstance(gradient, Tensor):
        raise _not_a_gradient(gradient)
    if gradient._array.shape != output._array.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {gradient.shape} and output[{i}] has a shape of "
            f"{output.shape}."
        )
    if gradient.dtype.is_complex != output.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype. Mismatch in "
            f"dtype: grad_output[{i}] has a dtype of {gradient.dtype} and output[{i}] has a dtype of {output.dtype}."
        )
    if gradient.dtype is not output.dtype:
        gradient = registered.cast(gradient, output.dtype)
    return edge_of(output), gradient


def _not_a_gradient(value: Any) -> TypeError:
    return TypeError(f"gradients can be either Tensors or None, but got {type(value).__name__}")


def _roots(outputs: Sequence[_Root], gradients: Any) -> list[tuple[Edge, Any]]:
    """(edge, gradient) of every root."""
    given = (None,) * len(outputs) if gradients is None else _as_tuple(gradients)
    if len(given) != len(outputs):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(given)} gradients")
    return [_root(output, gradient, i) for i, (output, gradient) in enumerate(zip(outputs, given))]


_CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter and its gradient "
    "which can cause a memory leak. We recommend using autograd.grad when creating the graph to avoid this. If you "
    "have to use this function, make sure to reset the .grad fields of your parameters to None after use to break the "
    "cycle and avoid the leak."
)


def backward(
    tensors: _Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Add the gradients of `tensors` to the `.grad` of the leaves that they depend on.

    Args:
        tensors: The roots.
        grad_tensors: A gradient of the same shape for each root, None where the root has one element.
        retain_graph: Leave what the graph saved; by default create_graph.
        create_graph: Make the gradients differentiable.
        grad_variables: The old name of grad_tensors.
        inputs: Accumulate into these only.

    Raises:
        RuntimeError: a root has no history or several elements, a gradient another shape, or the graph was freed.
    """
    if grad_variables is not None:
        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.",
            FutureWarning,
            stacklevel=2,
        )
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to backward(). Please only use "
                "`grad_tensors`."
            )
        grad_tensors = grad_variables
    if inputs is not None and not isinstance(inputs, _Root) and len(inputs) == 0:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    if create_graph:
        warn_once("create_graph", _CYCLE)
    roots = _roots(_as_tuple(tensors), grad_tensors)
    keep = create_graph if retain_graph is None else retain_graph
    if inputs is None:
        run_backward(roots, keep, create_graph)
        return
    targets = _as_tuple(inputs)
    leaves = [_leaf(target) for target in targets]
    for target, gradient in zip(leaves, run_backward(roots, keep, create_graph, _edges(targets))):
        if gradient is not None:
            enabled, mode.enabled = mode.enabled, create_graph
            try:
                accumulate(target, gradient, False)
            finally:
                mode.enabled = enabled


def _leaf(target: _Root) -> Tensor:
    """The tensor whose `.grad` a target of `backward` names."""
    if isinstance(target, Tensor):
        return target
    if not isinstance(target.node, AccumulateGrad):
        raise RuntimeError("backward(inputs=) takes gradient edges of leaves only: see autograd.grad")
    leaf: Tensor = target.node.variable
    return leaf


def _edges(inputs: Sequence[_Root]) -> list[Edge]:
    edges: list[Edge] = []
    for tensor in inputs:
        if isinstance(tensor, GradientEdge):
            edges.append((tensor.node, tensor.output_nr))
            continue
        if not isinstance(tensor, Tensor):
            raise TypeError(f"inputs must be Tensors, got {type(tensor).__name__}")
        if not requires_grad_of(tensor):
            raise RuntimeError("One of the differentiated Tensors does not require grad")
        edges.append(edge_of(tensor._v if _is_sparse(tensor) else tensor))  # type: ignore[attr-defined]
    return edges


def _is_sparse(target: _Root) -> bool:
    """Return whether the history of a target is that of its values."""
    return isinstance(target, Tensor) and (target.is_sparse or target.is_sparse_csr)


def _grads_of_batch(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: Any,
    keep: bool | None,
    create_graph: bool,
    allow_unused: bool,
    materialize: bool,
) -> tuple[Any, ...]:
    """`grad` for each of a batch of `grad_outputs` (B, *output), stacked; one pass each."""
    given = _as_tuple(grad_outputs)
    if not given or any(g is None for g in given):
        raise RuntimeError("grad(is_grads_batched=True): grad_outputs must be tensors with the batch in front")
    for i, (g, o) in enumerate(zip(given, _as_tuple(outputs))):
        shape = getattr(o, "shape", None)
        if shape is not None and (not g.dim() or g.shape[1:] != shape):
            raise RuntimeError(
                "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch "
                "dimension. The sizes of the remaining dimensions are expected to match the shape of corresponding "
                f"output, but a mismatch was detected: grad_output[{i}] has a shape of {g.shape} and output[{i}] has "
                f"a shape of {shape}. If you only want some tensors in `grad_output` to be considered batched, "
                "consider using vmap."
            )
    sizes = {int(g.shape[0]) for g in given}
    if len(sizes) != 1:
        raise RuntimeError(f"grad(is_grads_batched=True): grad_outputs of batches of sizes {sorted(sizes)}")
    count = sizes.pop()
    rows = []
    for i in range(count):
        more = True if i < count - 1 else keep
        each = tuple(g.select(0, i) for g in given)
        rows.append(grad(outputs, inputs, each, more, create_graph, True, allow_unused, False, materialize))
    return tuple(None if column[0] is None else registered.stack(list(column)) for column in zip(*rows))


def grad(
    outputs: _Tensors,
    inputs: _Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """Return the gradients of `outputs` with respect to `inputs`; no `.grad` is touched.

    Only nodes on a path to the inputs run.

    Args:
        outputs: A Tensor or several; `graph.GradientEdge`s too.
        inputs: The tensors that the gradients are by; `graph.GradientEdge`s too.
        grad_outputs: Weights of the outputs, each of the output's shape; None is 1 for an output of one element.
        retain_graph: Leave what the graph saved; by default create_graph.
        create_graph: Make the gradients differentiable.
        only_inputs: Accepted.
        allow_unused: None, not an error, for an input that the outputs do not depend on.
        is_grads_batched: grad_outputs have a first dimension of independent gradients (vmap).
        materialize_grads: Zeros instead of None.

    Returns:
        A tuple in the order of the inputs; each gradient has the shape of its input.

    Raises:
        RuntimeError: a root has no history or several elements, a gradient another shape, an input is not used, or the
            graph was freed.
    """
    if not only_inputs:
        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate gradient for "
            "other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    if is_grads_batched:
        return _grads_of_batch(
            outputs, inputs, grad_outputs, retain_graph, create_graph, bool(allow_unused), materialize_grads
        )
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: allow_unused=False."
        )
    roots_of = _as_tuple(outputs)
    targets = _as_tuple(inputs)
    roots = _roots(roots_of, grad_outputs)
    keep = create_graph if retain_graph is None else retain_graph
    found = run_backward(roots, keep, create_graph, _edges(targets))
    for i, target in enumerate(targets):
        if found[i] is not None and _is_sparse(target):
            found[i] = target.gradient_of(found[i])
    if materialize_grads:
        return tuple(wrap(xp_of(t._array).zeros_like(t._array)) if g is None else g for t, g in zip(targets, found))
    if not allow_unused:
        for i, g in enumerate(found):
            if g is None:
                raise RuntimeError(
                    f"The differentiated Tensor at index {i} appears to not have been used in the graph. Set "
                    "allow_unused=True if this is the desired behavior."
                )
    return tuple(found)


def _tensor_backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add the gradients of this tensor to the `.grad` of its leaves.  See `engine.autograd.backward`."""
    if inputs is not None or not (gradient is None or isinstance(gradient, Tensor)):
        backward(self, gradient, retain_graph, create_graph, inputs=inputs)
        return
    if create_graph:
        warn_once("create_graph", _CYCLE)
    keep = create_graph if retain_graph is None else retain_graph
    run_backward((_root(self, gradient, 0),), keep, create_graph)


Tensor.backward = _tensor_backward  # type: ignore[method-assign]


class _VariableMeta(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return isinstance(other, Tensor)


class Variable(metaclass=_VariableMeta):
    """The old name of Tensor: `Variable(t, requires_grad=False)` is a Tensor that shares the memory of `t`."""

    _execution_engine = ImperativeEngine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: Any = None) -> Any:
        if volatile is not None:
            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                stacklevel=2,
            )
        if data is None:
            data = Tensor()
        elif not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        result = data.detach() if data.requires_grad or requires_grad else data.data
        if requires_grad:
            result.requires_grad_()
        return result
