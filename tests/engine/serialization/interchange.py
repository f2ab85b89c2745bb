"""Files that the engine writes, for every format and dtype, and what real torch reads from them.

    python -m tests.engine.serialization.interchange PYTHON_WITH_TORCH

writes the files into a temporary folder, opens them with torch.load (weights_only) and safetensors.torch, compares
dtype, shape, strides, values and sharing, and notes the digest of each file in data/opened_by_torch.json.
`test_interchange.py` holds the engine to the same bytes, so that no torch is needed to test it.
"""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tempfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

import engine
from engine import serialization
from engine.core import dtypes
from engine.nn.parameter import Parameter

RECORD = Path(__file__).parent / "data/opened_by_torch.json"
LACKS = {  # dtypes that a format has no form for
    "legacy": ("uint16", "uint32", "uint64"),
    "safetensors": ("complex128",),
}
FORMATS = ("zip", "legacy", "safetensors")

CHILD = """
import json, sys
import torch
from safetensors.torch import load_file
found = {"torch": torch.__version__, "files": {}}
for path in sys.argv[1:]:
    kind = path.rpartition("/")[2].partition(".")[0]
    state = load_file(path) if kind == "safetensors" else torch.load(path, weights_only=True)
    rows = found["files"][kind] = {}
    for name, t in state.items():
        flat = torch.view_as_real(t.detach()) if t.is_complex() else t.detach()
        rows[name] = {
            "dtype": str(t.dtype)[6:], "shape": list(t.shape), "stride": list(t.stride()),
            "values": flat.double().flatten().tolist(), "requires_grad": t.requires_grad,
            "parameter": isinstance(t, torch.nn.Parameter),
            "with": [n for n, o in state.items() if o is not t and t.numel() and o.numel()
                     and o.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()],
        }
print(json.dumps(found))
"""


def state(kind: str) -> OrderedDict[str, Any]:
    """A tensor of every dtype, and views of one memory: what a format is asked to hold."""
    made: OrderedDict[str, Any] = OrderedDict()
    for dtype in dtypes.ALL:
        if dtype.name not in LACKS.get(kind, ()):
            values = engine.tensor([[0, 1, 2], [3, 100, 5]])
            made[dtype.name] = (values % 2 == 0) if dtype is engine.bool else values.to(dtype)
    base = engine.arange(12.0).reshape(3, 4)
    made.update(scalar=engine.tensor(3.5), empty=engine.empty(0, 3), base=base)
    if kind != "safetensors":  # which has neither
        made.update(row=base[1], transposed=base.t(), stepped=base[:, ::2], expanded=engine.ones(1, 3).expand(4, 3))
        made["parameter"] = Parameter(engine.ones(2))
    return made


def written(kind: str) -> bytes:
    """The file of a format."""
    out = io.BytesIO()
    if kind == "safetensors":
        serialization.save_safetensors(state(kind), out, {"format": "pt"})
    else:
        serialization.save(state(kind), out, _use_new_zipfile_serialization=kind == "zip")
    return out.getvalue()


def described(kind: str) -> dict[str, Any]:
    """What the child is to find."""
    tensors = state(kind)
    rows = {}
    for name, t in tensors.items():
        array = np.asarray(t.detach()._array)
        wide = np.ascontiguousarray(array.astype(np.complex128 if t.is_complex() else np.float64)).reshape(-1)
        rows[name] = {
            "dtype": t.dtype.name,
            "shape": list(t.shape),
            "stride": list(t.stride()),
            "values": wide.view(np.float64).tolist(),
            "requires_grad": t.requires_grad,
            "parameter": isinstance(t, Parameter),
            "with": [
                n
                for n, o in tensors.items()
                if o is not t and t.numel() and o.numel() and np.shares_memory(o._array, t._array)
            ],
        }
    return rows


def main() -> int:
    """Have torch open the files; 1 where it reads something else."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for kind in FORMATS:
            path = Path(folder) / f"{kind}.{'safetensors' if kind == 'safetensors' else 'pth'}"
            path.write_bytes(written(kind))
            paths.append(str(path))
        done = subprocess.run([sys.argv[1], "-c", CHILD, *paths], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return 1
    found = json.loads(done.stdout)
    bad = 0
    for kind in FORMATS:
        for name, wanted in described(kind).items():
            if found["files"][kind].get(name) != wanted:
                bad += 1
                print(f"{kind} {name}: wrote {wanted}, torch read {found['files'][kind].get(name)}")
    if bad:
        return 1
    record = {
        "torch": found["torch"],
        "files": {
            kind: {"sha256": hashlib.sha256(written(kind)).hexdigest(), "tensors": list(state(kind))}
            for kind in FORMATS
        },
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    print(f"torch {found['torch']} reads all {sum(len(state(kind)) for kind in FORMATS)} tensors as they were written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
