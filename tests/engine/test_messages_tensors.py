"""What constructors, sizes, elements and masks of tensors refuse, in torch's words; and what old code calls."""

from __future__ import annotations

import re

import numpy as np
import pytest

import engine


class Items:
    """A sequence by `__len__` and `__getitem__` alone."""

    def __init__(self, *items: float) -> None:
        self.items = items

    def __len__(self) -> int:
        return 3

    def __getitem__(self, place: int) -> float:
        if not self.items:
            raise TypeError
        return self.items[place]


def _itself() -> list:
    found: list = [0]
    found.append(found)
    return found


X = engine.zeros(3, 3)
WHOLE, REAL = engine.arange(4), engine.arange(4.0)
REFUSED = {
    "del": (lambda: X.__delitem__(0), TypeError, "Tensor does not support deleting items"),
    "Size of numbers": (lambda: engine.Size([1.5]), TypeError, "takes an iterable of 'int' (item 0 is 'float')"),
    "Size of a tensor": (lambda: engine.Size(engine.ones(2)), TypeError, "takes an iterable of 'int' (item 0 is 'Te"),
    "apply_ to whole": (lambda: WHOLE.clone().apply_(lambda k: "a"), TypeError, "'str' object cannot be interpreted"),
    "apply_ to real": (lambda: REAL.clone().apply_(lambda k: None), TypeError, "must be real number, not NoneType"),
    "map_": (lambda: REAL.clone().map_(REAL, lambda a, b: "x"), TypeError, "must be real number, not str"),
    "map2_ with grad": (
        lambda: REAL.map2_(REAL, REAL.clone().requires_grad_(), max),
        RuntimeError,
        "Can't call map2_() on Variable that requires grad",
    ),
    "mixed": (lambda: engine.tensor([0, "torch"]), TypeError, "new(): invalid data type 'str'"),
    "text": (lambda: engine.tensor(["torch", "x"]), ValueError, "too many dimensions 'str'"),
    "itself": (lambda: engine.tensor(_itself()), TypeError, "self-referential lists are incompatible"),
    "no items": (lambda: engine.tensor(Items()), ValueError, "could not determine the shape of object type 'Items'"),
    "no items, old": (lambda: engine.Tensor(Items()), ValueError, "could not determine the shape of object type"),
    "too low": (lambda: engine.tensor([-256], dtype=engine.uint8), RuntimeError, "without overflow"),
    "cut": (lambda: engine.tensor([-1.5], dtype=engine.uint8), RuntimeError, "to type uint8 without overflow"),
    "sizes": (lambda: engine.LongTensor((6, 0), 1), TypeError, "received an invalid combination of arguments"),
    "another type": (lambda: engine.Tensor().new(WHOLE), TypeError, "expected torch.FloatTensor (got torch.LongTens"),
    "another storage": (lambda: engine.Tensor().new(WHOLE.storage()), RuntimeError, "Expected a Storage of type Float"),
    "repeats": (lambda: WHOLE.repeat_interleave(WHOLE - 1), RuntimeError, "repeats can not be negative"),
    "counts": (lambda: engine.repeat_interleave(WHOLE - 1), RuntimeError, "repeats can not be negative"),
    "window": (
        lambda: engine.hann_window(3, layout=engine.sparse_coo),
        RuntimeError,
        "not implemented for sparse types",
    ),
    "resize": (lambda: X.resize(2, 3), RuntimeError, "requested resize to 2x3 (6 elements in total)"),
    "mask": (
        lambda: WHOLE.clone().__setitem__(WHOLE > -1, engine.tensor([])),
        RuntimeError,
        "shape mismatch: value te",
    ),
    "mask of another type": (
        lambda: WHOLE.clone().__setitem__(WHOLE > -1, engine.ones(4)),
        RuntimeError,
        "Index put requires the source and destination dtypes match",
    ),
    "empty": (lambda: engine.empty(10, 0)[:, [0, 1]], IndexError, "out of bounds for dimension with size 0"),
    "data": (lambda: X.__class__.data.__delete__(X), RuntimeError, "Deleting tensor data is not allowed"),
    "grad_fn": (lambda: delattr(X, "_grad_fn"), RuntimeError, "Deletion of _grad_fn not allowed"),
    "hooks": (lambda: delattr(X, "_backward_hooks"), RuntimeError, "Deletion of _backwards_hooks not allowed"),
}
OUT = {
    "zeros": lambda **k: engine.zeros(3, **k),
    "ones": lambda **k: engine.ones(3, **k),
    "empty": lambda **k: engine.empty(3, **k),
    "full": lambda **k: engine.full((3,), 1.0, **k),
    "eye": lambda **k: engine.eye(1, 3, **k),
    "rand": lambda **k: engine.rand(3, **k),
    "randn": lambda **k: engine.randn(3, **k),
    "randint": lambda **k: engine.randint(3, (3,), **k),
    "normal": lambda **k: engine.normal(0.0, 1.0, (3,), **k),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:non-inplace resize")
def test_refusals(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=re.escape(message)):
        call()


@pytest.mark.parametrize("name", OUT)
def test_out_of_another_dtype_or_device(name: str) -> None:
    out = engine.full((1, 3) if name == "eye" else (3,), 7.0)
    with pytest.raises(RuntimeError, match=r"dtype Double does not match dtype of out parameter \(Float\)"):
        OUT[name](out=out, dtype=engine.float64)
    if name in ("zeros", "full", "eye"):
        with pytest.raises(RuntimeError, match="device type meta does not match device type of out parameter"):
            OUT[name](out=out, device="meta")
    assert out.flatten().tolist() == [7.0] * 3
    assert OUT[name](out=out, dtype=engine.float32) is out


@pytest.mark.parametrize("name", ["sum", "prod", "cumsum", "cumprod", "mean"])
def test_out_of_another_dtype_than_a_reductions(name: str) -> None:
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype double, but got float instead"):
        getattr(engine, name)(X, 0, out=engine.empty(0), dtype=engine.float64)


def test_sizes_are_whole_numbers() -> None:
    sizes = engine.Size([np.int64(2), True, engine.tensor(3)])
    assert sizes == (2, 1, 3) and all(type(n) is int for n in sizes)
    assert engine.Size() == () and engine.Size(n for n in (1, 2)) == (1, 2)


def test_negative_numbers_wrap_around_in_unsigned_types() -> None:
    assert engine.tensor([[-1, 2], [3, -255]], dtype=engine.uint8).tolist() == [[255, 2], [3, 1]]
    assert engine.ByteTensor([-1]).tolist() == [255] and engine.tensor([-1], dtype=engine.uint16).tolist() == [65535]


def test_old_methods() -> None:
    assert REAL.clone().map2_(REAL, engine.ones(1), lambda a, b, c: a + b * c).tolist() == [0, 2, 4, 6]
    assert engine.Tensor().new(size=(3, 4)).shape == (3, 4) and engine.Tensor(Items(1.0, 2.0, 3.0)).tolist() == [
        1,
        2,
        3,
    ]
    with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
        assert engine.ones(2, 3).resize(3, 2).shape == (3, 2)
    with pytest.warns(UserWarning, match="non-inplace resize is deprecated"):
        assert engine.ones(2, 3).resize_as(engine.ones(6)).shape == (6,)
    overlap = engine._debug_has_internal_overlap
    tensors = (engine.ones(3), engine.ones(1).expand(3), X.t(), engine.ones(9).as_strided((3, 3), (1, 1)))
    assert [overlap(t) for t in tensors] == [0, 1, 0, 2]
    x = engine.ones(2, requires_grad=True)
    assert isinstance((x * 2).grad_fn.next_functions[0][0], engine._C._functions.AccumulateGrad)


def test_hooks_of_an_output_without_gradient_see_none() -> None:
    x = engine.ones(3, requires_grad=True)
    first, second, _ = x.unbind()
    seen: list = []
    first.register_hook(seen.append)
    second.backward()
    assert seen == [None] and x.grad.tolist() == [0, 1, 0]
    other = x.unbind()
    other[0].register_hook(lambda g: engine.ones(()))
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        other[1].backward()


def test_draws_of_beta_stay_inside() -> None:
    engine.manual_seed(0)
    weights = engine.full((2000,), 1e-2)
    for dtype in (engine.float32, engine.float64):
        drawn = engine.distributions.Beta(weights.to(dtype), weights.to(dtype)).sample()
        assert ((drawn > 0) & (drawn < 1)).all() and drawn.dtype is dtype
    from engine.distributions import kl
    from engine.distributions.dirichlet import _Dirichlet_backward

    assert kl._kl_expfamily_expfamily is kl._expfamily_expfamily
    concentration = engine.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = engine.distributions.Dirichlet(concentration).rsample()
    weight = engine.tensor([1.0, -2.0, 0.5])
    (found,) = engine.autograd.grad((x * weight).sum(), concentration)
    assert engine.allclose(_Dirichlet_backward(x, concentration, weight), found)
