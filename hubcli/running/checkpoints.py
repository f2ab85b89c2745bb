"""Checkpoints read without pickle, for the framework that runs here."""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import pickle
import shlex
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from hubcli.base import paths
from hubcli.base.request import Request
from hubcli.cache import weights
from hubcli.cache.checkouts import Checkout
from hubcli.cache.weights import Weight
from hubcli.errors import HubError, IntegrityError, LockMismatchError, NotFoundError, UsageError
from hubcli.net.http import fetch as http
from hubcli.net.storage import huggingface
from hubcli.reading import model_files
from hubcli.running import frameworks, gguf_files, isolation

_NAMED = 8  # names that a hint gives
_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".tar", ".gguf", ".index.json")


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError for a value of --allow that is no name of a class, or that no checkpoint may name."""
    from engine.serialization import allow

    for name in names:
        try:
            allow.check_name(name)
        except ValueError as error:
            raise UsageError(
                f"--allow: {error}", hint="the error that refuses a checkpoint says what it names"
            ) from None


def permitted(checkout: Checkout) -> tuple[str, ...]:
    """Return the classes that checkpoints may name while code of `checkout` runs: those of --allow.

    Where a lock file holds, they are those that it records for the repository; LockMismatchError for others.
    """
    now = Request.current()
    if now.lock is None or checkout.kind == "local":
        return now.allow
    recorded = now.lock.repo(checkout.spec).allow
    nested = weights.caller.get() is not None
    for name in now.allow if not nested else ():
        if name not in recorded:
            spec = shlex.quote(str(checkout.spec))
            raise LockMismatchError(
                f"{now.lock.path} does not record --allow {name} for {checkout.spec}",
                hint=f"hub lock {spec} --allow {shlex.quote(name)} records it",
                spec=str(checkout.spec),
            )
    return recorded


@contextlib.contextmanager
def permitting(checkout: Checkout, framework: str) -> Iterator[None]:
    """Let what the code of `checkout` reads inside hold objects of the classes that are `permitted`."""
    names = permitted(checkout)
    if not names:
        yield
        return
    if framework == "torch":
        torch = frameworks.import_framework("torch")
        with torch.serialization.safe_globals([_importable(name) for name in names]):
            yield
        return
    from engine import serialization
    from engine.serialization import allow

    try:
        check_names(names)
    except UsageError as error:  # those of the command line were checked before
        raise LockMismatchError(f"the lock file records what cannot be allowed: {error.message}") from None
    if isolation.module_named not in allow.homes:
        allow.homes.append(isolation.module_named)
    with serialization.safe_names(names):
        yield


def _importable(name: str) -> Any:
    """Return the class of that name, for torch, which reads objects of classes that are there alone."""
    module, _, last = name.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), last, None)
    except ImportError:
        found = None
    if not isinstance(found, type):
        raise UsageError(
            f"--allow {name}: there is no such class, which torch itself would need",
            hint="the engine reads such objects as placeholders: leave out --framework torch",
        )
    return found


def is_index(url: str) -> bool:
    """Return whether a URL is that of the index of a sharded checkpoint."""
    return urlsplit(url).path.lower().endswith(".index.json")


def find(text: str) -> Path | None:
    """Return the checkpoint that SPEC names where it is one, instead of a repository: by its suffix, or by ./, / or
    ~."""
    named = text.lower().endswith(_SUFFIXES)
    path = Path(os.path.expanduser(text))
    if named and not path.exists() and path.parent.is_dir() and "://" not in text:
        raise NotFoundError(f"there is no file {text}", hint="a repository is owner/repo, a URL or a folder")
    return path if path.is_file() and (named or text.startswith((".", os.sep, "~"))) else None


def in_folder(text: str) -> Path | None:
    """Return the weights in the folder that SPEC names, where it is one without hubconf.py."""
    path = Path(os.path.expanduser(text))
    return model_files.in_folder(path) if path.is_dir() and "://" not in text else None


def document(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Return what `hub show` reports of a checkpoint: its tensors, and the names of what else is in it.

    `gguf_files.facts` has the rest of a GGUF file.
    """
    from engine import serialization

    try:
        described = serialization.describe(path, names)
        size = sum(file.stat().st_size for file in files_of(path))
    except pickle.UnpicklingError as error:
        raise as_refused(str(path), error) from None
    except MemoryError:
        raise HubError(f"{path} does not fit into memory") from None
    found: dict[str, Any] = {
        "file": str(path),
        "format": described.format,
        "size": size,
        "files": [path.name, *described.files],
        "tensors": [{"name": name, "shape": list(shape), "dtype": dtype} for name, shape, dtype in described.tensors],
        "bytes": described.bytes,
        "others": list(described.others),
        "metadata": dict(described.metadata),
        "parameters": sum(math.prod(shape) for _, shape, _ in described.tensors),
        **model_files.facts(path),
    }
    if described.format == "gguf":
        del found["others"]  # it holds nothing else
        found |= gguf_files.facts(described.metadata, described.tensors, described.bytes)
    return found


def files_of(path: Path) -> list[Path]:
    """Return the files that a checkpoint has: of an index those that it names beside itself, too."""
    if not path.name.lower().endswith(".index.json"):
        return [path]
    from engine import serialization

    try:
        return [path, *(path.parent / name for name in dict.fromkeys(serialization.read_index(path).values()))]
    except (pickle.UnpicklingError, OSError):
        return [path]


def read_sharded(
    url: str,
    index: Path,
    name: str,
    map_location: Any = None,
    *,
    model_dir: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> Any:
    """Read a sharded checkpoint: the files that the `index` (fetched from `url`) names are fetched beside it."""
    from engine import serialization

    try:
        files = dict.fromkeys(serialization.read_index(index).values())
    except pickle.UnpicklingError as error:
        raise as_refused(name, error) from None
    base = huggingface.resolved(url)
    found: dict[str, Any] = {
        file: weights.obtain(urljoin(base, quote(file)), model_dir, progress=progress, checkpoint=True)
        for file in files
    }
    shards = {file: path for file, (_, path) in found.items()}
    try:
        if _framework() == "torch":
            torch = frameworks.import_framework("torch")
            read = lambda path: _read_with_torch(Path(path), map_location, True)
            return serialization.read_shards(index, read, torch.is_tensor, shards)
        return serialization.load(index, map_location=map_location, shards=shards)
    except pickle.UnpicklingError as error:
        wrong = next((one for one, path in found.values() if str(path) == getattr(error, "file", None)), None)
        refused = as_refused(name if wrong is None else wrong.file, error)
        if wrong is not None:
            weights.refused(wrong, refused)
        raise refused from None


def _framework() -> str:
    now = weights.caller.get()
    return now.framework if now is not None else frameworks.loaded_framework() or "engine"


def read_state_dict(path: Path, name: str, map_location: Any = None, *, weights_only: bool | None = None) -> Any:
    """Read the checkpoint `name` at `path`: by the engine's safe reader, or by torch under torch."""
    with _unzipped(path, name) as file:
        try:
            if _framework() == "torch":
                return _read_with_torch(file, map_location, weights_only is not False)
            from engine import serialization

            return serialization.load(file, map_location=map_location)
        except pickle.UnpicklingError as error:
            raise as_refused(name, error) from None


def require_checkpoint(weight: Weight, path: Path, names: Sequence[str] = ()) -> None:
    """Raise IntegrityError for what was just fetched for another process to read, and is no checkpoint."""
    now = weights.caller.get()
    if not weights.is_new(weight) or (now is not None and now.framework == "torch"):
        return
    from engine import serialization

    with _unzipped(path, weight.file) as file:
        try:
            if serialization.sniff(file) == "gguf":  # its values need no check, and would fill the memory
                serialization.describe(file)
            else:
                serialization.read_arrays(file, names=names)
        except pickle.UnpicklingError as error:
            found = as_refused(weight.file, error)
            if "nsupported" not in found.message and "not supported" not in found.message:
                weights.refused(weight, found)
                raise found from None


def as_refused(name: str, error: Exception) -> IntegrityError:
    """Return the error of a checkpoint that cannot be read, with what permits the classes that it names."""
    reason = getattr(error, "reason", None) or str(error)
    reason = reason.partition("; if you trust the file, permit")[0]  # advice for a Python program
    return IntegrityError(f"{name} was refused: {' '.join(reason.split())[:400]}", hint=_hint(error))


def _hint(error: Exception) -> str:
    names = [name for name in getattr(error, "globals", ()) if _is_name(name)]
    if not names:
        return "only tensors, plain values and containers are read from a checkpoint"
    options = " ".join(f"--allow {name}" for name in names[:_NAMED])
    more = f" (and {len(names) - _NAMED} more)" if len(names) > _NAMED else ""
    return f"if you trust the file: {options}{more} reads such objects, and calls nothing that it names"


def _is_name(name: str) -> bool:
    """Return whether --allow would take the name of a global that a file has."""
    try:
        check_names((name,))
    except UsageError:
        return False
    return True


def explained(error: BaseException, where: str, spec: str) -> IntegrityError | None:
    """Return what to say of a checkpoint that repository code has opened by itself; None for other errors."""
    if not isinstance(error, pickle.UnpicklingError) or getattr(error, "reason", None) is None:
        return None
    found = as_refused(f"{where}{getattr(error, 'file', None) or 'a checkpoint'}", error)
    found.spec = spec
    return found


def _read_with_torch(file: Path, map_location: Any, weights_only: bool) -> Any:
    """torch.load; safetensors and GGUF, which it does not know, go through the engine's reader."""
    torch = frameworks.import_framework("torch")
    with file.open("rb") as opened:
        head = opened.read(9)
    if head[8:] != b"{" and head[:4] != b"GGUF":
        return torch.load(file, map_location=map_location, weights_only=weights_only)
    from engine import serialization

    state = {}
    for key, array in serialization.read_arrays(file).items():
        name = str(array.dtype)
        if name == "bfloat16" or name.startswith("float8_"):  # which numpy itself has not
            width = {1: "uint8", 2: "int16"}[array.dtype.itemsize]
            tensor = torch.from_numpy(array.view(width).copy()).view(getattr(torch, name))
        else:
            tensor = torch.from_numpy(array.copy())
        device = isinstance(map_location, str | torch.device)
        state[key] = tensor.to(map_location) if device else tensor
    return state


@contextlib.contextmanager
def _unzipped(path: Path, name: str) -> Iterator[Path]:
    """The one file of a zip that somebody packed by hand, as before torch 1.6; else `path`."""
    member = None
    if zipfile.is_zipfile(path):
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            packed = [one for one in archive.infolist() if not (one.is_dir() or one.filename.startswith("__MACOSX/"))]
            member = packed[0] if len(packed) == 1 else None
    if member is None:
        yield path
        return
    import warnings

    warnings.warn(
        "Falling back to the old format < 1.6. This support will be deprecated in favor of default zipfile format "
        "introduced in 1.6. Please redo torch.save() to save it in the new zipfile format.",
        FutureWarning,
        stacklevel=5,
    )
    folder = paths.partial(paths.ensure_root())
    folder.mkdir(parents=True, exist_ok=True)
    http.check_size(name, member.file_size, Request.current().size_limit)
    if member.file_size > shutil.disk_usage(folder).free:
        raise HubError(f"no space in {folder} to unpack {name}: {member.file_size} bytes")
    temporary = folder / f"unpacked.{paths.unique()}"
    try:
        with (
            zipfile.ZipFile(path) as archive,
            archive.open(member) as source,
            temporary.open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        yield temporary
    except zipfile.BadZipFile as error:
        raise IntegrityError(f"{name} is a damaged zip: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
