"""The metadata of the step that is being run: `set_current_meta` stores a Node's `meta` for those who read it."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Iterator
from typing import Any

__all__ = [
    "annotate",
    "format_stack",
    "get_current_meta",
    "has_preserved_node_meta",
    "preserve_node_meta",
    "reset_grad_fn_seq_nr",
    "set_current_meta",
    "set_grad_fn_seq_nr",
    "set_stack_trace",
]


class _State(threading.local):
    meta: dict[str, Any] = {}
    preserve = False


_state = _State()


@contextlib.contextmanager
def preserve_node_meta(enable: bool = True) -> Iterator[None]:
    """Keep the `meta` of steps for those that are recorded while they run."""
    before = (_state.preserve, _state.meta)
    _state.preserve, _state.meta = enable, dict(_state.meta)
    try:
        yield
    finally:
        _state.preserve, _state.meta = before


def has_preserved_node_meta() -> bool:
    """Return whether `meta` is preserved."""
    return _state.preserve


@contextlib.contextmanager
def set_current_meta(node: Any, pass_name: str = "") -> Iterator[None]:
    """The `meta` of the step that runs."""
    if not (_state.preserve and node.meta):
        yield
        return
    before, _state.meta = _state.meta, dict(node.meta)
    try:
        yield
    finally:
        _state.meta = before


def get_current_meta() -> dict[str, Any]:
    """The `meta` of the step that runs."""
    return _state.meta


@contextlib.contextmanager
def annotate(annotation_dict: dict[str, Any]) -> Iterator[None]:
    """Keep notes for the steps that are recorded."""
    before = _state.meta
    _state.meta = {**before, "custom": {**before.get("custom", {}), **annotation_dict}}
    try:
        yield
    finally:
        _state.meta = before


def set_stack_trace(stack: list[str]) -> None:
    """Store a Python stack, where `meta` is preserved."""
    if _state.preserve and stack:
        _state.meta["stack_trace"] = "".join(stack)


def set_grad_fn_seq_nr(seq_nr: int) -> None:
    """Keep the number of a node of the autograd graph."""
    if _state.preserve:
        _state.meta["grad_fn_seq_nr"] = [*_state.meta.get("grad_fn_seq_nr", []), seq_nr]


def reset_grad_fn_seq_nr() -> None:
    """Forget the last of those numbers."""
    if _state.preserve and _state.meta.get("grad_fn_seq_nr"):
        _state.meta["grad_fn_seq_nr"] = _state.meta["grad_fn_seq_nr"][:-1]


def format_stack() -> list[str]:
    """Return the stored Python stack, or the present one."""
    if _state.preserve:
        return [_state.meta.get("stack_trace", "")]
    return traceback.format_list(traceback.extract_stack()[:-1])
