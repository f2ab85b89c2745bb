"""Forward-mode derivatives: dual numbers, tensors with a tangent.

    with dual_level():
        dual = make_dual(x, direction)
        tangent = unpack_dual(f(dual)).tangent

A dual tensor is an input of the ordinary graph.  The tangent of what was computed from duals is found when it is asked
for: the backward pass is linear in the gradient that it begins with, and is differentiated with respect to that.  So
every op that has a second derivative has tangents; grad mode must be on where duals are computed with.
https://docs.pytorch.org/docs/2.13/generated/torch.autograd.forward_ad.dual_level.html
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import NamedTuple

from engine.autograd.api import grad
from engine.autograd.function import forward_mode
from engine.autograd.graph import registered
from engine.core.grad_mode import enable_grad
from engine.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent."""

    primal: Tensor
    tangent: Tensor | None


@contextlib.contextmanager
def by_tangents() -> Iterator[None]:
    """Backward passes inside go through the `jvp` of Functions."""
    before, forward_mode.finding = forward_mode.finding, grad
    try:
        yield
    finally:
        forward_mode.finding = before


class _Level(threading.local):
    pairs: list[tuple[Tensor, Tensor]] | None = None  # the duals of the level that is open, with their tangents


_level = _Level()


def _open(name: str, level: int | None) -> list[tuple[Tensor, Tensor]]:
    if level not in (None, 0) or _level.pairs is None:
        raise RuntimeError(
            f"Trying to {name} a dual Tensor for forward AD but no level exists, make sure to enter_dual_level() first."
        )
    return _level.pairs


def enter_dual_level() -> int:
    """Open the level; 0.  RuntimeError where it is open: there is one, as in torch."""
    if _level.pairs is not None:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _level.pairs = []
    forward_mode.depth += 1
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Close the level; its duals have no tangents any more.  RuntimeError where it is not the open one."""
    if _level.pairs is None or level not in (None, 0):
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    _level.pairs = None
    forward_mode.depth -= 1


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """`tensor` with a tangent of its shape.  ValueError unless floating or complex; RuntimeError outside a level."""
    pairs = _open("create", level)
    for name, value in (("primal", tensor), ("tangent", tangent)):
        if not (value.is_floating_point() or value.is_complex()):
            raise ValueError(f"Expected {name} to be floating point or complex, but got: {value.dtype}")
    if tensor.shape != tangent.shape:
        raise RuntimeError(
            f"Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size "
            f"{list(tangent.shape)}."
        )
    if tensor.requires_grad:
        with enable_grad():
            dual = tensor.view_as(tensor)
    else:
        dual = tensor.detach().requires_grad_()
    pairs.append((dual, tangent))
    return dual


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """`tensor` and its tangent at the open level; None where it depends on no dual, or no level is open."""
    pairs = _level.pairs
    if not pairs:
        return UnpackedDualTensor(tensor, None)
    for dual, own in pairs:
        if dual is tensor:
            return UnpackedDualTensor(dual.detach() if dual.is_leaf else dual, own)
    if not tensor.requires_grad:
        return UnpackedDualTensor(tensor, None)
    duals = [d for d, _ in pairs]
    with enable_grad(), by_tangents():
        start = registered.zeros(tuple(tensor.shape), tensor.dtype, tensor._array).requires_grad_()
        found = grad([tensor], duals, [start], create_graph=True, allow_unused=True)
        reached = [(g, t) for g, (_, t) in zip(found, pairs) if g is not None]
        if not reached:
            return UnpackedDualTensor(tensor, None)
        linear = [(g, t) for g, t in reached if g.requires_grad]
        tangent = None
        if linear:
            (tangent,) = grad(
                [g for g, _ in linear], [start], [t for _, t in linear], create_graph=True, allow_unused=True
            )
    if tangent is None:
        tangent = registered.zeros(tuple(tensor.shape), tensor.dtype, tensor._array)
    return UnpackedDualTensor(tensor, tangent)


class dual_level:
    """`with dual_level():` opens the level of duals and closes it."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()
