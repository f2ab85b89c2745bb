"""The parts of a profile: `FunctionEvent`, `EventList`, `FunctionEventAvg`, and their table.

All times are microseconds.  https://docs.pytorch.org/docs/2.13/autograd.html#profiler
"""

from __future__ import annotations

import json
import os
from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["EventList", "FunctionEvent", "FunctionEventAvg", "Interval", "Kernel"]

Kernel = namedtuple("Kernel", ["name", "device", "duration"])
Kernel.__doc__ = "A device kernel: its name, the device's index, its duration in us."


class Interval:
    """A stretch of time from `start` to `end`, in us since the profile began."""

    __slots__ = ("end", "start")

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, end

    def elapsed_us(self) -> float:
        """The length in us."""
        return self.end - self.start

    def __repr__(self) -> str:
        return f"Interval(start={self.start}, end={self.end})"


def format_time(time_us: float) -> str:
    """Microseconds as text with the unit that fits: `12.000us`, `3.100ms`, `2.000s`."""
    if time_us >= 1e6:
        return f"{time_us / 1e6:.3f}s"
    if time_us >= 1e3:
        return f"{time_us / 1e3:.3f}ms"
    return f"{time_us:.3f}us"


def format_memory(count: float) -> str:
    """Bytes as text with the unit that fits: `0 B`, `4.00 KB`."""
    for unit, name in ((2**30, "GB"), (2**20, "MB"), (2**10, "KB")):
        if abs(count) >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count:.0f} B"


class _Times:
    """Averages and texts of what subclasses count: `count`, `cpu_time_total`, `device_time_total`, ..."""

    count: int
    cpu_time_total: Any
    self_cpu_time_total: Any
    device_time_total: Any
    self_device_time_total: Any

    @property
    def cpu_time(self) -> float:
        """CPU time of one call, children included, in us."""
        return self.cpu_time_total / self.count if self.count else 0.0

    @property
    def device_time(self) -> float:
        """Device time of one call in us."""
        return self.device_time_total / self.count if self.count else 0.0

    @property
    def cuda_time(self) -> float:
        """The older name of `device_time`."""
        return self.device_time

    @property
    def cuda_time_total(self) -> float:
        """The older name of `device_time_total`."""
        return self.device_time_total  # type: ignore[no-any-return]

    @property
    def self_cuda_time_total(self) -> float:
        """The older name of `self_device_time_total`."""
        return self.self_device_time_total  # type: ignore[no-any-return]

    cpu_time_str = property(lambda self: format_time(self.cpu_time))
    cpu_time_total_str = property(lambda self: format_time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: format_time(self.self_cpu_time_total))
    device_time_str = property(lambda self: format_time(self.device_time))
    device_time_total_str = property(lambda self: format_time(self.device_time_total))
    self_device_time_total_str = property(lambda self: format_time(self.self_device_time_total))
    cuda_time_str = device_time_str
    cuda_time_total_str = device_time_total_str
    self_cuda_time_total_str = self_device_time_total_str


class FunctionEvent(_Times):
    """One run of one function.

    `time_range` (us), `thread`, `input_shapes` (one list a argument, [] for what is no array), `stack` (lines of the
    user's code, innermost first), `kernels` (on a device), `cpu_children`, `cpu_parent`, `cpu_memory_usage` (bytes).
    """

    def __init__(
        self,
        id: int,
        name: str,
        thread: int,
        start_us: float,
        end_us: float,
        input_shapes: list[Any] | None = None,
        stack: list[str] | None = None,
        scope: int = 0,
        cpu_memory_usage: int = 0,
        device_memory_usage: int = 0,
        sequence_nr: int = -1,
        node_id: int = -1,
        is_async: bool = False,
        is_remote: bool = False,
        overload_name: str = "",
        flops: int | None = None,
    ) -> None:
        self.id, self.thread = id, thread
        self.name = "ProfilerStep*" if name.startswith("ProfilerStep#") else name  # the steps are summed as one
        self.trace_name = name
        self.overload_name = overload_name
        self.node_id = node_id
        self.time_range = Interval(start_us, end_us)
        self.kernels: list[Any] = []
        self.count = 1
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None
        self.input_shapes = input_shapes if input_shapes is not None else []
        self.stack = stack if stack is not None else []
        self.scope = scope
        self.cpu_memory_usage, self.device_memory_usage = cpu_memory_usage, device_memory_usage
        self.sequence_nr = sequence_nr  # of a backward node; the op that made it has the same
        self.flops = flops
        self.is_async, self.is_remote, self.is_legacy = is_async, is_remote, True

    @property
    def key(self) -> str:
        """The name, by which `key_averages` groups events."""
        return self.name

    def append_kernel(self, name: str, device: int, duration: float) -> None:
        """Add a device kernel that this function started; duration in us."""
        self.kernels.append(Kernel(name, device, duration))

    def append_cpu_child(self, child: FunctionEvent) -> None:
        """Add a function that ran inside this one."""
        self.cpu_children.append(child)

    def set_cpu_parent(self, parent: FunctionEvent | None) -> None:
        """Say inside which function this one ran."""
        self.cpu_parent = parent

    @property
    def cpu_time_total(self) -> float:
        """Time from start to end in us, children included."""
        return self.time_range.elapsed_us()

    @property
    def self_cpu_time_total(self) -> float:
        """Time in us without that of the children."""
        return self.cpu_time_total - sum(child.cpu_time_total for child in self.cpu_children)

    @property
    def device_time_total(self) -> float:
        """Time of the kernels of this function and its children in us."""
        return self.self_device_time_total + sum(c.device_time_total for c in self.cpu_children)

    @property
    def self_device_time_total(self) -> float:
        """Time of this function's own kernels in us."""
        return float(sum(kernel.duration for kernel in self.kernels))

    @property
    def self_cpu_memory_usage(self) -> int:
        """Bytes of the results of this function without those of its children."""
        return self.cpu_memory_usage - sum(child.cpu_memory_usage for child in self.cpu_children)

    @property
    def self_device_memory_usage(self) -> int:
        """As `self_cpu_memory_usage`, on the device."""
        return self.device_memory_usage - sum(c.device_memory_usage for c in self.cpu_children)

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_str} "
            f"cpu_start_us={self.time_range.start} cpu_end_us={self.time_range.end} "
            f"cpu_children={[child.id for child in self.cpu_children]} name={self.name} thread={self.thread} "
            f"input_shapes={self.input_shapes} cpu_memory_usage={self.cpu_memory_usage}>"
        )


class FunctionEventAvg(_Times):
    """Events of one key taken together: sums of times (us) and of memory (bytes), `count`, averages."""

    def __init__(self) -> None:
        self.key: str | None = None
        self.count = 0
        self.node_id = 0
        self.is_async = self.is_remote = False
        self.cpu_time_total = self.self_cpu_time_total = 0.0
        self.device_time_total = self.self_device_time_total = 0.0
        self.input_shapes: list[Any] | None = None
        self.stack: list[str] | None = None
        self.scope: int | None = None
        self.cpu_memory_usage = self.self_cpu_memory_usage = 0
        self.device_memory_usage = self.self_device_memory_usage = 0
        self.flops = 0
        self.cpu_children: list[FunctionEvent] = []
        self.cpu_parent: FunctionEvent | None = None

    @property
    def name(self) -> str | None:
        """The key."""
        return self.key

    def add(self, other: FunctionEvent | FunctionEventAvg) -> FunctionEventAvg:
        """Count another event, or average, of the same key; returns self."""
        if not isinstance(other, FunctionEvent | FunctionEventAvg):
            raise AssertionError("other must be a FunctionEvent or FunctionEventAvg")
        if self.key is None:
            self.key, self.node_id, self.scope = other.key, other.node_id, other.scope
            self.input_shapes, self.stack = other.input_shapes, other.stack
            self.cpu_parent = other.cpu_parent
        if other.key != self.key:
            raise AssertionError(f"Event keys must match: {other.key} vs {self.key}")
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.flops += other.flops or 0
        self.cpu_children = [*self.cpu_children, *other.cpu_children]
        return self

    __iadd__ = add

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} self_cpu_time={self.self_cpu_time_total_str} "
            f"cpu_time={self.cpu_time_str} self_device_time={self.self_device_time_total_str} "
            f"device_time={self.device_time_str} input_shapes={self.input_shapes} "
            f"cpu_memory_usage={self.cpu_memory_usage}>"
        )


_SUMS = (
    "count",
    "cpu_time_total",
    "self_cpu_time_total",
    "device_time_total",
    "self_device_time_total",
    "cpu_memory_usage",
    "self_cpu_memory_usage",
    "device_memory_usage",
    "self_device_memory_usage",
)
_SORT_KEYS = (
    "cpu_time",
    "cuda_time",
    "device_time",
    "cpu_time_total",
    "cuda_time_total",
    "device_time_total",
    "self_cpu_time_total",
    "self_cuda_time_total",
    "self_device_time_total",
    "cpu_memory_usage",
    "device_memory_usage",
    "self_cpu_memory_usage",
    "self_device_memory_usage",
    "count",
)


class EventList(list):  # type: ignore[type-arg]
    """A list of FunctionEvents (in order of time) or of FunctionEventAvgs, with table, averages and export."""

    def __init__(
        self,
        events: Iterable[Any] = (),
        *,
        use_device: str | None = None,
        profile_memory: bool = False,
        with_flops: bool = False,
    ) -> None:
        super().__init__(events)
        self._use_device = use_device
        self._profile_memory = profile_memory
        self._with_flops = with_flops

    def __str__(self) -> str:
        return self.table()

    @property
    def self_cpu_time_total(self) -> float:
        """The CPU time of all events, none counted twice, in us."""
        return float(sum(event.self_cpu_time_total for event in self))

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
        """The events as a text table, highest `sort_by` first, `row_limit` rows at most (-1: all).

        sort_by: None (order of time) or one of cpu_time, cpu_time_total, self_cpu_time_total, cuda_time,
        cuda_time_total, cpu_memory_usage, count, ....  time_unit: None, "s", "ms" or "us".  ValueError for others.
        """
        if time_unit not in (None, "s", "ms", "us"):
            raise ValueError(f"time_unit must be one of 's', 'ms', 'us', got {time_unit!r}")
        events: list[Any] = list(self)
        if top_level_events_only:
            events = [e for e in events if e.cpu_parent is None]
        if sort_by is not None:
            if sort_by not in _SORT_KEYS:
                raise ValueError(f"sort_by must be one of {', '.join(_SORT_KEYS)}; got {sort_by!r}")
            events.sort(key=lambda e: getattr(e, sort_by), reverse=True)
        rows = events if row_limit < 0 else events[:row_limit]
        return _table(
            self,
            rows,
            max_name_column_width,
            max_shapes_column_width,
            max_src_column_width,
            header,
            time_unit,
        )

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the events as JSON for chrome://tracing or Perfetto: one complete event ("ph": "X", us) a function.

        An arrow ("ph": "s" to "f") leads from each op to the backward node that it made.
        """
        pid = os.getpid()
        trace = []
        for event in self:
            args: dict[str, Any] = {}
            if event.input_shapes:
                args["Input Dims"] = event.input_shapes
            if event.stack:
                args["Call stack"] = event.stack
            trace.append(
                {
                    "name": event.trace_name,
                    "ph": "X",
                    "ts": event.time_range.start,
                    "dur": event.time_range.elapsed_us(),
                    "tid": event.thread,
                    "pid": pid,
                    "cat": "cpu_op",
                    "args": args,
                }
            )
            at = event.time_range.start
            for kernel in event.kernels:
                trace.append(
                    {
                        "name": kernel.name,
                        "ph": "X",
                        "ts": at,
                        "dur": kernel.duration,
                        "tid": f"stream of device {kernel.device}",
                        "pid": pid,
                        "cat": "kernel",
                        "args": {},
                    }
                )
                at += kernel.duration
        trace += self._arrows(pid)
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": trace}, file)

    def _arrows(self, pid: int) -> list[dict[str, Any]]:
        """The two ends of the arrow from each op to its backward node."""
        forward = {e.sequence_nr: e for e in self if e.sequence_nr >= 0 and e.name.startswith("aten::")}
        found = []
        for event in self:
            op = forward.get(event.sequence_nr) if event.sequence_nr >= 0 else None
            if op is None or op is event:
                continue
            base = {"name": "fwdbwd", "cat": "fwdbwd", "id": event.sequence_nr, "pid": pid}
            found.append({**base, "ph": "s", "tid": op.thread, "ts": op.time_range.start})
            found.append({**base, "ph": "f", "bp": "e", "tid": event.thread, "ts": event.time_range.start})
        return found

    def supported_export_stacks_metrics(self) -> list[str]:
        """The metrics of `export_stacks`."""
        return ["self_cpu_time_total", "self_cuda_time_total", "self_device_time_total"]

    def export_stacks(self, path: str, metric: str) -> None:
        """Write `outer;...;inner N` lines (N: whole us of `metric`) for flame graphs.  ValueError: unknown metric."""
        if metric not in self.supported_export_stacks_metrics():
            raise ValueError(f"metric should be one of: {self.supported_export_stacks_metrics()}")
        table = str.maketrans(" ;\t\n", "____")
        with open(path, "w", encoding="utf-8") as file:
            for event in self:
                value = int(getattr(event, metric))
                if event.stack and value > 0:
                    lines = ";".join(entry.translate(table) for entry in reversed(event.stack))
                    file.write(f"{lines} {value}\n")

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """The events summed by name, and by input shapes or the innermost stack lines if asked: FunctionEventAvgs."""
        stats: dict[Any, FunctionEventAvg] = {}
        for event in self:
            shapes = str(event.input_shapes) if group_by_input_shapes else None
            stack = tuple((event.stack or [])[:group_by_stack_n]) if group_by_stack_n > 0 else None
            key = (event.key, event.node_id, shapes, stack)
            found = stats.get(key)
            if found is None:
                found = stats[key] = FunctionEventAvg()
            found.add(event)
        averages = EventList(
            stats.values(),
            use_device=self._use_device,
            profile_memory=self._profile_memory,
            with_flops=self._with_flops,
        )
        for average in averages:
            if not group_by_input_shapes:
                average.input_shapes = ""
            average.stack = (average.stack or [])[:group_by_stack_n]
        return averages

    def total_average(self) -> FunctionEventAvg:
        """All events as one FunctionEventAvg of key "Total"."""
        total = FunctionEventAvg()
        total.key = "Total"
        for event in self:
            for name in _SUMS:
                setattr(total, name, getattr(total, name) + getattr(event, name))
            total.flops += event.flops or 0
        return total


_FLOPS_UNITS = ((1e15, "PFLOPs"), (1e12, "TFLOPs"), (1e9, "GFLOPs"), (1e6, "MFLOPs"), (1e3, "KFLOPs"), (1.0, "FLOPs"))


def _share(part: float, whole: float) -> str:
    return f"{part * 100 / whole:.2f}%" if whole else "0.00%" if not part else "NaN"


def _clip(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else text[: max(width - 3, 0)] + "..."


def _table(
    whole: EventList,
    rows: Sequence[Any],
    name_width: int,
    shapes_width: int,
    source_width: int,
    header: str | None,
    unit: str | None,
) -> str:
    """The text of `EventList.table`."""
    scale = {"s": 1e6, "ms": 1e3, "us": 1.0}

    def time(us: float) -> str:
        return format_time(us) if unit is None else f"{us / scale[unit]:.3f}{unit}"

    cpu = whole.self_cpu_time_total
    device = float(sum(e.self_device_time_total for e in whole))
    titles = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
    with_device = device > 0 or whole._use_device is not None
    if with_device:
        titles += ["Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg"]
    if whole._profile_memory:
        titles += ["CPU Mem", "Self CPU Mem"]
    titles.append("# of Calls")
    with_shapes = any(e.input_shapes for e in rows)
    if with_shapes:
        titles.append("Input Shapes")
    with_stack = any(e.stack for e in rows)
    if with_stack:
        titles.append("Source Location")
    flops_unit = None
    if whole._with_flops:
        most = max((e.flops or 0 for e in rows), default=0)
        flops_unit = next((u for u in _FLOPS_UNITS if most >= u[0]), _FLOPS_UNITS[-1])
        titles.append(f"Total {flops_unit[1]}")
    lines: list[list[str]] = []
    for e in rows:
        line = [
            _clip(str(e.key), name_width),
            _share(e.self_cpu_time_total, cpu),
            time(e.self_cpu_time_total),
            _share(e.cpu_time_total, cpu),
            time(e.cpu_time_total),
            time(e.cpu_time),
        ]
        if with_device:
            line += [
                time(e.self_device_time_total),
                _share(e.self_device_time_total, device),
                time(e.device_time_total),
                time(e.device_time),
            ]
        if whole._profile_memory:
            line += [format_memory(e.cpu_memory_usage), format_memory(e.self_cpu_memory_usage)]
        line.append(str(e.count))
        if with_shapes:
            line.append(_clip(str(e.input_shapes or "[]"), shapes_width))
        if with_stack:
            line.append(_clip(e.stack[0] if e.stack else "", source_width))
        if flops_unit is not None:
            line.append(f"{e.flops / flops_unit[0]:.3f}" if e.flops else "--")
        lines.append(line)
    widths = [max(len(cell) for cell in column) for column in zip(titles, *lines)]
    rule = "  ".join("-" * width for width in widths)

    def row(cells: Sequence[str]) -> str:
        return "  ".join(cell.rjust(width) for cell, width in zip(cells, widths)).rstrip()

    out = [] if header is None else ["=" * len(rule), header]
    out += [rule, row(titles), rule, *map(row, lines), rule, f"Self CPU time total: {time(cpu)}"]
    if with_device:
        out.append(f"Self CUDA time total: {time(device)}")
    return "\n".join(out) + "\n"
