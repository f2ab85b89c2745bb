"""The engine's functions for quantized tensors: `call` is where `QuantizedTensor.__torch_function__` leads.

Functions that move elements work on the integers; those that choose elements (relu, max_pool2d, sort) work on the
integers as numbers, and those that average (mean, avg_pool2d, interpolate) on the integers less the zero point, whose
result is rounded: scale and zero point stay.  What has no entry in `FUNCTIONS` runs its own Python code; where that
reaches a kernel, `QuantizedTensor._array` refuses, as torch does (arithmetic is in `torch.ao.nn.quantized`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.dispatch.overriding import plain
from engine.tensor import Tensor, wrap

if TYPE_CHECKING:
    from engine.encoded.quantized import QuantizedTensor

__all__ = ["call", "names"]

FUNCTIONS: dict[str, Callable[..., Any]] = {}

_MOVES = """
reshape view flatten unflatten ravel permute transpose t swapaxes swapdims movedim moveaxis squeeze unsqueeze narrow
select expand repeat tile flip fliplr flipud roll chunk split unbind tensor_split pixel_shuffle pixel_unshuffle
channel_shuffle index_select take_along_dim gather masked_select __getitem__ contiguous diagonal unfold
"""
_CHOOSES = """
relu relu_ max_pool1d max_pool2d max_pool3d max min maximum minimum amax amin sort topk clone
"""
_AVERAGES = """
mean avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d interpolate upsample
upsample_nearest upsample_bilinear
"""
_COMPARES = "eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ isclose allclose"


def call(cls: type[QuantizedTensor], func: Any, types: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what a function gives that is called with quantized tensors among its arguments."""
    if not all(issubclass(cls, t) or issubclass(Tensor, t) for t in types):
        return NotImplemented
    own = FUNCTIONS.get(func.__name__)
    if own is not None:
        return own(func, *args, **kwargs)
    return plain(func)(*args, **kwargs)


def _is_quantized(value: Any) -> bool:
    return isinstance(value, Tensor) and bool(value.is_quantized)


def names() -> set[str]:
    """Return the names of the functions that are handled."""
    return set(FUNCTIONS)


def _entry(words: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(words.split(), function))
        return function

    return add


def _map(result: Any, again: Callable[[Tensor], Any]) -> Any:
    """Apply `again` to the float tensors of a result; indices and numbers stay."""
    if isinstance(result, Tensor):
        return again(result) if result.is_floating_point() else result
    if isinstance(result, tuple | list):
        parts = [_map(each, again) for each in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _moved(func: Any, input: QuantizedTensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call on the integers as int32, which every function that moves elements takes."""
    if input._axis is not None:
        raise NotImplementedError(f"{func.__name__} of a tensor that is quantized by channel; use dequantize() first")
    result = func(wrap(input._q.astype(np.int32)), *args, **kwargs)

    def again(each: Any) -> Any:
        if isinstance(each, tuple | list):
            return type(each)(again(one) for one in each)
        return input._like(np.ascontiguousarray(each.numpy()).astype(input._q.dtype))

    return again(result)


@_entry(_MOVES)
def _moves(func: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
    return _moved(func, input, args, kwargs)


@_entry(_CHOOSES)
def _chooses(func: Any, input: QuantizedTensor, *args: Any, **kwargs: Any) -> Any:
    """Integers less the zero point have the order and the sign of the values."""
    _whole(func, input)
    others = tuple(_beside(func, input, each) if _is_quantized(each) else each for each in args)
    result = _map(func(_centred(input), *others, **kwargs), lambda each: _requantized(input, each))
    if func.__name__[-1] == "_":
        input._q[...] = result._q
        return input
    return result


@_entry(_AVERAGES)
def _averages(func: Any, input: QuantizedTensor, *args: Any, **kwargs: Any) -> Any:
    _whole(func, input)
    return _map(func(_centred(input), *args, **kwargs), lambda each: _requantized(input, each))


@_entry("clamp clip hardtanh relu6 leaky_relu gelu threshold masked_fill pad")
def _same(func: Any, input: QuantizedTensor, *args: Any, **kwargs: Any) -> Any:
    """Functions of the values whose result has the scale and the zero point of the input."""
    _whole(func, input)
    return input._like(_integers(func(input.dequantize(), *args, **kwargs), input))


@_entry("sigmoid hardsigmoid tanh")
def _fixed(func: Any, input: QuantizedTensor, *args: Any, **kwargs: Any) -> Any:
    """Functions with a known range: their result covers it."""
    _whole(func, input)
    wide = func.__name__ == "tanh"
    limits = np.iinfo(input._q.dtype)
    zero = (limits.min + limits.max + 1) // 2 if wide else int(limits.min)
    like = input._with_scale((2.0 if wide else 1.0) / 256.0, zero)
    return like._like(_integers(func(input.dequantize(), *args, **kwargs), like))


@_entry("cat concat concatenate stack")
def _joined(func: Any, tensors: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """Joined with the scale and the zero point of the first."""
    first = tensors[0]
    if not all(_is_quantized(each) for each in tensors):
        raise RuntimeError(f"{func.__name__}: quantized and other tensors cannot be joined; use dequantize() first")
    _whole(func, first)
    parts = [wrap(_integers(each.dequantize(), first).astype(np.int32)) for each in tensors]
    return first._like(func(parts, *args, **kwargs).numpy().astype(first._q.dtype))


@_entry(_COMPARES)
def _compares(func: Any, input: Any, other: Any, *args: Any, **kwargs: Any) -> Any:
    values = [each.dequantize() if _is_quantized(each) else each for each in (input, other)]
    return func(*values, *args, **kwargs)


@_entry("item")
def _item(func: Any, input: QuantizedTensor) -> float:
    return float(input.dequantize().item())


@_entry("copy_")
def _copied(func: Any, input: Any, src: Any, non_blocking: bool = False) -> Any:
    """Quantized anew from floats; from a quantized tensor, its integers and parameters."""
    if not _is_quantized(input):
        return func(input, src.dequantize(), non_blocking)
    if _is_quantized(src):
        if src._q.dtype != input._q.dtype:
            raise RuntimeError("Quantized Copy only works with same Quantized dtype")
        input._q[...] = src._q
        input.__dict__.update(_scale=src._scale, _zero=src._zero, _axis=src._axis)
    else:
        input._q[...] = _integers(src, input)
    return input


@_entry("dropout dropout1d dropout2d dropout3d")
def _dropped(func: Any, input: QuantizedTensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if training and p:
        raise NotImplementedError(f"{func.__name__} of a quantized tensor in training; call eval() first")
    return input


def _whole(func: Any, input: Any) -> None:
    if not _is_quantized(input):
        raise NotImplementedError(f"{func.__name__} of a tensor and a quantized tensor; use dequantize() first")
    if input._axis is not None:
        raise NotImplementedError(f"{func.__name__} of a tensor that is quantized by channel; use dequantize() first")


def _centred(input: QuantizedTensor) -> Tensor:
    """The integers less the zero point (*), float32: the values in units of the scale."""
    return wrap(input._q.astype(np.float32) - np.float32(input._zero))


def _beside(func: Any, input: QuantizedTensor, other: QuantizedTensor) -> Tensor:
    if (other._scale, other._zero) != (input._scale, input._zero):
        raise NotImplementedError(f"{func.__name__} of tensors of two scales; use dequantize() first")
    return _centred(other)


def _requantized(input: QuantizedTensor, centred: Tensor) -> QuantizedTensor:
    """Multiples of the scale, rounded to whole ones, as a tensor with the parameters of `input`."""
    limits = np.iinfo(input._q.dtype)
    q = np.rint(centred.numpy()) + np.float32(input._zero)
    return input._like(np.asarray(np.clip(q, limits.min, limits.max)).astype(input._q.dtype))


def _integers(values: Tensor, like: QuantizedTensor) -> np.ndarray:
    """Float values as the integers that stand for them in `like`."""
    limits = np.iinfo(like._q.dtype)
    q = np.rint(values.numpy() * (np.float32(1) / np.float32(like._scale))) + np.float32(like._zero)
    return np.asarray(np.clip(q, limits.min, limits.max)).astype(like._q.dtype)
