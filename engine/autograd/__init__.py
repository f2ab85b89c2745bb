"""Automatic differentiation: `backward`, `grad`, `Function`, grad modes, `gradcheck`, the profiler.

The graph itself (graph, engine, versions, inplace, anomaly) knows no operation; what stands above the ops is
imported at first use.
"""

import importlib as _importlib

_WHERE = {
    "backward": "api", "grad": "api", "Variable": "api", "variable": "api", "Function": "function",
    "FunctionCtx": "function", "function": "function", "gradcheck": "gradcheck", "gradgradcheck": "gradcheck",
    "profiler": "profiler", "profiler_util": "profiler_util", "functional": "functional", "graph": "graph",
    "detect_anomaly": "anomaly", "set_detect_anomaly": "anomaly", "anomaly_mode": "anomaly",
    "forward_ad": "forward_ad",
    "no_grad": "grad_mode", "enable_grad": "grad_mode", "set_grad_enabled": "grad_mode",
    "inference_mode": "grad_mode", "grad_mode": "grad_mode",
}  # fmt: skip
_MODULES = frozenset(
    [
        "function",
        "profiler",
        "profiler_util",
        "functional",
        "graph",
        "variable",
        "grad_mode",
        "anomaly_mode",
        "forward_ad",
    ]
)


def __getattr__(name: str) -> object:
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module 'engine.autograd' has no attribute '{name}'")
    root = "engine" if where == "grad_mode" else "engine.autograd"
    module = _importlib.import_module(f"{root}.{where}")
    value = module if name in _MODULES else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
