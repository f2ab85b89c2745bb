"""Checkpoints: `load` and `save` for torch's zip, legacy and tar files and for safetensors; `load` for GGUF.

Reading never runs code from a file: see Note [Why an interpreter] in unpickler.py.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .allow import AllowList, add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals, safe_names
from .errors import SourceChangeWarning, UnpicklingError
from .formats import (
    Conversion,
    Description,
    convert,
    describe,
    get_unsafe_globals_in_checkpoint,
    read,
    read_arrays,
    sniff,
)
from .sharded import is_index, read_index, read_shards
from .source import is_path

__all__ = [
    "Conversion",
    "Description",
    "SourceChangeWarning",
    "UnpicklingError",
    "add_safe_globals",
    "clear_safe_globals",
    "convert",
    "default_restore_location",
    "describe",
    "get_safe_globals",
    "get_unsafe_globals_in_checkpoint",
    "is_index",
    "load",
    "load_safetensors",
    "read_arrays",
    "read_index",
    "read_shards",
    "safe_globals",
    "safe_names",
    "save",
    "save_safetensors",
    "sniff",
]


MAP_LOCATION = Any  # of annotations: a device, its name, a dict of names, or a function of storage and tag


def _is_zipfile(f: Any) -> bool:
    """Return whether a file, where it stands now, begins as zip files do; it stands there afterwards."""
    at = f.tell()
    start = f.read(4)
    f.seek(at)
    return bool(start == b"PK\x03\x04")


@contextlib.contextmanager
def _open_file_like(name_or_buffer: Any, mode: str) -> Iterator[Any]:
    """The file of that name, open inside the context; a file as it is."""
    if isinstance(name_or_buffer, str | os.PathLike):
        with open(name_or_buffer, mode) as file:
            yield file
    else:
        yield name_or_buffer


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = True,
    mmap: bool | None = None,
    allow: Iterable[Any] = (),
    encoding: str = "utf-8",
    shards: Mapping[str, Any] | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save`, torch.save, safetensors or llama.cpp (GGUF) wrote (torch.load).

    Files are read by an interpreter that builds tensors, containers, numbers and values of the standard library
    (`argparse.Namespace`, paths, dates, ...) and calls nothing.  A member of an enumeration whose class cannot be
    imported is its value under the class's name.  The index of a sharded checkpoint (`model.safetensors.index.json`,
    `pytorch_model.bin.index.json`) is read with all files that it names: a dict of tensors by name.  The CRC-32 of what
    is read from a zip file is compared, but with mmap=True, which reads pages when they are used.

    Args:
        f: A path or binary file object.
        map_location: A device, string, dict of device tags, or function(storage, tag).
        pickle_module: Accepted.
        weights_only: False also accepts classes of modules that the caller has imported already, or of submodules of
            such packages, made without calling them; nothing else is imported, and no function of a file runs.
        mmap: None maps a zip or safetensors file where that is possible, so that nothing is copied and tensors can be
            written without changing the file; True demands it; False copies.  Do not change a mapped file in place.
        allow: Classes that are not refused: [Class, function, (Class, "path.in.file"), "torch.nn.*"], beside those of
            `add_safe_globals` and, by name alone, `safe_names`.
        encoding: Of text in files that Python 2 wrote.
        shards: Where the files of an index are, name -> path; by default beside it.

    Returns:
        The object that was saved.

    Raises:
        UnpicklingError: the file is damaged or refused, in one sentence (a pickle.UnpicklingError and a RuntimeError).
        OSError: the file cannot be read.
        RuntimeError: a device is not there.
    """
    from ._tensors import TensorBuilder

    if pickle_module is not None and weights_only:
        raise RuntimeError("Can not safely load weights when explicit pickle_module is specified")
    if not is_path(f):
        for needed in ("tell", "seek"):
            if not hasattr(f, needed):
                raise AttributeError(
                    f"{type(f).__name__!r} object has no attribute {needed!r}. You can only torch.load from a file "
                    "that is seekable. Please pre-load the data into a buffer like io.BytesIO and try to load from it "
                    "instead."
                )
    if pickle_load_args:
        unknown = set(pickle_load_args) - {"errors", "fix_imports", "buffers"}
        if unknown:
            raise TypeError(f"load() got an unexpected keyword argument '{min(unknown)}'")
        warnings.warn("pickle_load_args are ignored: files are not read with pickle", stacklevel=2)
    allowed = AllowList(allow, imported=weights_only is False)
    return read(f, TensorBuilder(map_location), allow=allowed, mmap=mmap, encoding=encoding, shards=shards)


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _disable_byteorder_record: bool = False,
) -> None:
    """Write an object so that `load` and real torch read it (torch.save).

    Tensors that share memory share it after loading, views keep strides and offsets (and bring their whole storage
    along).  Classes of the engine are written under torch's names.

    Args:
        obj: Tensors in containers of the standard library, modules, or what else can be pickled.
        f: A path, which is replaced in one step at the end, or a binary file object.
        pickle_module: Accepted.
        pickle_protocol: Any that Python's pickle has; the pickle within is of protocol 2, which readers of each take.

    Raises:
        pickle.PicklingError: an object has no pickled form.
        OSError: the path cannot be written.
    """
    from ._tensors import rename, substitute
    from .writers import opened, write_legacy, write_zip

    if pickle_protocol is not None and pickle_protocol > pickle.HIGHEST_PROTOCOL:
        raise ValueError(f"pickle protocol must be <= {pickle.HIGHEST_PROTOCOL}, not {pickle_protocol}")
    write = write_zip if _use_new_zipfile_serialization else write_legacy
    with opened(f) as out:
        write(obj, out, substitute, rename)


def load_safetensors(f: Any, map_location: Any = None, mmap: bool | None = None) -> dict[str, Any]:
    """Tensors by name from a safetensors file; shares memory with the file where it can be mapped.

    Raises UnpicklingError for a file that is not exactly of the format.
    """
    from ._tensors import TensorBuilder

    return read(f, TensorBuilder(map_location), mmap=mmap, formats=("safetensors",))


def save_safetensors(tensors: Mapping[str, Any], f: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors by name as a safetensors file.

    tensors: name -> Tensor or numpy array of any shape, written contiguous.  metadata: text to text.  Raises
    TypeError for other values, for names that are not text and for complex128, which the format lacks.
    """
    import numpy as np

    from engine.tensor import Tensor

    from ._tensors import TensorBuilder
    from .safetensors import write_safetensors
    from .writers import opened

    arrays, to_numpy = {}, TensorBuilder().to_numpy
    for name, value in tensors.items():
        if not isinstance(value, (Tensor, np.ndarray)):
            raise TypeError(f"the value of {name!r} is a {type(value).__name__}, not a tensor")
        arrays[name] = to_numpy(value) if isinstance(value, Tensor) else value
    with opened(f) as out:
        write_safetensors(arrays, out, metadata)


def default_restore_location(storage: Any, location: str) -> Any:
    """`storage` on the device of a tag (`cpu`, `cuda:0`): for use in a `map_location` function."""
    from ._tensors import default_restore_location as restore

    return restore(storage, location)
