"""Contractions and other products of several dims: `einsum`, `tensordot`, `kron`, `multi_dot`, `cross`, `cdist`."""

from __future__ import annotations

import builtins
import functools
import operator
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from engine.autograd import versions
from engine.autograd.graph import name_node
from engine.core.checks import broadcast_shapes, numel, wrap_dim
from engine.core.lru import LRU
from engine.dispatch import composite, derivative, op, samples
from engine.dispatch.arguments import argument_error, check_elements
from engine.dispatch.out import store, store_result
from engine.ops.linalg import systems
from engine.ops.pointwise.arithmetic import conj_if_complex as conj
from engine.ops.pointwise.arithmetic import refuse
from engine.ops.products import bmm, cpp_name, matmul, mm, scalar_name
from engine.tensor import Tensor

# --- einsum

_BAD_CALL = (
    "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts "
    "list"
)
_ELLIPSIS = 52  # labels of dims under "..." start here, counted from the right


def _label(character: str) -> int:
    """The letter as a number, capitals first, as torch sorts an implicit output."""
    return ord(character) - 65 if character.isupper() else ord(character) - 71


@functools.lru_cache(maxsize=512)
def _parse(equation: str, ranks: tuple[int, ...]) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """The labels of each operand and of the output.  RuntimeError with torch's sentence for what is not one."""
    arrow = equation.find("->")
    left = equation if arrow < 0 else equation[:arrow]
    operands: list[list[int | None]] = [[]]
    dots = -1  # position until which characters belong to an ellipsis
    for i, character in enumerate(left):
        now = operands[-1]
        if character == " " or i <= dots:
            continue
        if character == ".":
            number = len(operands) - 1
            if None in now:
                raise RuntimeError(f"einsum(): found '.' for operand {number} for which an ellipsis was already found")
            if left[i : i + 3] != "...":
                raise RuntimeError(f"einsum(): found '.' for operand {number} that is not part of any ellipsis")
            now.append(None)
            dots = i + 2
        elif character == ",":
            if len(operands) >= len(ranks):
                raise RuntimeError("einsum(): fewer operands were provided than specified in the equation")
            operands.append([])
        else:
            _check_letter(character, i)
            now.append(_label(character))
    if len(operands) != len(ranks):
        raise RuntimeError("einsum(): more operands were provided than specified in the equation")
    out: list[int | None] | None = None
    if arrow >= 0:
        out, dots = [], -1
        for i in range(arrow + 2, len(equation)):
            character = equation[i]
            if character == " " or i <= dots:
                continue
            if character == ".":
                if None in out:
                    raise RuntimeError("einsum(): found '.' for output but an ellipsis (...) was already found")
                if equation[i : i + 3] != "...":
                    raise RuntimeError("einsum(): found '.' for output that is not part of any ellipsis (...)")
                out.append(None)
                dots = i + 2
            else:
                _check_letter(character, i)
                if _label(character) in out:
                    _check_ranks(operands, ranks)
                    raise RuntimeError(f"einsum(): output subscript {character} appears more than once in the output")
                out.append(_label(character))
    return _resolve(operands, out, ranks)


def _check_letter(character: str, index: int) -> None:
    if not (character.isascii() and character.isalpha()):
        raise RuntimeError(
            f"einsum(): invalid subscript given at index {index} in the equation string, subscripts must be in [a-zA-Z]"
        )


def _check_ranks(operands: Sequence[Sequence[int | None]], ranks: Sequence[int]) -> None:
    for i, (labels, rank) in enumerate(zip(operands, ranks)):
        named = len(labels) - (None in labels)
        if None in labels:
            if named > rank:
                raise RuntimeError(
                    f"einsum(): the number of subscripts in the equation ({named}) is more than the number of "
                    f"dimensions ({rank}) for operand {i}"
                )
        elif named != rank:
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({named}) does not match the number of dimensions "
                f"({rank}) for operand {i} and no ellipsis was given"
            )


def _resolve(
    operands: Sequence[list[int | None]], out: list[int | None] | None, ranks: tuple[int, ...]
) -> tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]:
    """Ellipses replaced by labels from the right; the implicit output: the ellipsis, then labels used once, sorted."""
    _check_ranks(operands, ranks)
    covered = [rank - len(labels) + 1 if None in labels else 0 for labels, rank in zip(operands, ranks)]
    most = builtins.max(covered)

    def spread(labels: Sequence[int | None], count: int) -> tuple[int, ...]:
        result: list[int] = []
        for label in labels:
            result += range(_ELLIPSIS + count - 1, _ELLIPSIS - 1, -1) if label is None else [label]
        return tuple(result)

    resolved = tuple(spread(labels, count) for labels, count in zip(operands, covered))
    if out is None:
        used = [label for labels in resolved for label in labels if label < _ELLIPSIS]
        out = [None, *sorted(label for label in set(used) if used.count(label) == 1)]
    known = {label for labels in resolved for label in labels}
    for label in out:
        if label is not None and label not in known:
            raise RuntimeError(
                f"einsum(): output subscript {_name(label)} does not appear in the equation for any input operand"
            )
    return resolved, spread(out, most)


def _name(label: int) -> str:
    return chr(label + 65) if label < 26 else chr(label + 71)


def _sublists(arguments: tuple[Any, ...]) -> tuple[str, list[Any]]:
    """`einsum(x, [0, 1], y, [1, 2], [0, 2])` as an equation and operands."""

    def text(sublist: Any) -> str:
        parts = []
        for s in sublist:
            if s is ...:
                parts.append("...")
            elif 0 <= s < 52:
                parts.append(_name(s))
            else:
                raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")
        return "".join(parts)

    equation = ",".join(text(s) for s in arguments[1::2])
    if len(arguments) % 2:
        return equation + "->" + text(arguments[-1]), list(arguments[:-1:2])
    return equation, list(arguments[::2])


def _single(x: Tensor, labels: tuple[int, ...], keep: set[int]) -> tuple[Tensor, tuple[int, ...]]:
    """An operand with repeated labels made diagonals, and labels nobody else reads summed."""
    names = list(labels)
    if len(set(names)) != len(names):
        for label in dict.fromkeys(labels):
            while names.count(label) > 1:
                i = names.index(label)
                j = names.index(label, i + 1)
                x = x.diagonal(0, i, j).movedim(-1, i)
                del names[j]
    alone = [i for i, label in enumerate(names) if label not in keep]
    if alone:
        x = x.sum(alone)
        names = [label for label in names if label in keep]
    return x, tuple(names)


def _check_sizes(operands: Sequence[Tensor], labels: Sequence[tuple[int, ...]]) -> None:
    sizes: dict[int, int] = {}
    for i, (x, names) in enumerate(zip(operands, labels)):
        for j, (label, size) in enumerate(zip(names, x._array.shape)):
            if label in names[:j] and size != x._array.shape[names.index(label)]:
                raise RuntimeError(
                    f"einsum(): subscript {_name(label)} is repeated for operand {i} but the sizes don't match, "
                    f"{size} != {x._array.shape[names.index(label)]}"
                )
            have = sizes.get(label, 1)
            if size != have and size != 1 and have != 1:
                if label >= _ELLIPSIS:
                    raise RuntimeError(
                        f"einsum(): dimension {j} covered by ellipsis in operand {i}has size {size} which does not "
                        f"broadcast with previously seen ellipsis with size {have} for the respective dimension"
                    )
                raise RuntimeError(
                    f"einsum(): subscript {_name(label)} has size {size} for operand {i} which does not broadcast with "
                    f"previously seen size {have}"
                )
            if have == 1:
                sizes[label] = size


def _arranged(x: Tensor, names: tuple[int, ...], wanted: Sequence[int]) -> Tensor:
    order = [names.index(label) for label in wanted]
    return x if order == list(range(len(order))) else x.permute(order)


def _shaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return x if x._array.shape == shape else x.reshape(shape)


def _pair(
    a: Tensor, b: Tensor, left: tuple[int, ...], right: tuple[int, ...], keep: set[int]
) -> tuple[Tensor, tuple[int, ...]]:
    """Two operands contracted over the labels that nothing else reads, as one matrix product."""
    for label in set(left) & set(right):  # a dim of size 1 beside a larger one just drops out
        n, m = a._array.shape[left.index(label)], b._array.shape[right.index(label)]
        if n == 1 != m:
            a = a.squeeze(left.index(label))
            left = tuple(x for x in left if x != label)
        elif m == 1 != n:
            b = b.squeeze(right.index(label))
            right = tuple(x for x in right if x != label)
    a, left = _single(a, left, keep | set(right))
    b, right = _single(b, right, keep | set(left))
    both = [label for label in left if label in right]
    batch = [label for label in both if label in keep]
    summed = [label for label in both if label not in keep]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]
    if not summed:
        names = (*batch, *rows, *columns)
        a, b = _arranged(a, left, [*batch, *rows]), _arranged(b, right, [*batch, *columns])
        if rows and columns:
            shape = a._array.shape
            a = _shaped(a, (*shape, *[1] * len(columns)))
            shape = b._array.shape
            b = _shaped(b, (*shape[: len(batch)], *[1] * len(rows), *shape[len(batch) :]))
        elif columns:
            a = _shaped(a, (*a._array.shape, *[1] * len(columns)))
        elif rows:
            b = _shaped(b, (*b._array.shape, *[1] * len(rows)))
        return a * b, names
    if a._array.dtype != b._array.dtype:
        raise RuntimeError(f"expected scalar type {scalar_name(a._array)} but found {scalar_name(b._array)}")
    a = _arranged(a, left, [*batch, *rows, *summed])
    b = _arranged(b, right, [*batch, *summed, *columns])
    x, y = a._array.shape, b._array.shape
    k = len(batch)
    lead, row, inner, column = x[:k], x[k : k + len(rows)], x[k + len(rows) :], y[k + len(summed) :]
    n, s, m = numel(row), numel(inner), numel(column)
    if batch:
        count = numel(lead)
        result = bmm(_shaped(a, (count, n, s)), _shaped(b, (count, s, m)))
    else:
        result = mm(_shaped(a, (n, s)), _shaped(b, (s, m)))
    result = name_node(_shaped(result, (*lead, *row, *column)), "ViewBackward0")
    return result, (*batch, *rows, *columns)


def _next_pair(operands: list[Tensor], labels: list[tuple[int, ...]], out: tuple[int, ...]) -> tuple[int, int]:
    """The pair whose contraction leaves the smallest result (greedy path); the first two on a tie."""
    if len(operands) == 2:
        return 0, 1
    sizes: dict[int, int] = {}
    for x, names in zip(operands, labels):
        for label, size in zip(names, x._array.shape):
            sizes[label] = builtins.max(size, sizes.get(label, 1))
    best, choice = None, (0, 1)
    for i in range(len(operands)):
        for j in range(i + 1, len(operands)):
            others = {label for k, names in enumerate(labels) if k not in (i, j) for label in names} | set(out)
            mine = set(labels[i]) | set(labels[j])
            result = numel(sizes[label] for label in mine & others)
            cost = (
                result - numel(operands[i]._array.shape) - numel(operands[j]._array.shape),
                numel(sizes[label] for label in mine),
            )
            if best is None or cost < best:
                best, choice = cost, (i, j)
    return choice


class _Product(NamedTuple):
    """Two operands of known shapes as one matrix product: the order and shape of each before it, of the result after.

    An order is None where dims stay as they are.
    """

    left: list[int] | None
    left_shape: tuple[int, ...]
    right: list[int] | None
    right_shape: tuple[int, ...]
    shape: tuple[int, ...]
    order: list[int] | None

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        a = _shaped(a if self.left is None else a.permute(self.left), self.left_shape)
        b = _shaped(b if self.right is None else b.permute(self.right), self.right_shape)
        result = name_node(_shaped((mm if len(self.left_shape) == 2 else bmm)(a, b), self.shape), "ViewBackward0")
        return result if self.order is None else result.permute(self.order)


_products: LRU[Any, _Product | bool] = LRU(1024)  # by equation and shapes; False: it is no product


def _product(
    labels: Sequence[tuple[int, ...]], out: tuple[int, ...], x: tuple[int, ...], y: tuple[int, ...]
) -> _Product | None:
    """The product that an equation of two operands is, None for others: no label is repeated in one, or summed alone,
    or of another size in the other."""
    left, right = labels
    sizes = dict(zip(left, x))
    if len(sizes) < len(left) or len(set(right)) < len(right) or set(out) != {*left, *right} & set(out):
        return None
    if any(sizes.get(label, size) != size for label, size in zip(right, y)):
        return None
    sizes |= dict(zip(right, y))
    batch = [label for label in left if label in right and label in out]
    summed = [label for label in left if label in right and label not in out]
    rows = [label for label in left if label not in right]
    columns = [label for label in right if label not in left]
    if not summed or len(out) != len(batch) + len(rows) + len(columns):
        return None

    def order(have: Sequence[int], wanted: Sequence[int]) -> list[int] | None:
        found = [have.index(label) for label in wanted]
        return None if found == list(range(len(found))) else found

    n, s, m = (numel(sizes[label] for label in part) for part in (rows, summed, columns))
    lead = (numel(sizes[label] for label in batch),) if batch else ()
    made = [*batch, *rows, *columns]
    return _Product(
        order(left, [*batch, *rows, *summed]),
        (*lead, n, s),
        order(right, [*batch, *summed, *columns]),
        (*lead, s, m),
        tuple(sizes[label] for label in made),
        order(made, out),
    )


@composite()
def einsum(*args):
    """Sums of products by Einstein's convention: `einsum("bij,bjk->bik", x, y)` or `einsum(x, [0, 1], y, [1, 2])`.

    operands (*) by the equation -> (*output labels).  `...` stands for dims that broadcast, a repeated label for a
    diagonal, a missing `->` for the labels used once.  ValueError or RuntimeError for an equation that does not fit.
    https://docs.pytorch.org/docs/2.13/generated/torch.einsum.html
    """
    if len(args) < 2:
        raise ValueError(_BAD_CALL)
    if not isinstance(args[0], str | Tensor):
        raise argument_error("einsum", 1, "equation", "str", args[0])
    if isinstance(args[0], str):
        equation, operands = args[0], list(args[1:])
        if len(operands) == 1 and isinstance(operands[0], list | tuple):
            operands = list(operands[0])
    else:
        equation, operands = _sublists(args)
    check_elements(operands, 1)
    key = (equation, *[x._array.shape for x in operands])
    found = _products.get(key) if len(operands) == 2 else False
    if isinstance(found, _Product) and operands[0]._array.dtype == operands[1]._array.dtype:
        return found(*operands)
    labels, out = _parse(equation, tuple(x._array.ndim for x in operands))
    _check_sizes(operands, labels)
    if found is None:
        _products[key] = _product(labels, out, *key[1:]) or False
    counts: dict[int, int] = {}
    for names in labels:
        for label in set(names):
            counts[label] = counts.get(label, 0) + 1
    wanted = set(out)
    shared = wanted | {label for label, count in counts.items() if count > 1}
    pending, names = [], []
    for x, own in zip(operands, labels):
        x, own = _single(x, own, shared)
        pending.append(x)
        names.append(own)
    while len(pending) > 1:
        i, j = _next_pair(pending, names, out)
        b, right = pending.pop(j), names.pop(j)
        a, left = pending.pop(i), names.pop(i)
        keep = wanted.union(*names)
        x, own = _pair(a, b, left, right, keep)
        pending.insert(0, x)
        names.insert(0, own)
    result, own = pending[0], names[0]
    missing = [label for label in out if label not in own]  # "..." of the output where no operand has such dims
    if missing:
        out = tuple(label for label in out if label in own)
    result = _arranged(result, own, out)
    return result if result is not operands[0] else result.view(result._array.shape)


@composite(out_as="graph")
def tensordot(a, b, dims=2, out=None):
    """Sums of products over the last `dims` dims of a and the first of b, or over two lists of dims.

    a (*, k...), b (k..., *) -> (*, *).  RuntimeError where sizes or dtypes do not fit.
    https://docs.pytorch.org/docs/2.13/generated/torch.tensordot.html
    """
    if out is not None:
        return store(out, "tensordot", tensordot, a, b, dims)
    if isinstance(dims, Tensor):
        dims = dims.tolist() if dims.numel() > 1 else int(dims.item())
    n, m = a._array.ndim, b._array.ndim
    if isinstance(dims, tuple | list):
        first, second = dims
        first = [first] if isinstance(first, int) else list(first)
        second = [second] if isinstance(second, int) else list(second)
    else:
        try:
            count = operator.index(dims)
        except TypeError:
            raise RuntimeError(
                "tensordot expects dims to be int or tuple[list[int], list[int]] or list[list[int]] containing two "
                f"lists, but got dims={dims}"
            ) from None
        if count < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={count}")
        if count > builtins.min(n, m):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={count}")
        first, second = list(range(-count, 0)), list(range(count))
    if len(first) != len(second):
        raise RuntimeError("both dimension lists should have same length")
    if a._array.dtype != b._array.dtype:
        raise RuntimeError("both inputs should have same dtype")
    given = list(zip(first, second))
    first = [wrap_dim(d, n) for d in first]
    second = [wrap_dim(d, m) for d in second]
    for i, j, (p, q) in zip(first, second, given):
        x, y = a._array.shape[i], b._array.shape[j]
        if x == y:
            continue
        if x == 1:
            b = b.sum(j, True)
        elif y == 1:
            a = a.sum(i, True)
        else:
            raise RuntimeError(
                f"contracted dimensions need to match, but first has size {x} in dim {p} and second has size {y} in "
                f"dim {q}"
            )
    for chosen in (first, second):
        if len(set(chosen)) != len(chosen):
            twice = next(d for k, d in enumerate(chosen) if d in chosen[:k])
            raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    free_a = [d for d in range(n) if d not in first]
    free_b = [d for d in range(m) if d not in second]
    left, right = a._array.shape, b._array.shape
    k = numel(left[d] for d in first)
    rows, columns = [left[d] for d in free_a], [right[d] for d in free_b]
    x = a.permute(free_a + first) if n else a
    y = b.permute(second + free_b) if m else b
    return mm(x.reshape(numel(rows), k), y.reshape(k, numel(columns))).reshape(tuple(rows + columns))


@composite()
@samples(lambda t: [(t(2, 3), t(2, 2)), (t(2), t(2, 3)), (t(), t(2))])
def kron(input: Tensor, other: Tensor, *, out=None):
    """The Kronecker product: every element of input times the whole of other.  input (*a), other (*b) -> (*a * b)."""
    if out is not None:
        return store(out, "kron", kron, input, other)
    n = builtins.max(input._array.ndim, other._array.ndim)
    left = (1,) * (n - input._array.ndim) + input._array.shape
    right = (1,) * (n - other._array.ndim) + other._array.shape
    # copies, as in torch: the operands may be written to
    a = versions.own(input).reshape(tuple(s for x in left for s in (x, 1)))
    b = versions.own(other).reshape(tuple(s for x in right for s in (1, x)))
    result = (a * b).reshape(tuple(x * y for x, y in zip(left, right)))
    return name_node(result, "UnsafeViewBackward0")


# --- chains


def _order(sizes: Sequence[int]) -> list[list[int]]:
    """Return the split of each chain i..j of matrices (sizes[i], sizes[i + 1]) with the fewest multiplications."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            options = [(cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i][j], split[i][j] = builtins.min(options)
    return split


@composite(public=False, method=False)
@samples(lambda t: [([t(2, 3), t(3, 4), t(4, 2)],), ([t(3), t(3, 4), t(4)],), ([t(2, 3), t(3)],)])
def multi_dot(tensors: tuple[Tensor, ...], *, out=None):
    """The product of a chain of matrices in the cheapest order; the first and the last may be vectors.

    tensors [(n, a), (a, b), ..., (z, m)] -> (n, m).  RuntimeError for fewer than two, or shapes and dtypes that do
    not fit.
    """
    if out is not None:
        return store(out, "multi_dot", multi_dot, tensors)
    chain = list(tensors)
    n = len(chain)
    check_elements(chain)
    if n < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {n}")
    first, last = chain[0]._array.ndim, chain[-1]._array.ndim
    if first not in (1, 2):
        raise RuntimeError(f"multi_dot(): the first tensor must be 1D or 2D but got {first}D")
    if last not in (1, 2):
        raise RuntimeError(f"multi_dot(): the last tensor must be 1D or 2D but got {last}D")
    for i, x in enumerate(chain[1:-1], 1):
        if x._array.ndim != 2:
            raise RuntimeError(f"multi_dot(): tensor {i} must be 2D but got {x._array.ndim}D")
    for i, x in enumerate(chain[1:], 1):
        if x._array.dtype != chain[0]._array.dtype:
            raise RuntimeError(
                f"multi_dot(): all tensors must have be the same dtype but tensor 0 is {cpp_name(chain[0]._array)} and "
                f"tensor {i} {cpp_name(x._array)}"
            )
    given = [list(x._array.shape) for x in chain]
    if first == 1:
        chain[0] = chain[0].unsqueeze(0)
    if last == 1:
        chain[-1] = chain[-1].unsqueeze(1)
    sizes = [chain[0]._array.shape[0], *[x._array.shape[1] for x in chain]]
    for i in range(1, n):
        if chain[i]._array.shape[0] != sizes[i]:
            raise RuntimeError(
                f"multi_dot(): tensors {i - 1} and {i} with shapes {given[i - 1]} and {given[i]} cannot be multiplied"
            )
    split = _order(sizes)

    def multiplied(i: int, j: int) -> Tensor:
        if i == j:
            return chain[i]
        k = split[i][j]
        return mm(multiplied(i, k), multiplied(k + 1, j))

    result = multiplied(0, n - 1)
    shape = (
        (*result._array.shape[: first - 1], *result._array.shape[1:last]) if first == 1 else result._array.shape[:last]
    )
    return name_node(result if len(shape) == 2 else result.reshape(shape), "ViewBackward0")


@composite(method=False)
def chain_matmul(*matrices, out=None):
    """The product of matrices in the cheapest order (deprecated: `linalg.multi_dot`).

    (n, a), (a, b), ... -> (n, m).
    """
    warnings.warn(
        "torch.chain_matmul is deprecated and will be removed in a future PyTorch release. Use torch.linalg.multi_dot "
        "instead, which accepts a list of two or more tensors rather than multiple parameters.",
        stacklevel=2,
    )
    if len(matrices) == 1 and isinstance(matrices[0], list | tuple):
        matrices = tuple(matrices[0])
    if not matrices:
        raise RuntimeError("chain_matmul(): Expected one or more matrices")
    for x in matrices:
        if x._array.ndim != 2:
            raise RuntimeError(f"Tensor dimension is {x._array.ndim}, expected 2 instead.")
    return matrices[0] if len(matrices) == 1 else multi_dot(matrices, out=out)


# --- trace, cross product


@composite(autocast={"cpu": "float32"})
@samples(lambda t: [(t(3, 3),), (t(2, 3),), (t(0, 3),)])
def trace(input: Tensor):
    """The sum of the diagonal.  input (n, m) -> ().  RuntimeError unless it is a matrix."""
    if input._array.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {input._array.ndim}")
    if input._array.dtype.kind == "b":
        raise NotImplementedError("\"trace\" not implemented for 'Bool'")
    return name_node(input.diagonal().sum(), "TraceBackward0")


@op(public=False, method=False)
@derivative(
    input=lambda grad, other, dim, input_shape: linalg_cross(conj(other), grad, dim=dim).sum_to_size(input_shape),
    other=lambda grad, input, dim, other_shape: linalg_cross(grad, conj(input), dim=dim).sum_to_size(other_shape),
)
@samples(
    lambda t: [
        (t(4, 3), t(4, 3)),
        (t(3), t(3)),
        (t(3, 4), t(3, 4), {"dim": 0}),
        (t(2, 1, 3), t(1, 4, 3)),
        (t(0, 3), t(0, 3)),
    ]
)
def linalg_cross(xp, input, other, *, dim: int = -1):
    """The cross product of vectors of three elements along `dim`.  input (*a), other (*b) of one rank -> (broadcast).

    RuntimeError for other lengths, ranks or two dtypes.
    """
    if input.ndim != other.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    axis = wrap_dim(dim, input.ndim)
    if input.ndim == 0 or input.shape[axis] != 3 or other.shape[axis] != 3:
        n, m = (input.shape[axis], other.shape[axis]) if input.ndim else (1, 1)
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {n} and {m}")
    broadcast_shapes(input.shape, other.shape)
    refuse("cross", input, "b")
    if input.dtype != other.dtype:
        raise RuntimeError(f"expected scalar type {scalar_name(input)} but found {scalar_name(other)}")

    def parts(x: Any) -> list[Any]:
        return [x[(slice(None),) * axis + (slice(i, i + 1),)] for i in range(3)]

    (a, b, c), (d, e, f) = parts(input), parts(other)
    return xp.concatenate((b * f - c * e, c * d - a * f, a * e - b * d), axis=axis)


@composite()
@samples(lambda t: [(t(4, 3), t(4, 3), 1), (t(3, 4), t(3, 4), 0)])
def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out=None):
    """The cross product along `dim`, or along the first dim of size 3.  input (*), other (*) -> (*).

    RuntimeError for other lengths, ranks or two dtypes.  https://docs.pytorch.org/docs/2.13/generated/torch.cross.html
    """
    if dim is None:
        warnings.warn(
            "Using torch.cross without specifying the dim arg is deprecated.\n"
            "Please either pass the dim explicitly or simply use torch.linalg.cross.\n"
            "The default value of dim will change to agree with that of linalg.cross in a future release.",
            stacklevel=2,
        )
        shape = input._array.shape
        if 3 not in shape:
            raise RuntimeError("no dimension of size 3 in input")
        dim = shape.index(3)
    return linalg_cross(input, other, dim=dim, out=out)


# --- powers


@composite()
@samples(lambda t: [(t(3, 3), 3), (t(2, 2, 2), 2), (t(3, 3), 1)])
def matrix_power(input: Tensor, n: int, *, out=None):
    """The product of n copies of a square matrix, of its inverse for n < 0.  input (*, m, m) -> (*, m, m).

    RuntimeError unless square; LinAlgError for n < 0 and a singular matrix.
    """
    if out is not None:
        return (store_result if n in (0, 1) else store)(out, "matrix_power", matrix_power, input, n)
    systems.check_square(input._array, "linalg.matrix_power")
    if n == 0:
        return input.clone().zero_() + systems.eye_like(input)
    if n == 1:
        return input.clone()
    if n < 0:
        input, n = systems.inverse(input), -n
    result = None
    power = input
    while True:
        if n & 1:
            result = power if result is None else matmul(result, power)
        n >>= 1
        if not n:
            return result
        power = matmul(power, power)
