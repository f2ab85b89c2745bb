"""Inference plans: a module in eval mode without gradients, traced once an input shape and replayed with less work.

Note [Plans]
`compile(module)` gives a module of the same behaviour.  With gradients it runs the plans of engine/fx/training; in
training mode without them, with hooks, or where a call cannot be replayed it *is* the module.  Otherwise the first call
with inputs of certain shapes and dtypes runs op by op, is recorded (tracing.py) and lowered (lowering.py): batch norm
is folded into the convolution or linear layer before it, what does not depend on the input is computed once, with
oneDNN weights are packed once, activations and residual sums are part of the convolution, and results between steps
live in memory that is laid out once.  Later calls run that plan.

Assumed, as in torch.jit.trace: for equal shapes, dtypes and other arguments the same ops run, and other Python values
that forward reads (globals, objects) stay as they are; nobody writes to a weight by way of an array of numpy's that
shares its memory.  A module that sets its attributes in two calls (a recurrent one that keeps its state) has no plan.
Checked at every call: modules, their classes and plain attributes (attributes.py), hooks, training flags, parameters
and buffers and their versions.  Checked once (`verify`): the plan's results on the first input, and on that input with
its elements shuffled, against the results op by op, to 1e-5; a plan that differs is dropped, with a warning that says
by how much.  Where op by op gives nan, a plan may give a number: oneDNN's maximum knows no nan.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import attrgetter, is_, itemgetter, methodcaller
from typing import Any

import numpy as np

from engine import dtypes
from engine.backends.onednn import library
from engine.dispatch import autocast
from engine.grad_mode import mode, no_grad
from engine.layouts import asks_channels_last
from engine.nn.modules import _hooks
from engine.nn.modules.module import Module
from engine.plan import watching
from engine.plan.attributes import PLAIN, Attributes
from engine.plan.lowering import InferencePlan, lower
from engine.plan.tracing import Trace, Unsupported, mapped, record, recording, tensors_in
from engine.tensor import Tensor, raw_array, wrap

__all__ = ["OptimizedModule", "compile", "signature"]

_values, _first, _training = methodcaller("values"), itemgetter(0), itemgetter("training")
_counter, _replaced, _aliases = attrgetter("_vc"), attrgetter("_replaced"), attrgetter("_aliases")
_own = attrgetter("__dict__")
_WATCHED = (3, 10, 100)  # times that a state held, after which a watch is made: few, where it changes and changes back
_KEPT = 8  # plans of a module; the one used longest ago goes
TOLERANCE = 1e-5
NARROW = 0.5  # of plans in bfloat16 and int8, whose error is reported: what is further off is broken


# Makes of a module, and what calls it op by op, what runs it with gradients: engine/fx/training, where that is loaded.
training: list[Callable[[Module, Callable[..., Any]], Callable[..., Any]]] = []


def compile(model: Module, *, verify: bool = True, dtype: Any = None) -> OptimizedModule:
    """`model` with a plan for each input shape that it meets in eval mode under `no_grad`: Note [Plans].

    With gradients it has plans of engine/fx/training, if that is loaded (`engine.compile` does).
    verify: compare each new plan with the module itself, which runs twice more for it.
    dtype: engine.bfloat16 or engine.int8 for weights of convolutions and linear layers, and what lies between them, in
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


def _check_narrow(dtype: Any) -> None:
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
    """What `compile` returns: the module, and its plans.  Its state_dict has torch's prefix `_orig_mod.`."""

    def __init__(self, module: Module, verify: bool = True, dtype: Any = None) -> None:
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
        own["_settling"] = set()  # signatures of which one call has set attributes
        self.beneath(module)

    def beneath(self, call: Callable[..., Any]) -> OptimizedModule:
        """Let `call` run the module op by op, where a call of it would come here (`Module.compile`)."""
        module, own = self._orig_mod, self.__dict__
        own["_call"], own["_trained"] = call, training[0](module, call) if training else call
        return self

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "_orig_mod":
                raise
            return getattr(self._orig_mod, name)

    def __getstate__(self) -> dict:
        state = self.__dict__.copy()
        for name in ("_plans", "_state", "_stale", "_busy", "_settling", "_trained", "_call"):
            del state[name]
        return state

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self.__dict__.update(_plans=OrderedDict(), _state=None, _stale=None, _busy=threading.Lock(), _settling=set())
        self.beneath(self._orig_mod)

    def __deepcopy__(self, memo: dict) -> OptimizedModule:
        import copy

        dtype = getattr(dtypes, self._narrow) if self._narrow else None
        return OptimizedModule(copy.deepcopy(self._orig_mod, memo), self._verify, dtype)

    @property
    def training_plans(self) -> list[Any]:
        """The plans with gradients: programs, None for what was met once, or the reason why there is none."""
        return list(getattr(self._trained, "plans", ()))

    @property
    def plans(self) -> list[InferencePlan | str]:
        """A plan for each signature met, or the reason why there is none."""
        return list(self._plans.values())

    @property
    def plan_errors(self) -> list[tuple[float, float] | None]:
        """How far each plan is from the module on its first input: (absolute, as a part of the largest value)."""
        return [getattr(plan, "error", None) for plan in self._plans.values()]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's results."""
        call = self._call
        if recording():  # it is a part of what has a plan of its own
            return call(*args, **kwargs)
        if mode.enabled:
            return self._trained(*args, **kwargs)
        state = self._state or _State(self._orig_mod)
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

    def _planned(self, key: Any, args: tuple, kwargs: dict, same: bool) -> Any:
        module, call, own = self._orig_mod, self._call, self.__dict__
        if not same and (self._state is None or not self._state.held()):
            now = _State(module)
            if not now.plain() or (self._plans and not now.same(self._stale)):
                own["_stale"] = now  # weights that change from call to call are not worth a plan
                return call(*args, **kwargs)
            self._plans.clear()
            self._settling.clear()
            own["_state"], own["_stale"] = now, None
        plan = self._plans.get(key)
        if plan is None:
            before = _attributes(self._state.modules)
            plan, result = _make(call, args, kwargs, self._verify, self._narrow, before)
            self._state.attributes.free.update((id(own), name) for own, name in _changes(before))
            if isinstance(plan, InferencePlan):
                self._state.found(plan.found)
            if plan is None:  # it set attributes: the first call may have made what later ones find
                if key not in self._settling and len(self._settling) < _KEPT:
                    self._settling.add(key)
                    return result
                plan = f"its forward sets {_changed(before)}"
            self._settling.discard(key)
            self._plans[key] = plan
            if len(self._plans) > _KEPT:
                self._plans.popitem(last=False)
            if isinstance(plan, str):
                warnings.warn(f"{type(module).__name__} runs op by op: {plan}", stacklevel=4)
            return result
        self._plans.move_to_end(key)
        if isinstance(plan, str):
            return call(*args, **kwargs)
        return plan(tensors_in((args, kwargs)))


class _State:
    """The modules, parameters and buffers of a module, and what of them must not change.

    It is compared at every call, so by functions that loop in C: a network has hundreds of each; or, once it has held
    some times, by `watching`.
    """

    def __init__(self, module: Module) -> None:
        self.owners = list(module.modules())
        self.modules = [m.__dict__ for m in self.owners]
        set_by_hooks = [
            (id(own), hook.name)
            for own in self.modules
            for hook in own["_forward_pre_hooks"].values()
            if _known({0: hook})
        ]
        self.attributes = Attributes(self.owners, set_by_hooks)
        self.hooks = [own[name] for own in self.modules for name in ("_forward_hooks", "_forward_pre_hooks")]
        self.tables = [own[name] for own in self.modules for name in ("_modules", "_parameters", "_buffers")]
        self.entries = list(chain.from_iterable(map(_values, self.tables)))
        self.tensors = [entry for entry in self.entries if isinstance(entry, Tensor)]
        self._take_tensors()
        self.generation = library.state.generation
        self._watch: watching.Watch | None = None
        self._times = 0  # that it held

    def _take_tensors(self) -> None:
        self.dicts, self.counters = [*map(_own, self.tensors)], [*map(_counter, self.tensors)]
        self.versions = self._versions()

    def _versions(self) -> list[Any]:
        aliases = sum([a.writes() for a in map(_aliases, self.tensors) if a is not None])
        return [*map(_first, self.counters), *map(_replaced, self.tensors), aliases]

    def found(self, tensors: Iterable[Tensor]) -> None:
        """A plan has read these, too."""
        known = {id(t) for t in self.tensors}
        more = [t for t in tensors if id(t) not in known]
        if more:
            self.tensors += more
            self._take_tensors()
            self._watch, self._times = None, 0

    def plain(self) -> bool:
        """Whether all modules are in eval mode and without hooks that a plan would not call."""
        if any(map(_training, self.modules)) or (any(self.hooks) and not all(map(_known, self.hooks))):
            return False
        return not (_hooks.forward or _hooks.forward_pre)

    def holds(self) -> bool:
        """Whether all is as it was."""
        entries = self.entries
        return (
            sum(map(len, self.tables)) == len(entries)
            and all(map(is_, chain.from_iterable(map(_values, self.tables)), entries))
            and all(map(is_, map(_own, self.tensors), self.dicts))
            and all(map(is_, map(_counter, self.tensors), self.counters))
            and self._versions() == self.versions
            and self.generation == library.state.generation
            and self.attributes.hold()
        )

    def held(self) -> bool:
        """`holds`, which from some calls on is asked by a watch."""
        if not self.holds():
            return False
        self._times += 1
        if self._times in _WATCHED and watching.available():
            own, counters = [*self.modules, _hooks.forward, _hooks.forward_pre], [*self.counters]
            for aliases in map(_aliases, self.tensors):
                if aliases is not None:
                    counters += [aliases.made, *aliases.counters]
            dicts = [*own, *self.hooks, *self.tables, *self.dicts]
            watch = watching.Watch(dicts, counters, [*self.owners, *self.tensors])
            self._watch = watch if self.plain() and self.holds() else None
        return True

    def unchanged(self) -> bool:
        """Whether a watch says that it holds, and is `plain`; nothing if False."""
        watch = self._watch
        return (
            watch is not None
            and self.generation == library.state.generation
            and watch.same()
            and self.attributes.contents()
        )

    def same(self, other: _State | None) -> bool:
        """Whether nothing has changed since `other` was made."""
        return other is not None and other.holds()


def signature(value: Any, objects: list[Any] | None = None) -> Any:
    """Structure, shapes, dtypes and other arguments of a call as a key; None for arguments that have no such key.

    objects: gets what is neither a tensor nor a plain value, and is a part of the key by its identity.
    """
    seen: dict[int, int] = {}

    def of(v: Any) -> Any:
        if isinstance(v, Tensor):
            array = raw_array(v)
            if not isinstance(array, np.ndarray) or asks_channels_last(array):
                raise TypeError
            number = seen.setdefault(id(v), len(seen))
            return "tensor", array.shape, array.dtype, number
        if type(v) in (list, tuple):
            return type(v), *map(of, v)
        if type(v) is dict:
            return dict, *((k, of(x)) for k, x in v.items())
        if v is None or type(v) in (int, float, bool, str) or isinstance(v, dtypes.dtype):
            return type(v), v
        if objects is not None and not isinstance(v, np.ndarray | np.generic | dict | list | tuple | set):
            objects.append(v)
            return type(v), id(v)
        raise TypeError

    try:
        return of(value), dtypes.get_default_dtype()
    except TypeError:
        return None


def _containers(value: Any) -> Iterator[Any]:
    """What in a result is neither a tensor nor a plain number, string or container."""
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


def _known(hooks: dict) -> bool:
    """Whether hooks only set an attribute, in eval mode of parameters and buffers: what they compute is traced."""
    return all(getattr(type(hook), "of_parameters", False) for hook in hooks.values())


def _attributes(modules: list[dict]) -> list[tuple[Any, set[str], dict]]:
    """Attributes of modules but those that hooks set, and what they are now; of lists, dicts and sets the entries."""
    kept: list[tuple[Any, set[str]]] = []
    for own in modules:
        kept.append((own, {h.name for h in own["_forward_pre_hooks"].values() if _known({0: h})}))
        kept += [(v, set()) for v in own.values() if type(v) in (list, dict, OrderedDict, set)]
    return [(own, but, _entries(own)) for own, but in kept]


def _entries(own: Any) -> dict:
    return {**own} if isinstance(own, dict) else dict(enumerate(own))


def _changes(before: list[tuple[Any, set[str], dict]]) -> Iterator[tuple[Any, Any]]:
    """(owner, name) of attributes, and entries of one, that are other things than they were."""
    for own, but, then in before:
        now = _entries(own)
        for name in [*now, *(k for k in then if k not in now)]:
            a, b = now.get(name, before), then.get(name, before)
            if a is not b and name not in but and not (type(a) is type(b) and type(a) in PLAIN and a == b):
                yield own, name


def _changed(before: list[tuple[Any, set[str], dict]]) -> str:
    """The name of the first of `_changes`; empty if there is none."""
    return next((str(name) for _, name in _changes(before)), "")


def _make(
    call: Callable[..., Any], args: tuple, kwargs: dict, verify: bool, narrow: str, before: Any
) -> tuple[InferencePlan | str | None, Any]:  # fmt: skip
    """Run a module op by op: (a plan of what it did, or why there is none; its result).

    before: `_attributes` of it.  None instead of a plan if they are others now: one more call would change them again.
    """
    kept = _copies((args, kwargs))
    given = tensors_in((args, kwargs))
    trace, result = record(lambda: call(*args, **kwargs), given, Trace(given, hold=narrow == "int8"))
    try:
        if trace.failure is not None:
            raise trace.failure
        if _changed(before):
            return None, result
        for other in _containers(result):
            raise Unsupported(f"it returns a {type(other).__name__}")
        plan = lower(trace, narrow)
        plan.found = [t for t, _ in trace.versions]
        if verify:
            _verify(call, plan, kept, result, NARROW if narrow else TOLERANCE)
        return plan, result
    except Unsupported as why:
        return str(why), result


def _copies(value: Any, order: Any = None) -> Any:
    """The arguments with copies of their tensors, the elements shuffled if `order` is a generator."""
    made: dict[int, Tensor] = {}

    def copy(t: Tensor) -> Tensor:
        if id(t) not in made:
            array = np.array(t._array)
            if order is not None:
                array = order.permutation(array.reshape(-1)).reshape(array.shape)
            made[id(t)] = wrap(array)
        return made[id(t)]

    return mapped(value, copy, Tensor)


def _verify(call: Callable[..., Any], plan: InferencePlan, given: tuple, wanted: Any, near: float) -> None:
    """Raise Unsupported unless the plan gives what the module gives."""
    with no_grad():
        plan.error = _compare(plan(tensors_in(_copies(given))), wanted, "on the first input", near)
        order = np.random.default_rng(0)
        other = _copies(given, order)
        args, kwargs = _copies(other)
        try:
            wanted = call(*args, **kwargs)
        except Exception:
            return  # shuffled, the arguments make no sense
        _compare(plan(tensors_in(other)), wanted, "on other values of the same shapes", near)


def _compare(found: Any, wanted: Any, where: str, near: float) -> tuple[float, float]:
    """(largest absolute difference, largest one as a part of the largest value of its tensor)."""
    most = part = 0.0
    pairs = list(zip(tensors_in(found), tensors_in(wanted), strict=True))
    for a, b in pairs:
        x, y = a._array, b._array
        if x.shape != y.shape or x.dtype != y.dtype:
            raise Unsupported(f"a plan gives {x.dtype} {list(x.shape)} {where}, op by op {y.dtype} {list(y.shape)}")
        if x.dtype.kind not in "fcV":
            if not np.array_equal(x, y):
                raise Unsupported(f"a plan gives other integers {where} than op by op")
            continue
        kind = np.complex128 if x.dtype.kind == "c" else np.float64
        x, y = x.astype(kind), y.astype(kind)
        with np.errstate(all="ignore"):
            same = (x == y) | (np.isnan(x) & np.isnan(y))
            found_largest = float(abs(y[np.isfinite(y)]).max(initial=0.0))
            largest = max(1.0, found_largest)
            apart = float(np.where(same, 0.0, abs(x - y)).max(initial=0.0))
        most, apart = max(most, apart), apart / largest
        part = max(part, apart * largest / (found_largest or 1.0))
        # 16-bit results are rounded once, wherever that happens
        allowed = near if a._array.dtype.itemsize > 2 else max(near, 2e-2)
        if not apart <= allowed:
            raise Unsupported(f"a plan differs by {apart:.1e} of the largest value {where}")
    return most, part
