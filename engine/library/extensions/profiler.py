"""`torch.ops.profiler`: labels of a profile as operators, for programs that are graphs (torch.fx) or archives."""

from __future__ import annotations

import itertools

from engine.autograd.profiler import record_function
from engine.library.operators import define_built_in as define
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__: list[str] = []

_open: dict[int, record_function] = {}
_handles = itertools.count(1)


def _enter(name: str, args: str | None = None) -> Tensor:
    """A handle, an int64 of no dims, of a block that has begun."""
    number = next(_handles)
    _open[number] = record_function(name, args).__enter__()
    return torch.tensor(number)


def _exit(handle: Tensor) -> None:
    """RuntimeError for a handle whose block has ended or that is none."""
    block = _open.pop(int(handle), None)
    if block is None:
        raise RuntimeError(f"profiler::_record_function_exit: {int(handle)} is not the handle of an open block")
    block.__exit__(None, None, None)


for _schema, _function in {
    "_record_function_enter(str name, str? args=None) -> Tensor": _enter,
    "_record_function_exit(Tensor handle) -> ()": _exit,
}.items():
    define("profiler", _schema, _function)
