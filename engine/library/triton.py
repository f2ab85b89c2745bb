"""`triton_op` and `wrap_triton`: there is no Triton here."""

from __future__ import annotations

from typing import Any

__all__ = ["capture_triton", "is_wrap_triton_enabled", "triton_op", "wrap_triton"]


def triton_op(name: str, fn: Any = None, /, *, mutates_args: Any = (), schema: Any = None) -> Any:
    """A decorator; calling what it gives raises NotImplementedError, as the function's kernels need Triton."""

    def decorate(function: Any) -> Any:
        from engine.library.custom import custom_op

        def refuse(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"torch.library.triton_op is not supported: {name} is written for Triton")

        return custom_op(name, mutates_args=mutates_args, schema=schema, prototype=function)(refuse)

    return decorate if fn is None else decorate(fn)


def wrap_triton(triton_kernel: Any, /) -> Any:
    """NotImplementedError."""
    raise NotImplementedError("torch.library.wrap_triton is not supported: there are no Triton kernels here")


capture_triton = wrap_triton


def is_wrap_triton_enabled() -> bool:
    """False."""
    return False
