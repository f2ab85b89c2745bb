"""The files of `hub run`: which ones are meant, tables, sound and text as inputs, and the formats of a written
result."""

from __future__ import annotations

import csv
import glob
import io
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli.base import output, paths
from hubcli.errors import DependencyError, HubError, UsageError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SOUNDS = (".wav", ".flac", ".ogg")
TARGETS = (".npy", ".npz", ".json", ".csv", ".safetensors", ".png")
_SKIPPED = (".json", ".md", ".py", ".pth", ".pt", ".safetensors")
MAX_VALUES = 1000  # of an output that --json shows whole
MAX_PRINTED = 64


def expanded(sources: Sequence[str]) -> list[str]:
    """Return the files that `--input` names: files as they are, of a folder those in it, globs matched, each sorted."""
    found: list[str] = []
    for source in sources:
        if not source:  # which Path takes for the working folder
            raise UsageError("--input has an empty name")
        path = Path(source)
        if source == "-" or path.is_file():
            found.append(source)
        elif path.is_dir():
            inside = [one for one in sorted(path.iterdir()) if one.is_file() and not one.name.startswith(".")]
            inside = [one for one in inside if one.suffix.lower() not in _SKIPPED]
            if not inside:
                raise UsageError(f"--input {source!r}: there is no input file in this folder")
            found += map(str, inside)
        elif any(sign in source for sign in "*?["):
            matched = sorted(one for one in glob.glob(source, recursive=True) if Path(one).is_file())
            if not matched:
                raise UsageError(f"--input {source!r}: no file matches")
            found += matched
        else:
            raise UsageError(f"--input {source!r} {missing(path)}")
    if found.count("-") and len(found) > 1:
        raise UsageError("--input - is stdin, and no other input can stand beside it")
    return found


def missing(path: Path) -> str:
    """Return why `path` is no file to read."""
    return "is neither a file nor a folder" if os.path.lexists(path) else "is not there: no such file"


def table(path: Path, name: str) -> Array:
    """Return the numbers of a .csv file as float32 (rows, columns); a first line of names is left out."""
    import numpy as np

    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not text: {error}") from None
    delimiter = ";" if text.count(";") > text.count(",") else "\t" if "\t" in text and "," not in text else ","
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=delimiter) if row]
    if rows and any(_number(cell) is None for cell in rows[0]):
        rows = rows[1:]
    if not rows:
        raise UsageError(f"{name} has no row of numbers")
    values = []
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise UsageError(f"{name}: row {number} of numbers has {len(row)} columns, the first {len(rows[0])}")
        numbers = [_number(cell) for cell in row]
        if None in numbers:
            column = numbers.index(None)
            raise UsageError(f"{name}: row {number} of numbers, column {column + 1}: {row[column]!r} is no number")
        values.append(numbers)
    return np.array(values, dtype=np.float32)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def sound(path: Path, name: str) -> Array:
    """Return a sound file as float32 (channels, samples) in -1..1; the rate is reported."""
    import numpy as np

    samples: Any
    if path.suffix.lower() == ".wav":
        import wave

        try:
            with wave.open(str(path)) as file:
                width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
                raw = file.readframes(file.getnframes())
            if width in (1, 2, 4):
                samples = np.frombuffer(raw, {1: "u1", 2: "<i2", 4: "<i4"}[width]).astype(np.float32)
                samples = (samples - 128) / 128 if width == 1 else samples / 2.0 ** (8 * width - 1)
                output.message(f"{name}: {rate} Hz, channels: {channels}")
                return np.ascontiguousarray(samples.reshape(-1, channels).T, dtype=np.float32)
        except (wave.Error, EOFError):
            pass  # not of whole numbers
    try:
        import soundfile
    except ImportError:
        raise DependencyError(
            f"{name} needs soundfile, which is not installed", hint="run: python -m pip install soundfile"
        ) from None
    try:
        samples, rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (RuntimeError, OSError) as error:
        raise UsageError(f"{name} cannot be read as sound: {error}") from None
    output.message(f"{name}: {rate} Hz, channels: {samples.shape[1]}")
    return np.ascontiguousarray(samples.T)


def text(path: Path, name: str) -> str:
    """Return a text file, without the line breaks at its end."""
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not text: {error}") from None


def values(array: Array) -> Any:
    """Return the numbers as lists, for JSON: what is not finite as null, complex numbers as [real, imaginary]."""
    return _plain(array.tolist())


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, complex):
        return [_plain(value.real), _plain(value.imag)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printed(array: Array) -> str:
    """Return the values of a small array as text; empty for larger ones."""
    import numpy as np

    if array.size > MAX_PRINTED:
        return ""
    return np.array2string(array, precision=6, suppress_small=True, max_line_width=100, separator=", ")


def encoded(suffix: str, named: Sequence[tuple[str, Array]]) -> bytes:
    """Return a whole file of the kind that `suffix` says; .npy, .csv and .png take one array."""
    import numpy as np

    buffer = io.BytesIO()
    if suffix == ".npz":
        arrays: dict[str, Any] = dict(named)
        np.savez(buffer, **arrays)
    elif suffix == ".npy":
        np.save(buffer, named[0][1])
    elif suffix == ".json":
        return (json.dumps({name: values(array) for name, array in named}) + "\n").encode()
    elif suffix == ".csv":
        return _csv(*named[0])
    elif suffix == ".png":
        return _png(*named[0])
    else:
        raise ValueError(suffix)
    return buffer.getvalue()


def write(path: Path, named: Sequence[tuple[str, Array]]) -> None:
    """Write a file anew, whole or not at all."""
    if path.suffix == ".safetensors":
        import numpy as np

        from engine import serialization

        try:
            serialization.save_safetensors({name: np.ascontiguousarray(array) for name, array in named}, path)
        except (TypeError, ValueError) as error:
            raise HubError(f"{path} cannot hold the result: {error}", hint="write .npz instead") from None
        return
    paths.write_atomically(path, encoded(path.suffix, named))


def _csv(name: str, array: Array) -> bytes:
    if array.ndim > 2 or array.dtype.kind == "c":
        raise UsageError(
            f"{name} is {array.dtype} {array.shape}, which is no table", hint="write .npz or .json instead"
        )
    rows = array.reshape(1, -1) if array.ndim < 2 else array
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows.tolist())
    return text.getvalue().encode()


def _png(name: str, array: Array) -> bytes:
    """(3, H, W), (1, H, W) or (H, W), perhaps with a batch of 1: 0..1 as 0..255, or bytes as they are."""
    import numpy as np

    try:
        from PIL import Image
    except ImportError:
        raise DependencyError("writing an image needs Pillow", hint="run: python -m pip install Pillow") from None
    image = array[0] if array.ndim == 4 and array.shape[0] == 1 else array
    if image.ndim == 3 and image.shape[0] in (1, 3, 4):
        image = image.transpose(1, 2, 0)
        image = image[..., 0] if image.shape[2] == 1 else image
    elif image.ndim != 2:
        raise UsageError(f"{name} has the shape {array.shape}, which is no image", hint="write .npz instead")
    if image.dtype != np.uint8:
        image = np.nan_to_num(np.clip(image.astype(np.float64), 0, 1) * 255).round().astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(image)).save(buffer, "PNG")
    return buffer.getvalue()
