"""`ZeroRedundancyOptimizer`: each process keeps the optimizer state of a part of the parameters (arXiv:1910.02054).

https://docs.pytorch.org/docs/2.13/distributed.optim.html
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.core.grad_mode import no_grad
from engine.distributed.collectives import broadcast, gather_object
from engine.distributed.groups import member
from engine.ops import functions as torch
from engine.optim import Optimizer

__all__ = ["ZeroRedundancyOptimizer"]


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state is divided over the processes of a group.

    params: as for any optimizer, the same in all processes.  optimizer_class: what each process runs on its part, with
    the further arguments.  `step()` updates this process's part and gets the others'.  `state_dict()` is whole after
    `consolidate_state_dict(to)`, in process `to`.  ValueError before `init_process_group`.
    """

    def __init__(
        self,
        params: Any,
        optimizer_class: type[Optimizer],
        process_group: Any = None,
        parameters_as_bucket_view: bool = False,
        overlap_with_ddp: bool = False,
        **defaults: Any,
    ) -> None:
        if overlap_with_ddp:
            raise NotImplementedError("ZeroRedundancyOptimizer(overlap_with_ddp=True) is not supported")
        group = member(process_group)
        if group is None:
            raise ValueError("this process is not in the group that ZeroRedundancyOptimizer was given")
        self.process_group, self._class = group, optimizer_class
        super().__init__(params, dict(defaults))
        self._owner = self._partition()
        mine = group.rank()
        parts = []
        for one in self.param_groups:
            part = {k: v for k, v in one.items() if k != "params"}
            parts.append({**part, "params": [p for p in one["params"] if self._owner[id(p)] == mine]})
        self._used = [i for i, part in enumerate(parts) if part["params"]]
        chosen = [parts[i] for i in self._used]
        self.optim: Optimizer | None = optimizer_class(chosen, **defaults) if chosen else None
        for i, part in zip(self._used, self.optim.param_groups if self.optim else ()):
            for key, value in part.items():  # defaults of the optimizer's own
                self.param_groups[i].setdefault(key, value)
        self._whole: dict[str, Any] | None = None

    def _partition(self) -> dict[int, int]:
        """Parameter -> rank: the largest first, each to the process that has the least."""
        loads = [0] * self.process_group.size()
        owner: dict[int, int] = {}
        everything = [p for one in self.param_groups for p in one["params"]]
        for parameter in sorted(everything, key=lambda p: -p.numel()):
            rank = loads.index(min(loads))
            loads[rank] += parameter.numel()
            owner[id(parameter)] = rank
        return owner

    def step(self, closure: Callable[[], Any] | None = None, **kwargs: Any) -> Any:
        """Update this process's part, then take the others' from their processes."""
        if self.optim is None:
            loss = closure() if closure is not None else None
        else:
            for i, part in zip(self._used, self.optim.param_groups):  # schedulers write to these groups
                part.update({k: v for k, v in self.param_groups[i].items() if k != "params"})
            loss = self.optim.step(closure, **kwargs)
        with no_grad():
            for rank in range(self.process_group.size()):
                self._exchange(rank)
        return loss

    def _exchange(self, rank: int) -> None:
        """Everybody's parameters of process `rank` become its own."""
        by_dtype: dict[Any, list[Any]] = {}
        for one in self.param_groups:
            for parameter in one["params"]:
                if self._owner[id(parameter)] == rank:
                    by_dtype.setdefault(parameter.dtype, []).append(parameter)
        for parameters in by_dtype.values():
            flat = torch.cat([p.detach().reshape(-1) for p in parameters])
            broadcast(flat, group=self.process_group, group_src=rank)
            if rank == self.process_group.rank():
                continue
            at = 0
            for parameter in parameters:
                parameter.copy_(flat[at : at + parameter.numel()].view(parameter.shape))
                at += parameter.numel()

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Bring the whole state to process `to`; all call it."""
        everything = [p for one in self.param_groups for p in one["params"]]
        state = self.optim.state if self.optim else {}
        mine = {i: state[p] for i, p in enumerate(everything) if p in state}
        found: list[Any] | None = [None] * self.process_group.size() if self.process_group.rank() == to else None
        gather_object(mine, found, group=self.process_group, group_dst=to)
        self._whole = None
        if found is not None:
            merged: dict[int, Any] = {}
            for part in found:
                merged.update(part)
            numbers = {id(p): i for i, p in enumerate(everything)}
            groups = [{**one, "params": [numbers[id(p)] for p in one["params"]]} for one in self.param_groups]
            self._whole = {"state": dict(sorted(merged.items())), "param_groups": groups}

    def state_dict(self) -> dict[str, Any]:
        """The whole state.  RuntimeError before `consolidate_state_dict`, and in other processes than its `to`."""
        if self._whole is None:
            raise RuntimeError(
                "Optimizer state has not been consolidated on this rank. Please call `consolidate_state_dict(to="
                f"{self.process_group.rank()})` on all ranks beforehand if you meant to save the global state."
            )
        return self._whole

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take this process's part of a whole state."""
        everything = [p for one in self.param_groups for p in one["params"]]
        for one, saved in zip(self.param_groups, state_dict["param_groups"]):
            one.update({k: v for k, v in saved.items() if k != "params"})
        if self.optim is None:
            return
        numbers = {id(p): i for i, p in enumerate(everything)}
        own = [p for part in self.optim.param_groups for p in part["params"]]
        state = {
            i: state_dict["state"][numbers[id(p)]] for i, p in enumerate(own) if numbers[id(p)] in state_dict["state"]
        }
        groups, at = [], 0
        for i, part in zip(self._used, self.optim.param_groups):
            count = len(part["params"])
            kept = {k: v for k, v in self.param_groups[i].items() if k != "params"}
            groups.append({**kept, "params": list(range(at, at + count))})
            at += count
        self.optim.load_state_dict({"state": state, "param_groups": groups})
