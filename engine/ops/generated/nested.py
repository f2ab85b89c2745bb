"""Kernels that are a part of another op's call: compiled and compared by the rules of `launch`, which that op's own
kernels do not notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.ops.generated import comparison, launch

__all__ = ["nested"]


def nested(
    name: str,
    entry: launch.Entry,
    build: Callable[[], Any],
    copy: Callable[[Any], Any],
    plain: Callable[[], Any],
    work: int,
    type: str,
) -> Any:
    """The result of `copy(built)`, compared with that of `plain` at the kernel's first use; NotImplemented where it is
    not used.  This may be a part of another op's call."""
    trials = launch.trials
    fresh, paid = len(trials.fresh), trials.paid
    try:
        built = launch.ready(entry, work, build)
    except launch.Unfit:
        return NotImplemented
    finally:
        del trials.fresh[fresh:]
        trials.paid = paid
    made = copy(built)
    if entry.proven or trials.trusted:
        return made
    want = plain()
    if not launch.proven(name, [entry], comparison.difference(want.view(type), made.view(type))):
        return want
    if launch.slower(lambda: copy(built), plain, of=[entry]):
        entry.lost()
    return made
