"""The files that real torch was seen to open are still what the engine writes; see interchange.py."""

from __future__ import annotations

import hashlib
import io
import json

import pytest

from engine.core import dtypes
from engine.serialization import load, sniff

from . import interchange

RECORD = json.loads(interchange.RECORD.read_text())


@pytest.mark.parametrize("kind", interchange.FORMATS)
def test_the_bytes_are_those_that_torch_opened(kind):
    content = interchange.written(kind)
    assert sniff(io.BytesIO(content)) == kind
    assert hashlib.sha256(content).hexdigest() == RECORD["files"][kind]["sha256"], (
        "the format has changed: run `python -m tests.engine.serialization.interchange PYTHON_WITH_TORCH`"
    )
    assert load(io.BytesIO(content)).keys() == set(RECORD["files"][kind]["tensors"])


@pytest.mark.parametrize("kind", interchange.FORMATS)
def test_every_dtype_is_there(kind):
    lacking = interchange.LACKS.get(kind, ())
    assert {d.name for d in dtypes.ALL} - set(RECORD["files"][kind]["tensors"]) == set(lacking)
