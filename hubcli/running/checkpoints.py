"""Checkpoints read without pickle, for the framework that runs here."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hubcli import paths
from hubcli.cache import weights
from hubcli.cache.weights import Weight
from hubcli.errors import HubError, IntegrityError
from hubcli.net import http
from hubcli.running import isolation


def read_state_dict(path: Path, name: str, map_location: Any = None, *, weights_only: bool | None = None) -> Any:
    """Read the checkpoint `name` at `path`: by the engine's safe reader, or by torch under torch."""
    now = weights.caller.get()
    framework = now.framework if now is not None else isolation.loaded_framework() or "engine"
    with _unzipped(path, name) as file:
        try:
            if framework == "torch":
                return _read_with_torch(file, map_location, weights_only is not False)
            from engine import serialization

            return serialization.load(file, map_location=map_location)
        except pickle.UnpicklingError as error:
            raise _as_refused(name, error) from None


def require_checkpoint(weight: Weight, path: Path) -> None:
    """Raise IntegrityError for what was just fetched for another process to read, and is no checkpoint."""
    now = weights.caller.get()
    if not weights.is_new(weight) or (now is not None and now.framework == "torch"):
        return
    from engine import serialization

    with _unzipped(path, weight.file) as file:
        try:
            serialization.read_arrays(file)
        except pickle.UnpicklingError as error:
            found = _as_refused(weight.file, error)
            if "nsupported" not in found.message and "not supported" not in found.message:
                weights.refused(weight, found)
                raise found from None


def _as_refused(name: str, error: Exception) -> IntegrityError:
    return IntegrityError(
        f"{name} was refused: {' '.join(str(error).split())[:300]}",
        hint="only tensors and plain containers are read from a checkpoint",
    )


def _read_with_torch(file: Path, map_location: Any, weights_only: bool) -> Any:
    """torch.load; safetensors, which it does not know, go through the engine's reader."""
    torch = isolation.import_framework("torch")
    with file.open("rb") as opened:
        head = opened.read(9)
    if head[8:] != b"{":
        return torch.load(file, map_location=map_location, weights_only=weights_only)
    from engine import serialization

    state = {}
    for key, array in serialization.read_arrays(file).items():
        if str(array.dtype) == "bfloat16":
            tensor = torch.from_numpy(array.view("int16").copy()).view(torch.bfloat16)
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
    http.check_size(name, member.file_size)
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
