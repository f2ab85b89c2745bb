"""Every property of every op and sample, generated from the registry.

`pytest tests/engine/ops/test_registry.py -k "mul and gradcheck"` runs one property of one op.
"""

from __future__ import annotations

import functools
import gc
import pickle
import re
import warnings
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
import engine.ops.lazy  # every op
from engine import backends
from engine.autograd.gradcheck import gradcheck, gradgradcheck
from engine.dispatch import COMPOSITES, OPS, binder, choosing
from engine.tensor import Tensor, wrap
from tests.engine.samples import Case, cases, mapped, tensors_of

ALL = cases()
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def every(condition: Any = lambda case: True) -> Any:
    with warnings.catch_warnings():  # some conditions call the op
        warnings.simplefilter("ignore")
        chosen = [c for c in ALL if condition(c)]
    return pytest.mark.parametrize("case", chosen, ids=str)


def is_op(case: Case) -> bool:
    return case.op is not None


@functools.cache
def differentiable(case: Case) -> bool:
    if case.op is not None and not case.op.differentiable:
        return False
    args, kwargs = case.arguments()
    return any(t.requires_grad for t in tensors_of([args, kwargs]))


def close(a: Any, b: Any, rtol: float = 1e-12, atol: float = 1e-12) -> None:
    """Nested results equal in structure, shape, dtype and value."""
    left, right = tensors_of(a), tensors_of(b)
    assert len(left) == len(right)
    for x, y in zip(left, right):
        assert x.dtype is y.dtype
        assert x._array.shape == y._array.shape
        np.testing.assert_allclose(host(x), host(y), rtol, atol)


def host(t: Tensor) -> np.ndarray:
    array = backends.of_array(t._array).to_host(t._array)
    return array.astype(np.float32) if t.dtype is engine.bfloat16 else array


def flat_call(case: Case) -> tuple[Any, list[Tensor]]:
    """The op as a function of its tensors that require grad, and those tensors."""
    args, kwargs = case.seeded()
    leaves = [t for t in tensors_of([args, kwargs]) if t.requires_grad]

    def call(*values: Tensor) -> Any:
        table = {id(leaf): value for leaf, value in zip(leaves, values)}
        if not case.deterministic:
            engine.manual_seed(7)
        new_args = mapped(args, lambda t: table.get(id(t), t))
        new_kwargs = mapped(kwargs, lambda t: table.get(id(t), t))
        results = tensors_of(case.function(*new_args, **new_kwargs))
        return tuple(r for r in results if r.requires_grad)

    return call, leaves


# --- the table itself


def test_every_op_has_samples_and_a_docstring_with_shapes() -> None:
    lacking = []
    for name, record in OPS.items():
        if record.samples is None and not record.why:
            lacking.append(f"{name}: no samples")
        if "->" not in (record.kernel.__doc__ or ""):
            lacking.append(f"{name}: no shape line (input (*) -> (*)) in the docstring")
    for name, function in COMPOSITES.items():
        if not function.__doc__:
            lacking.append(f"{name}: no docstring")
    assert not lacking, "\n".join(lacking)


def test_every_name_is_defined_once() -> None:
    """A search for `def NAME(` in engine/ops finds an op at one place."""
    places: dict[str, list[str]] = {}
    folder = Path(engine.ops.__path__[0])
    for path in sorted(folder.rglob("*.py")):
        for name in re.findall(r"^def (\w+)\(", path.read_text(), re.MULTILINE):
            places.setdefault(name, []).append(str(path.relative_to(folder)))
    functions = {n: r.kernel for n, r in OPS.items()} | COMPOSITES
    names = [n for n, f in functions.items() if f.__module__.startswith("engine.ops.") and n[-1] != "_"]
    assert len(names) > 500
    wrong = {n: places.get(n, []) for n in names if len(places.get(n, [])) != 1}
    assert not wrong


def test_exemptions_have_reasons() -> None:
    bare = [n for n, r in OPS.items() if (not r.gradgrad or not r.deterministic) and not r.why]
    assert not bare


# --- values and gradients


@every()
def test_forward_keeps_inputs_and_returns_tensors(case: Case) -> None:
    args, kwargs = case.seeded()
    before = [host(t).copy() for t in tensors_of([args, kwargs])]
    result = case.function(*args, **kwargs)
    for t, kept in zip(tensors_of([args, kwargs]), before):
        np.testing.assert_array_equal(host(t), kept)
        assert t._version == 0 or case.op is None
    if case.op is not None:
        assert tensors_of(result) or isinstance(result, tuple | list)
        mine = {id(t._array) for t in tensors_of([args, kwargs])}
        for t in tensors_of(result):
            assert id(t._array) not in mine, "a kernel returned its input array"
            if not case.op.view and not case.op.shares:
                for source in tensors_of([args, kwargs]):
                    assert not np.shares_memory(host(t), host(source)), "a kernel returned a view: view=True?"


@every(differentiable)
def test_gradcheck(case: Case) -> None:
    call, leaves = flat_call(case)
    if not call(*leaves):
        pytest.fail("no output requires grad, though an input does")
    assert gradcheck(call, leaves, fast_mode=True, atol=1e-5)


@every(lambda c: differentiable(c) and (c.op is None or c.op.gradgrad))
def test_gradgradcheck(case: Case) -> None:
    call, leaves = flat_call(case)
    results = call(*leaves)
    weights = [wrap(np.ones_like(r._array)).requires_grad_() for r in results]
    found = engine.autograd.grad(results, leaves, weights, create_graph=True, allow_unused=True)
    if not any(g is not None and g.requires_grad for g in found):
        return  # linear in the inputs and independent of the weights: nothing to check
    assert gradgradcheck(call, leaves, fast_mode=True, atol=1e-4)


@every(differentiable)
def test_gradients_have_the_shape_and_dtype_of_inputs(case: Case) -> None:
    call, leaves = flat_call(case)
    results = call(*leaves)
    found = engine.autograd.grad(results, leaves, [wrap(np.ones_like(r._array)) for r in results], allow_unused=True)
    for leaf, gradient in zip(leaves, found):
        if gradient is not None:
            assert gradient.shape == leaf.shape
            assert gradient.dtype is leaf.dtype


@every(differentiable)
def test_no_grad_records_nothing(case: Case) -> None:
    with engine.no_grad():
        for t in tensors_of(case.call()):
            assert t.grad_fn is None


@every()
def test_float32_agrees_with_float64(case: Case) -> None:
    args, kwargs = case.seeded()
    wide = tensors_of(case.function(*args, **kwargs))

    def narrow(t: Tensor) -> Tensor:
        kinds = {"float64": np.float32, "complex128": np.complex64}
        target = kinds.get(t._array.dtype.name)
        return t if target is None else wrap(t._array.astype(target))

    args, kwargs = case.seeded()
    if not any(t._array.dtype.name in ("float64", "complex128") for t in tensors_of([args, kwargs])):
        return
    slim = tensors_of(case.function(*mapped(args, narrow), **mapped(kwargs, narrow)))
    if case.op is not None and not case.op.deterministic:
        return
    for a, b in zip(wide, slim):
        if a._array.dtype.kind in "fc" and b._array.dtype.itemsize * 2 == a._array.dtype.itemsize:
            np.testing.assert_allclose(host(b), host(a), 2e-3, 2e-4)


@every(lambda c: c.deterministic)
def test_non_contiguous_inputs(case: Case) -> None:
    def spread(t: Tensor) -> Tensor:
        array = t._array
        if not array.ndim or not array.size:
            return t
        wide = np.zeros((*array.shape[:-1], array.shape[-1] * 2), array.dtype)
        wide[..., ::2] = array
        result = wrap(wide[..., ::2])
        result._requires_grad = t.requires_grad
        return result

    args, kwargs = case.arguments()
    try:
        found = case.function(*mapped(args, spread), **mapped(kwargs, spread))
    except RuntimeError as error:
        if "view size is not compatible" in str(error) or "must be contiguous" in str(error) or "stride" in str(error):
            return  # refused, as torch refuses
        raise
    if case.op is not None and case.name in ("as_strided", "as_strided_relative"):
        return
    close(found, case.call(), 1e-10, 1e-10)


def _float32(value: Any) -> Any:
    return mapped(value, lambda t: t._array.astype("float32") if t.dtype is engine.float64 else t._array)


@pytest.mark.onednn
@every(lambda c: is_op(c) and choosing.onednn_kernels() and "onednn" in c.op.kernels)
def test_kernel_variants_agree(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """oneDNN's kernel of an op, where it takes the sample, against the op's own; test_onednn.py has larger ones."""
    from engine.ops.products import onednn as onednn_blas

    monkeypatch.setattr(onednn_blas, "_PRODUCT", 0)
    args, kwargs = case.seeded()
    found = case.op.kernels["onednn"](np, *_float32(args), **_float32(kwargs))
    if found is NotImplemented:
        return
    args, kwargs = case.seeded()
    wanted = case.op.kernel(np, *_float32(args), **_float32(kwargs))
    pairs = zip(found, wanted) if isinstance(found, tuple) else [(found, wanted)]
    for a, b in pairs:
        assert a.shape == b.shape and a.dtype == b.dtype
        np.testing.assert_allclose(a, b, 1e-4, 1e-5)


# --- in-place, out=, views, versions


@functools.cache
def _inplace_fits(case: Case) -> bool:
    """The result of this sample fits the input: a real in-place call."""
    if case.op is None or not case.op.inplace:
        return False
    args, kwargs = case.seeded()
    if not isinstance(args[0], Tensor):
        return False
    result = case.function(*args, **kwargs)
    return isinstance(result, Tensor) and result.shape == args[0].shape and result.dtype is args[0].dtype


@every(_inplace_fits)
def test_inplace_twin(case: Case) -> None:
    twin = case.op.inplace_function
    args, kwargs = case.seeded()
    expected = case.function(*args, **kwargs)
    args, kwargs = case.seeded()
    leaf = args[0]
    if leaf.requires_grad:
        kept = host(leaf).copy()
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place"):
            twin(*args, **kwargs)
        np.testing.assert_array_equal(host(leaf), kept)
    args, kwargs = case.seeded()
    target = args[0].clone()
    version = target._version
    assert twin(target, *args[1:], **kwargs) is target
    assert target._version == version + 1
    np.testing.assert_allclose(host(target), host(expected), 1e-12, 1e-12)


@every(lambda c: _inplace_fits(c) and differentiable(c))
def test_inplace_gradient_equals_out_of_place(case: Case) -> None:
    def gradients(inplace: bool) -> list[Any]:
        args, kwargs = case.seeded()
        leaves = [t for t in tensors_of([args, kwargs]) if t.requires_grad]
        first = args[0] * 1.0 if args[0].dtype.is_floating_point or args[0].dtype.is_complex else args[0].clone()
        function = case.op.inplace_function if inplace else case.function
        result = function(first, *args[1:], **kwargs)
        if not result.requires_grad:
            return []
        weight = wrap(np.linspace(0.5, 1.5, result.numel()).reshape(result.shape).astype(result._array.dtype))
        return list(engine.autograd.grad(result, leaves, weight, allow_unused=True))

    for a, b in zip(gradients(True), gradients(False)):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(host(a), host(b), 1e-10, 1e-10)


@every(lambda c: is_op(c) and c.op.out and c.op.public)
def test_out(case: Case) -> None:
    args, kwargs = case.seeded()
    if any(t.requires_grad for t in tensors_of([args, kwargs])) and "graph" not in case.op.out_as:
        outs = [wrap(np.zeros_like(host(t))) for t in tensors_of(case.call())]
        args, kwargs = case.seeded()
        with pytest.raises(RuntimeError, match=r"functions with out=\.\.\. arguments don't support"):
            case.function(*args, **kwargs, out=tuple(outs) if len(outs) != 1 else outs[0])
    with engine.no_grad():
        expected = tensors_of(case.call())
        args, kwargs = case.seeded()
        outs = [wrap(np.zeros_like(t._array)) for t in expected]
        case.function(*args, **kwargs, out=tuple(outs) if len(outs) != 1 else outs[0])
    for out, want in zip(outs, expected):
        np.testing.assert_array_equal(host(out), host(want))
        assert out._version == 1


@every(lambda c: is_op(c) and c.op.view)
def test_views_share_memory_and_version(case: Case) -> None:
    args, kwargs = case.seeded()
    base = args[0].detach().clone()
    for t in tensors_of(case.function(base, *args[1:], **kwargs)):
        assert t._base is base
        assert not t.numel() or np.shares_memory(t._array, base._array)
        with engine.no_grad():
            base.mul_(1)
        assert t._version == base._version > 0


@every(lambda c: is_op(c) and c.op.view and not c.op.many and differentiable(c))
def test_write_through_a_view_reaches_the_base(case: Case) -> None:
    args, kwargs = case.seeded()
    leaf = args[0]
    base = leaf * 1
    piece = case.function(base, *args[1:], **kwargs)
    if 0 in piece._array.strides or not piece.numel() or not piece.dtype.is_floating_point:
        return
    if base.dtype.is_complex:
        return  # real weights below
    piece.mul_(2)
    assert type(base.grad_fn).__name__ == "CopySlices"
    weight = wrap(np.linspace(0.5, 1.5, base.numel()).reshape(base.shape))
    (found,) = engine.autograd.grad(base, [leaf], weight)
    mask = wrap(np.ones(base.shape))
    with engine.no_grad():
        case.function(mask, *args[1:], **kwargs).mul_(2)
    np.testing.assert_allclose(host(found), host(weight) * host(mask))


@every(lambda c: is_op(c) and differentiable(c))
def test_saved_values_are_guarded(case: Case) -> None:
    """What a formula reads is refused once changed; what none reads may change."""
    args, kwargs = case.seeded()
    results = [r for r in tensors_of(case.function(*args, **kwargs)) if r.requires_grad]
    if not results:
        return
    node = results[0].grad_fn
    read = [n for n in (node.saved or ()) if isinstance(n, Tensor)]
    for leaf in tensors_of([args, kwargs]):
        if not leaf.numel():
            continue
        args2, kwargs2 = case.seeded()
        twins = dict(zip(map(id, tensors_of([args, kwargs])), tensors_of([args2, kwargs2])))
        twin = twins[id(leaf)]
        again = [r for r in tensors_of(case.function(*args2, **kwargs2)) if r.requires_grad]
        was_saved = any(s is twin for s in (again[0].grad_fn.saved or ()))
        was_saved |= any(isinstance(s, tuple) and any(x is twin for x in s) for s in (again[0].grad_fn.saved or ()))
        with engine.no_grad():
            if twin._array.dtype.kind == "b":
                twin.logical_not_()
            else:
                twin.add_(0)
        weights = [wrap(np.ones_like(r._array)) for r in again]
        if case.op.view:
            continue
        if was_saved:
            with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
                engine.autograd.backward(again, weights)
        else:
            engine.autograd.backward(again, weights)
    del read


# --- memory, pickling


@every(lambda c: is_op(c))
def test_results_die_without_the_garbage_collector(case: Case) -> None:
    args, kwargs = case.seeded()
    case.function(*args, **kwargs)
    args, kwargs = case.seeded()
    gc.disable()
    try:
        result = case.function(*args, **kwargs)
        alive = [weakref.ref(t) for t in tensors_of(result)]
        nodes = [weakref.ref(t.grad_fn) for t in tensors_of(result) if t.grad_fn is not None]
        del result
        assert all(r() is None for r in alive + nodes)
    finally:
        gc.enable()


@every(lambda c: is_op(c))
def test_results_pickle(case: Case) -> None:
    for t in tensors_of(case.call()):
        twin = pickle.loads(pickle.dumps(t.detach()))
        assert twin.dtype is t.dtype and twin.shape == t.shape
        np.testing.assert_array_equal(host(twin), host(t.detach()))


def with_lists(value: Any) -> Any:
    """`value` with every tuple of ints as a list."""
    if type(value) is tuple and value and all(type(n) is int for n in value):
        return list(value)
    return {k: with_lists(v) for k, v in value.items()} if isinstance(value, dict) else value


def takes_sizes(case: Case) -> bool:
    if is_op(case) and not case.op.public:
        return False
    args, kwargs = case.arguments()
    return any(with_lists(v) is not v for v in (*args, *kwargs.values()))


@every(takes_sizes)
def test_lists_of_ints_are_as_good_as_tuples(case: Case) -> None:
    narrow = lambda t: t.detach().float().requires_grad_(t.requires_grad) if t.is_floating_point() else t
    found = []
    for change in (lambda v: v, with_lists):
        args, kwargs = case.seeded()
        args, kwargs = mapped(args, narrow), mapped(kwargs, narrow)
        outputs = case.function(*map(change, args), **change(kwargs))
        tracked = [t for t in tensors_of(outputs) if t.requires_grad]
        if tracked:
            engine.autograd.backward(tracked, [engine.ones_like(t) for t in tracked])
        found.append([outputs, [t.grad for t in tensors_of([args, kwargs]) if t.requires_grad and t.grad is not None]])
    close(*found)


@every(lambda c: is_op(c) and c.index == 0)
def test_method_is_the_function(case: Case) -> None:
    if case.op.method and case.op.params and case.op.params[0] == "input":
        assert getattr(Tensor, case.name) is case.function
    source = binder.source(case.op)
    assert re.match(r"def call\(", source)


@every(lambda c: is_op(c) and c.index == 0 and bool(c.op.tensors))
def test_a_wrong_argument_is_a_type_error(case: Case) -> None:
    args, kwargs = case.seeded()
    with warnings.catch_warnings(), pytest.raises(TypeError):
        warnings.simplefilter("ignore")
        case.function(object(), *args[1:], **kwargs)
