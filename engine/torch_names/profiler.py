"""torch.profiler's names over `engine.autograd.profiler`: a profile that can be switched by a schedule of steps.

https://docs.pytorch.org/docs/2.13/profiler.html
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from engine.autograd.profiler import EventList, kineto_available, record_function
from engine.autograd.profiler import profile as _Collector
from engine.core.tensor_messages import warn_once

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]


_CLEARED = (
    "Warning: Profiler clears events at the end of each cycle. Only events from the current cycle will be reported. To "
    "keep events across cycles, set acc_events=True."
)


class ProfilerActivity(Enum):
    """The activities to record: operations on the CPU, and whether the device is waited for after each."""

    CPU = 0
    XPU = 1
    MTIA = 2
    CUDA = 3
    HPU = 4
    PrivateUse1 = 5


class ProfilerAction(Enum):
    """The action of the profiler in a step."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def _default_schedule_fn(_: int) -> ProfilerAction:
    """The schedule of a profile without one: every step is recorded."""
    return ProfilerAction.RECORD


def supported_activities() -> set[ProfilerActivity]:
    """The activities that this machine has: CPU, and CUDA where there is one."""
    from engine import cuda

    return {ProfilerActivity.CPU} | ({ProfilerActivity.CUDA} if cuda.is_available() else set())


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """The action of each step: `skip_first` steps nothing, then cycles of wait, warmup and active steps.

    repeat: the number of cycles, 0 for ever.  skip_first_wait: not 0 drops the wait of the first cycle.  Raises
    AssertionError for a negative number, or no active step.
    """
    if min(wait, warmup, repeat, skip_first) < 0 or active <= 0:
        raise AssertionError(
            f"Invalid profiler schedule arguments. Got wait={wait} (need >= 0), warmup={warmup} (need >= 0), "
            f"active={active} (need > 0), repeat={repeat} (need >= 0), skip_first={skip_first} (need >= 0)."
        )
    if not warmup:
        warnings.warn("Profiler won't be using warmup, this can skew profiler results", stacklevel=2)
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        if step < 0:
            raise AssertionError(f"Step must be non-negative. Got {step}.")
        if step < skip_first:
            return ProfilerAction.NONE
        step -= skip_first
        if skip_first_wait:
            step += wait
        if repeat and step >= repeat * length:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD_AND_SAVE if at == length - 1 else ProfilerAction.RECORD

    return action


def _always(_: int) -> ProfilerAction:
    return ProfilerAction.RECORD


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each trace to a file of its own in a folder, which is made if need be."""

    def handler(finished: profile) -> None:
        os.makedirs(dir_name, exist_ok=True)
        worker = worker_name or f"{platform.node()}_{os.getpid()}"
        suffix = ".gz" if use_gzip else ""
        name = f"{worker}.{time.time_ns()}.pt.trace.json{suffix}"
        finished.export_chrome_trace(os.path.join(dir_name, name))

    return handler


class profile:
    """Context, or `start()` and `stop()`, that records what the steps of a program run.

    activities: with ProfilerActivity.CUDA the device is waited for after each operation.  schedule: from the number of
    a step (`step()` ends one) to its action; without one everything is recorded.  on_trace_ready(self): called when a
    recording ends.  record_shapes, profile_memory, with_stack, with_flops: as `engine.autograd.profiler.profile`.
    The other options of torch are accepted and do nothing.  The events are those of the last recording; before there is
    one, RuntimeError.

        with profile(schedule=schedule(wait=1, warmup=1, active=3), on_trace_ready=print) as prof:
            for batch in batches:
                train(batch)
                prof.step()
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[profile], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
        post_processing_timeout_s: float | None = None,
    ) -> None:
        self.activities = set(supported_activities() if activities is None else activities)
        left = self.activities
        if use_cuda is not None:  # what it says has no effect but the error below, as in torch
            warnings.warn("`use_cuda` is deprecated, use `activities` argument instead", FutureWarning, stacklevel=2)
            left = left | {ProfilerActivity.CUDA} if use_cuda else left - {ProfilerActivity.CUDA}
        if not left:
            raise AssertionError("No valid profiler activities found")
        self.schedule = schedule or _always
        self.on_trace_ready = on_trace_ready
        self._options = {
            "record_shapes": record_shapes,
            "profile_memory": profile_memory,
            "with_stack": with_stack,
            "with_flops": with_flops,
        }
        self.record_steps = schedule is not None
        self.step_num = 0
        self.current_action = ProfilerAction.NONE
        self.profiler: _Collector | None = None
        self._recording = False
        self._label: record_function | None = None

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Begin with step `step_num`."""
        self._enter(self.schedule(self.step_num))

    def stop(self) -> None:
        """End the last step, and what it records."""
        self._end_label()
        self._enter(ProfilerAction.NONE)

    def step(self) -> None:
        """End a step and begin the next."""
        self._end_label()
        self.step_num += 1
        if self._recording and self.current_action is ProfilerAction.RECORD_AND_SAVE:
            self._finish()
        self._enter(self.schedule(self.step_num))

    def _enter(self, action: ProfilerAction) -> None:
        records = action in (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        if not self._recording and action is not ProfilerAction.NONE:
            if self.profiler is not None and self.current_action is not ProfilerAction.WARMUP:
                warn_once("profiler cycle", _CLEARED)
            device = "cuda" if ProfilerActivity.CUDA in self.activities else None
            self.profiler = _Collector(use_device=device, **self._options)
            if records:
                self.profiler.__enter__()
                self._recording = True
        elif self._recording and not records:
            self._finish()
        elif action is ProfilerAction.NONE and self.current_action is ProfilerAction.WARMUP:
            assert self.profiler is not None
            with self.profiler:  # ended before anything was recorded
                pass
        self.current_action = action
        if self.record_steps and records:
            self._label = record_function(f"ProfilerStep#{self.step_num}")
            self._label.__enter__()

    def _end_label(self) -> None:
        if self._label is not None:
            self._label.__exit__(None, None, None)
            self._label = None

    def _finish(self) -> None:
        assert self.profiler is not None
        self._recording = False
        self.profiler.__exit__(None, None, None)
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def _last(self) -> _Collector:
        if self.profiler is None:
            raise RuntimeError("the profiler has recorded nothing yet")
        return self.profiler

    def events(self) -> EventList:
        """Every event of the last recording, in order of time."""
        return self._last()._finished()

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_overload_name: bool = False
    ) -> EventList:
        """The events summed by name (and input shapes)."""
        return self._last().key_averages(group_by_input_shape, group_by_stack_n)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing; compressed where the name ends in .gz."""
        if not path.endswith(".gz"):
            self._last().export_chrome_trace(path)
            return
        import gzip
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            plain = os.path.join(folder, "trace.json")
            self._last().export_chrome_trace(plain)
            with open(plain, "rb") as source, gzip.open(path, "wb") as target:
                target.write(source.read())

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        """Write stacks for flame graphs; needs with_stack=True."""
        self._last().export_stacks(path, metric)
