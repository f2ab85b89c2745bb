"""The families that come at the first use of one of their names: see engine/dispatch/README.md."""

from engine import dispatch
from engine.ops import (  # noqa: F401
    activation,
    alignment,
    along,
    aten_operators,
    attention,
    audio,
    complex,
    convolution,
    coo,
    copies,
    distance,
    loss,
    nn,
    norm,
    numerical,
    pooling,
    rearranging,
    recurrent,
    sampling,
    scan,
    softmax,
    sorting,
    special,
    spectral,
    spectral_old,
    statistics,
    typed,
)
from engine.ops.activation import elu, gated  # noqa: F401
from engine.ops.attention import fused  # noqa: F401
from engine.ops.linalg import contractions, eigen, factor, ldl, norms, old_names, systems  # noqa: F401
from engine.ops.loss import cross_entropy, ctc, margin  # noqa: F401
from engine.ops.norm import groups, local_response, native, rms  # noqa: F401
from engine.ops.pooling import adaptive  # noqa: F401
from engine.ops.products import addmm  # noqa: F401
from engine.ops.random import dropout  # noqa: F401
from engine.ops.recurrent import network  # noqa: F401

dispatch.all_imported()
