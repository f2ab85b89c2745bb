"""Checksums and compressed entries of zip checkpoints: damage is found, bombs are refused, repacked files are read."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib

import pytest

import engine
from engine.jit.archive import loading
from engine.serialization import UnpicklingError, convert, load, read_arrays, save, ziparchive
from engine.serialization.errors import Limits
from engine.serialization.source import Source
from engine.serialization.ziparchive import ZipArchive

from . import forge
from .forge import pickled, tensor, zipped

GOOD = zipped(pickled({"w": tensor()}))


def flipped(content: bytes, part: bytes) -> bytes:
    """`content` with one bit of the last byte of `part` changed."""
    at = content.index(part) + len(part) - 1
    return content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :]


def deflated(*entries: tuple[str, bytes]) -> bytes:
    return forge.zip_entries([("a/data.pkl", pickled({"w": tensor()})), *entries], zipfile.ZIP_DEFLATED)


PACKED = deflated(("a/data/0", forge.FLOATS))


@pytest.mark.parametrize("part", [forge.FLOATS, b"_rebuild_tensor_v2", b"3\n"], ids=["storage", "pickle", "version"])
@pytest.mark.parametrize("read", [load, read_arrays, lambda f: convert(f, io.BytesIO(), format="zip")])
def test_a_flipped_bit_is_found(part, read):
    with pytest.raises(UnpicklingError, match=r"the zip entry archive/\S+ is damaged: its CRC-32 is [0-9a-f]{8}"):
        read(io.BytesIO(flipped(GOOD, part)))


@pytest.mark.parametrize("mmap", [None, False])
def test_a_flipped_bit_of_a_file(tmp_path, mmap):
    (tmp_path / "x.pth").write_bytes(flipped(GOOD, forge.FLOATS))
    with pytest.raises(UnpicklingError, match="archive/data/0 is damaged"):
        load(tmp_path / "x.pth", mmap=mmap)


def test_a_mapping_that_is_demanded_reads_no_page_before_its_use(tmp_path):
    (tmp_path / "x.pth").write_bytes(flipped(GOOD, forge.FLOATS))
    assert load(tmp_path / "x.pth", mmap=True)["w"].shape == (4,)


def test_archives_without_checksums_are_sound():
    for content in (GOOD, PACKED):
        assert load(io.BytesIO(forge.without_checksums(content)))["w"].tolist() == [1, 2, 3, 4]
    assert load(io.BytesIO(flipped(forge.without_checksums(GOOD), forge.FLOATS)))["w"].shape == (4,)


def test_programs_are_checked_too(tmp_path):
    class Twice(engine.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = engine.nn.Parameter(engine.arange(4.0) + 1)

        def forward(self, x):
            return self.weight * x

    out = io.BytesIO()
    engine.jit.save(engine.jit.trace(Twice(), engine.ones(4)), out)
    weights = struct.pack("<4f", 1, 2, 3, 4)
    assert out.getvalue().count(weights) == 1
    loading.read(io.BytesIO(out.getvalue()))
    with pytest.raises(UnpicklingError, match="is damaged: its CRC-32"):
        loading.read(io.BytesIO(flipped(out.getvalue(), weights)))


def test_large_archives_are_summed_up_by_threads(monkeypatch):
    monkeypatch.setattr(ziparchive, "_WORTH_THREADS", 1)
    monkeypatch.setattr(ziparchive.os, "cpu_count", lambda: 4)
    assert load(io.BytesIO(GOOD))["w"].tolist() == [1, 2, 3, 4]
    with pytest.raises(UnpicklingError, match="archive/data/0 is damaged"):
        load(io.BytesIO(flipped(GOOD, forge.FLOATS)))


def test_damaged_entries_are_listed():
    content = flipped(flipped(zipped(pickled(1), {"0": forge.FLOATS, "1": b"x" * 64}), forge.FLOATS), b"x" * 64)
    assert ZipArchive(Source(io.BytesIO(content))).check().damaged() == ["archive/data/0", "archive/data/1"]


# -- compressed entries


def test_compressed_checkpoints_are_read(tmp_path):
    (tmp_path / "x.pth").write_bytes(PACKED)
    for options in ({}, {"mmap": False}, {"mmap": True}):
        found = load(tmp_path / "x.pth", **options)["w"]
        found += 1  # writable, and apart from the file
        assert found.tolist() == [2, 3, 4, 5]
    assert (tmp_path / "x.pth").read_bytes() == PACKED
    assert read_arrays(io.BytesIO(PACKED))["w"].tolist() == [1, 2, 3, 4]


def test_what_the_engine_wrote_is_read_after_it_was_packed_again():
    weight = engine.arange(3000.0).reshape(3, 1000)
    kept = {
        "a": weight,
        "view": weight.t()[5:9],
        "b": engine.ones(7, dtype=engine.bfloat16),
        "n": {"e": engine.empty(0)},
    }
    out, again = io.BytesIO(), io.BytesIO()
    save(kept, out)
    with zipfile.ZipFile(out) as old, zipfile.ZipFile(again, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, old.read(name))
    found = load(io.BytesIO(again.getvalue()))
    assert all(engine.equal(found[name], kept[name]) for name in ("a", "view", "b"))
    found["a"][0, 5] = -1.0  # the view shares its storage
    assert found["view"][0, 0] == -1 and found["n"]["e"].shape == (0,)


def test_damage_inside_a_compressed_entry_is_found():
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = raw.compress(forge.FLOATS) + raw.flush()
    at = PACKED.index(stream) + len(stream) // 2
    broken = PACKED[:at] + bytes([PACKED[at] ^ 0x10]) + PACKED[at + 1 :]
    with pytest.raises(UnpicklingError, match=r"a/data/0 (is damaged|cannot be decompressed)"):
        load(io.BytesIO(broken))


def resized(content: bytes, name: bytes, size: int) -> bytes:
    """`content` whose entry `name` declares `size` bytes in both headers."""
    found, field = bytearray(content), struct.pack("<L", size)
    for sign, width, place in ((b"PK\x03\x04", 30, 22), (b"PK\x01\x02", 46, 24)):
        at = content.find(sign)
        while content[at + width : at + width + len(name)] != name:
            at = content.index(sign, at + 4)
        found[at + place : at + place + 4] = field
    return bytes(found)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (resized(deflated(("a/data/0", forge.FLOATS * 2)), b"a/data/0", 20), "does not decompress to the 20 bytes"),
        (resized(PACKED, b"a/data/0", 17), "does not decompress to the 17 bytes"),
        (resized(PACKED, b"a/data/0", 1 << 31), "too few for the 2147483648 bytes"),
        (deflated(("a/data/0", forge.FLOATS[:8])), "has 8 bytes, but 16 are declared"),
        (forge.zip_entries([("a/data.pkl", b"0" * (2 << 20))], zipfile.ZIP_DEFLATED), "a/data.pkl is compressed to"),
    ],
    ids=["more", "less", "absurd", "short", "pickle"],
)
def test_what_is_not_what_it_declares(content, reason):
    with pytest.raises(UnpicklingError, match=reason):
        load(io.BytesIO(content))


def test_bombs_are_refused_before_anything_is_unpacked():
    content = deflated(("a/data/0", bytes(1 << 20)), ("a/data/1", bytes(1 << 20)))
    limits = Limits(inflated=1 << 20)
    with pytest.raises(UnpicklingError, match="compressed entries would fill 2097"):
        ZipArchive(Source(io.BytesIO(content)), limits).check()
    assert ZipArchive(Source(io.BytesIO(content))).check().read("a/data/1").nbytes == 1 << 20
