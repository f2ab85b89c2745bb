"""Numbers of every case, in a form small enough to keep: `python record.py FRAMEWORK` writes data/<cases>.json.

Run once under the framework to be equal to; the tests run the same cases on the engine and compare.  A tensor is
kept as dtype, shape and three numbers: its sum, a weighted sum and its largest magnitude.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

NAMES = ("convolution", "padding", "normalization", "pooling", "modules", "losses", "behaviour")
DATA = Path(__file__).parent / "data"


class Maker:
    """Random tensors, the same under every framework; `T.from_numpy` makes them."""

    def __init__(self, framework: Any) -> None:
        self.T = framework
        self.r = np.random.RandomState(0)

    def arr(self, values: Any, grad: bool = True) -> Any:
        array = np.array(values)
        t = self.T.from_numpy(array)
        return t.requires_grad_() if grad and array.dtype.kind in "fc" else t

    def __call__(self, *shape: int, grad: bool = True, dtype: str = "float64") -> Any:
        return self.arr(np.asarray(self.r.standard_normal(shape)).astype(dtype), grad)

    def pos(self, *shape: int, grad: bool = True) -> Any:
        return self.arr(np.asarray(self.r.uniform(0.3, 2.5, shape)), grad)

    def unif(self, low: float, high: float, *shape: int, grad: bool = True) -> Any:
        return self.arr(np.asarray(self.r.uniform(low, high, shape)), grad)

    def ints(self, low: int, high: int, *shape: int) -> Any:
        return self.arr(np.asarray(self.r.randint(low, high, shape)))

    def bools(self, *shape: int) -> Any:
        return self.arr(np.asarray(self.r.rand(*shape) < 0.5))


def fingerprint(t: Any) -> list[Any]:
    """dtype, shape and three numbers of a tensor."""
    dtype = str(t.dtype).split(".")[-1]
    array = np.array(t.detach().numpy()).astype(np.complex128)
    flat = array.reshape(-1)
    weights = np.cos(np.arange(flat.size))
    sums = [flat.sum(), (flat * weights).sum()]
    largest = float(np.abs(flat[np.isfinite(flat)]).max(initial=0.0))
    numbers = [x for s in sums for x in (float(s.real), float(s.imag))]
    return ["T", dtype, list(array.shape), *numbers, largest]


def kept(value: Any, tensor: type) -> Any:
    """Nested results as JSON: tensors as fingerprints, other objects as their repr."""
    if isinstance(value, tensor):
        return fingerprint(value)
    if isinstance(value, dict):
        return {str(k): kept(v, tensor) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [kept(v, tensor) for v in value]
    return value if isinstance(value, int | float | bool | str | type(None)) else repr(value)


def _leaves_of(result: Any, tensor: type) -> tuple[Any, list[Any]]:
    pair = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], list)
    if pair and result[1] and all(isinstance(t, tensor) and t.is_leaf and t.requires_grad for t in result[1]):
        return result
    return result, []


def run(call: Any, r: Maker) -> Any:
    """What a case gives: its value and gradients, or its error."""
    T = r.T
    try:
        result, leaves = _leaves_of(call(), T.Tensor)
        value = kept(result, T.Tensor)
        if not leaves:
            return [value]
        outputs = result if isinstance(result, tuple | list) else [result]
        draw = np.random.RandomState(1)
        total = None
        for t in outputs:
            if isinstance(t, T.Tensor) and t.requires_grad:
                weight = draw.standard_normal(tuple(t.shape))
                part = (t * r.arr(np.asarray(weight).astype(str(t.dtype).split(".")[-1]), False)).sum()
                total = part if total is None else total + part
        return [value, kept(T.autograd.grad(total, leaves, allow_unused=True), T.Tensor)]
    except Exception as error:
        return {"error": type(error).__name__, "message": str(error)}


def cases_of(name: str, framework: Any, package: str) -> Any:
    """(maker, (case, call) pairs) of one file."""
    nn = importlib.import_module(package + ".nn")
    functional = importlib.import_module(package + ".nn.functional")
    path = Path(__file__).parent / "cases" / f"{name}.py"
    scope: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    r = Maker(framework)
    return r, scope["cases"](framework, nn, functional, r)


def main(package: str) -> None:
    """Write data/*.json."""
    framework = importlib.import_module(package)
    warnings.simplefilter("ignore")
    for name in NAMES:
        r, cases = cases_of(name, framework, package)
        found = {case: run(call, r) for case, call in cases}
        lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items()]
        (DATA / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1])
