"""`out=`: results stored into tensors of the caller's, with torch's checks.

What a loop over elements writes is cast into the dtype of `out`, where that loses no kind of number; other functions
want the very dtype of their result.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from engine.autograd.graph import registered
from engine.autograd.inplace import check_writable
from engine.core import dtypes
from engine.core.grad_mode import mode
from engine.dispatch.arguments import argument_error
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.dispatch.gate import Call

    class Stored(Protocol):
        """What the record of an op, or what stands for one, says of its `out=`."""

        @property
        def called(self) -> str: ...
        @property
        def out_as(self) -> str: ...
        @property
        def out_label(self) -> str: ...

    Out = Tensor | tuple[Tensor, ...] | list[Tensor]

__all__ = ["check_dtype", "store", "store_detached", "store_result", "write_out"]

# functions whose `out=` must have the dtype of the result, with torch's sentence of a refusal; {want} and {have} are
# the names of C++ types, {Want} and {Have} those of dtypes
_SENTENCES = {
    "Expected out tensor to have dtype {want}, but got {have} instead": """
        addmm addmv aminmax argmax argmin avg_pool2d avg_pool3d baddbmm bmm diag_embed gather index_add
        index_copy index_reduce isin linalg_cross linear matrix_diagonal max_dim min_dim mm msort scatter
        scatter_add scatter_reduce scatter_src scatter_value slice_scatter sort take_along_dim topk tril triu
    """,
    "Found dtype {Have} but expected {Want}": "abs bitwise_not ceil conj_physical floor neg round sgn sign trunc",
    "expected scalar_type {Want} but found {Have}": "cummax cummin diff",
    "Expected object of scalar type {Want} but got scalar type {Have} for argument 'out'": "complex polar",
    "Expected result to be of dtype uint64, but got {Have}": "hash_tensor",
    "expected scalar type {Want} but found {Have}": "_native_batch_norm_legit native_batch_norm",
    "result dtype {Have} does not match input dtype {Want}": "dot vdot",
    "addmv input tensors must have the same dtype, but got {Want}, {Want}, and {Have}": "mv",
    "Expected the dtype for input and out to match, but got {Want} for input's dtype and {Have} for out's dtype.": """
        amax amin
    """,
    "{name}: Expected the output tensor to have dtype {Want}, but got an output tensor with dtype {Have}": """
        tensordot inner
    """,
    "{name} only supports bool tensor for result, got: {Have}": "all all_dim any any_dim all_dims any_dims",
    "{name} does not support non-boolean outputs.": "isneginf isposinf signbit",
    "heaviside is not yet implemented for tensors with different dtypes.": "heaviside",
    "{name}(): self and result must have the same scalar type": "index_select masked_select",
    "output values must be of same type as input": "kthvalue",
    "expected scalar type '{Want}' but got '{Have}' for values output": "mode",
    "multinomial expects {Want} tensor out, got: {Have}": "multinomial",
    "nan_to_num: dtype of out: {Have} should be same as input: {Want}": "nan_to_num",
    "nonzero: Expected out tensor to have scalar type {Want} but got scalar type{Have}": "nonzero nonzero_rows",
    "take(): self and out expected to have the same dtype, but got self.dtype = {Want} and out.dtype = {Have}": "take",
    "Expected out type to be {Want} but got {Have}": "where where_tensors",
    "self and mat2 must have the same dtype, but got {Have} and {Want}": "addbmm matmul",
    "torch.searchsorted(): output tensor's dtype is wrong, it can only be Int(int32) or Long(int64) depending on "
    "whether out_int32 flag is True, but we got output tensor's dtype {Have} and out_int32 flag is False": (
        "search_sorted"
    ),
    "Expected self.dtype() == output.dtype() to be true, but got false.  (Could this error message be improved?  If "
    "so, please report an enhancement request to PyTorch.)": "narrow_copy",
    "torch.cat(): input types can't be cast to the desired output type {Have}": "_chunk_cat cat stack_tensors",
    "{name}(): expected out tensor to have dtype {want} but got {have}": "multi_dot",
}
_EXACT = {name: sentence for sentence, names in _SENTENCES.items() for name in names.split()}
_COPIES = next(iter(_SENTENCES))


def check_dtype(record: Stored, want: dtypes.dtype, have: dtypes.dtype) -> None:
    """Raise torch's error unless a result of dtype `want` may be stored in an `out=` of dtype `have`."""
    if want is have:
        return
    name = getattr(record, "name", record.called)
    if record.out_label and want.category == dtypes.FLOATING and have.category < dtypes.FLOATING:
        raise NotImplementedError(f"\"{record.out_label}\" not implemented for '{dtypes.scalar_name(have)}'")
    sentence = _EXACT.get(name) or _EXACT.get(record.called)
    if sentence is None and name.endswith("_copy"):
        sentence = _COPIES
    joins = name in ("_chunk_cat", "cat", "stack_tensors")
    if name == "bernoulli" or (joins and dtypes.can_cast(want, have)):
        return
    if sentence is not None:
        error = TypeError if joins else RuntimeError
        raise error(
            sentence.format(
                name=record.called,
                want=dtypes.cpp_name(want),
                have=dtypes.cpp_name(have),
                Want=dtypes.scalar_name(want),
                Have=dtypes.scalar_name(have),
            )
        )
    if not dtypes.can_cast(want, have):
        raise RuntimeError(
            f"result type {dtypes.scalar_name(want)} can't be cast to the desired output type "
            f"{dtypes.scalar_name(have)}"
        )


def check_apart(target: object, other: object) -> None:
    """Raise torch's error where an `out=` and an operand share memory, all of it or a part."""
    if isinstance(target, np.ndarray) and isinstance(other, np.ndarray) and np.may_share_memory(target, other):
        raise RuntimeError(
            "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single "
            "memory location. Please clone() the tensor before performing the operation."
        )


def _detached(args: Iterable[object]) -> list[object]:
    """Arguments with each tensor, also in a tuple, without history."""
    return [a.detach() if isinstance(a, Tensor) else tuple(map(_plain, a)) if isinstance(a, tuple) else a for a in args]


def _plain(value: object) -> object:
    return value.detach() if isinstance(value, Tensor) else value


def _copied(
    record: Stored, function: Call, out: Out, outs: list[Tensor], args: Iterable[object], kwargs: dict[str, object]
) -> Out:
    """The results with their history, copied into `outs`."""
    result = function(*args, **kwargs)
    results = list(result) if isinstance(result, tuple) else [result]
    for target, value in zip(outs, results):
        check_dtype(record, value.dtype, target.dtype)
        if target._array.shape != value._array.shape:
            registered.resize_out(target, value._array.shape)
        registered.copy_(target, value)
    return out


def write_out(record: Stored, function: Call, out: Out, *args: object, **kwargs: object) -> Out:
    """`out=`: the op without history, stored into `out`, which is resized if it is empty or of another shape."""
    outs: list[Tensor] = list(out) if isinstance(out, tuple | list) else [out]
    for target in outs:
        if not isinstance(target, Tensor):
            raise argument_error(record.called, None, "out", "Tensor", target)
    for a in (*args, *kwargs.values()):
        if isinstance(a, dtypes.dtype) and outs[0].dtype is not a:
            names = dtypes.cpp_name(a), dtypes.cpp_name(outs[0].dtype)
            raise RuntimeError(f"Expected out tensor to have dtype {names[0]}, but got {names[1]} instead")
    tensors = [a for a in args if isinstance(a, Tensor)]
    for a in args:
        if isinstance(a, tuple | list):
            tensors += [t for t in a if isinstance(t, Tensor)]
    if mode.enabled and any(t.requires_grad for t in tensors + outs):
        if "graph" in record.out_as:
            return _copied(record, function, out, outs, args, kwargs)
        if "detached" in record.out_as:
            return write_out(record, function, tuple(t.detach() for t in outs), *_detached(args), **kwargs)
        raise RuntimeError(
            f"{record.called}(): functions with out=... arguments don't support automatic differentiation, but one of "
            "the arguments requires grad."
        )
    fits = record.called in ("cumsum", "cumprod") or (tensors and dtypes.can_cast(tensors[0].dtype, outs[0].dtype))
    if "dtype" in record.out_as and fits and kwargs.get("dtype") is None:
        kwargs["dtype"] = outs[0].dtype
    enabled, mode.enabled = mode.enabled, False
    try:
        result = function(*args, **kwargs)
    finally:
        mode.enabled = enabled
    results = list(result) if isinstance(result, tuple) else [result]
    if len(results) != len(outs):
        raise TypeError(f"{record.called}(): out must hold {len(results)} Tensors, got {len(outs)}")
    disjoint, unexpanded = "disjoint" in record.out_as, "unexpanded" in record.out_as
    for target, value in zip(outs, results):
        check_dtype(record, value.dtype, target.dtype)
        if target._array.shape == value._array.shape or unexpanded:
            check_writable(target)
        if disjoint:
            for t in tensors:
                check_apart(target._array, t._array)
    for target, value in zip(outs, results):  # nothing is refused from here on
        if target._array.shape != value._array.shape:
            registered.resize_out(target, value._array.shape)
        target._array[...] = value._array
        target._vc[0] += 1
    return out


def store(out: Out, name: str, function: Call, *args: object, **kwargs: object) -> Out:
    """`out=` of a function that is no op: its result, stored into `out` as its option `out_as` says."""
    facts = getattr(function, "facts", {})
    record = SimpleNamespace(called=name, out_as=facts.get("out_as", ""), out_label=facts.get("out_label", ""))
    return write_out(record, function, out, *args, **kwargs)


def store_result(out: Out, name: str, function: Call, *args: object, **kwargs: object) -> Out:
    """`out=` of a case in which torch copies a result that has its own history: `out` becomes a part of the graph."""
    return write_out(SimpleNamespace(called=name, out_as="graph", out_label=""), function, out, *args, **kwargs)


def store_detached(out: Out, name: str, function: Call, *args: object, **kwargs: object) -> Out:
    """`out=` of a case in which torch does not look at the history of operands."""
    return write_out(SimpleNamespace(called=name, out_as="detached", out_label=""), function, out, *args, **kwargs)
