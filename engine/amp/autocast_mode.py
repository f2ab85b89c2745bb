"""torch.amp.autocast_mode: contexts in which products run in a 16-bit type and what needs it in float32."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from engine.core import dtypes
from engine.dispatch.autocast import state

__all__ = ["autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]

_DEVICES = ("cpu", "cuda", "mps", "xpu", "meta", "hpu", "xla")


class autocast:
    """`with autocast("cuda", dtype=torch.float16):` or as a decorator.  Note [Autocast] in dispatch/autocast.py.

    device_type: "cpu" or "cuda"; dtype: bfloat16 (the CPU's default) or float16 (CUDA's); enabled=False disables it
    inside another.  Backward passes run in the types that forward took, and belong outside of the block.
    RuntimeError for an unknown device type, ValueError where it is not a string; where the device is missing, or the
    dtype is another one, a warning says that it is disabled.
    """

    def __init__(
        self, device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        kind = device_type.partition(":")[0]
        if kind not in _DEVICES:
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self.device = device_type
        self.fast_dtype = dtype or state.types.get(kind, dtypes.bfloat16)
        self._kind, self._enabled = kind, enabled and self._possible(kind, self.fast_dtype, enabled)
        self._cache_enabled = state.caching if cache_enabled is None else cache_enabled
        self._outer: list[tuple[bool, Any, bool]] = []

    @staticmethod
    def _possible(kind: str, dtype: Any, asked: bool) -> bool:
        if kind not in ("cpu", "cuda"):
            return False  # no tensor is ever there
        if kind == "cuda":
            from engine.backends import cuda

            if not cuda.device_count():
                warnings.warn(
                    "CUDA is not available or torch_xla is imported. Disabling autocast.",
                    UserWarning,
                    stacklevel=4,
                )
                return False
        if dtype in (dtypes.bfloat16, dtypes.float16):
            return True
        if dtype is not dtypes.float32 or kind == "cpu":
            warnings.warn(
                f"In {kind.upper()} autocast, but the target dtype is not supported. Disabling autocast.\n"
                f"{kind.upper()} Autocast only supports dtypes of torch.bfloat16, torch.float16 currently.",
                UserWarning,
                stacklevel=4,
            )
        return dtype is dtypes.float32 and kind == "cuda"

    def __enter__(self) -> autocast:
        kind = self._kind
        self._outer.append((state.enabled.get(kind, False), state.types.get(kind), state.caching))
        state.depth += 1
        if kind in state.types:
            state.types[kind] = self.fast_dtype
            state.enable(kind, self._enabled)
        state.caching = self._cache_enabled
        return self

    def __exit__(self, *exc: object) -> None:
        enabled, dtype, state.caching = self._outer.pop()
        state.depth -= 1
        if not state.depth:
            state.casts.clear()
        if dtype is not None:
            state.types[self._kind] = dtype
            state.enable(self._kind, enabled)

    def __call__(self, func: Callable) -> Callable:
        @functools.wraps(func)
        def decorated(*args: Any, **kwargs: Any) -> Any:
            with self:
                return func(*args, **kwargs)

        return decorated


def is_autocast_available(device_type: str) -> bool:
    """Return whether `autocast(device_type)` is accepted."""
    return device_type in _DEVICES


def _cast(value: Any, kind: str, dtype: Any) -> Any:
    from engine.tensor import Tensor

    if isinstance(value, Tensor):
        fits = value.is_floating_point() and value.device.type == kind and value.dtype is not dtypes.float64
        return value.to(dtype) if fits else value
    if isinstance(value, dict):
        return {k: _cast(v, kind, dtype) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_cast(v, kind, dtype) for v in value)
    return value


def custom_fwd(fwd: Callable | None = None, *, device_type: str = "cuda", cast_inputs: Any = None) -> Any:
    """Decorator of `Function.forward`: it runs under the autocast of its caller, or, with `cast_inputs`, without any,
    on inputs cast to that dtype.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = state.types.get(device_type)
        enabled = state.enabled.get(device_type, False)
        ctx._fwd_used_autocast = enabled and cast_inputs is None
        if cast_inputs is None or not enabled:
            return fwd(ctx, *args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(ctx, *_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable | None = None, *, device_type: str = "cuda") -> Any:
    """Decorator of `Function.backward`: it runs under the autocast that `forward` had."""
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(ctx: Any, *args: Any) -> Any:
        if not getattr(ctx, "_fwd_used_autocast", False):
            return bwd(ctx, *args)
        with autocast(device_type, dtype=ctx._dtype):
            return bwd(ctx, *args)

    return decorated


def deprecated(name: str, kind: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """For a function, or a class's `__init__`, of `torch.{kind}.amp` that `torch.amp` has: warn at each call."""
    new = (
        f"torch.amp.{name}(args..., device_type='{kind}')"
        if "custom" in name
        else f"torch.amp.{name}('{kind}', args...)"
    )

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def warning(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(
                f"`torch.{kind}.amp.{name}(args...)` is deprecated. Please use `{new}` instead.",
                FutureWarning,
                stacklevel=2,
            )
            return function(*args, **kwargs)

        return warning

    return decorate
