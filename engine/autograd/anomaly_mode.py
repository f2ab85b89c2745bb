"""Anomaly mode: keep the forward traceback of every node, and stop at the first nan gradient."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from engine.autograd.graph import Node, registered

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class _State:
    enabled = False
    check_nan = True


state = _State()


def record(node: Node) -> None:
    """Remember where in the user's code `node` was made."""
    import traceback  # late: a thirtieth of what `import engine` takes beyond numpy

    node._more().traceback = traceback.format_stack()[:-2]


def check(node: Node, grads: Sequence[Any]) -> None:
    """Raise RuntimeError if a gradient that `node` made holds a nan, after a warning with its forward line."""
    if not state.check_nan:
        return
    for i, gradient in enumerate(grads):
        if gradient is not None and registered.isnan_any(gradient):
            explain(node)
            raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")


def explain(node: Node) -> None:
    """Warn with the traceback of the forward call that made `node`."""
    lines = node._extra.traceback if node._extra is not None else None
    if lines is None:
        warnings.warn(
            f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during "
            "forward pass for more information.",
            stacklevel=2,
        )
    else:
        warnings.warn(
            f"Error detected in {node.name()}. Traceback of forward call that caused the error:\n" + "".join(lines),
            stacklevel=2,
        )


class detect_anomaly:
    """Context: backward names the function that made a nan, and shows the forward line that made the function."""

    def __init__(self, check_nan: bool = True) -> None:
        self._settings = (True, check_nan)
        self._previous: list[tuple[bool, bool]] = []
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
            "debugging.",
            stacklevel=2,
        )

    def __enter__(self) -> None:
        self._previous.append((state.enabled, state.check_nan))
        state.enabled, state.check_nan = self._settings

    def __exit__(self, *exc: object) -> None:
        state.enabled, state.check_nan = self._previous.pop()


class set_detect_anomaly:
    """Enable or disable anomaly mode at once; as a context, back at the end."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._previous = (state.enabled, state.check_nan)
        state.enabled, state.check_nan = bool(mode), check_nan

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        state.enabled, state.check_nan = self._previous


def is_anomaly_check_nan_enabled() -> bool:
    """Return whether anomaly mode, when on, looks for nan."""
    return state.check_nan


def is_anomaly_enabled() -> bool:
    """Return whether anomaly mode is on."""
    return state.enabled
