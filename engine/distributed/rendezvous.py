"""The rendezvous of a job's processes, which gives them store, rank and number: `env://`, `tcp://host:port`, `file:///path`.

Other schemes are registered by `register_rendezvous_handler`.

https://docs.pytorch.org/docs/2.13/distributed.html#initialization
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from engine.distributed.file_store import FileStore
from engine.distributed.store import TIMEOUT, Store, TCPStore

__all__ = ["register_rendezvous_handler", "rendezvous"]

Found = tuple[Store, int, int]
_handlers: dict[str, Callable[..., Iterator[Found]]] = {}


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ValueError(
            "Error initializing torch.distributed using env:// rendezvous: environment variable "
            f"{name} expected, but not set"
        )
    return value


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Found]:
    """Return an iterator that gives the store, this process's rank and the number of processes once.

    The handler of the scheme gets the URL, with `rank` and `world_size` in its query where they are given, and
    `options` (`timeout=`).  Raises RuntimeError at once for an unknown scheme, AssertionError for a rank that both
    the URL and the arguments give.  The handlers of `env`, `tcp` and `file` raise when the iterator is advanced:
    ValueError for what is missing, DistNetworkError where the store cannot be had within `timeout`, and RuntimeError
    the second time.
    """
    if not isinstance(url, (str, bytes)):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    for name, number in (("rank", rank), ("world_size", world_size)):
        if not isinstance(number, Integral):
            raise RuntimeError(f"`{name}` must be an integer. {number}")
    parts = urlsplit(url)
    given = [f"{name}={number}" for name, number in (("rank", rank), ("world_size", world_size)) if number != -1]
    if given and isinstance(url, str):
        if {"rank", "world_size"} & dict(parse_qsl(parts.query)).keys():
            raise AssertionError(f"The url: {url} has node-specific arguments(rank, world_size) already.")
        parts = parts._replace(query="&".join([parts.query] * bool(parts.query) + given))
        url = urlunsplit(parts)
    if parts.scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {parts.scheme}://")
    return _handlers[parts.scheme](url, **options)


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[Found]]) -> None:
    """Let URLs of `scheme` be served by `handler`, a generator function that yields (store, rank, world size).

    Raises RuntimeError for a scheme that has a handler.
    """
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def _serve(url: str, timeout: datetime.timedelta = TIMEOUT, **_: Any) -> Iterator[Found]:
    yield _found(url, timeout)
    raise RuntimeError(f"Unable to perform rerendezvous using {urlsplit(url).scheme}:// method")


def _found(url: str, timeout: datetime.timedelta) -> Found:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    if parts.scheme == "env":
        rank, world_size = (int(query.get(name) or _from_environment(name.upper())) for name in ("rank", "world_size"))
        host, port = _from_environment("MASTER_ADDR"), int(_from_environment("MASTER_PORT"))
    else:
        for name in ("rank", "world_size"):
            if name not in query:
                raise ValueError(
                    f"Error initializing torch.distributed using {parts.scheme}:// rendezvous: "
                    f"{name.replace('_', ' ')} parameter missing"
                )
        rank, world_size = int(query["rank"]), int(query["world_size"])
        if parts.scheme == "file":
            if not parts.path:
                raise ValueError("Error initializing torch.distributed using file:// rendezvous: path missing")
            return FileStore(parts.path, world_size), rank, world_size
        if parts.port is None:
            raise ValueError("Error initializing torch.distributed using tcp:// rendezvous: port number missing")
        host, port = parts.hostname or "localhost", parts.port
    # torchrun runs the store itself, so that it outlives a rank
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and parts.scheme == "env"
    return TCPStore(host, port, world_size, rank == 0 and not served, timeout, wait_for_workers=False), rank, world_size


for _scheme in ("env", "tcp", "file"):
    register_rendezvous_handler(_scheme, _serve)
