"""`profile`, `record_function`, `emit_nvtx`, `load_nvprof`: where the time of a program goes.

https://docs.pytorch.org/docs/2.13/autograd.html#profiler

No op runs anything of this module until a profile begins; then `binder.instrument()` puts a wrapper round every kernel
and `engine.observers` one round every backward node, and takes both away when the last profile ends.  An event is the
run of one kernel (named `aten::NAME`; the checks round it are the parent's own time), of one node of the graph, or of a
`record_function` block, in whatever thread.  Every profile that is on when an event ends has it, so profiles nest.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
import traceback
import warnings
from bisect import bisect_left
from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any, TypeVar

from engine.autograd import engine as backward_engine
from engine.autograd.graph import next_seq
from engine.autograd.profiler_util import (
    EventList,
    FunctionEvent,
    FunctionEventAvg,
    Interval,
    Kernel,
    format_time,
)
from engine.backends import is_array, registered
from engine.dispatch import Op, binder

__all__ = [
    "EnforceUnique",
    "EventList",
    "FunctionEvent",
    "FunctionEventAvg",
    "Interval",
    "Kernel",
    "emit_nvtx",
    "format_time",
    "load_nvprof",
    "parse_nvprof_trace",
    "profile",
    "record_function",
]

_USE_CUDA = "The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead."
_F = TypeVar("_F", bound=Callable[..., Any])


class _Open:
    """An event that has begun."""

    __slots__ = tuple("bytes device end flops id marks name node order parent shapes stack start thread".split())

    def __init__(self, name: str, device: str = "") -> None:
        self.name, self.device = name, device  # the kind of device whose kernel this is
        self.marks: list[Any] = []  # there, before and after its work
        self.id = _ids()
        self.parent: int | None = None
        self.shapes: list[Any] | None = None
        self.stack: list[str] | None = None
        self.bytes = self.start = self.end = self.thread = self.flops = 0
        self.node = self.order = -1


class _Here(threading.local):
    """The open events of a thread."""

    def __init__(self) -> None:
        self.open: list[_Open] = []


_ids = itertools.count().__next__
_here = _Here()
_active: list[_Sink] = []  # profiles and emit_nvtx blocks that are on
_lock = threading.RLock()


class _Sink:
    """Somebody who wants events."""

    shapes = stacks = memory = flops = False

    def begin(self, event: _Open) -> None:
        """An event begins in this thread."""

    def end(self, event: _Open) -> None:
        """It is over."""


def _begin(name: str, args: tuple[Any, ...] = (), device: str = "") -> _Open:
    event = _Open(name, device)
    stack = _here.open
    event.parent = stack[-1].id if stack else None
    event.thread = threading.get_ident()
    for sink in _active:
        if sink.shapes and event.shapes is None:
            event.shapes = [_shape(a) for a in args]
        if sink.stacks and event.stack is None:
            event.stack = _stack()
        sink.begin(event)
    stack.append(event)
    event.start = perf_counter_ns()
    return event


def _end(event: _Open, keep: bool = True) -> None:
    event.end = perf_counter_ns()
    stack = _here.open
    if event in stack:  # blocks that were left out of order end here as well
        del stack[stack.index(event) :]
    for sink in list(_active):
        if keep:
            sink.end(event)


def _shape(value: Any) -> list[Any]:
    """The sizes of an array; of each of a list of arrays; [] for anything else."""
    array = getattr(value, "_array", value)
    if is_array(array):
        return list(array.shape)
    if isinstance(value, tuple | list) and value and all(is_array(v) for v in value):
        return [list(v.shape) for v in value]
    return []


_ENGINE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def _stack() -> list[str]:
    """`file(line): function` of the callers outside the engine, innermost first."""
    return [
        f"{frame.filename}({frame.lineno}): {frame.name}"
        for frame in reversed(traceback.extract_stack(limit=64))
        if not frame.filename.startswith(("<engine ", _ENGINE))
    ]


def _bytes(result: Any, args: tuple[Any, ...]) -> int:
    """Bytes of the arrays of a result that are not views of an argument."""
    given = {id(_owner(array)) for array in _arrays(args)}
    return sum(int(r.nbytes) for r in _arrays((result,)) if id(_owner(r)) not in given)


def _arrays(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        if is_array(value):
            yield value
        elif isinstance(value, tuple | list):
            yield from (one for one in value if is_array(one))


def _owner(array: Any) -> Any:
    """Who holds the memory: a result may be a view of a larger buffer that was made for it."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


def _kernel_wrapper(record: Op, kernel: Any, device: str = "") -> Any:
    """`kernel` with an event round it."""
    name = "aten::" + record.called
    formula = record.flops[1] if record.flops else None

    def timed(xp: Any, *args: Any, **kwargs: Any) -> Any:
        event = _begin(name, args, device)
        keep = True
        try:
            result = kernel(xp, *args, **kwargs)
            event.order = next_seq()  # a node that this op gets is the next one: numbers only order them
            if formula is not None and any(sink.flops for sink in _active):
                event.flops = formula(result, *args, **{n: v for n, v in kwargs.items() if n != "into"})
            event.bytes = _bytes(result, args) if any(sink.memory for sink in _active) else 0
            return result
        except RuntimeWarning:  # the binder runs the kernel again: Note [Floating point warnings]
            keep = False
            raise
        finally:
            _end(event, keep)

    return timed


def _choose(self: Op, kind: str) -> Any:
    """`Op.choose` while a profile is on: kernels of other devices are timed too."""
    return _kernel_wrapper(self, _plain_choose(self, kind), kind)


_plain_choose = Op.choose


def _observe(node: Any, run: Callable[[], Any]) -> Any:
    """Run a backward node with an event round it."""
    event = _begin(node.name())
    event.node = node.sequence_nr
    try:
        return run()
    finally:
        _end(event)


def _switch_on(sink: _Sink) -> None:
    with _lock:
        _active.append(sink)
        if len(_active) == 1:
            binder.wrappers.append(_kernel_wrapper)
            binder.instrument()
            Op.choose = _choose  # type: ignore[method-assign]
            backward_engine.observers.append(_observe)


def _switch_off(sink: _Sink) -> None:
    with _lock:
        _active.remove(sink)
        if not _active:
            binder.wrappers.remove(_kernel_wrapper)
            binder.instrument()
            Op.choose = _plain_choose  # type: ignore[method-assign]
            backward_engine.observers.remove(_observe)


def _cuda() -> Any:
    """The CUDA backend if it is in use, else None."""
    return next((backend for backend in registered() if backend.kind == "cuda"), None)


class profile(_Sink):
    """Context that records every op, backward node and labelled block that runs inside, in all threads.

    enabled: False makes it do nothing.  use_cuda: also time each op on its stream of the GPU, by a pair of CUDA events
    (two microseconds each; none while a graph is captured); without CUDA a warning says that it is disabled.
    record_shapes: keep `input_shapes`.  profile_memory: bytes of results.  with_stack: keep the callers.  with_flops:
    count multiplications and additions of products and convolutions.  The other options of torch are accepted and do
    nothing.  Afterwards: `function_events`, `key_averages()`, `total_average()`, `table()`,
    `export_chrome_trace(path)`, `self_cpu_time_total` (us); before the end of the block these raise RuntimeError.

        with profile() as prof:
            model(x).sum().backward()
        print(prof.key_averages().table(sort_by="self_cpu_time_total", row_limit=10))
    """

    def __init__(
        self,
        enabled: bool = True,
        use_cuda: bool = False,
        record_shapes: bool = False,
        *,
        use_device: str | None = None,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_modules: bool = False,
        use_kineto: bool = False,
        use_cpu: bool = True,
        experimental_config: Any = None,
        acc_events: bool = False,
        custom_trace_id_callback: Any = None,
    ) -> None:
        self.enabled = bool(enabled)
        if use_cuda:
            warnings.warn(_USE_CUDA, FutureWarning, stacklevel=2)
        self.use_device = "cuda" if use_cuda else use_device
        if self.enabled and self.use_device == "cuda" and _cuda() is None:
            warnings.warn("CUDA is not available, disabling CUDA profiling", stacklevel=2)
            self.use_device = None
        self.use_cuda = self.use_device == "cuda"
        self.shapes = self.record_shapes = bool(record_shapes)
        self.memory = self.profile_memory = bool(profile_memory)
        self.stacks = self.with_stack = bool(with_stack)
        self.flops = self.with_flops = bool(with_flops)
        self.function_events: EventList | None = None
        self.entered = False
        self._began = 0
        self._collected: list[_Open] = []

    def __enter__(self) -> profile:
        if self.entered:
            raise RuntimeError("Profiler context manager is not reentrant")
        self.entered = True
        if self.enabled:
            self._began = perf_counter_ns()
            _switch_on(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.enabled:
            _switch_off(self)
        self.function_events = self._events()

    def begin(self, event: _Open) -> None:
        """Mark where the work of a kernel on the GPU begins."""
        if self.use_cuda and event.device == "cuda":
            event.marks = [_cuda().mark()]

    def end(self, event: _Open) -> None:
        """Keep an event of this profile's time."""
        if event.start >= self._began:
            if event.marks and self.use_cuda:
                event.marks.append(_cuda().mark())
            self._collected.append(event)

    def _times(self) -> dict[int, tuple[int, float]]:
        """The device and the microseconds there of each event that was marked, by its number, children included."""
        marked = [e for e in self._collected if len(e.marks) == 2 and None not in e.marks]
        if not marked:
            return {}
        backend = _cuda()
        return {e.id: backend.between_marks(*e.marks) for e in marked}

    def _events(self) -> EventList:
        """Build the events collected, in order of time, with parents and children."""
        events = []
        by_id: dict[int, FunctionEvent] = {}
        times = self._times()
        inside: dict[int | None, float] = {}  # of an event's children
        for item in self._collected:
            if item.id in times:
                inside[item.parent] = inside.get(item.parent, 0.0) + times[item.id][1]
        for item in sorted(self._collected, key=lambda e: (e.start, e.id)):
            event = FunctionEvent(
                item.id,
                item.name,
                item.thread,
                (item.start - self._began) / 1e3,
                (item.end - self._began) / 1e3,
                input_shapes=item.shapes if self.shapes else None,
                stack=item.stack if self.stacks else None,
                cpu_memory_usage=item.bytes if self.memory else 0,
                sequence_nr=item.node,
                flops=item.flops if self.flops else None,
            )
            by_id[item.id] = event
            events.append(event)
            if item.id in times:
                device, spent = times[item.id]
                event.append_kernel(item.name, device, max(spent - inside.get(item.id, 0.0), 0.0))
            parent = by_id.get(item.parent) if item.parent is not None else None
            if parent is not None:
                event.cpu_parent = parent
                parent.cpu_children.append(event)
        if self.memory:
            for event in reversed(events):  # a parent's memory holds its children's
                if event.cpu_parent is not None:
                    event.cpu_parent.cpu_memory_usage += event.cpu_memory_usage
        self._number(by_id)
        self._collected = []
        return EventList(events, use_device=self.use_device, profile_memory=self.memory, with_flops=self.flops)

    def _number(self, events: dict[int, FunctionEvent]) -> None:
        """Give the event of an op the number of the backward node that it made, where that ran: the last op before."""
        ops = sorted((item for item in self._collected if item.order >= 0), key=lambda item: item.order)
        orders = [item.order for item in ops]
        for item in self._collected:
            if item.node < 0 or "AccumulateGrad" in item.name:
                continue
            at = bisect_left(orders, item.node) - 1
            if at >= 0 and ops[at].end <= item.start:
                events[ops[at].id].sequence_nr = item.node

    def _finished(self) -> EventList:
        if self.function_events is None:
            raise RuntimeError("Profiler didn't finish running")
        return self.function_events

    def __repr__(self) -> str:
        if self.function_events is None:
            return "<unfinished torch.autograd.profile>"
        return repr(self.function_events)

    def __str__(self) -> str:
        if self.function_events is None:
            return "<unfinished torch.autograd.profile>"
        return str(self.function_events)

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as a text table.  See `EventList.table`."""
        return self._finished().table(
            sort_by,
            row_limit,
            max_src_column_width,
            max_name_column_width,
            max_shapes_column_width,
            header,
            top_level_events_only,
            time_unit,
        )

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events for chrome://tracing.  See `EventList.export_chrome_trace`."""
        self._finished().export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks for flame graphs; the profile must have had `with_stack=True`."""
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self._finished().export_stacks(path, metric)

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """The events summed by name (and input shapes).  See `EventList.key_averages`."""
        return self._finished().key_averages(group_by_input_shape, group_by_stack_n)

    def total_average(self) -> FunctionEventAvg:
        """All events as one.  See `EventList.total_average`."""
        return self._finished().total_average()

    @property
    def self_cpu_time_total(self) -> float:
        """The CPU time of all events, none counted twice, in us."""
        return self._finished().self_cpu_time_total


def kineto_available() -> bool:
    """False: events are the engine's own."""
    return False


class record_function(contextlib.ContextDecorator):
    """A label for a block (`with record_function("name"):`) or a function (`@record_function("name")`) in profiles.

    The ops that run inside are its `cpu_children`.  Nothing happens while no profile is on.
    """

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name = name
        self.args = args
        self._open: list[_Open | None] = []

    def _recreate_cm(self) -> record_function:
        return type(self)(self.name, self.args)

    def __enter__(self) -> record_function:
        self._open.append(_begin(self.name) if _active else None)
        return self

    def __exit__(self, *exc: object) -> None:
        event = self._open.pop()
        if event is not None:
            _end(event)


class emit_nvtx(_Sink):
    """Context in which every op, backward node and labelled block is an NVTX range, for nvprof and Nsight Systems.

    record_shapes: the sizes are part of the range's name.  With enabled=False nothing happens; else RuntimeError where
    no CUDA device is in use.  Backward nodes are named `NAME, seq = N` with the number of the forward op.
    """

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.shapes = self.record_shapes = record_shapes
        self.entered = False
        self._push: Any = None
        self._pop: Any = None

    def __enter__(self) -> emit_nvtx | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        backend = _cuda()
        if backend is None or not hasattr(backend, "nvtx_push"):
            raise RuntimeError(
                "emit_nvtx needs CUDA: no CUDA device is in use; pass enabled=False to run without annotations"
            )
        self.entered = True
        self._push, self._pop = backend.nvtx_push, backend.nvtx_pop
        _switch_on(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if self.enabled and self.entered:
            _switch_off(self)

    def begin(self, event: _Open) -> None:
        """Open a range."""
        text = event.name if event.node < 0 else f"{event.name}, seq = {event.node}"
        self._push(f"{text}, sizes = {event.shapes}" if self.shapes and event.shapes else text)

    def end(self, event: _Open) -> None:
        """Close it."""
        self._pop()


class EnforceUnique:
    """Raises RuntimeError when a key is seen for the second time."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def see(self, *key: Any) -> None:
        """Note a key."""
        if key in self.seen:
            raise RuntimeError("duplicate key: " + str(key))
        self.seen.add(key)


def load_nvprof(path: str | os.PathLike[str]) -> EventList:
    """The ranges of `emit_nvtx` in an SQLite file of `nvprof --profile-from-start off -o FILE`, with their kernels.

    nvprof's nanoseconds become us, as everywhere in a profile.  FileNotFoundError when there is no such file;
    ValueError when it is not nvprof's.
    """
    return EventList(parse_nvprof_trace(path), use_device="cuda")


_MARKERS = """
SELECT start.id AS marker_id, start.name AS name, start.timestamp AS start_time, end.timestamp AS end_time
FROM CUPTI_ACTIVITY_KIND_MARKER AS start INNER JOIN CUPTI_ACTIVITY_KIND_MARKER AS end ON start.id = end.id
WHERE start.name != 0 AND end.name = 0
"""
_KERNELS = """
SELECT start.id AS marker_id, runtime._id_ AS runtime_id, kernel.start AS kernel_start, kernel.end AS kernel_end,
       kernel.name AS kernel_name, kernel.deviceId AS device
FROM CUPTI_ACTIVITY_KIND_MARKER AS start
     INNER JOIN CUPTI_ACTIVITY_KIND_MARKER AS end ON start.id = end.id
     INNER JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS runtime
         ON (start.timestamp < runtime.start AND runtime.end < end.timestamp)
     INNER JOIN CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL AS kernel ON kernel.correlationId = runtime.correlationId
WHERE start.name != 0 AND end.name = 0
"""


def parse_nvprof_trace(path: str | os.PathLike[str]) -> list[FunctionEvent]:
    """The FunctionEvents of an nvprof SQLite file in order of time.  See `load_nvprof`."""
    import sqlite3

    if not os.path.isfile(path):
        raise FileNotFoundError(f"no nvprof file at {os.fspath(path)!r}")
    events: dict[int, FunctionEvent] = {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        try:
            strings = {
                row["id"]: row["value"] for row in connection.execute("SELECT _id_ AS id, value FROM StringTable")
            }
            unique = EnforceUnique()
            for row in connection.execute(_MARKERS):
                unique.see(row["marker_id"])
                events[row["marker_id"]] = FunctionEvent(
                    row["marker_id"],
                    strings[row["name"]],
                    0,
                    row["start_time"] / 1e3,
                    row["end_time"] / 1e3,
                    node_id=0,
                )
            for row in _kernel_rows(connection):
                unique.see(row["marker_id"], row["runtime_id"])
                name = strings.get(row["kernel_name"], str(row["kernel_name"]))
                duration = (row["kernel_end"] - row["kernel_start"]) / 1e3
                events[row["marker_id"]].append_kernel(name, row["device"], duration)
        except sqlite3.DatabaseError as error:
            raise ValueError(f"{os.fspath(path)!r} is not an SQLite file of nvprof: {error}") from error
    return sorted(events.values(), key=lambda event: event.time_range.start)


def _kernel_rows(connection: Any) -> Iterator[Any]:
    """The rows of `_KERNELS`; files without the column deviceId are of device 0."""
    columns = connection.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)")
    known = any(column["name"] == "deviceId" for column in columns)
    yield from connection.execute(_KERNELS if known else _KERNELS.replace("kernel.deviceId", "0"))
