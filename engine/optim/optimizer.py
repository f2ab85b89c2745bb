"""`Optimizer`: parameter groups, state, hooks and state dicts, as torch.optim.optimizer lays them out.

https://docs.pytorch.org/docs/2.13/optim.html#base-class
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any

import numpy as np

from engine import backends
from engine.core import dtypes
from engine.core.grad_mode import enable_grad, no_grad
from engine.core.hooks import HookDict, RemovableHandle, noted
from engine.optim import _update
from engine.tensor import Tensor, wrap

__all__ = ["Optimizer", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook"]


class _RequiredParameter:
    """Marks an option that every parameter group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _RequiredParameter()
ParamsT = Iterable[Any]  # what an optimizer takes: Tensors, (name, Tensor) pairs, or dicts of a group

_global_optimizer_pre_hooks = HookDict()
_global_optimizer_post_hooks = HookDict()

_HOOKS = (
    "_optimizer_step_pre_hooks",
    "_optimizer_step_post_hooks",
    "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks",
    "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)


# What optimizers of other packages import from here.


def _use_grad_for_differentiable(func: Callable) -> Callable:
    """`step` without gradients: no step of the engine is differentiable."""
    return no_grad()(func)


def _get_value(x: Any) -> Any:
    """The number in a Tensor ()."""
    return x.item() if isinstance(x, Tensor) else x


def _get_capturable_supported_devices(supports_xla: bool = True) -> list[str]:
    """The device types where `capturable=True` may be asked for."""
    return ["cuda"]


def _default_to_fused_or_foreach(
    params: list[Tensor], differentiable: bool, use_fused: bool = False
) -> tuple[bool, bool]:
    """(fused, foreach): neither, the plain loop is as fast."""
    return False, False


def _register(hooks: OrderedDict, hook: Callable, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` before the step of every optimizer; it may return (args, kwargs)."""
    return _register(_global_optimizer_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Call `hook(optimizer, args, kwargs)` after the step of every optimizer."""
    return _register(_global_optimizer_post_hooks, hook)


class Optimizer:
    """Base of all optimizers: holds parameters in groups of options, and a state for each parameter.

    params: Tensors, (name, Tensor) pairs, or dicts that give one group each.  defaults: the options of a group that
    does not give its own.  A subclass defines `step`.
    """

    OptimizerPreHook = Callable
    OptimizerPostHook = Callable

    def __init__(self, params: Iterable, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        for name in _HOOKS:
            setattr(self, name, HookDict())
        self._patch_step_function()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                + params.type()
            )
        self.state: defaultdict = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in _HOOKS:
            if name not in self.__dict__:
                setattr(self, name, HookDict())
        self._patch_step_function()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join(lines) + "\n)"

    # --- hooks

    @staticmethod
    def profile_hook_step(func: Callable) -> Callable:
        """`func`, a `step` method, with the hooks around it."""

        @noted
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self = args[0]
            for hook in chain(
                list(_global_optimizer_pre_hooks.values()), list(self._optimizer_step_pre_hooks.values())
            ):
                result = hook(self, args, kwargs)
                if result is not None:
                    if not (isinstance(result, tuple) and len(result) == 2):
                        raise RuntimeError(
                            f"{func} must return None or a tuple of (new_args, new_kwargs), but got {result}."
                        )
                    args, kwargs = result
            out = func(*args, **kwargs)
            for hook in chain(
                list(self._optimizer_step_post_hooks.values()), list(_global_optimizer_post_hooks.values())
            ):
                hook(self, args, kwargs)
            return out

        return wrapper

    @staticmethod
    def _group_tensors_by_device_and_dtype(tensorlistlist: Any, with_indices: bool = False) -> Any:
        """`torch.utils._foreach_utils`' function."""
        from engine.optim.foreach import _group_tensors_by_device_and_dtype

        return _group_tensors_by_device_and_dtype(tensorlistlist, with_indices)

    def _patch_step_function(self) -> None:
        cls: Any = type(self)
        if not getattr(cls.step, "hooked", None):
            cls.step = self.profile_hook_step(cls.step)
            cls.step.hooked = True

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` before `step`; it may return new (args, kwargs)."""
        return _register(self._optimizer_step_pre_hooks, hook)  # type: ignore[attr-defined]

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Call `hook(optimizer, args, kwargs)` after `step`."""
        return _register(self._optimizer_step_post_hooks, hook)  # type: ignore[attr-defined]

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` before `state_dict` collects."""
        return _register(self._optimizer_state_dict_pre_hooks, hook, prepend)  # type: ignore[attr-defined]

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; what it returns replaces the dict."""
        return _register(self._optimizer_state_dict_post_hooks, hook, prepend)  # type: ignore[attr-defined]

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer, state_dict)` before loading; what it returns is loaded instead."""
        return _register(self._optimizer_load_state_dict_pre_hooks, hook, prepend)  # type: ignore[attr-defined]

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Call `hook(optimizer)` after loading."""
        return _register(self._optimizer_load_state_dict_post_hooks, hook, prepend)  # type: ignore[attr-defined]

    # --- state dicts

    def state_dict(self) -> dict[str, Any]:
        """`{"state": {index: {...}}, "param_groups": [{..., "params": [index, ...]}]}`; shares the state's tensors."""
        for hook in list(self._optimizer_state_dict_pre_hooks.values()):  # type: ignore[attr-defined]
            hook(self)
        index: dict[int, int] = {}
        groups, start = [], 0
        for group in self.param_groups:
            for i, p in enumerate(group["params"], start):
                index.setdefault(id(p), i)
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [index[id(p)] for p in group["params"]]
            start += len(packed["params"])
            groups.append(packed)
        state = {(index[id(k)] if isinstance(k, Tensor) else k): v for k, v in self.state.items()}
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._optimizer_state_dict_post_hooks.values()):  # type: ignore[attr-defined]
            replaced = hook(self, result)
            if replaced is not None:
                result = replaced
        return result

    @staticmethod
    def _process_value_according_to_param_policy(
        param: Tensor, value: Tensor, param_id: Any, param_groups: list[dict], key: Any = None
    ) -> Tensor:
        group = next((g for g in param_groups if param_id in g["params"]), {})
        if key == "step":  # counts: not in the parameter's type, nor on its device unless asked
            if group.get("capturable", False) or group.get("fused", False):
                return value.to(dtype=dtypes.float32, device=param.device)
            return value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a `state_dict()`; parameters are matched by their order.  ValueError when groups differ in size."""
        state_dict = state_dict.copy()
        for hook in list(self._optimizer_load_state_dict_pre_hooks.values()):  # type: ignore[attr-defined]
            replaced = hook(self, state_dict)
            if replaced is not None:
                state_dict = replaced
        groups, saved = self.param_groups, deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(g["params"]) != len(s["params"]) for g, s in zip(groups, saved)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        by_id = dict(
            zip(
                chain.from_iterable(s["params"] for s in saved),
                chain.from_iterable(g["params"] for g in groups),
            )
        )
        policy = self._process_value_according_to_param_policy

        def cast(param: Tensor, value: Any, param_id: Any, key: Any = None) -> Any:
            if isinstance(value, Tensor):
                return policy(param, value, param_id, state_dict["param_groups"], key)
            if isinstance(value, dict):
                return {k: cast(param, v, param_id, k) for k, v in value.items()}
            if isinstance(value, Iterable) and not isinstance(value, str | bytes):
                return type(value)(cast(param, v, param_id) for v in value)  # type: ignore[call-arg]
            return value

        state: defaultdict = defaultdict(dict)
        for k, v in state_dict["state"].items():
            if k in by_id:
                state[by_id[k]] = cast(by_id[k], v, k)
            else:
                state[k] = v
        for group, new in zip(groups, saved):
            new["params"] = group["params"]
            if "param_names" in group and "param_names" not in new:
                new["param_names"] = group["param_names"]
        self.__setstate__({"state": state, "param_groups": saved})
        for hook in list(self._optimizer_load_state_dict_post_hooks.values()):  # type: ignore[attr-defined]
            hook(self)

    # --- use

    @noted
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters; with `set_to_none=False` fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                grad = p.grad
                if grad is None:
                    continue
                if set_to_none:
                    p.grad = None
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                with no_grad():
                    grad.zero_()

    def step(self, closure: Callable | None = None) -> Any:
        """One update of the parameters.  closure: computes the loss anew and returns it."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: a dict of `params` and the options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets "
                "will change between runs. Please use a list instead."
            )
        params = list(params)
        names = [p[0] for p in params if isinstance(p, tuple)]
        params = [p[1] if isinstance(p, tuple) else p for p in params]
        param_group["params"] = params
        if names:
            if len(names) != len(params):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            param_group["param_names"] = names
        for p in params:
            if not isinstance(p, Tensor):
                kind = type(p)
                name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {name}")
            if not self.defaults.get("differentiable", None) and not (p.is_leaf or p.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len(params) != len(set(params)):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; "
                "see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        seen: set[Tensor] = set()
        for group in self.param_groups:
            seen.update(group["params"])
            if ("param_names" in param_group) != ("param_names" in group):
                kind = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    f"all optimizer param groups should be with/without names. cannot add param group {kind} to the "
                    "optimizer"
                )
        if not seen.isdisjoint(params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)


# --- what the algorithms share


def number(value: Any) -> Any:
    """An option given as a number or as a one-element Tensor, as a number."""
    return value.item() if isinstance(value, Tensor) else value


def check_lr(lr: Any, *, positive: bool = False) -> None:
    """ValueError unless lr is a number or one-element Tensor that is not negative."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not (lr > 0.0 if positive else lr >= 0.0):
        raise ValueError(f"Invalid learning rate: {lr}")


def check_rate(lr: Any) -> None:
    """As `check_lr`, in the words of the newer optimizers."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(f"Learning rate should be >= 0 but is: {lr}")


def dense_real(name: str, p: Tensor) -> Tensor:
    """The gradient of `p`; RuntimeError for a complex or a sparse one."""
    if p.is_complex():
        raise RuntimeError(f"{name} does not support complex parameters")
    grad = p.grad
    assert grad is not None
    if grad.is_sparse:
        raise RuntimeError(f"{name} does not support sparse gradients")
    return grad


def check_not_negative(**values: Any) -> None:
    """ValueError for a negative option: `eps`, `weight_decay` and the like, by name."""
    for name, value in values.items():
        if not value >= 0.0:
            name = "epsilon" if name == "eps" else name
            raise ValueError(f"Invalid {name} value: {value}")


def check_betas(betas: Any) -> None:
    """ValueError unless both lie in [0, 1)."""
    for i in (0, 1):
        if not 0.0 <= betas[i] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {i}: {betas[i]}")


def counter(value: float = 0.0, like: Tensor | None = None, fused: Any = False) -> Tensor:
    """A 0-dim tensor that counts steps: on the CPU, or where `like` is."""
    double = not fused and dtypes.get_default_dtype() is dtypes.float64
    dtype = np.float64 if double else np.float32
    if like is None:
        return wrap(np.full((), value, dtype))
    return wrap(backends.xp_of(like._array).full((), value, dtype))


def zeros_like(p: Tensor) -> Tensor:
    """Zeros of the parameter's shape, dtype, device and layout."""
    return wrap(backends.xp_of(p._array).zeros_like(p._array))


def advance(step: Tensor) -> float:
    """Add one to a step counter in place; its new value."""
    array = step._array
    if isinstance(array, np.ndarray):
        array += 1
        return array.item()
    known = _known_steps.get(id(step))
    value = known[1] + 1 if known is not None and known[0]() is step and known[2] == step._vc[0] else None
    recording = _update.recording([step])
    if recording is not None and value is None:
        raise RuntimeError("a step counter on the GPU is not known to the host: do one step before the capture")
    if value is None:
        value = array.item() + 1
    if not _replaying:  # in a capture recorded: each replay counts
        later = getattr(_counting, "later", None)
        if later is None:
            array += 1
        else:
            later.append(array)
    if recording is None:
        if known is None or known[0]() is not step:
            forget = lambda ref, key=id(step): _known_steps.pop(key, None)
            ref = weakref.ref(step, forget)
        else:
            ref = known[0]
        _known_steps[id(step)] = (ref, value, step._vc[0])
    return value


def _count(counters: list[Any]) -> None:
    """Add one to step counters on a GPU, all in one launch."""
    graph = _update.recording([wrap(counters[0])])
    steps = None if graph is None else list(graph.steps)
    _update.run(_add_one, [((counter,), ()) for counter in counters], 0)
    if graph is not None:
        graph.steps = steps  # there are no numbers to write before a replay


def _add_one(xp: Any, scratch: list, numbers: tuple, counter: Any) -> None:
    xp.add(counter, 1, out=counter)


_counting = threading.local()


# step counters on a GPU (capturable=True, fused=True), which the host counts as well: (tensor, value, its version)
_known_steps: dict[int, tuple[Any, float, int]] = {}
_replaying: list[bool] = []  # not empty while the numbers of a replay are made


def effective(xp: Any, p: Any, g: Any, decay: float, maximize: bool, out: Any) -> Any:
    """The gradient with its sign flipped for `maximize` and `decay * p` added; `g` itself, or written to `out`."""
    if decay:
        xp.multiply(p, decay, out=out)
        return (xp.subtract if maximize else xp.add)(out, g, out=out)
    return xp.negative(g, out=out) if maximize else g


def average(xp: Any, mean: Any, value: Any, keep: float, out: Any) -> None:
    """mean = keep * mean + (1 - keep) * value, in place; `out` is overwritten and may be `value`."""
    xp.multiply(value, 1 - keep, out=out)
    xp.multiply(mean, keep, out=mean)
    xp.add(mean, out, out=mean)


_CAPTURABLE = "['cuda', 'xpu', 'hpu', 'privateuseone', 'xla']"


class BlockOptimizer(Optimizer):
    """An optimizer whose update of one parameter is a kernel on blocks of flat arrays (`_update.py`).

    A subclass gives `init_state`, `prepare` (advances the step, names the state arrays and computes the numbers of
    the kernel) and `kernel`.  float16 and bfloat16 are computed in float32 and stored in their own type.
    """

    sparse_message = ""  # error for a sparse gradient; None: made dense
    newer_options: dict[str, Any] = {}  # those that old state dicts lack, and their defaults
    counters: tuple[str, ...] = ("step",)
    temporaries = 2
    counted = "params and state_steps"

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self.newer_options.items():
                group.setdefault(name, value)
            for p in group["params"]:
                found = self.state.get(p)
                if not found:
                    continue
                for name in self.counters:
                    if name in found and not isinstance(found[name], Tensor):
                        on = p if group.get("capturable") or group.get("fused") else None
                        found[name] = counter(float(found[name]), on, group.get("fused"))

    def accept_fused(self, fused: Any, foreach: Any, differentiable: Any) -> None:
        """Check `fused` against the other modes; all of them run the same kernel here."""
        if fused:
            if differentiable:
                raise RuntimeError("`fused` does not support `differentiable`")
            self._step_supports_amp_scaling = True
            if foreach:
                raise RuntimeError("`fused` and `foreach` cannot be `True` together.")

    def init_state(self, group: dict, p: Tensor, state: dict) -> None:
        """Fill the empty `state` of a parameter."""

    def prepare(self, group: dict, p: Tensor, state: dict) -> tuple[tuple[str, ...], tuple]:
        """Advance `state`; the names of the arrays for the kernel and its numbers."""
        raise NotImplementedError

    @staticmethod
    def kernel(xp: Any, scratch: list, numbers: tuple, p: Any, g: Any, *state: Any) -> None:
        """Update the blocks `p` and `state` in place; `g` may not be written."""
        raise NotImplementedError

    def new_counter(self, group: dict, p: Tensor, value: float = 0.0) -> Tensor:
        """A counter on the device that the group's mode asks for."""
        fused = group.get("fused")
        return counter(value, p if fused or group.get("capturable") else None, fused)

    def step(self, closure: Callable | None = None) -> Any:
        """One update.  closure: computes the loss anew and returns it; what it returned is returned."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        found_inf, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if found_inf is not None and number(found_inf):
            return loss
        for group in self.param_groups:
            self._step_group(group, None if scale is None else 1.0 / number(scale))
        return loss

    def _step_group(self, group: dict, rescale: float | None) -> None:
        counters: list[Any] = []
        _counting.later = counters  # `advance` hands those on a GPU over
        try:
            self._update_group(group, rescale)
        finally:  # also where it fails half way: the host has counted
            _counting.later = None
            if counters:
                _count(counters)

    def _update_group(self, group: dict, rescale: float | None) -> None:
        if group.get("differentiable"):
            raise NotImplementedError(
                f"{type(self).__name__}(differentiable=True): gradients do not flow through an optimizer step here"
            )
        capturable = group.get("capturable")
        recording = _update.recording(group["params"])  # Note [Steps in graphs] in engine/ops/optimizer/cuda.py
        counted = [] if recording is None else self._host_counters(group)
        jobs: list[Any] = []
        written: list[Tensor] = []
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            if grad.is_sparse:
                if self.sparse_message is not None:
                    raise RuntimeError(self.sparse_message)
                if group.get("weight_decay") and "sum" in self.state[p]:
                    raise RuntimeError("weight_decay option is not compatible with sparse gradients")
                grad = grad.to_dense()
            if capturable and not p.is_cuda:
                raise AssertionError(f"If capturable=True, {self.counted} must be on supported devices: {_CAPTURABLE}.")
            if group.get("fused") and not p.is_floating_point():
                raise RuntimeError(
                    "`fused=True` requires all the params to be floating point Tensors of supported devices: "
                    f"['mps', 'cuda', 'xpu', 'hpu', 'cpu', 'mtia'] but {p.dtype} and {p.device.type}"
                )
            if rescale is not None:
                with no_grad():
                    grad.mul_(rescale)
            state = self.state[p]
            had = len(state)
            if not state:
                self.init_state(group, p, state)
            names, numbers = self.prepare(group, p, state)
            if recording is not None and len(state) > had:
                state.clear()
                raise RuntimeError(
                    f"{type(self).__name__} makes its state in its first step: do one step before the capture"
                )
            jobs.append(((p._array, grad._array, *(state[n]._array for n in names)), numbers))
            written.append(p)
        _update.run(self.kernel, jobs, self.temporaries)
        for p in written:
            p._vc[0] += 1
        if recording is not None:
            for array, value in counted:
                array[...] = value
            steps, recording.steps = recording.steps, []
            recording.before.append(lambda: self._before_replay(group, written, steps, [n for _, n in jobs]))

    def _host_counters(self, group: dict) -> list[tuple[Any, Any]]:
        """(array, value) of the counters on the host, which a capture must leave as they were."""
        found = []
        for p in group["params"]:
            for value in self.state.get(p, {}).values():
                if isinstance(value, Tensor) and isinstance(value._array, np.ndarray):
                    found.append((value._array, value._array.copy()))
        return found

    def _before_replay(
        self, group: dict, params: list[Tensor], steps: list[Any], captured: list[Any]
    ) -> Callable[[], None]:
        """Count the step that a replay is about to do, and give its numbers to the kernels; what undoes it."""
        counted = self._host_counters(group)
        known = {i: k for p in params for t in self.state.get(p, {}).values() if (k := _known_steps.get(i := id(t)))}

        def undo() -> None:
            for array, value in counted:
                array[...] = value
            _known_steps.update(known)

        _replaying.append(True)
        try:
            numbers = [self.prepare(group, p, self.state[p])[1] for p in params]
            given = set()
            for place, write in steps:
                write(numbers[place])
                given.add(captured[place])
            for now, then in zip(numbers, captured):
                if then not in given and now != then:
                    raise _update.stale(
                        f"the captured step of {type(self).__name__} does not use the engine's own kernel, so that its "
                        "numbers (learning rate, step count) cannot change, and they did: capture it anew, or call "
                        "step() outside of the graph"
                    )
        except BaseException:
            undo()
            raise
        finally:
            _replaying.pop()
        for p in params:
            p._vc[0] += 1
        return undo
