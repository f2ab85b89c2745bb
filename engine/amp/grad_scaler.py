"""torch.amp.grad_scaler: losses scaled so that float16 gradients do not vanish, and steps skipped on inf."""

from __future__ import annotations

import warnings
from collections import defaultdict
from typing import Any

from engine.core.grad_mode import no_grad
from engine.core.hooks import noted
from engine.ops import functions as torch

__all__ = ["GradScaler", "OptState"]

_READY, _UNSCALED, _STEPPED = range(3)


class OptState:
    """The states of an optimizer between two updates: gradients still scaled, unscaled, or used by a step."""

    READY, UNSCALED, STEPPED = _READY, _UNSCALED, _STEPPED


def _fresh() -> dict[str, Any]:
    return {"stage": _READY, "found": None}


class GradScaler:
    """`scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()`.

    The scale is multiplied by `growth_factor` after `growth_interval` updates without inf or nan in the gradients, and
    by `backoff_factor` after one with them, whose step is skipped.  ValueError for factors that do not grow or shrink.
    On a machine without CUDA a scaler for "cuda" is disabled, with a warning.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        self._device, self._enabled = device, enabled
        if device == "cuda" and enabled:
            from engine.backends import cuda

            if not cuda.device_count():
                warnings.warn(
                    "torch.cuda.amp.GradScaler is enabled, but CUDA is not available.  Disabling.",
                    UserWarning,
                    stacklevel=2,
                )
                self._enabled = False
        if self._enabled:
            if growth_factor <= 1.0:
                raise ValueError("The growth factor must be > 1.0.")
            if backoff_factor >= 1.0:
                raise ValueError("The backoff factor must be < 1.0.")
        self._init_scale, self._growth, self._backoff = init_scale, growth_factor, backoff_factor
        self._interval, self._since = growth_interval, 0
        self._scale: Any = None
        self._states: dict[int, dict[str, Any]] = defaultdict(_fresh)

    def _start(self, like: Any) -> None:
        if self._scale is None:
            self._outside("the first scale(), whose scale each replay would set back to the initial one")
            self._scale = torch.full((), self._init_scale, device=like.device)

    def _outside(self, what: str) -> None:
        """CaptureError while a graph is captured."""
        if self._device == "cuda":
            from engine.backends.cuda import runtime

            if runtime.capturing():
                raise runtime.CaptureError(
                    f"a CUDA graph cannot hold of GradScaler {what}: capture scale(loss).backward(), after a run "
                    "without one, and call step() and update() after each replay; bfloat16 needs no GradScaler"
                )

    def scale(self, outputs: Any) -> Any:
        """`outputs` (a Tensor, or an iterable of them) times the scale."""
        from engine.tensor import Tensor

        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            self._start(outputs)
            return outputs * self._scale.to(outputs.device)
        if isinstance(outputs, list | tuple):
            return type(outputs)(self.scale(o) for o in outputs)
        if hasattr(outputs, "__iter__"):
            return (self.scale(o) for o in outputs)
        raise ValueError("outputs must be a Tensor or an iterable of Tensors")

    @noted
    def unscale_(self, optimizer: Any) -> None:
        """Divide the gradients of the optimizer's parameters by the scale, and note inf or nan in them.

        RuntimeError when called twice, or after `step`, before the next `update`.
        """
        if not self._enabled:
            return
        now = self._states[id(optimizer)]
        if now["stage"] is _UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if now["stage"] is _STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._require("unscale_")
        now["found"] = self._unscale(optimizer)
        now["stage"] = _UNSCALED

    def _unscale(self, optimizer: Any) -> Any:
        """1 if a gradient is not finite, else 0, as a 0-dim tensor; None without gradients."""
        from engine.core import dtypes

        found: Any = None
        inverse = 1.0 / self._scale.double()
        with no_grad():
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    grad = parameter.grad
                    if grad is None:
                        continue
                    if grad.dtype is dtypes.float16 and not getattr(self, "_half_allowed", False):
                        raise ValueError("Attempting to unscale FP16 gradients.")
                    values = grad._values() if grad.is_sparse else grad
                    bad = (~values.isfinite()).any()
                    found = bad if found is None else found | bad.to(found.device)
                    values.mul_(inverse.to(values.device, values.dtype))
        return found

    @noted
    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """`optimizer.step(*args, **kwargs)` on gradients that are unscaled, unless one of them is inf or nan.

        RuntimeError for a closure, and when called twice before the next `update`.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        now = self._states[id(optimizer)]
        if now["stage"] is _STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        self._outside("step(), which looks whether the gradients are finite")
        if now["stage"] is _READY:
            self.unscale_(optimizer)
        if now["found"] is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        result = None if bool(now["found"]) else optimizer.step(*args, **kwargs)
        now["stage"] = _STEPPED
        return result

    @noted
    def update(self, new_scale: Any = None) -> None:
        """Grow or shrink the scale by what was found since the last update, or set it to `new_scale`."""
        from engine.tensor import Tensor

        if not self._enabled:
            return
        self._require("update")
        self._outside("update(), which looks whether the gradients were finite")
        if new_scale is not None:
            value = new_scale.item() if isinstance(new_scale, Tensor) else new_scale
            self._scale.fill_(value)
        else:
            found = [now["found"] for now in self._states.values() if now["found"] is not None]
            if not found:
                raise AssertionError("No inf checks were recorded prior to update.")
            if any(bool(one) for one in found):
                self._scale.mul_(self._backoff)
                self._since = 0
            else:
                self._since += 1
                if self._since == self._interval:
                    grown = self._scale * self._growth
                    if bool(grown.isfinite()):
                        self._scale.copy_(grown)
                    self._since = 0
        self._states = defaultdict(_fresh)

    def _require(self, name: str) -> None:
        if self._scale is None:
            raise AssertionError(
                f"Attempted {name} but _scale is None.  This may indicate your script did not use scaler.scale(loss or "
                "outputs) earlier in the iteration."
            )

    def get_scale(self) -> float:
        """The scale; 1.0 when disabled."""
        if not self._enabled:
            return 1.0
        return float(self._init_scale if self._scale is None else self._scale)

    def get_growth_factor(self) -> float:
        """Return the factor by which the scale grows after `growth_interval` steps without inf or nan."""
        return self._growth

    def set_growth_factor(self, new_factor: float) -> None:
        """Set it."""
        self._growth = new_factor

    def get_backoff_factor(self) -> float:
        """Return the factor by which the scale shrinks after a step with inf or nan."""
        return self._backoff

    def set_backoff_factor(self, new_factor: float) -> None:
        """Set it."""
        self._backoff = new_factor

    def get_growth_interval(self) -> int:
        """Updates without inf or nan until the scale grows."""
        return self._interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Set it."""
        self._interval = new_interval

    def is_enabled(self) -> bool:
        """Return whether it scales."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """Scale, factors and counts; empty when disabled."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth,
            "backoff_factor": self._backoff,
            "growth_interval": self._interval,
            "_growth_tracker": self._since,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go back to a state of `state_dict`.  RuntimeError for an empty one."""
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._init_scale = state_dict["scale"]
        if self._scale is not None:
            self._scale.fill_(state_dict["scale"])
        self._growth, self._backoff = state_dict["growth_factor"], state_dict["backoff_factor"]
        self._interval, self._since = state_dict["growth_interval"], state_dict["_growth_tracker"]

    def __getstate__(self) -> dict[str, Any]:
        if self._enabled and self._states:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
                "scaler.update()."
            )
        state = self.__dict__.copy()
        state["_init_scale"], state["_scale"], state["_states"] = self.get_scale(), None, {}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._states = defaultdict(_fresh)
