"""Errors of the whole table for wrong arguments: type and first line as torch 2.13 raised them for the same call.

`data/messages_arguments.json` holds [call, type, sentence], recorded from torch.  In a call `r(2, 3)` is random float64
and `f` float32; `i` int64, `j` int32, `b` bool, `c` complex64 and `z` complex128 are of ones, `a` has given values.
"""

from __future__ import annotations

import inspect
import json
import re
import warnings
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
import engine.fft
import engine.linalg
import engine.nn.functional as F
import engine.special
from engine.dispatch import COMPOSITES, OPS
from engine.dispatch.arguments import Arguments, check_arguments, checked, kind
from engine.tensor import Tensor

ROWS = json.loads((Path(__file__).parent / "data" / "messages_arguments.json").read_text())


def _called(row: list[str]) -> str:
    """The function of a row: `T.softmax`, or `Tensor.view` for `r(2, 3).view(...)`."""
    method = re.match(r"[a-z]\([^()]*\)\.(\w+)\(", row[0])
    return f"Tensor.{method[1]}" if method else row[0].partition("(")[0]


BY_FUNCTION = {n: list(rows) for n, rows in groupby(sorted(ROWS, key=_called), _called)}


def _ones(dtype: Any) -> Any:
    return lambda *size: engine.ones(size, dtype=dtype)


NAMES = {
    "T": engine,
    "F": F,
    "r": lambda *size: engine.rand(size, dtype=engine.float64),
    "f": lambda *size: engine.rand(size),
    "i": _ones(engine.int64),
    "j": _ones(engine.int32),
    "b": _ones(engine.bool),
    "c": _ones(engine.complex64),
    "z": _ones(engine.complex128),
    "a": lambda x, dtype: engine.tensor(x, dtype=getattr(engine, dtype)),
}


def answer(call: str) -> tuple[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine.manual_seed(0)
        try:
            eval(call, dict(NAMES))
        except Exception as error:
            return type(error).__name__, str(error).split("\n")[0].strip()
    return "", "accepted"


@pytest.mark.parametrize("function", BY_FUNCTION)
def test_the_error_is_torchs(function: str) -> None:
    wrong = {
        call: (*found, "not", kind, sentence)
        for call, kind, sentence in BY_FUNCTION[function]
        if (found := answer(call)) != (kind, sentence)
    }
    assert not wrong


# --- the mechanism


@checked
def _scaled(
    input: Tensor,
    dim: int,
    p: float = 2.0,
    *,
    keepdim: bool = False,
    size: int | tuple[int, ...] = 1,
):  # type: ignore[no-untyped-def]
    return input, dim, p, keepdim, size


X = engine.ones(2)


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((X, 1), {}),
        ((X, np.int64(1), 3), {"keepdim": np.bool_(True)}),
        ((X, engine.tensor(1), True), {"size": (1, 2)}),
        ((X, 0, engine.tensor(2.0)), {"size": [1, np.int32(2)]}),
        ((X, 0), {"size": engine.Size((3,))}),
    ],
)
def test_what_torchs_parser_takes_is_taken(args: Any, kwargs: Any) -> None:
    found = _scaled(*args, **kwargs)
    assert found[: len(args)] == args
    assert {type(x) for x in found[1:4]} <= {int, float, bool}  # of numpy and of tensors: plain numbers
    assert {type(x) for x in (found[4] if isinstance(found[4], tuple | list) else [found[4]])} == {int}


def test_numbers_of_numpy_and_of_tensors_reach_the_kernels_as_pythons() -> None:
    x = engine.arange(6.0).reshape(2, 3)
    one, flag = engine.tensor(1), np.bool_(True)
    for dim in (np.int64(1), np.int32(1), one):
        assert engine.equal(x.sum(dim, keepdim=flag), x.sum(1, keepdim=True))
        assert engine.equal(x.roll(dim, dim), x.roll(1, 1))
    assert engine.equal(x.sum([np.int64(0), one]), x.sum())
    assert engine.equal(F.leaky_relu(-x, engine.tensor(0.5)), -x * 0.5)
    assert engine.equal(engine.clamp(x, engine.tensor(1.0), 2), engine.clamp(x, 1.0, 2.0))
    assert engine.tensor(3.0).sum([0]) == 3.0


@pytest.mark.parametrize(
    "args, kwargs, sentence",
    [
        ((3, "x"), {}, "argument 'input' (position 1) must be Tensor, not int"),
        ((X, True), {}, "argument 'dim' (position 2) must be int, not bool"),
        ((X, 1.5), {}, "argument 'dim' (position 2) must be int, not float"),
        ((X, X), {}, "argument 'dim' (position 2) must be int, not Tensor"),
        ((X, 0, 1j), {}, "argument 'p' (position 3) must be float, not complex"),
        ((X, 0, None), {}, "argument 'p' (position 3) must be float, not NoneType"),
        ((X, 0), {"keepdim": 1}, "argument 'keepdim' must be bool, not int"),
        ((X, 0), {"size": "a"}, "argument 'size' must be tuple of ints, not str"),
        (
            (X, 0),
            {"size": (1, 2.0)},
            "argument 'size' failed to unpack the object at pos 2 with error "
            '"type must be tuple of ints,but got float"',
        ),
    ],
)
def test_the_first_wrong_argument_is_named(args: Any, kwargs: Any, sentence: str) -> None:
    with pytest.raises(TypeError) as caught:
        _scaled(*args, **kwargs)
    assert str(caught.value) == f"_scaled(): {sentence}"


def test_several_signatures_make_a_wrong_combination() -> None:
    arguments = Arguments((kind("input", "Tensor"), kind("dim", "int", 0)), ((1, 2), (2, 3)))
    with pytest.raises(TypeError, match=r"f\(\): argument 'input' \(position 1\) must be Tensor, not str"):
        check_arguments(arguments, "f", ("a", 0))  # one argument: the first signature
    with pytest.raises(
        TypeError,
        match=r"f\(\) received an invalid combination of arguments - got \(str, int\), but",
    ):
        check_arguments(arguments, "f", ("a", 1))


def test_a_checked_function_keeps_its_signature_and_doc() -> None:
    function = COMPOSITES["cosine_similarity"]
    assert list(inspect.signature(function).parameters) == ["x1", "x2", "dim", "eps"]
    assert function.__doc__ and function.__name__ == "cosine_similarity"


def test_annotations_name_kinds_that_are_checked() -> None:
    """A misspelt annotation would silently check nothing."""
    known = {
        "Any",
        "bool",
        "builtins.bool",
        "device",
        "dtypes.dtype",
        "dtypes.dtype | None",
        "int | None",
        "Sequence",
    }
    functions = {**{n: r.kernel for n, r in OPS.items()}, **COMPOSITES}
    unknown = {}
    for name, function in functions.items():
        for p, annotation in function.__annotations__.items():
            if p != "return" and not kind(p, annotation).allowed and annotation not in known:
                unknown[name, p] = annotation
    assert not unknown


@pytest.mark.parametrize(
    "refused",
    [
        lambda x: x.add_("a"),
        lambda x: x.add_(engine.ones(5)),
        lambda x: x.mul_(1j),
        lambda x: x.clamp_("a"),
        lambda x: x.index_add_(0, engine.tensor([0, 7]), engine.ones(2, 3)),
        lambda x: x.scatter_(1, engine.tensor([[0, 9]]), 5.0),
        lambda x: x.masked_fill_(engine.tensor([True, False]), 5.0),
        lambda x: engine.add(x, engine.ones(2), out=x),
        lambda x: engine.softmax(x, 5, out=x),
    ],
)
def test_nothing_is_written_by_a_refused_operation(refused: Any) -> None:
    x = engine.arange(6.0).reshape(2, 3)
    before, version = x.clone(), x._version
    with pytest.raises((TypeError, RuntimeError, IndexError)):
        refused(x)
    assert x.shape == before.shape and engine.equal(x, before) and x._version == version


def test_what_numpy_raises_in_a_kernel_names_function_shapes_and_dtypes() -> None:
    from engine.dispatch.runtime import refused

    with pytest.raises(RuntimeError) as caught:
        refused(OPS["mm"], ValueError("cannot reshape array of size 6 into shape (4,)"), np.ones((2, 3)))
    assert str(caught.value) == (
        "mm(): cannot reshape array of size 6 into shape (4,); the tensors are [2, 3] (torch.float64)"
    )
    broadcast = ValueError("operands could not be broadcast together with shapes (3,8) (3,4) ")
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(8\) must match the size of tensor b \(4\)"):
        refused(OPS["mm"], broadcast, np.ones((3, 8)))


def test_what_the_engine_raised_is_not_taken_for_numpys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the engine lies: `/home/me/numpy-models/engine` says nothing."""
    from engine.dispatch import runtime

    def kernel() -> None:
        raise ValueError("min_val cannot be greater than max_val")

    moved = kernel.__code__.replace(co_filename="/home/me/numpy-models/engine/ops/nn/activation.py")
    monkeypatch.setattr(kernel, "__code__", moved)
    with pytest.raises(ValueError) as ours:
        kernel()
    assert not runtime._raised_by_numpy(ours.value)
    with pytest.raises(ValueError) as numpys:
        np.moveaxis(np.ones((2, 2)), (0, 0), (0, 1))
    assert runtime._raised_by_numpy(numpys.value)


NUMPYS = {
    "stack": lambda t, x, i: (t.stack([x, x], axis=1), t.stack([x, x], 1)),
    "unsqueeze": lambda t, x, i: (x.unsqueeze(axis=1), x.unsqueeze(1)),
    "squeeze_": lambda t, x, i: (x.clone()[None].squeeze_(axis=0), x),
    "gather": lambda t, x, i: (t.gather(x, axis=1, index=i), t.gather(x, 1, i)),
    "scatter_add_": lambda t, x, i: (x.clone().scatter_add_(axis=0, index=i, src=x), x.clone().scatter_add_(0, i, x)),
    "index_fill": lambda t, x, i: (x.index_fill(axis=1, index=i[0], value=2.0), x.index_fill(1, i[0], 2.0)),
    "sort": lambda t, x, i: (t.sort(x, axis=0)[0], t.sort(x, 0)[0]),
    "topk": lambda t, x, i: (x.topk(2, axis=0)[0], x.topk(2, 0)[0]),
    "softmax": lambda t, x, i: (t.softmax(x, axis=-1), t.softmax(x, -1)),
    "std": lambda t, x, i: (t.std(x, axis=0, keepdims=True), t.std(x, 0, keepdim=True)),
    "var": lambda t, x, i: (x.var(axis=1), x.var(1)),
    "median": lambda t, x, i: (t.median(x, axis=0, keepdims=True)[0], t.median(x, 0, keepdim=True)[0]),
    "quantile": lambda t, x, i: (t.quantile(x, 0.3, axis=1), t.quantile(x, 0.3, 1)),
    "chunk": lambda t, x, i: (x.chunk(2, axis=1)[1], x.chunk(2, 1)[1]),
    "select": lambda t, x, i: (t.select(x, axis=1, index=2), x[:, 2]),
    "narrow": lambda t, x, i: (x.narrow(axis=1, start=1, length=2), x[:, 1:3]),
    "diff": lambda t, x, i: (t.diff(x, axis=0), t.diff(x, dim=0)),
    "linalg.norm": lambda t, x, i: (t.linalg.norm(x, axis=1, keepdims=True), t.linalg.norm(x, dim=1, keepdim=True)),
    "fft": lambda t, x, i: (t.fft.fft(x, axis=0), t.fft.fft(x, dim=0)),
    "sum": lambda t, x, i: (x.sum(axis=(0, 1), keepdims=True), x.sum((0, 1), keepdim=True)),
}


@pytest.mark.parametrize("name", NUMPYS)
def test_dims_by_numpys_names(name: str) -> None:
    x = engine.arange(12.0).view(3, 4).sin()
    found, wanted = NUMPYS[name](engine, x, engine.tensor([[0, 2, 1, 0], [1, 1, 0, 2], [2, 0, 2, 1]]))
    assert engine.equal(found, wanted)


def test_what_is_missing_beside_numpys_names() -> None:
    x = engine.ones(2, 3)
    for call, text in (
        (lambda: engine.gather(x, axis=0), r"gather\(\) missing 1 required positional argument: 'index'"),
        (lambda: engine.unsqueeze(x), r"unsqueeze\(\) missing 1 required positional argument: 'dim'"),
        (lambda: x.narrow(axis=0), r"narrow\(\) missing 2 required positional arguments: 'start' and 'length'"),
        (lambda: x.narrow(), r"narrow\(\) missing 3 required positional arguments: 'dim', 'start', and 'length'"),
        (lambda: engine.stack([x], axes=0), r"stack\(\) got an unexpected keyword argument 'axes'"),
    ):
        with pytest.raises(TypeError, match=text):
            call()
