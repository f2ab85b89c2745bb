"""Stores: one contract for all kinds, and what a port that anyone can reach may be told."""

from __future__ import annotations

import datetime
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import engine.distributed as dist
from engine.distributed.rendezvous import rendezvous

SOON = datetime.timedelta(seconds=0.3)


@pytest.fixture(params=["hash", "file", "tcp", "prefix"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dist.Store]:
    if request.param == "file":
        yield dist.FileStore(str(tmp_path / "s"))
    elif request.param == "tcp":
        made = dist.TCPStore("127.0.0.1", 0, is_master=True)
        yield made
        made.close()
    else:
        made = dist.HashStore()
        yield dist.PrefixStore("p", made) if request.param == "prefix" else made


def test_the_contract(store: dist.Store) -> None:
    store.set("a", "1")
    store.set("b", b"\0\xff\n")
    assert store.get("a") == b"1" and store.get("b") == b"\0\xff\n"
    assert store.check(["a", "b"]) and not store.check(["a", "c"])
    assert store.add("n", 5) == 5 and store.add("n", -2) == 3 and store.get("n") == b"3"
    assert store.compare_set("a", "0", "2") == b"1"
    assert store.compare_set("a", "1", "2") == b"2" and store.get("a") == b"2"
    assert store.compare_set("new", "", "x") == b"x"
    assert store.compare_set("other", "y", "z") == b"y" and not store.check(["other"])
    assert store.num_keys() == 4
    assert store.delete_key("a") and not store.delete_key("a") and store.num_keys() == 3
    store.set_timeout(SOON)
    with pytest.raises(dist.DistStoreError, match="wait timeout after 300ms, keys: nothing"):
        store.get("nothing")


def test_waiting_ends_when_the_key_comes(store: dist.Store) -> None:
    threading.Timer(0.1, store.set, ("late", "x")).start()
    assert store.get("late") == b"x"


def test_many_clients_add_at_once(tmp_path: Path) -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    path = str(tmp_path / "s")

    def work() -> None:
        client = dist.TCPStore("127.0.0.1", server.port)
        for _ in range(25):
            client.add("n", 1)
            dist.FileStore(path).add("n", 1)
        client.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert server.get("n") == b"200" == dist.FileStore(path).get("n")
    server.close()


def test_a_file_cut_off_by_a_killed_process_keeps_what_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "s"
    store = dist.FileStore(str(path))
    store.set("a", "1")
    whole = path.stat().st_size
    store.set("b", "long value")
    os.truncate(path, whole + 7)
    assert store.get("a") == b"1" and not store.check(["b"])


@pytest.mark.parametrize(
    "sent", [b"", b"z", b"s\xff\xff\xff\xff", b"s\1\0\0\0\xff\xff\xff\x7f", b"g\1\0\0\0\1\0\0\0q", b"\x80\4K"]
)
def test_a_stranger_at_the_port_harms_nothing(sent: bytes) -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    server.set("a", "1")
    with socket.create_connection(("127.0.0.1", server.port)) as stranger:
        stranger.sendall(sent)
        stranger.shutdown(socket.SHUT_WR)
        assert stranger.recv(100) == b""
    assert server.get("a") == b"1"
    server.close()


def test_a_port_in_use_and_one_that_nobody_serves() -> None:
    server = dist.TCPStore("127.0.0.1", 0, is_master=True)
    with pytest.raises(dist.DistNetworkError, match=rf"failed to listen on 127.0.0.1:{server.port}.*in use"):
        dist.TCPStore("127.0.0.1", server.port, is_master=True)
    server.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(dist.DistNetworkError, match=rf"timed out after 300ms while trying to connect to .*{port}"):
        dist.TCPStore("127.0.0.1", port, timeout=SOON)


def test_workers_that_do_not_come_are_counted() -> None:
    with pytest.raises(dist.DistStoreError, match="1/2 clients joined"):
        dist.TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=SOON)


@pytest.mark.parametrize(
    ("url", "kind", "words"),
    [
        ("env://", ValueError, "environment variable RANK expected, but not set"),
        ("tcp://127.0.0.1:1", ValueError, "tcp:// rendezvous: rank parameter missing"),
        ("tcp://127.0.0.1:1?rank=0", ValueError, "world size parameter missing"),
        ("tcp://127.0.0.1?rank=0&world_size=1", ValueError, "port number missing"),
        ("file://?rank=0&world_size=1", ValueError, "path missing"),
        ("zoo://x", RuntimeError, "No rendezvous handler for zoo://"),
    ],
)
def test_rendezvous_says_what_is_missing(
    url: str, kind: type[Exception], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(kind, match=words):
        next(rendezvous(url))


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        (("zoo://x",), RuntimeError, "No rendezvous handler for zoo://"),
        ((3,), RuntimeError, "`url` must be a string. <class 'int'>: 3"),
        (("env://", 1.5), RuntimeError, "`rank` must be an integer. 1.5"),
        (("env://", 1, "3"), RuntimeError, "`world_size` must be an integer. 3"),
        (("file:///x?rank=0&world_size=2", 1), AssertionError, "has node-specific arguments(rank, world_size) already"),
    ],
)
def test_rendezvous_refuses_wrong_arguments_at_the_call(
    arguments: tuple[Any, ...], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=re.escape(words)):
        rendezvous(*arguments)  # and not when the iterator is asked, as a generator would


def test_a_registered_handler_serves_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    def handler(url: str, **options: Any) -> Iterator[Any]:
        yield url, options

    monkeypatch.setattr(sys.modules[rendezvous.__module__], "_handlers", {})
    dist.register_rendezvous_handler("zoo", handler)
    assert next(rendezvous("zoo://x?a=1", 1, 3, timeout=3)) == ("zoo://x?a=1&rank=1&world_size=3", {"timeout": 3})
    assert next(rendezvous("zoo://x?rank=2")) == ("zoo://x?rank=2", {})
    with pytest.raises(RuntimeError, match="Rendezvous handler for zoo:// already registered"):
        dist.register_rendezvous_handler("zoo", handler)


def test_rendezvous_by_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rendezvous(f"file://{tmp_path}/s?rank=1&world_size=3")
    store, rank, size = next(found)
    with pytest.raises(RuntimeError, match="Unable to perform rerendezvous using file:// method"):
        next(found)
    assert isinstance(store, dist.FileStore) and (rank, size) == (1, 3)
    for name, value in (("RANK", "0"), ("WORLD_SIZE", "1"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")):
        monkeypatch.setenv(name, value)
    store, rank, size = next(rendezvous("env://"))
    assert isinstance(store, dist.TCPStore) and (rank, size) == (0, 1) and store.port
    store.close()
