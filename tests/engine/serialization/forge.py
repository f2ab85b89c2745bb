"""Checkpoints made by hand, sound ones and hostile ones, without the writers under test where that matters."""

from __future__ import annotations

import io
import struct
import tarfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

from engine.serialization.pickler import Global, Persistent, Pickler, Reduce
from engine.serialization.readers import LEGACY_MAGIC, LEGACY_VERSION

DATA = Path(__file__).parent / "data"
ORDERED = Reduce(Global("collections", "OrderedDict"))
FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def storage(key: str = "0", numel: Any = 4, kind: str = "FloatStorage", location: str = "cpu", view: Any = ...) -> Any:
    """The persistent id of a storage, in the form of the zip format; with `view` in the legacy form."""
    pid = ("storage", Global("torch", kind), key, location, numel)
    return Persistent(pid if view is ... else (*pid, view))


def tensor(size: Any = (4,), stride: Any = (1,), offset: Any = 0, on: Any = None, *more: Any) -> Reduce:
    """The call that rebuilds a float32 tensor on a storage of four floats."""
    function = Global("torch._utils", "_rebuild_tensor_v2")
    return Reduce(function, storage() if on is None else on, offset, size, stride, False, ORDERED, *more)


def pickled(obj: Any) -> bytes:
    return Pickler().dump(obj)


def entry(name: str) -> zipfile.ZipInfo:
    """An entry of 1980: the bytes, which name tests too, are the same at any time."""
    return zipfile.ZipInfo(name)


def zipped(data: bytes, storages: dict[str, bytes] | None = None, **entries: bytes) -> bytes:
    """A zip checkpoint around a data.pkl, by the standard library."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(entry("archive/data.pkl"), data)
        for name, content in entries.items():
            z.writestr(entry(f"archive/{name}"), content)
        for key, content in ({"0": FLOATS} if storages is None else storages).items():
            z.writestr(entry(f"archive/data/{key}"), content)
        z.writestr(entry("archive/version"), b"3\n")
    return out.getvalue()


def zip_entries(entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    """A zip file of any entries, duplicates included."""
    out = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(out, "w", method) as z:
        warnings.simplefilter("ignore")
        for name, content in entries:
            z.writestr(entry(name), content, method)
    return out.getvalue()


def without_checksums(content: bytes) -> bytes:
    """As `torch.serialization.set_crc32_options(False)` writes: 0 in both headers."""
    found = bytearray(content)
    for sign, place in ((b"PK\x03\x04", 14), (b"PK\x01\x02", 16)):
        at = content.find(sign)
        while at >= 0:
            found[at + place : at + place + 4] = bytes(4)
            at = content.find(sign, at + 4)
    return bytes(found)


def legacy(obj: Any, storages: list[tuple[str, int, bytes]], little: bool = True) -> bytes:
    """A file in the format before torch 1.6: (key, declared elements, raw bytes) for each storage."""
    info = {
        "protocol_version": LEGACY_VERSION,
        "little_endian": little,
        "type_sizes": {"short": 2, "int": 4, "long": 4},
    }
    head = b"".join(pickled(x) for x in (LEGACY_MAGIC, LEGACY_VERSION, info, obj, [key for key, _, _ in storages]))
    return head + b"".join(struct.pack("<q", n) + raw for _, n, raw in storages)


def tarred(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def tar_parts(size: tuple = (2, 2), stride: tuple = (2, 1), offset: int = 0, numel: int = 4) -> dict[str, bytes]:
    """The members of a tar checkpoint {"w": tensor, "part": tensor, "p": Parameter} of 2016."""
    kind = Global("torch", "FloatStorage")
    storages = pickled(1) + pickled((11, "cpu", kind)) + struct.pack("<q", numel) + FLOATS + pickled([(12, 11, 2, 2)])
    tensors = pickled(2) + pickled((21, 11, Global("torch", "FloatTensor")))
    tensors += struct.pack("<i4x", len(size)) + struct.pack(f"<{2 * len(size) + 1}q", *size, *stride, offset)
    tensors += pickled((22, 12, Global("torch", "FloatTensor"))) + struct.pack("<i4x3q", 1, 2, 1, 0)
    # A Parameter: NEWOBJ without its data, then BUILD with (data, ..., requires_grad, hooks) of a Variable.
    parameter = b"ctorch.nn.parameter\nParameter\n)\x81(K\x15QNN\x88NtbX\x01\x00\x00\x00p"
    body = b"\x80\x02}(X\x01\x00\x00\x00wK\x15QX\x04\x00\x00\x00partK\x16Q" + swap(parameter) + b"u."
    return {"sys_info": pickled({}), "storages": storages, "tensors": tensors, "pickle": body}


def swap(parameter: bytes) -> bytes:
    """Key first, then value."""
    key = parameter[-6:]
    return key + parameter[:-6]


def safetensors(header: bytes, data: bytes = FLOATS) -> bytes:
    return struct.pack("<Q", len(header)) + header + data
