"""torch._utils' names that packages use: tensors rebuilt from storages, lists flattened."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine.core.storage import UntypedStorage, strided
from engine.tensor import Tensor, wrap

__all__ = [
    "ExceptionWrapper",
    "_flatten_dense_tensors",
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_unflatten_dense_tensors",
]


def _rebuild_tensor(storage: UntypedStorage, storage_offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """A tensor of these sizes over a storage's memory."""
    return wrap(strided(storage._flat(), tuple(size), tuple(stride), storage_offset))


def _rebuild_tensor_v2(
    storage: UntypedStorage,
    storage_offset: int,
    size: Sequence[int],
    stride: Sequence[int],
    requires_grad: bool,
    backward_hooks: Any,
    metadata: Any = None,
) -> Tensor:
    """As `_rebuild_tensor`; hooks are not restored."""
    return _rebuild_tensor(storage, storage_offset, size, stride).requires_grad_(requires_grad)


def _element_size(dtype: Any) -> int:
    """Bytes per element."""
    return dtype.itemsize


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Any:
    """A Parameter of this data."""
    from engine.nn.parameter import Parameter

    return Parameter(data, requires_grad)


def _flatten_dense_tensors(tensors: Iterable[Tensor]) -> Tensor:
    """One 1-d tensor with the elements of all: (*a), (*b), ... -> (n)."""
    from engine.ops import functions as torch

    return torch.cat([t.contiguous().view(-1) for t in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Iterable[Tensor]) -> tuple[Tensor, ...]:
    """Views of `flat` in the shapes of `tensors`, in order."""
    outputs, offset = [], 0
    for tensor in tensors:
        outputs.append(flat.narrow(0, offset, tensor.numel()).view(tensor.shape))
        offset += tensor.numel()
    return tuple(outputs)


def _take_tensors(tensors: Iterable[Tensor], size_limit: int) -> Iterable[list[Tensor]]:
    """Lists of tensors of one type, of about `size_limit` bytes each."""
    groups: dict[Any, list[Tensor]] = {}
    for tensor in tensors:
        group = groups.setdefault(tensor.type(), [])
        if group and sum(t.nbytes for t in group) + tensor.nbytes > size_limit:
            yield groups.pop(tensor.type())
            group = groups.setdefault(tensor.type(), [])
        group.append(tensor)
    yield from groups.values()


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a CUDA device; -1 for the CPU where that is allowed."""
    from engine.core.device import device as make

    if isinstance(device, int):
        return device
    found = make(device) if device is not None else None
    if found is not None and found.type == "cpu" and allow_cpu:
        return -1
    if found is not None and found.index is not None:
        return found.index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
    return 0


class ExceptionWrapper:
    """An exception of a worker, as text, to raise in the parent."""

    def __init__(self, exc_info: Any = None, where: str = "in background") -> None:
        import sys
        import traceback

        kind, value, trace = exc_info or sys.exc_info()
        self.exc_type, self.where = kind, where
        self.exc_msg = "".join(traceback.format_exception(kind, value, trace))

    def reraise(self) -> None:
        """Raise it here."""
        text = f"Caught {self.exc_type.__name__} {self.where}.\nOriginal {self.exc_msg}"
        if self.exc_type is KeyError:  # its str is the repr of the message
            text = KeyErrorMessage(text)
        try:
            exception = self.exc_type(text)
        except Exception:
            raise RuntimeError(text) from None
        raise exception


class KeyErrorMessage(str):
    """A message that a KeyError prints as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def classproperty(func: Callable) -> property:
    """A property of the class."""

    class _ClassProperty(property):
        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return func(owner)

    return _ClassProperty(func)


def is_compiling() -> bool:
    """False: code runs as it is."""
    return False
