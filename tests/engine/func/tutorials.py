"""Whole programs in the manner of PyTorch's tutorials of `torch.func` and forward-mode derivatives: `tutorials.json`.

Written by `PYTHONPATH=. PYTHON-WITH-TORCH-2.13 -m tests.engine.func.tutorials`; nothing of the engine is imported.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.engine.func.programs import record

FILE = Path(__file__).with_name("tutorials.json")


def functions(lib: Any) -> tuple[Any, Any, Any]:
    """Functions with a rule for vmap of their own, with a generated one, and with a jvp."""
    Function = lib.autograd.Function

    class Cube(Function):
        @staticmethod
        def forward(x: Any) -> Any:
            return x**3, 3 * x**2

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(inputs[0], output[1])

        @staticmethod
        def backward(ctx: Any, grad: Any, grad_slope: Any) -> Any:
            x, slope = ctx.saved_tensors
            return grad * slope + grad_slope * 6 * x

        @staticmethod
        def vmap(info: Any, in_dims: Any, x: Any) -> Any:
            assert info.randomness == "error" and info.batch_size == x.shape[in_dims[0]]
            return Cube.apply(x), (in_dims[0], in_dims[0])

    class Scaled(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, scale: Any) -> Any:
            return x**3 * scale

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, scale = ctx.saved_tensors
            return grad * 3 * x**2 * scale, grad * x**3

        @staticmethod
        def jvp(ctx: Any, tangent: Any, scale_tangent: Any) -> Any:
            x, scale = ctx.saved_tensors
            return tangent * 3 * x**2 * scale + scale_tangent * x**3

    class Exp(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.result = x.exp()
            return ctx.result

        @staticmethod
        def jvp(ctx: Any, tangent: Any) -> Any:
            found = tangent * ctx.result
            del ctx.result
            return found

    return Cube, Scaled, Exp


def programs(lib: Any) -> dict[str, Callable[[], Any]]:
    """Programs by name; `lib` is torch or the engine."""
    func = importlib.import_module(lib.__name__ + ".func")
    forward_ad = importlib.import_module(lib.__name__ + ".autograd.forward_ad")
    vmap, grad, vjp, jvp, functional_call = func.vmap, func.grad, func.vjp, func.jvp, func.functional_call
    jacrev, jacfwd, hessian = func.jacrev, func.jacfwd, func.hessian
    nn, F = lib.nn, lib.nn.functional
    Cube, Scaled, Exp = functions(lib)

    def arr(*shape: int, start: int = 0) -> Any:
        count = 1
        for n in shape:
            count *= n
        return (((lib.arange(count, dtype=lib.float64) + start) * 7 % 11 - 5) / 6 + 0.05).reshape(shape)

    def filled(model: Any, start: int = 0) -> Any:
        model = model.double()
        with lib.no_grad():
            for i, p in enumerate(model.parameters()):
                p.copy_(arr(*p.shape, start=start + i) / 2)
        return model

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.fc = nn.Conv2d(1, 2, 3), nn.Linear(8, 3)

        def forward(self, x: Any) -> Any:
            return F.log_softmax(self.fc(F.max_pool2d(F.relu(self.conv(x)), 2).flatten(1)), 1)

    def parts(model: Any) -> Any:
        return {k: v.detach() for k, v in model.named_parameters()}

    def per_sample() -> Any:
        model, x, y = filled(Net()), arr(3, 1, 6, 6), lib.tensor([0, 2, 1])

        def loss(params: Any, one: Any, label: Any) -> Any:
            return F.nll_loss(functional_call(model, params, (one.unsqueeze(0),)), label.unsqueeze(0))

        each = vmap(grad(loss), in_dims=(None, 0, 0))
        return each(parts(model), x, y), vmap(grad(loss), (None, 0, 0), chunk_size=2)(parts(model), x, y)

    def ensemble() -> Any:
        models = [filled(nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)), i) for i in range(3)]
        params, buffers = func.stack_module_state(models)
        base = copy.deepcopy(models[0]).to("meta")
        x = arr(3, 5, 4)

        def call(params: Any, buffers: Any, x: Any) -> Any:
            return functional_call(base, (params, buffers), (x,))

        return vmap(call)(params, buffers, x), vmap(call, in_dims=(0, 0, None))(params, buffers, x[0])

    def kernel_by_jacobians(result: str) -> Any:
        model, x1, x2 = filled(Net()), arr(2, 1, 6, 6), arr(3, 1, 6, 6, start=3)

        def call(params: Any, x: Any) -> Any:
            return functional_call(model, params, (x.unsqueeze(0),)).squeeze(0)

        first, second = (
            [j.flatten(2) for j in vmap(jacrev(call), (None, 0))(parts(model), x).values()] for x in (x1, x2)
        )
        return sum(lib.einsum(result, a, b) for a, b in zip(first, second))

    def kernel_by_products() -> Any:
        model, x1, x2 = filled(Net()), arr(2, 1, 6, 6), arr(3, 1, 6, 6, start=3)

        def call(params: Any, x: Any) -> Any:
            return functional_call(model, params, (x.unsqueeze(0),)).squeeze(0)

        def entry(a: Any, b: Any) -> Any:
            output, back = vjp(lambda p: call(p, a), parts(model))

            def row(v: Any) -> Any:
                return jvp(lambda p: call(p, b), (parts(model),), back(v))[1]

            return vmap(row)(lib.eye(output.numel(), dtype=output.dtype))

        return vmap(vmap(entry, (None, 0)), (0, None))(x1, x2)

    def duals_in_modules() -> Any:
        model, x = filled(nn.Linear(3, 2)), arr(4, 3)
        with forward_ad.dual_level():
            given = {n: forward_ad.make_dual(p, arr(*p.shape, start=5)) for n, p in model.named_parameters()}
            one = forward_ad.unpack_dual(functional_call(model, given, x)).tangent.detach()
            for name, dual in given.items():
                delattr(model, name)
                setattr(model, name, dual)
            return one, forward_ad.unpack_dual(model(x)).tangent.detach()

    def duals_through_functions() -> Any:
        with forward_ad.dual_level():
            x = forward_ad.make_dual(arr(3), arr(3, start=4))
            results = (
                *forward_ad.unpack_dual(Exp.apply(x)),
                *forward_ad.unpack_dual(Scaled.apply(x.sin(), arr(3)) * 2),
            )
            return [r.detach() for r in results]

    def batch_norms() -> Any:
        model = filled(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)))
        func.replace_all_batch_norm_modules_(model)

        def loss(params: Any, x: Any) -> Any:
            return functional_call(model, params, (x,)).square().sum()

        several = {n: lib.stack([p, p * 2, p + 1]) for n, p in parts(model).items()}
        return vmap(grad(loss), (None, 0))(parts(model), arr(2, 5, 3)), vmap(grad(loss), (0, None))(several, arr(5, 3))

    def batched() -> Any:
        w, x = arr(3, 4).requires_grad_(), arr(3).requires_grad_()
        y = (x @ w).sin()
        return lib.autograd.grad([y, x * 2], (x, w), [lib.eye(4, dtype=y.dtype), arr(4, 3)], is_grads_batched=True)

    def first(x: Any) -> Any:
        return Cube.apply(x)[0]

    x, w, b = arr(4), arr(3, 4), arr(3)

    def predict(w: Any, b: Any, x: Any) -> Any:
        return F.linear(x, w, b).tanh()

    return {
        "per-sample gradients": per_sample,
        "ensembling": ensemble,
        "jacobians": lambda: [j(predict, argnums=n)(w, b, x) for j in (jacrev, jacfwd) for n in (0, 1, 2)],
        "hessians": lambda: [
            hessian(predict, argnums=2)(w, b, x),
            jacfwd(jacfwd(predict, 2), 2)(w, b, x),
            jacrev(jacfwd(predict, 2), 2)(w, b, x),
            vmap(hessian(predict, 2), (None, None, 0))(w, b, arr(2, 4)),
        ],
        "hessian products": lambda: [
            jvp(grad(lambda v: v.sin().sum()), (x,), (arr(4, start=2),))[1],
            vjp(grad(lambda v: v.sin().sum()), x)[1](arr(4, start=2)),
        ],
        "tangent kernel": lambda: kernel_by_jacobians("Naf,Mbf->NMab"),
        "trace of the tangent kernel": lambda: kernel_by_jacobians("Naf,Maf->NM"),
        "tangent kernel by products": kernel_by_products,
        "duals in modules": duals_in_modules,
        "duals through functions": duals_through_functions,
        "batch norms": batch_norms,
        "batched gradients": batched,
        "a rule of one's own": lambda: [vmap(Cube.apply)(x), vmap(grad(first))(x), vmap(first, out_dims=1)(w)],
        "a generated rule": lambda: [
            vmap(Scaled.apply)(x, x),
            vmap(Scaled.apply, (0, None))(x, x[1]),
            vmap(vmap(Scaled.apply))(w, w),
            vmap(Scaled.apply, (None, 1))(x[0], w),
            vmap(grad(Scaled.apply, argnums=1), (0, None))(x, x[2]),
        ],
        "derivatives of a generated rule": lambda: [
            vmap(jacfwd(Scaled.apply))(x, x),
            vmap(hessian(Scaled.apply))(x, x),
            hessian(lambda v: Scaled.apply(v, x).sum())(x),
        ],
        "tangents by jvp": lambda: jvp(Scaled.apply, (x, x + 1), (x, x * 2)),
        "no dimension of its own": lambda: vmap(lambda v: (v, b), out_dims=(0, None))(x),
        "reductions of one number": lambda: vmap(lambda v: (v.sum(), v.mean(), v.amax(0), v.logsumexp(0)))(x),
    }


if __name__ == "__main__":
    record(programs, FILE)
