"""Every op sample and every nn module on CUDA: values and gradients as on the CPU.

By default on the stand-in of tests/engine/standin, which refuses what CuPy lacks and what breaks the order of streams;
with REQUIRE_CUDA=1 on the card.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import engine
from engine import backends
from engine.dispatch import COMPOSITES, OPS
from engine.tensor import Tensor, wrap
from tests.engine import standin
from tests.engine.nn import record
from tests.engine.nn.test_against_torch import compare
from tests.engine.samples import Case, cases, mapped, tensors_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::RuntimeWarning"),
]
ALL = cases()
# samples that do not run on CUDA, with the reason; `make gaps` prints them
NOT_ON_CUDA: dict[str, str] = {}
# modules that no case of tests/engine/nn/cases makes
MODULES_NOT_ON_CUDA = {
    "Container": "the old name of Module, which warns",
    "Module": "the base class",
}
WHERE = engine.device("cuda", 0)


def on_cuda(t: Tensor) -> Tensor:
    """A leaf on the GPU with the values of one on the CPU."""
    made = wrap(backends.of_device(WHERE).from_host(t._array, WHERE))
    made._requires_grad = t.requires_grad
    return made


def outcome(case: Case, move: Any) -> tuple[list[Tensor], list[Tensor | None]]:
    """The results of a sample and the gradients of a fixed weighted sum of them by every leaf."""
    args, kwargs = case.seeded()
    args, kwargs = mapped(args, move), mapped(kwargs, move)
    leaves = [t for t in tensors_of([args, kwargs]) if t.requires_grad]
    results = tensors_of(case.function(*args, **kwargs))
    total: Any = None
    draw = np.random.default_rng(3)
    for r in results:
        if r.requires_grad and (r.dtype.is_floating_point or r.dtype.is_complex):
            weight = move(wrap(np.asarray(draw.standard_normal(tuple(r.shape)))))
            part = ((r.abs() if r.dtype.is_complex else r) * weight.to(r.dtype.to_real())).sum()
            total = part if total is None else total + part
    if total is None or not leaves or (case.op is not None and not case.op.differentiable):
        return results, []
    return results, list(engine.autograd.grad(total, leaves, allow_unused=True))


def values(t: Tensor | None) -> np.ndarray:
    if t is None:
        return np.zeros(0)
    array = backends.of_array(t._array).to_host(t._array)
    return array.astype(np.float32) if t.dtype is engine.bfloat16 else array


def has_tensors(case: Case) -> bool:
    return bool(tensors_of(list(case.arguments())))


@pytest.mark.parametrize("case", [c for c in ALL if c.name not in NOT_ON_CUDA], ids=str)
def test_sample(case: Case, gpu: Any) -> None:
    if not has_tensors(case):  # a factory
        assert on_default_device(case) is not None
        return
    found, gradients = outcome(case, on_cuda)
    for t in found:
        assert type(t._array) is gpu.array_type, "the result left the device"
    wanted, expected = outcome(case, lambda t: t)
    assert [t.dtype for t in found] == [t.dtype for t in wanted]
    assert [g is None for g in gradients] == [g is None for g in expected]
    if not case.deterministic:
        return
    rate = 1e-12 if not standin.REAL else 1e-7
    for a, b in zip([*found, *gradients], [*wanted, *expected]):
        np.testing.assert_allclose(values(a), values(b), rate, rate)


def on_default_device(case: Case) -> Any:
    """A factory's result with the default device on CUDA."""
    engine.set_default_device(WHERE)
    try:
        return case.call()
    finally:
        engine.set_default_device(None)


def test_every_sample_runs(record_property: Any) -> None:
    """The count that `make test-cuda` prints: all of the registry's, less the exemptions, which have reasons."""
    sampled = {c.name for c in ALL}
    lacking = [n for n, r in OPS.items() if n not in sampled and not r.why]
    exempt = [c for c in ALL if c.name in NOT_ON_CUDA]
    print(
        f"\non {'the GPU' if standin.REAL else 'the stand-in'}: {len(ALL) - len(exempt)} of {len(ALL)} samples of "
        f"{len(sampled)} ops and composites ({len(OPS)} ops, {len(COMPOSITES)} composites); exempt: {len(exempt)}"
    )
    assert not lacking
    assert set(NOT_ON_CUDA) <= sampled and all(NOT_ON_CUDA.values())


# --- modules, against torch's numbers


class Maker(record.Maker):
    """Tensors on the GPU, with the values of `record.Maker`."""

    def arr(self, values: Any, grad: bool = True) -> Any:
        t = on_cuda(super().arr(values, False))
        return t.requires_grad_() if grad and t._array.dtype.kind in "fc" else t


seen: set[str] = set()
# what a case says of the CPU itself: its device, its memory, numpy
ABOUT_THE_CPU: dict[str, str] = {}


def run_cases(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    wanted = json.loads((record.DATA / f"{name}.json").read_text())
    plain = record.fingerprint
    monkeypatch.setattr(record, "fingerprint", lambda t: plain(t.cpu()))
    monkeypatch.setattr(record, "Maker", Maker)
    made = engine.nn.Module.__init__

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        seen.update(k.__name__ for k in type(self).__mro__ if k.__module__.startswith("engine.nn"))
        made(self, *args, **kwargs)

    monkeypatch.setattr(engine.nn.Module, "__init__", noted)
    failures = []
    engine.set_default_device(WHERE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            r, found = record.cases_of(name, engine, "engine")
            for case, call in found:
                have = json.loads(json.dumps(record.run(call, r)))
                if case in ABOUT_THE_CPU:
                    continue
                try:
                    compare(wanted[case], have, case)
                except AssertionError as error:
                    failures.append(f"{case}: {str(error)[:300]}\n  want {str(wanted[case])[:300]}\n  {str(have)[:300]}")
    finally:
        engine.set_default_device(None)
    return failures


@pytest.mark.parametrize("name", record.NAMES)
def test_modules(name: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = run_cases(name, monkeypatch)
    assert not failures, "\n".join(failures)
