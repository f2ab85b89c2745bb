"""Inference plans: a module in eval mode without gradients, recorded once per input shape and replayed with less work.

README.md has the way from a call to a plan, what is assumed, what is checked at every call, and what a pass is.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from operator import is_
from typing import TYPE_CHECKING, Any

from engine.backends.onednn import library
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.core.slots import Slot, Slots
from engine.dispatch import autocast
from engine.fx.graph import Graph
from engine.nn.modules.module import Module
from engine.programs.guards import Guard, of_parameters, signature
from engine.programs.inference.checks import NARROW, TOLERANCE, check, copies
from engine.programs.inference.lowering import lower
from engine.programs.inference.plan import InferencePlan
from engine.programs.listening import recording, run_recorded
from engine.programs.module_guards import PLAIN
from engine.programs.recorder import Recorder
from engine.programs.values import Unsupported, tensors_in
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.dispatch.gate import Call

    # of modules, and of what their attributes hold
    Container = dict[Any, Any] | list[Any] | set[Any]
    # one of them, the names in it that hooks set, and its entries
    Contents = tuple[Container, set[str], dict[object, object]]

__all__ = ["OptimizedModule", "compile"]

_MOST_PLANS = 8  # plans of a module; the one used longest ago goes


class Registered(Slots):
    """The function of `engine/programs/training` that plans call, where that is loaded."""

    # trained(module, call): what runs a module with gradients; `call` runs it op by op
    trained: Slot[Callable[[Module, Call], Call] | None] = None


registered = Registered()


def compile(model: Module, *, verify: bool = True, dtype: dtypes.dtype | None = None) -> OptimizedModule:
    """`model` with a plan for each input shape that it meets in eval mode under `no_grad`; see README.md.

    With gradients it has plans of engine/programs/training, if that is loaded (`engine.compile` does).
    verify: compare each new plan with the module itself, which runs twice more for it.
    dtype: engine.bfloat16 or engine.int8 for weights of convolutions and linear layers, and what is between them, in
    that type (sums are float32); arguments and results stay as they are.  In int8 each output channel's weights are
    rounded by its largest one, and activations by the largest that the first call of a shape saw: let that be an
    ordinary input.  `plan_errors` says what it changes.  RuntimeError where the processor has no instructions for
    it, NotImplementedError for another type.
    """
    if dtype not in (None, dtypes.float32):
        _check_narrow(dtype)
    return OptimizedModule(model, verify, dtype)


_BFLOAT16 = frozenset(["AVX512_CORE_BF16", "AVX512_CORE_FP16", "AVX512_CORE_AMX", "AVX512_CORE_AMX_FP16"])
# what oneDNN calls the instructions of a processor that multiplies a type, and what the processor's maker calls them
_MULTIPLY = {
    "bfloat16": (_BFLOAT16, "AVX512_BF16"),
    "int8": (_BFLOAT16 | {"AVX512_CORE_VNNI", "AVX2_VNNI", "AVX2_VNNI_2"}, "AVX512_VNNI or AVX_VNNI"),
}


def _check_narrow(dtype: dtypes.dtype) -> None:
    name = str(dtype).rpartition(".")[2]
    if dtype not in (dtypes.bfloat16, dtypes.int8):
        raise NotImplementedError(
            f"plans compute in torch.float32, torch.bfloat16 or torch.int8, not {dtype}: leave dtype out, or give one "
            "of these"
        )
    if not library.state.enabled or library.load() is None:
        raise RuntimeError(f"plans in {name} are computed by oneDNN, which is not in use here: `hub env` says why")
    found, (able, needed) = library.instructions(), _MULTIPLY[name]
    if found not in able:
        raise RuntimeError(
            f"plans in {name} need {needed}, oneDNN's instructions on this processor are {found}: leave dtype out"
        )


class OptimizedModule(Module):
    """The result of `compile`: the module, and its plans.  Its state_dict has torch's prefix `_orig_mod.`."""

    def __init__(self, module: Module, verify: bool = True, dtype: dtypes.dtype | None = None) -> None:
        super().__init__()
        self._orig_mod = module
        self.training = module.training
        own = self.__dict__
        own["_verify"] = verify
        own["_narrow"] = str(dtype).rpartition(".")[2] if dtype in (dtypes.bfloat16, dtypes.int8) else ""
        own["_plans"] = OrderedDict()  # by signature: a InferencePlan, or the sentence that says why there is none
        own["_state"] = None
        own["_stale"] = None
        own["_busy"] = threading.Lock()
        own["_unstable"] = set()  # signatures of which one call has set attributes
        self.beneath(module)

    def beneath(self, call: Callable[..., object]) -> OptimizedModule:
        """Let `call` run the module op by op, where a call of it would come here (`Module.compile`)."""
        module, own = self._orig_mod, self.__dict__
        own["_call"], own["_trained"] = call, registered.trained(module, call) if registered.trained else call
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(self._orig_mod, name)

    def __getstate__(self) -> dict[str, object]:
        state = self.__dict__.copy()
        for name in ("_plans", "_state", "_stale", "_busy", "_unstable", "_trained", "_call"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self.__dict__.update(_plans=OrderedDict(), _state=None, _stale=None, _busy=threading.Lock(), _unstable=set())
        self.beneath(self._orig_mod)

    def __deepcopy__(self, memo: dict[int, object]) -> OptimizedModule:
        import copy

        dtype = getattr(dtypes, self._narrow) if self._narrow else None
        return OptimizedModule(copy.deepcopy(self._orig_mod, memo), self._verify, dtype)

    @property
    def training_plans(self) -> list[object]:
        """The plans with gradients: programs, None for what was met once, or the reason why there is none."""
        return list(getattr(self._trained, "plans", ()))

    @property
    def plans(self) -> list[InferencePlan | str]:
        """A plan for each signature met, or the reason why there is none."""
        return list(self._plans.values())

    @property
    def graph(self) -> Graph:
        """What the latest plan computes, as `engine.fx` has it; without a plan the module's own `graph`."""
        for plan in reversed(self._plans.values()):
            if isinstance(plan, InferencePlan):
                return plan.graph
        raise AttributeError("graph")

    @property
    def plan_errors(self) -> list[tuple[float, float] | None]:
        """The error of each plan against the module on its first input: (absolute, as a part of the largest value)."""
        return [getattr(plan, "error", None) for plan in self._plans.values()]

    def forward(self, *args: object, **kwargs: object) -> Any:
        """The module's results."""
        call = self._call
        if recording():  # it is a part of what has a plan of its own
            return call(*args, **kwargs)
        if mode.enabled:
            return self._trained(*args, **kwargs)
        state = self._state or _guard(self._orig_mod)
        same = state.unchanged()
        if autocast.state.on or not (same or state.plain()):
            return call(*args, **kwargs)
        key = signature((args, kwargs))
        if key is None or not self._busy.acquire(blocking=False):  # a plan's memory serves one call at a time
            return call(*args, **kwargs)
        try:
            return self._planned(key, args, kwargs, same and self._state is state)
        finally:
            self._busy.release()

    def _planned(self, key: Hashable, args: tuple[object, ...], kwargs: dict[str, object], same: bool) -> Any:
        module, call, own = self._orig_mod, self._call, self.__dict__
        if not same and (self._state is None or not self._state.held()):
            now = _guard(module)
            if not now.plain() or (self._plans and not now.same(self._stale)):
                own["_stale"] = now  # weights that change from call to call are not worth a plan
                return call(*args, **kwargs)
            self._plans.clear()
            self._unstable.clear()
            own["_state"], own["_stale"] = now, None
        plan = self._plans.get(key)
        if plan is None:
            before = _attributes(self._state.modules)
            plan, result = _make(call, args, kwargs, self._verify, self._narrow, before)
            self._state.attributes.free.update((id(own), name) for own, name in _changes(before))
            if isinstance(plan, InferencePlan):
                self._state.reads(plan.found)
            if plan is None:  # it set attributes: the first call may have made what later ones find
                if key not in self._unstable and len(self._unstable) < _MOST_PLANS:
                    self._unstable.add(key)
                    return result
                plan = f"its forward sets {_changed(before)}"
            self._unstable.discard(key)
            self._plans[key] = plan
            if len(self._plans) > _MOST_PLANS:
                self._plans.popitem(last=False)
            if isinstance(plan, str):
                warnings.warn(f"{type(module).__name__} runs op by op: {plan}", stacklevel=4)
            return result
        self._plans.move_to_end(key)
        if isinstance(plan, str):
            return call(*args, **kwargs)
        return plan(tensors_in((args, kwargs)))


def _guard(module: Module) -> Guard:
    return Guard(module.modules(), elements=True)


def _containers(value: Any) -> Iterator[object]:
    """Yield the parts of a result that are neither a tensor nor a plain number, string or container."""
    if isinstance(value, Tensor) or value is None or type(value) in (int, float, bool, str):
        return
    if type(value) in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        for v in value:
            yield from _containers(v)
    elif type(value) in (dict, OrderedDict):
        for v in value.values():
            yield from _containers(v)
    else:
        yield value


def _attributes(modules: list[dict[str, Any]]) -> list[Contents]:
    """Attributes of modules but those that hooks set, and what they are now; of lists, dicts and sets the entries."""
    kept: list[tuple[Container, set[str]]] = []
    for own in modules:
        kept.append((own, {h.name for h in own["_forward_pre_hooks"].values() if of_parameters({0: h})}))
        kept += [(v, set()) for v in own.values() if type(v) in (list, dict, OrderedDict, set)]
    return [(own, but, _entries(own) if own else {}) for own, but in kept]


def _entries(own: Container) -> dict[object, object]:
    return own.copy() if type(own) is dict else {**own} if isinstance(own, dict) else dict(enumerate(own))


def _changes(before: list[Contents]) -> Iterator[tuple[Container, object]]:
    """(owner, name) of attributes, and entries of one, that are other things than they were."""
    for own, but, then in before:
        if not own and not then:  # as most are: tables of hooks
            continue
        now = _entries(own)
        if [*now] == [*then] and all(map(is_, now.values(), then.values())):
            continue
        for name in [*now, *(k for k in then if k not in now)]:
            a, b = now.get(name, before), then.get(name, before)
            if a is not b and name not in but and not (type(a) is type(b) and type(a) in PLAIN and a == b):
                yield own, name


def _changed(before: list[Contents]) -> str:
    """The name of the first of `_changes`; empty if there is none."""
    return next((str(name) for _, name in _changes(before)), "")


def _make(
    call: Call,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    verify: bool,
    narrow: str,
    before: list[Contents],
) -> tuple[InferencePlan | str | None, object]:
    """Run a module op by op: (a plan of what it did, or why there is none; its result).

    before: `_attributes` of it.  None instead of a plan if they are others now: one more call would change them again.
    """
    kept = copies((args, kwargs))
    given = tensors_in((args, kwargs))
    recorder, result = run_recorded(lambda: call(*args, **kwargs), given, Recorder(given, hold=narrow == "int8"))
    try:
        if recorder.failure is not None:
            raise recorder.failure
        if _changed(before):
            return None, result
        for other in _containers(result):
            raise Unsupported(f"it returns a {type(other).__name__}")
        plan = lower(recorder, narrow)
        plan.found = recorder.found
        if verify:
            check(call, plan, kept, result, NARROW if narrow else TOLERANCE)
        return plan, result
    except Unsupported as why:
        return str(why), result
