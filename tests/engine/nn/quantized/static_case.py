"""One network, quantized after training, and single calls: what `test_static.py` compares with PyTorch's numbers.

Run under PyTorch 2.13 this file prints `static_numbers.json`.
"""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np

CONFIGS = ("fbgemm", "default", "per_channel")  # results of 7 bits: of 8, torch's sums overflow on some processors


def wave(*size: int, k: float = 1.0) -> np.ndarray:
    """Return numbers between -1 and 1 (*size), float32."""
    return np.sin(np.arange(int(np.prod(size))) * k).astype(np.float32).reshape(size)


def network(torch: Any) -> Any:
    """Return a network with every module that static quantization replaces, in eval mode."""
    nn, F, Q = torch.nn, torch.nn.functional, torch.ao.quantization

    class Net(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = Q.QuantStub(), Q.DeQuantStub()
            self.conv, self.bn, self.relu = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
            self.depthwise, self.bn2 = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=8), nn.BatchNorm2d(8)
            self.pool, self.mean, self.relu6 = nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(2), nn.ReLU6()
            self.sum, self.cat, self.scaled = (nn.quantized.FloatFunctional() for _ in range(3))
            self.fc, self.fc_relu, self.fc2, self.fc3 = nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 8), nn.Linear(8, 4)
            self.hardswish, self.leaky, self.sigmoid = nn.Hardswish(), nn.LeakyReLU(0.1), nn.Sigmoid()

        def forward(self, x: Any) -> Any:
            x = self.relu(self.bn(self.conv(self.quant(x))))
            x = self.pool(self.sum.add(x, self.bn2(self.depthwise(x))))
            larger = F.interpolate(x, scale_factor=2, mode="nearest")
            x = self.scaled.mul_scalar(self.cat.cat([x, self.relu6(x)], 1), 0.5)
            x = self.fc_relu(self.fc(torch.flatten(self.mean(x), 1)))
            x = self.leaky(self.fc2(self.hardswish(x)))
            return self.dequant(self.sigmoid(self.fc3(x))), self.dequant(larger)

    made = Net().eval()
    for i, value in enumerate(made.state_dict().values()):
        if value.dtype == torch.float32:
            value.copy_(torch.from_numpy(wave(*value.shape, k=0.7 + i * 0.13)) * 0.4)
    for norm in (made.bn, made.bn2):
        norm.running_var.abs_().add_(0.3)
    return Q.fuse_modules(made, [["conv", "bn", "relu"], ["fc", "fc_relu"]])


def converted(torch: Any, config: str) -> tuple[Any, Any, Any]:
    """Return the network as it is, as it observes, and quantized."""
    Q = torch.ao.quantization
    own = {"default": Q.default_qconfig, "per_channel": Q.default_per_channel_qconfig}
    net = network(torch)
    net.qconfig = own[config] if config in own else Q.get_default_qconfig(config)
    prepared = Q.prepare(net)
    for i in range(4):
        prepared(torch.from_numpy(wave(4, 3, 12, 12, k=0.31 + i * 0.11) * (1 + i)))
    return net, prepared, Q.convert(prepared)


def calls(torch: Any) -> dict[str, Any]:
    """Return what functions give for a quantized tensor (2, 3, 4, 4): integers, scale and zero point."""
    F = torch.nn.functional
    q = torch.quantize_per_tensor(torch.from_numpy(wave(2, 3, 4, 4, k=0.6) * 4), 0.05, 90, torch.quint8)
    other = torch.quantize_per_tensor(torch.from_numpy(wave(2, 3, 4, 4, k=0.4) * 9), 0.1, 100, torch.quint8)
    found = {
        "relu": F.relu(q),
        "relu6": F.relu6(q),
        "hardtanh": F.hardtanh(q),
        "leaky_relu": F.leaky_relu(q, 0.2),
        "sigmoid": q.sigmoid(),
        "hardsigmoid": F.hardsigmoid(q),
        "tanh": q.tanh(),
        "clamp": q.clamp(-0.5, 1),
        "mean": q.mean((2, 3)),
        "max": q.max(),
        "topk": q.topk(2)[0],
        "sort": q.sort(1)[0],
        "cat": torch.cat([q, other], 1),
        "stack": torch.stack([q, other]),
        "chunk": q.chunk(3, 1)[1],
        "flip": q.flip(3),
        "flatten": q.flatten(1),
        "nearest": F.interpolate(q, scale_factor=2),
        "bilinear": F.interpolate(q, scale_factor=2, mode="bilinear"),
        "avg_pool2d": F.avg_pool2d(q, 3, 1, 1),
        "adaptive_avg_pool2d": F.adaptive_avg_pool2d(q, 3),
        "max_pool2d": F.max_pool2d(q, 3, 2, 1),
        "unsqueeze": q.unsqueeze(1),
        "transpose": q.transpose(1, 2),
        "masked_fill": q.masked_fill(q > 0, 0.0),
        "index": q[1, :, 2:],
    }
    made = {
        name: [each.int_repr().tolist(), float(np.float32(each.q_scale())), each.q_zero_point()]
        for name, each in found.items()
    }
    functional = torch.ao.nn.quantized.QFunctional()
    functional.scale, functional.zero_point = 0.09, 70
    pairs = {
        "add": functional.add(q, other),
        "add_relu": functional.add_relu(q, other),
        "mul": functional.mul(q, other),
        "q_cat": functional.cat([q, other], 1),
        "add_scalar": functional.add_scalar(q, 1.3),
        "add_scalar_far": functional.add_scalar(q, 30.0),
        "mul_scalar": functional.mul_scalar(q, 2.5),
        "mul_scalar_negative": functional.mul_scalar(q, -0.5),
    }
    for name, each in pairs.items():
        made[name] = [each.int_repr().tolist(), float(np.float32(each.q_scale())), each.q_zero_point()]
    return made


def observed(torch: Any) -> dict[str, Any]:
    """Return scale and zero point of each observer after three calls."""
    Q = torch.ao.quantization
    observers = {
        "histogram": Q.HistogramObserver(),
        "histogram_7_bits": Q.HistogramObserver(reduce_range=True),
        "histogram_int8": Q.HistogramObserver(dtype=torch.qint8, qscheme=torch.per_tensor_symmetric),
        "moving": Q.MovingAverageMinMaxObserver(averaging_constant=0.1),
        "moving_channels": Q.MovingAveragePerChannelMinMaxObserver(0.1, 1),
        "unused": Q.HistogramObserver(),
    }
    made = {}
    for name, observer in observers.items():
        if name != "unused":
            for i in range(3):
                observer(torch.from_numpy(wave(40, 3, 50, k=0.37 + 0.1 * i) ** 3 * (3 - i) + 0.2 * i))
        scale, zero = observer.calculate_qparams()
        made[name] = [scale.tolist(), zero.tolist()]
    constant = Q.HistogramObserver()
    constant(torch.full((5,), 2.0))
    constant(torch.full((5,), 3.0))
    made["constant"] = [each.tolist() for each in constant.calculate_qparams()]
    return made


def results(torch: Any) -> dict[str, Any]:
    """Return all that is compared, as JSON takes it."""
    made: dict[str, Any] = {"calls": calls(torch), "observed": observed(torch)}
    for config in CONFIGS:
        _, prepared, quantized = converted(torch, config)
        x = torch.from_numpy(wave(2, 3, 12, 12, k=0.53) * 2)
        parameters = {
            name: [float(module.scale), int(module.zero_point)]
            for name, module in quantized.named_modules()
            if hasattr(module, "scale")
        }
        first, second = quantized(x)
        made[config] = {
            "keys": [*quantized.state_dict()],
            "parameters": parameters,
            "first": first.tolist(),
            "second": second.flatten()[::7].tolist(),
            "prepared": str(prepared),
            "text": str(quantized),
        }
    return made


if __name__ == "__main__":
    import torch

    warnings.simplefilter("ignore")
    print(json.dumps(results(torch)))
