"""`hub profile`: where the time and the memory of one pass go.

`measure` runs where the model is (this process or a sandboxed child) and gives JSON; `Profile.of`
reads that, whoever sent it; the rest draws: a text table, a Chrome trace, one page of HTML.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubcli.base import output
from hubcli.errors import RepositoryCodeError
from hubcli.running.result import is_module

if TYPE_CHECKING:
    from hubcli.running.result import Result

MODULE = "module: "  # events of a module are labelled so
MAX_EVENTS = 200_000


@dataclass(frozen=True)
class Event:
    """One run of an op, a backward node or a module.

    `start` and `end` in us since the pass began, `depth` the number of events round it, `bytes` of
    the results that it made itself, `thread` counted from 0.
    """

    name: str
    start: float
    end: float
    depth: int
    thread: int
    self_us: float
    bytes: int

    @property
    def is_module(self) -> bool:
        """Return whether it is the forward of a module, which the ops inside it do the work of."""
        return self.name.startswith(MODULE)


@dataclass(frozen=True)
class Total:
    """Events of one name: times in us, `self_us` without what runs inside, bytes of results."""

    name: str
    calls: int
    self_us: float
    total_us: float
    bytes: int


@dataclass(frozen=True)
class Profile:
    """One measured pass: its events in order of time and its length in us."""

    events: tuple[Event, ...]
    wall_us: float

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Profile:
        """From what `measure` gave; RepositoryCodeError if it makes no sense."""
        try:
            events = tuple(
                Event(
                    output.printable(str(name))[:200],
                    float(start),
                    float(end),
                    int(depth),
                    int(thread),
                    float(self_us),
                    int(size),
                )
                for name, start, end, depth, thread, self_us, size in document["events"]
            )
            wall = float(document["wall_us"])
            if not all(0 <= one.start <= one.end < 1e15 and 0 <= one.depth < 1000 for one in events):
                raise ValueError("times out of order")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise RepositoryCodeError(f"the profile makes no sense: {str(error)[:200]}") from None
        return cls(events, max(wall, 1.0))

    def ops(self) -> list[Total]:
        """Ops and backward nodes by name, the dearest first."""
        return self._totals([one for one in self.events if not one.is_module])

    def modules(self) -> list[Total]:
        """Modules by their path in the model, the dearest first by the time of all inside."""
        found = self._totals([one for one in self.events if one.is_module])
        return sorted(found, key=lambda one: -one.total_us)

    def module_classes(self) -> list[Total]:
        """Modules by their class, the dearest first; what runs inside a module of the same class counts once."""
        sums: dict[str, list[float]] = {}
        ends: dict[tuple[int, str], float] = {}  # of the outermost module of a class, by thread
        for one in sorted((e for e in self.events if e.is_module), key=lambda e: (e.start, e.depth)):
            name = class_of(one.name)
            entry = sums.setdefault(name, [0, 0.0, 0.0, 0])
            outermost = one.start >= ends.get((one.thread, name), 0.0)
            if outermost:
                ends[one.thread, name] = one.end
            for index, value in enumerate((1, one.self_us, one.end - one.start if outermost else 0.0, one.bytes)):
                entry[index] += value
        made = [
            Total(name, int(calls), self_us, total, int(size)) for name, (calls, self_us, total, size) in sums.items()
        ]
        return sorted(made, key=lambda one: -one.total_us)

    def _totals(self, events: Sequence[Event]) -> list[Total]:
        sums: dict[str, list[float]] = {}
        for one in events:
            entry = sums.setdefault(one.name, [0, 0.0, 0.0, 0])
            for index, value in enumerate((1, one.self_us, one.end - one.start, one.bytes)):
                entry[index] += value
        made = [
            Total(name, int(calls), self_us, total, int(size)) for name, (calls, self_us, total, size) in sums.items()
        ]
        return sorted(made, key=lambda one: -one.self_us)

    def chrome_trace(self) -> dict[str, Any]:
        """As JSON for chrome://tracing and Perfetto: complete events, us."""
        return {
            "traceEvents": [
                {
                    "name": one.name.removeprefix(MODULE),
                    "ph": "X",
                    "ts": one.start,
                    "dur": one.end - one.start,
                    "pid": 0,
                    "tid": one.thread,
                    "cat": "module" if one.is_module else "op",
                    "args": {"bytes": one.bytes},
                }
                for one in self.events
            ],
            "displayTimeUnit": "ms",
        }


def measure(result: Result, options: Mapping[str, Any]) -> dict[str, Any]:
    """Profile one pass of a model on random inputs, after one that warms up; JSON.

    options: `shapes` of the inputs, `backward`, `device`.  Forward is in eval mode.
    """
    from hubcli.running import call_errors, frameworks, inference, invoke

    torch = frameworks.import_framework(result.framework)
    model = result.value
    if not callable(model):
        raise RepositoryCodeError(
            f"{result.entrypoint} returned {output.a(type(model).__name__)}, which cannot be called"
        )
    device, backward = options.get("device"), bool(options.get("backward"))
    if is_module(model):
        if device:
            invoke.move(result, device)
        invoke.set_eval(result)
    inputs = inference.random_inputs(result.framework, options["shapes"], device)
    profiler = torch.autograd.profiler

    def one_pass() -> None:
        with torch.set_grad_enabled(backward):
            outputs = [tensor for _, tensor in inference.tensors(model(*inputs), "out")]
            if backward:
                needing = [one for one in outputs if one.requires_grad]
                if not needing:
                    raise RepositoryCodeError("no output depends on a parameter")
                sum(one.float().mean() for one in needing).backward()
        if device and not str(device).startswith("cpu"):
            torch.cuda.synchronize()

    with call_errors.of_inputs(result, inputs), invoke.running(result, command=True):
        one_pass()
        handles = _label_modules(model, profiler) if is_module(model) else []
        try:
            use_cuda = bool(device) and not str(device).startswith("cpu")
            with profiler.profile(profile_memory=True, use_device="cuda" if use_cuda else None) as p:
                started = time.perf_counter_ns()
                one_pass()
                wall = (time.perf_counter_ns() - started) / 1e3
        finally:
            for handle in handles:
                handle.remove()
    return {"events": _events(p.function_events), "wall_us": wall}


def _label_modules(model: Any, profiler: Any) -> list[Any]:
    """Put an event round the forward of every module; the handles take them away."""
    handles: list[Any] = []
    for path, module in model.named_modules():
        label = f"{MODULE}{path or 'model'} ({type(module).__name__})"
        running: list[Any] = []

        def begin(*ignored: Any, label: str = label, running: list[Any] = running) -> None:
            running.append(profiler.record_function(label).__enter__())

        def end(*ignored: Any, running: list[Any] = running) -> None:
            running.pop().__exit__(None, None, None)

        handles.append(module.register_forward_pre_hook(begin))
        handles.append(module.register_forward_hook(end))
    return handles


def _events(found: Sequence[Any]) -> list[list[Any]]:
    threads: dict[int, int] = {}
    depths: dict[int, int] = {}
    rows: list[list[Any]] = []
    events = sorted(found, key=lambda one: one.time_range.start)[:MAX_EVENTS]
    origin = events[0].time_range.start if events else 0.0
    for one in events:
        parent = one.cpu_parent
        depth = depths.get(id(parent), -1) + 1 if parent is not None else 0
        depths[id(one)] = depth
        rows.append(
            [
                str(one.name),
                one.time_range.start - origin,
                one.time_range.end - origin,
                depth,
                threads.setdefault(one.thread, len(threads)),
                max(float(one.self_cpu_time_total), 0.0),
                max(int(one.self_cpu_memory_usage), 0),
            ]
        )
    return rows


def class_of(label: str) -> str:
    """Return the class in the label of a module: `Block` of `module: layers.0 (Block)`."""
    name = label.removeprefix(MODULE)
    head, _, rest = name.rpartition(" (")
    return rest.removesuffix(")") if head else name


def duration(us: float) -> str:
    """Return a time for people: `12 us`, `3.1 ms`, `2.0 s`."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if us >= factor:
            return f"{us / factor:.1f} {unit}"
    return f"{us:.0f} us"


def table(profile: Profile, limit: int = 20) -> str:
    """Return the dearest ops and modules as text."""

    def share(us: float) -> str:
        return f"{100 * us / profile.wall_us:.1f}%"

    ops, modules = profile.ops(), profile.modules()
    head = ("op", "calls", "self", "", "total", "results")
    rows = [head] + [
        (
            one.name,
            str(one.calls),
            duration(one.self_us),
            share(one.self_us),
            duration(one.total_us),
            output.size(one.bytes),
        )
        for one in ops[:limit]
    ]
    text = output.table(rows)
    if len(ops) > limit:
        text += f"\n... and {len(ops) - limit} more"
    if modules:
        rows = [("module", "calls", "total", "", "", "")] + [
            (
                one.name.removeprefix(MODULE),
                str(one.calls),
                duration(one.total_us),
                share(one.total_us),
                "",
                "",
            )
            for one in modules[:limit]
        ]
        text += "\n\n" + output.table(rows)
        classes = profile.module_classes()
        if len(classes) < len(modules):
            rows = [("class of module", "calls", "total", "", "", "")] + [
                (one.name, str(one.calls), duration(one.total_us), share(one.total_us), "", "")
                for one in classes[:limit]
            ]
            text += "\n\n" + output.table(rows)
    between = max(profile.wall_us - sum(one.self_us for one in ops), 0.0)
    return f"{text}\n\none pass: {duration(profile.wall_us)}, {share(between)} of it outside ops"
