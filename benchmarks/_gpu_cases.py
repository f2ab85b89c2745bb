"""What `benchmarks.gpu` times: `python -m benchmarks._gpu_cases engine|torch [GROUP ...]`, a process for each side.

Prints one JSON object: for each row microseconds of a call, and of a replay of the same call as a CUDA graph ("graph"),
which is the GPU's own time where the host is slower; `bytes` and `flops` of the row for its floor.  A row that cannot
run says why on stderr and is left out.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks._nets import nets

ROUNDS = 5
LEAST = 0.02  # seconds of a round


def timed(torch: Any, call: Callable[[], Any]) -> float:
    """The median of the rounds, in microseconds a call; the host goes on while the GPU works."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    torch.cuda.synchronize()
    count = max(1, min(500, int(LEAST / max(time.perf_counter() - begin, 1e-6))))
    times = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) / count * 1e6)
    return sorted(times)[ROUNDS // 2]


def replayed(torch: Any, call: Callable[[], Any]) -> float:
    """The time of a replay of the call as a graph."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        kept = call()
    found = timed(torch, graph.replay)
    del kept
    return found


Row = tuple[str, Callable[[], Any], float, float]  # name, call, bytes, floating-point operations


def pointwise(torch: Any) -> Iterator[Row]:
    """Maps and reductions of 64 MB, and the launch of a small one."""
    F = torch.nn.functional
    big, size = torch.randn(4096, 4096, device="cuda"), 4096 * 4096 * 4
    small = torch.randn(128, 128, device="cuda")
    weight, bias = torch.ones(4096, device="cuda"), torch.zeros(4096, device="cuda")
    yield "add 64 MB", lambda: big + big, 2 * size, 0
    yield "exp 64 MB", big.exp, 2 * size, 0
    yield "gelu 64 MB", lambda: F.gelu(big), 2 * size, 0
    yield "sum 64 MB", big.sum, size, 0
    yield "sum of rows 64 MB", lambda: big.sum(1), size, 0
    yield "sum of columns 64 MB", lambda: big.sum(0), size, 0
    yield "softmax 64 MB", lambda: F.softmax(big, 1), 2 * size, 0
    yield "layer_norm 64 MB", lambda: F.layer_norm(big, (4096,), weight, bias), 2 * size, 0
    yield "copy of the transpose 64 MB", lambda: big.t().contiguous(), 2 * size, 0
    yield "add 128 x 128", lambda: small + small, 0, 0


def products(torch: Any) -> Iterator[Row]:
    """Matrix products."""
    F = torch.nn.functional
    a = torch.randn(4096, 4096, device="cuda")
    half = a.to(torch.bfloat16)
    x = torch.randn(8192, 1024, device="cuda").to(torch.bfloat16)
    w, b = (
        torch.randn(4096, 1024, device="cuda").to(torch.bfloat16),
        torch.randn(4096, device="cuda").to(torch.bfloat16),
    )
    work = 2 * 4096**3
    yield "mm float32 4096", lambda: a @ a, 0, work
    yield "mm bfloat16 4096", lambda: half @ half, 0, work
    yield "linear + gelu bfloat16", lambda: F.gelu(F.linear(x, w, b)), 0, 2 * 8192 * 1024 * 4096
    small = torch.randn(64, 128, 64, device="cuda")
    yield "bmm float32 64 x 128 x 64", lambda: small @ small.transpose(1, 2), 0, 2 * 64 * 128 * 128 * 64


def convolutions(torch: Any) -> Iterator[Row]:
    """Layers of ResNet-50, forward and both gradients."""
    F = torch.nn.functional
    for n, inside, outside, size, kernel in ((64, 64, 64, 56, 3), (64, 256, 64, 56, 1), (64, 512, 512, 7, 3)):
        last = torch.channels_last
        x = torch.randn(n, inside, size, size, device="cuda").to(torch.bfloat16).to(memory_format=last)
        w = torch.randn(outside, inside, kernel, kernel, device="cuda").to(torch.bfloat16).to(memory_format=last)
        x.requires_grad_(), w.requires_grad_()
        y = F.conv2d(x, w, padding=kernel // 2)
        grad = torch.ones_like(y)

        def step(x: Any = x, w: Any = w, kernel: int = kernel, grad: Any = grad) -> Any:
            y = F.conv2d(x, w, padding=kernel // 2)
            return torch.autograd.grad(y, (x, w), grad)

        work = 3 * 2 * n * inside * outside * size**2 * kernel**2
        yield f"conv {inside} to {outside}, {kernel} x {kernel} at {size}, step", step, 0, work
    x = torch.randn(64, 64, 56, 56, device="cuda")
    w = torch.randn(64, 64, 3, 3, device="cuda")
    yield "conv float32 64 x 64 x 56 x 56", lambda: F.conv2d(x, w, padding=1), 0, 2 * 64 * 64 * 64 * 56**2 * 9


def attention(torch: Any) -> Iterator[Row]:
    """Causal attention of 16 sequences of 1024, 12 heads of 64."""
    F = torch.nn.functional
    q, k, v = (torch.randn(16, 12, 1024, 64, device="cuda").to(torch.bfloat16).requires_grad_() for _ in range(3))
    grad = torch.ones_like(q)
    work = 2 * 2 * 16 * 12 * 1024**2 * 64 / 2

    def step() -> Any:
        return torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), grad)

    def forward() -> Any:
        with torch.no_grad():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    yield "attention causal, forward", forward, 0, work
    yield "attention causal, step", step, 0, 3.5 * work


def losses(torch: Any) -> Iterator[Row]:
    """Cross-entropy over a vocabulary, and layer norm, forward and backward."""
    F = torch.nn.functional
    x = torch.randn(8192, 50304, device="cuda").to(torch.bfloat16).requires_grad_()
    target = torch.randint(0, 50304, (8192,), device="cuda")
    yield (
        "cross entropy 8192 x 50304, step",
        lambda: torch.autograd.grad(F.cross_entropy(x, target), x),
        3 * 2 * x.numel(),
        0,
    )
    y = torch.randn(16384, 1024, device="cuda", requires_grad=True)
    w, b = torch.ones(1024, device="cuda", requires_grad=True), torch.zeros(1024, device="cuda", requires_grad=True)
    grad = torch.randn(16384, 1024, device="cuda")
    norm = lambda: torch.autograd.grad(F.layer_norm(y, (1024,), w, b), (y, w, b), grad)
    yield "layer norm 64 MB, step", norm, 5 * 4 * y.numel(), 0


def optimizers(torch: Any) -> Iterator[Row]:
    """A step over the 124 million parameters of GPT-2, in 148 tensors."""
    shapes = [(50257, 768), (1024, 768)] + 12 * [(2304, 768), (768, 768), (3072, 768), (768, 3072)]
    shapes += 12 * [(2304,), (768,), (3072,), (768,), (768,), (768,), (768,), (768,)] + [(768,), (768,)]
    for name in ("AdamW", "SGD"):
        params = [torch.zeros(s, device="cuda", requires_grad=True) for s in shapes]
        for p in params:
            p.grad = torch.ones_like(p)
        count = sum(p.numel() for p in params)
        made = (
            torch.optim.AdamW(params, fused=True, capturable=True)
            if name == "AdamW"
            else torch.optim.SGD(params, lr=0.1, momentum=0.9)
        )
        yield f"{name} 124 M", made.step, (7 if name == "AdamW" else 5) * 4 * count, 0


class _Networks:
    """Networks of a side, with torch's names."""

    def __init__(self, torch: Any) -> None:
        nn, F = torch.nn, torch.nn.functional

        class Block(nn.Module):
            def __init__(self, width: int, heads: int) -> None:
                super().__init__()
                self.heads = heads
                self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x: Any) -> Any:
                n, length, width = x.shape
                qkv = self.qkv(self.ln1(x)).view(n, length, 3, self.heads, width // self.heads)
                q, k, v = (qkv[:, :, i].transpose(1, 2) for i in range(3))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(y.transpose(1, 2).reshape(n, length, width))
                return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))

        class GPT(nn.Module):
            """GPT-2 small (Radford et al. 2019): 12 layers of width 768."""

            def __init__(self, layers: int = 12, width: int = 768, heads: int = 12) -> None:
                super().__init__()
                self.words, self.places = nn.Embedding(50304, width), nn.Embedding(1024, width)
                self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(layers)])
                self.norm = nn.LayerNorm(width)

            def forward(self, words: Any, target: Any) -> Any:
                places = torch.arange(words.shape[1], device=words.device)
                x = self.norm(self.blocks(self.words(words) + self.places(places)))
                logits = F.linear(x, self.words.weight)
                return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))

        self.GPT = GPT


def networks(torch: Any) -> Iterator[Row]:
    """Training steps."""
    nn = torch.nn
    mlp = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    x = torch.randn(128, 784, device="cuda")
    yield (
        "MLP 128 x 784, step",
        _step(torch, mlp, torch.optim.SGD(mlp.parameters(), lr=1e-3), lambda: mlp(x).pow(2).mean()),
        0,
        0,
    )

    gpt = _Networks(torch).GPT().cuda()
    words = torch.randint(0, 50304, (16, 1024), device="cuda")

    def loss() -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return gpt(words, words)

    yield "GPT-2 small 16 x 1024 bfloat16, step", _step(torch, gpt, _adamw(torch, gpt), loss), 0, 6 * 124e6 * 16384
    one = words[:1, :64].clone()

    def short() -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return gpt(one, one)

    yield "GPT-2 small 1 x 64 bfloat16, step", _step(torch, gpt, _adamw(torch, gpt), short), 0, 6 * 124e6 * 64

    resnet = nets(torch).ResNet18().cuda().to(memory_format=torch.channels_last)
    pictures = torch.randn(128, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    kinds = torch.randint(0, 1000, (128,), device="cuda")

    def seen() -> Any:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return nn.functional.cross_entropy(resnet(pictures), kinds)

    sgd = torch.optim.SGD(resnet.parameters(), lr=1e-3, momentum=0.9)
    yield "ResNet-18 128 x 224 bfloat16, step", _step(torch, resnet, sgd, seen), 0, 3 * 2 * 1.82e9 * 128

    lstm = nn.LSTM(512, 512, 2).cuda()
    steps = torch.randn(128, 32, 512, device="cuda")
    optimizer = torch.optim.SGD(lstm.parameters(), lr=1e-3)
    yield (
        "LSTM 2 x 512, 128 steps of 32, step",
        _step(torch, lstm, optimizer, lambda: lstm(steps)[0].pow(2).mean()),
        0,
        0,
    )


def _adamw(torch: Any, module: Any) -> Any:
    return torch.optim.AdamW(module.parameters(), lr=1e-5, fused=True, capturable=True)


def _step(torch: Any, module: Any, optimizer: Any, loss: Callable[[], Any]) -> Callable[[], Any]:
    def step() -> Any:
        optimizer.zero_grad(set_to_none=False)
        found = loss()
        found.backward()
        optimizer.step()
        return found

    return step


def copies(torch: Any) -> Iterator[Row]:
    """Between host and GPU, pinned memory, 64 MB."""
    host = torch.zeros(4096, 4096).pin_memory()
    there = torch.zeros(4096, 4096, device="cuda")
    yield "copy to the GPU 64 MB", lambda: there.copy_(host, non_blocking=True), host.numel() * 4, 0
    yield "copy from the GPU 64 MB", lambda: host.copy_(there, non_blocking=True), host.numel() * 4, 0


GROUPS = {f.__name__: f for f in (pointwise, products, convolutions, attention, losses, optimizers, networks, copies)}


def main() -> None:
    """Time one side."""
    side, *names = sys.argv[1:]
    torch = __import__(side)
    torch.cuda.set_stream(torch.cuda.Stream())  # the legacy stream cannot be captured, nor what depends on it
    found: dict[str, dict[str, float]] = {}
    for group in names or GROUPS:
        try:
            for name, call, size, work in GROUPS[group](torch):
                row: dict[str, float] = {"us": timed(torch, call), "bytes": size, "flops": work}
                if group != "copies":
                    with _told(side, name):
                        row["graph"] = replayed(torch, call)
                found[name] = row
        except Exception as error:
            print(f"{side}, {group}: {type(error).__name__}: {error}", file=sys.stderr)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    with _told(side, "peak memory"):
        found["peak memory"] = {"bytes": float(torch.cuda.max_memory_allocated())}
    print(json.dumps(found))


@contextlib.contextmanager
def _told(side: str, name: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        print(f"{side}, {name}: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
