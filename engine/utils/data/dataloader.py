"""`DataLoader`: batches of a data set, made in this process or in worker processes.

https://docs.pytorch.org/docs/2.13/data.html#torch.utils.data.DataLoader

Note [Order of batches]
Each batch is a task with a number.  Workers get tasks in turn (round robin, `prefetch_factor` each ahead) and answer in
any order; answers wait until theirs is the next number.  So the order, and with a seeded generator the content, does
not depend on the number of workers for data sets with an index.  Answers come as in Note [Segments]; each worker has a
pipe of its own, whose end says at once that it is gone, and which a killed worker cannot leave locked.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import multiprocessing.connection
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from engine.random import Generator
from engine.utils.data._utils import MP_STATUS_CHECK_INTERVAL
from engine.utils.data._utils.collate import default_collate, default_convert
from engine.utils.data._utils.fetch import create_fetcher
from engine.utils.data._utils.pin_memory import pin_memory as _pinned
from engine.utils.data._utils.segments import Receiver
from engine.utils.data._utils.worker import (
    Ended,
    ExceptionWrapper,
    Flag,
    Iterating,
    get_worker_info,
    worker_loop,
)
from engine.utils.data.dataset import Dataset, IterableDataset
from engine.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    draw_seed,
)

__all__ = ["DataLoader", "default_collate", "default_convert", "get_worker_info"]

_T = TypeVar("_T", covariant=True)


def _warn_of_many(num_workers: int) -> None:
    """Warn of more workers than this process has CPUs."""
    allowed = hasattr(os, "sched_getaffinity")
    count = len(os.sched_getaffinity(0)) if allowed else os.cpu_count() or num_workers
    if num_workers > count:
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested max number of worker "
            f"in current system is {count}{'' if allowed else ' (`cpuset` is not taken into account)'}, which is "
            "smaller than what this DataLoader is going to create. Please be aware that excessive worker creation "
            "might get DataLoader running slow or even freeze, lower the worker number to avoid potential "
            "slowness/freeze if necessary.",
            stacklevel=3,
        )


class _DatasetKind:
    Map = 0
    Iterable = 1


class _InfiniteConstantSampler(Sampler[None]):
    """None for ever: what a stream is indexed by."""

    def __iter__(self) -> Iterator[None]:
        return itertools.repeat(None)


class DataLoader(Generic[_T]):
    """Iterate over the batches of a data set.

    dataset: with `__getitem__` and `__len__`, or an IterableDataset.  batch_size: items a batch, None for single items.
    shuffle: a new random order each epoch.  sampler, batch_sampler: another order.  num_workers: processes that make
    batches, 0 for none.  collate_fn: list of items -> batch (`default_collate`).  drop_last: leave an incomplete last
    batch out.  timeout: seconds to wait for a worker, 0 for ever (RuntimeError after it).  worker_init_fn(worker id):
    called in each worker.  generator: source of the order and of the workers' seeds.  prefetch_factor: batches each
    worker makes ahead (2).  persistent_workers: keep them for the next epoch.  multiprocessing_context: a start method
    ("fork", "spawn", "forkserver") or a context.  pin_memory does nothing on the CPU; in_order=False hands batches over
    as they come.  ValueError for options that exclude each other; an exception of a worker is raised here with its
    traceback in the message.
    """

    _iterator: Any = None
    __initialized = False

    def __init__(
        self,
        dataset: Dataset[_T],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[Any] | Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing.let num_workers > 0 to enable "
                "multiprocessing, otherwise set prefetch_factor to None."
            )
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        elif prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        _warn_of_many(num_workers)
        self.dataset = dataset
        self.num_workers, self.prefetch_factor = num_workers, prefetch_factor
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.timeout, self.worker_init_fn, self.in_order = timeout, worker_init_fn, in_order
        self.multiprocessing_context = multiprocessing_context
        if isinstance(dataset, IterableDataset):
            self._dataset_kind = _DatasetKind.Iterable
            if shuffle not in (False, None):
                raise ValueError(
                    f"DataLoader with IterableDataset: expected unspecified shuffle option, but got shuffle={shuffle}"
                )
            for name, value in (("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value is not None:
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        else:
            shuffle = bool(shuffle)
            self._dataset_kind = _DatasetKind.Map
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size, drop_last = None, False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._dataset_kind == _DatasetKind.Iterable:
                sampler = _InfiniteConstantSampler()
            elif shuffle:
                sampler = RandomSampler(dataset, generator=generator)  # type: ignore[arg-type]
            else:
                sampler = SequentialSampler(dataset)  # type: ignore[arg-type]
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)  # type: ignore[arg-type]
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self.persistent_workers = persistent_workers
        self._warned_length = False
        self.__initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")
        if self.__initialized and name in fixed:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> Any:
        """The context that starts workers; None for the platform's default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        if context is not None:
            if self.num_workers == 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(
                        f"multiprocessing_context option should specify a valid start method in {methods!r}, but got "
                        f"multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            elif not isinstance(context, multiprocessing.context.BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the start "
                    f"method, but got multiprocessing_context={context}"
                )
        self._context = context

    @property
    def _auto_collation(self) -> bool:
        return self.batch_sampler is not None

    @property
    def _index_sampler(self) -> Any:
        return self.batch_sampler if self._auto_collation else self.sampler

    def _get_iterator(self) -> _BaseDataLoaderIter:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        return _MultiProcessingDataLoaderIter(self)

    def __iter__(self) -> _BaseDataLoaderIter:
        if not self.persistent_workers:
            return self._get_iterator()
        if self._iterator is None:
            self._iterator = self._get_iterator()
        else:
            self._iterator._reset(self)
        return self._iterator  # type: ignore[no-any-return]

    def __len__(self) -> int:
        """The number of batches; of an IterableDataset as far as its own length goes."""
        if self._dataset_kind != _DatasetKind.Iterable:
            return len(self._index_sampler)
        length = len(self.dataset)  # type: ignore[arg-type]
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


class _BaseDataLoaderIter:
    """One epoch."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        self._loader = loader
        self._iterable = loader._dataset_kind == _DatasetKind.Iterable
        self._begin()

    def _begin(self) -> None:
        self._base_seed = draw_seed(self._loader.generator)
        self._indices = iter(self._loader._index_sampler)
        self._given = 0

    def _reset(self, loader: DataLoader[Any]) -> None:
        self._begin()

    def __iter__(self) -> _BaseDataLoaderIter:
        return self

    def _next_data(self) -> Any:
        raise NotImplementedError

    def __next__(self) -> Any:
        data = self._next_data()
        loader = self._loader
        self._given += 1
        if self._iterable and not loader._warned_length and hasattr(loader.dataset, "__len__"):
            try:
                length = len(loader)
            except (TypeError, NotImplementedError):
                return data
            if self._given > length:
                loader._warned_length = True
                message = (
                    f"Length of IterableDataset {loader.dataset} was reported to be {length}(when accessing "
                    f"len(dataloader)), but {self._given} samples have been fetched. "
                )
                if loader.num_workers > 0:
                    message += (
                        "For multiprocessing data-loading, this could be caused by not properly configuring the "
                        "IterableDataset replica at each worker. Please see "
                        "https://pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset for examples."
                    )
                warnings.warn(message, stacklevel=2)
        return data

    def __len__(self) -> int:
        return len(self._loader._index_sampler)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", type(self).__name__)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    def _begin(self) -> None:
        super()._begin()
        loader = self._loader
        self._fetcher = create_fetcher(
            self._iterable, loader.dataset, loader._auto_collation, loader.collate_fn, loader.drop_last
        )

    def _next_data(self) -> Any:
        data = self._fetcher.fetch(next(self._indices))
        return _pinned(data) if self._loader.pin_memory else data


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """See Note [Order of batches]."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        super().__init__(loader)
        context = loader._context or multiprocessing.get_context()
        self._closed = False
        self._process = os.getpid()
        self._workers: list[Any] = []
        self._queues: list[Any] = []
        self._receivers: dict[int, Receiver] = {}  # of the workers that have not ended
        self._done = Flag(context)
        for i in range(loader.num_workers):
            jobs = context.Queue()
            jobs.cancel_join_thread()
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=worker_loop,
                args=(
                    self._iterable,
                    loader.dataset,
                    jobs,
                    theirs,
                    self._done,
                    loader._auto_collation,
                    loader.collate_fn,
                    loader.drop_last,
                    self._base_seed,
                    loader.worker_init_fn,
                    i,
                    loader.num_workers,
                ),
                daemon=True,
            )
            worker.start()
            theirs.close()  # the worker's alone: its end is the pipe's
            self._receivers[i] = Receiver(ours)
            self._queues.append(jobs)
            self._workers.append(worker)
        self._prime()

    def _prime(self) -> None:
        """The state of a new epoch, and the first tasks."""
        self._sent = self._wanted = 0  # the numbers of the next task to send and to hand over
        self._waiting: dict[int, int] = {}  # task -> worker
        self._arrived: dict[int, Any] = {}
        self._live = [True] * len(self._workers)  # has not reached the end of its stream
        self._turn = itertools.cycle(range(len(self._workers)))
        for _ in range((self._loader.prefetch_factor or 0) * len(self._workers)):
            self._send()

    def _reset(self, loader: DataLoader[Any]) -> None:
        super()._reset(loader)
        while self._waiting:  # an epoch that was left early
            task, data = self._receive()
            self._answered(task, data)
        for jobs in self._queues:
            jobs.put(Iterating(self._base_seed))
        left = len(self._queues)
        while left:
            task, _ = self._receive()
            left -= isinstance(task, Iterating)
        self._prime()

    def _send(self) -> None:
        """Give the next task to the next worker whose stream goes on."""
        try:
            index = next(self._indices)
        except StopIteration:
            return
        for _ in self._workers:
            i = next(self._turn)
            if self._live[i]:
                self._queues[i].put((self._sent, index, self._receivers[i].freed()))
                self._waiting[self._sent] = i
                self._sent += 1
                return

    def _receive(self) -> tuple[Any, Any]:
        """The next answer of any worker.  RuntimeError when one died, or after `timeout`."""
        timeout = self._loader.timeout
        deadline = time.monotonic() + timeout if timeout else None
        while True:
            wait = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            talking = {receiver.connection: i for i, receiver in self._receivers.items()}
            for connection in multiprocessing.connection.wait(list(talking), wait):
                i = talking[connection]
                try:
                    return self._receivers[i].receive()  # type: ignore[no-any-return]
                except (EOFError, ConnectionResetError):
                    self._has_ended(i)
            if deadline is not None and time.monotonic() >= deadline:
                self._shutdown_workers()
                raise RuntimeError(f"DataLoader timed out after {timeout} seconds")

    def _has_ended(self, i: int) -> None:
        """Worker `i` has closed its pipe: RuntimeError with the reason, unless its stream had ended."""
        worker = self._workers[i]
        worker.join(MP_STATUS_CHECK_INTERVAL)
        self._receivers.pop(i).connection.close()
        if not self._live[i] and not worker.exitcode:
            return
        code = worker.exitcode
        if code is not None and code < 0:
            reason = f"killed by signal {signal.Signals(-code).name}"
        else:
            reason = f"exit code {code}"
        self._shutdown_workers()
        raise RuntimeError(
            f"DataLoader worker (pid(s) {worker.pid}) exited unexpectedly: {reason}. The traceback, if there was one, "
            "is in the worker's own output; num_workers=0 shows it here"
        )

    def _answered(self, task: int, data: Any) -> None:
        """Note the answer of a worker; one whose stream has ended answers no further task."""
        worker = self._waiting.pop(task)
        if isinstance(data, Ended):
            self._live[worker] = False
            for lost in [t for t, w in self._waiting.items() if w == worker]:
                del self._waiting[lost]

    def _next_data(self) -> Any:
        if self._closed:
            raise StopIteration
        while True:
            if not self._waiting and not self._arrived:
                self._send()  # with prefetch_factor=0, and after the last worker of a stream that ended early
                if not self._waiting:
                    if not self._loader.persistent_workers:
                        self._shutdown_workers()
                    raise StopIteration
            ordered = self._loader.in_order
            while self._wanted not in self._waiting and self._wanted not in self._arrived and self._wanted < self._sent:
                self._wanted += 1  # tasks that met the end of a stream
            if ordered and self._wanted in self._arrived:
                task = self._wanted
                data = self._arrived.pop(task)
                self._wanted += 1
            else:
                task, data = self._receive()
                self._answered(task, data)
                if isinstance(data, Ended):
                    if not self._loader.persistent_workers:
                        self._queues[data.worker].put(None)
                    self._send()
                    continue
                if ordered and task != self._wanted:
                    self._arrived[task] = data
                    continue
                self._wanted = max(self._wanted, task + 1) if ordered else self._wanted
            self._send()
            if isinstance(data, ExceptionWrapper):
                data.reraise()
            return _pinned(data) if self._loader.pin_memory else data

    def _shutdown_workers(self) -> None:
        """Stop the workers and wait for them; those that do not stop are ended."""
        if self._closed:
            return
        self._closed = True
        self._done.set()
        with contextlib.suppress(ValueError):  # closed before us by the garbage collector
            for jobs in self._queues:
                jobs.put(None)
        for receiver in self._receivers.values():
            receiver.connection.close()  # a worker that waits to send is told so
        for worker in self._workers:
            worker.join(timeout=MP_STATUS_CHECK_INTERVAL)
            if worker.is_alive():
                worker.terminate()
                worker.join()
        for jobs in self._queues:
            jobs.cancel_join_thread()
            jobs.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True) or self._process != os.getpid():  # a forked worker has a copy
            return
        with contextlib.suppress(Exception):  # the interpreter is going down
            self._shutdown_workers()
