"""Rows in the source form: reductions of any array code over any dims, softmax, normalization, losses.

Operands are seen as (rows, places): some dims count rows, the others places along a row, each with strides of its own
(`elementwise.collapsed`).  A writer below is given a `Rows` and writes what is done for one row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from engine.kernels.elementwise import Class, Walk
from engine.kernels.form import Kernel, Value, both, call, compute_type, where
from engine.kernels.trace import DType, DTypeLike, Trace, Traced, TracedModule, Untraceable, type_of


class Rows:
    """A kernel over rows while it is written.  dtypes: of the operands; the last `results` of them are written."""

    def __init__(
        self,
        name: str,
        dtypes: Sequence[DTypeLike],
        results: int,
        row_classes: Sequence[Class],
        place_classes: Sequence[Class],
        numbers: Sequence[str] = (),
    ) -> None:
        self.kernel = k = Kernel(name, "rows")
        self.dtypes = [np.dtype(d) for d in dtypes]
        first = len(dtypes) - results
        self.arrays = [
            k.array(f"x{p}" if p < first else f"out{p - first}", type_of(d), p >= first) for p, d in enumerate(dtypes)
        ]
        self.first = first  # the number of the first result
        rows, self._places = Walk(k, row_classes, "r"), Walk(k, place_classes, "p")
        rows.parameters()
        self._places.parameters()
        self.width = k.scalar("width", "index")
        self.numbers = [k.scalar(f"number{n}", type) for n, type in enumerate(numbers)]
        self.bases = [rows.offset(p, k.index) for p in range(len(dtypes))]  # here, where every loop sees them

    def _at(self, operand: int, place: Value | None) -> Value:
        base = self.bases[operand]
        if place is None:
            return base
        along = self._places.offset(operand, place)
        if along.constant is not None:
            return base
        return along if base.constant is not None else base + along

    def load(self, operand: int, place: Value | None = None) -> Value:
        """The operand's value at a place of the row; without one, of the row."""
        return self.kernel.load(self.arrays[operand], self._at(operand, place))

    def store(self, operand: int, value: Value, place: Value | None = None) -> None:
        """Write a result at a place, or of the row (inside `once`)."""
        self.kernel.store(self.arrays[operand], self._at(operand, place), value)

    def sum(self, of: Callable[[Value], Value]) -> Value:
        """The sum of of(place) along the row."""
        total: Value = self.kernel.reduce("sum", self.width, of)
        return total

    def of_width(self, type: str) -> Value:
        """The number of places as a float."""
        return self.kernel.cast(self.width, type)


def reduced(rows: Rows, by: Sequence[str], code: Callable[..., Any], after: Callable[..., Any], inputs: int) -> None:
    """Reduce the arrays that code(xp, *operands) gives, each by its reduction, and store after(xp, *reduced).

    by: a name of `form.REDUCTIONS` for each.  argmax and argmin give two to `after`: value and place.
    """
    k = rows.kernel
    trace = Trace(k)
    found: list[Traced] = []
    for n, reduction in enumerate(by):
        kinds: list[DType] = []

        def one(j: Value, n: int = n, kinds: list[DType] = kinds) -> Value:
            given = [Traced(trace, rows.load(p, j), rows.dtypes[p]) for p in range(inputs)]
            made = code(TracedModule(trace), *given)
            result: Traced = made[n] if isinstance(made, tuple) else made
            kinds.append(result.dtype)
            return result.value

        result = k.reduce(reduction, rows.width, one)
        if isinstance(result, tuple):
            found += [Traced(trace, result[0], kinds[0]), Traced(trace, result[1], np.int64)]
        else:
            found.append(Traced(trace, result, kinds[0]))
    with k.once():
        count = Traced(trace, k.cast(rows.width, "float64"), np.float64)
        made = after(TracedModule(trace), count, *found)
        made = made if isinstance(made, tuple) else (made,)
        for n, one_result in enumerate(made):
            rows.store(rows.first + n, k.cast(one_result.value, compute_type(type_of(rows.dtypes[rows.first + n]))))
    if trace.numbers:
        raise Untraceable("numbers in a reduction")


# --- softmax


def softmax(rows: Rows) -> None:
    """x -> exp(x - max) / sum."""
    _, total, shifted = _exponentials(rows)
    with rows.kernel.each(rows.width) as j:
        rows.store(1, call("exp", shifted(j)) / total, j)


def log_softmax(rows: Rows) -> None:
    """x -> x - max - log(sum)."""
    _, total, shifted = _exponentials(rows)
    log = call("log", total)
    with rows.kernel.each(rows.width) as j:
        rows.store(1, shifted(j) - log, j)


def _exponentials(rows: Rows) -> tuple[Value, Value, Callable[[Value], Value]]:
    top: Value = rows.kernel.reduce("max", rows.width, lambda j: rows.load(0, j))
    shifted: Callable[[Value], Value] = lambda j: rows.load(0, j) - top
    return top, rows.sum(lambda j: call("exp", shifted(j))), shifted


def softmax_backward(rows: Rows) -> None:
    """grad, y -> y * (grad - sum(grad * y))."""
    total = rows.sum(lambda j: rows.load(0, j) * rows.load(1, j))
    with rows.kernel.each(rows.width) as j:
        y = rows.load(1, j)
        rows.store(2, y * rows.load(0, j) - y * total, j)


def log_softmax_backward(rows: Rows) -> None:
    """grad, y -> grad - exp(y) * sum(grad)."""
    total = rows.sum(lambda j: rows.load(0, j))
    with rows.kernel.each(rows.width) as j:
        rows.store(2, rows.load(0, j) - call("exp", rows.load(1, j)) * total, j)


# --- normalization of rows: layer norm, group norm


def normalized(rows: Rows, weighted: bool, shifted: bool, statistics: bool = True, variance: bool = False) -> None:
    """x (, weight) (, bias) -> (x - mean) * rstd (* weight) (+ bias) (, mean, rstd (, variance)).  numbers: eps."""
    k, (eps,) = rows.kernel, rows.numbers
    first = rows.first
    n = rows.of_width(eps.type)
    mean = rows.sum(lambda j: rows.load(0, j)) / n

    def square(j: Value) -> Value:
        deviation = rows.load(0, j) - mean
        return deviation * deviation

    var = rows.sum(square) / n
    rstd = call("rsqrt", var + eps)
    with k.each(rows.width) as j:
        made = (rows.load(0, j) - mean) * rstd
        if weighted:
            made = made * rows.load(1, j)
        if shifted:
            made = made + rows.load(1 + weighted, j)
        rows.store(first, made, j)
    if statistics:
        with k.once():
            rows.store(first + 1, mean)
            rows.store(first + 2, rstd)
            if variance:
                rows.store(first + 3, var)


def normalized_backward(rows: Rows, weighted: bool) -> None:
    """grad, x, mean, rstd (, weight) -> the gradient of x."""
    k = rows.kernel
    mean, rstd = rows.load(2), rows.load(3)

    def grad(j: Value) -> Value:
        return rows.load(0, j) * rows.load(4, j) if weighted else rows.load(0, j)

    def hat(j: Value) -> Value:
        return (rows.load(1, j) - mean) * rstd

    n = rows.of_width(mean.type)
    along = rows.sum(lambda j: grad(j) * hat(j)) / n
    level = rows.sum(grad) / n
    with k.each(rows.width) as j:
        rows.store(rows.first, (grad(j) - hat(j) * along - level) * rstd, j)


def channel_products(rows: Rows) -> None:
    """grad, x, mean, rstd -> the sums of grad * (x - mean) * rstd and of grad."""
    mean, rstd = rows.load(2), rows.load(3)
    products = rows.sum(lambda j: rows.load(0, j) * (rows.load(1, j) - mean)) * rstd
    sums = rows.sum(lambda j: rows.load(0, j))
    with rows.kernel.once():
        rows.store(rows.first, products)
        rows.store(rows.first + 1, sums)


def channel_shares(rows: Rows, weighted: bool) -> None:
    """products and sums of channels (, weight) -> their weighted sums / number0, for a group of channels."""
    for n in range(2):

        def share(j: Value, n: int = n) -> Value:
            return rows.load(n, j) * rows.load(2, j) if weighted else rows.load(n, j)

        total = rows.sum(share) / rows.numbers[0]
        with rows.kernel.once():
            rows.store(rows.first + n, total)


def two_sums(rows: Rows) -> None:
    """Two arrays -> the sum of each."""
    for n in range(2):
        total = rows.sum(lambda j, n=n: rows.load(n, j))  # type: ignore[misc]
        with rows.kernel.once():
            rows.store(rows.first + n, total)


def group_backward(rows: Rows, weighted: bool) -> None:
    """grad, x, mean, rstd, the shares of products and of sums (, weight) of a channel -> the gradient of x."""
    mean, rstd, along, level = (rows.load(n) for n in range(2, 6))
    scale = rstd * rows.load(6) if weighted else rstd
    slope, shift = -(rstd * rstd * along), -(level * rstd)
    with rows.kernel.each(rows.width) as j:
        rows.store(rows.first, rows.load(0, j) * scale + ((rows.load(1, j) - mean) * slope + shift), j)


def scaled_to_rms(rows: Rows, weighted: bool) -> None:
    """x (, weight) -> x * rstd (* weight), rstd = 1 / sqrt(mean(x ** 2) + eps).  numbers: eps."""
    k, (eps,) = rows.kernel, rows.numbers

    def square(j: Value) -> Value:
        value = rows.load(0, j)
        return value * value

    rstd = call("rsqrt", rows.sum(square) / rows.of_width(eps.type) + eps)
    with k.each(rows.width) as j:
        made = rows.load(0, j) * rstd
        rows.store(rows.first, made * rows.load(1, j) if weighted else made, j)
    with k.once():
        rows.store(rows.first + 1, rstd)


def scaled_to_rms_backward(rows: Rows, weighted: bool) -> None:
    """grad, x, rstd (, weight) -> the gradient of x."""
    k, rstd = rows.kernel, rows.load(2)

    def grad(j: Value) -> Value:
        return rows.load(0, j) * rows.load(3, j) if weighted else rows.load(0, j)

    along = rows.sum(lambda j: grad(j) * (rows.load(1, j) * rstd)) / rows.of_width(rstd.type)
    with k.each(rows.width) as j:
        rows.store(rows.first, (grad(j) - rows.load(1, j) * rstd * along) * rstd, j)


# --- cross-entropy


def softmax_losses(rows: Rows, weighted: bool, smoothed: bool) -> None:
    """x, target (, weight) -> softmax of x, loss of the row, its weight, whether its target is bad (, smoothed loss).

    A row whose target is `number0` (ignored) has loss and weight 0; one whose target is no class is bad: the caller
    looks.  Losses are weighted; the smoothed one is the sum over classes of weight times -log(softmax).
    """
    k, ignored = rows.kernel, rows.numbers[0]
    first = rows.first
    top, total, shifted = _exponentials(rows)
    log = call("log", total)
    target = k.cast(rows.load(1), "int64")
    kept = target.differs(ignored)
    good = both(target >= 0, target < k.cast(rows.width, "int64"))
    at = k.cast(where(good, target, 0), "index")
    picked = log - (rows.load(0, at) - top)
    share = rows.load(2, at) if weighted else k.constant(1, picked.type)
    with k.each(rows.width) as j:
        rows.store(first, call("exp", shifted(j)) / total, j)
    if smoothed:
        even = rows.sum(lambda j: (log - shifted(j)) * rows.load(2, j) if weighted else log - shifted(j))
    with k.once():
        zero = k.constant(0, picked.type)
        loss = where(share.equals(0), zero, picked * share) if weighted else picked
        rows.store(first + 1, where(kept, loss, zero))
        rows.store(first + 2, where(kept, share, zero))
        rows.store(first + 3, k.cast(both(kept, k.op("not", good)), "int32"))
        if smoothed:
            rows.store(first + 4, where(kept, even, zero))


def softmax_losses_backward(rows: Rows, weighted: bool, smoothed: bool) -> None:
    """softmax, grad of each loss, target (, weight), sum of weights where smoothed -> the gradient of x.

    numbers: the target that is ignored, 1 - smoothing, smoothing / classes.
    """
    k = rows.kernel
    ignored, keep, even = rows.numbers
    grad, target = rows.load(1), k.cast(rows.load(2), "int64")
    zero = k.constant(0, grad.type)
    grad = where(target.differs(ignored), grad, zero)
    good = both(target >= 0, target < k.cast(rows.width, "int64"))
    at = k.cast(where(good, target, 0), "index")
    picked = grad * rows.load(3, at) * keep if weighted else grad * keep
    if smoothed:
        total = rows.sum(lambda j: rows.load(3, j)) if weighted else k.cast(rows.width, grad.type)
        factor = picked + grad * even * total
    else:
        factor = picked
    with k.each(rows.width) as j:
        made = rows.load(0, j) * factor
        if smoothed:
            made = made - (grad * even * rows.load(3, j) if weighted else grad * even)
        rows.store(rows.first, where(k.op("eq", j, at), made - picked, made), j)


def totalled(rows: Rows, reduction: str) -> None:
    """losses, weights, whether bad -> the sum of weights, how many are bad, and, but for "none", the loss."""
    k, first = rows.kernel, rows.first
    total = rows.sum(lambda j: rows.load(1, j))
    bad = k.reduce("sum", rows.width, lambda j: rows.load(2, j))
    loss = None if reduction == "none" else rows.sum(lambda j: rows.load(0, j))
    with k.once():
        rows.store(first, total)
        rows.store(first + 1, bad)
        if loss is not None:
            rows.store(first + 2, loss / total if reduction == "mean" else loss)


def softmax_minus_target(rows: Rows, weighted: bool, mean: bool) -> None:
    """softmax, grad of each loss or of their mean, target, sum of weights (, weight) -> the gradient of x.

    number0: the target that is ignored.
    """
    k, (ignored,) = rows.kernel, rows.numbers
    grad, target = rows.load(1), k.cast(rows.load(2), "int64")
    if mean:
        grad = grad / rows.load(3)
    good = both(target >= 0, target < k.cast(rows.width, "int64"))
    at = k.cast(where(good, target, 0), "index")
    if weighted:
        grad = grad * rows.load(4, at)
    grad = where(target.differs(ignored), grad, k.constant(0, grad.type))
    with k.each(rows.width) as j:
        made = rows.load(0, j) * grad
        rows.store(rows.first, where(k.op("eq", j, at), made - grad, made), j)


# --- batch norm of few elements: a row per channel


def normalized_by(rows: Rows, weighted: bool, shifted: bool) -> None:
    """x, mean, variance (, weight) (, bias) -> (x - mean) / sqrt(variance + eps) (* weight) (+ bias).  numbers: eps."""
    k, (eps,) = rows.kernel, rows.numbers
    scale = 1 / call("sqrt", rows.load(2) + eps)
    if weighted:
        scale = scale * rows.load(3)
    shift = -(rows.load(1) * scale)
    if shifted:
        shift = shift + rows.load(3 + weighted)
    with k.each(rows.width) as j:
        rows.store(rows.first, rows.load(0, j) * scale + shift, j)


def channel_backward(rows: Rows, weighted: bool, trained: bool) -> None:
    """grad, x, mean, rstd (, weight) -> the gradients of x, of the weight and of the bias.

    Not trained: mean and variance are given numbers; the variance stands for rstd, number0 is eps.
    """
    k, first = rows.kernel, rows.first
    mean, rstd = rows.load(2), rows.load(3)
    if not trained:
        rstd = 1 / call("sqrt", rstd + rows.numbers[0])
    total = rows.sum(lambda j: rows.load(0, j))
    along = rows.sum(lambda j: rows.load(0, j) * (rows.load(1, j) - mean)) * rstd
    scale = rstd * rows.load(4) if weighted else rstd
    n = rows.of_width(mean.type)
    slope, level = -(scale * rstd * along) / n, -(scale * total) / n
    with k.each(rows.width) as j:
        made = rows.load(0, j) * scale
        if trained:
            made = made + ((rows.load(1, j) - mean) * slope + level)
        rows.store(first, made, j)
    with k.once():
        rows.store(first + 1, along)
        rows.store(first + 2, total)


def prelu_backward(rows: Rows) -> None:
    """grad, x, weight of the row -> the gradients of x and of the weight."""
    k, weight = rows.kernel, rows.load(2)

    def share(j: Value) -> Value:
        x = rows.load(1, j)
        return where(x > 0, k.constant(0, x.type), rows.load(0, j) * x)

    total = rows.sum(share)
    with k.each(rows.width) as j:
        g = rows.load(0, j)
        rows.store(rows.first, where(rows.load(1, j) > 0, g, g * weight), j)
    with k.once():
        rows.store(rows.first + 1, total)


# --- distances


def distances(rows: Rows, far: bool) -> None:
    """x, y -> the sum of |x - y|; far: the largest."""
    k = rows.kernel
    size: Callable[[Value], Value] = lambda j: call("abs", rows.load(0, j) - rows.load(1, j))
    found = k.reduce("max" if far else "sum", rows.width, size)
    with k.once():
        rows.store(2, found)


def distances_backward(rows: Rows, far: bool) -> None:
    """x, y, the gradient of their distances, these (far: of the largest difference alone) -> the gradient of x."""
    k = rows.kernel

    def share(j: Value) -> Value:
        apart, grad = rows.load(0, j) - rows.load(1, j), rows.load(2, j)
        found = call("sign", apart)
        if far:
            found = found * k.cast(call("abs", apart).equals(rows.load(3, j)), found.type)
        return found * grad

    total = rows.sum(share)
    with k.once():
        rows.store(rows.first, total)
