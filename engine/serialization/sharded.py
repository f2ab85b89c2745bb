"""Sharded checkpoints: an index (`model.safetensors.index.json`, `pytorch_model.bin.index.json`) and its files.

The index is JSON: `weight_map` says of each tensor which file has it.  Files lie beside the index and are named by
their plain names; together they are one checkpoint, a dict of tensors by name in the order of the index.  What is not
exactly so is refused: the index may be anybody's.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .errors import UnpicklingError, shown
from .source import Source, naming

__all__ = ["INDEX_SUFFIX", "is_index", "read_index", "read_shards"]

INDEX_SUFFIX = ".index.json"
_MAX_INDEX = 64 << 20  # bytes; 100,000 tensors have 10 MB
_MAX_SHARDS = 10_000
_NUMBERED = re.compile(r"(.*)-(\d{2,6})-of-(\d{2,6})(\.\w+)\Z")


def is_index(f: Any) -> bool:
    """Return whether a path names the index of a sharded checkpoint: by its name alone."""
    return isinstance(f, (str, bytes, os.PathLike)) and os.fsdecode(os.fspath(f)).lower().endswith(INDEX_SUFFIX)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise UnpicklingError(f"the index has {shown(key)} twice")
        result[key] = value
    return result


def read_index(f: Any) -> dict[str, str]:
    """The `weight_map` of an index: the name of each tensor and of the file that has it.

    f: path.  Raises UnpicklingError for what is no index, and for names of files that are paths.
    """
    with naming(f):
        source = Source(f)
        try:
            if source.size > _MAX_INDEX:
                raise UnpicklingError(f"the index of {source.size} bytes is larger than {_MAX_INDEX}")
            raw = bytes(source.data)
        finally:
            source.close()
        try:
            document = json.loads(raw.decode("utf-8"), object_pairs_hook=_unique)
        except UnpicklingError:
            raise
        except (ValueError, RecursionError) as e:
            page, pointer = raw.lstrip()[:1] == b"<", raw[:8] == b"version "
            what = "a web page" if page else "a Git LFS pointer" if pointer else "no JSON"
            raise UnpicklingError(f"the index is {what}: {shown(e)}") from None
        found = document.get("weight_map") if type(document) is dict else None
        if type(found) is not dict or not found or not all(type(file) is str for file in found.values()):
            raise UnpicklingError("the index has no weight_map of tensors to files")
        _check_files(list(dict.fromkeys(found.values())))
        return found


def _check_files(files: list[str]) -> None:
    """Refuse names that lead anywhere but to plain files beside the index, and sets of parts that are not whole."""
    if len(files) > _MAX_SHARDS:
        raise UnpicklingError(f"the index names {len(files)} files, more than {_MAX_SHARDS}")
    parts: dict[tuple[str, int, str], set[int]] = {}
    for file in files:
        bad = file in ("", ".", "..") or any(c in file for c in "/\\:") or not file.isprintable() or len(file) > 255
        if bad or file.lower().endswith(INDEX_SUFFIX):
            raise UnpicklingError(f"the index names the file {shown(file)}, which is no plain file beside it")
        numbered = _NUMBERED.match(file)
        if numbered:
            stem, number, count, suffix = numbered.groups()
            parts.setdefault((stem, int(count), suffix), set()).add(int(number))
    for (stem, count, suffix), numbers in parts.items():
        if len(numbers) != count or min(numbers) not in (0, 1) or max(numbers) - min(numbers) != count - 1:
            raise UnpicklingError(f"the index names {len(numbers)} of the {count} files {shown(stem)}-*{shown(suffix)}")


def read_shards(
    f: Any, read: Callable[[Any], Any], is_tensor: Callable[[Any], bool], shards: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The tensors of a sharded checkpoint by name.

    f: path of the index.  read(path): the object in a file.  shards: the paths of the files by the names that the
    index has for them, where they are not beside it.  Raises UnpicklingError, naming the file, where one is missing,
    has other tensors than the index says, or names a tensor that another has too.
    """
    where = read_index(f)
    folder = os.path.dirname(os.fsdecode(os.fspath(f)))
    result: dict[str, Any] = dict.fromkeys(where)
    for file in dict.fromkeys(where.values()):
        path = os.path.join(folder, file) if shards is None else os.fspath(shards[file])
        if not os.path.isfile(path):
            with naming(f):
                raise UnpicklingError(f"the file {shown(file)}, which the index names, is not beside it")
        found = read(path)
        with naming(path):
            _check_shard(found, {name for name in where if where[name] == file}, where, is_tensor)
        result.update((name, found[name]) for name in found)
    return result


def _check_shard(found: Any, wanted: set[str], where: dict[str, str], is_tensor: Callable[[Any], bool]) -> None:
    """Refuse a file that holds anything but the tensors `wanted` by their names."""
    if not isinstance(found, dict):
        raise UnpicklingError("a file of a sharded checkpoint holds something other than tensors by name")
    for name in found:
        if name not in wanted:
            said = f"in {shown(where[name])}" if name in where else "nowhere"
            raise UnpicklingError(f"it has the tensor {shown(name)}, which is {said} by the index")
        if not is_tensor(found[name]):
            raise UnpicklingError(f"its value {shown(name)} is no tensor")
    missing = next(_missing(found, wanted), None)
    if missing is not None:
        raise UnpicklingError(f"it lacks the tensor {shown(missing)}, which the index has there")


def _missing(found: dict[str, Any], wanted: set[str]) -> Iterator[str]:
    return (name for name in sorted(wanted) if name not in found)
