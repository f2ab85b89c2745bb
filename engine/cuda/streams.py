"""torch.cuda.streams: queues of work on a GPU, and marks in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from engine.core.device import device as _device
from engine.cuda._device import index_of, library, runtime

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]


class Stream:
    """A queue of work on the GPU, beside the default one: `with torch.cuda.stream(s):` sends work to it.

    Work of different streams is in no order but by `wait_stream`, `wait_event`.  RuntimeError without a GPU.
    """

    def __init__(self, device: Any = None, priority: int = 0, **kwargs: Any) -> None:
        own = kwargs.get("_stream")
        module = library()
        with runtime().on_device(None if device is None else index_of(device)):
            self.device_index = int(module.cuda.runtime.getDevice())
            if own is None:
                options = {"priority": priority} if priority else {}
                own = module.cuda.Stream(non_blocking=True, **options)
        self._stream, self.priority = own, priority
        self._outer: list[Any] = []

    @property
    def device(self) -> _device:
        """The GPU of the stream."""
        return _device("cuda", self.device_index)

    @property
    def cuda_stream(self) -> int:
        """The handle, as an integer."""
        return int(self._stream.ptr)

    stream_id = cuda_stream

    def synchronize(self) -> None:
        """Wait for its work."""
        runtime().refuse_in_capture("Stream.synchronize()")
        self._stream.synchronize()

    def query(self) -> bool:
        """Return whether its work is done."""
        return bool(self._stream.done)

    def wait_event(self, event: Event) -> None:
        """Let later work wait for an event."""
        self._stream.wait_event(event._event)

    def wait_stream(self, stream: Stream) -> None:
        """Let later work wait for the work that another stream has now."""
        with runtime().on_device(stream.device_index):
            mark = library().cuda.Event(disable_timing=True)
            mark.record(stream._stream)
        self._stream.wait_event(mark)

    def record_event(self, event: Event | None = None) -> Event:
        """Mark this point; the event."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> Stream:
        context = stream(self)
        context.__enter__()
        self._outer.append(context)
        return self

    def __exit__(self, *exc: Any) -> None:
        self._outer.pop().__exit__(*exc)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.cuda_stream, self.device_index) == (
            other.cuda_stream,
            other.device_index,
        )

    def __hash__(self) -> int:
        return hash((self.cuda_stream, self.device_index))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


class ExternalStream(Stream):
    """A stream that another library made, by its handle; that library keeps it alive."""

    def __init__(self, stream_ptr: int, device: Any = None) -> None:
        super().__init__(device, _stream=library().cuda.ExternalStream(stream_ptr))


class Event:
    """A mark in a stream.  RuntimeError without a GPU."""

    def __init__(
        self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> None:
        self._event = library().cuda.Event(block=blocking, disable_timing=not enable_timing, interprocess=interprocess)
        self._timed, self._recorded = enable_timing, False

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of a stream (the current one)."""
        self._event.record(*(() if stream is None else (stream._stream,)))
        self._recorded = True

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work of a stream (the current one) wait for the mark."""
        (library().cuda.get_current_stream() if stream is None else stream._stream).wait_event(self._event)

    def synchronize(self) -> None:
        """Wait for the mark."""
        runtime().refuse_in_capture("Event.synchronize()")
        self._event.synchronize()

    def query(self) -> bool:
        """Return whether the mark was reached."""
        return bool(self._event.done)

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this mark to another.  ValueError where one was not made for it or not recorded."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if not (self._recorded and end_event._recorded):
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise ValueError("Both events must be completed before calculating elapsed time.")
        return float(library().cuda.get_elapsed_time(self._event, end_event._event))


def current_stream(device: Any = None) -> Stream:
    """The stream in use on a GPU.  RuntimeError without one."""
    index = index_of(device)
    return Stream(index, _stream=library().cuda.get_current_stream(index))


def default_stream(device: Any = None) -> Stream:
    """The stream used where none is chosen.  RuntimeError without a GPU."""
    index = index_of(device)
    with runtime().on_device(index):
        return Stream(index, _stream=library().cuda.Stream.null)


def set_stream(stream: Stream) -> None:
    """Make a stream, and its GPU, the current one; None changes nothing."""
    if stream is not None:
        library().cuda.runtime.setDevice(stream.device_index)
        runtime().set_stream(stream._stream)


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """A context in which work goes to a stream, on its GPU; None changes nothing."""
    if stream is None:
        yield
    else:
        with runtime().on_device(stream.device_index), runtime().on_stream(stream._stream):
            yield


StreamContext = stream
