"""Names from outside the repository, as far as they and the standard library tell: nothing is imported."""

from __future__ import annotations

import builtins
import sys
from importlib.machinery import EXTENSION_SUFFIXES, PathFinder
from pathlib import Path

# Sub-modules of torch that `from torch import x` may name: torch itself need not be installed.
# fmt: off
_TORCH_MODULES = frozenset(
    (
        "amp", "ao", "autograd", "autograd.functional", "backends", "cuda", "distributed",
        "distributions", "fft", "fx", "hub", "jit", "linalg", "multiprocessing", "nn",
        "nn.functional", "nn.init", "nn.modules", "nn.parallel", "nn.utils", "onnx", "optim",
        "optim.lr_scheduler", "overrides", "profiler", "quantization", "random",
        "serialization", "sparse", "special", "testing", "types", "utils", "utils.checkpoint",
        "utils.data", "utils.model_zoo", "version",
    )
)
_TORCH_DATA = frozenset(
    "bfloat16 bool cdouble cfloat channels_last channels_last_3d complex128 complex64 contiguous_format double e "
    "float float16 float32 float64 half inf int int16 int32 int64 int8 long nan pi preserve_format short strided "
    "uint8".split()
)
# fmt: on

# What these return is callable, whatever they are given ...
_FACTORIES = {
    "collections.namedtuple",
    "functools.cmp_to_key",
    "functools.partialmethod",
    "operator.attrgetter",
    "operator.itemgetter",
    "operator.methodcaller",
    "types.new_class",
    "typing.NamedTuple",
    "typing.NewType",
    "typing.TypedDict",
}
# ... or is what they are given, more or less ...
_PASSING = {
    "builtins.classmethod",
    "builtins.staticmethod",
    "contextlib.asynccontextmanager",
    "contextlib.contextmanager",
    "copy.copy",
    "copy.deepcopy",
    "functools.cache",
    "functools.lru_cache",
    "functools.singledispatch",
    "functools.update_wrapper",
    "functools.wraps",
    "typing.cast",
    "typing.final",
    "warnings.deprecated",
}
# ... or nobody knows without running them.
_OPEN = {"builtins.eval", "builtins.getattr", "builtins.max", "builtins.min", "builtins.next", "functools.reduce"}
_TORCH_OBJECTS = {"torch.hub.load", "torch.jit.load", "torch.load", "torch.package.PackageImporter"}


def callable_here(dotted: str) -> bool:
    """Return whether a name from outside the repository is callable: all are but modules and constants."""
    top, _, rest = dotted.partition(".")
    if not top:
        return True  # a relative import that leaves the repository
    last = dotted.rpartition(".")[2]
    if not rest or top == "__future__" or last == "TYPE_CHECKING":
        return False
    if last.startswith("__") and last.endswith("__"):
        return False
    if top == "builtins":
        return callable(getattr(builtins, rest, None))
    if top == "torch" and (rest in _TORCH_MODULES or rest in _TORCH_DATA):
        return False
    if top in sys.stdlib_module_names and (known := _in_stdlib(dotted)) is not None:
        return known
    if last.isupper() and len(last) > 2 and "_" in last:
        return False  # a constant, by convention
    spec = PathFinder.find_spec(top)
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    below = Path(*rest.split("."))
    suffixes = (".py", *EXTENSION_SUFFIXES)
    return not any(
        (Path(location) / below / "__init__.py").is_file()
        or any(Path(location, f"{below}{suffix}").is_file() for suffix in suffixes)
        for location in locations
    )


def _in_stdlib(dotted: str) -> bool | None:
    """Return whether a name of a standard module is callable, if that module is loaded already; else None."""
    module, _, name = dotted.rpartition(".")
    found = sys.modules.get(module)
    if found is None or sys.modules.get(dotted) is not None:
        return None if found is None else False
    missing = object()
    value = vars(found).get(name, missing)
    return None if value is missing else callable(value)


def returns(dotted: str) -> str:
    """Return what calling a foreign name gives: `callable`, `data`, `argument` (what it is given) or `open`."""
    top, _, rest = dotted.partition(".")
    last = rest.rpartition(".")[2]
    if last == "made":
        return "data"
    if dotted in _FACTORIES:
        return "callable"
    if dotted in _PASSING:
        return "argument"
    if dotted in _OPEN or dotted in _TORCH_OBJECTS:
        return "open"
    if top == "torch":
        if rest.startswith(("nn.", "jit.")) and "functional" not in rest and "Parameter" not in rest:
            return "callable" if last[:1].isupper() else "argument"  # a module; torch.jit.script
        return "open" if rest.startswith("hub.") else "data" if _makes_tensor(rest) else "argument"
    if top == "builtins" or top in sys.stdlib_module_names:
        return "data"
    return "argument"


def _makes_tensor(rest: str) -> bool:
    """`torch.tensor`, `torch.device`, `torch.Generator`: at the top of torch little makes functions."""
    return "." not in rest and rest not in ("compile", "vmap", "no_grad", "inference_mode", "enable_grad")
