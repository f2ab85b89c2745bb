"""Activations with `inplace=`, softmax with an implicit dim, and dropouts, as torch.nn.functional has them."""

from __future__ import annotations

import functools
import warnings
from typing import Any

from engine.dispatch.out import store
from engine.ops import functions as torch
from engine.tensor import Tensor


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """input where above `threshold`, else `value`.  input (*) -> (*)."""
    function = torch.threshold_ if inplace else torch.threshold
    return function(input, threshold, value)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(input, 0).  input (*) -> (*)."""
    return torch.relu_(input) if inplace else torch.relu(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """a * sigmoid(b), input halved along `dim` into a and b.  input (*, 2n, *) -> (*, n, *)."""
    if input.dim() == 0:
        raise RuntimeError("glu does not support scalars because halving size must be even")
    return _op("glu")(input, dim)


@functools.cache
def _op(name: str) -> Any:
    """An op that may not be public, such as torch._C._nn's."""
    from engine.dispatch import COMPOSITES, OPS
    from engine.ops.activation import elu, gated  # noqa: F401  (nobody may have used one of its names yet)

    found = OPS.get(name)
    return COMPOSITES[name] if found is None else found.function


@functools.cache
def _op_(name: str) -> Any:
    """Its in-place twin."""
    from engine.dispatch import COMPOSITES, OPS
    from engine.ops.activation import elu, gated  # noqa: F401

    found = OPS.get(name)
    if found is None or found.inplace_function is None:
        return COMPOSITES[name + "_"]
    return found.inplace_function


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """input clipped to [min_val, max_val].  input (*) -> (*)."""
    if min_val > max_val:
        raise ValueError("min_val cannot be greater than max_val")
    return (_op_ if inplace else _op)("hardtanh")(input, min_val, max_val)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input, 0), 6).  input (*) -> (*)."""
    return hardtanh(input, 0.0, 6.0, inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """input where positive, else alpha (exp(input) - 1).  input (*) -> (*)."""
    return (_op_ if inplace else _op)("elu")(input, alpha)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """The self-normalizing ELU (arXiv:1706.02515).  input (*) -> (*)."""
    return torch.selu_(input) if inplace else torch.selu(input)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, input) + min(0, alpha (exp(input / alpha) - 1)).  input (*) -> (*)."""
    return torch.celu_(input, alpha) if inplace else torch.celu(input, alpha)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """input where positive, else negative_slope * input.  input (*) -> (*)."""
    return (_op_ if inplace else _op)("leaky_relu")(input, negative_slope)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """input where positive, else weight * input.  input (N, C, *), weight (1) or (C) -> (N, C, *)."""
    return torch.prelu(input, weight)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """input where positive, else times a slope drawn from [lower, upper] (its mean in evaluation).  (*) -> (*)."""
    return (torch.rrelu_ if inplace else torch.rrelu)(input, lower, upper, training)


def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log(sigmoid(input)).  input (*) -> (*)."""
    if out is not None:
        return store(out, "logsigmoid", _op("logsigmoid"), input)
    return _op("logsigmoid")(input)


def gelu(input: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:
    """input * Phi(input), or by tanh with approximate="tanh" (arXiv:1606.08415).  input (*) -> (*)."""
    if out is not None:
        return store(out, "gelu", _op("gelu"), input, approximate=approximate)
    return _op("gelu")(input, approximate=approximate)


def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """input where |input| > lambd, else 0.  input (*) -> (*)."""
    if out is not None:
        return store(out, "hardshrink", torch.hardshrink, input, lambd)
    return torch.hardshrink(input, lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """input - tanh(input).  input (*) -> (*)."""
    return input - input.tanh()


def softsign(input: Tensor) -> Tensor:
    """input / (1 + |input|).  input (*) -> (*)."""
    return input / (input.abs() + 1)


def softplus(input: Tensor, beta: float = 1, threshold: float = 20, *, out: Tensor | None = None) -> Tensor:
    """log(1 + exp(beta input)) / beta, input itself above the threshold.  input (*) -> (*)."""
    if out is not None:
        return store(out, "softplus", _op("softplus"), input, beta, threshold)
    return _op("softplus")(input, beta, threshold)


def softshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """input moved towards 0 by lambd.  input (*) -> (*)."""
    if out is not None:
        return store(out, "softshrink", _op("softshrink"), input, lambd)
    return _op("softshrink")(input, lambd)


def _get_softmax_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(input) / sum(exp(input)) along `dim`.  input (*) -> (*)."""
    if dim is None:
        dim = _get_softmax_dim("softmax", input.dim(), _stacklevel)
    return input.softmax(dim) if dtype is None else input.softmax(dim, dtype=dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-input) along `dim`.  input (*) -> (*)."""
    if dim is None:
        dim = _get_softmax_dim("softmin", input.dim(), _stacklevel)
    return (-input).softmax(dim) if dtype is None else (-input).softmax(dim, dtype=dtype)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(input)) along `dim`.  input (*) -> (*)."""
    if dim is None:
        dim = _get_softmax_dim("log_softmax", input.dim(), _stacklevel)
    return input.log_softmax(dim) if dtype is None else input.log_softmax(dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample of the Gumbel-softmax (arXiv:1611.00712); `hard`: one-hot forward, soft backward.  logits (*) -> (*)."""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    gumbels = -torch.empty_like(logits).exponential_().log()
    soft = ((logits + gumbels) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.detach().max(dim, keepdim=True)[1]
    one_hot = torch.zeros_like(logits.detach()).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def tanh(input: Tensor) -> Tensor:
    """tanh(input).  input (*) -> (*)."""
    return input.tanh()


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-input)).  input (*) -> (*)."""
    return input.sigmoid()


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(input + 3, 0), 6) / 6.  input (*) -> (*)."""
    return (_op_ if inplace else _op)("hardsigmoid")(input)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """input * sigmoid(input).  input (*) -> (*)."""
    return (_op_ if inplace else _op)("silu")(input)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * tanh(softplus(input)) (arXiv:1908.08681).  input (*) -> (*)."""
    return (_op_ if inplace else _op)("mish")(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """input * hardsigmoid(input) (arXiv:1905.02244).  input (*) -> (*)."""
    return (_op_ if inplace else _op)("hardswish")(input)


# --- dropout


def _check(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training, elements zeroed with probability p, the rest divided by 1 - p.  input (*) -> (*)."""
    _check(p)
    return (torch.dropout_ if inplace else torch.dropout)(input, p, training)


def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance of SELU networks (arXiv:1706.02515).  input (*) -> (*)."""
    _check(p)
    return (torch.alpha_dropout_ if inplace else torch.alpha_dropout)(input, p, training)


def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels.  input (N, C, *) -> same."""
    _check(p)
    return (torch.feature_alpha_dropout_ if inplace else torch.feature_alpha_dropout)(input, p, training)


def _channels(input: Tensor, p: float, training: bool, inplace: bool, batched: bool) -> Tensor:
    if not batched:
        input = input.unsqueeze_(0) if inplace else input.unsqueeze(0)
    result = (torch.feature_dropout_ if inplace else torch.feature_dropout)(input, p, training)
    if not batched:
        result = result.squeeze_(0) if inplace else result.squeeze(0)
    return result


def dropout1d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels.  input (N, C, L) or (C, L) -> same."""
    _check(p)
    ndim = input.dim()
    if ndim not in (2, 3):
        raise RuntimeError(
            f"dropout1d: Expected 2D or 3D input, but received a {ndim}D input. Note that dropout1d exists to provide "
            "channel-wise dropout on inputs with 1 spatial dimension, a channel dimension, and an optional batch "
            "dimension (i.e. 2D or 3D inputs)."
        )
    return _channels(input, p, training, inplace, ndim == 3)


def _warn_dims(n: int, ndim: int) -> None:
    if ndim not in (n + 1, n + 2):
        warnings.warn(
            f"dropout{n}d: Received a {ndim}-D input to dropout{n}d, which is deprecated and will result in an error "
            "in a future release. To retain the behavior and silence this warning, please use dropout instead. Note "
            f"that dropout{n}d exists to provide channel-wise dropout on inputs with {n} spatial dimensions, a "
            f"channel dimension, and an optional batch dimension (i.e. {n + 1}D or {n + 2}D inputs).",
            stacklevel=3,
        )


def dropout2d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels.  input (N, C, H, W) -> same; 3-d input is (N, C, L)."""
    _check(p)
    ndim = input.dim()
    _warn_dims(2, ndim)
    if ndim == 3:
        warnings.warn(
            "dropout2d: Received a 3D input to dropout2d and assuming that channel-wise 1D dropout behavior is "
            "desired - input is interpreted as shape (N, C, L), where C is the channel dim. This behavior will change "
            "in a future release to interpret the input as one without a batch dimension, i.e. shape (C, H, W). To "
            "maintain the 1D channel-wise dropout behavior, please switch to using dropout1d instead.",
            stacklevel=2,
        )
    return _channels(input, p, training, inplace, True)


def dropout3d(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """`dropout` of whole channels.  input (N, C, D, H, W) or (C, D, H, W) -> same."""
    _check(p)
    ndim = input.dim()
    _warn_dims(3, ndim)
    return _channels(input, p, training, inplace, ndim == 5)
