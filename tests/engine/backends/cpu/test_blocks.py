"""Large operations in blocks give what whole arrays give, for every layout and number of threads."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import engine
from engine.backends.cpu import blocks, reduce, select, threads
from engine.core.lru import LRU
from engine.ops import blocks as kernels
from engine.ops.generated import launch, small
from tests.engine.samples import Case, cases, mapped

CASES = cases()
LAYOUTS = ["contiguous", "transposed", "channels last", "sliced", "expanded", "reversed"]
POINTWISE = [c for c in CASES if c.op is not None and c.op.blocks == "elements"]
REDUCING = [c for c in CASES if c.op is not None and (c.op.blocks == "rows" or "blocks" in c.op.kernels)]


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is large, blocks have two elements, two threads."""
    monkeypatch.setattr(blocks, "LARGE", 1)
    monkeypatch.setattr(blocks, "BLOCK", 2)
    monkeypatch.setattr(blocks, "LONG", 4)
    monkeypatch.setattr(reduce, "LARGE", 1)
    monkeypatch.setattr(reduce, "_PIECE", 2)
    monkeypatch.setattr(reduce, "_ROWS", 2)
    monkeypatch.setattr(select, "_FEW", 1)
    monkeypatch.setattr(threads, "_count", 2)


def same(found: object, wanted: object) -> None:
    if isinstance(wanted, tuple | list):
        assert len(found) == len(wanted)  # type: ignore[arg-type]
        for a, b in zip(found, wanted):  # type: ignore[call-overload]
            same(a, b)
        return
    assert np.shape(found) == np.shape(wanted)
    assert np.asarray(found).dtype == np.asarray(wanted).dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-13)


def both(case: Case) -> tuple[object, object]:
    """The results of the blocks and of the op's own kernel; skips samples that need the binder's promotion."""
    args, kwargs = mapped(case.arguments(), lambda t: t._array)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            wanted = case.op.kernel(np, *args, **kwargs)
        except (TypeError, RuntimeError, NotImplementedError, AttributeError) as error:
            pytest.skip(f"the kernel alone refuses: {error}")
        return kernels.kernel_of(case.op)(np, *args, **kwargs), wanted


@pytest.mark.parametrize("case", POINTWISE, ids=str)
def test_pointwise(case: Case, tiny: None) -> None:
    same(*both(case))


@pytest.mark.parametrize("how", LAYOUTS)
def test_clone(how: str, tiny: None) -> None:
    x = strided((3, 4, 2, 5), how)
    record = engine.dispatch.OPS["clone"]
    found, wanted = kernels.kernel_of(record)(np, x), record.kernel(np, x)
    assert np.array_equal(found, x) and not np.shares_memory(found, x) and found.flags.writeable
    assert found.strides == wanted.strides


@pytest.mark.parametrize("case", REDUCING, ids=str)
def test_reductions_and_rows(case: Case, tiny: None) -> None:
    same(*both(case))


def test_options() -> None:
    """What an op says of its blocks is one of the few words, and only elementwise ops write as they go."""
    records = [c.op for c in CASES if c.op is not None]
    assert {record.blocks for record in records} == {"", "elements", "rows", "copy"}
    assert not [record.name for record in records if record.direct and record.blocks != "elements"]


@pytest.mark.parametrize("case", [c for c in POINTWISE if c.op.inplace and c.op.promote != "compare"], ids=str)
def test_in_place(case: Case, tiny: None) -> None:
    args, kwargs = mapped(case.arguments(), lambda t: t._array)
    if not isinstance(args[0], np.ndarray) or args[0].dtype.kind not in "fc":
        pytest.skip("written as whole")
    try:
        with np.errstate(all="ignore"):
            wanted = case.op.kernel(np, *args, **kwargs)
    except TypeError as error:
        pytest.skip(f"the kernel alone refuses: {error}")
    if wanted.shape != args[0].shape or wanted.dtype != args[0].dtype:
        pytest.skip("does not fit the target")
    target = args[0].copy()
    found = kernels.kernel_of(case.op)(np, target, *args[1:], into=target, **kwargs)
    if found is not target:  # left to the caller
        target[...] = found
    same(target, wanted)


@pytest.mark.parametrize("case", [c for c in POINTWISE if c.op.inplace and c.op.kernel_out], ids=str)
def test_in_place_by_the_kernel_itself(case: Case, tiny: None) -> None:
    """The kernel that writes to `out` is given all of it, not a block."""
    args, kwargs = mapped(case.arguments(), lambda t: t._array)
    if np.broadcast_shapes(*[a.shape for a in args if isinstance(a, np.ndarray)]) != args[0].shape:
        pytest.skip("does not fit the target")
    wanted = case.op.kernel(np, *args, **kwargs)
    target = args[0].copy()
    assert kernels.kernel_of(case.op)(np, target, *args[1:], out=target, **kwargs) is target
    same(target, wanted)


@pytest.mark.parametrize("dtype", [engine.float32, engine.float16, engine.int64, engine.bool], ids=str)
def test_masked_fill_of_many(dtype: engine.dtype) -> None:
    """More elements than a block has: what a causal mask over a long text is."""
    x, mask = engine.zeros(600, 1000, dtype=dtype), engine.arange(600_000).view(600, 1000) % 3 == 0
    assert x.masked_fill_(mask, 1) is x
    assert engine.equal(x, mask.to(dtype))
    assert engine.equal(x.masked_fill_(mask, engine.zeros((), dtype=dtype)), engine.zeros_like(x))


def strided(shape: tuple[int, ...], how: str) -> np.ndarray:
    values = np.random.default_rng(3).standard_normal(shape)
    if how == "transposed":
        return np.ascontiguousarray(values.T).T
    if how == "channels last":
        return np.ascontiguousarray(values.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    if how == "sliced":
        return np.repeat(values, 2, axis=-1)[..., ::2]
    if how == "expanded":
        return np.broadcast_to(values[:, :1], shape)
    if how == "reversed":
        return np.ascontiguousarray(values[::-1])[::-1]
    return values


@pytest.mark.parametrize("second", [*LAYOUTS, "channel", "row", "one", "number"])
@pytest.mark.parametrize("first", LAYOUTS)
def test_layouts(first: str, second: str, tiny: None) -> None:
    shape = (3, 4, 2, 5)
    x = strided(shape, first)
    parts = {"channel": (4, 1, 1), "row": (5,), "one": (1, 1, 1, 1)}
    y = 2.5 if second == "number" else strided(parts[second], "") if second in parts else strided(shape, second)
    kernel = kernels.kernel_of(engine.dispatch.OPS["sub"])
    found = kernel(np, x, y)
    assert np.array_equal(found, x - y)
    if first not in ("expanded", "reversed", "sliced"):
        assert found.strides == x.strides
    if second not in parts and first != "expanded":
        target = strided(shape, first)
        assert kernel(np, target, y, into=target) is not None
        assert np.array_equal(strided(shape, first) - y, x - y)


def test_in_place_with_an_operand_that_overlaps(tiny: None) -> None:
    """A row of the target among the operands: every element sees the old values."""
    x = engine.arange(12.0).view(4, 3)
    kernel = kernels.kernel_of(engine.dispatch.OPS["add"])
    target = x.numpy().copy()
    wanted = target + target[1]
    found = kernel(np, target, target[1], into=target)
    assert np.array_equal(found, wanted)


def test_outer_shapes_and_errors(tiny: None) -> None:
    kernel = kernels.kernel_of(engine.dispatch.OPS["mul"])
    a, b = np.arange(5.0)[:, None], np.arange(3.0)
    assert np.array_equal(kernel(np, a, b), a * b)
    with pytest.raises(ValueError, match="broadcast"):
        kernel(np, np.zeros(3), np.zeros(4))
    with pytest.raises(RuntimeError, match="Boolean inputs not supported for relu"):
        kernels.kernel_of(engine.dispatch.OPS["relu"])(np, np.zeros(9, bool))


def test_bits_do_not_depend_on_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("PAYS", "CALLS"):  # no op changes to generated code on the way
        monkeypatch.setattr(launch, limit, 1 << 60)
    monkeypatch.setattr(small, "OFFERS", 1 << 60)
    monkeypatch.setattr(launch, "_entries", {})  # nor to what another test has compiled and not compared
    monkeypatch.setattr(launch, "_rows", LRU(64))
    engine.manual_seed(0)
    x = engine.randn(700, 1001)
    z = x.t().contiguous()

    def results() -> list[bytes]:
        leaf = x.clone().requires_grad_()
        y = engine.nn.functional.gelu(leaf) * leaf.tanh() + leaf[:, :1]
        (y.sum() + y.softmax(1).max()).backward()
        made = [
            y,
            leaf.grad,
            x.sum(),
            x.sum(0),
            x.sum(1),
            x.mean(),
            z.var(1),
            z.log_softmax(0),
            x.amax(0),
            x.exp_(),
        ]
        return [m.detach().numpy().tobytes() for m in made]

    monkeypatch.setattr(threads, "_count", 1)
    saved = x.clone()
    alone = results()
    monkeypatch.setattr(threads, "_count", 4)
    x.copy_(saved)
    assert results() == alone


def test_large_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way, with real sizes: results, gradients, in place, and warnings that users made errors."""
    monkeypatch.setattr(threads, "_count", 2)
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 600, 1000), dtype=np.float32)
    x, y = engine.from_numpy(a.copy()).requires_grad_(), engine.from_numpy(b.copy())
    (x.relu() * y).sum().backward()
    assert np.array_equal(x.grad.numpy(), np.where(a > 0, b, 0))
    with warnings.catch_warnings(), engine.no_grad():
        warnings.simplefilter("error")
        assert np.isinf((y / 0).abs().numpy()).all()
        assert engine.isnan(y.log()).any()
    version = y._version
    y.add_(x.detach(), alpha=2).mul_(0.5)
    assert y._version == version + 2
    np.testing.assert_allclose(y.numpy(), (b + 2 * a) * 0.5, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(y.sum().item(), y.numpy().sum(dtype="f8"), rtol=1e-4)
    np.testing.assert_allclose(y.sum(0).numpy(), y.numpy().sum(0, dtype="f8"), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(y.mean(1).numpy(), y.numpy().mean(1, dtype="f8"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sizes", [(5, 7, 11), (1, 300, 4), (40, 3, 2), (3, 1, 9)])
def test_outer_products_of_each_slice_are_the_products(
    monkeypatch: pytest.MonkeyPatch, dtype: type, sizes: tuple[int, int, int]
) -> None:
    monkeypatch.setattr(kernels, "_OUTER", 20)  # blocks of one and of several slices, the last one shorter
    count, n, m = sizes
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((n, count)).astype(dtype).T[:, :, None]  # its rows lie apart
    rows = rng.standard_normal((count, 1, 2 * m)).astype(dtype)[:, :, ::2]
    rows[0, 0, 0], columns[0, 0, 0] = np.inf, 0.0
    with np.errstate(all="ignore"):
        wanted = columns * rows
    found = engine.dispatch.OPS["outer_each"].kernels["blocks"](np, columns, rows)
    if count * n * m < 20:
        assert found is NotImplemented
    else:
        np.testing.assert_array_equal(found, wanted, strict=True)


def test_other_operands_are_left_to_the_op() -> None:
    special = engine.dispatch.OPS["outer_each"].kernels["blocks"]
    large, one = np.ones((600, 600, 1), np.float32), np.ones((600, 1, 2), np.float32)
    assert special(np, large, one).shape == (600, 600, 2)
    for a, b in [
        (large[0], one[0]),
        (large, one.astype(np.float64)),
        (large.astype(int), one.astype(int)),
        (large, one[:1]),
    ]:
        assert special(np, a, b) is NotImplemented
