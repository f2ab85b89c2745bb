"""Every op sample and every nn module on CUDA: values and gradients as on the CPU.

By default on the stand-in of tests/engine/standin, which refuses what CuPy lacks and what breaks the order of streams;
with REQUIRE_CUDA=1 on the card.
"""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import numpy as np
import pytest

import engine
from engine import backends
from engine.backends import cudnn as settings
from engine.dispatch import COMPOSITES, OPS
from engine.tensor import Tensor, wrap
from tests.engine import standin
from tests.engine.backends.cuda.modules import FURTHER
from tests.engine.nn import record
from tests.engine.nn.test_against_torch import compare
from tests.engine.samples import Case, cases, mapped, tensors_of

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.long,  # each op and module: `make test-cuda`
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::RuntimeWarning"),
]
ALL = cases()
# samples that do not run on CUDA, with the reason; `make gaps` prints them
NOT_ON_CUDA: dict[str, str] = {}
# modules that no case of tests/engine/nn/cases makes
MODULES_NOT_ON_CUDA = {
    "Container": "the old name of Module, which warns",
    "RNNBase": "the base of RNN, LSTM and GRU; RNNCellBase that of their cells",
    "RNNCellBase": "see RNNBase",
}
WHERE = engine.device("cuda", 0)
PHASES = {"svd", "linalg_svd", "linalg_eigh", "linalg_eig"}  # whose vectors have a free sign or phase: libraries differ


@pytest.fixture(autouse=True)
def exact_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TF32, which torch allows in convolutions: 11 bits."""
    monkeypatch.setattr(settings, "allow_tf32", False)


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
            part = ((r.abs() if r.dtype.is_complex or case.name in PHASES else r) * weight.to(r.dtype.to_real())).sum()
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
    if case.op is not None and case.op.outputs[-1:] == ("reserve",):  # a library's own
        found, wanted = found[:-1], wanted[:-1]
    for a, b in zip([*found, *gradients], [*wanted, *expected]):
        single = b is not None and b.dtype in (engine.float32, engine.complex64)  # other libraries' exp
        rate = 1e-7 if standin.REAL else 1e-6 if single and standin.KERNELS else 1e-12
        x, y = (abs(values(t)) if case.name in PHASES else values(t) for t in (a, b))
        np.testing.assert_allclose(x, y, rate, rate)


NARROW = (
    ["bfloat16", "float16", "float32"] if standin.REAL else ["bfloat16"]
)  # the other two are numpy's on the stand-in
RATES = {"bfloat16": 6e-2, "float16": 1e-2, "float32": 2e-4}  # of the largest number of a result
WITH_FLOATS = [c for c in ALL if c.deterministic and c.name not in NOT_ON_CUDA and c.name not in PHASES]


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("case", WITH_FLOATS, ids=str)
def test_sample_of_a_narrow_type(case: Case, dtype: str, gpu: Any) -> None:
    """As on the CPU, for what the CPU computes in this type: some functions of CuPy have no loops of bfloat16."""
    kind = getattr(engine, dtype)

    def narrow(t: Tensor) -> Tensor:
        return t.detach().to(kind).requires_grad_(t.requires_grad) if t.dtype is engine.float64 else t

    if not any(t.dtype is engine.float64 for t in tensors_of(list(case.arguments()))):
        return
    try:
        wanted, expected = outcome(case, narrow)
    except Exception:  # refused, in whatever words
        return
    if case.name.startswith("linalg_") and dtype in ("float16", "bfloat16"):
        return  # below the public functions, which refuse these types on every device
    if dtype == "float16" and any(t.dtype is engine.complex32 for t in wanted):
        with pytest.raises(RuntimeError, match=r"complex32 .* is not available on CUDA"):
            outcome(case, lambda t: on_cuda(narrow(t)))
        return
    found, gradients = outcome(case, lambda t: on_cuda(narrow(t)))
    if case.op is not None and case.op.outputs[-1:] == ("reserve",):
        found, wanted = found[:-1], wanted[:-1]
    assert [t.dtype for t in found] == [t.dtype for t in wanted]
    for a, b in zip([*found, *gradients], [*wanted, *expected]):
        x, y = (values(t) for t in (a, b))
        assert x.shape == y.shape
        limit = RATES[dtype] * max(1.0, float(np.max(abs(y[np.isfinite(y)]), initial=0))) if y.dtype.kind in "fc" else 0
        np.testing.assert_allclose(x, y, RATES[dtype], limit)


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


# cases that torch refuses as well when the default device is a GPU
REFUSED_ON_CUDA = {"pads": "lengths of a packed sequence must be a tensor on the CPU"}


def without_device(value: Any) -> Any:
    """Nested results with what texts say of the device left out."""
    if isinstance(value, dict):
        return {k: without_device(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_device(v) for v in value]
    if isinstance(value, str):
        for text in ("torch.cuda.", " (cuda:0)", ", device='cuda:0'"):
            value = value.replace(text, "torch." if text == "torch.cuda." else "")
    return value


def run_cases(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    wanted = json.loads((record.DATA / f"{name}.json").read_text())
    plain = record.fingerprint
    monkeypatch.setattr(record, "fingerprint", lambda t: plain(t.cpu()))
    monkeypatch.setattr(record, "Maker", Maker)
    failures = []
    engine.set_default_device(WHERE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            r, found = record.cases_of(name, engine, "engine")
            for case, call in found:
                have = json.loads(json.dumps(record.run(call, r)))
                if case in REFUSED_ON_CUDA:
                    assert have["error"] == "RuntimeError"
                    continue
                have = without_device(have)
                try:
                    compare(wanted[case], have, case)
                except AssertionError as error:
                    failures.append(
                        f"{case}: {str(error)[:300]}\n  want {str(wanted[case])[:300]}\n  {str(have)[:300]}"
                    )
    finally:
        engine.set_default_device(None)
    return failures


@pytest.mark.parametrize("name", record.NAMES)
def test_modules(name: str, gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = run_cases(name, monkeypatch)
    assert not failures, "\n".join(failures)


def further(name: str, where: str) -> list[Any]:
    """The results of a module of `FURTHER` on a device, and the gradients of its inputs and parameters."""
    make, inputs = FURTHER[name]
    engine.manual_seed(5)
    given = [t.detach().to(where).requires_grad_(t.requires_grad) for t in inputs()]
    module = make()
    if any("Lazy" in k.__name__ for k in type(module).__mro__):  # makes its parameters at the first call
        module(*[t.cpu() for t in given])
    module = module.to(where)
    engine.manual_seed(6)
    results = tensors_of(module(*given))
    total = sum((r * (r.detach().cpu().cos() + 1).to(where)).sum() for r in results if r.requires_grad)
    leaves = [t for t in given if t.requires_grad] + list(module.parameters())
    assert {t.device.type for t in results} == {where}
    return [*results, *engine.autograd.grad(total, leaves, allow_unused=True)]


@pytest.mark.parametrize("name", FURTHER)
def test_further_modules(name: str, gpu: Any) -> None:
    """As on the CPU: outputs, gradients of inputs and of parameters, for the same seed."""
    for x, y in zip(further(name, "cuda"), further(name, "cpu")):
        rate = 1e-4 if x is not None and x.dtype is engine.float32 else 1e-9
        np.testing.assert_allclose(values(x), values(y), rate, rate)


def test_every_module_is_among_them() -> None:
    """Every class of engine.nn is made, on CUDA, by a case of tests/engine/nn or one of `FURTHER`."""
    kinds = {
        name
        for name in dir(engine.nn)
        if isinstance(found := getattr(engine.nn, name), type) and issubclass(found, engine.nn.Module)
    }
    text = "".join(path.read_text() for path in (record.DATA.parent / "cases").glob("*.py"))
    made = {name for name in kinds if re.search(rf"\b{name}\b", text)} | set(FURTHER)
    print(f"\nmodules: {len(kinds & made)} of {len(kinds)}; exempt: {len(MODULES_NOT_ON_CUDA)}")
    assert sorted(kinds - made - set(MODULES_NOT_ON_CUDA)) == []
    assert not made & set(MODULES_NOT_ON_CUDA) and not set(FURTHER) - kinds
