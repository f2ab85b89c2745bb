"""Which writes between forward and backward are refused: `saved.json`, torch's answers for every sample.

An operation may refuse a backward pass only because something was written that its formula reads.  For every sample of
the registry, and for the programs of `saved_programs.py`, each input, each output and (before a second backward) each
gradient, input and output is written in place, one at a time.  The answers are a string of digits per case,
"inputs|outputs|gradients|inputs|outputs", the last three before a second backward: 1 where the pass is refused, 0 where
it runs, - where torch itself could not be asked.

Written by `PYTHONPATH=. PYTHON-WITH-TORCH-2.13 -m tests.engine.ops.writes`, which runs the samples under both.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("saved.json")
MODIFIED = "modified by an inplace operation"


def tensors(value: Any, kind: type) -> Iterator[Any]:
    """Every tensor of a nest of lists and dicts, in order."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, dict):
        for x in value.values():
            yield from tensors(x, kind)
    elif isinstance(value, tuple | list):
        for x in value:
            yield from tensors(x, kind)


class Skip(Exception):
    """Nothing is differentiable here."""


def _write(lib: Any, tensor: Any) -> None:
    with lib.no_grad():
        tensor.copy_(tensor.detach().clone())


def _attempt(lib: Any, build: Callable[[], tuple[list[Any], Callable[[], Any]]], part: int, index: int) -> str:
    inputs, run = build()
    results = list(tensors(run(), lib.Tensor))
    roots = [r for r in results if r.requires_grad and r.grad_fn is not None]
    leaves = [i for i in inputs if i.requires_grad]
    if not roots or not leaves:
        raise Skip
    grads = [lib.ones_like(r).requires_grad_(part >= 2) for r in roots]
    first: Any = ()
    try:
        if part >= 2:
            first = lib.autograd.grad(roots, leaves, grads, create_graph=True, allow_unused=True)
            first = [g for g in first if g is not None and g.grad_fn is not None]
            if not first:
                return "0"
    except Exception:
        return "-"
    try:
        _write(lib, (inputs, results, grads, inputs, results)[part][index])
    except Exception:  # expanded memory
        return "-"
    try:
        if part >= 2:
            ones = [lib.ones_like(g) for g in first]
            lib.autograd.grad(first, leaves + grads, ones, allow_unused=True)
        else:
            lib.autograd.grad(roots, leaves, grads, allow_unused=True)
    except Exception as error:
        return "1" if MODIFIED in str(error) else "-"
    return "0"


def answers(lib: Any, build: Callable[[], tuple[list[Any], Callable[[], Any]]]) -> str | None:
    """`inputs|outputs|gradients|inputs|outputs`; None where there is nothing to differentiate."""
    inputs, run = build()
    results = list(tensors(run(), lib.Tensor))
    roots = [r for r in results if r.requires_grad and r.grad_fn is not None]
    try:
        counts = (len(inputs), len(results), len(roots), len(inputs), len(results))
        return "|".join("".join(_attempt(lib, build, p, i) for i in range(n)) for p, n in enumerate(counts))
    except Skip:
        return None


def of_case(case: Any) -> Callable[[], tuple[list[Any], Callable[[], Any]]]:
    """How the engine runs a case of the registry."""
    from engine.tensor import Tensor

    def build() -> tuple[list[Any], Callable[[], Any]]:
        args, kwargs = case.seeded()
        return list(tensors((args, kwargs), Tensor)), lambda: case.function(*args, **kwargs)

    return build


def _twin(torch: Any, case: Any) -> Any:
    """How torch runs the same case; None where it has no such function or gives something else."""
    import numpy as np

    import engine

    args, kwargs = case.seeded()
    expected = [t.detach() for t in tensors(case.function(*args, **kwargs), engine.Tensor)]

    def convert(value: Any) -> Any:
        if isinstance(value, engine.Tensor):
            made = torch.as_strided(
                torch.from_numpy(np.array(value.detach().numpy(), copy=True)), value.shape, _dense(value.shape)
            )
            if value.stride() != made.stride() and value.dim() and 0 not in value.stride():
                made = torch.empty_strided(tuple(value.shape), value.stride(), dtype=made.dtype).copy_(made)
            return made.requires_grad_(value.requires_grad)
        if isinstance(value, engine.core.dtypes.dtype):
            return getattr(torch, str(value).removeprefix("torch."))
        if isinstance(value, engine.device):
            return torch.device(str(value))
        if isinstance(value, engine.memory_format):
            return getattr(torch, str(value).removeprefix("torch."))
        if isinstance(value, list):
            return [convert(x) for x in value]
        if isinstance(value, tuple):
            return tuple(convert(x) for x in value)
        if isinstance(value, dict):
            return {k: convert(v) for k, v in value.items()}
        return value

    def same(found: list[Any]) -> bool:
        if len(found) != len(expected):
            return False
        for f, e in zip(found, expected):
            if tuple(f.shape) != tuple(e.shape):
                return False
            if case.deterministic and not np.allclose(
                f.detach().resolve_conj().resolve_neg().numpy(), e.numpy(), 1e-4, 1e-6, equal_nan=True
            ):
                return False
        return True

    for name in dict.fromkeys((case.name if case.op is None else case.op.called, case.name)):
        for where in (
            torch.nn.functional,
            torch,
            torch.Tensor,
            torch.linalg,
            torch.special,
            torch.fft,
            torch._C._nn,
            torch._C._linalg,
            torch.ops.aten,
        ):
            function = getattr(where, name.removeprefix("linalg_") if where is torch.linalg else name, None)
            if function is None or not callable(function):
                continue

            def build(function: Any = function) -> tuple[list[Any], Callable[[], Any]]:
                args, kwargs = case.seeded()
                a, k = convert(list(args)), convert(kwargs)
                return list(tensors((a, k), torch.Tensor)), lambda: function(*a, **k)

            try:
                if same(list(tensors(build()[1](), torch.Tensor))):
                    return build
            except Exception:
                continue
    return None


def _dense(shape: Any) -> tuple[int, ...]:
    strides, size = [], 1
    for n in reversed(tuple(shape)):
        strides.append(size)
        size *= max(n, 1)
    return tuple(reversed(strides))


def main() -> None:
    import torch

    from tests.engine.ops import saved_programs
    from tests.engine.samples import cases

    warnings.simplefilter("ignore")
    table: dict[str, str] = {}
    none = 0
    for case in cases():
        build = _twin(torch, case)
        if build is None:
            none += 1
            continue
        found = answers(torch, build)
        if found is not None:
            table[str(case)] = found
    for name, program in saved_programs.PROGRAMS.items():
        found = answers(torch, lambda program=program: program(torch))
        if found is not None:
            table["program " + name] = found
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in table.items())
    FILE.write_text("{\n" + lines + "\n}\n", "utf-8")
    print(len(table), "cases;", none, "that torch has not", file=sys.stderr)


if __name__ == "__main__":
    main()
