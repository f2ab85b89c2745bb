"""FlopCounterMode: the multiplications and additions of matrix products, convolutions and attention, by module.

https://docs.pytorch.org/docs/2.13/utils.html  Recurrent layers, whose products are fused with their steps, do not
count.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from engine import ops
from engine.autograd import engine as backward_engine
from engine.dispatch import Op, binder
from engine.nn import Module
from engine.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

__all__ = ["FlopCounterMode", "register_flop_formula"]


flop_registry: dict[Any, Any] = {}
_here = threading.local()


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Any], Any]:
    """NotImplementedError: only the operators of the engine are counted."""
    raise NotImplementedError("register_flop_formula is not supported: only the engine's own operators are counted")


class FlopCounterMode:
    """Context that counts what runs inside, in this thread.

    depth: how deep `get_table` goes.  display: print the table at the end.  mods: torch's old argument, not needed.

        with FlopCounterMode(display=False) as counter:
            model(x)
        counter.get_total_flops()
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True, custom_mapping: Any = None) -> None:
        if custom_mapping:
            register_flop_formula(custom_mapping)
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = {}
        self._names: dict[int, str] = {}
        self._open: list[str] = []

    def get_total_flops(self) -> int:
        """The sum over all operators."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """{"Global" or a module as `Net.layer.conv`: {operator: flops}}."""
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Each module's flops and share, down to `depth`."""
        depth = self.depth if depth is None else depth
        whole = self.get_total_flops()
        lines = []
        for name, counts in self.flop_counts.items():
            level = 0 if name == "Global" else name.count(".") + 1
            if level > depth:
                continue
            flops = sum(counts.values())
            lines.append((f"{' ' * level}{name}", flops))
            lines += [(f"{' ' * (level + 1)}- {op}", count) for op, count in counts.items()]
        width = max([len("Module"), *(len(name) for name, _ in lines)])
        rows = [f"{'Module':<{width}}  {'FLOP':>16}  {'% Total':>8}"]
        rows += [f"{name:<{width}}  {flops:>16,}  {100 * flops / max(whole, 1):>7.2f}%" for name, flops in lines]
        return "\n".join(rows)

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._names.clear()
        self._open.clear()
        self._hooks = [
            register_module_forward_pre_hook(self._into),
            register_module_forward_hook(self._out_of, always_call=True),
        ]
        if not _modes:
            binder.wrappers.append(_counting)
            binder.instrument()
            Op.choose = _choose  # type: ignore[method-assign]
            backward_engine.observers.append(_by_ops)
        _modes.append(self)
        _of_thread().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        for hook in self._hooks:
            hook.remove()
        _modes.remove(self)
        _of_thread().remove(self)
        if not _modes:
            binder.wrappers.remove(_counting)
            binder.instrument()
            Op.choose = _plain_choose  # type: ignore[method-assign]
            backward_engine.observers.remove(_by_ops)
        if self.display and exc[0] is None:
            print(self.get_table())

    def _into(self, module: Module, args: Any) -> None:
        if id(module) not in self._names:
            root = type(module).__name__
            for name, child in module.named_modules():
                self._names.setdefault(id(child), f"{root}.{name}" if name else root)
        self._open.append(self._names[id(module)])

    def _out_of(self, module: Module, args: Any, output: Any) -> None:
        if self._open:
            self._open.pop()

    def _count(self, operator: str, flops: int) -> None:
        packet = getattr(ops.aten, operator)
        for name in dict.fromkeys(("Global", *self._open)):
            self.flop_counts[name][packet] += flops


def _by_ops(node: Any, run: Callable[[], Any]) -> Any:
    """Run a backward node; with an observer its formulas are ops, which are counted, and not plain arithmetic."""
    return run()


_modes: list[FlopCounterMode] = []
_plain_choose = Op.choose


def _of_thread() -> list[FlopCounterMode]:
    if not hasattr(_here, "modes"):
        _here.modes = []
    return _here.modes


def _counting(record: Op, base: Any) -> Any:
    """The kernel of an op that is counted, with the count behind it."""
    if record.flops is None:
        return base
    operator, formula = record.flops

    def kernel(xp: Any, *args: Any, **kwargs: Any) -> Any:
        result = base(xp, *args, **kwargs)
        for mode in _of_thread():
            kwargs.pop("into", None)
            name = operator if isinstance(operator, str) else operator(*args, **kwargs)
            mode._count(name, formula(result, *args, **kwargs))
        return result

    return kernel


def _choose(self: Op, kind: Any) -> Any:
    """`Op.choose` while a mode is on: kernels of other devices are counted too."""
    return _counting(self, _plain_choose(self, kind))
