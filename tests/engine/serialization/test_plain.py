"""Values of the standard library beside tensors: read as Python's pickle reads them, hostile arguments refused."""

from __future__ import annotations

import argparse
import collections
import copyreg
import datetime
import decimal
import fractions
import io
import pathlib
import pickle
import types
import typing
import uuid

import numpy as np
import pytest

import engine
from engine.serialization import UnpicklingError, convert, get_unsafe_globals_in_checkpoint, load, read_arrays, save
from engine.serialization.pickler import Global, Instance, Reduce

from . import forge
from .forge import pickled, tensor, zipped

EAST = datetime.timezone(datetime.timedelta(hours=5, minutes=30), "IST")
VALUES = {
    "namespace": argparse.Namespace(lr=0.1, sub=argparse.Namespace(deep=[1, (2, "x")]), none=None),
    "simple": types.SimpleNamespace(a=1, b=types.SimpleNamespace()),
    "path": pathlib.PosixPath("/data/set/../x.y"),
    "pure": pathlib.PureWindowsPath("C:\\data\\x"),
    "date": datetime.date(2024, 2, 29),
    "time": datetime.time(23, 59, 58, 999_999, EAST),
    "fold": datetime.time(1, 2, fold=1),
    "now": datetime.datetime(2024, 10, 27, 2, 30, 0, 123_456, datetime.UTC, fold=1),
    "naive": datetime.datetime(1, 1, 1),
    "delta": datetime.timedelta(-3, 7, 11),
    "zone": EAST,
    "deque": collections.deque([1, "a", [2]], 5),
    "endless": collections.deque(),
    "slice": slice(None, 10, 2),
    "range": range(5, -7, -3),
    "decimal": decimal.Decimal("-1.25e-7"),
    "infinite": decimal.Decimal("Infinity"),
    "fraction": fractions.Fraction(-22, 7),
    "uuid": uuid.UUID(int=0x1234_5678 << 90),
    "any": typing.Any,
    "counts": collections.defaultdict(collections.Counter, a=collections.Counter("aab")),
    "queues": collections.defaultdict(collections.deque, a=collections.deque([1])),
    "keys": {pathlib.PurePosixPath("a"): 1, datetime.date(1, 2, 3): 2, fractions.Fraction(1, 3): 3},
    "set": {1, decimal.Decimal(2), datetime.timedelta(1)},
    "numpy": [np.float32(1.5), np.arange(3), np.dtype("int16")],
}


def same(a: object, b: object) -> bool:
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, datetime.datetime | datetime.time):
        return (a, a.fold, a.tzinfo, str(a)) == (b, b.fold, b.tzinfo, str(b))
    if isinstance(a, collections.deque):
        return (a, a.maxlen) == (b, b.maxlen)
    return a == b and repr(a) == repr(b)


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("name", VALUES)
def test_as_python_pickles_them(name, protocol):
    value = VALUES[name]
    content = zipped(pickle.dumps([value, value], protocol))
    value = pickle.loads(pickle.dumps(value, protocol))  # early protocols have no `fold`
    found = load(io.BytesIO(content))
    assert same(found[0], value) and found[1] is found[0]
    assert get_unsafe_globals_in_checkpoint(io.BytesIO(content)) == []


@pytest.mark.parametrize("name", VALUES)
def test_written_again(name):
    """`convert` from .pth to .pth, and what Python's own pickle makes of the file."""
    out, again = io.BytesIO(), io.BytesIO()
    save({"x": VALUES[name], "w": engine.ones(2)}, out)
    out.seek(0)
    assert convert(out, again, format="zip").tensors == 1
    again.seek(0)
    value = pickle.loads(pickle.dumps(VALUES[name], 2))
    assert same(load(again)["x"], value)
    alone = io.BytesIO()
    save(VALUES[name], alone)
    from engine.serialization.source import Source
    from engine.serialization.ziparchive import ZipArchive

    data = bytes(ZipArchive(Source(io.BytesIO(alone.getvalue()))).check().read("archive/data.pkl"))
    assert same(pickle.loads(data), value)


def test_paths_of_the_other_system():
    import os

    foreign = "PosixPath" if os.name == "nt" else "WindowsPath"
    body = pickled(Reduce(Global("pathlib", foreign), "a", "b"))
    found = load(io.BytesIO(zipped(body)))
    assert type(found) is getattr(pathlib, f"Pure{foreign}") and found.parts == ("a", "b")
    body = pickled(Reduce(Global("pathlib._local", "PurePosixPath"), "a", "b"))  # Python 3.13
    assert load(io.BytesIO(zipped(body))) == pathlib.PurePosixPath("a/b")


def test_tensors_inside_are_found():
    import struct

    content = zipped(pickled({"args": Instance(Global("argparse", "Namespace"), {"w": tensor(), "n": 1})}))
    out = io.BytesIO()
    made = convert(io.BytesIO(content), out, format="safetensors")
    assert made.tensors == 1 and made.skipped == ("args.n",)
    assert out.getvalue().endswith(struct.pack("<4f", 1, 2, 3, 4))
    assert load(io.BytesIO(content))["args"].w.tolist() == [1, 2, 3, 4]
    content = zipped(pickled(Reduce(Global("collections", "deque"), [tensor()])))
    assert convert(io.BytesIO(content), io.BytesIO(), format="safetensors").tensors == 1


def test_storages_by_themselves_become_values():
    content = zipped(pickled(Instance(Global("argparse", "Namespace"), {"s": forge.storage()})))
    assert len(load(io.BytesIO(content)).s) == 4 and read_arrays(io.BytesIO(content)).s.tolist() == [1, 2, 3, 4]


def test_versions_of_torch_are_text():
    body = b"\x80\x02ctorch.torch_version\nTorchVersion\nX\x05\x00\x00\x002.1.0\x85\x81."
    assert load(io.BytesIO(zipped(body))) == "2.1.0"


def made(module: str, name: str, *args: object) -> bytes:
    return pickled(Reduce(Global(module, name), *args))


def state(module: str, name: str, value: object) -> bytes:
    return pickled(Instance(Global(module, name), value))


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (made("datetime", "date", 2024, 1, 1), "malformed|date is made from"),
        (made("datetime", "date", b"\x07\xe8\x0d\x01"), "month must be"),
        (made("datetime", "datetime", b"\x07\xe8\x01\x01\x19\x00\x00\x00\x00\x00"), "hour must be"),
        (made("datetime", "datetime", b"\x07\xe8"), "datetime is made from"),
        (made("datetime", "datetime", b"\x07\xe8\x01\x01\x01\x00\x00\x00\x00\x00", 5), "datetime is made from"),
        (made("datetime", "time", "x" * 7), "time is made from"),
        (made("datetime", "timedelta", 1 << 80), "malformed"),
        (made("datetime", "timedelta", 1.5), "timedelta is made from"),
        (made("datetime", "timezone", 5), "timezone is made from"),
        (made("decimal", "Decimal", "1" * 600), "Decimal is made from"),
        (made("decimal", "Decimal", [1]), "Decimal is made from"),
        (made("fractions", "Fraction", "1e999999999"), "Fraction is made from"),
        (made("fractions", "Fraction", 1, 0), "Fraction is made from"),
        (made("builtins", "range", 1, 2, 0), "malformed"),
        (made("builtins", "slice", [1]), "slice is made from"),
        (made("collections", "deque", 5), "deque is made from"),
        (made("collections", "deque", [], -1), "malformed"),
        (made("pathlib", "PosixPath", 5), "PosixPath is made from"),
        (made("argparse", "Namespace", 5), "malformed"),
        (state("argparse", "Namespace", {"__array_interface__": {}}), "hide its methods"),
        (state("argparse", "Namespace", {"_get_kwargs": 1}), "hide its methods"),
        (state("argparse", "Namespace", [1]), "hide its methods"),
        (state("types", "SimpleNamespace", {"__class__": 1}), "hide its methods"),
        (state("uuid", "UUID", {"int": 1 << 128}), "malformed"),
        (state("uuid", "UUID", {"int": 1, "hex": 1}), "UUID is made from"),
        (made("functools", "partial", Global("builtins", "print")), r"functools\.partial was refused"),
        (made("re", "_compile", "(a+)+$", 0), r"re\._compile was refused"),
        (made("pathlib", "Path.unlink", "x"), r"pathlib\.Path\.unlink was refused"),
        (made("argparse", "FileType", "w"), r"argparse\.FileType was refused"),
    ],
)
def test_hostile_arguments(body, reason):
    with pytest.raises(UnpicklingError, match=reason):
        load(io.BytesIO(zipped(body)))


def test_nesting_inside_namespaces_is_bounded():
    value: object = 1
    for _ in range(300):
        value = types.SimpleNamespace(x=value)
    with pytest.raises(UnpicklingError, match="nested more than"):
        load(io.BytesIO(zipped(pickle.dumps(value, 2))))


def test_a_list_of_names_of_a_value_that_is_refused_stays_short():
    reconstructed = Reduce(Global("copyreg", "_reconstructor"), Global("subprocess", "Popen"), object, None)
    assert copyreg  # the module that Python's own pickles name
    with pytest.raises(UnpicklingError, match=r"subprocess\.Popen was refused"):
        load(io.BytesIO(zipped(pickled(reconstructed))))
