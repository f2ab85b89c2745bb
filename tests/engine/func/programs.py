"""Transformed functions whose values PyTorch 2.13 gave: `numbers.json`.

Written by `PYTHONPATH=. PYTHON-WITH-TORCH-2.13 -m tests.engine.func.programs`; nothing of the engine is imported.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_name("numbers.json")


def programs(lib: Any) -> dict[str, Callable[[], Any]]:
    """Programs by name; `lib` is torch or the engine."""
    func = importlib.import_module(lib.__name__ + ".func")
    vmap, grad, vjp, jvp = func.vmap, func.grad, func.vjp, func.jvp
    jacrev, jacfwd, hessian, linearize = func.jacrev, func.jacfwd, func.hessian, func.linearize
    F = lib.nn.functional

    def arr(*shape: int) -> Any:
        count = 1
        for n in shape:
            count *= n
        return ((lib.arange(count, dtype=lib.float64) * 7 % 11 - 5) / 6 + 0.05).reshape(shape)

    x, X, W, M = arr(3), arr(4, 3), arr(2, 3), arr(3, 3)
    labels = lib.tensor([0, 1, 2, 0])

    def f(v: Any) -> Any:
        return (v.sin() * v).sum()

    def g(v: Any) -> Any:
        return lib.stack([v[0] * v[1], v.exp().sum(), v[2] ** 2])

    def h(w: Any, v: Any) -> Any:
        return lib.tanh(w @ v)

    def outer() -> Any:
        leaf = x.clone().requires_grad_()
        return lib.autograd.grad(grad(f)(leaf).sum(), leaf)

    def closure() -> Any:
        leaf = x.clone().requires_grad_()
        return lib.autograd.grad(grad(lambda v: (v**2 * leaf).sum())(x).sum(), leaf)

    def ones(*shape: int) -> Any:
        return lib.ones(shape, dtype=lib.float64)

    def pulled(function: Any, *primals: Any) -> Any:
        output, back = vjp(function, *primals)
        return output, back(ones(*output.shape))

    def line(function: Any, v: Any) -> Any:
        output, tangents_of = linearize(function, v)
        return output, tangents_of(v), tangents_of(v * 2)

    def squared(v: Any) -> Any:
        return grad(f)(v).pow(2).sum()

    def conv(w: Any, i: Any) -> Any:
        return F.conv2d(i.unsqueeze(0), w).pow(2).sum()

    return {
        "grad": lambda: grad(f)(x),
        "grad by two": lambda: grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x * 2),
        "grad with more": lambda: grad(lambda a: ((a**2).sum(), a * 3), has_aux=True)(x),
        "grad of grad": lambda: grad(squared)(x),
        "vmap of grad": lambda: vmap(grad(f))(X),
        "grad of vmap": lambda: grad(lambda V: vmap(f)(V).pow(2).sum())(X),
        "per sample": lambda: vmap(grad(lambda w, v: h(w, v).sum()), in_dims=(None, 0))(W, X),
        "two vmaps of grad": lambda: vmap(
            vmap(grad(lambda a, b: (a.sin() * b).sum()), in_dims=(None, 0)), in_dims=(0, None)
        )(X, X),
        "vmap of grad of grad": lambda: vmap(grad(squared))(X),
        "vjp": lambda: pulled(g, x),
        "vjp by two": lambda: pulled(h, W, x),
        "jvp": lambda: jvp(g, (x,), (x * 2,)),
        "jvp by two": lambda: jvp(h, (W, x), (W * 2, x)),
        "vmap of jvp": lambda: vmap(lambda v, t: jvp(g, (v,), (t,)))(X, X * 3),
        "vmap over tangents": lambda: vmap(lambda t: jvp(g, (x,), (t,))[1])(X),
        "jacrev": lambda: jacrev(g)(x),
        "jacfwd": lambda: jacfwd(g)(x),
        "jacrev by two": lambda: jacrev(h, argnums=(0, 1))(W, x),
        "jacfwd by two": lambda: jacfwd(h, argnums=(0, 1))(W, x),
        "jacrev of a dict": lambda: jacrev(lambda d: d["a"] * d["b"])({"a": x, "b": x * 2}),
        "jacrev with more": lambda: jacrev(lambda v: (g(v), v * 2), has_aux=True)(x),
        "jacfwd with more": lambda: jacfwd(lambda v: (g(v), v * 2), has_aux=True)(x),
        "jacrev of a constant": lambda: jacrev(lambda v: ones(2))(x),
        "hessian": lambda: hessian(f)(x),
        "jacrev of jacrev": lambda: jacrev(jacrev(g))(x),
        "jacfwd of jacfwd": lambda: jacfwd(jacfwd(g))(x),
        "jacrev of jacfwd": lambda: jacrev(jacfwd(g))(x),
        "jacfwd of jacrev": lambda: jacfwd(jacrev(g))(x),
        "vmap of hessian": lambda: vmap(hessian(f))(X),
        "vmap of jacrev": lambda: vmap(jacrev(g))(X),
        "vmap of jacfwd": lambda: vmap(jacfwd(g))(X),
        "vmap of a vjp function": lambda: vmap(vjp(g, x)[1])(M),
        "vmap of a vjp function of two": lambda: vmap(vjp(h, W, x)[1])(arr(5, 2)),
        "linearize": lambda: line(g, x),
        "vmap of linearize": lambda: vmap(linearize(g, x)[1])(M),
        "a graph around grad": outer,
        "a graph of a closure": closure,
        "chunks": lambda: vmap(f, chunk_size=3)(X),
        "another place": lambda: vmap(g, out_dims=1)(X),
        "where": lambda: vmap(lambda v: lib.where(v > 0, v, v * 2).max())(X),
        "an index a slice": lambda: vmap(lambda v, i: v[i])(X, lib.tensor([0, 1, 2, 0])),
        "indices": lambda: vmap(lambda v: (v[1:], v[None], v[..., 0]))(X),
        "solve": lambda: vmap(grad(lambda a, b: lib.linalg.solve(a, b).sum()), in_dims=(0, None))(
            lib.stack([M + lib.eye(3), M + 2 * lib.eye(3)]), x
        ),
        "in place": lambda: vmap(lambda v: v.clone().add_(1).mul_(v))(X),
        "convolution": lambda: vmap(grad(conv), in_dims=(None, 0))(arr(2, 1, 2, 2), arr(3, 1, 4, 4)),
        "layer norm": lambda: vmap(grad(lambda w, v: F.layer_norm(v, (3,), w).pow(3).sum()), in_dims=(None, 0))(x, X),
        "embedding": lambda: vmap(grad(lambda w, i: F.embedding(i, w).pow(2).sum()), in_dims=(None, 0))(
            W, lib.tensor([[0, 1], [1, 1]])
        ),
        "mse": lambda: vmap(grad(lambda a, b: F.mse_loss(a, b)))(X, X * 2),
        "cross entropy": lambda: vmap(grad(lambda a, b: F.cross_entropy(a, b)))(X, labels),
        "pooling": lambda: vmap(grad(lambda i: F.max_pool2d(i, 2).pow(2).sum()))(arr(3, 1, 4, 4)),
        "attention": lambda: vmap(grad(lambda q: F.scaled_dot_product_attention(q, q, q).pow(2).sum()))(
            arr(2, 2, 3, 4)
        ),
    }


def flat(value: Any, kind: type) -> list[Any]:
    """The tensors of a result as (shape, requires_grad, values)."""
    if isinstance(value, kind):
        return [[list(value.shape), value.requires_grad, value.detach().reshape(-1).tolist()]]
    values = [value[k] for k in sorted(value)] if isinstance(value, dict) else value
    return [t for v in values for t in flat(v, kind)]


def compare(result: Any, kind: type, expected: list[Any]) -> None:
    """A result as `flat` against torch's numbers."""
    found = flat(result, kind)
    assert [f[:2] for f in found] == [e[:2] for e in expected]
    for (_, _, f), (_, _, e) in zip(found, expected):
        np.testing.assert_allclose(f, e, 1e-9, 1e-12)


def record(programs: Callable[[Any], dict[str, Callable[[], Any]]], file: Path) -> None:
    """Write the numbers of real torch, which runs this file as a script."""
    import torch

    found = {name: flat(run(), torch.Tensor) for name, run in programs(torch).items()}
    lines = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in found.items())
    file.write_text("{\n" + lines + "\n}\n", "utf-8")


if __name__ == "__main__":
    record(programs, FILE)
