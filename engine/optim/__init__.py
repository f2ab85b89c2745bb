"""Optimizers and learning rate schedules, under torch.optim's names: one file an algorithm.

`optimizer.py` holds the base, `_update.py` runs the kernels in cache-sized blocks.
"""

from engine.optim.adam import Adam
from engine.optim.adamw import AdamW
from engine.optim.optimizer import Optimizer
from engine.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer"]
