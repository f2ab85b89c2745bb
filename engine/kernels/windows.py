"""Convolutions of channels-last images as they are defined: any kernel, stride and dilation.

The names of parameters:
  image (N, height, width, channels), results (N, rows, columns, outputs); above, left: the padding; tall, wide: of
  the kernel, whose places are `dilation` pixels from one another, as windows are `step` pixels.
  zeros: as many as a pixel has channels, read where there is no image.
  panel: the outputs that a row of registers holds.
"""

from __future__ import annotations

from engine.kernels.form import Value, both, where
from engine.kernels.jobs import Jobs, inside, least
from engine.kernels.llvm_jobs import in_llvm

__all__ = ["FORWARD", "GRADIENT", "forward", "gradient"]

_WINDOWS = (
    "height",
    "width",
    "channels",
    "rows",
    "columns",
    "outputs",
    "tall",
    "wide",
    "step_down",
    "step_across",
    "above",
    "left",
    "dilation_down",
    "dilation_across",
)
FORWARD = (
    "image",
    "weights",
    "result",
    "bias",
    "zeros",
    *_WINDOWS,
    "pixels",
    "block",
    "part",
    "made_rows",
    "made_columns",
    "made_down",
    "made_across",
    "made_top",
    "made_side",
    "next_panel",
    "next_down",
    "next_across",
)
GRADIENT = ("image", "slope", "made", *_WINDOWS, "images", "chunk", "block")


@in_llvm
def forward(lanes: int, rows: int, vectors: int) -> Jobs:
    """The jobs begin..end of a convolution; `rows` pixels by `vectors` vectors of outputs stay in registers.

    weights (channels, panel) for each place of the kernel and panel of outputs, which are `next_down`, `next_across`
    and `next_panel` elements from one another, less than 0 where places are in the opposite order.  bias (outputs).
    Results are numbered from 0 to `pixels`; that of (row, column) belongs at (row * made_down + made_top, column *
    made_across + made_side) of images of made_rows x made_columns.  A job is a panel of a block of results; the panels
    of a block follow one another, so that what they read stays in the cache, and of the kernel `part` rows are read for
    all of it before the next are: what is summed until then waits where it belongs.
    """
    k = Jobs("windows", lanes, FORWARD, 5)
    image, weights, result, bias, zeros = k.arrays
    a = k.numbers
    channels, outputs, panel = a["channels"], a["outputs"], vectors * lanes
    panels = outputs // panel
    line, across = a["next_down"], a["dilation_across"] * channels

    def few(pixel: Value, last: Value, number: Value, top: Value) -> None:
        """`rows` results of the block that ends at `last`, in a panel of outputs, by its rows from `top` on."""
        own = k.view(weights, number * a["next_panel"])
        made, shift = k.view(result, number * panel), k.view(bias, number * panel)
        targets, corners = [], []
        for i in range(rows):
            at = least(pixel + i, last - 1)  # those beyond the last are the last again
            row, column = at // a["columns"] % a["rows"], at % a["columns"]
            n = at // a["columns"] // a["rows"]
            y, x = row * a["step_down"] - a["above"], column * a["step_across"] - a["left"]
            corners.append((n * a["height"], y, x))
            y, x = row * a["made_down"] + a["made_top"], column * a["made_across"] + a["made_side"]
            targets.append(k.view(made, ((n * a["made_rows"] + y) * a["made_columns"] + x) * outputs))
        places = k.vectors(targets, vectors)
        # a result begins with its bias: the address of each is chosen, not its value
        starts = [k.either(top.equals(0), b, s) for b, s in zip(k.vectors([shift] * rows, vectors), places)]
        sums = k.variables([k.vector(start) for start in starts])
        with k.loop(top, least(top + a["part"], a["tall"])) as down:
            lines = []
            for start, y, x in corners:
                y = y + down * a["dilation_down"]
                fits = inside(y, a["height"])
                lines.append((fits, k.view(image, ((start + y) * a["width"] + x) * channels), x))
            with k.loop(0, a["wide"]) as j:
                moved, along, pixels = j * a["dilation_across"], j * across, []
                for fits, address, x in lines:
                    there = both(fits, inside(x + moved, a["width"]))
                    pixels.append(k.either(there, k.view(address, along), zeros))
                k.add_products(sums, pixels, channels, 1, k.view(own, down * line + j * a["next_across"]), panel)
        k.store_all(places, sums)

    with k.loop(k.begin, k.end) as job:
        first = job // panels * a["block"]
        last = least(first + a["block"], a["pixels"])
        with k.loop(0, a["tall"], a["part"]) as top, k.loop(first, last, rows) as pixel:
            few(pixel, last, job % panels, top)
    return k


@in_llvm
def gradient(lanes: int, rows: int, vectors: int) -> Jobs:
    """The jobs begin..end of the gradient of the kernels, made (tall, wide, channels, outputs), of `images` images.

    slope (N, rows, columns, outputs): the gradient of the results.  A job is a panel of `chunk` channels at a place of
    the kernel.  All of them take `block` rows of results, which stay in the cache, before the next; what these give is
    summed by itself before it joins what was summed, so that less is lost.
    """
    k = Jobs("windows_gradient", lanes, GRADIENT, 3)
    image, slope, mades = k.arrays
    a = k.numbers
    channels, outputs, panel = a["channels"], a["outputs"], vectors * lanes
    panels, chunks = outputs // panel, (channels + a["chunk"] - 1) // a["chunk"]
    lines = a["images"] * a["rows"]
    nothing = k.constant(0, "index")

    def reach(tap: Value, way: str, padding: str, size: str, results: str) -> tuple[Value, Value, Value]:
        """(the place that the first window's overlaps, from which, to which window it is in the image)."""
        start, step = tap * a[f"dilation_{way}"] - a[padding], a[f"step_{way}"]
        begin = where(start < 0, (step - 1 - start) // step, nothing)
        beyond = where(start < a[size], (a[size] - 1 - start) // step + 1, nothing)
        return start, begin, least(beyond, a[results])

    def few(c: Value, tap: Value, o: Value, first: Value, last: Value) -> None:
        """`rows` channels from c on, at a place of the kernel, of outputs from o on, by the results of a block."""
        i, j = tap // a["wide"], tap % a["wide"]
        top, first_row, last_row = reach(i, "down", "above", "height", "rows")
        side, begin, end = reach(j, "across", "left", "width", "columns")
        channel = [least(c + n, channels - 1) for n in range(rows)]  # the last once more
        sums = k.variables([k.number(0.0)] * (rows * vectors))
        corner = k.view(image, (top * a["width"] + side + begin * a["step_across"]) * channels)
        own, down, across = k.view(slope, begin * outputs + o), a["width"] * channels, a["columns"] * outputs
        with k.loop(first, last) as line:
            n, r = line // a["rows"], line % a["rows"]
            depth = where(both(r >= first_row, r < last_row), end - begin, nothing)
            start = k.view(corner, (n * a["height"] + r * a["step_down"]) * down)
            lefts = [k.view(start, p) for p in channel]
            k.add_products(sums, lefts, depth, a["step_across"] * channels, k.view(own, line * across), outputs)
        target = k.view(mades, tap * channels * outputs + o)
        places = k.vectors([k.view(target, p * outputs) for p in channel], vectors)
        earlier = k.load_where(first.differs(0), places)
        k.store_all(places, [total + before for total, before in zip(sums, earlier)])

    with k.loop(0, lines, a["block"]) as first:
        last = least(first + a["block"], lines)
        with k.loop(k.begin, k.end) as job:
            chunk, front = job % chunks * a["chunk"], job // chunks
            with k.loop(chunk, least(chunk + a["chunk"], channels), rows) as c:
                few(c, front // panels, front % panels * panel, first, last)
    return k
