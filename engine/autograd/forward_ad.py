"""torch.autograd.forward_ad's names: no tensor carries a tangent; `autograd.functional.jvp` computes one."""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.tensor import Tensor

__all__ = ["UnpackedDualTensor", "dual_level", "enter_dual_level", "exit_dual_level", "make_dual", "unpack_dual"]

_current_level = -1


class UnpackedDualTensor(NamedTuple):
    """A tensor and its tangent."""

    primal: Tensor
    tangent: Tensor | None


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The tensor, and None: it has no tangent."""
    return UnpackedDualTensor(tensor, None)


def _refused(name: str) -> NotImplementedError:
    return NotImplementedError(
        f"torch.autograd.forward_ad.{name} is not supported: use torch.autograd.functional.jvp for tangents"
    )


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Any:
    """NotImplementedError."""
    raise _refused("make_dual")


def enter_dual_level() -> int:
    """NotImplementedError."""
    raise _refused("enter_dual_level")


def exit_dual_level(*, level: int | None = None) -> None:
    """NotImplementedError."""
    raise _refused("exit_dual_level")


class dual_level:
    """NotImplementedError when entered."""

    def __enter__(self) -> int:
        raise _refused("dual_level")

    def __exit__(self, *exc: object) -> None:
        pass
