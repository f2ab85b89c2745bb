"""The rendezvous of a job's processes, which gives them store, rank and number: `env://`, `tcp://host:port`, `file:///path`.

https://docs.pytorch.org/docs/2.13/distributed.html#initialization
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from urllib.parse import parse_qsl, urlsplit

from engine.distributed.file_store import FileStore
from engine.distributed.store import TIMEOUT, Store, TCPStore

__all__ = ["rendezvous"]


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: environment variable "
            f"{name} expected, but not set"
        )
    return value


def rendezvous(
    url: str, rank: int = -1, world_size: int = -1, timeout: datetime.timedelta = TIMEOUT
) -> Iterator[tuple[Store, int, int]]:
    """Give once the store, this process's rank and the number of processes, as an iterator.

    Raises ValueError for what is missing, RuntimeError for an unknown scheme and when it is asked a second time,
    DistNetworkError where the store cannot be had within `timeout`.
    """
    yield _found(url, rank, world_size, timeout)
    raise RuntimeError(f"Unable to perform rerendezvous using {urlsplit(url).scheme}:// method")


def _found(url: str, rank: int, world_size: int, timeout: datetime.timedelta) -> tuple[Store, int, int]:
    parts = urlsplit(url)
    for key, value in parse_qsl(parts.query):
        if key == "rank" and rank < 0:
            rank = int(value)
        elif key == "world_size" and world_size < 0:
            world_size = int(value)
    if parts.scheme == "env":
        rank = int(_from_environment("RANK")) if rank < 0 else rank
        world_size = int(_from_environment("WORLD_SIZE")) if world_size < 0 else world_size
        host, port = _from_environment("MASTER_ADDR"), int(_from_environment("MASTER_PORT"))
    elif parts.scheme in ("tcp", "file"):
        for name, number in (("rank", rank), ("world size", world_size)):
            if number < 0:
                raise ValueError(
                    f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: {name} parameter missing"
                )
        if parts.scheme == "file":
            if not parts.path:
                raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
            return FileStore(parts.path, world_size), rank, world_size
        if parts.port is None:
            raise ValueError("Error initializing torch.distributed using tcp:// rendezvous: port number missing")
        host, port = parts.hostname or "localhost", parts.port
    else:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    # torchrun runs the store itself, so that it outlives a rank
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and parts.scheme == "env"
    return TCPStore(host, port, world_size, rank == 0 and not served, timeout, wait_for_workers=False), rank, world_size
