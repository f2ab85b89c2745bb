"""torch.func: functions transformed (`vmap`, `grad`, `vjp`, `jvp`, ...) and modules as functions.

https://docs.pytorch.org/docs/2.13/func.api.html
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.func._transforms import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from engine.func._vmap import vmap
from engine.nn.utils.stateless import _functional_call
from engine.ops import functions as torch

__all__ = [
    "functional_call",
    "functionalize",
    "grad",
    "grad_and_value",
    "hessian",
    "jacfwd",
    "jacrev",
    "jvp",
    "linearize",
    "replace_all_batch_norm_modules_",
    "stack_module_state",
    "vjp",
    "vmap",
]


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Call `module(*args, **kwargs)` with other parameters and buffers, named as in its state_dict.

    parameter_and_buffer_dicts: a dict or a tuple of dicts with no name twice (ValueError).
    """
    given = parameter_and_buffer_dicts
    if not isinstance(given, dict):
        if not isinstance(given, tuple | list) or not all(isinstance(one, dict) for one in given):
            raise ValueError(
                f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
            )
        names = [name for one in given for name in one]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise ValueError(f"{min(twice)} appears in multiple dictionaries; behavior of functional call is ambiguous")
        given = {name: value for one in given for name, value in one.items()}
    return _functional_call(module, given, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(parameters, buffers) of modules of one class, each stacked in a new first dim, for `vmap` of `functional_call`.

    RuntimeError for no module, several classes, or both training and evaluation.
    https://docs.pytorch.org/docs/2.13/generated/torch.func.stack_module_state.html
    """
    if not models:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if not all(type(m) is type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(tensors: Sequence[Any]) -> Any:
        if len({t.requires_grad for t in tensors}) != 1:
            raise RuntimeError("Expected parameters from different models to have the same requires_grad")
        return torch.stack([t.detach() for t in tensors]).requires_grad_(tensors[0].requires_grad)

    parameters = [dict(m.named_parameters()) for m in models]
    buffers = [dict(m.named_buffers()) for m in models]
    return tuple(  # type: ignore[return-value]
        {name: stacked([one[name] for one in each]) for name in each[0]} for each in (parameters, buffers)
    )


def functionalize(func: Callable, *, remove: str = "mutations") -> Callable:
    """`func` itself: nothing that runs a function here asks for one without writes in place."""
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            "functionalize(f, remove='...'): expected remove to be one of 'mutations' or 'mutations_and_views'"
        )
    return func


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """`root` itself, whose batch norms keep no running statistics any more: those would be written to under vmap.

    https://docs.pytorch.org/docs/2.13/generated/torch.func.replace_all_batch_norm_modules_.html
    """
    from engine.nn.modules.batchnorm import _BatchNorm

    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
