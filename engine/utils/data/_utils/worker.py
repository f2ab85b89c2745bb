"""A worker process of a DataLoader.

Everything it is given is pickled, so that it works with every start method (`fork`, `spawn`, `forkserver`).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
import queue
import random as python_random
from collections.abc import Callable
from typing import Any

import numpy as np

from engine.backends.cpu import threads
from engine.ops import functions as torch
from engine.utils.data._utils.fetch import create_fetcher
from engine.utils.data._utils.segments import Sender
from engine.utils.torch_utils import ExceptionWrapper

__all__ = ["ExceptionWrapper", "WorkerInfo", "get_worker_info"]


POLL = 0.5  # seconds between two looks at whether the loader is still there


class WorkerInfo:
    """The description of a worker: `id` (0 to num_workers - 1), `num_workers`, `seed`, `dataset` (its copy)."""

    id: int
    num_workers: int
    seed: int
    dataset: Any

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"Cannot assign attributes to {type(self).__name__} objects")

    def __repr__(self) -> str:
        return f"WorkerInfo({', '.join(f'{k}={v}' for k, v in self.__dict__.items())})"


_worker_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """The WorkerInfo of this worker process; None in the main process."""
    return _worker_info


class Flag:
    """A bool of two processes, set once.  It has no lock: a worker that is killed while it looks would keep it."""

    def __init__(self, context: Any) -> None:
        self._value = context.RawValue("b", 0)

    def set(self) -> None:
        """Set it, for every process that has it."""
        self._value.value = 1

    def is_set(self) -> bool:
        """Return whether some process has set it."""
        return bool(self._value.value)


class Iterating:
    """Sentinel: begin another epoch (persistent workers)."""

    def __init__(self, seed: int) -> None:
        self.seed = seed


class Ended:
    """Sentinel: the stream of this worker has ended."""

    def __init__(self, worker: int) -> None:
        self.worker = worker


def _wrapped(error: BaseException, worker: int) -> ExceptionWrapper:
    return ExceptionWrapper((type(error), error, error.__traceback__), f"in DataLoader worker process {worker}")


def _portable(error: ExceptionWrapper) -> ExceptionWrapper:
    """The wrapper with a type that the main process can unpickle."""

    try:
        pickle.loads(pickle.dumps(error.exc_type))
    except Exception:
        error.exc_type = RuntimeError
    return error


def _send(sender: Sender, message: tuple[Any, Any], worker: int) -> None:
    """Send a message; an error of pickling it is one of this item and not a silent loss."""
    try:
        sender.send(message)
    except OSError:  # nobody listens any more
        raise
    except Exception as error:
        wrapped = _portable(_wrapped(error, worker))
        sender.send((message[0], wrapped))


def worker_loop(
    iterable: bool,
    dataset: Any,
    index_queue: Any,
    connection: Any,
    done: Flag,
    auto_collation: bool,
    collate_fn: Callable[[Any], Any],
    drop_last: bool,
    base_seed: int,
    init_fn: Callable[[int], None] | None,
    worker: int,
    num_workers: int,
) -> None:
    """Take (task, index, freed segments) from `index_queue`, send (task, data), until None or the parent's end."""
    global _worker_info
    sender = Sender(connection)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the parent has ended, or this loader
        _loop(
            iterable,
            dataset,
            index_queue,
            sender,
            done,
            auto_collation,
            collate_fn,
            drop_last,
            base_seed,
            init_fn,
            worker,
            num_workers,
        )


def _loop(
    iterable: bool,
    dataset: Any,
    index_queue: Any,
    sender: Sender,
    done: Flag,
    auto_collation: bool,
    collate_fn: Callable[[Any], Any],
    drop_last: bool,
    base_seed: int,
    init_fn: Callable[[int], None] | None,
    worker: int,
    num_workers: int,
) -> None:
    global _worker_info
    parent = multiprocessing.parent_process()
    init_error: ExceptionWrapper | None = None
    fetcher: Any = None
    ended = False
    try:
        threads.set_num_threads(1)
        seed = base_seed + worker
        python_random.seed(seed)
        torch.manual_seed(seed)
        np.random.seed(np.random.SeedSequence([base_seed, worker]).generate_state(4))
        _worker_info = WorkerInfo(id=worker, num_workers=num_workers, seed=seed, dataset=dataset)
        if init_fn is not None:
            init_fn(worker)
        fetcher = create_fetcher(iterable, dataset, auto_collation, collate_fn, drop_last)
    except Exception as error:
        init_error = _portable(_wrapped(error, worker))
    while True:
        try:
            job = index_queue.get(timeout=POLL)
        except queue.Empty:
            if done.is_set() or (parent is not None and not parent.is_alive()):
                break
            continue
        if isinstance(job, Iterating):
            _send(sender, (job, None), worker)
            ended = False
            try:
                fetcher = create_fetcher(iterable, dataset, auto_collation, collate_fn, drop_last)
            except Exception as error:
                init_error = _portable(_wrapped(error, worker))
            continue
        if job is None:
            break
        if done.is_set():
            break
        if ended:
            continue
        task, index, freed = job
        sender.freed(freed)
        data: Any
        if init_error is not None:
            data, init_error = init_error, None
        else:
            try:
                data = fetcher.fetch(index)
            except StopIteration as error:
                if iterable:
                    data, ended = Ended(worker), True
                else:
                    data = _wrapped(error, worker)
            except Exception as error:
                data = _portable(_wrapped(error, worker))
        _send(sender, (task, data), worker)
