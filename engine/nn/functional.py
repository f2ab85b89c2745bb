from engine.ops.convolution import *  # noqa
from engine.ops.padding import *  # noqa
