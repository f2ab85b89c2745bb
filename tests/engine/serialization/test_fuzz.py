"""Damaged files either load or are refused by an UnpicklingError: nothing else, and quickly.

`data/findings/` keeps the files that once did something else (tools: the same mutations, run for minutes).
"""

from __future__ import annotations

import argparse
import collections
import datetime
import io
import pickle
import random
import time
import uuid
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.encoded import EncodedTensor
from engine.serialization import UnpicklingError, get_unsafe_globals_in_checkpoint, load
from engine.serialization.arrays import ArrayBuilder
from engine.serialization.formats import read
from engine.serialization.source import Source
from engine.serialization.ziparchive import ZipArchive

from . import forge
from .forge import DATA

FINDINGS = sorted((DATA / "findings").iterdir())
SEEDS = [p.read_bytes() for p in sorted(DATA.glob("*.pth"))]
SEEDS.append(forge.tarred(forge.tar_parts()))
SEEDS.append(forge.safetensors(b'{"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}'))
SEEDS.append(forge.legacy(forge.tensor((2,), (1,), 0, forge.storage(view=("1", 2, 2))), [("0", 4, forge.FLOATS)]))


def insides(content: bytes) -> tuple[bytes, dict[str, bytes]]:
    archive = ZipArchive(Source(io.BytesIO(content))).check()
    pickles = [n for n in archive.entries if n.endswith("data.pkl")]
    storages = {n.split("/data/")[1]: bytes(archive.read(n)) for n in archive.entries if "/data/" in n}
    return bytes(archive.read(pickles[0])), storages


PLAIN = [argparse.Namespace(a=[1], b=collections.deque([2])), datetime.datetime(2024, 1, 2), uuid.UUID(int=3), slice(4)]
SEEDS += [forge.zipped(pickle.dumps(PLAIN, protocol)) for protocol in (2, 4)]
SEEDS += [forge.without_checksums(s) for s in SEEDS if s[:2] == b"PK"]  # damage inside them is found by no sum
PICKLES = [insides(s) for s in SEEDS if s[:2] == b"PK"]
PIECES = [
    b"\x00", b"\xff", b"\x7f", b"\xff\xff\xff\xff", b"\x00\x00\x00\x80", b"\xff" * 8, b"\x85", b"R", b"b", b"q\x00",
    b"h\x00", b"(", b".", b"\x81", b"t", b"l", b"d", b"}", b"]", b")", b"0", b"2", b"e", b"u",
    b"\x8a\x08" + b"\xff" * 7 + b"\x7f", b"X\x03\x00\x00\x00cpu", b"cbuiltins\nset\n", b"ccollections\nOrderedDict\n",
    b"ctorch\nFloatStorage\n", b"cnumpy\ndtype\n", b"c_codecs\nencode\n", b"cbuiltins\nbytearray\n",
    b"ctorch.nn.parameter\nParameter\n", b"ctorch\nFloatTensor\n", b"cnumpy\nndarray\n", b"ctorch\nSize\n",
    b"cnumpy.core.multiarray\n_reconstruct\n", b"ctorch\ndevice\n", b"cargparse\nNamespace\n", b"c__main__\nMode\n",
    b"ccollections\ndeque\n", b"cdatetime\ndatetime\n", b"cuuid\nUUID\n", b"cfractions\nFraction\n",
    b"cbuiltins\nslice\n", b"cdecimal\nDecimal\n", b"cpathlib\nPosixPath\n", b"ccopy_reg\n_reconstructor\n",
]  # fmt: skip


def mutate(rng: random.Random, content: bytes) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6, 20))):
        if not data:
            break
        at, kind = rng.randrange(len(data)), rng.randrange(7)
        other, length = rng.randrange(len(data)), rng.randrange(1, 40)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + rng.choice((1, 2, 4, 16))]
        elif kind == 3:
            data[at:at] = rng.choice(PIECES)
        elif kind == 4:
            piece = rng.choice(PIECES)
            data[at : at + len(piece)] = piece
        elif kind == 5:
            data[at:at] = data[other : other + length]
        else:
            data = data[:at] if rng.random() < 0.2 else data[:at] + data[other : other + length] + data[at + length :]
    return bytes(data)


def touch(obj: Any, depth: int = 0) -> None:
    """Read every element of the arrays, so that a view outside its storage would show."""
    layout = str(getattr(obj, "layout", ""))
    if layout == "torch.sparse_coo":
        return touch([obj._indices(), obj._values()], depth)
    if layout == "torch.sparse_csr":
        return touch([obj.crow_indices(), obj.col_indices(), obj.values()], depth)
    array = obj._q if isinstance(obj, EncodedTensor) else getattr(obj, "_array", obj)
    if isinstance(array, np.ndarray) and array.dtype.kind in "biufc" and 0 < array.size < 1 << 20:
        np.abs(array.astype(np.complex128)).sum()
    elif isinstance(obj, (dict, list, tuple)) and depth < 5:
        for item in list(obj.values() if isinstance(obj, dict) else obj)[:50]:
            touch(item, depth + 1)


def survives(content: bytes) -> None:
    for function in (
        lambda f: load(f, map_location="cpu"),
        lambda f: read(f, ArrayBuilder()),
        get_unsafe_globals_in_checkpoint,
    ):
        start = time.perf_counter()
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("error")
                touch(function(io.BytesIO(content)))
        except UnpicklingError as e:
            assert "\n" not in str(e)
        assert time.perf_counter() - start < 10


@settings(max_examples=1500, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32), st.booleans())
def test_damaged_files(seed, inside):
    rng = random.Random(seed)
    if inside:
        data, storages = rng.choice(PICKLES)
        survives(forge.zipped(mutate(rng, data), storages))
    else:
        survives(mutate(rng, rng.choice(SEEDS)))


@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@given(
    st.lists(
        st.one_of(st.sampled_from(PIECES), st.binary(max_size=3), st.sampled_from([b"K\x00", b"N", b"\x86", b"\x87"]))
    )
)
def test_random_programs(pieces):
    survives(forge.zipped(b"\x80\x02" + b"".join(pieces) + b"."))


@pytest.mark.parametrize("path", FINDINGS, ids=lambda p: p.name)
def test_findings(path):
    survives(path.read_bytes())
