"""One forward pass on files: reads inputs, prepares pictures, runs the model, ranks and writes.

Arrays are numpy's; the model's own framework is whatever `invoke` loaded it on.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli import paths
from hubcli.errors import DependencyError, RepositoryCodeError, UsageError
from hubcli.running import invoke, isolation, misuse
from hubcli.running.invoke import Result

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

_POSITIONAL = re.compile(r"arr_\d+\Z")
MAX_PIXELS = 200_000_000


@dataclass(frozen=True)
class Input:
    """An array and the name that the file gives it; None goes to the model by position."""

    name: str | None
    array: Array


@dataclass(frozen=True)
class Output:
    """An array that the model returned; the name is its key or its position."""

    name: str
    array: Array


@dataclass(frozen=True)
class Pass:
    """A forward pass and the seconds it took."""

    outputs: tuple[Output, ...]
    seconds: float


@dataclass(frozen=True)
class Ranked:
    """One of the most probable classes of item `item` of the batch."""

    item: int
    index: int
    label: str | None
    score: float


@dataclass(frozen=True)
class Picture:
    """How a picture becomes (1, 3, H, W): shorter side, central square, then (x - mean) / std."""

    resize: int | None
    crop: int | None
    mean: tuple[float, float, float]
    std: tuple[float, float, float]

    @classmethod
    def of(
        cls,
        preset: str | None,
        resize: int | None,
        crop: int | None,
        mean: str | None,
        std: str | None,
    ) -> Picture:
        """From the options; single options change the preset."""
        base = _PRESETS[preset or ""]
        return cls(
            base.resize if resize is None else resize,
            base.crop if crop is None else crop,
            base.mean if mean is None else _triple(mean, "--mean"),
            base.std if std is None else _triple(std, "--std"),
        )

    def array(self, file: Any, name: str) -> Array:
        """Read and prepare a picture, as float32 in (1, 3, H, W)."""
        import numpy as np

        try:
            from PIL import Image, UnidentifiedImageError
        except ImportError:
            raise DependencyError(
                f"{name} is a picture, and Pillow is not installed",
                hint="run: python -m pip install 'hubcli[image]'",
            ) from None
        try:
            with Image.open(file) as opened:
                if opened.width * opened.height > MAX_PIXELS:
                    raise UsageError(f"{name} has {opened.width} x {opened.height} pixels")
                image = opened.convert("RGB")
        except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
            if isinstance(error, UsageError):
                raise
            raise UsageError(
                f"{name} cannot be read as a picture: {error}",
                hint="inputs are .npy, .npz, or a picture that Pillow reads",
            ) from None
        if self.resize is not None:
            scale = self.resize / min(image.size)
            width, height = (max(1, round(side * scale)) for side in image.size)
            image = image.resize((width, height), Image.Resampling.BILINEAR)
        if self.crop is not None:
            left, top = ((side - self.crop) // 2 for side in image.size)
            image = image.crop((left, top, left + self.crop, top + self.crop))
        pixels = np.asarray(image, dtype=np.float64) / 255
        pixels = (pixels - np.array(self.mean)) / np.array(self.std)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], dtype=np.float32)


_PRESETS = {
    "": Picture(None, None, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)),
    "imagenet": Picture(256, 224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


def _triple(text: str, option: str) -> tuple[float, float, float]:
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) == 1:
        values *= 3
    if len(values) != 3 or (option == "--std" and 0.0 in values):
        raise UsageError(f"{option} {text!r} is not R,G,B", hint=f"e.g. {option} 0.5,0.5,0.5")
    return (values[0], values[1], values[2])


def read_inputs(source: str, picture: Picture) -> tuple[Input, ...]:
    """The arrays of a .npy, .npz or picture file; `-` is a .npy on stdin."""
    import numpy as np

    if source == "-":
        return (Input(None, _npy(io.BytesIO(sys.stdin.buffer.read()), "stdin")),)
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"--input {source!r}: no such file")
    if path.suffix == ".npy":
        return (Input(None, _npy(path, source)),)
    if path.suffix != ".npz":
        return (Input(None, picture.array(path, source)),)
    try:
        with np.load(path, allow_pickle=False) as archive:
            return tuple(
                Input(None if _POSITIONAL.match(name) else name, _plain(archive[name], source))
                for name in archive.files
            )
    except UsageError:
        raise
    except Exception as error:  # zip, header and size errors are of many types
        raise UsageError(f"{source} cannot be read as .npz: {error}") from None


def _npy(file: Any, name: str) -> Array:
    import numpy as np

    try:
        return _plain(np.load(file, allow_pickle=False), name)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{name} cannot be read as .npy: {error}", hint="write it with numpy.save") from None


def _plain(array: Any, name: str) -> Array:
    import numpy as np

    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
        raise UsageError(f"{name} holds {getattr(array, 'dtype', type(array))}, not numbers")
    return array


def forward(result: Result, inputs: Sequence[Input], device: str | None = None) -> Pass:
    """Call the model in eval mode without gradients.

    Floating-point inputs take the type of the model's parameters; named ones go by keyword.
    """
    model = result.value
    if not callable(model):
        raise UsageError(f"{result.entrypoint} returned a {type(model).__name__}, which cannot be called")
    framework = isolation.import_framework(result.framework)
    if invoke.is_module(model):
        model.eval()
    dtype = _parameter_dtype(model)
    given = [(one.name, _tensor(framework, one.array, dtype, device)) for one in inputs]
    positional = [tensor for name, tensor in given if name is None]
    named = {name: tensor for name, tensor in given if name is not None}
    used = misuse.of_inputs(result, positional, named)
    with used, invoke.running(result, command=True), framework.no_grad():
        started = time.perf_counter()
        returned = model(*positional, **named)
        outputs = tuple(Output(name, _array(one)) for name, one in tensors(returned, "out"))
        seconds = time.perf_counter() - started
    if not outputs:
        raise RepositoryCodeError(f"{result.entrypoint} returned {type(returned).__name__} without any tensor")
    return Pass(outputs, seconds)


def _parameter_dtype(model: Any) -> Any:
    if invoke.is_module(model):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    return None


def _tensor(framework: Any, array: Array, dtype: Any, device: str | None) -> Any:
    tensor = framework.from_numpy(array.copy())
    if array.dtype.kind == "f" and dtype is not None:
        tensor = tensor.to(dtype)
    return tensor if device is None else tensor.to(device)


def tensors(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The tensors of what a model returned: bare, in sequences, in mappings, in dataclasses."""
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        yield name, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from tensors(inner, str(key))
    elif isinstance(value, tuple | list):
        for index, inner in enumerate(value):
            yield from tensors(inner, f"{name}_{index}")
    elif hasattr(value, "__dataclass_fields__"):
        for key in value.__dataclass_fields__:
            yield from tensors(getattr(value, key), key)


def _array(tensor: Any) -> Array:
    tensor = tensor.detach().cpu()
    if str(tensor.dtype).endswith("bfloat16"):  # numpy files have no such type
        tensor = tensor.float()
    array: Array = tensor.numpy()
    return array


def top(outputs: Sequence[Output], count: int, labels: Sequence[str]) -> list[Ranked]:
    """The `count` most probable classes of every item, from the first output, (N, C) or (C,).

    Scores are probabilities: the softmax, unless the output is a distribution already.
    """
    import numpy as np

    scores = np.asarray(outputs[0].array, dtype=np.float64)
    if scores.ndim not in (1, 2) or scores.shape[-1] == 0:
        raise UsageError(
            f"--top needs an output of shape (N, classes); this one is {scores.shape}",
            hint="write the output with --output instead",
        )
    scores = scores.reshape(-1, scores.shape[-1])
    if labels and len(labels) != scores.shape[1]:
        raise UsageError(f"--labels names {len(labels)} classes; the model has {scores.shape[1]}")
    if not (scores.min() >= 0 and np.allclose(scores.sum(1), 1, atol=1e-3)):
        scores = np.exp(scores - scores.max(1, keepdims=True))
        scores /= scores.sum(1, keepdims=True)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [
        Ranked(item, int(index), labels[index] if labels else None, float(scores[item, index]))
        for item, row in enumerate(order)
        for index in row
    ]


def read_labels(path: Path | None) -> list[str]:
    """One name a line; empty lines at the end do not count."""
    if path is None:
        return []
    try:
        return path.read_text(encoding="utf-8").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--labels {path}: {error}") from None


def check_target(target: str | None) -> None:
    """Refuse an --output that could not be written, before any work is done."""
    if target in (None, "-"):
        return
    path = Path(str(target))
    if path.suffix not in (".npy", ".npz"):
        raise UsageError(f"--output {target!r} is neither .npy nor .npz")
    if not path.parent.is_dir():
        raise UsageError(f"--output {target!r}: there is no folder {path.parent}")


def write_outputs(target: str | None, outputs: Sequence[Output]) -> list[str | None]:
    """Write the outputs; the file of each.  Several in a .npy target become `<stem>.<name>.npy`."""
    import numpy as np

    if target is None:
        return [None] * len(outputs)
    if target == "-":
        if len(outputs) > 1:
            raise UsageError(
                f"the model returned {len(outputs)} tensors; stdout takes one .npy",
                hint="use --output FILE.npz",
            )
        sys.stdout.buffer.write(_encoded(np.save, outputs[0].array))
        sys.stdout.buffer.flush()
        return ["-"]
    path = Path(target)
    if path.suffix == ".npz":
        arrays = {one.name: one.array for one in outputs}
        paths.write_atomically(path, _encoded(np.savez, **arrays))
        return [target] * len(outputs)
    if len(outputs) == 1:
        paths.write_atomically(path, _encoded(np.save, outputs[0].array))
        return [target]
    files: list[str | None] = []
    for one in outputs:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", one.name)
        file = path.with_name(f"{path.stem}.{plain}.npy")
        paths.write_atomically(file, _encoded(np.save, one.array))
        files.append(str(file))
    return files


def _encoded(save: Any, *args: Any, **kwargs: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *args, **kwargs)
    return buffer.getvalue()


def random_inputs(framework: str, shapes: Sequence[Mapping[str, Any]], device: str | None) -> list[Any]:
    """One tensor a shape: uniform in 0..1, integers 0 or 1, always the same."""
    torch = isolation.import_framework(framework)
    torch.manual_seed(0)
    made = []
    for one in shapes:
        dtype = getattr(torch, one["dtype"])
        floating = one["dtype"].startswith(("float", "bfloat"))
        tensor = torch.rand(*one["shape"]).to(dtype) if floating else torch.randint(0, 2, tuple(one["shape"])).to(dtype)
        made.append(tensor.to(device) if device else tensor)
    return made
