"""`jit.save`: a program and its modules as the zip archive that torch and `jit.load` read.

The text of the program is written as it was read; parameters, buffers and attributes as they are now.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Mapping
from typing import Any

from engine.core import dtypes
from engine.core.device import device as Device
from engine.jit.archive.kinds import Kind
from engine.jit.archive.objects import RecursiveScriptModule, ScriptObject
from engine.jit.archive.program import ClassRecord
from engine.serialization._tensors import host_array
from engine.serialization.pickler import Global, Instance, Member, Pickler, PicklingError, Reduce, Token
from engine.serialization.writers import ArchiveLayout, ZipWriter, opened, raw
from engine.tensor import Tensor

__all__ = ["write"]

_SPECIAL = {"int": "build_intlist", "float": "build_doublelist", "bool": "build_boollist", "Tensor": "build_tensorlist"}


def write(module: RecursiveScriptModule, f: Any, extra_files: Mapping[str, Any] | None = None) -> None:
    """Write a module of a program to a path or a binary file object, with the extra files by name.

    Raises PicklingError for an attribute that TorchScript has no form for.
    """
    program = type(module).Λprogram
    if program.python:
        raise RuntimeError(
            f"Could not export Python function call '{program.python[0].__name__}'. Remove calls to Python functions "
            "before "
            "export. Did you forget to add @script or @script_method annotation? If this is a nn.ModuleList, add it to "
            "__constants__"
        )
    name = "archive"
    data, constants = ArchiveLayout(), ArchiveLayout()
    pickles = {"data": _pickled(module, data), "constants": _pickled(tuple(program.constants), constants)}
    with opened(f) as out:
        archive = ZipWriter(out)
        archive.add(f"{name}/data.pkl", pickles["data"])
        archive.add(f"{name}/byteorder", sys.byteorder.encode())
        for folder, layout in (("data", data), ("constants", constants)):
            for key, block in enumerate(layout.roots):
                archive.add(f"{name}/{folder}/{key}", raw(block))
        for path, text in program.files.items():
            archive.add(f"{name}/{path}", text)
        archive.add(f"{name}/constants.pkl", pickles["constants"])
        for path, content in (extra_files or {}).items():
            archive.add(f"{name}/extra/{path}", content.encode() if isinstance(content, str) else bytes(content))
        archive.add(f"{name}/version", f"{program.version}\n".encode())
        archive.finish()


def _pickled(value: Any, layout: ArchiveLayout) -> bytes:
    return Pickler(lambda obj: _substitute(layout, obj)).dump(value)


def _substitute(layout: ArchiveLayout, obj: Any) -> Token | None:
    """How TorchScript's pickles write what is no plain data; PicklingError for other objects."""
    if isinstance(obj, Tensor):
        array, location = host_array(layout, obj)
        return layout.tensor(array, obj.dtype.name, obj.requires_grad, location)
    if isinstance(obj, RecursiveScriptModule | ScriptObject):
        return _instance(obj)
    if isinstance(obj, Device):
        return Reduce(Global("torch", "device"), str(obj))
    if isinstance(obj, enum.Enum) and hasattr(type(obj), "Λname"):
        return Member(_named(type(obj).Λname), obj.value)
    if isinstance(obj, tuple) and hasattr(type(obj), "Λname"):
        return Reduce(_named(type(obj).Λname), *obj)
    if isinstance(obj, dtypes.dtype):
        raise PicklingError("a dtype cannot be saved in a TorchScript archive: it is a number there")
    raise PicklingError(f"an object of type {type(obj).__name__} cannot be saved in a TorchScript archive")


def _named(path: str) -> Global:
    module, _, name = path.rpartition(".")
    return Global(module, name)


def _instance(obj: Any) -> Instance:
    record: ClassRecord = type(obj).Λrecord
    getter = record.methods.get("__getstate__")
    if getter is not None:
        return Instance(_named(record.path), type(obj).Λprogram.callable(getter)(obj))
    state = {name: _tagged(_attribute(obj, name), kind) for name, kind in record.attributes.items()}
    return Instance(_named(record.path), state)


def _attribute(obj: Any, name: str) -> Any:
    if isinstance(obj, RecursiveScriptModule):
        if name in ("training", "_is_full_backward_hook"):
            return obj.__dict__.get(name)
        for kept in (obj._parameters, obj._buffers, obj._modules, obj._values):
            if name in kept:
                return kept[name]
        raise PicklingError(f"the module has lost its attribute {name!r}")
    return getattr(obj, "λ" + name)


def _tagged(value: Any, kind: Kind) -> Any:
    """Lists and dictionaries with the tag of their type; what is inside needs none of its own."""
    if kind.name == "Optional":
        return None if value is None else _tagged(value, kind.inner[0])
    if isinstance(value, list) and kind.name == "List":
        special = _SPECIAL.get(kind.inner[0].name)
        if special is not None:
            return Reduce(Global("torch.jit._pickle", special), value)
        return Reduce(Global("torch.jit._pickle", "restore_type_tag"), value, str(kind))
    if isinstance(value, dict) and kind.name == "Dict":
        return Reduce(Global("torch.jit._pickle", "restore_type_tag"), value, str(kind))
    if type(value) is tuple and kind.name == "Tuple" and len(value) == len(kind.inner):
        return tuple(map(_tagged, value, kind.inner))
    return value
