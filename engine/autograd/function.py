"""`Function`: operations written by users.  They make the same kind of node as built-in ops.

https://docs.pytorch.org/docs/2.13/autograd.html#torch.autograd.Function
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from engine.autograd import anomaly_mode as anomaly
from engine.autograd.graph import Node, edge_of, registered, requires_grad_of
from engine.autograd.inplace import rebase
from engine.autograd.versions import SavedResult, check_input, second_time, unpack_result
from engine.autograd.views import CUSTOM, View
from engine.core.dtypes import INEXACT
from engine.core.grad_mode import mode
from engine.core.slots import Several
from engine.tensor import Tensor, wrap, wrap_alias

__all__ = ["Function", "FunctionCtx", "InplaceFunction", "once_differentiable"]


# What applies a Function to mapped arguments while a vmap runs: `engine/func` puts it here.
under_vmap: Several[Callable[..., Any]] = Several()


class _Forward(threading.local):
    """depth: forward-mode derivatives are asked for; finding: `grad`, while a tangent is looked for."""

    depth = 0
    finding: Any = None


forward_mode = _Forward()


class FunctionCtx:
    """The `ctx` of `forward` and `backward`."""

    _to_save: tuple[Any, ...] | None
    needs_input_grad: tuple[bool, ...]

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Save inputs or outputs; read them back as `ctx.saved_tensors`, checked for in-place changes."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument is of type {type(t).__name__}"
                )
        self._to_save = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Save inputs or outputs for `jvp`, which reads them as `ctx.saved_tensors`."""
        self._for_jvp = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        """Say which inputs forward changed in place; they must be returned."""
        self._dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        """Say which outputs have no gradient."""
        self._non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        """False: undefined gradients come as None, not as zeros."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors; RuntimeError once freed or when one was changed in place."""
        if self.__dict__.get("_in_jvp"):
            return self._for_jvp
        entries = self._entries  # type: ignore[attr-defined]
        if entries is None:
            second_time()
        result: list[Any] = []
        for entry in entries:
            if entry is None:
                result.append(None)
            elif isinstance(entry, SavedResult):
                result.append(unpack_result(entry, self, wrap))
            else:
                check_input(*entry)
                result.append(entry[0])
        return tuple(result)

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The old name of `saved_tensors`."""
        warnings.warn("'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2)
        return self.saved_tensors


class FunctionNode(Node, FunctionCtx):
    """The ctx of one call, and its node in the graph.  `n_outputs` and the metadata of outputs are per call."""

    always_runs = True
    _forward_cls: Any = None

    def __init__(self) -> None:
        super().__init__()
        self._entries: tuple[Any, ...] | None = ()
        self._to_save = None
        self._dirty: tuple[Any, ...] = ()
        self._non_differentiable: tuple[Any, ...] = ()
        self._materialize = True
        self._tangents: tuple[list[Any], Sequence[Any]] | None = None
        self._for_jvp: tuple[Any, ...] = ()
        self.needs_input_grad = ()
        self._is_tensor: list[tuple[Any, ...] | None] = []  # of each argument its _meta, None if it is no tensor
        self._metas: list[tuple[Any, ...] | None] = []  # what zeros of each output are made of

    def __repr__(self) -> str:
        return f"<torch.autograd.function.{type(self).__name__} object at {id(self):#x}>"

    def release(self) -> None:
        if self._entries:
            self._entries = None

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        if self._materialize:
            grads = [
                registered.zeros(*meta) if g is None and meta is not None else g for g, meta in zip(grads, self._metas)
            ]
        if forward_mode.finding is not None and self._tangents is not None:
            return self._transposed(grads)
        returned = self._forward_cls.backward(self, *grads)
        values = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
        expected = len(self._is_tensor)
        name = type(self).__name__
        if len(values) > expected and all(v is None for v in values[expected:]):
            values = values[:expected]
        if len(values) != expected:
            raise RuntimeError(
                f"function {name} returned an incorrect number of gradients (expected {expected}, got {len(values)})"
            )
        result: list[Tensor | None] = []
        for value, tensor_at in zip(values, self._is_tensor):
            if tensor_at is None:
                continue
            i = len(result)
            if value is None or not needs[i]:
                result.append(None)
                continue
            if not isinstance(value, Tensor):
                raise RuntimeError(f"expected Variable or None (got {type(value).__name__})")
            result.append(self._validated(value, i, tensor_at))
        return result

    def _tell_tangents(self, args: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Run `jvp` on tangents that are to be differentiated by: what it does to them is linear."""
        starts = [
            registered.zeros(a._array.shape, a._array.dtype, a._array).requires_grad_() if n else None
            for a, n in zip(args, self.needs_input_grad)
        ]
        enabled, mode.enabled = mode.enabled, True
        self._in_jvp = True
        try:
            given = [None if s is None else s.clone() for s in starts]
            if self._materialize:
                given = [
                    registered.zeros(a._array.shape, a._array.dtype, a._array)
                    if g is None and isinstance(a, Tensor) and a._array.dtype in INEXACT
                    else g
                    for g, a in zip(given, args)
                ]
            found = self._forward_cls.jvp(self, *given)
        finally:
            mode.enabled, self._in_jvp = enabled, False
        many = found if isinstance(found, tuple) else (found,)
        if len(many) != len(outputs):
            raise RuntimeError(
                f"The jvp of {self._forward_cls.__name__} returned {len(many)} tangents for {len(outputs)} outputs"
            )
        for out, tangent in zip(outputs, many):
            if isinstance(tangent, Tensor) and tangent._array.shape != out._array.shape:
                raise RuntimeError(
                    f"The jvp of {self._forward_cls.__name__} returned a tangent of shape "
                    f"{list(tangent._array.shape)} for an output of shape {list(out._array.shape)}"
                )
        self._tangents = [s for s, at in zip(starts, self._is_tensor) if at is not None], many

    def _transposed(self, grads: list[Any]) -> Sequence[Any]:
        """The gradients of the inputs by the transpose of `jvp`."""
        starts, tangents = self._tangents  # type: ignore[misc]
        pairs = [(t, g) for t, g in zip(tangents, grads) if t is not None and g is not None and t.requires_grad]
        found = iter(())
        if pairs:
            find, forward_mode.finding = forward_mode.finding, None
            try:
                found = iter(
                    find(
                        [t for t, _ in pairs],
                        [s for s in starts if s is not None],
                        [g for _, g in pairs],
                        create_graph=True,
                        allow_unused=True,
                    )
                )
            finally:
                forward_mode.finding = find
        return [None if s is None else next(found, None) for s in starts]

    def _validated(self, value: Tensor, i: int, meta: tuple[Any, ...]) -> Tensor:
        """A gradient summed to the shape and cast to the dtype of its input."""
        shape, dtype, *sparse = meta
        if sparse:
            if value.shape != shape:
                raise RuntimeError(
                    f"Function {type(self).__name__} returned an invalid gradient at index {i} - got "
                    f"{list(value.shape)} but expected shape compatible with {list(shape)}"
                )
            of_values: Tensor = sparse[0]._of_gradient(value)
            return of_values
        if value._array.shape != shape:
            try:
                value = registered.sum_to_size(value, shape)
            except RuntimeError:
                raise RuntimeError(
                    f"Function {type(self).__name__} returned an invalid gradient at index {i} - got "
                    f"{list(value._array.shape)} but expected shape compatible with {list(shape)}"
                ) from None
        if value._array.dtype != dtype:
            value = registered.cast(value, dtype)
        return value


class FunctionMeta(type):
    """Gives every Function its node class, `<Name>Backward`."""

    def __init__(cls, name: str, bases: tuple[type, ...], attrs: dict[str, Any]) -> None:
        super().__init__(name, bases, attrs)
        cls._backward_cls = type(
            name + "Backward",
            (FunctionNode,),
            {"_forward_cls": cls, "__module__": "torch.autograd.function"},
        )


class Function(metaclass=FunctionMeta):
    """Subclass with static `forward(ctx, *args)` and `backward(ctx, *grads)`; call `YourFunction.apply(*args)`.

    `backward` returns one gradient (or None) for each argument of forward.  `setup_context(ctx, inputs, output)` may
    take the ctx work over; forward then has no ctx.
    """

    _backward_cls: type[FunctionNode]
    generate_vmap_rule = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        warnings.warn(
            f"{self.__class__} should not be instantiated. Methods on autograd functions are all static, so you "
            "should invoke them on the class itself. Instantiating an autograd function will raise an error in a "
            "future version of PyTorch.",
            DeprecationWarning,
            stacklevel=2,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use new-style autograd "
            "function with static forward method. (Example: "
            "https://pytorch.org/docs/stable/autograd.html#torch.autograd.Function)"
        )

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        """Compute the outputs from (ctx, *args)."""
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> Any:
        """Prepare ctx after a forward that takes no ctx."""
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        """Gradients for the arguments of forward from those of its outputs."""
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom autograd.Function to use it with "
            "backward mode AD."
        )

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], *args: Any) -> Any:
        """(outputs, their mapped dims) of arguments whose mapped dims are `in_dims`; info: batch_size, randomness."""
        raise NotImplementedError(
            "To use autograd.Function with vmap, you must either override the vmap staticmethod or set "
            "generate_vmap_rule=True."
        )

    @staticmethod
    def jvp(ctx: Any, *grad_inputs: Any) -> Any:
        """Tangents of the outputs from those of the arguments of forward."""
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with forward mode AD."
        )

    @classmethod
    def apply(cls, *args: Any, **kwargs: Any) -> Any:
        """Call forward and record the node."""
        for applied in tuple(under_vmap):  # of another thread's vmap, which may end meanwhile
            found = applied(cls, args, kwargs)
            if found is not NotImplemented:
                return found
        ctx = cls._backward_cls()
        is_tensor = [isinstance(a, Tensor) for a in args]
        needs = tuple(t and requires_grad_of(a) for a, t in zip(args, is_tensor))
        ctx.needs_input_grad = needs
        recording = mode.enabled and any(needs)
        if recording:
            # edges as they are now: forward may rewrite inputs in place
            ctx.next_edges = [_edge_of(a) if n else None for a, n, t in zip(args, needs, is_tensor) if t]
        ctx._is_tensor = [_meta(a) if t else None for a, t in zip(args, is_tensor)]
        enabled = mode.enabled
        mode.enabled = False
        try:
            if cls.setup_context is not Function.setup_context:
                output = cls.forward(*args, **kwargs)
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args, **kwargs)
        finally:
            mode.enabled = enabled
        single = not isinstance(output, tuple)
        outputs = (output,) if single else output
        inputs = {id(a): a for a, t in zip(args, is_tensor) if t}
        wrapped = _wrap_outputs(cls, ctx, outputs, inputs, recording)
        if recording and forward_mode.depth and (cls.jvp is not Function.jvp or cls.backward is Function.backward):
            ctx._tell_tangents(args, wrapped)
        ctx._dirty = ctx._non_differentiable = ()
        ctx._to_save = None
        return wrapped[0] if single else tuple(wrapped)


class InplaceFunction(Function):
    """A Function whose `forward` may write to its input: an old name, without anything of its own but `inplace`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace


def _meta(argument: Tensor) -> tuple[Any, ...]:
    """Return the facts that gradients of an argument are compared with: shape and dtype; of a sparse one the tensor,
    too."""
    if argument.is_sparse:
        return argument.shape, None, argument
    return argument._array.shape, argument._array.dtype


def _edge_of(argument: Any) -> Any:
    """Return the edge along which the gradient of an argument goes; that of a sparse one is of its values."""
    return edge_of(argument._v if argument.is_sparse else argument)


def _wrap_outputs(cls: Any, ctx: Any, outputs: Sequence[Any], inputs: dict[int, Tensor], recording: bool) -> list[Any]:
    """The outputs with their history, saved tensors packed."""
    dirty = {id(t): t for t in ctx._dirty}
    returned = {id(o) for o in outputs}
    for key, t in dirty.items():
        if key not in returned:
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The inputs that "
                "are modified inplace must all be outputs of the Function."
            )
        if recording and requires_grad_of(t) and t._edge is None and t._view is None:
            raise RuntimeError("a leaf Variable that requires grad is being used in an in-place operation.")
        t._vc[0] += 1
    no_gradient = {id(t) for t in ctx._non_differentiable}
    done: dict[int, Any] = {}
    wrapped: list[Any] = []
    metas: list[Any] = []
    for nr, out in enumerate(outputs):
        if not isinstance(out, Tensor):
            wrapped.append(out)
            metas.append(None)
            continue
        key = id(out)
        differentiable = recording and key not in no_gradient and out._array.dtype in INEXACT
        if key in done:
            result = done[key]
        elif key in dirty:
            result = out
            if recording:
                ctx.n_outputs = len(outputs)
                if out._view is not None:
                    rebase(out, ctx)
                else:
                    out._edge, out._requires_grad = (ctx, nr), True
        else:
            result = out
            if key in inputs:  # an input handed on: another tensor of the same memory
                result = wrap_alias(out)
                result._vc = out._vc
                result._base = out if out._base is None else out._base
            if not recording:
                if key in inputs:
                    result._requires_grad = False
                    result._base = None
            else:
                if result._base is not None:
                    result._view = View(
                        (ctx, nr), result._vc[0], (None, _not_replayable, (cls.__name__,)), True, CUSTOM
                    )
                else:
                    result._view = None
                result._requires_grad = differentiable
                result._edge = (ctx, nr) if differentiable else None
                if result._view is not None and differentiable:
                    result._edge = None
                elif result._view is not None:
                    result._view = None
        done[key] = result
        wrapped.append(result)
        metas.append((out._array.shape, out._array.dtype, out._array))
    ctx.n_outputs = len(outputs)
    ctx._metas = [m if m is None else (m[0], m[1], _like(m[2])) for m in metas]
    if recording:
        entries: list[Any] = []
        for t in ctx._to_save or ():
            if t is None:
                entries.append(None)
            elif id(t) in done and (id(t) not in inputs or id(t) in dirty):
                out = done[id(t)]
                nr = next(i for i, o in enumerate(outputs) if o is t)
                entries.append(
                    SavedResult(out._array, out._vc, out._vc[0], nr) if out._requires_grad else (out, out._vc[0])
                )
            else:
                entries.append((t, t._vc[-1]))
        ctx._entries = tuple(entries)
        if anomaly.state.enabled:
            anomaly.record(ctx)
    else:
        ctx._entries = ()
    return wrapped


def _like(array: Any) -> Any:
    """An empty array of the same backend: says where zeros are to be made without keeping the memory."""
    return array[:0].copy() if array.ndim else array.copy()


def _not_replayable(base: Any, name: str) -> Any:
    raise RuntimeError(
        f"Output of {name} is a view and is being modified inplace. This view was created inside a custom Function (or "
        "because an input was returned as-is) and the autograd logic to handle view+inplace would override the custom "
        "backward associated with the custom Function, leading to incorrect gradients. This behavior is forbidden. You "
        "can fix this by cloning the output of the custom Function."
    )


class _TwiceNode(Node):
    """Stands behind the gradients of a once-differentiable backward: differentiating them is refused."""

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """For a `backward` that is not differentiable itself: asking for its derivative is an error that says so."""

    @functools.wraps(fn)
    def backward(ctx: Any, *args: Any) -> Any:
        enabled = mode.enabled
        mode.enabled = False
        try:
            outputs = fn(ctx, *args)
        finally:
            mode.enabled = enabled
        tracked = [a for a in args if isinstance(a, Tensor) and requires_grad_of(a)]
        if not (enabled and tracked):
            return outputs
        node = _TwiceNode([edge_of(a) for a in tracked])
        many = outputs if isinstance(outputs, tuple) else (outputs,)
        guarded = []
        for i, out in enumerate(many):
            if isinstance(out, Tensor):
                twin = wrap_alias(out)
                twin._requires_grad, twin._edge = True, (node, i)
                guarded.append(twin)
            else:
                guarded.append(out)
        node.n_outputs = len(many)
        return tuple(guarded) if isinstance(outputs, tuple) else guarded[0]

    return backward


def _nested_map(condition: Any, fn: Any, condition_msg: str | None = None) -> Any:
    """A function that applies `fn` to the parts of lists, tuples and dicts that meet a condition.

    ValueError for parts that are neither, nor None; `condition_msg` says what is expected.
    """

    def mapped(value: Any) -> Any:
        if condition(value):
            return fn(value)
        if value is None:
            return None
        if isinstance(value, dict):
            return {key: mapped(part) for key, part in value.items()}
        if isinstance(value, list | tuple):
            parts = [mapped(part) for part in value]
            return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
        expected = f"; accepted types: {condition_msg}" if condition_msg else ""
        raise ValueError(f"cannot map a value of type {type(value).__name__}{expected}")

    return mapped
