"""Times of small pieces of code: torch.utils.benchmark's Timer, Measurement and Compare.

Each time is the median of several runs of a statement, all of them with one number of threads
(https://docs.pytorch.org/docs/2.13/benchmark_utils.html).  Not here: callgrind, fuzzed inputs and C++.
"""

from __future__ import annotations

import dataclasses
import timeit as _timeit
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from engine.torch_names.facade import facade

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer"]


def timer() -> float:
    """Seconds now, when the GPU has done what it was given, if it was used."""
    from engine import cuda

    if cuda.is_initialized():
        cuda.synchronize()
    return _timeit.default_timer()


@dataclasses.dataclass(frozen=True)
class TaskSpec:
    """The statement to measure, its setup and its labels in tables."""

    stmt: str
    setup: str = ""
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, else the statement."""
        if self.label is not None:
            return self.label + (f": {self.sub_label}" if self.sub_label else "")
        return self.stmt if "\n" not in self.stmt else "[" + self.stmt.strip().split("\n")[0] + " ...]"


def select_unit(t: float) -> tuple[str, float]:
    """Return the unit in which a time in seconds reads best, and the seconds in it."""
    for unit, scale in (("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3)):
        if t < scale * 1000:
            return unit, scale
    return "s", 1.0


@dataclasses.dataclass
class Measurement:
    """Times of one statement: `raw_times` in seconds, each of `number_per_run` runs in a row."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = None

    @property
    def times(self) -> list[float]:
        """Seconds a run."""
        return [time / self.number_per_run for time in self.raw_times]

    @property
    def mean(self) -> float:
        """Seconds a run, in the mean."""
        return float(np.mean(self.times))

    @property
    def median(self) -> float:
        """Seconds a run, in the median."""
        return float(np.median(self.times))

    @property
    def iqr(self) -> float:
        """Seconds between the first and the third quartile."""
        low, high = np.percentile(self.times, (25, 75))
        return float(high - low)

    @property
    def has_warnings(self) -> bool:
        """Return whether the quartiles lie more than a tenth of the median apart."""
        return self.iqr > 0.1 * self.median

    def __getattr__(self, name: str) -> Any:
        if name in ("title", *(field.name for field in dataclasses.fields(TaskSpec))):
            return getattr(self.task_spec, name)
        raise AttributeError(name)

    def __repr__(self) -> str:
        unit, scale = select_unit(self.median)
        what, lines = self.task_spec, [f"{type(self).__module__}.{type(self).__name__}", self.task_spec.title]
        lines += [what.description] if what.description else []
        lines += [f"setup: {what.setup}"] if what.setup not in ("", "pass") else []
        runs, threads = self.number_per_run, what.num_threads
        after = f"{threads} thread{'s' * (threads != 1)}"
        if len(self.times) == 1:
            return "\n".join([*lines, f"  {self.median / scale:.2f} {unit}", f"  1 measurement, {runs} runs, {after}"])
        low, high = np.percentile(self.times, (25, 75)) / scale
        lines.append(f"  Median: {self.median / scale:.2f} {unit}")
        lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low:.2f} to {high:.2f})")
        lines.append(f"  {len(self.times)} measurements, {runs} runs per measurement, {after}")
        if self.has_warnings:
            lines.append(f"  WARNING: the quartiles lie {self.iqr / self.median:.0%} of the median apart")
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One for each statement, with the times of all of its measurements a run."""
        found: dict[TaskSpec, list[float]] = {}
        for one in measurements:
            found.setdefault(one.task_spec, []).extend(one.times)
        return [Measurement(1, times, spec) for spec, times in found.items()]


class Timer:
    """Times of `stmt`, after `setup`, with `num_threads` threads (1 unless said otherwise).

    globals: the names that both see.  label, sub_label, description, env: how tables call it.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: Any = "python",
    ) -> None:
        if str(language).lower() not in ("python", "py", "language.python"):
            raise NotImplementedError("torch.utils.benchmark.Timer measures Python, no C++: language='python'")
        if global_setup:
            raise ValueError("global_setup is for C++; put it into setup")
        import textwrap

        names = {"torch": facade(), **(globals or {})}
        stmt, setup = textwrap.dedent(stmt).strip(), textwrap.dedent(setup).strip()
        self._timer = _timeit.Timer(stmt, setup or "pass", timer, names)
        self._task_spec = TaskSpec(stmt, setup, "", label, sub_label, description, env, num_threads)

    def _times(self, number: int, repeat: int = 1) -> list[float]:
        torch = facade()
        before = torch.get_num_threads()
        torch.set_num_threads(self._task_spec.num_threads)
        try:
            return [self._timer.timeit(number) for _ in range(repeat)]
        finally:
            torch.set_num_threads(before)

    def timeit(self, number: int = 1000000) -> Measurement:
        """The time of `number` runs in a row, after a hundredth of them to get warm."""
        self._times(max(number // 100, 2))
        return Measurement(number, self._times(number), self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """NotImplementedError, as in torch: `blocked_autorange` says how often."""
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    autorange = repeat

    def _block(self, min_run_time: float) -> int:
        """So many runs in a row that looking at the clock does not count: a thousandth of the time at least."""
        self._times(2)
        number = 1
        while True:
            took = self._times(number)[0]
            if took >= min(1e-3, min_run_time / 1000) or took * 10 >= min_run_time:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], None] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of runs until `min_run_time` seconds have passed; their median tells."""
        number, times = self._block(min_run_time), list[float]()
        while sum(times) < min_run_time:
            times += self._times(number)
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._task_spec)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], None] | None = None,
    ) -> Measurement:
        """Blocks of runs until the quartiles lie at most `threshold` of the median apart, or the time is over."""
        number, times = self._block(min_run_time), list[float]()
        while True:
            times += self._times(number)
            if callback is not None:
                callback(number, times[-1])
            made = Measurement(number, times, self._task_spec)
            stable = len(times) > 3 and made.iqr <= threshold * made.median
            if sum(times) > min_run_time and (stable or sum(times) > max_run_time):
                return made


class Compare:
    """A table of measurements: a row a sub_label and number of threads, a column a description, a block a label."""

    def __init__(self, results: list[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """More rows.  ValueError for what is no Measurement."""
        results = list(results)
        for one in results:
            if not isinstance(one, Measurement):
                raise ValueError(f"Expected an instance of `Measurement`, got {type(one)} instead.")
        self._results += results

    def trim_significant_figures(self) -> None:
        """Nothing: numbers are shown with as many places as they have."""

    def colorize(self, rowwise: bool = False) -> None:
        """Nothing: tables are plain text."""

    highlight_warnings = trim_significant_figures

    def __str__(self) -> str:
        blocks: dict[str, list[Measurement]] = {}
        for one in Measurement.merge(self._results):
            blocks.setdefault(one.task_spec.label or one.task_spec.stmt, []).append(one)
        return "\n\n".join(self._block(title, rows) for title, rows in blocks.items())

    def _block(self, title: str, rows: list[Measurement]) -> str:
        unit, scale = select_unit(min(one.median for one in rows))
        columns = list(dict.fromkeys(one.task_spec.description or "" for one in rows))
        names = {id(one): f"{one.task_spec.sub_label or one.task_spec.stmt}" for one in rows}
        cells: dict[int, dict[str, dict[str, str]]] = {}
        for one in rows:
            row = cells.setdefault(one.task_spec.num_threads, {}).setdefault(names[id(one)], {})
            row[one.task_spec.description or ""] = f"{one.median / scale:.4g}"
        first = max(len("1 threads:"), *(len(name) + 6 for name in names.values()))
        wide = {name: max(len(name), 8) for name in columns}
        head = " " * first + "".join(f"  |  {name:>{wide[name]}}" for name in columns)
        lines = [f"[{f' {title} ':-^{len(head) - 2}}]", head]
        for threads, found in cells.items():
            lines.append(f"{f'{threads} threads: ':-<{len(head)}}")
            for name, row in found.items():
                shown = "".join(f"  |  {row.get(column, ''):>{wide[column]}}" for column in columns)
                lines.append(f"{'      ' + name:<{first}}{shown}")
        english = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}[unit]
        return "\n".join([*lines, "", f"Times are in {english} ({unit})."])

    def print(self) -> None:
        """The table."""
        print(str(self))
