"""Blocks of each quantized type of GGUF, and the numbers that llama.cpp's package `gguf` computes for them.

    PYTHON_WITH_GGUF tests/engine/serialization/gguf_numbers.py

writes data/gguf_numbers.json, which `test_gguf_blocks.py` reads, so that no such package is needed to test it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

RECORD = Path(__file__).parent / "data/gguf_numbers.json"
TYPES = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
SCALES = {  # where a block has its float16 numbers, which must not be inf or nan here
    **dict.fromkeys(("Q4_0", "Q5_0", "Q8_0"), (0,)),
    **dict.fromkeys(("Q4_1", "Q5_1", "Q4_K", "Q5_K"), (0, 2)),
    **dict.fromkeys(("Q3_K", "Q6_K"), (-2,)),
    "Q2_K": (-4, -2),
}


def main() -> None:
    import gguf

    rng = np.random.default_rng(0)
    found: dict[str, dict[str, object]] = {}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        values, nbytes = gguf.GGML_QUANT_SIZES[kind]
        raw = rng.integers(0, 256, (1 if values == 256 else 2, nbytes), dtype=np.uint8)
        for at in SCALES[name]:
            scales = rng.uniform(-0.1, 0.1, len(raw)).astype("<f2")
            raw[:, at % nbytes : at % nbytes + 2] = scales.view(np.uint8).reshape(-1, 2)
        numbers = [float(str(v)) for v in gguf.dequantize(raw, kind).reshape(-1)]
        found[name] = {"blocks": raw.tobytes().hex(), "values": numbers}
    x = rng.standard_normal(96).astype(np.float32)
    x[64:] = 0
    for name in ("Q8_0", "Q4_0"):
        blocks = gguf.quantize(x, gguf.GGMLQuantizationType[name])
        found[f"to {name}"] = {"values": [float(str(v)) for v in x], "blocks": blocks.tobytes().hex()}
    lines = [f" {json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
