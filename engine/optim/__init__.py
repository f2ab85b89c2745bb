"""Optimizers and learning rate schedules, under torch.optim's names: one file an algorithm.

`optimizer.py` holds the base, `_update.py` runs the kernels in cache-sized blocks.
"""

from engine.optim import lr_scheduler, swa_utils
from engine.optim.adadelta import Adadelta
from engine.optim.adafactor import Adafactor
from engine.optim.adagrad import Adagrad
from engine.optim.adam import Adam
from engine.optim.adamax import Adamax
from engine.optim.adamw import AdamW
from engine.optim.asgd import ASGD
from engine.optim.lbfgs import LBFGS
from engine.optim.muon import Muon
from engine.optim.nadam import NAdam
from engine.optim.optimizer import Optimizer
from engine.optim.radam import RAdam
from engine.optim.rmsprop import RMSprop
from engine.optim.rprop import Rprop
from engine.optim.sgd import SGD
from engine.optim.sparse_adam import SparseAdam

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SparseAdam",
    "lr_scheduler",
    "swa_utils",
]
