"""Automatic mixed precision, inert.

The rule: `autocast` never changes a dtype.  Operations run in the dtype of their inputs, which is at least as exact
as what torch would choose, so nothing needs scaling and `GradScaler` passes everything through as torch's does with
`enabled=False`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from engine import dtypes

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_DEVICES = ("cpu", "cuda", "mps", "xpu", "meta", "hpu", "xla")


class autocast:
    """`with autocast("cuda", dtype=torch.float16):` or as a decorator: checks its arguments and changes nothing.

    Raises RuntimeError for an unknown device type, ValueError where it is not a string.
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type.partition(":")[0] not in _DEVICES:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = dtype or (dtypes.float16 if device_type == "cuda" else dtypes.bfloat16)
        self._enabled = enabled
        self._cache_enabled = True if cache_enabled is None else cache_enabled

    def __enter__(self) -> autocast:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return decorated


def is_autocast_available(device_type: str) -> bool:
    """Whether `autocast(device_type)` is accepted."""
    return device_type in _DEVICES


def _decorator(fwd: Callable | None, keyword: Any) -> Any:
    return keyword if fwd is None else fwd


def custom_fwd(fwd: Callable | None = None, *, device_type: str = "cuda", cast_inputs: Any = None) -> Any:
    """`@custom_fwd` and `@custom_fwd(device_type=...)`: the function itself."""
    return _decorator(fwd, lambda function: function)


def custom_bwd(bwd: Callable | None = None, *, device_type: str = "cuda") -> Any:
    """`@custom_bwd` and `@custom_bwd(device_type=...)`: the function itself."""
    return _decorator(bwd, lambda function: function)


def _dense(grad: Any) -> Any:
    return grad._values() if grad.is_sparse else grad


class GradScaler:
    """Passes losses through, and steps whose gradients are finite: nothing is in half precision unless the model is."""

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device = device
        self._enabled = enabled
        self._factors = (growth_factor, backoff_factor, growth_interval)

    def scale(self, outputs: Any) -> Any:
        """`outputs` themselves."""
        return outputs

    def unscale_(self, optimizer: Any) -> None:
        """Nothing: nothing was scaled."""

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)`, or nothing where a gradient is inf or nan."""
        if self._enabled:
            for group in optimizer.param_groups:
                for p in group["params"]:
                    if p.grad is not None and not bool(_dense(p.grad).isfinite().all()):
                        return None
        return optimizer.step(*args, **kwargs)

    def update(self, new_scale: Any = None) -> None:
        """Nothing."""

    def get_scale(self) -> float:
        """1.0."""
        return 1.0

    def get_growth_factor(self) -> float:
        """As given."""
        return self._factors[0]

    def get_backoff_factor(self) -> float:
        """As given."""
        return self._factors[1]

    def get_growth_interval(self) -> int:
        """As given."""
        return self._factors[2]

    def is_enabled(self) -> bool:
        """False."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """Empty, as torch's when disabled."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: there is no state."""
