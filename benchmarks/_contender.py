"""One contender at one workload, in a process of its own: sets up, warms up, then times steps on request.

    python _contender.py NAME WORKLOAD THREADS [MODEL.onnx]

A line `SECONDS` on stdin is answered by a JSON line {"times": [s, ...], "cpu": s}; at the end of the input the
last line says the peak memory and, of the engine op by op, the operations of a step.  Runs in any interpreter: it
imports nothing but the contender's own library.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WARM_STEPS, WARM_SECONDS = 50, 1.5  # at most, but three steps: generated code of either side settles meanwhile
PLAN_STEPS, PLAN_SECONDS = 16, 3.0  # at least both: a training plan takes turns with steps op by op until it is chosen
PICTURES = {"resnet18": "ResNet18", "mobilenet_v2": "MobileNetV2"}
NETWORKS = {**PICTURES, "minilm": "MiniLM"}


def torch_steps(name: str, workload: str, threads: int) -> Any:
    """A function that runs one step, with torch or with the engine under torch's name."""
    if name.startswith("engine"):
        sys.path.insert(0, str(HERE.parent))
        import engine.torch_alias

        engine.torch_alias.install()
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    return layers_step(torch, name, workload) or small_step(torch, name, workload)


def layers_step(torch: Any, name: str, workload: str) -> Any:
    """Steps of networks; None for the workloads without one."""
    from _nets import nets

    task, _, rest = workload.partition(" ")
    kind, _, batch = rest.partition(" ")
    made = nets(torch)
    F = torch.nn.functional
    if kind == "forward":
        model = getattr(made, NETWORKS[task])().eval()
        for module in model.modules():  # values stay of one size, so that what a wrong layer does shows in the results
            if isinstance(module, torch.nn.Conv2d):
                torch.nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        x = torch.randn(int(batch), 3, 224, 224) if task in PICTURES else torch.randint(30522, (int(batch), 128))
        if name.endswith("channels_last"):
            model, x = (
                model.to(memory_format=torch.channels_last),
                x.to(memory_format=torch.channels_last),
            )
        if name.startswith("engine plan"):  # "engine plan int8": in that type
            model = torch.compile(model, dtype=getattr(torch, name.split()[2])) if name[11:] else torch.compile(model)
            with torch.no_grad():
                model(x)
            why = [plan for plan in model.plans if isinstance(plan, str)]
            if why:
                raise SystemExit(f"it runs op by op: {why[0]}")
        if name.startswith("torch compile"):
            model = torch.compile(model)

        def step() -> None:
            with torch.no_grad():
                model(x)

        return step
    if kind != "train":
        return None
    target = torch.randint(10, (int(batch),))
    if task in PICTURES:
        model, x = getattr(made, PICTURES[task])(), torch.randn(int(batch), 3, 224, 224)
        if name.endswith("channels_last"):
            model, x = (
                model.to(memory_format=torch.channels_last),
                x.to(memory_format=torch.channels_last),
            )
    elif task == "cnn":
        model, x = made.SmallCNN(), torch.randn(int(batch), 1, 28, 28)
    elif task == "mlp":
        model, x = made.MLP(), torch.randn(int(batch), 784)
    elif task == "transformer":
        model, x = made.Transformer(), torch.randint(1000, (int(batch), 128))
        target = torch.randint(1000, (int(batch) * 128,))
    else:
        model, x = made.LSTM(), torch.randn(int(batch), 64, 64)
    if task == "transformer":
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9 if task != "mlp" else 0)

    def train() -> None:
        optimizer.zero_grad()
        out = model(x)
        F.cross_entropy(out.reshape(-1, out.shape[-1]), target).backward()
        optimizer.step()

    if name == "engine plan":
        return torch.compile(train)
    if name.startswith("torch compile"):  # the step as its users write it: the network is compiled
        model = torch.compile(model)
    return train


def small_step(torch: Any, name: str, workload: str) -> Any:
    """Steps without a network: the tiny graph, and element-wise ops on large arrays."""
    if workload.startswith("tiny"):
        x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
        b, c = torch.randn(8, requires_grad=True), torch.randn(8, 8, requires_grad=True)

        def one() -> None:
            (torch.tanh(x @ w + b) * c).sum().backward()

        if name == "engine plan":
            one = torch.compile(one)

        def fresh() -> None:
            for _ in range(100):
                one()

        def chain() -> None:
            y = x
            for _ in range(1000):
                y = torch.tanh(y @ w + b) * c
            y.sum().backward()

        return fresh if workload == "tiny fresh" else chain
    x, y = torch.randn(10_000_000), torch.randn(10_000_000)
    op = workload.split()[1]
    run = {
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "exp": lambda: torch.exp(x),
        "tanh": lambda: torch.tanh(x),
        "relu": lambda: torch.relu(x),
        "sigmoid": lambda: torch.sigmoid(x),
        "sqrt": lambda: torch.sqrt(x * x),
        "where": lambda: torch.where(x > y, x, y),
    }[op]

    def elementwise() -> None:
        with torch.no_grad():
            run()

    return elementwise


def corpus_step(name: str, workload: str, threads: int) -> Any:
    """The forward pass of one of the corpus's models."""
    folder = Path(os.environ["CORPUS"])
    sys.path[:0] = [str(HERE.parent), str(folder), str(folder / "cases")]
    if name.startswith("engine"):
        import engine.torch_alias

        engine.torch_alias.install()
    import importlib.util

    case = workload.split()[1]
    spec = importlib.util.spec_from_file_location("case_" + case, folder / "cases" / f"{case}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = module.build()

    def modules(found: Any) -> list[Any]:
        if isinstance(found, torch.nn.Module):
            return [found]
        if isinstance(found, dict):
            found = list(found.values())
        return [y for x in found for y in modules(x)] if isinstance(found, list | tuple) else []

    for one in modules(model):
        one.eval()
        if name == "engine plan":
            one.compile()
    inputs = module.inputs()

    def step() -> None:
        with torch.no_grad():
            module.run(model, inputs)

    return step


def onnx_step(name: str, workload: str, threads: int, model: str) -> Any:
    """A forward pass of the exported network."""
    import numpy as np

    task, _, batch = workload.split()
    draw = np.random.default_rng(0)
    if task in PICTURES:
        x = draw.standard_normal((int(batch), 3, 224, 224), np.float32)
    else:
        x = draw.integers(30522, size=(int(batch), 128))
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        key = session.get_inputs()[0].name
        return lambda: session.run(None, {key: x})
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    return lambda: request.infer({0: x})


def peer_step(name: str, workload: str) -> Any:
    """The MLP's training step and the tiny graph in the autograd peers' own terms; None without one."""
    import numpy as np

    rng = np.random.default_rng(0)

    def f32(*shape: int) -> Any:
        return (rng.standard_normal(shape) * 0.05).astype(np.float32)

    sizes = ((784, 512), (512, 512), (512, 10))
    start = [a for n, m in sizes for a in (f32(n, m), np.zeros(m, np.float32))]
    x, target = f32(128, 784), rng.integers(0, 10, 128)
    small = [f32(8, 8), f32(8, 8), f32(8), f32(8, 8)]
    if name == "autograd":
        import autograd.numpy as anp
        from autograd import grad

        def loss(weights: Any) -> Any:
            h = x
            for i in range(0, 6, 2):
                h = anp.dot(h, weights[i]) + weights[i + 1]
                h = anp.maximum(h, 0) if i < 4 else h
            h = h - anp.max(h, axis=1, keepdims=True)
            return anp.mean(anp.log(anp.sum(anp.exp(h), axis=1)) - h[anp.arange(128), target])

        def tiny(weights: Any, steps: int) -> Any:
            y = small[0]
            for _ in range(steps):
                y = anp.tanh(anp.dot(y, weights[0]) + weights[1]) * weights[2]
            return anp.sum(y)

        of_loss, of_tiny = grad(loss), grad(tiny)

        def mlp() -> None:
            for p, g in zip(start, of_loss(start)):
                p -= 0.01 * g

        return _pick(workload, mlp, lambda: of_tiny(small[1:], 1), lambda: of_tiny(small[1:], 1000))
    if name == "mygrad":
        import mygrad as mg
        from mygrad.nnet.losses import softmax_crossentropy

        parameters = [mg.tensor(p) for p in start]
        w, b, c = (mg.tensor(p) for p in small[1:])

        def mlp() -> None:
            h = mg.tensor(x, constant=True)
            for i in range(0, 6, 2):
                h = mg.matmul(h, parameters[i]) + parameters[i + 1]
                h = mg.maximum(h, 0) if i < 4 else h
            softmax_crossentropy(h, target).backward()
            for p in parameters:
                p.data -= 0.01 * p.grad
                p.null_grad()

        def tiny(steps: int) -> None:
            y = mg.tensor(small[0], constant=True)
            for _ in range(steps):
                y = mg.tanh(mg.matmul(y, w) + b) * c
            y.sum().backward()

        return _pick(workload, mlp, lambda: tiny(1), lambda: tiny(1000))
    if name == "chainer":
        import chainer
        import chainer.functions as F

        variables = [chainer.Variable(p) for p in start]
        w, b, c = (chainer.Variable(p) for p in small[1:])

        def mlp() -> None:
            h = x
            for i in range(0, 6, 2):
                h = F.matmul(h, variables[i]) + F.broadcast_to(variables[i + 1], (128, sizes[i // 2][1]))
                h = F.relu(h) if i < 4 else h
            for p in variables:
                p.cleargrad()
            F.softmax_cross_entropy(h, target.astype(np.int32)).backward()
            for p in variables:
                p.array -= 0.01 * p.grad

        def tiny(steps: int) -> None:
            y = chainer.Variable(small[0])
            for _ in range(steps):
                y = F.tanh(F.matmul(y, w) + F.broadcast_to(b, (8, 8))) * c
            for p in (w, b, c):
                p.cleargrad()
            F.sum(y).backward()

        return _pick(workload, mlp, lambda: tiny(1), lambda: tiny(1000))
    from tinygrad import Tensor

    Tensor.training = True

    def leaf(array: Any) -> Any:
        tensor = Tensor(array)
        return tensor.requires_grad_() if hasattr(tensor, "requires_grad_") else tensor

    weights = [leaf(p) for p in start]
    data, labels = Tensor(x), Tensor(target.astype(np.int32))
    w, b, c = (leaf(p) for p in small[1:])

    def train() -> None:
        h = data
        for i in range(0, 6, 2):
            h = h.matmul(weights[i]) + weights[i + 1]
            h = h.relu() if i < 4 else h
        for p in weights:
            p.grad = None
        h.sparse_categorical_crossentropy(labels).backward()
        for p in weights:
            p.assign(p.detach() - 0.01 * p.grad)
        Tensor.realize(*weights)

    def tiny(steps: int) -> None:
        y = Tensor(small[0])
        for _ in range(steps):
            y = (y.matmul(w) + b).tanh() * c
        for p in (w, b, c):
            p.grad = None
        y.sum().backward()
        Tensor.realize(w.grad, b.grad, c.grad)

    return _pick(workload, train, lambda: tiny(1), None)


def _pick(workload: str, mlp: Any, fresh: Any, chain: Any) -> Any:
    if workload == "mlp train 128":
        return mlp
    if workload == "tiny fresh":
        return lambda: [fresh() for _ in range(100)] and None
    return chain if workload == "tiny chain" else None


def export(workload: str, target: str) -> None:
    """Write the network as ONNX, with torch."""
    import torch

    torch.manual_seed(0)
    from _nets import nets

    task, _, batch = workload.split()
    model = getattr(nets(torch), NETWORKS[task])().eval()
    x = torch.randn(int(batch), 3, 224, 224) if task in PICTURES else torch.randint(30522, (int(batch), 128))
    torch.onnx.export(model, (x,), target, dynamo=False, opset_version=17)


def operations(step: Any) -> int:
    """The multiplications and additions of products, convolutions and attention in a step of the engine's."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        step()
    return int(counter.get_total_flops())


def main() -> None:
    """Answer requests until the input ends."""
    name, workload, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
    sys.path.insert(0, str(HERE))
    if name == "export":
        return export(workload, sys.argv[4])
    if name in ("onnxruntime", "openvino"):
        step = onnx_step(name, workload, threads, sys.argv[4])
    elif name.startswith(("engine", "torch")):
        take = corpus_step if workload.startswith("corpus") else torch_steps
        step = take(name, workload, threads)
    else:
        step = peer_step(name, workload)
    if step is None:
        raise SystemExit(f"{name} has no {workload}")
    settles = name == "engine plan" and " train " in workload
    least, most, seconds = (PLAN_STEPS, 1 << 30, PLAN_SECONDS) if settles else (3, WARM_STEPS, WARM_SECONDS)
    began, done = time.perf_counter(), 0
    while done < least or (done < most and time.perf_counter() - began < seconds):
        step()
        done += 1
    print("ready", flush=True)
    for line in sys.stdin:
        seconds, times = float(line), []
        used = time.process_time()
        start = now = time.perf_counter()
        while now - start < seconds or len(times) < 3:
            step()
            now, before = time.perf_counter(), now
            times.append(now - before)
        print(
            json.dumps({"times": times, "cpu": time.process_time() - used, "wall": now - start}),
            flush=True,
        )
    end = {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
    if name == "engine":
        end["operations"] = operations(step)
    print(json.dumps(end), flush=True)


if __name__ == "__main__":
    main()
