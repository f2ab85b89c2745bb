from engine.ops.convolution import *  # noqa
from engine.ops.padding import *  # noqa
from engine.ops.pooling import *  # noqa
from engine.ops.resample import *  # noqa
