"""Cross-entropy of pixels: the softmax over the classes of (N, C, L), and its losses, piece by piece in the cache.

Rows are pieces of WIDTH places of an image.
"""

from __future__ import annotations

from engine.kernels.form import Kernel, Value, both, call, where

__all__ = ["WIDTH", "softmax_losses_of_maps"]

WIDTH = 512  # places of a piece: of 20 classes 40 kB


def softmax_losses_of_maps(type: str) -> Kernel:
    """x (N, C, L), target (N, L) int64 -> the softmax (N, C, L), losses (N, L), 0 where a target is `ignored`; of each
    piece the sum of the losses, how many count, and whether a target is no class.  sums (N, L) is scratch.
    """
    k = Kernel("softmax_losses_of_maps", "rows")
    x, target = k.array("x", type), k.array("target", "int64")
    p, losses, sums = (k.array(name, type, True) for name in ("softmax", "losses", "sums"))
    total, counted, wrong = (
        k.array("total", type, True),
        k.array("counted", type, True),
        k.array("wrong", "int32", True),
    )
    classes, length, pieces = (k.scalar(name, "index") for name in ("classes", "length", "pieces"))
    ignored = k.scalar("ignored", "int64")
    image, start = k.index // pieces, k.index % pieces * WIDTH
    left = length - start
    width = where(left < WIDTH, left, k.constant(WIDTH, "index"))
    base, own = image * classes * length + start, image * length + start

    with k.each(width) as j:
        k.store(losses, own + j, k.load(x, base + j))
        k.store(sums, own + j, k.constant(0.0, type))
    with k.loop(1, classes) as c:
        line = base + c * length
        with k.each(width) as j:
            k.store(losses, own + j, call("max", k.load(x, line + j), k.load(losses, own + j)))
    with k.loop(0, classes) as c:
        line = base + c * length
        with k.each(width) as j:
            more = call("exp", k.load(x, line + j) - k.load(losses, own + j))
            k.store(p, line + j, more)
            k.store(sums, own + j, k.load(sums, own + j) + more)

    def counts(j: Value) -> Value:
        return k.op("ne", k.load(target, own + j), ignored)

    def is_class(j: Value) -> Value:
        found = k.load(target, own + j)
        return both(found >= 0, found < k.cast(classes, "int64"))

    with k.each(width) as j:
        found = where(is_class(j), k.load(target, own + j), k.constant(0, "int64"))
        at = base + k.cast(found, "index") * length + j
        loss = call("log", k.load(sums, own + j)) + (k.load(losses, own + j) - k.load(x, at))
        k.store(losses, own + j, where(counts(j), loss, k.constant(0.0, type)))
        k.store(sums, own + j, 1 / k.load(sums, own + j))
    with k.loop(0, classes) as c:
        line = base + c * length
        with k.each(width) as j:
            k.store(p, line + j, k.load(p, line + j) * k.load(sums, own + j))
    lost = k.reduce("sum", width, lambda j: k.load(losses, own + j))
    many = k.reduce("sum", width, lambda j: k.cast(k.cast(counts(j), "int32"), type))
    bad = k.reduce("any", width, lambda j: both(counts(j), k.op("not", is_class(j))))
    with k.once():
        k.store(total, k.index, lost)
        k.store(counted, k.index, many)
        k.store(wrong, k.index, k.cast(bad, "int32"))
    return k
