"""Numbers that real torch gave, and weights that are the same everywhere.

A use says `check("name", tensor)`: it must be near what `numbers/PACKAGE.json` holds, recorded under PyTorch 2.13 by
`RECORD=1 python tests/packages/use.py PACKAGE`.  `fill(model)` draws every parameter by its name with numpy.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

HERE = Path(__file__).parent
PATH = HERE / "numbers" / f"{Path(sys.argv[0]).stem}.json"
RECORD = bool(os.environ.get("RECORD"))
OTHER_RELEASE = bool(os.environ.get("OTHER_RELEASE"))
KNOWN = json.loads(PATH.read_text()) if PATH.exists() and not RECORD else {}


def draw(name: str, *shape: int, dtype: str = "float32") -> torch.Tensor:
    """Uniform numbers in [0, 1) (uint8: 0 to 255) that depend on the name alone."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype == "uint8":
        return torch.tensor(rng.integers(0, 256, shape, dtype=np.uint8))
    return torch.tensor(rng.random(shape, dtype=np.float32))


def fill(model: Any) -> Any:
    """The model in eval mode with parameters and buffers drawn by their names."""
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            if not p.is_floating_point():
                continue
            rng, shape = np.random.default_rng(zlib.crc32(name.encode())), tuple(p.shape)
            if "running_var" in name or (name.endswith("weight") and p.dim() == 1):
                value = rng.uniform(0.8, 1.2, shape)
            elif p.dim() > 1:
                heads = ("rpn", "head", "predictor", "fpn", "conv3")
                small = 0.35 if any(word in name for word in heads) else 1.0
                value = rng.standard_normal(shape) * (0.7 / np.prod(shape[1:])) ** 0.5 * small
            else:
                value = rng.standard_normal(shape) * 0.05
            p.copy_(torch.tensor(np.asarray(value, np.float32)))
    return model.eval()


def summary(value: Any) -> list[Any]:
    """Shape, mean, mean size and some elements of a tensor."""
    flat = np.asarray(value.detach().numpy(), np.float64).ravel()
    some = flat[np.linspace(0, len(flat) - 1, 6).astype(int)] if len(flat) else flat
    means = [float(flat.mean()), float(np.abs(flat).mean())] if len(flat) else []
    return [list(value.shape), *means, *map(float, some)]


def check(name: str, value: Any, within: float = 1e-4) -> None:
    """AssertionError unless a tensor (or nested tensors) is as recorded, relative to its mean size.

    Of a release that computes something else than the recorded one, only that the numbers are finite.
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for i, one in enumerate(value):
            check(f"{name}.{i}", one, within)
        return
    found = summary(value)
    if RECORD:
        KNOWN[name] = [found[0], *(float(f"{x:.7g}") for x in found[1:])]
        PATH.write_text("{\n" + ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in KNOWN.items()) + "\n}\n")
        return
    if OTHER_RELEASE:
        assert np.isfinite(found[1:]).all(), f"{name}: {found[1:]}"
        return
    wanted = KNOWN[name]
    assert found[0] == wanted[0], f"{name}: shape {found[0]}, torch gives {wanted[0]}"
    scale = wanted[2] + 1e-6 if len(wanted) > 1 else 1.0
    error = max((abs(a - b) / max(scale, abs(b)) for a, b in zip(found[1:], wanted[1:])), default=0.0)
    assert error < within, f"{name}: {found[1:]} where torch gives {wanted[1:]}, error {error:.1e}"
