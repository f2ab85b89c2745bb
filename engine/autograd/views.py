"""The derivation of views from their bases, and the writes that torch refuses because of how a view was made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from engine.autograd.versions import called

CUSTOM = 2  # `View.multiple` of a view that a custom Function returned

_MULTIPLE = (
    " This view is the output of a function that returns multiple views. Such functions do not allow the output views "
    "to be modified inplace. You should replace the inplace operation by an out-of-place one."
)
_CUSTOM = (
    " This view was created inside a custom Function (or because an input was returned as-is) and the autograd logic "
    "to handle view+inplace would override the custom backward associated with the custom Function, leading "
    "to incorrect gradients. This behavior is forbidden. You can fix this by cloning the output of the custom "
    "Function."
)
_NO_GRAD = (
    " Given that this use case "
    "is ambiguous and error-prone, it is forbidden. You can clarify your code by moving both the view and the inplace "
    "either both inside the no_grad block (if you don't want the inplace to be tracked) or both outside (if you want "
    "the inplace to be tracked)."
)


class View:
    """The derivation of a view from its base.

    `edge`, `version`: its history and the version of the memory it was made at; after a write through this view
    (`inplace.rebase`) the history of its base and -1 - the version: its own is taken from there when it is asked for.
    `step`: (parent View or None, op, args): the ops to replay on the base.  `recorded`: made with grad mode on.
    `multiple`: one of several outputs, or CUSTOM.
    """

    __slots__ = ("edge", "multiple", "recorded", "step", "version")

    def __init__(
        self,
        edge: tuple[Any, int] | None,
        version: int,
        step: tuple[Any, ...],
        recorded: bool,
        multiple: int = False,
    ) -> None:
        self.edge = edge
        self.version = version
        self.step = step
        self.recorded = recorded
        self.multiple = multiple

    def steps(self) -> Iterator[tuple[Any, tuple[Any, ...]]]:
        """(op, args) from the base on."""
        chain: list[tuple[Any, tuple[Any, ...]]] = []
        view: View | None = self
        while view is not None:
            parent, op, args = view.step
            chain.append((op, args))
            view = parent
        return iter(chain[::-1])

    def check_write(self, how: str = "is being") -> None:
        """Raise where this view, or one that it was taken from, was made in a way that forbids a recorded write.

        The nearest such view decides.  how: "is being" written to itself, or `INDIRECT`.
        """
        made: View | None = self
        while made is not None and made.recorded and not made.multiple:
            made = made.step[0]
        if made is None:
            return
        subject = "A view was created in"
        if self.edge is not None:
            node, number = self.edge
            subject = f"Output {number} of {called(node)} is a view"
            if not made.recorded:
                subject += " of a view which was created in"
        if self.edge is None or not made.recorded:
            message = f"{subject} no_grad mode and {how} modified inplace with grad mode enabled."
        else:
            message = f"{subject} and {how} modified inplace."
        reason = _NO_GRAD if not made.recorded else _CUSTOM if made.multiple == CUSTOM else _MULTIPLE
        raise RuntimeError(message + reason)


INDIRECT = "its base or another view of its base has been"


def replay(steps: Iterable[tuple[Any, tuple[Any, ...]]], base: Any) -> Any:
    """The view that `steps` make of another tensor of the base's shape."""
    for op, args in steps:
        base = op(base, *args)
    return base
