"""The stages of `hub check` that run code: build, state-dict round trip, forward, backward.

They take the model that load and run take (`running.select`); where an entrypoint returns several, each is checked.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hubcli.base import output
from hubcli.errors import HubError, RepositoryCodeError
from hubcli.running import call_errors, frameworks, inference, invoke, select
from hubcli.running.result import Result, is_module, is_module_class


def perform(
    call: Callable[[], Result],
    entrypoint: str,
    options: Mapping[str, Any],
    scratch: Path,
    report: Callable[[Mapping[str, Any]], None],
) -> None:
    """Build by `call`, and check what was built; each stage is reported as it begins and as it ends.

    options: `shapes` of the inputs, `backward`, `device`, `select` (the path of the model), `named` (by the user).
    """
    whole: list[Result] = []
    models: list[tuple[str, Result]] = []  # each model in the result, by path
    callee: list[tuple[str, Result]] = []  # what forward calls: they, or what a named entrypoint made
    outputs: dict[str, Any] = {}
    shapes, device = options.get("shapes"), options.get("device")

    def build() -> str | None:
        whole.append(call())
        found = select.models(whole[0], options.get("select"))
        models.extend(one for one in found if is_module(one[1].value))
        if not models:
            value = found[0][1].value if found else whole[0].value
            _require_usable(entrypoint, value)
            if callable(value) and options.get("named"):
                callee.append(("", replace(whole[0], value=value)))
        callee.extend(models)
        for path, one in models if device is not None else ():
            with _named(path, one, models):
                invoke.move(one, str(device))
        return None

    def each(stage: Callable[[str, Result], str | None], many: list[tuple[str, Result]]) -> str | None:
        """Do a stage for each model; it is skipped where it is for all, or where there is none."""
        said = []
        for path, one in many:
            with _named(path, one, many):
                said.append(stage(path, one))
        if not many:
            return f"it returned {output.a(type(whole[0].value).__name__)}, not an nn.Module"
        return None if None in said else said[0]

    def forward(path: str, one: Result) -> None:
        outputs[path] = _forward(one, shapes or (), device)

    def backward(path: str, one: Result) -> str | None:
        return _backward(one, outputs[path])

    stages: list[tuple[str, Callable[[], str | None]]] = [
        ("build", build),
        ("state-dict", lambda: each(lambda path, one: _round_trip(one, scratch), models)),
    ]
    if shapes:
        stages.append(("forward", lambda: each(forward, callee)))
        if options.get("backward"):
            stages.append(("backward", lambda: each(backward, models)))
    for name, stage in stages:
        report({"stage": name, "status": "begun"})
        started = time.perf_counter()
        skipped = stage()
        seconds = time.perf_counter() - started
        status = "passed" if skipped is None else "skipped"
        report({"stage": name, "status": status, "seconds": seconds, "error": skipped})


def _require_usable(entrypoint: str, value: Any) -> None:
    """Refuse what no entrypoint returns on purpose: nothing, because its return was forgotten, a class, plain data."""
    advice = "a helper that is no entrypoint has a name that begins with _"
    if value is None:
        text = f"{entrypoint} returned None: nothing was built"
        raise RepositoryCodeError(text, hint=f"is its return missing? {advice}")
    if isinstance(value, type) and is_module_class(value):
        raise RepositoryCodeError(f"{entrypoint} returned the class {value.__name__}, not a model of it", hint=advice)
    if isinstance(value, bool | int | float | complex | str | bytes):
        what = f"{repr(value)[:40]}, {output.a(type(value).__name__)}"
        raise RepositoryCodeError(f"{entrypoint} returned {what}: no model, and nothing to call", hint=advice)


@contextlib.contextmanager
def _named(path: str, one: Result, many: Sequence[tuple[str, Result]]) -> Iterator[None]:
    """Say which of several models an error is about."""
    try:
        yield
    except HubError as error:
        if len(many) > 1:
            error.message = f"{path} ({type(one.value).__name__}) of the result: {error.message}"
            error.hint = f"--select {path} checks it alone"
        raise


def _round_trip(result: Result, scratch: Path) -> None:
    """Save the state dict, read it back safely, and load it strictly: every value must be the same."""
    framework = frameworks.import_framework(result.framework)
    file = scratch / "round_trip.pth"
    with invoke.running(result, command=True):
        before = result.value.state_dict()
        framework.save(before, file)
        after = framework.load(file, map_location="cpu", weights_only=True)
        result.value.load_state_dict(after)
        again = result.value.state_dict()
    file.unlink()
    for name, value in before.items():
        other = after.get(name)
        if other is None or name not in again:
            raise RepositoryCodeError(f"the state dict loses {name!r} when it is saved and loaded")
        if not hasattr(value, "detach"):
            continue
        same = value.detach().cpu()
        if tuple(same.shape) != tuple(other.shape) or same.dtype != other.dtype:
            raise RepositoryCodeError(f"{name!r} comes back as {other.dtype} {tuple(other.shape)}")
        equal = (same == other) | ((same != same) & (other != other))
        if not bool(equal.all()):
            raise RepositoryCodeError(f"{name!r} comes back with other values")


def _forward(result: Result, shapes: Sequence[Mapping[str, Any]], device: str | None) -> list[Any]:
    """Return the tensors that the model makes of random inputs, in eval mode."""
    model = result.value
    invoke.set_eval(result)
    inputs = inference.random_inputs(result.framework, shapes, device)
    with call_errors.of_inputs(result, inputs), invoke.running(result, command=True):
        returned = model(*inputs)
    tensors = [tensor for _, tensor in inference.tensors(returned, "out")]
    if not tensors:
        raise RepositoryCodeError(f"{result.entrypoint} returned {type(returned).__name__} without any tensor")
    return tensors


def _backward(result: Result, outputs: Sequence[Any]) -> str | None:
    """Gradients of the mean of all outputs must reach the parameters, and be finite."""
    torch = frameworks.import_framework(result.framework)
    parameters = [one for one in result.value.parameters() if one.requires_grad]
    if not parameters:
        return "it has no parameter that needs a gradient"
    found = [one for one in outputs if one.requires_grad]
    if not found:
        raise RepositoryCodeError("no output depends on a parameter: there is nothing to train")
    with invoke.running(result, command=True):
        sum(one.float().mean() for one in found).backward()
    reached = [one.grad for one in parameters if one.grad is not None]
    if not reached:
        raise RepositoryCodeError("no gradient reached any parameter")
    if not all(bool(torch.isfinite(grad).all()) for grad in reached):
        raise RepositoryCodeError("a gradient is not finite")
    return None
