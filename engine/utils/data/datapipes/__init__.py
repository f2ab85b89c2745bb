"""Data pipes, torch's older way to chain data sets: `pipe.map(f).shuffle().batch(8)`.

The bases, and the pipes that the packages met so far use; https://docs.pytorch.org/docs/2.13/data.html
"""

from engine.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe, functional_datapipe

__all__ = ["IterDataPipe", "MapDataPipe", "functional_datapipe"]
