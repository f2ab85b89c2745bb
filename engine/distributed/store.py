"""Stores: where the processes of a job find each other; keys with bytes.

https://docs.pytorch.org/docs/2.13/distributed.html#distributed-key-value-store

A request is one byte (what), a count, and that many strings of bytes with their lengths; an answer is a count and
strings.  Nothing is unpickled: whoever reaches the port can read and change keys, and nothing else.
"""

from __future__ import annotations

import contextlib
import datetime
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

__all__ = [
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "HashStore",
    "PrefixStore",
    "Store",
    "TCPStore",
    "seconds",
]

TIMEOUT = datetime.timedelta(minutes=5)


class DistError(RuntimeError):
    """An error of torch.distributed."""


class DistStoreError(DistError):
    """A store did not answer, or not in time."""


class DistNetworkError(DistError):
    """A connection could not be made, or broke."""


class DistBackendError(DistError):
    """A backend failed: another process ended, or called something else."""


def seconds(timeout: datetime.timedelta | float | None, default: datetime.timedelta = TIMEOUT) -> float:
    """A timeout in seconds."""
    timeout = default if timeout is None else timeout
    return timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else float(timeout)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Store:
    """The interface of every store.  `get` and `wait` block until the keys are there, or raise DistStoreError."""

    timeout = TIMEOUT

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        """Set the time after which `get` and `wait` give up."""
        self.timeout = timeout

    def set(self, key: str, value: str | bytes) -> None:
        """Give `key` a value."""
        raise NotImplementedError

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are there."""
        raise NotImplementedError

    def add(self, key: str, amount: int) -> int:
        """Add to the number under `key` (0 if it is not there); the sum."""
        raise NotImplementedError

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set `key` to `desired` if it holds `expected` ("" if it is not there); what it holds then."""
        raise NotImplementedError

    def delete_key(self, key: str) -> bool:
        """Remove `key`; whether it was there."""
        raise NotImplementedError

    def num_keys(self) -> int:
        """The number of keys."""
        raise NotImplementedError

    def _read(self, key: str) -> bytes:
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        """The value of `key`, as soon as it has one."""
        self.wait([key])
        return self._read(key)

    def wait(self, keys: Sequence[str], timeout: datetime.timedelta | None = None) -> None:
        """Block until all keys are there.  DistStoreError after `timeout`."""
        limit = seconds(timeout, self.timeout)
        deadline, pause = time.monotonic() + limit, 0.0005
        while not self.check(keys):
            if time.monotonic() > deadline:
                missing = [key for key in keys if not self.check([key])]
                raise DistStoreError(f"wait timeout after {limit * 1000:.0f}ms, keys: {', '.join(missing)}")
            time.sleep(pause)
            pause = min(pause * 2, 0.05)


class HashStore(Store):
    """A dictionary of this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        with self._lock:
            self._values[key] = _bytes(value)

    def check(self, keys: Sequence[str]) -> bool:
        with self._lock:
            return all(key in self._values for key in keys)

    def add(self, key: str, amount: int) -> int:
        with self._lock:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            return total

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        with self._lock:
            held = self._values.get(key)
            if held is None and _bytes(expected):
                return _bytes(expected)
            if held is None or held == _bytes(expected):
                self._values[key] = held = _bytes(desired)
            return held

    def delete_key(self, key: str) -> bool:
        with self._lock:
            return self._values.pop(key, None) is not None

    def num_keys(self) -> int:
        return len(self._values)

    def _read(self, key: str) -> bytes:
        with self._lock:
            return self._values[key]


class PrefixStore(Store):
    """Another store with `prefix` before every key."""

    def __init__(self, prefix: str, store: Store) -> None:
        self.prefix, self.underlying_store = prefix, store
        self.timeout = store.timeout

    def _key(self, key: str) -> str:
        return f"{self.prefix}/{key}"

    def set(self, key: str, value: str | bytes) -> None:
        self.underlying_store.set(self._key(key), value)

    def check(self, keys: Sequence[str]) -> bool:
        return self.underlying_store.check([self._key(key) for key in keys])

    def add(self, key: str, amount: int) -> int:
        return self.underlying_store.add(self._key(key), amount)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self.underlying_store.compare_set(self._key(key), expected, desired)

    def delete_key(self, key: str) -> bool:
        return self.underlying_store.delete_key(self._key(key))

    def num_keys(self) -> int:
        return self.underlying_store.num_keys()

    def _read(self, key: str) -> bytes:
        return self.underlying_store._read(self._key(key))


# --- strings of bytes, one after the other


def _packed(strings: Sequence[bytes]) -> bytes:
    return struct.pack("<I", len(strings)) + b"".join(struct.pack("<I", len(s)) + s for s in strings)


_MOST = 64 << 20  # bytes of one string


def _unpacked(read: Callable[[int], bytes]) -> list[bytes]:
    (count,) = struct.unpack("<I", read(4))
    if count > 4096:
        raise ValueError(f"{count} strings in one message")
    found = []
    for _ in range(count):
        (length,) = struct.unpack("<I", read(4))
        if length > _MOST:
            raise ValueError(f"a string of {length} bytes")
        found.append(read(length))
    return found


# --- over TCP


def _reader(connection: socket.socket) -> Callable[[int], bytes]:
    def read(count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = connection.recv(min(count - len(data), 1 << 20))
            if not part:
                raise EOFError
            data += part
        return bytes(data)

    return read


class _Server:
    """The store's values, served by a thread for each client."""

    def __init__(self, host: str, port: int) -> None:
        self.values = HashStore()
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.socket(family)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.listener.bind((host, port))
            self.listener.listen(1024)
        except OSError as error:
            self.listener.close()
            raise DistNetworkError(
                f"The server socket has failed to listen on {host}:{port}: {error.strerror or error}. Another job may "
                "use this port (MASTER_PORT); port 0 takes a free one"
            ) from error
        self.port: int = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True, name="TCPStore").start()

    def close(self) -> None:
        """Take no more clients."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self.listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                threading.Thread(target=self._serve, args=(client,), daemon=True, name="TCPStore client").start()

    def _serve(self, client: socket.socket) -> None:
        read = _reader(client)
        with client, contextlib.suppress(EOFError, OSError, ValueError, KeyError, UnicodeDecodeError):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while True:
                what = read(1)
                client.sendall(_packed(self._answer(what, _unpacked(read))))

    def _answer(self, what: bytes, strings: list[bytes]) -> list[bytes]:
        values = self.values
        if what == b"c":
            return [b"1" if values.check([s.decode() for s in strings]) else b""]
        if what == b"n":
            return [str(values.num_keys()).encode()]
        key = strings[0].decode()
        if what == b"s":
            values.set(key, strings[1])
            return []
        if what == b"g":
            return [values._read(key)]
        if what == b"a":
            return [str(values.add(key, int(strings[1]))).encode()]
        if what == b"x":
            return [values.compare_set(key, strings[1], strings[2])]
        if what == b"d":
            return [b"1" if values.delete_key(key) else b""]
        raise ValueError(what)


class TCPStore(Store):
    """Keys of a server that one process (`is_master`) runs and all connect to.

    port 0 on the master takes a free one, in `port`.  wait_for_workers: wait until `world_size` processes have come.
    DistNetworkError when the port is in use, or the server cannot be reached within `timeout`.
    """

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: datetime.timedelta = TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        **_: Any,
    ) -> None:
        self.host, self.timeout = host_name, timeout
        self._server = _Server(host_name, port) if is_master else None
        self.port = self._server.port if self._server else port
        self._lock = threading.Lock()
        self._connection = self._connect()
        if wait_for_workers and world_size:
            try:
                self._wait_for_clients(world_size)
            except BaseException:
                self.close()
                raise

    def _wait_for_clients(self, count: int) -> None:
        limit = seconds(self.timeout)
        deadline = time.monotonic() + limit
        come = self.add("init/", 1)
        while come < count:
            if time.monotonic() > deadline:
                raise DistStoreError(
                    f"Timed out after {limit:.1f} seconds waiting for clients. {come}/{count} clients joined."
                )
            time.sleep(0.005)
            come = self.add("init/", 0)

    def _connect(self) -> socket.socket:
        limit = seconds(self.timeout)
        deadline = time.monotonic() + limit
        while True:
            try:
                connection = socket.create_connection((self.host, self.port), timeout=max(0.1, limit))
                connection.settimeout(None)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return connection
            except OSError as error:
                if time.monotonic() > deadline:
                    raise DistNetworkError(
                        f"The client socket has timed out after {limit * 1000:.0f}ms while trying to connect to "
                        f"({self.host}, {self.port}): {error}"
                    ) from error
                time.sleep(0.02)

    def close(self) -> None:
        """End the connection, and the server if this process runs it."""
        self._connection.close()
        if self._server is not None:
            self._server.close()

    def _ask(self, what: bytes, *strings: str | bytes) -> list[bytes]:
        with self._lock:
            try:
                self._connection.sendall(what + _packed([_bytes(s) for s in strings]))
                return _unpacked(_reader(self._connection))
            except (OSError, EOFError) as error:
                raise DistNetworkError(
                    f"the store at ({self.host}, {self.port}) is gone: the process that ran it has ended"
                ) from error

    def set(self, key: str, value: str | bytes) -> None:
        self._ask(b"s", key, value)

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._ask(b"c", *keys)[0])

    def add(self, key: str, amount: int) -> int:
        return int(self._ask(b"a", key, str(amount))[0])

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        return self._ask(b"x", key, expected, desired)[0]

    def delete_key(self, key: str) -> bool:
        return bool(self._ask(b"d", key)[0])

    def num_keys(self) -> int:
        return int(self._ask(b"n")[0])

    def _read(self, key: str) -> bytes:
        return self._ask(b"g", key)[0]
