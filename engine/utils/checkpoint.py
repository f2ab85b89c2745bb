"""`checkpoint`: keep no intermediate values of a part of a model; compute them again in backward.

https://docs.pytorch.org/docs/2.13/checkpoint.html

`use_reentrant=False` runs the function with its graph and then cuts that graph out: from the outputs back to the first
edges that existed before (inputs, parameters in closures), which become the edges of one CheckpointNode; the graph
between is dropped, and with it all that it saved.  The node's backward runs the function again and pushes the gradients
through the new graph up to the same edges (`run_backward(cut=True)`).  Every kind of differentiation works, also twice.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from engine import random
from engine.autograd.api import backward
from engine.autograd.engine import run_backward, running
from engine.autograd.function import Function
from engine.autograd.graph import Edge, Node, edge_of, next_seq, requires_grad_of
from engine.autograd.versions import second_time
from engine.core.grad_mode import mode
from engine.tensor import Tensor
from engine.utils._pytree import tree_leaves

__all__ = [
    "CheckpointError",
    "CheckpointFunction",
    "DefaultDeviceType",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "detach_variable",
    "get_device_states",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
    "set_device_states",
]


class CheckpointError(RuntimeError):
    """The recomputation is not the same as the first run."""


class DefaultDeviceType:
    """The device type whose random state is kept besides the CPU's; here the states of all devices in use are."""

    _default_device_type = "cuda"

    @staticmethod
    def set_device_type(device: str = "cuda") -> None:
        """Set the type."""
        DefaultDeviceType._default_device_type = device

    @staticmethod
    def get_device_type() -> str:
        """The type."""
        return DefaultDeviceType._default_device_type


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tuple with its Tensors detached, each requiring grad as before.  RuntimeError for anything but a tuple."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    out = []
    for value in inputs:
        if isinstance(value, Tensor):
            fresh = value.detach()
            fresh.requires_grad = value.requires_grad
            out.append(fresh)
        else:
            out.append(value)
    return tuple(out)


def check_backward_validity(inputs: Iterable[Any]) -> None:
    """Warn when no input requires grad."""
    if not any(isinstance(i, Tensor) and i.requires_grad for i in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


def get_device_states(*args: Any) -> tuple[list[int], list[Tensor]]:
    """(indices, states of the generators) of the devices, other than the CPU, that the tensors in `args` are on."""
    devices = sorted(
        {t.device.index or 0 for t in tree_leaves(args) if isinstance(t, Tensor) and t.device.type == "cuda"}
    )
    if not devices:
        return [], []
    from engine import cuda

    return devices, [cuda.get_rng_state(device) for device in devices]


def set_device_states(devices: Iterable[int], states: Iterable[Tensor], *, device_type: str | None = None) -> None:
    """Put back what `get_device_states` gave."""
    for device, state in zip(devices, states):
        from engine import cuda

        cuda.set_rng_state(state, device)


def noop_context_fn() -> tuple[AbstractContextManager[Any], AbstractContextManager[Any]]:
    """The contexts of forward and recomputation that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


def _random_states() -> list[tuple[random.Generator, int, int]]:
    """Return the state of the default generator of each device."""
    return [(g, g._seed, g._blocks) for g in (random.default_generator, *random._others.values())]


@contextlib.contextmanager
def _as_then(states: list[tuple[random.Generator, int, int]] | None) -> Iterator[None]:
    """The random states of then inside, those of now afterwards; None leaves them alone."""
    if states is None:
        yield
        return
    with random.fork_rng():
        for generator, seed, blocks in states:
            with generator._lock:
                generator._seed, generator._blocks, generator._bits = seed, blocks, None
        yield


class CheckpointFunction(Function):
    """The re-entrant form: forward without a graph, backward runs forward again and calls `backward` on it."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable[..., Any], preserve_rng_state: bool, *args: Any) -> Any:
        """run_function(*args) without recording."""
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.states = _random_states() if preserve_rng_state else None
        ctx.inputs = [None if isinstance(a, Tensor) else a for a in args]
        ctx.tensor_indices = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.save_for_backward(*(args[i] for i in ctx.tensor_indices))
        return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *args: Any) -> Any:
        """Gradients of the Tensors among the arguments; those of parameters are accumulated on the way."""
        if running.capturing:
            raise RuntimeError(
                "When use_reentrant=True, torch.utils.checkpoint is incompatible with .grad() or passing an `inputs` "
                "parameter to .backward(). To resolve this error, you can either set use_reentrant=False, or call "
                ".backward() without passing the `inputs` argument."
            )
        inputs = list(ctx.inputs)
        for i, tensor in zip(ctx.tensor_indices, ctx.saved_tensors):
            inputs[i] = tensor
        with _as_then(ctx.states):
            detached = detach_variable(tuple(inputs))
            enabled, mode.enabled = mode.enabled, True
            try:
                outputs = ctx.run_function(*detached)
            finally:
                mode.enabled = enabled
        if isinstance(outputs, Tensor):
            outputs = (outputs,)
        pairs = [(o, g) for o, g in zip(outputs, args) if isinstance(o, Tensor) and o.requires_grad]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        backward([o for o, _ in pairs], [g for _, g in pairs])
        return None, None, *(d.grad if isinstance(d, Tensor) else None for d in detached)


class CheckpointNode(Node):
    """The node of a checkpoint without re-entry.  `call()` runs the function again; `metas` are its outputs'."""

    __slots__ = ("call", "check", "metas", "n_outputs")

    call: Callable[[], Any] | None
    metas: list[Any]
    check: bool

    def name(self) -> str:
        """The name that graphs show."""
        return "CheckpointBackward"

    def release(self) -> None:
        """Drop the function's arguments."""
        self.call = None

    def apply(self, grads: list[Any], needs: Sequence[bool]) -> Sequence[Any]:
        """Run the function again and push `grads` through the new graph."""
        if self.call is None:
            second_time()
        start = next_seq()
        outputs = _tracked(self.call(), start)
        metas = [_meta(t) for t in outputs]
        if len(metas) != len(self.metas):
            raise CheckpointError(
                "torch.utils.checkpoint: A different number of tensors was saved during the original forward and "
                f"recomputation.\nNumber of tensors saved during forward: {len(self.metas)}\nNumber of tensors saved "
                f"during recomputation: {len(metas)}."
            )
        if self.check and metas != self.metas:
            details = "\n".join(
                f"tensor at position {i}:\nsaved metadata: {a}\nrecomputed metadata: {b}"
                for i, (a, b) in enumerate(zip(self.metas, metas))
                if a != b
            )
            raise CheckpointError(
                "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than "
                f"during the forward pass.\n{details}"
            )
        roots = [(edge_of(t), g) for t, g in zip(outputs, grads) if g is not None]
        border = _border([edge for edge, _ in roots], start)
        found = dict(zip(border, run_backward(roots, mode.enabled, mode.enabled, border, cut=True)))
        wanted = zip(self.next_edges, needs)
        return [found.get(edge) if need else None for edge, need in wanted]  # type: ignore[arg-type]


def _meta(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


def _tracked(outputs: Any, start: int) -> list[Tensor]:
    """The Tensors among the outputs whose history began after `start`, each once."""
    found: dict[int, Tensor] = {}
    for t in tree_leaves(outputs):
        if isinstance(t, Tensor) and requires_grad_of(t) and start < edge_of(t)[0].sequence_nr < 2**62:
            found[id(t)] = t
    return list(found.values())


def _border(edges: Sequence[Edge], start: int) -> list[Edge]:
    """The edges that lead from nodes made after `start` to older ones and to leaves, each once."""
    border: dict[Edge, None] = {}
    seen: set[Node] = set()
    stack = list(edges)
    while stack:
        edge = stack.pop()
        node = edge[0]
        if node.sequence_nr < start or node.sequence_nr >= 2**62:
            border[edge] = None
        elif node not in seen:
            seen.add(node)
            stack += [e for e in node.next_edges if e is not None]
    return list(border)


def _without_reentry(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    preserve: bool,
    context_fn: Callable[[], tuple[Any, Any]],
    check: bool,
) -> Any:
    """Run `function` without saved tensors; the docstring of the module says how they are computed again."""
    first, again = context_fn()
    states = _random_states() if preserve else None
    if mode.enabled:
        for t in tree_leaves((args, kwargs)):  # views written in place get their new history before, not inside
            if isinstance(t, Tensor) and requires_grad_of(t):
                edge_of(t)
    start = next_seq()
    with first:
        outputs = function(*args, **kwargs)
    if not mode.enabled:
        return outputs

    def call() -> Any:
        enabled, mode.enabled = mode.enabled, True
        try:
            with _as_then(states), again:
                return function(*args, **kwargs)
        finally:
            mode.enabled = enabled

    tensors = _tracked(outputs, start)
    if not tensors:
        return outputs
    node = CheckpointNode(_border([edge_of(t) for t in tensors], start), len(tensors))
    node.n_outputs = len(tensors)
    node.call, node.check, node.metas = call, check, [_meta(t) for t in tensors]
    for i, t in enumerate(tensors):
        hooks = edge_of(t)[0]._extra
        if hooks is not None and (hooks.pre_hooks or hooks.retains):
            node._extra = node._more()
            if hooks.pre_hooks and edge_of(t)[1] in hooks.pre_hooks:
                node._extra.pre_hooks = {**(node._extra.pre_hooks or {}), i: hooks.pre_hooks[edge_of(t)[1]]}
            if hooks.retains and edge_of(t)[1] in hooks.retains:
                node._extra.retains = {**(node._extra.retains or {}), i: hooks.retains[edge_of(t)[1]]}
    for i, t in enumerate(tensors):
        t._view = t._base = None
        t._edge = (node, i)
    return outputs


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[AbstractContextManager[Any], AbstractContextManager[Any]]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call a function and hold only its arguments for backward, which runs it a second time.

    Args:
        function: What is called.
        *args: Its arguments.
        use_reentrant: False for a graph like any other (`autograd.grad`, keyword arguments, nested containers); True
            for torch's first form, which works with `backward()` only and needs a positional Tensor that requires
            grad; None warns and means True.
        context_fn: () -> (context of the first run, context of the second).
        determinism_check: "default" compares shapes, types and devices of both runs, "none" does not.
        debug: Accepted.
        early_stop: Accepted.
        **kwargs: Keyword arguments of the function; `preserve_rng_state=True`: the second run draws the same numbers.

    Returns:
        What the function returns.

    Raises:
        ValueError: keyword arguments, or a context_fn, with use_reentrant=True.
        CheckpointError: in backward, the second run differs from the first.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, "
            "calling checkpoint without use_reentrant will raise an exception. use_reentrant=False is recommended, but "
            "if you need to preserve the current default behavior, you can pass use_reentrant=True. Refer to docs for "
            "more details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug is not False:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ('default', 'none'), but got {determinism_check}")
    return _without_reentry(function, args, kwargs, preserve, context_fn, determinism_check == "default")


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Call functions one after another, in checkpoints; the last segment is not checkpointed.

    Args:
        functions: An `nn.Sequential` or a list.
        segments: How many segments there are.
        input: What the first function takes.
        use_reentrant: As in `checkpoint`.
        **kwargs: `preserve_rng_state` as in `checkpoint`.

    Returns:
        What the last function returns.

    Raises:
        ValueError: other keyword arguments.
    """
    if use_reentrant is None:
        warnings.warn(
            "torch.utils.checkpoint.checkpoint_sequential: the use_reentrant parameter should be passed explicitly. In "
            "version 2.9 we will raise an exception if use_reentrant is not passed. use_reentrant=False is "
            "recommended, but if you need to preserve the current default behavior, you can pass use_reentrant=True. "
            "Refer to docs for more details on the differences between the two variants.",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    children = getattr(functions, "children", None)
    steps = list(children()) if children is not None else list(functions)

    def run(first: int, last: int) -> Callable[[Any], Any]:
        def forward(value: Any) -> Any:
            for step in steps[first : last + 1]:
                value = step(value)
            return value

        return forward

    size = len(steps) // segments
    end = -1
    for start in range(0, size * (segments - 1), size) if size else ():
        end = start + size - 1
        input = checkpoint(run(start, end), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(end + 1, len(steps) - 1)(input)


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Accepted: the second run always goes to the end."""
    yield


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Accepted: there is nothing more to show."""
    yield
