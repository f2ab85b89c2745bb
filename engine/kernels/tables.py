"""Kernels that look things up in the source form: rows by index, sums into rows, gather and scatter, random words."""

from __future__ import annotations

from collections.abc import Sequence

from engine.kernels.elementwise import Class, Walk
from engine.kernels.form import Array, Kernel, Value, both, compute_type, where
from engine.kernels.trace import DTypeLike, type_of

# Philox4x64-10: https://doi.org/10.1145/2063384.2063405, table 2
MULTIPLIERS = 0xD2E7470EE14C6C93, 0xCA5A826395121157
WEYL = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ROUNDS = 10


def taken(dtype: DTypeLike, index_dtype: DTypeLike, classes: Sequence[Class], wrapped: bool) -> Kernel:
    """out[a, k, b] = x[a, index[k or a, k, b], b]: numpy's take, and gather.

    Operands: x without the dim looked up, index, out, over one layout.  numbers: n, the size of that dim, and its
    stride in x.  Where an index is not in [0, n) (wrapped: [-n, n)) the result is 0 and the flag is set.
    """
    k = Kernel("take", "map")
    type = type_of(dtype)
    x, index = k.array("x", type), k.array("index_of", type_of(index_dtype))
    out, flag = k.array("out", type, True), k.array("flag", "int32", True)
    walk = Walk(k, classes)
    walk.parameters()
    n, stride = k.scalar("n", "int64"), k.scalar("stride", "index")
    at, good = _checked(k, k.load(index, walk.offset(1, k.index)), n, wrapped)
    value = k.load(x, walk.offset(0, k.index) + k.cast(at, "index") * stride)
    k.store(out, walk.offset(2, k.index), where(good, value, _zero(k, type)))
    with k.when(k.op("not", good)):
        k.store(flag, k.constant(0, "index"), k.constant(1, "int32"))
    return k


def _checked(k: Kernel, at: Value, n: Value, wrapped: bool) -> tuple[Value, Value]:
    """(an index in range, whether the one given was)."""
    at = k.cast(at, "int64")
    if wrapped:
        at = where(at < 0, at + n, at)
    good = both(at >= 0, at < n)
    return where(good, at, k.constant(0, "int64")), good


def _zero(k: Kernel, type: str) -> Value:
    return k.constant(0, compute_type(type))


def summed_rows(dtype: DTypeLike, out_dtype: DTypeLike) -> Kernel:
    """out[key[i], d] = sum of rows[order[j], d] for j in i .. end[i], where key[i] begins (begin[i] = i), in that
    order: the same from run to run.  key is sorted.  numbers: width (of d), whether each sum is divided by its number
    of rows."""
    k = Kernel("summed_rows", "map")
    type, out_type = type_of(dtype), type_of(out_dtype)
    rows, order, key = k.array("rows", type), k.array("order", "int64"), k.array("key", "int64")
    begin, end, out = k.array("begin", "int64"), k.array("end", "int64"), k.array("out", out_type, True)
    width, share = k.scalar("width", "index"), k.scalar("share", "int32")
    place, d = k.index // width, k.index % width
    with k.when(k.cast(k.load(begin, place), "index").equals(place)):
        last = k.cast(k.load(end, place), "index")
        total = k.variable(_zero(k, type))
        with k.loop(place, last) as i:
            row = k.cast(k.load(order, i), "index")
            k.set(total, total + k.load(rows, row * width + d))
        count = k.cast(last - place, compute_type(type))
        made = where(share.differs(0), total / count, total)
        k.store(out, k.cast(k.load(key, place), "index") * width + d, made)
    return k


# --- random numbers


def philox(k: Kernel, seed: Value, block: Value) -> list[Value]:
    """The four 64-bit words of a block (a uint64, from 0): Note [Random bits] in engine/random.py."""
    words = [block + 1, *[k.constant(0, "uint64")] * 3]
    key = seed
    for r in range(ROUNDS):
        key = key + WEYL[0] if r else key
        other = k.constant(r * WEYL[1] % 2**64, "uint64")
        high, low = ([k.op(how, words[2 * n], MULTIPLIERS[n]) for n in (0, 1)] for how in ("high", "mul"))
        words = [
            k.op("xor", k.op("xor", words[1], key), high[1]),
            low[1],
            k.op("xor", k.op("xor", words[3], other), high[0]),
            low[0],
        ]
    return words


def _per_block(
    name: str, type: str, replayed: bool, extra: Sequence[tuple[str, str]] = ()
) -> tuple[Kernel, Array, Value, list[Value], list[Value]]:
    """A map over blocks of random words: (kernel, out, elements in all, words, extra numbers).

    replayed: the seed, and what is added to the first block, are read from memory, which each replay of a graph writes.
    """
    k = Kernel(name + "_replayed" * replayed, "map")
    out = k.array("out", type, True)
    state = k.array("state", "uint64") if replayed else None
    seed, first, size = k.scalar("seed", "uint64"), k.scalar("first", "uint64"), k.scalar("size", "index")
    numbers = [k.scalar(n, t) for n, t in extra]
    if state is not None:
        seed, first = (number + k.load(state, k.constant(n, "index")) for n, number in enumerate((seed, first)))
    return k, out, size, philox(k, seed, first + k.cast(k.index, "uint64")), numbers


def _store(k: Kernel, out: Array, size: Value, values: Sequence[Value], whole: bool = False) -> None:
    """values[n] at n + len(values) * block, as far as the array goes.  whole: it holds all of them."""
    for n, value in enumerate(values):
        at = k.index * len(values) + n
        if whole:
            k.store(out, at, value)
            continue
        with k.when(at < size):
            k.store(out, at, value)


def _halves(k: Kernel, words: Sequence[Value]) -> list[Value]:
    """The 32-bit halves of words, low first, still as uint64."""
    found = []
    for w in words:
        found += [k.op("and", w, 0xFFFFFFFF), k.op("shr", w, 32)]
    return found


def words(replayed: bool = False) -> Kernel:
    """Random 64-bit words."""
    k, out, size, made, _ = _per_block("random_words", "uint64", replayed)
    _store(k, out, size, made)
    return k


def uniform(dtype: DTypeLike, replayed: bool = False) -> Kernel:
    """Numbers in [0, 1), as `draw.uniform`."""
    type = type_of(dtype)
    k, out, size, made, _ = _per_block("random_uniform", type, replayed)
    if type == "float64":
        values = [k.cast(k.op("shr", w, 11), "float64") * 2.0**-53 for w in made]
    else:
        bits = {"float32": 24, "float16": 11, "bfloat16": 8}[type]
        values = [k.cast(k.op("shr", h, 32 - bits), "float32") * 2.0**-bits for h in _halves(k, made)]
    _store(k, out, size, values)
    return k


def kept(dtype: DTypeLike, replayed: bool = False, whole: bool = False) -> Kernel:
    """`scale` where a 32-bit number is below `limit`, else 0: as `draw.kept`.  whole: for a multiple of 8 numbers."""
    type = type_of(dtype)
    k, out, size, made, (limit, scale) = _per_block(
        "random_kept", type, replayed, [("limit", "uint64"), ("scale", compute_type(type))]
    )
    _store(k, out, size, [where(h < limit, scale, _zero(k, type)) for h in _halves(k, made)], whole)
    return k
