"""PyTorchFileReader: the records of a checkpoint in zip form, one by one; its pickle is not interpreted."""

from __future__ import annotations

from typing import Any

from engine.core.dtypes import dtype as _dtype
from engine.ops import functions as torch
from engine.tensor import Tensor

from .errors import UnpicklingError
from .source import Source
from .ziparchive import ZipArchive

__all__ = ["PyTorchFileReader"]


class PyTorchFileReader:
    """Reads records by name (`data.pkl`, `data/0`) from a path or a file.  RuntimeError where there is none."""

    def __init__(self, name_or_buffer: Any) -> None:
        source = Source(name_or_buffer)
        source.close()  # the mapping stays, or what was read where there is none
        try:
            self._zip = ZipArchive(source).check()
        except UnpicklingError as error:
            raise RuntimeError(f"PytorchStreamReader failed reading zip archive: {error}") from None
        names = list(self._zip.entries)
        root = {name.partition("/")[0] for name in names}
        if len(root) != 1:
            raise RuntimeError("PytorchStreamReader failed locating the folder of the records")
        self._root = f"{root.pop()}/"

    def has_record(self, name: str) -> bool:
        """Return whether there is such a record."""
        return self._root + name in self._zip.entries

    def get_all_records(self) -> list[str]:
        """The names of all records."""
        return [name[len(self._root) :] for name in self._zip.entries]

    def get_record(self, name: str) -> bytes:
        """The bytes of a record.  RuntimeError where there is none, or where it is damaged."""
        if not self.has_record(name):
            raise RuntimeError(f"PytorchStreamReader failed locating file {name}: file not found")
        return bytes(self._zip.read(self._root + name))

    def get_storage_from_record(self, name: str, numel: int, dtype: _dtype) -> Tensor:
        """A tensor (numel) of a record's bytes.  RuntimeError when there are fewer."""
        data = bytearray(self.get_record(name))
        if len(data) < numel * dtype.itemsize:
            raise RuntimeError(f"record {name} has {len(data)} bytes, fewer than {numel} elements of {dtype}")
        return torch.frombuffer(data, dtype=dtype, count=numel) if numel else torch.empty(0, dtype=dtype)

    def version(self) -> int:
        """The version of the format."""
        return int(self.get_record("version"))
