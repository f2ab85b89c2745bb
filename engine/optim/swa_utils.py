"""Averages of weights along training: SWA (https://arxiv.org/abs/1803.05407) and EMA.

https://docs.pytorch.org/docs/2.13/optim.html#weight-averaging-swa-and-ema
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from itertools import chain
from typing import Any

from engine.core import dtypes
from engine.core.grad_mode import no_grad
from engine.nn.modules.batchnorm import _BatchNorm
from engine.nn.modules.module import Module
from engine.ops.from_data import tensor
from engine.optim._schedule import LRScheduler, _per_group, _warn_outside_step
from engine.optim.optimizer import Optimizer
from engine.tensor import Tensor

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]


_One = Callable[[Tensor, Tensor, Any], Tensor]
_Several = Callable[[Sequence[Tensor], Sequence[Tensor], Any], None]


def _check_decay(decay: float) -> None:
    if not 0.0 <= decay <= 1.0:
        raise ValueError(f"Invalid decay value {decay} provided. Please provide a value in [0,1] range.")


def get_ema_avg_fn(decay: float = 0.999) -> _One:
    """A function(averaged (*), current (*), count) -> decay * averaged + (1 - decay) * current (*).

    Raises ValueError unless 0 <= decay <= 1.
    """
    _check_decay(decay)

    def average(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return decay * averaged + (1 - decay) * current

    return no_grad()(average)


def get_swa_avg_fn() -> _One:
    """A function(averaged (*), current (*), count) -> the mean of count + 1 values, of which `averaged` has count."""

    def average(averaged: Tensor, current: Tensor, num_averaged: Any) -> Tensor:
        return averaged + (current - averaged) / (num_averaged + 1)

    return no_grad()(average)


def _in_place(one: _One) -> _Several:
    """`one` over lists of tensors: the first list is overwritten."""

    def average(averaged: Sequence[Tensor], current: Sequence[Tensor], num_averaged: Any) -> None:
        for mean, value in zip(averaged, current, strict=True):
            mean.copy_(one(mean, value, num_averaged))

    return no_grad()(average)


def get_ema_multi_avg_fn(decay: float = 0.999) -> _Several:
    """`get_ema_avg_fn` over two lists of tensors, of shapes (*) in pairs; overwrites the first."""
    return _in_place(get_ema_avg_fn(decay))


def get_swa_multi_avg_fn() -> _Several:
    """`get_swa_avg_fn` over two lists of tensors, of shapes (*) in pairs; overwrites the first."""
    return _in_place(get_swa_avg_fn())


class AveragedModel(Module):
    """A copy of `model` whose parameters are running averages: `update_parameters(model)` takes a new value in.

    avg_fn(averaged, current, count) or multi_avg_fn(averaged list, current list, count): how; the equal-weight mean
    unless given.  use_buffers: average the buffers too; else they are copied.  Buffer `n_averaged`: int64 (), how many
    values the average holds.  forward: the copy's, with its shapes.  Raises AssertionError if both functions are given.
    """

    n_averaged: Tensor

    def __init__(
        self,
        model: Module,
        device: Any = None,
        avg_fn: _One | None = None,
        multi_avg_fn: _Several | None = None,
        use_buffers: bool = False,
    ) -> None:
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise AssertionError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = deepcopy(model)
        if device is not None:
            self.module = self.module.to(device)
        self.register_buffer("n_averaged", tensor(0, dtype=dtypes.int64, device=device))
        self.avg_fn = avg_fn
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the averaged copy on these arguments."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: Module) -> None:
        """Take the parameters of `model` into the average."""

        def averaged(of: Module) -> Iterable[Tensor]:
            return chain(of.parameters(), of.buffers()) if self.use_buffers else of.parameters()

        pairs = [
            (mean.detach(), value.detach().to(mean.device))
            for mean, value in zip(averaged(self.module), averaged(model))
        ]
        if self.n_averaged == 0:
            for mean, value in pairs:
                mean.copy_(value)
        elif pairs:
            several = self.multi_avg_fn or _in_place(self.avg_fn or get_swa_avg_fn())
            several(*map(list, zip(*pairs)), self.n_averaged)
        if not self.use_buffers:
            for mine, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
                mine.detach().copy_(theirs.detach().to(mine.device))
        self.n_averaged += 1


@no_grad()
def update_bn(loader: Iterable[Any], model: Module, device: Any = None) -> None:
    """Set the running statistics of every BatchNorm in `model` to those of one pass over `loader`.

    loader: batches (N, ...), or lists whose first element is one.  Afterwards the model is in the mode it had.
    """
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not layers:
        return
    momenta = [layer.momentum for layer in layers]
    was_training = model.training
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches, each with the same weight
    model.train()
    for batch in loader:
        values = batch[0] if isinstance(batch, list | tuple) else batch
        model(values if device is None else values.to(device))
    for layer, momentum in zip(layers, momenta):
        layer.momentum = momentum
    model.train(was_training)


class SWALR(LRScheduler):
    """Moves every group's rate to `swa_lr` within `anneal_epochs` steps, along half a cosine or a line; then holds it.

    swa_lr: a number, or one a group.  anneal_strategy: `cos` or `linear`; anneal_epochs: at least 0.  Raises ValueError
    for another strategy or number.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        for rate, group in zip(_per_group("swa_lr", optimizer, swa_lr), optimizer.param_groups):
            group["swa_lr"] = rate
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        self._anneal_strategy = anneal_strategy
        self.anneal_epochs = anneal_epochs
        super().__init__(optimizer, last_epoch)

    def _share(self, step: int) -> float:
        """Return the progress of the rate after `step` steps: 0 at the start, 1 at swa_lr."""
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._anneal_strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self) -> list[Any]:
        """The next rate of each group: as far from its present one towards swa_lr as the step goes."""
        _warn_outside_step(self)
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(step - 1), self._share(step)
        rates = []
        for group in self.optimizer.param_groups:
            lr, goal = group["lr"], group["swa_lr"]
            start = goal if before == 1 else (lr - before * goal) / (1 - before)
            rates.append(goal * now + start * (1 - now))
        return rates
