"""torch.compiler's names: `compile` makes plans of modules and steps, on a GPU graphs of steps; the decorators
return what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_stance",
    "substitute_in_graph",
]


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: Any = None,
    backend: Any = "inductor",
    mode: Any = None,
    options: Any = None,
    disable: bool = False,
    verify: bool = True,
    dtype: Any = None,
) -> Any:
    """A Module with plans for inference and training (`engine/programs`), a function with these.

    A function may be a whole training step: forward, backward, `optimizer.step()`, `zero_grad()`.  Without a model it
    is a decorator.  What cannot be recorded runs op by op, with a warning.  verify: compare every new plan for
    inference with the module.
    dtype: torch.bfloat16 or torch.int8 lets a module's plans for inference compute in that type where the processor
    has the instructions (`engine/programs/inference: compile`); of a function it is an error.
    mode="reduce-overhead" (or "max-autotune") of a function whose Tensors are on a GPU: its calls become replays of a
    captured graph, forward, backward and optimizer together (`engine/programs/capture.py`); on the CPU as without.
    The other arguments are torch's and change nothing.  https://docs.pytorch.org/docs/2.13/generated/torch.compile.html
    """
    if model is None:
        return lambda function: compile(function, mode=mode, disable=disable, verify=verify, dtype=dtype)
    from engine.nn import Module

    if disable:
        return model
    from engine.programs import inference, training

    inference.registered.trained = lambda module, call: training.Recorded(call, module)
    if isinstance(model, Module):
        return inference.compile(model, verify=verify, dtype=dtype)
    if dtype is not None:
        raise NotImplementedError("compile with dtype= takes a Module, whose plans for inference compute in that type")
    recorded = training.Recorded(model)
    if mode not in ("reduce-overhead", "max-autotune"):
        return recorded
    from engine.programs.capture import CapturedStep

    return CapturedStep(model, recorded)


def allow_in_graph(fn: Any) -> Any:
    """`fn` itself (a function or a list of them)."""
    return fn


def assume_constant_result(fn: Any) -> Any:
    """`fn` itself."""
    return fn


def disable(fn: Any = None, recursive: bool = True, **kwargs: Any) -> Any:
    """`@disable` and `@disable(...)`: the function itself."""
    return (lambda function: function) if fn is None else fn


def substitute_in_graph(original_fn: Any, **kwargs: Any) -> Callable:
    """A decorator that returns its function."""
    return lambda function: function


class set_stance:
    """A context and decorator without effect."""

    def __init__(self, stance: str = "default", **kwargs: Any) -> None:
        self.stance = stance

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        return fn


def is_compiling() -> bool:
    """False."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def list_backends(exclude_tags: Any = ()) -> list[str]:
    """Empty."""
    return []


def reset() -> None:
    """Nothing."""


def cudagraph_mark_step_begin() -> None:
    """Nothing."""
