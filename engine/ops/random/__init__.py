"""Random tensors.

Words of a generator become numbers by elementwise arithmetic (Note [Random bits] in engine/random.py).
"""

from __future__ import annotations

import builtins
import math
import operator
from typing import Any

import numpy as np

from engine import backends
from engine import random as source
from engine.autograd.graph import name_node
from engine.core import dtypes
from engine.core.checks import broadcast_shapes, size_of
from engine.core.device import CPU
from engine.dispatch import composite, derivative, has, op
from engine.dispatch.arguments import argument_error, sizes_of
from engine.dispatch.out import store
from engine.ops.copying import WriteBackward0, overwrite, writable, zeros_like_array
from engine.ops.creation import dense_only, finish, inside, like_array, numpy_dtype, out_dtype, place_of
from engine.ops.random.draw import (
    below,
    fill_normal,
    fill_uniform,
    integers,
    line_of,
    normal_array,
    uniform,
    uniform_array,
)
from engine.tensor import Tensor, wrap

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)
Generator = source.Generator


def generator_of(generator: Any, array: Any = None, where: Any = None) -> Generator:
    """The generator to draw from: the given one, else the default one of the array's device."""
    if generator is not None:
        if not isinstance(generator, Generator):
            raise TypeError(f"argument 'generator' must be torch.Generator, not {type(generator).__name__}")
        return generator
    if where is None:
        where = CPU if array is None or type(array) is np.ndarray else backends.of_array(array).device_of(array)
    return source.default_for(where)


# --- factories


def _drawn(
    name: str, draw: Any, sizes: tuple, generator: Any, out: Any, dtype: Any, where: Any, requires_grad: Any
) -> Tensor:
    """A tensor of `sizes` from `draw(xp, generator, shape, numpy dtype)`: rand or randn."""
    shape = sizes_of(name, "size", sizes)
    for n in shape:
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {list(shape)}")
    target = out_dtype(out, dtype, lambda: numpy_dtype(dtype))
    _check_inexact(name, target)
    xp, where = place_of(where)
    with inside(xp, where):
        return finish(draw(xp, generator_of(generator, None, where), shape, target), requires_grad, out)


_KERNELS = {
    "rand": "check_uniform_bounds",
    "randn": "normal_kernel_cpu",
    "uniform_": "check_uniform_bounds",
    "normal_": "normal_kernel_cpu",
}


def _scalar_name(dtype: Any) -> str:
    return dtypes.scalar_name(dtypes.from_numpy(dtype))


def _check_inexact(name: str, dtype: Any) -> None:
    if dtype.kind not in "fcVW":
        raise NotImplementedError(f"\"{_KERNELS[name]}\" not implemented for '{_scalar_name(dtype)}'")


@composite(method=False, draws=True, recorded="draw")
def rand(
    *sizes,
    size: tuple[int, ...] | None = None,
    generator=None,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    names=None,
):
    """Uniform numbers in [0, 1).  rand(*size) -> (*size)."""
    if layout is not None:
        dense_only("rand", layout)
    sizes = sizes if size is None else (size,)
    return _drawn("rand", uniform_array, sizes, generator, out, dtype, device, requires_grad)


@composite(method=False, draws=True, recorded="draw")
def randn(
    *sizes,
    size: tuple[int, ...] | None = None,
    generator=None,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    names=None,
):
    """Standard normal numbers.  randn(*size) -> (*size)."""
    if layout is not None:
        dense_only("randn", layout)
    sizes = sizes if size is None else (size,)
    return _drawn("randn", normal_array, sizes, generator, out, dtype, device, requires_grad)


def _drawn_like(
    name: str, draw: Any, input: Tensor, generator: Any, dtype: Any, where: Any, requires_grad: Any, memory_format: Any
) -> Tensor:
    """A tensor as `input` from `draw`: rand_like or randn_like."""
    array = like_array(input._array, dtype, where, memory_format)
    _check_inexact(name, array.dtype)
    array[...] = draw(backends.xp_of(array), generator_of(generator, array), array.shape, array.dtype)
    return finish(array, requires_grad)


@composite(method=False, draws=True, recorded="draw", elementwise=True)
def rand_like(
    input: Tensor,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    memory_format=None,
    generator=None,
):
    """Uniform numbers in [0, 1) in the shape, dtype and device of `input`.  input (*) -> (*)."""
    if layout is not None:
        dense_only("rand_like", layout)
    return _drawn_like("rand", uniform_array, input, generator, dtype, device, requires_grad, memory_format)


@composite(method=False, draws=True, recorded="draw", elementwise=True)
def randn_like(
    input: Tensor,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    memory_format=None,
    generator=None,
):
    """Standard normal numbers in the shape, dtype and device of `input`.  input (*) -> (*)."""
    if layout is not None:
        dense_only("randn_like", layout)
    return _drawn_like("randn", normal_array, input, generator, dtype, device, requires_grad, memory_format)


def _check_span(low: int, high: int) -> None:
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")


@composite(method=False, draws=True, recorded="draw")
def randint(
    low: int = 0,
    high: int | tuple[int, ...] | None = None,
    size: tuple[int, ...] | None = None,
    *,
    generator=None,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Integers in [low, high).  randint(high, size), randint(low, high, size) -> (*size)."""
    if layout is not None:
        dense_only("randint", layout)
    if size is None:
        low, high, size = 0, low, high
    elif high is None:
        low, high = 0, low
    if size is None or isinstance(size, int):
        raise TypeError("randint(): argument 'size' (position 2) must be tuple of ints, not " + type(size).__name__)
    low, high = (int(x.item()) if isinstance(x, Tensor) else operator.index(x) for x in (low, high))
    _check_span(low, high)
    target = out_dtype(out, dtype, lambda: numpy_dtype(dtype, dtypes.int64))
    xp, where = place_of(device)
    with inside(xp, where):
        drawn = integers(xp, generator_of(generator, None, where), low, high, size_of(size), target)
        return finish(drawn, requires_grad, out)


@composite(method=False, draws=True, recorded="draw", elementwise=True)
def randint_like(
    input: Tensor,
    low: int = 0,
    high: int | Tensor | None = None,
    *,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
    memory_format=None,
    generator=None,
):
    """Integers in [low, high) in the shape, dtype and device of `input`.  input (*) -> (*)."""
    if layout is not None:
        dense_only("randint_like", layout)
    if high is None:
        low, high = 0, low
    _check_span(low, high)
    array = like_array(input._array, dtype, device, memory_format)
    array[...] = integers(backends.xp_of(array), generator_of(generator, array), low, high, array.shape, array.dtype)
    return finish(array, requires_grad)


@composite(method=False, draws=True, recorded="draw")
def randperm(
    n: int,
    *,
    generator=None,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """The integers below n in random order.  -> (n)."""
    if layout is not None:
        dense_only("randperm", layout)
    n = operator.index(n)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: {[n]}")
    target = out_dtype(out, dtype, lambda: numpy_dtype(dtype, dtypes.int64))
    xp, where = place_of(device)
    with inside(xp, where):
        order = xp.argsort(generator_of(generator, None, where).words(xp, n))
        return finish(order.astype(target, copy=False), requires_grad, out)


# --- draws from tensors: their gradients are zero by definition


@op(
    deterministic=False,
    out=False,
    form="bernoulli",
    node="BernoulliBackward0",
    why="a draw: torch defines its gradient as zero, and it has no samples to compare",
)
@derivative(input=lambda grad: zeros_like_array(grad))
def bernoulli_tensor(xp, input, *, generator=None):
    """0 or 1, 1 with the probability given.  input (*) -> (*)."""
    if input.dtype.kind not in "fV":
        raise NotImplementedError(f"\"bernoulli_tensor_cpu_p_\" not implemented for '{_scalar_name(input.dtype)}'")
    if type(input) is np.ndarray and input.size and not ((input >= 0) & (input <= 1)).all():
        raise RuntimeError(
            "Expected p_in >= 0 && p_in <= 1 to be true, but got false.  (Could this error message be improved?  If "
            "so, please report an enhancement request to PyTorch.)"
        )
    return below(xp, generator_of(generator, input), input.shape, input).astype(input.dtype)


@composite(draws=True, recorded="draw", elementwise=True)
def bernoulli(input: Tensor, p: float | None = None, *, generator=None, out=None):
    """0 or 1, 1 with probability input (or p everywhere).  input (*) -> (*)."""
    if out is not None:
        return store(out, "bernoulli", bernoulli, input, p, generator=generator)
    if p is not None:
        result = wrap(like_array(input._array, None, None, None))
        return bernoulli_(result, p, generator=generator)
    return bernoulli_tensor(input, generator=generator)


@op(
    deterministic=False,
    why="a draw: torch defines its gradient as zero, and it has no samples to compare",
    out=False,
    draws=True,
)
@derivative(input=lambda grad: zeros_like_array(grad))
def poisson(xp, input, generator=None):
    """Poisson numbers with the rates given.  input (*) -> (*)."""
    if input.dtype.kind not in "fV":
        raise NotImplementedError(f"\"poisson_cpu\" not implemented for '{_scalar_name(input.dtype)}'")
    rates = backends.of_array(input).to_host(input).astype(_F64)
    if rates.size and not (rates >= 0).all():
        raise RuntimeError("invalid Poisson rate, expected rate to be non-negative")
    key = generator_of(generator, input).words(np, 2)
    drawn = np.random.Generator(np.random.Philox(key=key)).poisson(rates)
    return xp.asarray(np.asarray(drawn)).astype(input.dtype)


@op(
    deterministic=False,
    form="normal",
    node="NormalBackward3",
    tensors=("mean", "std"),
    out=False,
    why="a draw: torch defines its gradient as zero, and it has no samples to compare",
)
@derivative(
    mean=lambda grad, mean_shape: zeros_like_array(grad).sum_to_size(mean_shape),
    std=lambda grad, std_shape: zeros_like_array(grad).sum_to_size(std_shape),
)
def normal_tensors(xp, mean, std, generator=None):
    """Normal numbers around `mean` with deviations `std`.  mean (*a), std (*b) -> (broadcast)."""
    if type(std) is np.ndarray and std.size and not (std >= 0).all():
        raise RuntimeError("normal expects all elements of std >= 0.0")
    shape = broadcast_shapes(mean.shape, std.shape)
    dtype = mean.dtype if mean.dtype.kind in "fcV" else std.dtype
    return (normal_array(xp, generator_of(generator, mean), shape, dtype) * std + mean).astype(dtype, copy=False)


@composite(method=False, draws=True, recorded="draw", out_label="normal_kernel_cpu")
def normal(
    mean: Tensor | float = 0.0,
    std: float | Tensor = 1.0,
    size: tuple[int, ...] | None = None,
    *,
    generator=None,
    out=None,
    dtype=None,
    layout=None,
    device=None,
    pin_memory=False,
    requires_grad=False,
):
    """Normal numbers: mean and std numbers (then `size` is needed) or tensors.  mean (*a), std (*b) -> (broadcast)."""
    if layout is not None:
        dense_only("normal", layout)
    if out is not None and (isinstance(mean, Tensor) or isinstance(std, Tensor)):
        return store(out, "normal", normal, mean, std, generator=generator)
    if isinstance(mean, Tensor) or isinstance(std, Tensor):
        like = mean if isinstance(mean, Tensor) else std
        xp = backends.xp_of(like._array)
        if not isinstance(std, Tensor):
            _check_std(std)
            std = wrap(xp.full((), std, like._array.dtype))
        if not isinstance(mean, Tensor):
            mean = wrap(xp.full((), mean, like._array.dtype))
        result = normal_tensors(mean, std, generator)
    else:
        if size is None:
            raise TypeError('normal() missing 1 required positional arguments: "size"')
        _check_std(std)
        target = out_dtype(out, dtype, lambda: numpy_dtype(dtype))
        xp, where = place_of(device)
        with inside(xp, where):
            drawn = normal_array(xp, generator_of(generator, None, where), size_of(size), target)
            return finish((drawn * std + mean).astype(target, copy=False), requires_grad, out)
    return result


def _check_std(std: Any) -> None:
    if std < 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")


@composite(method=True, draws=True, recorded="draw")
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator=None, out=None):
    """Numbers of categories drawn by their weights, a row of draws a row of weights.

    input (n) or (m, n) -> (num_samples) or (m, num_samples).
    """
    if out is not None:
        return store(out, "multinomial", multinomial, input, num_samples, replacement, generator=generator)
    weights = input._array
    if weights.ndim not in (1, 2):
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if weights.dtype.kind not in "fV":
        raise RuntimeError(
            f"multinomial only supports floating-point dtypes for input, got: {_scalar_name(weights.dtype)}"
        )
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    n = weights.shape[-1]
    if not replacement and num_samples > n:
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    xp = backends.xp_of(weights)
    p = weights.astype(_F64).reshape(-1, n)
    if type(p) is np.ndarray:
        if not (np.isfinite(p) & (p >= 0)).all():
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not (p.sum(1) > 0).all():
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
    generator = generator_of(generator, weights)
    rows = p.shape[0]
    if replacement:
        ends = xp.cumsum(p, axis=1)
        draws = uniform(xp, generator, rows * num_samples, _F64).reshape(rows, num_samples) * ends[:, -1:]
        chosen = xp.zeros((rows, num_samples), np.int64)
        for i in builtins.range(rows):
            chosen[i] = xp.searchsorted(ends[i], draws[i], side="right")
        last = n - 1 - xp.argmax(p[:, ::-1] > 0, axis=1).reshape(-1, 1)
        chosen = xp.minimum(chosen, last)
    else:  # the first arrivals of independent exponential clocks
        clocks = -xp.log(1 - uniform(xp, generator, rows * n, _F64)).reshape(rows, n)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = xp.where(p > 0, clocks / xp.where(p > 0, p, 1), np.inf)
        chosen = xp.argsort(times, axis=1)[:, :num_samples]
    chosen = chosen.astype(np.int64).reshape((*weights.shape[:-1], num_samples))
    return wrap(chosen)


# --- in place


def _filler(name: str, draw: Any, check: Any, doc: str, kinds: str = "fV") -> Any:
    def fill(self, *args, generator=None, **kwargs):
        values = _arguments(name, args, kwargs)
        check(*values)
        array = self._array
        if array.dtype.kind not in kinds:
            raise NotImplementedError(
                f"\"{_KERNELS.get(name, name)}\" not implemented for '{_scalar_name(array.dtype)}'"
            )
        array = writable(self)
        found = draw(backends.xp_of(array), generator_of(generator, array), array, *values)
        if found is not array:
            array[...] = found
        overwrite(self, NODES[name])
        return self

    fill.__name__ = fill.__qualname__ = name
    fill.__doc__ = doc
    setattr(Tensor, name, has(recorded="draw", elementwise=True)(fill))
    return fill


_DEFAULTS = {
    "uniform_": (("from", 0.0), ("to", 1.0)),
    "normal_": (("mean", 0.0), ("std", 1.0)),
    "exponential_": (("lambd", 1.0),),
    "geometric_": (("p", None),),
    "cauchy_": (("median", 0.0), ("sigma", 1.0)),
    "log_normal_": (("mean", 1.0), ("std", 2.0)),
}
NODES = {
    name: type(
        "".join(p.capitalize() for p in name.strip("_").split("_")) + "Backward0",
        (WriteBackward0,),
        {"__slots__": ()},
    )
    for name in (*_DEFAULTS, "random_", "bernoulli_")
}


def _arguments(name: str, args: tuple, kwargs: dict) -> list[Any]:
    values = []
    names = _DEFAULTS[name]
    if len(args) > len(names):
        raise TypeError(f"{name}() takes at most {len(names)} positional arguments, got {len(args)}")
    for i, (key, default) in enumerate(names):
        value = args[i] if i < len(args) else kwargs.pop(key, default)
        if value is None:
            raise TypeError(f'{name}() missing 1 required positional arguments: "{key}"')
        value = value.item() if isinstance(value, Tensor) else value
        if not isinstance(value, int | float | np.number):
            raise argument_error(name, len(values) + 1, key, "float", value)
        values.append(value)
    if kwargs:
        raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(kwargs))}'")
    return values


def _work(array: Any) -> Any:
    return array.dtype if array.dtype in (_F32, _F64) else _F32


def _check_uniform(low, high):
    if low > high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")


def _uniform(xp, generator, array, low, high):
    line = line_of(xp, array)
    if line is not None:
        fill_uniform(generator, line, low, high)
        return array
    drawn = uniform_array(xp, generator, array.shape, array.dtype)
    return drawn if (low, high) == (0, 1) else drawn * array.dtype.type(high - low) + array.dtype.type(low)


def _check_normal(mean, std):
    _check_std(std)


def _normal(xp, generator, array, mean, std):
    line = line_of(xp, array)
    if line is not None:
        fill_normal(generator, line, mean, std)
        return array
    drawn = normal_array(xp, generator, array.shape, array.dtype)
    return drawn if (mean, std) == (0, 1) else drawn * array.dtype.type(std) + array.dtype.type(mean)


def _check_exponential(lambd):
    if lambd <= 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={lambd:g}")


def _exponential(xp, generator, array, lambd):
    return xp.log(1 - uniform_array(xp, generator, array.shape, _work(array))) * _work(array).type(-1 / lambd)


def _check_geometric(p):
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")


def _geometric(xp, generator, array, p):
    drawn = xp.log(1 - uniform_array(xp, generator, array.shape, _F64)) / math.log1p(-p)
    return xp.maximum(xp.ceil(drawn), 1)


def _check_cauchy(median, sigma):
    if sigma <= 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")


def _cauchy(xp, generator, array, median, sigma):
    return xp.tan((uniform_array(xp, generator, array.shape, _F64) - 0.5) * math.pi) * sigma + median


def _check_log_normal(mean, std):
    if std <= 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")


def _log_normal(xp, generator, array, mean, std):
    return xp.exp(normal_array(xp, generator, array.shape, _work(array)) * std + mean)


uniform_ = _filler(
    "uniform_",
    _uniform,
    _check_uniform,
    "Fill with uniform numbers in [from, to).  (*) -> (*).",
    "fVc",
)
normal_ = _filler("normal_", _normal, _check_normal, "Fill with normal numbers.  (*) -> (*).", "fVc")
exponential_ = _filler(
    "exponential_",
    _exponential,
    _check_exponential,
    "Fill with exponential numbers of rate lambd.  (*) -> (*).",
)
geometric_ = _filler(
    "geometric_",
    _geometric,
    _check_geometric,
    "Fill with the number of trials up to a success.  (*) -> (*).",
    "fViu",
)
cauchy_ = _filler("cauchy_", _cauchy, _check_cauchy, "Fill with numbers of a Cauchy distribution.  (*) -> (*).")
log_normal_ = _filler("log_normal_", _log_normal, _check_log_normal, "Fill with exp of normal numbers.  (*) -> (*).")


@has(recorded="draw", elementwise=True)
def random_(self: Tensor, *args: Any, generator: Any = None, **kwargs: Any) -> Tensor:
    """Fill with integers: of [from, to), or of all the dtype holds exactly.  (*) -> (*)."""
    low, high = kwargs.pop("from", None), kwargs.pop("to", None)
    if len(args) == 2:
        low, high = args
    elif len(args) == 1:
        high = args[0]
    for bound in (low, high):
        if not isinstance(bound, int | np.integer | None):
            kinds = ", ".join(type(x).__name__ for x in args)
            raise TypeError(
                f"random_() received an invalid combination of arguments - got ({kinds}), but expected one of:\n"
                " * ()\n * (int to)\n * (int from, int to)\n"
            )
    form = 2 if high is None and low is None else 1 if low is None else 0  # torch numbers them so
    dtype = self._array.dtype
    if high is None:
        low = low or 0
        if dtype.kind in "iu":
            high = int(np.iinfo(dtype).max) + 1
        elif dtype.kind == "b":
            high = 2
        else:
            high = 2 ** {"float16": 11, "bfloat16": 8, "float32": 24}.get(dtype.name, 53) + 1
    low = low or 0
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    array = writable(self)
    array[...] = integers(backends.xp_of(array), generator_of(generator, array), low, high, array.shape, dtype)
    overwrite(self, NODES["random_"])
    return name_node(self, f"RandomBackward{form}")


@has(recorded="draw", elementwise=True)
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator: Any = None) -> Tensor:
    """Fill with 0 and 1, 1 with probability p (a number or a Tensor).  (*) -> (*)."""
    array = writable(self)
    xp = backends.xp_of(array)
    if isinstance(p, Tensor):
        probabilities = xp.broadcast_to(p._array, array.shape)
    else:
        if not isinstance(p, int | float | np.number):
            raise TypeError(
                f"bernoulli_() received an invalid combination of arguments - got ({type(p).__name__}), but expected "
                "one of:\n * (Tensor p)\n * (float p = 0.5)\n"
            )
        if not 0 <= p <= 1:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
        probabilities = p
    array[...] = below(xp, generator_of(generator, array), array.shape, probabilities)
    overwrite(self, NODES["bernoulli_"])
    return name_node(self, f"BernoulliBackward{1 if isinstance(p, Tensor) else 2}")


Tensor.random_, Tensor.bernoulli_ = random_, bernoulli_
