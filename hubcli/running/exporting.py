"""A model as an ONNX file, run once in onnxruntime where that is installed."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hubcli.errors import HubError, UsageError
from hubcli.running import call_errors, inference, invoke
from hubcli.running.result import Result, is_module

TOLERANCE = 1e-4  # of the largest value of an output


@dataclass(frozen=True)
class Exported:
    """The file that was written: ports as name, dtype and shape; the runtime that ran it and how far it differed,
    or None."""

    bytes: int
    opset: int
    inputs: tuple[Mapping[str, Any], ...]
    outputs: tuple[Mapping[str, Any], ...]
    runtime: str | None
    difference: float | None
    warnings: tuple[str, ...]


def export(
    result: Result, given: Sequence[Any], named: Mapping[str, Any], target: Path, dynamic: Sequence[str], opset: int
) -> Exported:
    """Write the model that an entrypoint returned, recorded on these tensors."""
    from engine import onnx
    from engine.onnx import importing

    model = result.value
    if not is_module(model):
        raise UsageError(f"{result.entrypoint} returned {type(model).__name__}; only an nn.Module can be exported")
    invoke.set_eval(result)
    caught: list[warnings.WarningMessage] = []
    with call_errors.of_inputs(result, given, named), invoke.running(result, command=True):
        tensors = [*given, *named.values()]
        runs = [([tensor.detach().numpy() for tensor in tensors], _outputs(model, given, named))]
        runs += _once_more(model, given, named)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                names = onnx.exporting.input_names(model, tuple(given), dict(named))
                axes = _axes(dynamic, names, tensors)
                program = onnx.export(model, tuple(given), kwargs=dict(named), dynamic_axes=axes, opset_version=opset)
            except onnx.OnnxExporterError as error:
                raise HubError(
                    f"{result.entrypoint} cannot be exported: {error}",
                    hint="docs/how-to/onnx.md lists what is supported",
                ) from None
    program.save(target)
    runtime, difference = _checked(target, names, runs)
    about = importing.describe(target)
    return Exported(
        target.stat().st_size,
        about["opset"],
        tuple(about["inputs"]),
        tuple(about["outputs"]),
        runtime,
        difference,
        tuple(dict.fromkeys(str(one.message) for one in caught)),
    )


def _outputs(model: Any, given: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
    from engine import no_grad

    with no_grad():
        made = model(*given, **named)
    return [tensor.detach().numpy() for _, tensor in inference.tensors(made, "out")]


def _once_more(model: Any, given: Sequence[Any], named: Mapping[str, Any]) -> list[tuple[list[Any], list[Any]]]:
    """Return the same for other values: the values of the inputs in reverse, where the model takes them."""
    other = [tensor.reshape(-1).flip(0).reshape(tensor.shape) for tensor in (*given, *named.values())]
    try:
        made = _outputs(model, other[: len(given)], dict(zip(named, other[len(given) :])))
    except Exception:
        return []
    return [([tensor.detach().numpy() for tensor in other], made)]


def _axes(dynamic: Sequence[str], names: Sequence[str], tensors: Sequence[Any]) -> dict[str, dict[int, str]]:
    """`batch` is the first dim of every input; `NAME:DIM` or `NAME:DIM=LABEL` one dim of one."""
    found: dict[str, dict[int, str]] = {}
    ranks = dict(zip(names, (tensor.dim() for tensor in tensors)))
    for text in dynamic:
        place, _, label = text.partition("=")
        name, colon, dim = place.rpartition(":")
        if not colon:
            for one, rank in ranks.items():
                if rank:
                    found.setdefault(one, {})[0] = text
            continue
        if name not in ranks or not dim.isdigit() or int(dim) >= ranks[name]:
            raise UsageError(
                f"--dynamic {text!r} is no dim of an input",
                hint=f"e.g. --dynamic batch, or --dynamic {names[0]}:0=batch (inputs: {', '.join(names)})",
            )
        found.setdefault(name, {})[int(dim)] = label or f"{name}_{dim}"
    return found


def _checked(
    path: Path, names: Sequence[str], runs: Sequence[tuple[list[Any], list[Any]]]
) -> tuple[str | None, float | None]:
    """Run the file in onnxruntime: (its name and version, the largest difference relative to the largest value)."""
    try:
        import onnxruntime
    except ImportError:
        return None, None
    import numpy as np

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    name = f"onnxruntime {onnxruntime.__version__}"
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        wanted = [one.name for one in session.get_inputs()]
        found = [session.run(None, {n: a for n, a in zip(names, arrays) if n in wanted}) for arrays, _ in runs]
    except Exception as error:
        raise HubError(f"{name} does not run {path}: {error}", hint="please report this as a fault of hub") from None
    worst = 0.0
    pairs = [pair for made, (_, expected) in zip(found, runs) for pair in zip(made, expected, strict=True)]
    for got, want in pairs:
        if got.shape != want.shape:
            raise HubError(f"{name} gives an output of shape {list(got.shape)}, the model {list(want.shape)}")
        if want.size:
            deviation = np.abs(got.astype(np.float64) - want.astype(np.float64))
            worst = max(worst, float(np.nanmax(deviation)) / (float(np.nanmax(np.abs(want))) or 1.0))
    return name, worst
