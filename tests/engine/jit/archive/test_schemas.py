"""The list of operator signatures: each is well formed and has a function that serves it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import dispatch
from engine.jit.archive import operators, schemas

LINES = schemas.lines()
# what is written as Python's operator, without a function
SIGNS = {"aten::__is__", "aten::__isnot__", "aten::__not__"}
EMPTY = inspect.Parameter.empty
# One parameter: aten's tensor is `input` to torch's functions, and `A` or `x` in torch.linalg's documents.
TENSORS = {"self", "input", "A", "x"}
# Where the function has other parameters than a form: what differs, and why calls mean the same.
FORMS = "one parameter for what aten has in a form each: a tensor, a number, a list"
DOCUMENTS = "the name of torch's documents"
CUDA = "torch computes this form on GPUs alone"
DIFFER = {
    "aten::addmm": ({"no out_dtype"}, CUDA),
    "aten::baddbmm": ({"no out_dtype"}, CUDA),
    "aten::bmm": ({"no out_dtype"}, CUDA),
    "aten::mm": ({"no out_dtype"}, CUDA),
    "aten::contiguous": ({"memory_format=0 is None"}, "None is the contiguous format"),
    "aten::conv1d": ({"padding='valid' is 0"}, "both leave the edges as they are"),
    "aten::conv2d": ({"padding='valid' is 0"}, "both leave the edges as they are"),
    "aten::conv3d": ({"padding='valid' is 0"}, "both leave the edges as they are"),
    "aten::copy_": ({"other is src"}, FORMS),
    "aten::cumulative_trapezoid": ({"dx=1 is None"}, "None is 1 where there is no x"),
    "aten::dequantize": ({"tensors is input", "qtensor is input", "qtensors is input"}, FORMS),
    "aten::isin": ({"element is elements", "test_element is test_elements"}, FORMS),
    "aten::linalg_lstsq": ({"b is B"}, f"{DOCUMENTS}; calls may use both"),
    "aten::linalg_tensorsolve": ({"other is B"}, f"{DOCUMENTS}; calls may use both"),
    "aten::norm": ({"p=2 is 'fro'"}, "the same norm of all elements"),
    "aten::nuclear_norm": ({"keepdim=False is None"}, "its first argument is the dims or, a bool, keepdim"),
    "aten::one_hot": ({"self is tensor"}, DOCUMENTS),
    "aten::ormqr": ({"input2 is tau", "input3 is other"}, DOCUMENTS),
    "aten::randint": ({"high is low", "size is high"}, "a lone bound is the upper one"),
    "aten::randint_like": ({"high is low"}, "a lone bound is the upper one"),
    "aten::scatter": ({"value is src"}, FORMS),
    "aten::scatter_": ({"value is src"}, FORMS),
    "aten::sparse_coo_tensor": ({"size is indices"}, "without values its first argument is the size"),
    "aten::std": ({"unbiased is dim", "unbiased=True is None"}, "a bool there is `unbiased`; None is True"),
    "aten::std_mean": ({"unbiased is dim", "unbiased=True is None"}, "as std"),
    "aten::trapezoid": ({"dx=1 is None"}, "as cumulative_trapezoid"),
    "aten::trapz": ({"dx=1.0 is None"}, "as cumulative_trapezoid"),
    "aten::var": ({"unbiased is dim", "unbiased=True is None"}, "as std"),
    "aten::var_mean": ({"unbiased is dim", "unbiased=True is None"}, "as std"),
}


def test_how_many_there_are() -> None:
    assert (sum(map(len, LINES.values())), len(LINES)) == (2414, 1023)
    assert {name.partition("::")[0] for name in LINES} == {"aten", "prim", "torchvision"}
    assert len({text for texts in LINES.values() for text in texts}) == 2414


@pytest.mark.parametrize("name", LINES)
def test_every_line_parses_and_names_an_operator_that_is_there(name: str) -> None:
    """Parsed by the parser of `torch.library`'s signatures; the function takes as many arguments by position."""
    forms = schemas.find(name)
    assert [form.text for form in forms] == LINES[name]
    assert all(form.name.partition(".")[0] == name for form in forms)
    found = operators.find(*name.split("::"))
    assert callable(found) or name in SIGNS
    if found is None:
        return
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):  # of numpy's and of those that choose among forms
        return
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        return
    needed = sum(p.default is p.empty for p in parameters)
    most = max(len(form.parameters) for form in forms)
    assert needed <= most, f"{name} needs {needed} arguments, its widest form has {most}"


def equal(one: Any, other: Any) -> bool:
    """Return whether two defaults mean the same: a number stands for a list of it, None for an empty list."""
    if isinstance(one, list | tuple) or isinstance(other, list | tuple):
        first, second = (list(v) if isinstance(v, list | tuple) else [] if v is None else [v] for v in (one, other))
        return first == second or (len(second) == 1 and first == second * len(first))
    return one == other or (one, other) == (4, None)  # of dtypes: int64's number, which is the default there


@functools.cache
def ops() -> dict[Any, dispatch.Op]:
    """Return the ops by their public functions, whose own signatures are made at their first calls."""
    dispatch.import_lazy()
    found = {op.function: op for op in dispatch.OPS.values()} | {
        op.inplace_function: op for op in dispatch.OPS.values()
    }
    return {function: op for function, op in found.items() if function is not None}


def parameters_of(function: Any) -> list[inspect.Parameter] | None:
    """Return what a function takes; None of numpy's and Python's, and of what is an operator of Python."""
    op = ops().get(function)
    if op is None:
        try:
            return list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            return None
    kinds = [(p, inspect.Parameter.POSITIONAL_OR_KEYWORD) for p in op.positional]
    kinds += [(p, inspect.Parameter.KEYWORD_ONLY) for p in op.keyword]
    return [inspect.Parameter(p, kind, default=op.defaults.get(p, EMPTY)) for p, kind in kinds]


def differences(
    form: schemas.Signature, function: Callable[..., Any], parameters: list[inspect.Parameter]
) -> list[str]:
    """Return in what the parameters of a function differ from those of a form: places, names, defaults, keywords."""
    named = {p.name: p for p in parameters}
    open_ended = {p.kind for p in parameters}
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    written = getattr(function, "__module__", None) or ""  # nothing of a method of list
    own = (
        written.startswith("engine.")
        and not written.startswith("engine.jit.")
        and inspect.Parameter.VAR_POSITIONAL not in open_ended
    )
    found = []
    for place, wanted in enumerate(p for p in form.parameters if not p.named):
        if place >= len(places):
            if inspect.Parameter.VAR_POSITIONAL not in open_ended:
                found.append(f"no {wanted.name}")
            continue
        name, default = places[place].name, places[place].default
        if own and name != wanted.name and not {name, wanted.name} <= TENSORS:
            found.append(f"{wanted.name} is {name}")
        if wanted.default is not schemas.MISSING and (default is EMPTY or not equal(wanted.default, default)):
            found.append(f"{wanted.name}={wanted.default!r} is {default!r}")
    for wanted in form.parameters:
        if not wanted.named or operators.drops(wanted.name):
            continue
        has = named.get(wanted.name)
        if has is None:
            if inspect.Parameter.VAR_KEYWORD not in open_ended:
                found.append(f"no {wanted.name}=")
        elif wanted.default is not schemas.MISSING and not equal(wanted.default, has.default):
            found.append(f"{wanted.name}={wanted.default!r} is {has.default!r}")
    return found


def test_functions_take_what_their_lines_say() -> None:
    """Operators on tensors; the forms that store their result into `out` call the same functions."""
    compared = 0
    differ: dict[str, set[str]] = {}
    for name in LINES:
        function = operators.find(*name.split("::"))
        parameters = parameters_of(function)
        if function is None or parameters is None:
            continue
        for form in schemas.find(name):
            into = any(p.named and p.name.startswith("out") for p in form.parameters)
            if "Tensor" in form.text and "Dict(" not in form.text and not into:
                compared += 1
                if found := differences(form, function, parameters):
                    differ.setdefault(name, set()).update(found)
    assert differ == {name: found for name, (found, _) in DIFFER.items()}
    assert compared >= 1258  # on Python 3.13 more functions have a signature


def test_comments_at_its_head_are_no_signatures() -> None:
    text = (Path(schemas.__file__).parent / "schemas.txt").read_text(encoding="utf-8")
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert head
    assert text.startswith("\n".join(head) + "\n")
    assert not any("#" in one for texts in LINES.values() for one in texts)


def test_a_signature_that_is_malformed_is_told() -> None:
    with pytest.raises((RuntimeError, ValueError)):
        schemas._signature("aten::add(Tensor self, Tensor other")
