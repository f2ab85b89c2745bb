"""DistributedDataParallel: every process has the model and a part of the batch; gradients are averaged.

https://docs.pytorch.org/docs/2.13/generated/torch.nn.parallel.DistributedDataParallel.html

Parameters are put into buckets of `bucket_cap_mb`, the last one first, which is the order in which backward finishes
them.  When the last gradient of a bucket has been accumulated, the bucket is copied into one flat tensor and its sum
begins in the group's thread, while backward goes on with the others.  The hook of the very last gradient waits for all
sums and writes the averages into the gradients, so that they are there when `backward()` returns.  Buckets are summed
in the same order everywhere, whatever the order in which gradients come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.core.grad_mode import is_grad_enabled, no_grad
from engine.nn._communication import registered
from engine.nn.modules.module import Module
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["DistributedDataParallel"]


class _Bucket:
    """Some parameters, the flat tensor of their gradients, and its sum under way."""

    def __init__(self, parameters: list[Any]) -> None:
        self.parameters = parameters
        count, first = sum(p.numel() for p in parameters), parameters[0]
        self.flat = torch.zeros(count, dtype=first.dtype, device=first.device)
        self.missing = 0
        self.work: Any = None

    def fill(self) -> None:
        """Copy the gradients in; 0 where there is none."""
        at = 0
        for parameter in self.parameters:
            part = self.flat[at : at + parameter.numel()]
            if parameter.grad is None:
                part.zero_()
            else:
                part.copy_(parameter.grad.reshape(-1))
            at += parameter.numel()

    def spread(self, count: int, unused: set[int]) -> None:
        """Write the averages into the gradients; none for parameters that nobody used."""
        self.flat.div_(count)
        at = 0
        for parameter in self.parameters:
            part = self.flat[at : at + parameter.numel()].view(parameter.shape)
            if id(parameter) not in unused:
                if parameter.grad is None:
                    parameter.grad = part.clone()
                else:
                    parameter.grad.copy_(part)
            at += parameter.numel()


class DistributedDataParallel(Module):
    """Calls `module` on this process's inputs; after backward every process has the average gradients.

    process_group: the processes that take part (None: all).  bucket_cap_mb: gradients summed at a time (25).
    broadcast_buffers: buffers become those of the first process before each forward in training.
    find_unused_parameters: parameters that the outputs do not depend on count as zero; without it, an iteration that
    leaves some out is an error at the next one.  Parameters and buffers become those of the first process.
    ValueError before `init_process_group`; RuntimeError for a module without parameters that require a gradient, and
    for processes whose modules differ.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = False,
        static_graph: bool = False,
        **_: Any,
    ) -> None:
        super().__init__()
        self.process_group = registered.group(process_group)
        if self.process_group is None:
            raise ValueError("this process is not in the group that DistributedDataParallel was given")
        self.module = module
        self.device_ids, self.output_device, self.dim = device_ids, output_device, dim
        self.broadcast_buffers, self.find_unused_parameters = broadcast_buffers, find_unused_parameters
        self.static_graph, self.gradient_as_bucket_view = static_graph, gradient_as_bucket_view
        self.require_backward_grad_sync = True
        ignored = set(getattr(module, "_ddp_params_and_buffers_to_ignore", ()))
        self._named = [(n, p) for n, p in module.named_parameters() if p.requires_grad and n not in ignored]
        if not self._named:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
                "gradient."
            )
        self._synced_buffers = [b for n, b in module.named_buffers() if n not in ignored]
        if init_sync:
            self._check_shapes()
            for tensor in [p for n, p in module.named_parameters() if n not in ignored] + self._synced_buffers:
                self._from_first(tensor)
        self._buckets = self._make_buckets(25.0 if bucket_cap_mb is None else bucket_cap_mb)
        self._of = {id(p): bucket for bucket in self._buckets for p in bucket.parameters}
        self._expecting: set[int] = set()
        self._next = 0  # the first bucket whose sum has not begun
        self._unused: set[int] = set()
        for _, parameter in self._named:
            parameter.register_post_accumulate_grad_hook(self._accumulated)

    def _check_shapes(self) -> None:
        """RuntimeError in every process where one has another module: one that went on would wait for the others."""
        sizes = [[len(self._named)]] + [[p.numel(), *p.shape] for _, p in self._named]
        numbers = [hash(tuple(map(tuple, sizes))) % (1 << 40), len(self._named)]
        own = torch.tensor(numbers, dtype=torch.int64, device=self._named[0][1].device)
        first = own.clone()
        registered.broadcast_(first, self.process_group)
        others = (first != own).any().to(torch.int64).reshape(1)
        registered.sum_(others, self.process_group, False)
        if int(others):
            raise RuntimeError(
                f"DistributedDataParallel expects the same module in every process: {int(others)} of them differ from "
                "the first in shapes or in the number of parameters that require a gradient, "
                f"{int(first[1])} in the first, {len(self._named)} in this one"
            )

    def _from_first(self, tensor: Tensor) -> None:
        with no_grad():
            registered.broadcast_(tensor.detach() if tensor.requires_grad else tensor, self.process_group)

    def _make_buckets(self, megabytes: float) -> list[_Bucket]:
        made: list[_Bucket] = []
        part: list[Any] = []
        size, limit = 0, 1 << 20  # the first bucket is small, so that its sum begins early
        for _, parameter in reversed(self._named):
            nbytes = parameter.numel() * parameter.element_size()
            if part and (size + nbytes > limit or parameter.dtype != part[0].dtype):
                made.append(_Bucket(part))
                part, size, limit = [], 0, int(megabytes * (1 << 20))
            part.append(parameter)
            size += nbytes
        return [*made, _Bucket(part)]

    # --- an iteration

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not (is_grad_enabled() and self.require_backward_grad_sync and self.training):
            return self.module(*inputs, **kwargs)
        if self._expecting:
            names = [n for n, p in self._named if id(p) in self._expecting]
            self._expecting.clear()
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new one. This error "
                "indicates that your module has parameters that were not used in producing loss. You can enable unused "
                "parameter detection by passing the keyword argument `find_unused_parameters=True` to "
                f"`torch.nn.parallel.DistributedDataParallel`. Parameters without a gradient: {', '.join(names)}"
            )
        if self.broadcast_buffers:
            for buffer in self._synced_buffers:
                self._from_first(buffer)
        outputs = self.module(*inputs, **kwargs)
        self._expecting = {id(p) for _, p in self._named}
        for bucket in self._buckets:
            bucket.missing, bucket.work = len(bucket.parameters), None
        self._next, self._unused = 0, set()
        if self.find_unused_parameters:
            used = _leaves(outputs)
            left_out = [p for _, p in self._named if id(p) not in used]
            if len(left_out) == len(self._named):  # no backward can follow
                self._expecting.clear()
                return outputs
            with no_grad():  # what nobody used keeps its gradient, also if it is None
                flags = [float(id(p) in used) for _, p in self._named]
                mask = torch.tensor(flags, device=self._named[0][1].device)
                registered.sum_(mask, self.process_group, False)
            self._unused = {id(p) for (_, p), count in zip(self._named, mask.tolist()) if not count}
            for parameter in left_out:
                self._ready(parameter)
        return outputs

    def _accumulated(self, parameter: Tensor) -> None:
        if self.require_backward_grad_sync and id(parameter) in self._expecting:
            self._ready(parameter)

    def _ready(self, parameter: Tensor) -> None:
        self._expecting.discard(id(parameter))
        self._of[id(parameter)].missing -= 1
        with no_grad():
            while self._next < len(self._buckets) and not self._buckets[self._next].missing:
                bucket = self._buckets[self._next]
                bucket.fill()
                bucket.work = registered.sum_(bucket.flat, self.process_group, True)
                self._next += 1
            if self._next == len(self._buckets):
                for bucket in self._buckets:
                    bucket.work.wait()
                    bucket.spread(self.process_group.size(), self._unused)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of the backwards in this context stay this process's own and add up."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before


def _leaves(outputs: Any) -> set[int]:
    """The ids of the leaves that the tensors in `outputs` depend on."""
    found: set[int] = set()
    seen: set[int] = set()
    todo: list[Any] = []

    def collect(value: Any) -> None:
        if isinstance(value, Tensor):
            if value.grad_fn is not None:
                todo.append(value.grad_fn)
            elif value.requires_grad:
                found.add(id(value))
        elif isinstance(value, dict):
            for one in value.values():
                collect(one)
        elif isinstance(value, (list, tuple)):
            for one in value:
                collect(one)
        elif hasattr(value, "__dict__"):
            collect(vars(value))

    collect(outputs)
    while todo:
        node = todo.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        variable = getattr(node, "variable", None)
        if variable is not None:
            found.add(id(variable))
        todo += [one for one, _ in node.next_functions if one is not None]
    return found
