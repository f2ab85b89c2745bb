"""A Module moved and cast: `to`, `cuda`, `half`, ..."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

from engine.core.dtypes import of_type
from engine.core.grad_mode import no_grad
from engine.ops import functions as torch
from engine.tensor import Tensor


class Conversions:
    """The part of Module that maps a function over its tensors."""

    _parameters: dict[str, Any]
    _buffers: dict[str, Any]
    children: Callable[[], Iterator[Any]]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if recurse:
            for module in self.children():
                module._apply(fn)
        for param in self._parameters.values():
            if param is None:
                continue
            with no_grad():
                applied = fn(param)
            grad = param.grad
            param.data = applied
            if grad is not None:
                with no_grad():
                    grad.data = fn(grad)
        for key, buf in self._buffers.items():
            if buf is not None:
                self._buffers[key] = fn(buf)
        return self

    def apply(self, fn: Callable[[Any], None]) -> Self:
        """Call `fn` on every descendant, then on this module; returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def cuda(self, device: Any = None) -> Self:
        """Move everything to a GPU, in place."""
        return self._apply(lambda t: t.cuda(device))

    def cpu(self) -> Self:
        """Move everything to the CPU, in place."""
        return self._apply(lambda t: t.cpu())

    def type(self, dst_type: Any) -> Self:
        """Cast everything to `dst_type`, in place."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Self:
        """Cast floating parameters and buffers to float32, in place."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Self:
        """Cast floating parameters and buffers to float64, in place."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Self:
        """Cast floating parameters and buffers to float16, in place."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Self:
        """Cast floating parameters and buffers to bfloat16, in place."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def to_empty(self, *, device: Any, recurse: bool = True) -> Self:
        """Uninitialised parameters and buffers of the same shapes on `device`."""
        return self._apply(lambda t: torch.empty_like(t, device=device), recurse=recurse)

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """`to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`, `to(memory_format=...)`, in place."""
        device, dtype, non_blocking, memory_format = _parse_to(*args, **kwargs)
        if dtype is not None:
            if not (dtype.is_floating_point or dtype.is_complex):
                raise TypeError(
                    f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}"
                )
            if dtype.is_complex:
                warnings.warn(
                    "Complex modules are a new feature under active development whose design may change, and some "
                    "modules might not work as expected when using complex tensors as parameters or buffers. Please "
                    "file an issue at https://github.com/pytorch/pytorch/issues/new?template=bug-report.yml if a "
                    "complex module does not work as expected.",
                    stacklevel=2,
                )

        def convert(t: Tensor) -> Tensor:
            options: dict[str, Any] = {"non_blocking": non_blocking}
            if device is not None:
                options["device"] = device
            if dtype is not None and (t.is_floating_point() or t.is_complex()):
                options["dtype"] = dtype
            if memory_format is not None and t.dim() in (4, 5):
                options["memory_format"] = memory_format
            return t.to(**options)

        return self._apply(convert)

    def share_memory(self) -> Self:
        """Move everything to memory that other processes can map."""
        return self._apply(lambda t: t.share_memory_())


def _takes(positional: list[Any], device: Any, dtype: Any) -> bool:
    """Return whether the arguments of `to` stand in an order that it knows."""
    first, *rest = positional or [device]
    if not isinstance(first, Tensor | torch.dtype):
        if not (first is None or isinstance(first, str | int | torch.device)) or isinstance(first, bool):
            return False
        if rest and not (rest[0] is None or isinstance(rest[0], torch.dtype)):
            return False
        rest = rest[1:]
    return len(rest) <= 1 and all(isinstance(flag, bool) for flag in rest)


def _parse_to(*args: Any, **kwargs: Any) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) of the arguments of `to`."""
    kwargs = dict(kwargs)
    device, dtype = kwargs.pop("device", None), kwargs.pop("dtype", None)
    non_blocking = kwargs.pop("non_blocking", False)
    memory_format = kwargs.pop("memory_format", None)
    other = kwargs.pop("other", kwargs.pop("tensor", None))
    copy = kwargs.pop("copy", False)
    dtype, *rest = map(of_type, (dtype, *args))
    if kwargs or not _takes(rest, device, dtype):
        given = [type(a).__name__ for a in args] + [f"{k}={type(v).__name__}" for k, v in kwargs.items()]
        raise TypeError(
            f"to() received an invalid combination of arguments - got ({', '.join(given)}), but expected one of:\n"
            " * (torch.device device = None, torch.dtype dtype = None, bool non_blocking = False, bool copy = False)\n"
            " * (torch.dtype dtype, bool non_blocking = False)\n * (Tensor tensor, bool non_blocking = False)\n"
        )
    if copy:
        raise RuntimeError(".to() does not accept copy argument")
    if rest and isinstance(rest[0], Tensor):
        other = rest.pop(0)
    elif rest and isinstance(rest[0], torch.dtype):
        dtype = rest.pop(0)
    elif rest:
        device = rest.pop(0)
        if rest and (rest[0] is None or isinstance(rest[0], torch.dtype)):
            dtype = rest.pop(0)
    if rest:
        non_blocking = rest.pop(0)
    if other is not None:
        device, dtype = other.device, other.dtype
    return (None if device is None else torch.device(device)), dtype, non_blocking, memory_format
