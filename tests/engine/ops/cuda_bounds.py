"""Some kernels under AddressSanitizer, which sees reads and writes outside of numpy's arrays.

`python -m tests.engine.ops.cuda_bounds [OLD NEW]`, with libasan preloaded; OLD is replaced by NEW in every source.
"""

from __future__ import annotations

import sys

import numpy as np

from engine.backends.cuda import compile as compiling
from engine.dispatch import OPS
from engine.ops.cuda import elementwise
from tests.engine import shim
from tests.engine.ops.test_cuda import kernel_of, on_samples

NAMES = {
    "softmax",
    "log_softmax_backward",
    "native_layer_norm",
    "native_layer_norm_backward",
    "batch_norm_train",
    "batch_norm_backward",
    "normalize_groups",
    "softmax_nll_rows",
    "softmax_nll_backward",
    "embedding",
    "gather",
    "embedding_dense_backward",
    "sum",
    "max_dim",
    "add",
    "gelu_backward",
    "where_tensors",
    "masked_fill_value",
}


def work() -> list[str]:
    """What differs: the samples, and vectors of sizes that are no multiple of what a thread takes."""
    wrong = on_samples(("float32",), NAMES)[1]
    add = elementwise.kernel_of(OPS["add"])
    for size in (1, 3, 5, 255, 256, 257, 1023, 1025, 4097):
        for dtype in ("float32", "float16"):
            x = np.arange(size, dtype=dtype)
            if not (add(np, x, x) == x + x).all():
                wrong.append(f"add of {size} {dtype}")
    x = np.random.default_rng(0).standard_normal((3, 33000)).astype(np.float32)
    if not np.allclose(kernel_of("sum")(np, x, 1), x.sum(1), atol=0.05):
        wrong.append("sum in parts")
    return wrong


def main() -> None:
    """Exit status 0 and `ok` if all agree."""
    builder = compiling.Shim(sanitize=True, change=shim.Plant(*sys.argv[1:]) if sys.argv[1:] else None)
    if sys.argv[1:]:
        with shim.using(builder):
            add = elementwise.kernel_of(OPS["add"])
            x = np.arange(257, dtype=np.float32)
            add(np, x, x)
        return
    builder.prepare(list(shim.noted(work).sources))
    with shim.using(builder):
        wrong = work()
    print("\n".join(wrong) if wrong else "ok")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
