"""The jobs with an entrypoint in a process of its own: `worker` performs them, `sandbox` requests them.

A job and its result are JSON; tensors are safetensors files, inputs in the folder `inbox` and
results in the folder `scratch`.  The functions below `perform` run where the repository's code runs;
`load` and `run`, the parent's side, give the commands what the same work in this process gives.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hubcli import torch_hub
from hubcli.base.request import Request
from hubcli.base.spec import RepoSpec
from hubcli.cache.checkouts import Checkout
from hubcli.cache.weights import Weight
from hubcli.confined import sandbox, stages
from hubcli.confined.sandbox import Mechanism, Session
from hubcli.errors import HubError, IntegrityError, RepositoryCodeError, UnusedDependencyError
from hubcli.reading import hubconf
from hubcli.reading.hubconf import EntryPoint, HubConf
from hubcli.running import archives, inference, invoke, select, stray_files, transforms
from hubcli.running.inference import Input, Output, Pass
from hubcli.running.result import Description, Result

if TYPE_CHECKING:
    from hubcli.confined.broker import Broker

Report = Callable[[Mapping[str, Any]], None]
STATE, TENSORS = "state.safetensors", "tensors.safetensors"
MAX_TENSORS = 4 << 30  # bytes of a result; of a state dict as many as a file may have
MAX_OUTPUTS = 10_000
_OURS = ("hub:", "hint:", "cause:", "context:", "part:", "sandbox:", "warning:", "error:", "note:", "usage:")


@dataclass(frozen=True)
class Job:
    """One call of an entrypoint and what is done with the result: `kind` is a key of `_KINDS`."""

    kind: str
    checkout: Checkout
    entrypoint: str = ""
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    framework: str = "engine"
    fresh: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """As JSON."""
        plain = {name: value for name, value in vars(self).items() if name != "checkout"}
        return {**plain, "checkout": checkout_document(self.checkout)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Job:
        """From JSON."""
        values = dict(document)
        values["checkout"] = as_checkout(values["checkout"])
        values["args"] = tuple(values["args"])
        return cls(**values)


@dataclass(frozen=True)
class Loaded:
    """The result of `load`: the model, and the `seconds` that the entrypoint took."""

    model: Description
    seconds: float
    weights: tuple[Weight, ...]


def checkout_document(checkout: Checkout) -> dict[str, Any]:
    """Return a checkout as JSON; the URL, which may hold what is nobody's business, stays here."""
    values = {**vars(checkout), "spec": str(checkout.spec), "path": str(checkout.path), "url": ""}
    return values


def as_checkout(document: Mapping[str, Any]) -> Checkout:
    """Return a checkout from JSON."""
    spec = RepoSpec.parse(document["spec"])
    return Checkout(**{**document, "spec": spec, "path": Path(document["path"])})


def weight_document(weight: Weight) -> dict[str, Any]:
    """Return a weight file's record as JSON."""
    return {**asdict(weight), "path": str(weight.path), "used_by": []}


def as_weight(document: Mapping[str, Any]) -> Weight:
    """Return a weight file's record from JSON."""
    return Weight(**{**document, "path": Path(document["path"]), "used_by": ()})


# In the process that runs the code


def perform(job: Job, inbox: Path, scratch: Path, report: Report) -> dict[str, Any]:
    """Do the job; its result as JSON."""
    try:
        return _KINDS[job.kind](job, inbox, scratch, report)
    finally:
        stray_files.collect()  # now: whoever has the result ends this process


def _call(job: Job) -> Result:
    if job.options.get("archive"):
        return archives.load(Path(job.options["archive"]), job.entrypoint or None, job.args, job.kwargs)
    _serve(job)
    return invoke.call(
        job.checkout,
        job.entrypoint,
        job.args,
        job.kwargs,
        framework=job.framework,
        fresh=job.fresh,
        command=True,
    )


def _serve(job: Job) -> None:
    if job.framework == "torch":
        torch_hub.serve_torch()


def _list(job: Job, inbox: Path, scratch: Path, report: Report) -> dict[str, Any]:
    _serve(job)
    return asdict(invoke.listing(job.checkout, framework=job.framework, command=True))


def _load(job: Job, inbox: Path, scratch: Path, report: Report) -> dict[str, Any]:
    result = select.selected(_call(job), job.options.get("select"))
    if job.options.get("device"):
        invoke.move(result, job.options["device"])
    if job.options.get("save"):
        invoke.save_state_dict(result, scratch / STATE)
    used = [weight_document(one) for one in result.weights]
    described = asdict(invoke.describe(result))
    return {"model": described, "seconds": result.seconds, "weights": used}


def _run(job: Job, inbox: Path, scratch: Path, report: Report) -> dict[str, Any]:
    whole = _call(job)
    result = select.selected(whole, job.options.get("select"))
    device = job.options.get("device")
    if device:
        invoke.move(result, device)
    prepare = transforms.preparation(whole, result, job.options.get("transform")) if job.options.get("raw") else None
    names = job.options["inputs"]
    with (inbox / TENSORS).open("rb") as file:
        arrays = _unpack(file, names)
    inputs = [Input(one["name"], array, one["text"], one["kind"]) for one, array in zip(names, arrays)]
    groups = [
        (name, [one for one, of in zip(inputs, names) if of["group"] == i])
        for i, name in enumerate(job.options["files"])
    ]
    passed = inference.passes(result, groups, len(groups), device, prepare)
    described = _pack(scratch / TENSORS, passed.outputs)
    return {
        "outputs": described,
        "seconds": passed.seconds,
        "items": list(passed.items),
        "given": list(passed.given),
        "prepared": passed.prepared,
    }


def _check(job: Job, inbox: Path, scratch: Path, report: Report) -> dict[str, Any]:
    stages.perform(lambda: _call(job), job.entrypoint, job.options, scratch, report)
    return {}


def _profile(job: Job, inbox: Path, scratch: Path, report: Report) -> dict[str, Any]:
    from hubcli.running import profiling

    result = select.selected(_call(job), job.options.get("select"))
    document: dict[str, Any] = profiling.measure(result, job.options)
    return document


_KINDS = {"list": _list, "load": _load, "run": _run, "check": _check, "profile": _profile}


# Tensors between the two processes


def _pack(file: Path, named: Sequence[Input | Output]) -> list[dict[str, Any]]:
    """Write arrays as safetensors, by position; names, shapes and types go as JSON."""
    import numpy as np

    from engine import serialization

    described, arrays = [], {}
    for index, one in enumerate(named):
        array = np.ascontiguousarray(one.array)
        described.append({"name": one.name, "shape": list(one.array.shape), "dtype": str(array.dtype)})
        # the format lacks complex128, and numpy's files of other types
        arrays[str(index)] = array.reshape(-1).view("float64") if array.dtype.str[1:] == "c16" else array
    serialization.save_safetensors(arrays, file)
    return described


def _unpack(file: Any, described: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the arrays that `_pack` wrote, each as it was described; RepositoryCodeError if they are not."""
    from engine import serialization

    try:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_TENSORS or len(described) > MAX_OUTPUTS:
            raise ValueError(f"{len(described)} tensors of {size} bytes are too much")
        arrays = serialization.read_arrays(file, formats=("safetensors",))
        found = []
        for index, one in enumerate(described):
            array = arrays[str(index)]
            if one["dtype"] == "complex128":
                array = array.view("complex128")
            found.append(array.reshape([int(size) for size in one["shape"]]).copy())
        return found
    except HubError:
        raise
    except Exception as error:  # hostile in every way: whatever is wrong is wrong with the file
        raise IntegrityError(f"the sandboxed process left tensors that cannot be read: {str(error)[:200]}") from None


# In the process of the command


def listing(job: Job, chosen: Mechanism, broker: Broker, *, seconds: float | None = None) -> HubConf:
    """Return what the hubconf defines when it runs, found out in a child, within `seconds`."""
    with sandbox.session() as here:
        result = _result(job, chosen, here, broker, seconds)
    try:
        entries = tuple(_entry(one) for one in result["entrypoints"])
        names = tuple(str(name) for name in result["dependencies"])
        return HubConf(entries, names, False, _text(result.get("docstring")))
    except (KeyError, TypeError) as error:
        raise _nonsense(job, error) from None


def load(job: Job, chosen: Mechanism, broker: Broker, save: Path | None) -> Loaded:
    """`hub load` in a sandbox; `save` is written by this process, anew."""
    with sandbox.session() as here:
        result = _result(job, chosen, here, broker)
        try:
            model = result["model"]
            described = Description(
                str(_text(model["name"])),
                int(model["parameters"]),
                int(model["buffers"]),
                int(model["bytes"]),
                _text(model["device"]),
            )
            loaded = Loaded(described, float(result["seconds"]), tuple(broker.weights))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise _nonsense(job, error) from None
        if save is not None:
            from engine import serialization

            with here.open(STATE) as file:
                try:
                    if serialization.sniff(file) != "safetensors":
                        raise ValueError("its state dict is not a safetensors file")
                    serialization.convert(file, save)
                except (serialization.UnpicklingError, ValueError, TypeError) as error:
                    raise _nonsense(job, error) from None
    return loaded


def run(job: Job, chosen: Mechanism, broker: Broker, inputs: Sequence[Input]) -> Pass:
    """One pass in a sandbox."""
    return run_each(job, chosen, broker, [("", inputs)])


def run_each(
    job: Job,
    chosen: Mechanism,
    broker: Broker,
    groups: Sequence[tuple[str, Sequence[Input]]],
    seconds: float | None = None,
    memory: int | None = None,
) -> Pass:
    """`hub run` in a child: a pass for the inputs of each file, within `seconds` and `memory` bytes."""
    with sandbox.session() as here:
        inputs = [(number, one) for number, (_, group) in enumerate(groups) for one in group]
        described = _pack(here.inbox / TENSORS, [one for _, one in inputs])
        for entry, (number, one) in zip(described, inputs):
            entry.update(group=number, text=one.text, kind=one.kind)
        options = {**job.options, "inputs": described, "files": [name for name, _ in groups]}
        job = Job(**{**vars(job), "options": options})
        result = _result(job, chosen, here, broker, seconds, memory)
        try:
            outputs = list(result["outputs"])
            names = [str(_text(one["name"])) for one in outputs]
            seconds = float(result["seconds"])
            items = tuple(str(_text(one)) for one in result["items"])
            given = tuple(_given(one) for one in result["given"])
            prepared = " ".join((_text(result.get("prepared")) or "").split())[:300] or None
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise _nonsense(job, error) from None
        with here.open(TENSORS) as file:
            arrays = _unpack(file, outputs)
    return Pass(tuple(Output(name, array) for name, array in zip(names, arrays)), seconds, items, given, prepared)


def profile(job: Job, chosen: Mechanism, broker: Broker) -> dict[str, Any]:
    """Return what `profiling.measure` gives, from a sandbox."""
    with sandbox.session() as here:
        return _result(job, chosen, here, broker)


def _result(
    job: Job,
    chosen: Mechanism,
    here: Session,
    broker: Broker,
    seconds: float | None = None,
    memory: int | None = None,
) -> dict[str, Any]:
    """Return the result of a job that is a command's only one; its failures are the command's."""
    broker.inbox = here.inbox
    limits = sandbox.default_limits(seconds)
    if memory is not None:
        limits = replace(limits, memory=memory)
    outcome = sandbox.perform(job, chosen, here, limits=limits, broker=broker, printed=_echo)
    if isinstance(outcome.error, UnusedDependencyError) and invoke.asked_to_go_on(outcome.error):
        waived = Request.current(allow_missing=True)
        outcome = sandbox.perform(job, chosen, here, limits=limits, broker=broker, printed=_echo, request=waived)
    if outcome.error is not None:
        raise outcome.error
    if outcome.ended is not None or outcome.result is None:
        text = outcome.ended.text if outcome.ended else "there is no result"
        what = f"{job.entrypoint}: " if job.entrypoint else ""
        kind = "sandboxed process" if chosen.layers else "process"
        raise RepositoryCodeError(f"{what}the {kind} was ended: {text}", spec=str(job.checkout.spec))
    return outcome.result


def _echo(line: str) -> None:
    """Write a line of foreign code to stderr; `sandbox` has cleaned it.  It never looks like a line of ours."""
    sys.stderr.write(f"{'| ' if line.lstrip().lower().startswith(_OURS) else ''}{line}\n")
    sys.stderr.flush()


def _entry(one: Mapping[str, Any]) -> EntryPoint:
    doc = _text(one["doc"])
    name, signature = _text(one["name"]), _text(one["signature"])
    if name is None:
        raise TypeError("an entrypoint without a name")
    return EntryPoint(name, hubconf.summary_line(doc), doc, signature, "exec", bool(one["external"]))


def _given(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model was given, as `Input.document` says it."""
    shape = [int(size) for size in one["shape"]]
    return {"file": _text(one["file"]), "name": _text(one["name"]), "shape": shape, "dtype": str(_text(one["dtype"]))}


def _text(value: object) -> str | None:
    """Text that the child sent, as long as it may be; None for what is no text."""
    return value[:100_000] if isinstance(value, str) else None


def _nonsense(job: Job, error: Exception) -> RepositoryCodeError:
    return RepositoryCodeError(
        f"the sandboxed process sent a result that makes no sense: {str(error)[:200]}",
        spec=str(job.checkout.spec),
    )
