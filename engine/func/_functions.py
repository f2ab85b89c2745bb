"""`autograd.Function` under vmap: its own `vmap`, or a rule made of its forward and backward (`generate_vmap_rule`).

https://docs.pytorch.org/docs/2.13/notes/extending.func.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.autograd.function import Function
from engine.func._lanes import Lane, Refused, Unmapped, begin, end, lane, levels, randomness, registered
from engine.tensor import Tensor
from engine.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = ["apply"]


class VmapInfo(NamedTuple):
    """The argument `info` of a Function's `vmap`: the number of slices, and vmap's `randomness`."""

    batch_size: int
    randomness: str


def apply(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`cls.apply` of arguments of which some are Lanes; NotImplemented where none is."""
    leaves, spec = tree_flatten(args)
    level = max((x._level for x in leaves if x.__class__ is Lane), default=-1)
    if level < 0:
        return NotImplemented
    own = cls.vmap is not Function.vmap
    if own and cls.generate_vmap_rule:
        raise Refused(
            f"You tried to vmap over {cls.__name__}, but it has both generate_vmap_rule=True and an overriden vmap "
            "staticmethod. Please set generate_vmap_rule=False or delete the overriden vmap staticmethod to avoid "
            "ambiguity. For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
        )
    if not own and not cls.generate_vmap_rule:
        raise Unmapped(f"vmap: {cls.__name__} has neither a vmap staticmethod nor generate_vmap_rule=True")
    size = next(n for at, n in levels() if at == level)
    if not own:
        return _generated(cls, args, kwargs, level, size)
    mapped = [x.__class__ is Lane and x._level == level for x in leaves]
    dims = tree_unflatten([0 if m else None for m in mapped], spec)
    given = tree_unflatten([x._value if m else x for x, m in zip(leaves, mapped)], spec)
    found = cls.vmap(VmapInfo(size, randomness()), dims, *given, **kwargs)
    if not (isinstance(found, tuple) and len(found) == 2):
        raise Refused(
            f"Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure "
            f"compatible with the output. Got a {type(found).__name__}."
        )
    output, out_dims = found
    results, structure = tree_flatten(output)
    places = _broadcast_to_and_flatten(out_dims, structure)
    if places is None:
        raise Refused(f"{cls.__name__}.vmap: out_dims {out_dims} do not fit the output's structure {structure}")
    return tree_unflatten(
        [x if d is None else lane(x.movedim(d, 0) if d else x, level) for x, d in zip(results, places)], structure
    )


class _Slices:
    """The ctx that forward and backward of one slice see."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self._undifferentiable: tuple[Any, ...] = ()
        self._materialize = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Nothing: tangents are those of backward."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self._undifferentiable = tensors

    def mark_dirty(self, *tensors: Any) -> None:
        raise Unmapped("vmap: a Function writes to its inputs")

    def set_materialize_grads(self, value: bool) -> None:
        self._materialize = value


def _generated(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any], level: int, size: int) -> Any:
    """A Function of all slices whose forward and backward run those of `cls` once, under a vmap of the same level."""
    mapped = [x.__class__ is Lane and x._level == level for x in args]
    shared: dict[str, Any] = {}

    def as_lanes(values: Sequence[Any], which: Sequence[bool]) -> list[Any]:
        return [lane(v, level) if m and isinstance(v, Tensor) else v for v, m in zip(values, which)]

    def is_lane(x: Any) -> bool:
        return x.__class__ is Lane and x._level == level

    def whole(x: Any) -> Any:
        """All slices of a result."""
        if not isinstance(x, Tensor):
            return x
        return x._value if is_lane(x) else x.expand(size, *x.shape)

    class All(Function):
        generate_vmap_rule = True  # of another vmap around this one

        @staticmethod
        def forward(*given: Any) -> Any:
            needs = tuple(isinstance(x, Tensor) and x.requires_grad for x in given)
            inner = shared["ctx"] = _Slices(needs)
            inputs = tuple(as_lanes(given, mapped))
            shared["shapes"] = [x.shape if isinstance(x, Tensor) else None for x in inputs]
            begin(level, size)
            try:
                output = cls.forward(*inputs, **kwargs)
                cls.setup_context(inner, inputs, output)
            finally:
                end()
            many = output if isinstance(output, tuple) else (output,)
            results = tuple(map(whole, many))
            same = {id(x): r for x, r in zip((*inputs, *many), (*given, *results))}
            shared["saved"] = [same.get(id(t), t._value if is_lane(t) else t) for t in inner.saved_tensors]
            shared["lanes"] = [is_lane(t) or id(t) in {id(x) for x in many} for t in inner.saved_tensors]
            inner.saved_tensors = ()
            constant = {id(u) for u in inner._undifferentiable}
            shared["constant"] = [r for x, r in zip(many, results) if id(x) in constant]
            return results if isinstance(output, tuple) else results[0]

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            ctx.save_for_backward(*shared.pop("saved"))
            ctx.mark_non_differentiable(*shared.pop("constant"))
            ctx.set_materialize_grads(shared["ctx"]._materialize)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            inner = shared["ctx"]
            inner.saved_tensors = tuple(as_lanes(ctx.saved_tensors, shared["lanes"]))
            begin(level, size)
            try:
                found = cls.backward(inner, *as_lanes(grads, [True] * len(grads)))
                many = found if isinstance(found, tuple) else (found,)
                # what was broadcast in a slice is summed there
                many = tuple(
                    g.sum_to_size(shape) if isinstance(g, Tensor) and g.shape != shape else g
                    for g, shape in zip(many, shared["shapes"])
                )
            finally:
                end()
                inner.saved_tensors = ()
            return tuple(
                g if not isinstance(g, Tensor) else whole(g) if m else whole(g).sum(0) for g, m in zip(many, mapped)
            )

    All.__name__ = cls.__name__
    if cls.setup_context is Function.setup_context:
        raise Refused(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must "
            "override the setup_context staticmethod. For more details, please see "
            "https://pytorch.org/docs/main/notes/extending.func.html"
        )
    output = All.apply(*[x._value if m else x for x, m in zip(args, mapped)])
    return (
        tuple(lane(r, level) if isinstance(r, Tensor) else r for r in output)
        if isinstance(output, tuple)
        else lane(output, level)
    )


registered.apply = apply
