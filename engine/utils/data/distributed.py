"""`DistributedSampler`: each process its share of the data.

https://docs.pytorch.org/docs/2.13/data.html#torch.utils.data.distributed.DistributedSampler
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from engine.ops import functions as torch
from engine.random import Generator
from engine.utils.data.sampler import Sampler

__all__ = ["DistributedSampler"]


class DistributedSampler(Sampler[int]):
    """Every `num_replicas`-th index from `rank` on, of an order that all processes agree on by `seed` and epoch.

    The order is made longer by its own start, or cut (drop_last), until it divides.  Call `set_epoch(n)` before each
    epoch, or the order stays.  num_replicas and rank come from `engine.distributed` when not given (RuntimeError
    without it).  ValueError for a rank out of range.
    """

    def __init__(
        self,
        dataset: Any,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        if num_replicas is None or rank is None:
            from engine import distributed  # for its weight: every loader imports this module

            if not distributed.is_available():
                raise RuntimeError("Requires distributed package to be available")
            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        if rank >= num_replicas or rank < 0:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank
        self.epoch, self.shuffle, self.seed, self.drop_last = 0, shuffle, seed, drop_last
        count = len(dataset)
        if drop_last and count % num_replicas:
            self.num_samples = -(-(count - num_replicas) // num_replicas)
        else:
            self.num_samples = -(-count // num_replicas)
        self.total_size = self.num_samples * num_replicas

    def __iter__(self) -> Iterator[int]:
        count = len(self.dataset)
        if self.shuffle:
            generator = Generator()
            generator.manual_seed(self.seed + self.epoch)
            indices = torch.randperm(count, generator=generator).tolist()
        else:
            indices = list(range(count))
        if not self.drop_last and indices:
            missing = self.total_size - count
            indices += (indices * -(-missing // count))[:missing]
        return iter(indices[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples

    def set_epoch(self, epoch: int) -> None:
        """Another order in another epoch, the same in all processes."""
        self.epoch = epoch
