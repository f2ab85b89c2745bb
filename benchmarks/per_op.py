"""Cost per op at 4, 1e4 and 1e7 elements against bare numpy in the same process, beside torch, HIPS autograd, MyGrad.

    python -m benchmarks.per_op [--peer-python torch=/path/to/python] [--rounds 5] [--sizes 4,10000] [--ops add,mul]
                                [--against torch] [--json FILE]

Three ways: `forward` (nothing requires grad), `grad` (forward with history), `backward` (forward, then backward of
ones).  Ratios are to numpy's forward call.  Every round times all sides in turn; printed are the medians of the rounds.
A peer is measured in this process where it is installed, else in the interpreter named by --peer-python.

--against PEER prints ours / that peer's time instead, of the least times of the rounds, `forward` and `backward` for
each size; by default for the ops of LAYERS, at 4, 1e3, 1e4 and 1e6 elements.  numpy is not measured then.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._sides import ROOT, Repeated, There, processor, serve

PEERS = ("torch", "autograd", "mygrad", "chainer")
MODES = ("forward", "grad", "backward")
SIZES = (4, 10_000, 10_000_000)
FEW_TO_MANY = (4, 1_000, 10_000, 1_000_000)
DATA = ("x", "y", "p", "m", "w", "i", "b")  # n normal (twice), n positive numbers, two matrices, n // 2 indices, masks
SHAPED = ("f", "v", "g", "h", "a", "s", "u", "o", "k", "l")  # `TorchNames.shaped`; torch's names only

# name: (kind, text with torch's names, text with numpy's names); "" where there is none.
OPS: dict[str, tuple[str, str, str]] = {
    "add": ("arithmetic", "t.add(x, y)", "t.add(x, y)"),
    "sub": ("arithmetic", "t.sub(x, y)", "t.subtract(x, y)"),
    "mul": ("arithmetic", "t.mul(x, y)", "t.multiply(x, y)"),
    "div": ("arithmetic", "t.div(x, y)", "t.divide(x, y)"),
    "maximum": ("arithmetic", "t.maximum(x, y)", "t.maximum(x, y)"),
    "neg": ("arithmetic", "t.neg(x)", "t.negative(x)"),
    "abs": ("arithmetic", "t.abs(x)", "t.abs(x)"),
    "exp": ("arithmetic", "t.exp(x)", "t.exp(x)"),
    "log": ("arithmetic", "t.log(p)", "t.log(p)"),
    "sqrt": ("arithmetic", "t.sqrt(p)", "t.sqrt(p)"),
    "sin": ("arithmetic", "t.sin(x)", "t.sin(x)"),
    "cos": ("arithmetic", "t.cos(x)", "t.cos(x)"),
    "tanh": ("arithmetic", "t.tanh(x)", "t.tanh(x)"),
    "square": ("arithmetic", "t.square(x)", "t.square(x)"),
    "add a number": ("number", "x + 2.5", "x + 2.5"),
    "mul by a number": ("number", "x * 2.5", "x * 2.5"),
    "power 3": ("number", "x ** 3", "x ** 3"),
    "relu": ("pointwise", "t.relu(x)", "t.maximum(x, 0)"),
    "sigmoid": ("pointwise", "t.sigmoid(x)", "1 / (1 + t.exp(-x))"),
    "clamp": ("pointwise", "t.clamp(x, -1, 1)", "t.clip(x, -1, 1)"),
    "hardshrink": ("pointwise", "t.nn.functional.hardshrink(x)", "t.where(t.abs(x) > 0.5, x, 0)"),
    "prelu": ("pointwise", "t.prelu(x, p[:1])", "t.where(x > 0, x, p[:1] * x)"),
    "glu": ("pointwise", "t.nn.functional.glu(m)", "m[:, : m.shape[1] // 2] / (1 + t.exp(-m[:, m.shape[1] // 2 :]))"),
    "where": ("pointwise", "t.where(b, x, y)", "t.where(b, x, y)"),
    "gt": ("comparison", "t.gt(x, y)", "t.greater(x, y)"),
    "sum": ("reduction", "t.sum(x)", "t.sum(x)"),
    "mean": ("reduction", "t.mean(x)", "t.mean(x)"),
    "max": ("reduction", "t.max(x)", "t.max(x)"),
    "var": ("reduction", "t.var(x)", "t.var(x)"),
    "sum of rows": ("reduction", "t.sum(m, 1)", "t.sum(m, 1)"),
    "argmax": ("comparison", "t.argmax(x)", "t.argmax(x)"),
    "softmax": (
        "pointwise",
        "t.softmax(m, 1)",
        "t.exp(m - t.max(m, 1, keepdims=True)) / t.sum(t.exp(m - t.max(m, 1, keepdims=True)), 1, keepdims=True)",
    ),
    "cumsum": ("reduction", "t.cumsum(x, 0)", "t.cumsum(x, 0)"),
    "matmul": ("product", "t.matmul(m, w)", "t.matmul(m, w)"),
    "cat": ("joining", "t.cat((x, y))", "t.concatenate((x, y))"),
    "index_select": ("indexing", "t.index_select(x, 0, i)", "x[i]"),
    "slice": ("view", "x[1:]", "x[1:]"),
    "view": ("view", "x.view(2, -1)", "x.reshape(2, -1)"),
    "t": ("view", "m.t()", "m.T"),
    "unsqueeze": ("view", "x.unsqueeze(0)", "x[None]"),
    "zeros": ("creation", "t.zeros(n)", "t.zeros(n, 'float32')"),
    "ones": ("creation", "t.ones(n)", "t.ones(n, 'float32')"),
    "empty": ("creation", "t.empty(n)", "t.empty(n, 'float32')"),
    "softshrink": ("pointwise", "F.softshrink(x)", ""),
    "threshold": ("pointwise", "F.threshold(x, 0.1, 20)", ""),
    "hardtanh": ("pointwise", "F.hardtanh(x)", ""),
    "leaky_relu": ("pointwise", "F.leaky_relu(x)", ""),
    "gelu": ("pointwise", "F.gelu(x)", ""),
    "prelu, one weight": ("pointwise", "t.prelu(v, a)", ""),
    "prelu, a weight a channel": ("pointwise", "t.prelu(v, g)", ""),
    "cat of channels": ("joining", "t.cat((v, v), 1)", ""),
    "batch norm, evaluation": ("norm", "F.batch_norm(v, d, e, g, h, False)", ""),
    "batch norm, training": ("norm", "F.batch_norm(v, d, e, g, h, True)", ""),
    "layer norm": ("norm", "F.layer_norm(m, m.shape[1:])", ""),
    "attention": ("product", "F.scaled_dot_product_attention(s, s, s)", ""),
    "cross entropy": ("reduction", "F.cross_entropy(u, c)", ""),
    "fold, kernel 2, stride 2": ("joining", "F.fold(o, z, 2, stride=2)", ""),
    "fold, kernel 3, padding 1": ("joining", "F.fold(k, y3, 3, padding=1)", ""),
    "cumsum of rows": ("reduction", "t.cumsum(m, 1)", ""),
    "linear": ("product", "F.linear(m, w, w[0])", ""),
    "convolution, kernel 3": ("product", "F.conv2d(v, l, padding=1)", ""),
    "max_pool2d": ("reduction", "F.max_pool2d(v, 2, ceil_mode=True)", ""),
}
LAYERS = [
    "relu",
    "cat",
    "cat of channels",
    "prelu, one weight",
    "prelu, a weight a channel",
    "glu",
    "hardshrink",
    "softshrink",
    "threshold",
    "hardtanh",
    "leaky_relu",
    "batch norm, evaluation",
    "batch norm, training",
    "fold, kernel 2, stride 2",
    "fold, kernel 3, padding 1",
    "attention",
    "cross entropy",
    "cumsum",
    "cumsum of rows",
]
NO_GRADIENT = ("comparison", "creation")


class TorchNames:
    """The engine or torch."""

    def __init__(self, module: str) -> None:
        self.t = importlib.import_module(module)

    def data(self, n: int, grad: bool) -> dict[str, Any]:
        t, k = self.t, width(n)
        t.manual_seed(0)
        made = dict(x=t.randn(n), y=t.randn(n), p=t.rand(n) + 0.5, m=t.randn(n // k, k), w=t.randn(k, k))
        made |= self.shaped(n)
        for value in made.values():
            value.requires_grad_(grad)
        sizes = dict(z=[2 * fold_side(n, 4)] * 2, y3=[fold_side(n, 9)] * 2)
        fixed = dict(
            d=t.zeros(made["g"].shape), e=t.ones(made["g"].shape), c=t.randint(made["u"].shape[1], made["u"].shape[:1])
        )
        return (
            {"t": t, "F": t.nn.functional, "n": n, **made, "i": t.arange(0, n, 2), "b": t.randn(n) > 0} | sizes | fixed
        )

    def shaped(self, n: int) -> dict[str, Any]:
        """What layers take, of n elements or nearly: v a picture (N, C, H, W), g and h a number a channel, a one,
        l weights of a convolution, s heads (1, heads, length, width), u rows of 10 scores, o and k columns to fold.
        """
        t, (count, channels, side) = self.t, picture(n)
        heads = {4: (1, 2, 2), 1000: (2, 25, 20), 10_000: (4, 50, 50), 1_000_000: (16, 500, 125)}.get(n)
        heads = heads or (max(1, n // (500 * 125)), min(500, n), 125 if n >= 500 * 125 else 1)
        two, three = fold_side(n, 4), fold_side(n, 9)
        return dict(
            v=t.randn(count, channels, side, side),
            g=t.rand(channels) + 0.1,
            h=t.randn(channels),
            a=t.rand(1) + 0.1,
            l=t.randn(channels, channels, 3, 3) if n < 10**6 else t.randn(1),
            s=t.randn(1, *heads),
            u=t.randn(max(1, n // 10), min(n, 10)),
            o=t.randn(1, max(1, n // (4 * two**2)) * 4, two**2),
            k=t.randn(1, max(1, n // (9 * three**2)) * 9, three**2),
        )

    def call(self, op: str, n: int, mode: str) -> Any:
        names = self.data(n, mode != "forward")
        function = eval("lambda: " + OPS[op][1], names)
        if mode != "backward":
            return function
        ones = self.t.ones_like(function().detach())
        used = set(compile(OPS[op][1], "", "eval").co_names)
        leaves = [v for v in (names[d] for d in (*DATA, *SHAPED) if d in used) if v.requires_grad]

        def both() -> None:
            function().backward(ones)
            for leaf in leaves:
                leaf.grad = None

        return both


class NumpyNames:
    """numpy, HIPS autograd, MyGrad or Chainer."""

    def __init__(self, module: str) -> None:
        self.name = module
        where = {"autograd": "autograd.numpy", "chainer": "chainer.functions"}
        self.t = importlib.import_module(where.get(module, module))

    def data(self, n: int, grad: bool) -> dict[str, Any]:
        import numpy as np

        rng, k = np.random.default_rng(0), width(n)
        made: dict[str, Any] = dict(
            x=rng.standard_normal(n),
            y=rng.standard_normal(n),
            p=rng.random(n) + 0.5,
            m=rng.standard_normal((n // k, k)),
            w=rng.standard_normal((k, k)),
        )
        made = {name: value.astype("float32") for name, value in made.items()}
        if grad and self.name == "mygrad":
            made = {name: self.t.tensor(value) for name, value in made.items()}
        if grad and self.name == "chainer":
            made = {name: importlib.import_module("chainer").Variable(v) for name, v in made.items()}
        return {"t": self.t, "n": n, **made, "i": np.arange(0, n, 2), "b": rng.random(n) > 0.5}

    def call(self, op: str, n: int, mode: str) -> Any:
        names, text = self.data(n, mode != "forward"), OPS[op][2]
        if not text:
            raise ValueError("no such function")
        if mode == "forward":
            return eval("lambda: " + text, names)
        if self.name == "numpy":
            raise ValueError("numpy has no gradients")
        if self.name == "autograd":
            used = [d for d in "xypmw" if d in compile(text, "", "eval").co_names]
            make_vjp = importlib.import_module("autograd").make_vjp
            function = make_vjp(eval(f"lambda a: (lambda {', '.join(used)}: {text})(*a)", names))
            argument = tuple(names[d] for d in used)
            if mode == "grad":
                return lambda: function(argument)
            ones = importlib.import_module("numpy").ones_like(function(argument)[1])
            return lambda: function(argument)[0](ones)
        function = eval("lambda: " + text, names)
        if mode == "grad":
            return function
        ones = importlib.import_module("numpy").ones_like(function().data)
        if self.name == "mygrad":
            return lambda: function().backward(ones)

        def both() -> None:
            result = function()
            result.grad = ones
            result.backward()

        return both


def width(n: int) -> int:
    """Columns of the matrices of n elements: 2 of 4, 50 of 1e4, 64 of 1e7 or so."""
    return max(k for k in (1, 2, 4, 8, 16, 50, 64) if n % k == 0 and k * k <= n)


def picture(n: int) -> tuple[int, int, int]:
    """(N, C, H = W) of a picture of n elements, or of the nearest number below that has one."""
    known = {4: (2, 2, 1), 1000: (2, 5, 10), 10_000: (4, 25, 10), 1_000_000: (10, 40, 50)}
    return known.get(n, (1, max(1, n // 16), min(4, math.isqrt(n))))


def fold_side(n: int, each: int) -> int:
    """Blocks along each of two sides, `each` numbers a block, of about n numbers in all."""
    return max(1, {1000: 5, 10_000: 10, 1_000_000: 50}.get(n, math.isqrt(n // (4 * each))))


class Here:
    """A side in this process."""

    def __init__(self, name: str) -> None:
        self.side = (TorchNames if name in ("engine", "torch") else NumpyNames)(name)
        self.repeated = Repeated()

    def seconds(self, op: str, n: int, mode: str) -> float | None:
        """Seconds a call; None where the side has no such op."""
        if mode != "forward" and OPS[op][0] in NO_GRADIENT:
            return None
        try:
            return self.repeated.seconds((op, n, mode), lambda: self.side.call(op, n, mode), n >= 10**6)
        except (AttributeError, TypeError, ValueError, NotImplementedError):
            return None


def measure(
    sides: dict[str, Any], ops: list[str], sizes: list[int], rounds: int, of_rounds: Callable[[list[float]], float]
) -> dict[str, Any]:
    """Seconds, medians or the least of the rounds: op -> size -> side -> way."""
    found: dict[str, Any] = {}
    for op in ops:
        found[op] = {}
        for n in sizes:
            times: dict[str, dict[str, list[float]]] = {s: {m: [] for m in MODES} for s in sides}
            for mode in MODES:
                for _ in range(rounds):
                    for name, side in sides.items():
                        if name == "numpy" and mode != "forward":
                            continue
                        seconds = side.seconds(op, n, mode)
                        if seconds is not None:
                            times[name][mode].append(seconds)
            found[op][str(n)] = {s: {m: of_rounds(v) for m, v in by.items() if v} for s, by in times.items()}
        if sys.stderr.isatty():
            print(f"\r{op:20}", end="", file=sys.stderr)
    return found


def mean_ratio(found: dict[str, Any], side: str, mode: str, n: str, kind: str | None = None) -> float | None:
    """The geometric mean over ops of side / numpy's forward."""
    logs = []
    for op, sizes in found.items():
        row = sizes.get(n, {})
        if (kind is None or OPS[op][0] == kind) and mode in row.get(side, {}) and "forward" in row.get("numpy", {}):
            logs.append(math.log(row[side][mode] / row["numpy"]["forward"]))
    return math.exp(sum(logs) / len(logs)) if logs else None


def budget(found: dict[str, Any]) -> list[tuple[str, float, float]]:
    """(what, value, limit), as far as it was measured."""
    rows = []
    for what, mode, limit in (("without grad", "forward", 4.5), ("with grad", "grad", 7.0)):
        value = mean_ratio(found, "engine", mode, "4", "arithmetic")
        if value is not None:
            rows.append((f"arithmetic at 4 elements, {what}: times numpy", value, limit))
    slow = [
        (s["4"]["engine"]["forward"] * 1e6, op)
        for op, s in found.items()
        if OPS[op][0] in ("view", "creation") and "4" in s
    ]
    if slow:
        rows.append((f"slowest view or creation ({max(slow)[1]}): us", max(slow)[0], 1.5))
    return rows


def show(found: dict[str, Any], sides: list[str]) -> None:
    """The table: for each op and size numpy's time, then each side's ratios (forward / grad / backward)."""
    header = ["op", "elements", "numpy us", *(s for s in sides if s != "numpy")]
    rows: list[list[str]] = []
    for op, sizes in found.items():
        for n, row in sizes.items():
            base = row["numpy"].get("forward")
            if base is None:
                continue
            cells = [op, f"{int(n):.0e}" if int(n) > 99 else n, f"{base * 1e6:.2f}" if base else "-"]
            for side in header[3:]:
                ratios = [f"{row[side][m] / base:.2f}" if base and m in row[side] else "-" for m in MODES]
                cells.append(" / ".join(ratios))
            rows.append(cells)
    for n in sorted({n for sizes in found.values() for n in sizes}, key=int):
        means = ["geometric mean", f"{int(n):.0e}" if int(n) > 99 else n, ""]
        for side in header[3:]:
            values = [mean_ratio(found, side, m, n) for m in MODES]
            means.append(" / ".join("-" if v is None else f"{v:.2f}" for v in values))
        rows.append(means)
    show_rows("times numpy's forward: forward / with grad / with backward", header, rows)


def show_against(found: dict[str, Any], peer: str) -> None:
    """The table of ours / a peer's time: for each op a number a size, forward and with backward."""
    sizes = sorted({n for row in found.values() for n in row}, key=int)
    rows = []
    for op, row in found.items():
        cells = [op]
        for mode in ("forward", "backward"):
            times = [(row[n]["engine"].get(mode), row[n].get(peer, {}).get(mode)) for n in sizes]
            cells.append(", ".join(f"{ours / theirs:.2f}" if ours and theirs else "-" for ours, theirs in times))
        cells.append(", ".join(f"{1e6 * row[n]['engine'].get('forward', math.nan):.1f}" for n in sizes))
        rows.append(cells)
    title = f"ours / {peer}'s time at {', '.join(sizes)} elements"
    show_rows(title, ["op", "forward", "with backward", "ours, forward, us"], rows)


def show_rows(title: str, header: list[str], rows: list[list[str]]) -> None:
    """Print a table."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(*header, title=title)
        for cells in rows:
            table.add_row(*cells)
        Console().print(table)
        return
    print(title)
    widths = [max(len(r[i]) for r in [header, *rows]) for i in range(len(header))]
    for cells in [header, *rows]:
        print("  ".join(c.ljust(w) for c, w in zip(cells, widths)).rstrip())


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, judge the budget: 1 where it is exceeded."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", help="comma-separated")
    parser.add_argument("--ops", help="comma-separated, by a semicolon where a name has commas; all by default")
    parser.add_argument("--against", metavar="PEER", choices=PEERS)
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(Here(options.serve).seconds)
        return 0
    elsewhere = dict(item.split("=", 1) for item in options.peer_python)
    sides: dict[str, Any] = {"engine": Here("engine")} if options.against else {"numpy": Here("numpy")}
    sides.setdefault("engine", Here("engine"))
    for name in (options.against,) if options.against else PEERS:
        try:
            if name in elsewhere:
                sides[name] = There(name, elsewhere[name], "benchmarks.per_op")
            elif importlib.util.find_spec(name) is not None:
                sides[name] = Here(name)
            else:
                print(f"not measured: {name} is not installed here (elsewhere: --peer-python {name}=PATH)")
        except (ImportError, OSError) as error:
            print(f"not measured: {name}: {error}")
    ops = LAYERS if options.against else list(OPS)
    if options.ops:
        ops = [options.ops] if options.ops in OPS else options.ops.split(";" if ";" in options.ops else ",")
    sizes = options.sizes.split(",") if options.sizes else FEW_TO_MANY if options.against else SIZES
    unknown = [op for op in ops if op not in OPS]
    if unknown:
        parser.error(f"no such op: {', '.join(unknown)}; there are: {', '.join(OPS)}")
    load = os.getloadavg()[0]
    of_rounds = min if options.against else statistics.median
    found = measure(sides, ops, [int(n) for n in sizes], options.rounds, of_rounds)
    for side in sides.values():
        if isinstance(side, There):
            side.close()
    if options.against:
        show_against(found, options.against)
    else:
        show(found, list(sides))
    load = max(load, os.getloadavg()[0])
    if load > (os.cpu_count() or 1):
        print(f"note: load average {load:.1f} on {os.cpu_count()} cores: torch, with its threads, looks slower")
    over = False
    limits = [] if options.against else budget(found)
    for what, value, limit in limits:
        over = over or value > limit
        print(f"budget: {what} {value:.2f} (limit {limit}): {'ok' if value <= limit else 'over'}")
    if options.json:
        commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        rounded = {
            op: {
                n: {s: {m: float(f"{v:.4g}") for m, v in by.items()} for s, by in row.items()}
                for n, row in sizes.items()
            }
            for op, sizes in found.items()
        }
        document = {
            "processor": processor(),
            "cores": os.cpu_count(),
            "commit": commit.stdout.strip(),
            "load_average": round(load, 1),
            "rounds": options.rounds,
            "unit": "seconds a call, float32",
            "sides": list(sides),
            "budget": [{"what": w, "value": round(v, 3), "limit": n} for w, v, n in limits],
            "ops": rounded,
        }
        options.json.write_text(json.dumps(document, indent=1) + "\n")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
