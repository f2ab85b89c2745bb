"""Typed storages: their names, conversions, files, sizes, and what `set_` takes of them."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys

import pytest

import engine
from engine.core.storage import TypedStorage, UntypedStorage

KINDS = {
    "double": "Double",
    "float": "Float",
    "half": "Half",
    "bfloat16": "BFloat16",
    "long": "Long",
    "int": "Int",
    "short": "Short",
    "char": "Char",
    "byte": "Byte",
    "bool": "Bool",
    "complex_float": "ComplexFloat",
    "complex_double": "ComplexDouble",
}


@pytest.fixture
def three() -> TypedStorage:
    return engine.FloatStorage([1.0, 2.0, 3.0])


@pytest.mark.parametrize("name", KINDS)
def test_conversions(three: TypedStorage, name: str) -> None:
    kind = getattr(engine, f"{KINDS[name]}Storage")
    for found in (getattr(three, name)(), three.type(kind), three.type(f"torch.{KINDS[name]}Storage")):
        assert found.type() == f"torch.{KINDS[name]}Storage" and isinstance(found, kind)
        assert found.tolist() == ([True] * 3 if name == "bool" else [1, 2, 3])
    assert len(getattr(three.untyped(), name)()) == 12  # of the bytes
    assert found.clone().dtype is found.new(2).dtype is found.dtype and len(found.new(2)) == 2


def test_names_and_facts(three: TypedStorage) -> None:
    assert three.type(engine.FloatStorage) is three and three.untyped().type() == "torch.storage.UntypedStorage"
    assert three.cpu() is three and not three.is_pinned() and three.get_device() == -1 and three.filename is None
    assert three.pickle_storage_type() == "FloatStorage" and three.resizable() and not three.is_sparse
    assert engine.zeros(1, dtype=engine.int16).storage_type() is engine.ShortStorage
    assert sys.getsizeof(engine.FloatStorage(1000)) - sys.getsizeof(engine.FloatStorage(10)) == 990 * 4
    assert type(three).__name__ == "TypedStorage" and repr(three.untyped()).endswith(
        "[torch.storage.UntypedStorage(device=cpu) of size 12]"
    )
    for bad, error in ((3, IndexError), (-4, IndexError), ("a", RuntimeError), (slice(0, 2), RuntimeError)):
        with pytest.raises(error):
            three[bad]
    with pytest.raises(RuntimeError, match="Cannot convert a storage to type"):
        three.type("torch.NoStorage")
    with pytest.raises(TypeError, match="a sequence or a storage, got 'a'"):
        engine.FloatStorage("a")


def test_the_storage_of_the_default_dtype() -> None:
    assert engine.Storage is engine.FloatStorage and len(engine.Storage(3)) == 3
    engine.set_default_dtype(engine.float64)
    try:
        assert engine.Storage is engine.DoubleStorage
    finally:
        engine.set_default_dtype(engine.float32)


def test_resize_takes_the_tensors_along() -> None:
    x = engine.arange(6.0)
    storage, last, first = x.storage(), x[3:], x[:2]
    storage.resize_(9)
    storage[0], storage[5] = 7.0, 8.0
    assert (x.tolist(), last[2].item(), first[0].item()) == ([7.0, 1.0, 2.0, 3.0, 4.0, 8.0], 8.0, 7.0)
    storage.resize_(2)
    storage[1] = 5.0
    assert first.tolist() == [7.0, 5.0] and storage.tolist() == [7.0, 5.0]
    assert last.tolist() == [3.0, 4.0, 8.0]  # what no longer fits keeps the old memory
    shared = engine.zeros(2).share_memory_().storage()
    with pytest.raises(RuntimeError, match="Trying to resize storage that is not resizable"):
        shared.resize_(4)


def test_files(tmp_path) -> None:
    path = os.fspath(tmp_path / "f")
    stored = engine.FloatStorage.from_file(path, True, 4)
    stored.fill_(3.0)
    assert os.path.getsize(path) == 16 and stored.filename == path
    private = engine.from_file(path, size=4)
    private[0] = 9.0
    assert stored[0] == 3.0 and engine.from_file(path, size=2, dtype=engine.float64).shape == (2,)
    shared = engine.from_file(path, True, 4, requires_grad=True)
    shared.detach()[1] = 5.0
    assert stored[1] == 5.0 and shared.requires_grad
    assert UntypedStorage.from_file(path, nbytes=3).tolist() == [0, 0, 64]
    for call, message in (
        (lambda: engine.from_file(path, size=5), r"size <16> is smaller than the required mapping size <20>"),
        (lambda: engine.from_file(path + "x", size=5), r"unable to open file <.*fx> in read-only mode: No such file"),
        (lambda: engine.from_file(os.fspath(tmp_path), True, 5), "is no regular file"),
        (lambda: engine.from_file(os.devnull, True, 5), "is no regular file"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    assert not os.path.exists(path + "x") and os.path.getsize(path) == 16


def test_set_refuses_another_type_or_device() -> None:
    x = engine.zeros(2)
    for call, message in (
        (lambda: x.set_(engine.zeros(2).double().storage()), "Expected a Storage of type float .* got type Double"),
        (lambda: x.set_(engine.zeros(2).double()), "Could not set tensor of type double to a tensor of type float"),
        (lambda: x.set_(engine.zeros(2, device="meta")), "The devices must match|the devices must match"),
    ):
        with pytest.raises(RuntimeError, match=message):
            call()
    assert x.tolist() == [0.0, 0.0]
    x.set_(engine.FloatStorage([1.0, 2.0, 3.0]), 1, (2,))
    assert x.tolist() == [2.0, 3.0]


class Holder:
    """An object with a storage among its attributes."""


@pytest.mark.parametrize("zipped", [True, False])
def test_storages_in_tuples_and_objects_are_loaded(zipped: bool) -> None:
    x = engine.arange(3.0)
    held = Holder()
    held.pair = (x.storage(), [x.storage()])
    saved = [x, (x.storage(), (x.storage(), 1)), {"a": (x.storage(),)}, held]
    file = io.BytesIO()
    engine.save(saved, file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    with engine.serialization.safe_globals([Holder]):
        tensor, nested, named, other = engine.load(file)
    for found in (nested[0], nested[1][0], other.pair[0], other.pair[1][0]):
        assert isinstance(found, engine.FloatStorage) and found.data_ptr() == tensor.data_ptr()
    assert named["a"][0].data_ptr() == tensor.data_ptr() and nested[0] is nested[1][0]


def _text(value: str) -> bytes:
    return b"X" + len(value).to_bytes(4, "little") + value.encode()


def test_slices_of_a_storage_in_files_of_torch_0_3() -> None:
    def part(name: str, offset: int) -> bytes:
        view = _text(name) + b"K" + bytes([offset]) + b"K\x01\x87"
        return (
            b"("
            + _text("storage")
            + b"ctorch\nFloatStorage\n"
            + _text("whole")
            + _text("cpu")
            + b"K\x02"
            + view
            + b"tQ"
        )

    head = [pickle.dumps(value, 2) for value in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    body = b"\x80\x02" + part("first", 0) + part("second", 1) + b"\x86."
    values = (2).to_bytes(8, "little") + struct.pack("<2f", 3.0, 5.0)
    file = io.BytesIO(b"".join(head) + body + pickle.dumps(["whole"], 2) + values)
    first, second = engine.load(file)
    assert (first.tolist(), second.tolist()) == ([3.0], [5.0]) and second.data_ptr() - first.data_ptr() == 4
    second[0] = 7.0
    assert first.tolist() == [3.0] and type(second) is TypedStorage
