"""`python -m engine.cuda.selftest`: does this GPU compute what the CPU computes?

Each route of CUDA (a family of ops, a kind of copy, streams, graphs) runs once here and once on the CPU on
the same numbers, and each route of the engine's own (`engine/backends/cuda/routes.py`) runs its check.  What is found
is stored for this GPU, driver, CuPy and engine: Note [Verdicts] there.  A route whose numbers differ is disabled, in
this process and in later ones: its fallback serves instead.
"""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from engine import autograd, cuda, fft, linalg, nn, optim
from engine.backends.cuda import compile as compiling
from engine.backends.cuda import routes
from engine.backends.cuda.routes import identity as identity
from engine.cuda._device import library
from engine.ops import functions as torch

__all__ = ["CHECKS", "Row", "identity", "main", "run", "table"]


@dataclass(frozen=True)
class Row:
    """The verdict on one route: "ok", "differs", "failed" (with why) or "off" (a route of it is wrong, its fallback
    right)."""

    name: str
    verdict: str
    error: float
    milliseconds: float
    why: str = ""


CHECKS: dict[str, tuple[float, Callable[[str], list[Any]], tuple[str, ...]]] = {}


def check(tolerance: float, *routes: str) -> Any:
    """Register a check: results on a device as a list of Tensors; `routes` that it judges."""

    def register(function: Callable[[str], list[Any]]) -> Any:
        CHECKS[function.__name__.replace("_", " ")] = (tolerance, function, routes)
        return function

    return register


def _real(where: str, *shape: int, dtype: Any = None, seed: int = 0) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    return torch.tensor(values).to(dtype or torch.float32).to(where)


def _with_gradients(function: Callable[..., Any], *leaves: Any) -> list[Any]:
    """The result and the gradients of a weighted sum of it."""
    leaves = tuple(leaf.detach().requires_grad_() for leaf in leaves)
    result = function(*leaves)
    weight = torch.linspace(-1, 1, result.numel()).to(result.device, result.dtype).reshape(result.shape)
    return [result, *autograd.grad((result * weight).float().sum(), leaves)]


@check(1e-5, "pointwise")
def pointwise(where: str) -> list[Any]:
    """Arithmetic and activations, broadcast, with gradients."""
    F = nn.functional
    x, y = _real(where, 33, 65), _real(where, 65, seed=1)
    return _with_gradients(lambda a, b: F.gelu(a * b + 1).tanh() + F.softplus(a).exp() * 1e-2 + F.relu(b), x, y)


@check(1e-4, "reduction")
def reductions(where: str) -> list[Any]:
    """Sums, means, variances and extremes over rows, columns and all."""
    x = _real(where, 65, 130)
    return [x.sum(), x.mean(0), x.var(1), x.amax(1), x.argmin(0), x.std(), (x > 0).all(), x.cumsum(1), x.logsumexp(1)]


@check(1e-5, "softmax")
def softmax(where: str) -> list[Any]:
    """Softmax and its logarithm, with gradients."""
    F = nn.functional
    return _with_gradients(lambda a: F.softmax(a, 1) + F.log_softmax(a, 0), _real(where, 40, 70))


@check(1e-4, "norm")
def normalisation(where: str) -> list[Any]:
    """Layer, group and batch norm, with gradients."""
    F = nn.functional
    x = _real(where, 4, 6, 8, 8)
    layer = _with_gradients(lambda a: F.layer_norm(a, (8, 8)), x)
    return layer + _with_gradients(lambda a: F.group_norm(a, 2) + F.batch_norm(a, None, None, training=True), x)


@check(1e-4, "cublasLt")
def products(where: str) -> list[Any]:
    """Matrix products in float32: plain, batched, transposed, linear layers with gradients."""
    a, b = _real(where, 5, 33, 40), _real(where, 5, 40, 17, seed=1)
    linear = _with_gradients(nn.functional.linear, a[0], _real(where, 9, 40, seed=2), _real(where, 9, seed=3))
    return [a @ b, a[0] @ b[0], b[0].t() @ a[0].t(), a @ b[0], torch.einsum("bij,bjk->ik", a, b), *linear]


@check(2e-2, "cublasLt")
def products_in_16_bits(where: str) -> list[Any]:
    """Matrix products in float16 and bfloat16, plain and batched."""
    found = []
    for dtype in (torch.float16, torch.bfloat16):
        a, b = _real(where, 3, 16, 24, dtype=dtype), _real(where, 3, 24, 8, dtype=dtype, seed=1)
        found += [a @ b, a[0] @ b[0], nn.functional.linear(a, b[0].t().contiguous())]
    return found


@check(5e-3, "cudnn convolution")
def convolution(where: str) -> list[Any]:
    """Convolution, grouped and transposed, with gradients."""
    F = nn.functional
    x, w = _real(where, 2, 4, 9, 9), _real(where, 6, 2, 3, 3, seed=1)
    first = _with_gradients(lambda a, b: F.conv2d(a, b, stride=2, padding=1, groups=2), x, w)
    return first + _with_gradients(lambda a, b: F.conv_transpose2d(a, b, stride=2), x, _real(where, 4, 3, 3, 3, seed=2))


@check(1e-5, "cudnn pooling")
def pooling(where: str) -> list[Any]:
    """Largest and mean of windows, with gradients."""
    F = nn.functional
    x = _real(where, 2, 3, 8, 9)
    return _with_gradients(lambda a: F.max_pool2d(a, 2) + F.avg_pool2d(a, 2), x) + [F.adaptive_avg_pool2d(x, 3)]


@check(1e-4)
def attention(where: str) -> list[Any]:
    """Scaled dot product attention, causal, with gradients."""
    q, k, v = (_real(where, 2, 3, 7, 8, seed=i) for i in range(3))
    sdpa = nn.functional.scaled_dot_product_attention
    return _with_gradients(lambda a, b, c: sdpa(a, b, c, is_causal=True), q, k, v)


@check(2e-2, "cudnn attention")
def attention_in_16_bits(where: str) -> list[Any]:
    """The same in float16 and bfloat16, and with a mask."""
    sdpa, found = nn.functional.scaled_dot_product_attention, []
    mask = (_real("cpu", 16, 16, seed=7) > -0.5).to(where)
    for dtype in (torch.float16, torch.bfloat16):
        q, k, v = (_real(where, 2, 2, 16, 16, dtype=dtype, seed=i) * 0.5 for i in range(3))
        found += _with_gradients(lambda a, b, c: sdpa(a, b, c, is_causal=True), q, k, v)
        found += [sdpa(q, k, v, attn_mask=mask)]
    return found


@check(5e-3, "cudnn rnn")
def recurrent(where: str) -> list[Any]:
    """LSTM and GRU, with gradients of the input."""
    found = []
    for kind in (nn.LSTM, nn.GRU):
        torch.manual_seed(1)
        module = kind(5, 4, bidirectional=True).to(where)
        found += _with_gradients(lambda a, m=module: m(a)[0], _real(where, 6, 3, 5))
    return found


@check(1e-5, "indexing")
def indexing(where: str) -> list[Any]:
    """Embedding, gather, scatter, masks, sort, with repeated indices."""
    x = _real(where, 11, 6)
    index = torch.tensor(np.random.default_rng(4).integers(0, 11, 20)).to(where)
    rows = _with_gradients(lambda a: nn.functional.embedding(index, a), x)
    added = x.index_add(0, index, _real(where, 20, 6, seed=5))
    return [*rows, added, x[index], x[x > 0], x.sort(0)[0], x.topk(3, 1)[0], x.gather(0, index[:6][None]), x.unique()]


@check(1e-5, "loss")
def losses(where: str) -> list[Any]:
    """Cross entropy and others, with gradients."""
    F = nn.functional
    x = _real(where, 8, 5)
    target = torch.tensor(np.random.default_rng(6).integers(0, 5, 8)).to(where)
    return _with_gradients(lambda a: F.cross_entropy(a, target).reshape(1) + F.mse_loss(a, a.detach() + 1), x)


@check(1e-5, "random")
def random_numbers(where: str) -> list[Any]:
    """The same numbers for the same seed."""
    torch.manual_seed(17)
    return [torch.rand(100, device=where), torch.randn(33, device=where), torch.randint(0, 99, (20,), device=where)]


@check(1e-4)
def spectral_and_linear_algebra(where: str) -> list[Any]:
    """FFT, and solutions, determinants and factors of matrices."""
    x = _real(where, 6, 6) + 6 * torch.eye(6).to(where)
    spectrum = fft.rfft(_real(where, 4, 16))
    return [spectrum.real, spectrum.imag, linalg.solve(x, x[0]), linalg.det(x), linalg.svdvals(x)]


@check(1e-4, "optimizer")
def optimizers(where: str) -> list[Any]:
    """Three steps of Adam and SGD with momentum."""
    found = []
    for make in (
        lambda p: optim.Adam([p], 0.1),
        lambda p: optim.SGD([p], 0.1, momentum=0.9),
    ):
        p = _real(where, 10).requires_grad_()
        optimizer = make(p)
        for _ in range(3):
            optimizer.zero_grad()
            (p**2).sum().backward()
            optimizer.step()
        found.append(p)
    return found


@check(0.0)
def copies(where: str) -> list[Any]:
    """To the GPU and back: strided, pinned, not blocking."""
    x = _real("cpu", 7, 8, 9)
    if where == "cpu":
        return [x.transpose(0, 2), x, x[:, ::2]]
    pinned = x.pin_memory().to(where, non_blocking=True)
    back = pinned.to("cpu", non_blocking=True)
    cuda.synchronize()
    return [x.transpose(0, 2).to(where), back, x.to(where)[:, ::2]]


@check(1e-6)
def streams_and_events(where: str) -> list[Any]:
    """Work on a second stream, ordered by waits."""
    x = _real(where, 1000)
    if where == "cpu":
        return [x * 2 + 1]
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        y = x * 2
        done = side.record_event()
    done.wait()
    return [y + 1]


@check(1e-6)
def captured_graphs(where: str) -> list[Any]:
    """A graph of pointwise work and a reduction, replayed on other numbers."""
    x = _real(where, 64, 8)
    if where == "cpu":
        return [(x * 3).tanh().sum(1)]
    static = torch.zeros_like(x)
    (static * 3).tanh().sum(1)  # kernels are compiled before the capture
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        result = (static * 3).tanh().sum(1)
    static.copy_(x)
    graph.replay()
    return [result]


# --- running


def _host(tensor: Any) -> np.ndarray:
    array = tensor.detach().cpu()
    return (array.float() if array.dtype in (torch.bfloat16, torch.float16) else array).numpy()


def _difference(found: list[Any], wanted: list[Any]) -> float:
    """The largest difference of two lists of Tensors, relative to the size of the values where that is above 1."""
    worst = 0.0
    for a, b in zip(found, wanted, strict=True):
        x, y = np.asarray(_host(a), np.float64), np.asarray(_host(b), np.float64)
        if x.shape != y.shape or a.dtype is not b.dtype:
            return float("inf")
        if x.size:
            scale = max(1.0, float(np.abs(y).max()))
            difference = np.abs(x - y).max() / scale
            worst = max(worst, float("inf") if np.isnan(difference) else float(difference))
    return worst


def _row(name: str, found: dict[str, Any]) -> Row:
    """One check; what it and the routes' own checks say of its routes goes to `found`."""
    tolerance, function, named = CHECKS[name]
    judged = [one for one in named if one in routes.ROUTES and routes.ROUTES[one].ready()]
    for one in judged:
        if one not in found:
            found[one] = routes.measure(routes.ROUTES[one])
        routes.switch(one, found[one]["verdict"] == "ok")
    wanted = function("cpu")
    began = time.perf_counter()
    error, why = _measured(function, wanted)
    took = (time.perf_counter() - began) * 1000
    disabled = [one for one in judged if found[one]["verdict"] != "ok"]
    on = [one for one in judged if one not in disabled]
    if not error <= tolerance and on:
        for one in on:
            routes.switch(one, False)
        plain, _ = _measured(function, wanted)
        if plain <= tolerance:
            for one in on:
                verdict = "failed" if why else "differs"
                found[one] = {"verdict": verdict, "error": error, "ms": round(took, 2), "why": why}
            disabled, error, why = disabled + on, plain, why or f"differs by {error:.2g}"
        else:
            for one in on:
                routes.switch(one, True)
    if error <= tolerance:
        if not disabled:
            return Row(name, "ok", error, took)
        first = why or found[disabled[0]]["why"] or f"differs by {found[disabled[0]]['error']:.2g}"
        return Row(name, "off", error, took, f"own kernels of {', '.join(disabled)} are not used; {first}")
    return Row(name, "failed" if why else "differs", error, took, why)


def _measured(function: Callable[[str], list[Any]], wanted: list[Any]) -> tuple[float, str]:
    """(how far the results on the GPU are from `wanted`, why there are none)."""
    try:
        return _difference(function("cuda"), wanted), ""
    except Exception as failure:  # whatever a library raises is the finding
        return float("inf"), " ".join(f"{type(failure).__name__}: {failure}".split())[:200]


def run(names: list[str] | None = None) -> list[Row]:
    """Every check on the current GPU; the verdicts are stored.  RuntimeError in one sentence without a GPU."""
    library()
    torch.zeros(1, device="cuda")  # the backend is there
    importlib.import_module("engine.ops.cudnn")  # registers the routes
    if compiling.in_use():
        importlib.import_module("engine.ops.cuda")
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [_row(name, found) for name in names or CHECKS]
        routes.keep(found, **({"rows": [asdict(row) for row in rows]} if names is None else {}))
    return rows


def table(rows: list[Row]) -> str:
    """The rows as text."""
    width = max(len(row.name) for row in rows)
    return "\n".join(
        f"{row.name:<{width}}  {row.verdict:<7}  {row.error:9.2e}  {row.milliseconds:8.1f} ms  {row.why}".rstrip()
        for row in rows
    )


def main() -> int:
    """Print the table; 1 where a route differs or fails, 2 where there is no GPU."""
    try:
        rows = run()
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(", ".join(f"{key} {value}" for key, value in identity().items()))
    print(table(rows))
    print(f"{sum(row.verdict == 'ok' for row in rows)} of {len(rows)} routes agree with the CPU")
    return 0 if all(row.verdict in ("ok", "off") for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
