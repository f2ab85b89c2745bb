"""Convolutions of each channel with a kernel of its own, of images in torch's order, and their gradients.

Images have three dims, of which the first ones are 1 where there are fewer.  The names of parameters:
  image (images, channels, depth, height, width); result and slope, its gradient, (images, channels, layers, rows,
  columns).  front, above, left: the padding.
  scratch: for each thread `step` zeros, a padded image of planes of `plane` elements in rows of `pitch`.
  share: the jobs of a thread.
A kernel is written out: `kernel` places, which are `dilation` elements from one another; windows are `stride` elements
from one another.  Where these are several in a row, a row's elements are sorted by their place in a step, `phase`
elements for each: what neighbouring results read stands together then.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from engine.kernels.form import Array, Value, call, where
from engine.kernels.jobs import Jobs, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["FORWARD", "GRADIENT", "SPREAD", "forward", "gradient", "lines", "reads", "spread"]

_IMAGE, _RESULT = ("depth", "height", "width"), ("layers", "rows", "columns")
_PADDED = ("plane", "pitch", "channels", "share", "step")
_SIZES = (*_IMAGE, *_RESULT, "front", "above", "left", "phase", *_PADDED)
FORWARD = ("image", "weights", "bias", "result", "scratch", *_SIZES)
GRADIENT = ("image", "slope", "made", "scratch", *_SIZES, "images")
SPREAD = ("slope", "weights", "result", "scratch", *_IMAGE, *_RESULT, *_PADDED, "line")
Sizes = tuple[int, int, int]  # of a kernel, of the steps between its places, of steps between windows
Place = tuple[int, int, int]  # of what is read, from the first
Sums = Sequence[tuple[Place, Value]]  # (a place of the kernel, the variable of its sum)
_ROWS = 4  # of results that share what they read
_VECTORS = 4  # of a result of one row


def _places(kernel: Sizes, dilation: Sizes) -> list[Place]:
    steps = [range(0, n * d, d) for n, d in zip(kernel, dilation)]
    return [(z, y, x) for z, y, x in itertools.product(*steps)]


def _copied(k: Jobs, source: Array, target: Array, rows: Value | int, width: Value, pitch: Value | int) -> None:
    """Copy rows of `width` elements, a vector at least, to rows that are `pitch` elements from one another."""
    with k.loop(0, rows) as row:
        given, own = k.view(source, row * width), k.view(target, row * pitch)
        with k.loop(0, width, k.lanes) as j:
            at = least(j, width - k.lanes)  # the last vector overlaps the one before
            k.store(own, at, k.vector(given, at))


def _apart(k: Jobs, row: Array, first: Value, stride: int) -> Sequence[Value]:
    """A vector of every `stride`-th element from each of as many first ones."""
    if stride == 2:
        return k.pairs(row, [first])
    steps = range(0, k.lanes * stride, stride)
    return [k.gathered(row, [first + (n + r) for n in steps]) for r in range(stride)]


def _sorted(k: Jobs, source: Array, target: Array, stride: int) -> None:
    """Copy the rows of a plane of the image; every `stride`-th element of a row, `phase` places from its first, to
    neighbours."""
    a = k.numbers
    groups = a["width"] // stride
    spots = []
    for r in range(stride):
        place = a["left"] + r
        spots.append(k.view(target, place % stride * a["phase"] + place // stride))
    with k.loop(0, a["height"]) as row:
        given, down = k.view(source, row * a["width"]), row * a["pitch"]
        with k.loop(0, groups, k.lanes) as j:
            at = least(j, groups - k.lanes)
            for spot, value in zip(spots, _apart(k, given, at * stride, stride)):
                k.store(spot, down + at, value)
        for r, spot in enumerate(spots[:-1]):  # what is left by whole steps
            with k.when(groups * stride + r < a["width"]):
                k.store(spot, down + groups, k.load(given, groups * stride + r))


def _filled(k: Jobs, source: Array, padded: Array, stride: int) -> None:
    """Copy an image to its place in a padded one."""
    a = k.numbers
    with k.loop(0, a["depth"]) as z:
        given = k.view(source, z * a["height"] * a["width"])
        plane = k.view(padded, (a["front"] + z) * a["plane"] + a["above"] * a["pitch"])
        if stride == 1:
            _copied(k, given, k.view(plane, a["left"]), a["height"], a["width"], a["pitch"])
        else:
            _sorted(k, given, plane, stride)


def _meeting(places: Sequence[Place], rows: int, step: int = 1) -> list[tuple[Place, list[tuple[int, int]]]]:
    """What `rows` rows of results read, in order: (its place from the first's, [(row, the place's number)])."""
    found: dict[Place, list[tuple[int, int]]] = {}
    for row in range(rows):
        for number, (z, y, x) in enumerate(places):
            found.setdefault((z, row * step + y, x), []).append((row, number))
    return sorted(found.items())


def _reader(k: Jobs, corner: Array, stride: int) -> Callable[[Place], Value]:
    """Return what reads vectors of a padded image at a place from a corner."""
    a = k.numbers

    def read(place: Place) -> Value:
        z, y, x = place
        phase, at = x % stride, x // stride
        start = a["plane"] * z + a["pitch"] * y + at
        return k.vector(corner, start + a["phase"] * phase if phase else start)

    return read


def _blocks(k: Jobs, tall: bool, body: Callable[[Value, Value, int, int], None]) -> None:
    """`body(row, column, rows, vectors)` of blocks of results; the last vector of a row overlaps the one before."""
    a = k.numbers
    count = (a["columns"] + k.lanes - 1) // k.lanes
    for rows, row in k.cut(a["rows"], (_ROWS, 1) if tall else (1,)):
        for vectors, number in k.cut(count, (1,) if tall else (_VECTORS, 1)):
            body(row, number * k.lanes, rows, vectors)


@in_llvm
def forward(lanes: int, kernel: Sizes, dilation: Sizes, stride: Sizes, biased: bool, flipped: bool) -> Jobs:
    """The images begin..end of all channels.  weights (channels, *kernel), bias (channels).

    flipped: each kernel's places in the opposite order, as the gradient of the input has them.
    """
    k = Jobs("depthwise", lanes, FORWARD, 5)
    image, weights, bias, result, scratch = k.arrays
    a = k.numbers
    places = _places(kernel, dilation)
    padded = k.view(scratch, k.begin // a["share"] * a["step"])
    last = a["columns"] - lanes
    size, out = a["depth"] * a["height"] * a["width"], a["rows"] * a["columns"]
    with k.loop(k.begin, k.end) as job:
        channel = job % a["channels"]
        _filled(k, k.view(image, job * size), padded, stride[2])
        own = k.view(weights, channel * len(places))
        factors = [k.spread(k.load(own, n)) for n in range(len(places))]
        factors = factors[::-1] if flipped else factors
        start = k.spread(k.load(bias, channel)) if biased else k.number(0.0)
        with k.loop(0, a["layers"]) as layer:
            target = k.view(result, (job * a["layers"] + layer) * out)
            planes = k.view(padded, layer * a["plane"] * stride[0])

            def block(row: Value, column: Value, rows: int, vectors: int) -> None:
                for v in range(vectors):
                    at = least(column + v * lanes, last)
                    read = _reader(k, k.view(planes, row * a["pitch"] * stride[1] + at), stride[2])
                    totals = [start] * rows
                    for place, uses in _meeting(places, rows, stride[1]):
                        value = read(place)
                        for r, number in uses:
                            totals[r] = call("fma", factors[number], value, totals[r])
                    for r, total in enumerate(totals):
                        k.store(target, (row + r) * a["columns"] + at, total)

            _blocks(k, kernel[1] > 1, block)
    return k


@in_llvm
def gradient(lanes: int, kernel: Sizes, dilation: Sizes, stride: Sizes, together: int) -> Jobs:
    """The gradients of the kernels of the channels begin..end, made (channels, *kernel): sums over all images.

    together: places of a kernel whose sums stay in registers.
    """
    k = Jobs("depthwise_gradient", lanes, GRADIENT, 4)
    image, slope, made, scratch = k.arrays
    a = k.numbers
    places = _places(kernel, dilation)
    padded = k.view(scratch, k.begin // a["share"] * a["step"])
    size, out = a["depth"] * a["height"] * a["width"], a["rows"] * a["columns"]
    left_over = a["columns"] % lanes
    last, nothing = a["columns"] - lanes, k.number(0.0)
    fresh = k.vector_of(range(lanes)) >= k.spread(k.cast(lanes - left_over, "float32"))  # of the last vector

    def add(planes: Array, slopes: Array, row: Value, rows: int, column: Value, part: bool, sums: Sums) -> None:
        """Add the products of a vector of results of each of `rows` rows; part: of its lanes that are `fresh`."""
        read = _reader(k, k.view(planes, row * a["pitch"] * stride[1] + column), stride[2])
        factors = [k.vector(slopes, (row + r) * a["columns"] + column) for r in range(rows)]
        factors = [where(fresh, factor, nothing) if part else factor for factor in factors]
        for place, uses in _meeting([place for place, _ in sums], rows, stride[1]):
            value = read(place)
            value = where(fresh, value, nothing) if part else value
            for r, number in uses:
                total = sums[number][1]
                k.set(total, call("fma", factors[r], value, total))

    with k.loop(k.begin, k.end) as channel:
        own = k.view(made, channel * len(places))
        for n in range(len(places)):
            k.store(own, n, k.constant(0.0, "float32"))
        with k.loop(0, a["images"]) as image_number:
            number = image_number * a["channels"] + channel
            _filled(k, k.view(image, number * size), padded, stride[2])
            for first in range(0, len(places), together):
                chosen = places[first : first + together]
                sums = list(zip(chosen, k.variables([nothing] * len(chosen))))
                with k.loop(0, a["layers"]) as layer:
                    slopes = k.view(slope, (number * a["layers"] + layer) * out)
                    planes = k.view(padded, layer * a["plane"] * stride[0])
                    for rows, row in k.cut(a["rows"], (_ROWS, 1)):
                        with k.loop(0, a["columns"] - left_over, lanes) as column:
                            add(planes, slopes, row, rows, column, False, sums)
                        with k.when(left_over > 0):
                            add(planes, slopes, row, rows, last, True, sums)
                for n, (_, total) in enumerate(sums, first):
                    k.store(own, n, k.load(own, n) + k.total(total))
    return k


def reads(kernel: int, dilation: int, stride: int, padding: int) -> list[list[tuple[int, int]]]:
    """For each place in a step of an image: what its gradient reads, (number of the kernel's place, how many results
    before the step's own)."""
    found = []
    for place in range(stride):
        steps = [divmod(j * dilation - padding - place, stride) for j in range(kernel)]
        found.append([(j, before) for j, (before, rest) in enumerate(steps) if not rest])
    return found


@in_llvm
def spread(lanes: int, kernel: Sizes, dilation: Sizes, stride: Sizes, padding: Sizes) -> Jobs:
    """The gradients of the images begin..end of all channels: result (images, channels, depth, height, width).

    scratch has, behind the padded gradient of a result, lines of `line` elements.  A step's results are made together:
    each reads other places of the kernel.
    """
    k = Jobs("depthwise_spread", lanes, SPREAD, 4)
    slope, weights, result, scratch = k.arrays
    a, (deep, down, across) = k.numbers, stride
    reach = [reads(*each) for each in zip(kernel, dilation, stride, padding)]
    before = [max([0, *[n for place in each for _, n in place]]) for each in reach]
    steps = [(a[name] + (s - 1)) // s for name, s in zip(_IMAGE, stride)]
    padded = k.view(scratch, k.begin // a["share"] * a["step"])
    inner = k.view(padded, a["plane"] * before[0] + a["pitch"] * before[1] + before[2])
    made_lines = k.view(padded, a["step"] - a["line"] * lines(kernel, stride))
    last, out, size = steps[2] - lanes, a["rows"] * a["columns"], a["height"] * a["width"]

    def block(planes: Array, target: Array, own: Sequence[Value], part: int, top: Value, rows: int) -> None:
        """`rows` steps from `top` on of the planes of a place in a step (`part`)."""
        uses: dict[Place, list[tuple[tuple[int, int], int]]] = {}
        kinds = list(itertools.product(range(rows * down), range(across)))
        for (row, x), (i, back) in itertools.product(kinds, reach[0][part]):
            for (j, up), (n, left) in itertools.product(reach[1][row % down], reach[2][x]):
                number = (i * kernel[1] + j) * kernel[2] + n
                uses.setdefault((-back, row // down - up, -left), []).append(((row, x), number))
        with k.loop(0, steps[2], lanes) as column:
            at = least(column, last)
            corner = k.view(planes, top * a["pitch"] + at)
            totals = {kind: k.number(0.0) for kind in kinds}
            for (z, y, x), readers in sorted(uses.items()):
                value = k.vector(corner, a["plane"] * z + a["pitch"] * y + x)
                for kind, number in readers:
                    totals[kind] = call("fma", own[number], value, totals[kind])
            for row in range(rows * down):
                made = [totals[row, x] for x in range(across)]
                line = k.view(made_lines, a["line"] * row)
                if across == 1:
                    k.store(line, at, made[0])
                elif across == 2:
                    k.store_pairs(line, [at * 2], (made[0], made[1]))
                else:
                    for x, value in enumerate(made):
                        k.scatter(line, [at * across + (lane * across + x) for lane in range(lanes)], value)
        for row in range(rows * down):
            place = top * down + row
            with k.when(place < a["height"]):
                _copied(k, k.view(made_lines, a["line"] * row), k.view(target, place * a["width"]), 1, a["width"], 0)

    with k.loop(k.begin, k.end) as job:
        with k.loop(0, a["layers"]) as layer:
            given = k.view(slope, (job * a["layers"] + layer) * out)
            _copied(k, given, k.view(inner, layer * a["plane"]), a["rows"], a["columns"], a["pitch"])
        taps = kernel[0] * kernel[1] * kernel[2]
        start = k.view(weights, job % a["channels"] * taps)
        own = [k.spread(k.load(start, n)) for n in range(taps)]
        with k.loop(0, steps[0]) as layer:
            for part in range(deep):
                plane = layer * deep + part
                with k.when(plane < a["depth"]):
                    target, planes = (
                        k.view(result, (job * a["depth"] + plane) * size),
                        k.view(inner, layer * a["plane"]),
                    )
                    for rows, top in k.cut(steps[1], _tops(kernel, stride)):
                        block(planes, target, own, part, top, rows)
    return k


def _tops(kernel: Sizes, stride: Sizes) -> tuple[int, ...]:
    """How many steps of rows of `spread` are made together, then how many of those that are left."""
    many = _ROWS // stride[1]
    return (many, 1) if many > 1 and kernel[1] > 1 else (1,)


def lines(kernel: Sizes, stride: Sizes) -> int:
    """The rows that `spread` makes together."""
    return _tops(kernel, stride)[0] * stride[1]
