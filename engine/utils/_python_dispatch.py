"""torch.utils._python_dispatch's names: modes below autograd, which the engine has no place for."""

from __future__ import annotations

from typing import Any

__all__ = ["TorchDispatchMode"]


class TorchDispatchMode:
    """Can be subclassed and made; entering it raises NotImplementedError: see `torch.overrides.TorchFunctionMode`."""

    def __init__(self, _dispatch_key: Any = None) -> None:
        pass

    def __enter__(self) -> TorchDispatchMode:
        raise NotImplementedError(
            f"{type(self).__name__}: modes of __torch_dispatch__ are not supported; "
            "torch.overrides.TorchFunctionMode sees the same calls above autograd"
        )

    def __exit__(self, *exc: object) -> None:
        pass


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """False: no tensor is made of others below autograd."""
    return False


is_traceable_wrapper_subclass_type = is_traceable_wrapper_subclass
