"""Hooks of all Modules at once, and the machinery behind full backward hooks."""

from __future__ import annotations

import warnings
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from engine.autograd.graph import Node, edge_of, requires_grad_of
from engine.core.grad_mode import mode
from engine.core.hooks import RemovableHandle
from engine.tensor import Tensor, wrap_alias

backward_pre: OrderedDict[int, Callable] = OrderedDict()
backward: OrderedDict[int, Callable] = OrderedDict()
forward_pre: OrderedDict[int, Callable] = OrderedDict()
forward: OrderedDict[int, Callable] = OrderedDict()
forward_always: OrderedDict[int, bool] = OrderedDict()
forward_with_kwargs: OrderedDict[int, bool] = OrderedDict()
buffer_registration: OrderedDict[int, Callable] = OrderedDict()
module_registration: OrderedDict[int, Callable] = OrderedDict()
parameter_registration: OrderedDict[int, Callable] = OrderedDict()
_full: list[bool | None] = [None]  # whether the hooks in `backward` are full ones


def _register(hooks: Any, hook: Callable, **options: Any) -> RemovableHandle:
    handle = RemovableHandle(hooks, **options)
    hooks[handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, name, buffer)` at every register_buffer; a result replaces the buffer."""
    return _register(buffer_registration, hook)


def register_module_module_registration_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, name, submodule)` at every register_module; a result replaces it."""
    return _register(module_registration, hook)


def register_module_parameter_registration_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, name, param)` at every register_parameter; a result replaces it."""
    return _register(parameter_registration, hook)


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, input)` before the forward of every Module."""
    return _register(forward_pre, hook)


def register_module_forward_hook(
    hook: Callable, *, with_kwargs: bool = False, always_call: bool = False
) -> RemovableHandle:
    """Call `hook(module, input, output)` after the forward of every Module."""
    handle = _register(forward, hook, extra_dict=[forward_always, forward_with_kwargs])
    if with_kwargs:
        forward_with_kwargs[handle.id] = True
    if always_call:
        forward_always[handle.id] = True
    return handle


def _set_full(value: bool) -> None:
    if _full[0] is (not value):
        raise RuntimeError(
            "Cannot use both regular backward hooks and full backward hooks as a global Module hook. Please use only "
            "one of them."
        )
    _full[0] = value


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """Deprecated form of `register_module_full_backward_hook`: sees the last node of each Module only."""
    _set_full(False)
    return _register(backward, hook)


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, grad_output)` before the backward of every Module."""
    return _register(backward_pre, hook)


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(module, grad_input, grad_output)` when the gradients of a Module's inputs are known."""
    _set_full(True)
    return _register(backward, hook)


class WrappedHook:
    """A hook that is handed the Module first, without keeping it alive."""

    def __init__(self, hook: Callable, module: Any = None) -> None:
        self.hook = hook
        self.__name__ = getattr(hook, "__name__", type(hook).__name__)
        self.__doc__ = hook.__doc__
        self.with_module = module is not None
        if module is not None:
            self.module = weakref.ref(module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.with_module:
            module = self.module()
            if module is None:
                raise RuntimeError("You are trying to call the hook of a dead Module!")
            return self.hook(module, *args, **kwargs)
        return self.hook(*args, **kwargs)

    def __getstate__(self) -> dict:
        result = {"hook": self.hook, "with_module": self.with_module}
        if self.with_module:
            result["module"] = self.module()
        return result

    def __setstate__(self, state: dict) -> None:
        self.hook, self.with_module = state["hook"], state["with_module"]
        if self.with_module:
            if state["module"] is None:
                raise RuntimeError("You are trying to revive the hook of a dead Module!")
            self.module = weakref.ref(state["module"])


class BackwardHookFunctionBackward(Node):
    """An identity with one output an input: the place where gradients enter or leave a Module."""

    __slots__ = ("n_outputs",)
    guarded = True

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        return tuple(grads)


def _through_identity(values: Sequence[Any]) -> tuple[tuple[Any, ...], list[int] | None, Any]:
    """`values` with their Tensors behind one identity node: (values, indices of Tensors, node).

    Indices and node are None if no Tensor requires grad.
    """
    where = [i for i, v in enumerate(values) if isinstance(v, Tensor)]
    if not mode.enabled or not any(requires_grad_of(values[i]) for i in where):
        return tuple(values), None, None
    edges = [edge_of(values[i]) if requires_grad_of(values[i]) else None for i in where]
    node = BackwardHookFunctionBackward(edges)
    node.n_outputs = len(where)
    result = list(values)
    for nr, i in enumerate(where):
        t = wrap_alias(values[i])
        t._vc = values[i]._vc
        if requires_grad_of(values[i]):
            t._requires_grad, t._edge = True, (node, nr)
        result[i] = t
    return tuple(result), where, node


def _spread(indices: Sequence[int] | None, values: Sequence[Any], size: int) -> tuple[Any, ...]:
    result = [None] * size
    for i, value in zip(indices or (), values):
        result[i] = value
    return tuple(result)


class BackwardHook:
    """Calls a Module's full backward hooks: identities round its inputs and outputs tell it when."""

    def __init__(self, module: Any, user_hooks: list, user_pre_hooks: list) -> None:
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.inputs_at: list[int] | None = None
        self.outputs_at: list[int] | None = None
        self.n_inputs = self.n_outputs = -1

    def setup_input_hook(self, args: tuple) -> tuple:
        """The forward's inputs behind an identity node that calls the hooks."""
        args, self.inputs_at, node = _through_identity(args)
        self.n_inputs = len(args)
        if node is not None:
            node.register_hook(self._after_inputs)
        return args

    def _after_inputs(self, grad_input: Sequence[Any], _: Any) -> Any:
        if self.grad_outputs is None:  # a gradient that did not come through the Module's output
            return None
        assert self.inputs_at is not None
        res = _spread(self.inputs_at, grad_input, self.n_inputs)
        for hook in self.user_hooks:
            out = hook(self.module, res, self.grad_outputs)
            if out is None:
                continue
            if not isinstance(out, tuple):
                out = (out,)
            if len(out) != len(res):
                raise RuntimeError(
                    f"Backward hook returned an invalid number of grad_input, got {len(out)}, but expected {len(res)}"
                )
            res = out
        self.grad_outputs = None
        return tuple(res[i] for i in self.inputs_at)

    def setup_output_hook(self, result: Any) -> Any:
        """The forward's result behind an identity node that notes the gradients arriving."""
        values = result if isinstance(result, tuple) else (result,)
        values, self.outputs_at, node = _through_identity(values)
        self.n_outputs = len(values)
        if node is not None:
            node.register_prehook(self._before_outputs)
        return values if isinstance(result, tuple) else values[0]

    def _before_outputs(self, grad_output: Sequence[Any]) -> Any:
        self.grad_outputs = _spread(self.outputs_at, grad_output, self.n_outputs)
        for pre_hook in self.user_pre_hooks:
            out = pre_hook(self.module, self.grad_outputs)
            if out is None:
                continue
            if not isinstance(out, tuple):
                out = (out,)
            if len(out) != self.n_outputs:
                raise RuntimeError(
                    f"Backward pre hook returned an invalid number of grad_output, got {len(out)}, but expected "
                    f"{self.n_outputs}"
                )
            self.grad_outputs = out
        outputs = self.grad_outputs
        if self.inputs_at is None:
            if self.user_hooks:
                warnings.warn(
                    "Full backward hook is firing when gradients are computed with respect to module outputs since no "
                    "inputs require gradients. See https://docs.pytorch.org/docs/main/generated/torch.nn.Module.html"
                    "#torch.nn.Module.register_full_backward_hook for more details.",
                    stacklevel=5,
                )
            nothing = (None,) * self.n_inputs
            for hook in self.user_hooks:
                res = hook(self.module, nothing, outputs)
                if res is not None and not (isinstance(res, tuple) and all(r is None for r in res)):
                    raise RuntimeError(
                        "Backward hook for Modules where no input requires gradient should always return None or None "
                        "for all gradients."
                    )
            self.grad_outputs = None
        assert self.outputs_at is not None
        return tuple(outputs[i] for i in self.outputs_at)


def split_backward_hooks(module: Any) -> tuple[list, list]:
    """The full and the old-style backward hooks that hold for `module`."""
    own, is_full = list(module._backward_hooks.values()), module._is_full_backward_hook
    shared = list(backward.values())
    full = (shared if _full[0] is True else []) + (own if is_full is True else [])
    old = (shared if _full[0] is False else []) + (own if is_full is False else [])
    return full, old


def warn_non_full(inputs: Any, result: Any, grad_fn: Any) -> None:
    """torch's warnings where an old-style backward hook does not see what its author expects."""

    def tell(what: str) -> None:
        warnings.warn(what, FutureWarning, stacklevel=5)

    if isinstance(result, Tensor):
        result = (result,)
    elif not (isinstance(result, tuple) and all(isinstance(r, Tensor) for r in result)):
        tell(
            "Using non-full backward hooks on a Module that does not return a single Tensor or a tuple of Tensors is "
            "deprecated and will be removed in future versions. This hook will be missing some of the grad_output. "
            "Please use register_full_backward_hook to get the documented behavior."
        )
        return
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    elif not (isinstance(inputs, tuple) and all(isinstance(i, Tensor) for i in inputs)):
        tell(
            "Using non-full backward hooks on a Module that does not take as input a single Tensor or a tuple of "
            "Tensors is deprecated and will be removed in future versions. This hook will be missing some of the "
            "grad_input. Please use register_full_backward_hook to get the documented behavior."
        )
        return
    out = {r.grad_fn for r in result if r.grad_fn is not None}
    if not out or (len(out) == 1 and grad_fn not in out):
        tell(
            "Using a non-full backward hook when outputs are nested in python data structure is deprecated and will be "
            "removed in future versions. This hook will be missing some grad_output."
        )
    elif len(out) > 1:
        tell(
            "Using a non-full backward hook when outputs are generated by different autograd Nodes is deprecated and "
            "will be removed in future versions. This hook will be missing some grad_output. Please use "
            "register_full_backward_hook to get the documented behavior."
        )
    elif {i.grad_fn for i in inputs if i.grad_fn is not None} != {n[0] for n in grad_fn.next_functions}:
        tell(
            "Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will "
            "be removed in future versions. This hook will be missing some grad_input. Please use "
            "register_full_backward_hook to get the documented behavior."
        )
