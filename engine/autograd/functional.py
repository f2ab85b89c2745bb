"""Jacobians, Hessians and their products with vectors, for functions of Tensors.

https://docs.pytorch.org/docs/2.13/autograd.html#functional-higher-level-api

Every `func` takes Tensors and returns a Tensor or a tuple of them.  `inputs` is a Tensor or a tuple; results are nested
in the same way.  create_graph=True makes results differentiable.  strict=True: RuntimeError where an output or a
gradient does not depend on an input, instead of zeros.  Products J v use the double-backward trick: u -> J^T u is
linear, its own transpose is v -> J v.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.autograd.api import grad
from engine.autograd.graph import registered
from engine.backends import xp_of
from engine.core.grad_mode import mode
from engine.tensor import Tensor, wrap

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Tensors = tuple[Tensor, ...]
_SINGLE = "The Tensor returned by the function given to {} should contain a single element"


class _Recording:
    """Grad mode on inside, as it was afterwards."""

    def __enter__(self) -> None:
        self._before, mode.enabled = mode.enabled, True

    def __exit__(self, *exc: object) -> None:
        mode.enabled = self._before


def _as_tuple(value: Any, what: str, function: str) -> tuple[bool, _Tensors]:
    """(whether it was a tuple, the tuple); TypeError unless Tensors."""
    is_tuple = isinstance(value, tuple)
    values = value if is_tuple else (value,)
    for i, v in enumerate(values):
        if not isinstance(v, Tensor):
            which = f"value at index {i}" if is_tuple else f"given {what}"
            raise TypeError(
                f"The {what} given to {function} must be either a Tensor or a tuple of Tensors but the {which} has "
                f"type {type(v)}."
            )
    return is_tuple, values


def _own(inputs: _Tensors, create_graph: bool) -> _Tensors:
    """Tensors of our own, so that what `func` captures is distinguished from its arguments."""
    return tuple(i.view_as(i) if create_graph and i.requires_grad else i.detach().requires_grad_() for i in inputs)


def _call(func: Callable[..., Any], inputs: _Tensors, function: str, strict: bool) -> tuple[bool, _Tensors]:
    is_tuple, outputs = _as_tuple(func(*inputs), "outputs of the user-provided function", function)
    if strict:
        for i, o in enumerate(outputs):
            if not o.requires_grad:
                raise RuntimeError(
                    f"Output {i} of the user-provided function does not require gradients. The outputs must be "
                    "computed in a differentiable manner from the input when running in strict mode."
                )
    return is_tuple, outputs


def _check_vector(v: _Tensors, other: _Tensors, is_tuple: bool) -> None:
    """RuntimeError unless `v` has the sizes of `other`."""
    if len(v) != len(other):
        if is_tuple:
            raise RuntimeError(f"v is a tuple of invalid length: should be {len(other)} but got {len(v)}.")
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(v, other)):
        if a.shape != b.shape:
            entry = f"Entry {i} in " if is_tuple else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {b.shape} but got {a.shape}.")


def _vector(v: Any, like: _Tensors, is_tuple: bool, function: str, create_graph: bool, single: str) -> _Tensors:
    """The vector as a tuple; None is 1 where there is one element (RuntimeError otherwise)."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(single)
        return (_ones(like[0]),)
    _, vs = _as_tuple(v, "v", function)
    if not create_graph:
        vs = tuple(t.detach() for t in vs)
    _check_vector(vs, like, is_tuple)
    return vs


def _ones(like: Tensor) -> Tensor:
    return wrap(xp_of(like._array).ones_like(like._array))


def _zeros(like: Tensor) -> Tensor:
    return wrap(xp_of(like._array).zeros_like(like._array))


def _gradients(
    outputs: Sequence[Tensor],
    inputs: _Tensors,
    weights: Sequence[Tensor | None],
    create_graph: bool,
    keep: bool | None = None,
) -> tuple[Tensor | None, ...]:
    """`grad` of the outputs that have history; None for what depends on nothing."""
    pairs = [(o, w) for o, w in zip(outputs, weights) if o.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    return grad(
        [o for o, _ in pairs],
        inputs,
        [w for _, w in pairs],
        retain_graph=keep,
        create_graph=create_graph,
        allow_unused=True,
    )


_INDEPENDENT = (
    "The output of the user-provided function is independent of input {}. This is not allowed in strict mode."
)
_CONSTANT = (
    "The gradient with respect to input {} is independent of the inputs of the user-provided function. This is not "
    "allowed in strict mode."
)


def _filled(grads: Sequence[Tensor | None], refs: _Tensors, strict: bool, sentence: str = _INDEPENDENT) -> _Tensors:
    """Zeros for None; RuntimeError in strict mode."""
    result = []
    for i, (g, ref) in enumerate(zip(grads, refs)):
        if g is None:
            if strict:
                raise RuntimeError(sentence.format(i))
            g = _zeros(ref)
        result.append(g)
    return tuple(result)


def _handed_out(values: Any, create_graph: bool) -> Any:
    """Without history unless asked for."""
    if isinstance(values, tuple):
        return tuple(_handed_out(v, create_graph) for v in values)
    return values if create_graph else values.detach()


def _check_depends(values: _Tensors, sentence: str) -> None:
    for i, value in enumerate(values):
        if not value.requires_grad:
            raise RuntimeError(sentence.format(i))


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(func(inputs), v^T J): v has the shapes of the outputs, None for an output of one element; the product those of
    the inputs.
    """
    with _Recording():
        in_tuple, given = _as_tuple(inputs, "inputs", "vjp")
        own = _own(given, create_graph)
        out_tuple, outputs = _call(func, own, "vjp", strict)
        vs = _vector(
            v,
            outputs,
            out_tuple,
            "vjp",
            create_graph,
            "The vector v can only be None if the user-provided function returns a single Tensor with a single "
            "element.",
        )
        result = _filled(_gradients(outputs, own, vs, create_graph), own, strict)
        if strict and create_graph:
            _check_depends(result, _CONSTANT)
    outputs, result = _handed_out(outputs, create_graph), _handed_out(result, create_graph)
    return (outputs if out_tuple else outputs[0]), (result if in_tuple else result[0])


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(func(inputs), J v): v has the shapes of the inputs, None for an input of one element; the product those of the
    outputs.
    """
    with _Recording():
        in_tuple, given = _as_tuple(inputs, "inputs", "jvp")
        own = _own(given, create_graph)
        vs = _vector(
            v,
            own,
            in_tuple,
            "jvp",
            create_graph,
            "The vector v can only be None if the input to the user-provided function is a single Tensor with a single "
            "element.",
        )
        out_tuple, outputs = _call(func, own, "jvp", strict)
        weights = tuple(_zeros(o).requires_grad_() for o in outputs)
        back = _filled(_gradients(outputs, own, weights, True), own, strict)
        if strict:
            _check_depends(back, _CONSTANT)
        trick = (
            "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the "
            "double backward trick to compute forward mode gradients. This is not allowed in strict mode."
        )
        result = _filled(_gradients(back, weights, vs, create_graph), outputs, strict, trick)
    outputs, result = _handed_out(outputs, create_graph), _handed_out(result, create_graph)
    return (outputs if out_tuple else outputs[0]), (result if out_tuple else result[0])


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian: for output (*o) and input (*i) a Tensor (*o, *i); a tuple an output of a tuple an input.

    vectorize: accepted; the rows are computed one by one.  strategy: "reverse-mode", or "forward-mode" (column by
    column, by J v; the same result).  ValueError for another strategy; strict and forward-mode exclude each other.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your function has more outputs '
            f'than inputs, "forward-mode" tends to be more performant. Otherwise, prefer to use "reverse-mode". '
            f"Got {strategy!r}"
        )
    if strategy == "forward-mode" and create_graph:
        raise NotImplementedError(
            'torch.autograd.functional.jacobian: `create_graph=True` and `strategy="forward-mode"` are not supported '
            'together (yet). Please either set `create_graph=False` or `strategy="reverse-mode"`.'
        )
    if vectorize and strict:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported together. "
            "Please either set `strict=False` or `vectorize=False`."
        )
    with _Recording():
        in_tuple, given = _as_tuple(inputs, "inputs", "jacobian")
        own = _own(given, create_graph)
        out_tuple, outputs = _call(func, own, "jacobian", strict)
        rows = tuple(_rows(output, i, own, create_graph, strict) for i, output in enumerate(outputs))
    result = _handed_out(rows, create_graph)
    if not in_tuple:
        result = tuple(r[0] for r in result)
    return result if out_tuple else result[0]


def _rows(output: Tensor, nr: int, inputs: _Tensors, create_graph: bool, strict: bool) -> _Tensors:
    """The Jacobian of one output with respect to each input."""
    from engine.ops import functions as torch

    found: list[list[Tensor]] = [[] for _ in inputs]
    count = output.numel()
    for j in range(count):
        weight = _zeros(output)
        weight._array.reshape(-1)[j] = 1
        grads = _gradients([output], inputs, [weight], create_graph, keep=True)
        for i, (g, ref) in enumerate(zip(grads, inputs)):
            if g is None:
                if strict:
                    raise RuntimeError(
                        f"Output {nr} of the user-provided function is independent of input {i}. This is not allowed "
                        "in strict mode."
                    )
                g = _zeros(ref)
            elif strict and create_graph and not g.requires_grad:
                raise RuntimeError(
                    f"The jacobian of the user-provided function is independent of input {i}. This is not allowed in "
                    "strict mode when create_graph=True."
                )
            found[i].append(g)
    return tuple(
        torch.stack(list_of).reshape(*output.shape, *ref.shape)
        if count
        else registered.zeros((*output.shape, *ref.shape), ref._array.dtype, ref._array)
        for list_of, ref in zip(found, inputs)
    )


def _scalar(func: Callable[..., Any], function: str) -> Callable[..., Any]:
    """`func`, checked to return one Tensor of one element."""

    def checked(*inputs: Tensor) -> Tensor:
        out = func(*inputs)
        is_tuple, outputs = _as_tuple(out, "outputs of the user-provided function", function)
        if is_tuple or not isinstance(out, Tensor):
            raise RuntimeError(f"The function given to {function} should return a single Tensor")
        if outputs[0].numel() != 1:
            raise RuntimeError(_SINGLE.format(function))
        return outputs[0].squeeze() if outputs[0].dim() else outputs[0]

    return checked


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function of one element: for inputs (*a) and (*b) a Tensor (*a, *b), in a tuple of tuples."""
    in_tuple, given = _as_tuple(inputs, "inputs", "hessian")
    scalar = _scalar(func, "hessian")
    if outer_jacobian_strategy not in ("reverse-mode", "forward-mode"):
        raise ValueError('Expected strategy to be either "forward-mode" or "reverse-mode".')

    def first(*values: Tensor) -> Any:
        rows = jacobian(scalar, values, create_graph=True)
        if strict:
            _check_depends(
                rows,
                "While computing the hessian, found that the jacobian of the user-provided function with respect to "
                "input {} is independent of the input. This is not allowed in strict mode. You should ensure that your "
                "function is twice differentiable and that the jacobian depends on the inputs (this would be violated "
                "by a linear function for example).",
            )
        return rows

    result = jacobian(first, given, create_graph, strict, vectorize)
    return result if in_tuple else result[0][0]


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(func(inputs), v^T H) for a function of one element; v and the product have the shapes of the inputs."""
    with _Recording():
        in_tuple, given = _as_tuple(inputs, "inputs", "vhp")
        own = _own(given, create_graph)
        vs = _vector(v, own, in_tuple, "vhp", create_graph, _NO_VECTOR)
        output = _only_output(func, own, "vhp", strict)
        first = _filled(_gradients([output], own, [None], True), own, strict)
        if strict:
            _check_depends(first, _CONSTANT)
        result = _filled(_gradients(first, own, vs, create_graph), own, strict, _CONSTANT)
    output, result = _handed_out(output, create_graph), _handed_out(result, create_graph)
    return output, result if in_tuple else result[0]


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(func(inputs), H v) for a function of one element; v and the product have the shapes of the inputs.

    By double backward of double backward; `vhp` gives the same where H is symmetric, for less.
    """
    with _Recording():
        in_tuple, given = _as_tuple(inputs, "inputs", "hvp")
        own = _own(given, create_graph)
        vs = _vector(v, own, in_tuple, "hvp", create_graph, _NO_VECTOR)
        output = _only_output(func, own, "hvp", strict)
        first = _filled(_gradients([output], own, [None], True), own, strict)
        if strict:
            _check_depends(first, _CONSTANT)
        weights = tuple(_zeros(i).requires_grad_() for i in own)
        second = _filled(_gradients(first, own, weights, True), own, strict, _CONSTANT)
        result = _filled(_gradients(second, weights, vs, create_graph), own, strict, _CONSTANT)
    output, result = _handed_out(output, create_graph), _handed_out(result, create_graph)
    return output, result if in_tuple else result[0]


_NO_VECTOR = (
    "The vector v can only be None if the input to the user-provided function is a single Tensor with a single element."
)


def _only_output(func: Callable[..., Any], inputs: _Tensors, function: str, strict: bool) -> Tensor:
    is_tuple, outputs = _call(func, inputs, function, strict)
    if is_tuple:
        raise RuntimeError(f"The function given to {function} should return a single Tensor")
    if outputs[0].numel() != 1:
        raise RuntimeError(_SINGLE.format(function))
    return outputs[0]
