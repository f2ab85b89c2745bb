"""Pruning: a mask over a parameter, applied before each forward (`name_orig`, `name_mask`)."""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

from engine.nn.modules.module import Module
from engine.ops import functions as torch
from engine.tensor import Tensor


class BasePruningMethod(ABC):
    """A method to choose a mask.  PRUNING_TYPE: "unstructured", "structured" or "global"."""

    _tensor_name: str
    PRUNING_TYPE: str

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask for importance scores `t`, on top of `default_mask`.  (*) -> (*)."""

    def apply_mask(self, module: Module) -> Tensor:
        """The masked parameter."""
        name = self._tensor_name
        mask, orig = getattr(module, name + "_mask"), getattr(module, name + "_orig")
        return mask.to(dtype=orig.dtype) * orig

    @classmethod
    def apply(
        cls,
        module: Module,
        name: str,
        *args: Any,
        importance_scores: Tensor | None = None,
        **kwargs: Any,
    ) -> Any:
        """Prune module.name by this method, after those that did so before; returns the hook."""
        method: Any = cls(*args, **kwargs)
        method._tensor_name = name
        before = [
            (k, hook)
            for k, hook in module._forward_pre_hooks.items()
            if isinstance(hook, BasePruningMethod) and hook._tensor_name == name
        ]
        if len(before) > 1:
            raise AssertionError(f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}.")
        orig = getattr(module, name)
        if importance_scores is None:
            importance_scores = orig
        elif importance_scores.shape != orig.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter                 {name} of {module}"
            )
        if before:
            key, old = before[0]
            del module._forward_pre_hooks[key]
            default = getattr(module, name + "_mask").detach().clone()
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        else:
            default = torch.ones_like(orig.detach())
            module.register_parameter(name + "_orig", orig)
            del module._parameters[name]
        mask = method.compute_mask(importance_scores.detach(), default_mask=default)
        if before:
            module._buffers[name + "_mask"] = mask
        else:
            module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of `t`."""
        scores = t if importance_scores is None else importance_scores
        default = torch.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=default)

    def remove(self, module: Module) -> None:
        """Make the pruned values a plain parameter."""
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        orig = module._parameters.pop(name + "_orig")
        assert orig is not None
        orig.data = weight.detach()
        del module._buffers[name + "_mask"]
        setattr(module, name, orig)


class PruningContainer(BasePruningMethod):
    """Several methods for one parameter, one after another."""

    def __init__(self, *args: Any) -> None:
        self._pruning_methods: tuple = ()
        self._tensor_name = args[0]._tensor_name if args else None
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """Add one more method for the same parameter."""
        if not isinstance(method, BasePruningMethod) and method is not None:
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to "
                f"PruningContainer {self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Any:
        return iter(self._pruning_methods)

    def __getitem__(self, idx: Any) -> Any:
        return self._pruning_methods[idx]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        method = self._pruning_methods[-1]
        mask = default_mask.to(dtype=t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            rest: Any = mask == 1
        elif method.PRUNING_TYPE == "structured":
            dim = method.dim + t.dim() if method.dim < 0 else method.dim
            others = tuple(d for d in range(t.dim()) if d != dim)
            kept = (mask.sum(others) != 0).nonzero().squeeze(1)
            rest = (*(slice(None),) * dim, kept)
        else:
            rest = (slice(None),) * t.dim()
        result = mask.clone()
        result[rest] = method.compute_mask(t[rest], default_mask=mask[rest])
        return result


class Identity(BasePruningMethod):
    """Prunes nothing."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


def _validate_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if (isinstance(amount, numbers.Integral) and amount < 0) or (
        not isinstance(amount, numbers.Integral) and (float(amount) > 1.0 or float(amount) < 0.0)
    ):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _count(amount: Any, size: int) -> int:
    """Return the number of units to prune among `size`."""
    if isinstance(amount, numbers.Integral):
        if int(amount) > size:
            raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
        return int(amount)
    return round(float(amount) * size)


class RandomUnstructured(BasePruningMethod):
    """Prunes elements at random."""

    PRUNING_TYPE = "unstructured"

    def __init__(self, amount: Any) -> None:
        _validate_amount(amount)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return self._without(default_mask, torch.rand_like(t.to(default_mask.dtype)), t)

    def _without(self, default_mask: Tensor, scores: Tensor, t: Tensor) -> Tensor:
        """The mask without the elements of the smallest scores."""
        count = _count(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            worst = torch.topk(scores.reshape(-1), k=count, largest=False)[1]
            mask.view(-1)[worst] = 0
        return mask


class L1Unstructured(RandomUnstructured):
    """Prunes the elements of least magnitude."""

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return self._without(default_mask, t.abs(), t)


class LnStructured(BasePruningMethod):
    """Prunes whole channels along `dim` of least n-norm."""

    PRUNING_TYPE = "structured"

    def __init__(self, amount: Any, n: Any, dim: int = -1) -> None:
        _validate_amount(amount)
        self.amount, self.n, self.dim = amount, n, dim

    def _scores(self, t: Tensor) -> Tensor:
        others = tuple(d for d in range(t.dim()) if d != self.dim % t.dim())
        return t.norm(self.n, dim=others) if others else t.abs()

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.dim() <= 1:
            raise ValueError("Structured pruning can only be applied to multidimensional tensors.")
        size = t.shape[self.dim]
        count = _count(self.amount, size)
        if not count:
            return default_mask
        kept = torch.topk(self._scores(t), k=size - count, largest=True)[1]
        mask = torch.zeros_like(t)
        mask[(*(slice(None),) * (self.dim % t.dim()), kept)] = 1
        return mask * default_mask.to(dtype=mask.dtype)


class RandomStructured(LnStructured):
    """Prunes whole channels along `dim` at random."""

    def __init__(self, amount: Any, dim: int = -1) -> None:
        super().__init__(amount, None, dim)

    def _scores(self, t: Tensor) -> Tensor:
        return torch.rand(t.shape[self.dim])


class CustomFromMask(BasePruningMethod):
    """Prunes by a given mask."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask * self.mask.to(dtype=default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Give module.name a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: Any) -> Module:
    """Prune elements at random: a fraction or a number of them; returns the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: Any, importance_scores: Tensor | None = None) -> Module:
    """Prune the elements of least magnitude; returns the module."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: Any, dim: int) -> Module:
    """Prune channels along `dim` at random; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module,
    name: str,
    amount: Any,
    n: Any,
    dim: int,
    importance_scores: Tensor | None = None,
) -> Module:
    """Prune the channels along `dim` of least n-norm; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune by a mask; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: Any,
    importance_scores: Any = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one."""
    parameters, given = list(parameters), importance_scores or {}
    scores = [given.get((m, n), getattr(m, n)).detach() for m, n in parameters]
    flat = torch.cat([s.reshape(-1) for s in scores])
    masks = [getattr(m, n + "_mask", torch.ones_like(getattr(m, n).detach())).reshape(-1) for m, n in parameters]
    container = PruningContainer()
    container._tensor_name = "temp"  # type: ignore[assignment]
    method = pruning_method(**kwargs)
    method._tensor_name = "temp"
    container.add_pruning_method(method)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method '
            f"{pruning_method} of type "
            f"{method.PRUNING_TYPE}"
        )
    final, start = container.compute_mask(flat, torch.cat(masks)), 0
    for module, name in parameters:
        param = getattr(module, name)
        custom_from_mask(module, name, mask=final[start : start + param.numel()].view_as(param))
        start += param.numel()


def remove(module: Module, name: str) -> Module:
    """Make the pruning of module.name permanent; ValueError if there is none."""
    for k, hook in module._forward_pre_hooks.items():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            hook.remove(module)
            del module._forward_pre_hooks[k]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Return whether a parameter of the module or of a submodule is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())
