"""One forward pass on files: reads inputs, prepares images, runs the model, ranks and writes.

Arrays are numpy's; the model's own framework is whatever `invoke` loaded it on.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli.base import output
from hubcli.errors import HubError, RepositoryCodeError, UsageError
from hubcli.running import call_errors, files, frameworks, images, invoke
from hubcli.running.images import Preprocessing
from hubcli.running.result import Result, is_module

if TYPE_CHECKING:
    import numpy as np

    from hubcli.running.transforms import Preparation

    Array = np.ndarray[Any, Any]

_POSITIONAL = re.compile(r"arr_\d+\Z")


@dataclass(frozen=True)
class Input:
    """An array and the name that the file gives it; None goes to the model by position.

    `text` is what a text file holds, which goes to the model instead of the array.  `kind` is `image` for one that
    is not prepared yet, bytes of (H, W, 3), and `sound` for samples.
    """

    name: str | None
    array: Array
    text: str | None = None
    kind: str | None = None

    def document(self, file: str) -> dict[str, Any]:
        """For JSON; stdin has no file."""
        kind = "text" if self.text is not None else str(self.array.dtype)
        shown = None if file == "-" else file
        return {"file": shown, "name": self.name, "shape": list(self.array.shape), "dtype": kind}


@dataclass(frozen=True)
class Output:
    """An array that the model returned; the name is its key or its position."""

    name: str
    array: Array


@dataclass(frozen=True)
class Pass:
    """Forward passes and the seconds they took; `items` are the files of the rows of the first output, if known.

    `given` describes what the model was given, `prepared` says how images and sounds were prepared.
    """

    outputs: tuple[Output, ...]
    seconds: float
    items: tuple[str, ...] = ()
    given: tuple[Mapping[str, Any], ...] = ()
    prepared: str | None = None


@dataclass(frozen=True)
class Ranked:
    """One of the most probable classes of item `item` of the batch."""

    item: int
    index: int
    label: str | None
    score: float


def read_inputs(source: str, preprocessing: Preprocessing | None) -> tuple[Input, ...]:
    """Return what a file holds, by its extension (any other is an image); `-` is a .npy on stdin.

    An image stays as it is, to be prepared later, where `preprocessing` is None.
    """
    import numpy as np

    if source == "-":
        return (Input(None, _npy(io.BytesIO(sys.stdin.buffer.read()), "stdin")),)
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"--input {source!r} {files.missing(path)}")
    kind = path.suffix.lower()
    if kind == ".npy":
        return (Input(None, _npy(path, source)),)
    if kind == ".csv":
        return (Input(None, files.table(path, source)),)
    if kind == ".txt":
        return (Input(None, np.zeros(()), files.text(path, source)),)
    if kind in files.SOUNDS:
        return (Input(None, files.sound(path, source), kind="sound"),)
    if kind != ".npz" and preprocessing is None:
        return (Input(None, np.array(images.read_image(path, source).convert("RGB")), kind="image"),)
    if kind != ".npz":
        assert preprocessing is not None
        return (Input(None, preprocessing.array(path, source)),)
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


def passes(
    result: Result,
    groups: Iterable[tuple[str, Sequence[Input]]],
    count: int,
    device: str | None = None,
    prepare: Preparation | None = None,
) -> Pass:
    """Return a pass for each file's inputs, `count` in all; outputs that fit are put together along the first
    dimension."""
    made: list[tuple[str, Pass]] = []
    given: list[Mapping[str, Any]] = []
    used = False
    with output.progress(f"running {result.entrypoint}", count, unit="inputs") as bar:
        for name, inputs in groups:
            try:
                if prepare is not None:
                    used = used or any(one.kind is not None for one in inputs)
                    inputs = prepare(inputs)
                given += [one.document(name) for one in inputs]
                made.append((name, forward(result, inputs, device)))
            except HubError as error:
                if count > 1:
                    error.message = f"{name}: {error.message}"
                raise
            bar.update()
    passed = made[0][1] if len(made) == 1 else _together(made)
    return replace(passed, given=tuple(given), prepared=prepare.says if prepare is not None and used else None)


def _together(made: Sequence[tuple[str, Pass]]) -> Pass:
    import numpy as np

    seconds = sum(one.seconds for _, one in made)
    first = made[0][1].outputs
    alike = all(
        [(one.name, one.array.ndim, one.array.shape[1:]) for one in each.outputs]
        == [(one.name, one.array.ndim, one.array.shape[1:]) for one in first]
        for _, each in made
    )
    if not alike:
        stems = [Path(name).stem for name, _ in made]
        marks = stems if len(set(stems)) == len(stems) else [f"{stem}_{i}" for i, stem in enumerate(stems)]
        outputs = [
            Output(f"{mark}.{one.name}", one.array) for mark, (_, each) in zip(marks, made) for one in each.outputs
        ]
        return Pass(tuple(outputs), seconds)
    columns = zip(*(each.outputs for _, each in made))
    joined = [
        Output(column[0].name, np.concatenate([np.atleast_1d(one.array) for one in column])) for column in columns
    ]
    items = [name for name, each in made for _ in np.atleast_1d(each.outputs[0].array)]
    return Pass(tuple(joined), seconds, tuple(items))


def forward(result: Result, inputs: Sequence[Input], device: str | None = None) -> Pass:
    """Call the model in eval mode without gradients.

    Floating-point inputs take the type of the model's parameters; named ones go by keyword.
    """
    model = result.value
    if not callable(model):
        raise UsageError(f"{result.entrypoint} returned {output.a(type(model).__name__)}, which cannot be called")
    framework = frameworks.import_framework(result.framework)
    invoke.set_eval(result)
    dtype = _parameter_dtype(model)
    given = [
        (one.name, _tensor(framework, one.array, dtype, device) if one.text is None else one.text) for one in inputs
    ]
    positional = [tensor for name, tensor in given if name is None]
    named = {name: tensor for name, tensor in given if name is not None}
    used = call_errors.of_inputs(result, positional, named)
    with used, invoke.running(result, command=True), framework.no_grad():
        started = time.perf_counter()
        returned = model(*positional, **named)
        outputs = tuple(Output(name, plain_array(one)) for name, one in tensors(returned, "out"))
        seconds = time.perf_counter() - started
    if not outputs:
        raise RepositoryCodeError(f"{result.entrypoint} returned {type(returned).__name__} without any tensor")
    return Pass(outputs, seconds)


def _parameter_dtype(model: Any) -> Any:
    if is_module(model):
        for parameter in model.parameters():
            if parameter.is_floating_point():
                return parameter.dtype
    for port in getattr(model, "inputs", ()):  # of an ONNX file
        if port.dtype.is_floating_point:
            return port.dtype
    return None


def example_tensors(result: Result, inputs: Sequence[Input]) -> Iterator[tuple[Input, Any]]:
    """Yield the tensors of an input file as `forward` gives them to the model."""
    framework = frameworks.import_framework(result.framework)
    dtype = _parameter_dtype(result.value)
    for one in inputs:
        yield one, _tensor(framework, one.array, dtype, None)


def _tensor(framework: Any, array: Array, dtype: Any, device: str | None) -> Any:
    tensor = framework.from_numpy(array.copy())
    if array.dtype.kind == "f" and dtype is not None:
        tensor = tensor.to(dtype)
    return tensor if device is None else tensor.to(device)


def tensors(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of what a model returned: bare, in sequences, in mappings, in dataclasses."""
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


def plain_array(tensor: Any) -> Array:
    """Return a tensor of either framework as an array of numpy's."""
    tensor = tensor.detach().cpu()
    if str(tensor.dtype).endswith("bfloat16"):  # numpy files have no such type
        tensor = tensor.float()
    array: Array = tensor.numpy()
    return array


def top(outputs: Sequence[Output], count: int, labels: Sequence[str]) -> list[Ranked]:
    """Return the `count` most probable classes of every item, from the first output, (N, C) or (C,).

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


_MOST_LABELS = 64 << 20  # bytes


def read_labels(path: Path | None) -> list[str]:
    """One name per line; empty lines at the end do not count."""
    if path is None:
        return []
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"--labels {path} is no plain file")
        if path.stat().st_size > _MOST_LABELS:
            raise UsageError(f"--labels {path} has more than {output.size(_MOST_LABELS)}")
        return path.read_text(encoding="utf-8").rstrip().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--labels {path}: {error}") from None


def check_target(target: str | None, force: bool = False) -> None:
    """Refuse an --output that could not be written, or that exists, before any work is done."""
    if target in (None, "-"):
        return
    path = Path(str(target))
    if path.suffix not in files.TARGETS:
        raise UsageError(f"--output {target!r} is neither - nor one of {', '.join(files.TARGETS)}")
    if not path.parent.is_dir():
        raise UsageError(f"--output {target!r}: there is no folder {path.parent}", hint="make it first")
    if path.exists() and not force:
        raise UsageError(f"--output {target!r} exists", hint="--force replaces it")


def write_outputs(target: str | None, outputs: Sequence[Output], force: bool = False) -> list[str | None]:
    """Write the outputs; the file of each.  Several in a file for one become `<stem>.<name>.npy`."""
    if target is None:
        return [None] * len(outputs)
    named = [(one.name, one.array) for one in outputs]
    if target == "-":
        if len(outputs) > 1:
            raise UsageError(
                f"the model returned {len(outputs)} tensors; stdout takes one .npy",
                hint="use --output FILE.npz",
            )
        sys.stdout.buffer.write(files.encoded(".npy", named))
        sys.stdout.buffer.flush()
        return ["-"]
    path = Path(target)
    if path.suffix in (".npz", ".json", ".safetensors"):
        files.write(path, named)
        return [target] * len(outputs)
    if path.suffix == ".png":
        named = [part for name, array in named for part in _images(name, array)]
    made = [(_beside(path, name) if len(named) > 1 else path, name, array) for name, array in named]
    for file, _, _ in made:
        if file.exists() and not force:
            raise UsageError(f"--output {target!r} would become {file}, which exists", hint="--force replaces it")
    for file, name, array in made:
        files.write(file, [(name, array)])
    if len(named) == len(outputs):
        return [str(file) if len(named) > 1 else target for file, _, _ in made]
    return [target] * len(outputs)


def _images(name: str, array: Array) -> list[tuple[str, Array]]:
    """Return the images of a batch one by one."""
    if array.ndim == 4 and array.shape[0] != 1:
        return [(f"{name}_{index}", one) for index, one in enumerate(array)]
    return [(name, array)]


def _beside(path: Path, name: str) -> Path:
    plain = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return path.with_name(f"{path.stem}.{plain}{path.suffix}")


def random_inputs(framework: str, shapes: Sequence[Mapping[str, Any]], device: str | None) -> list[Any]:
    """One tensor a shape: uniform in 0..1, integers 0 or 1, always the same."""
    torch = frameworks.import_framework(framework)
    torch.manual_seed(0)
    made = []
    for one in shapes:
        dtype = getattr(torch, one["dtype"])
        floating = one["dtype"].startswith(("float", "bfloat"))
        tensor = torch.rand(*one["shape"]).to(dtype) if floating else torch.randint(0, 2, tuple(one["shape"])).to(dtype)
        made.append(tensor.to(device) if device else tensor)
    return made
