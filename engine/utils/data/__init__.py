"""Data sets, samplers, and the DataLoader that makes batches of them.

https://docs.pytorch.org/docs/2.13/data.html
"""

from typing import TYPE_CHECKING

from engine.utils.data import dataloader, dataset, distributed, sampler
from engine.utils.data.dataloader import (
    DataLoader,
    _DatasetKind,
    default_collate,
    default_convert,
    get_worker_info,
)
from engine.utils.data.dataset import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
)
from engine.utils.data.distributed import DistributedSampler
from engine.utils.data.sampler import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

if TYPE_CHECKING:
    from engine.utils.data import datapipes as datapipes
    from engine.utils.data import graph_settings as graph_settings
    from engine.utils.data.datapipes import IterDataPipe as IterDataPipe
    from engine.utils.data.datapipes import MapDataPipe as MapDataPipe
    from engine.utils.data.datapipes import functional_datapipe as functional_datapipe
else:

    def __getattr__(name: str) -> object:
        """The data pipes, imported at first use."""
        import importlib

        if name in ("IterDataPipe", "MapDataPipe", "functional_datapipe"):
            return getattr(importlib.import_module("engine.utils.data.datapipes"), name)
        if name in ("datapipes", "graph_settings"):
            return importlib.import_module(f"engine.utils.data.{name}")
        raise AttributeError(f"module 'engine.utils.data' has no attribute '{name}'")


__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "_DatasetKind",
    "dataloader",
    "dataset",
    "default_collate",
    "default_convert",
    "distributed",
    "get_worker_info",
    "random_split",
    "sampler",
]
