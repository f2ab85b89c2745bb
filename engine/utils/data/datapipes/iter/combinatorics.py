"""torch.utils.data.datapipes.iter.combinatorics' name."""

from engine.utils.data.datapipes.iter import Shuffler

__all__ = ["ShufflerIterDataPipe"]

ShufflerIterDataPipe = Shuffler
