"""Automatic differentiation: `backward`, `grad`, `Function`, grad modes, `gradcheck`, the profiler.

The graph itself (graph, engine, versions, inplace, anomaly_mode) knows no operation; what stands above the ops is
imported at first use.
"""

import importlib as _importlib
from typing import TYPE_CHECKING

from engine.core.packages import functions_first as _functions_first

_functions_first(__name__)

_WHERE = {
    "backward": "api",
    "grad": "api",
    "Variable": "api",
    "variable": "api",
    "Function": "function",
    "FunctionCtx": "function",
    "function": "function",
    "gradcheck": "gradcheck",
    "gradgradcheck": "gradcheck",
    "profiler": "profiler",
    "profiler_util": "profiler_util",
    "functional": "functional",
    "graph": "graph",
    "detect_anomaly": "anomaly_mode",
    "set_detect_anomaly": "anomaly_mode",
    "anomaly_mode": "anomaly_mode",
    "forward_ad": "forward_ad",
    "no_grad": "grad_mode",
    "enable_grad": "grad_mode",
    "set_grad_enabled": "grad_mode",
    "inference_mode": "grad_mode",
    "grad_mode": "grad_mode",
    "profiler_legacy": "profiler_legacy",
    "_profiler_enabled": "profiler_legacy",
    "_disable_profiler": "profiler_legacy",
    "_is_checkpoint_valid": "engine",
    "kineto_available": "profiler",
}
_MODULES = frozenset(
    [
        "function",
        "profiler",
        "profiler_legacy",
        "profiler_util",
        "functional",
        "graph",
        "variable",
        "grad_mode",
        "anomaly_mode",
        "forward_ad",
    ]
)

if TYPE_CHECKING:
    from engine.autograd import anomaly_mode as anomaly_mode
    from engine.autograd import function as function
    from engine.autograd import functional as functional
    from engine.autograd import grad_mode as grad_mode
    from engine.autograd import graph as graph
    from engine.autograd import profiler as profiler
    from engine.autograd import profiler_util as profiler_util
    from engine.autograd import variable as variable
    from engine.autograd.anomaly_mode import detect_anomaly as detect_anomaly
    from engine.autograd.anomaly_mode import set_detect_anomaly as set_detect_anomaly
    from engine.autograd.api import Variable as Variable
    from engine.autograd.api import backward as backward
    from engine.autograd.api import grad as grad
    from engine.autograd.function import Function as Function
    from engine.autograd.function import FunctionCtx as FunctionCtx
    from engine.autograd.gradcheck import gradcheck as gradcheck
    from engine.autograd.gradcheck import gradgradcheck as gradgradcheck
    from engine.autograd.profiler import kineto_available as kineto_available
    from engine.core.grad_mode import enable_grad as enable_grad
    from engine.core.grad_mode import inference_mode as inference_mode
    from engine.core.grad_mode import no_grad as no_grad
    from engine.core.grad_mode import set_grad_enabled as set_grad_enabled

else:

    def __getattr__(name: str) -> object:
        where = _WHERE.get(name)
        if where is None:
            raise AttributeError(f"module 'engine.autograd' has no attribute '{name}'")
        root = "engine.core" if where == "grad_mode" and name not in _MODULES else "engine.autograd"
        module = _importlib.import_module(f"{root}.{where}")
        value = module if name in _MODULES else getattr(module, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
