"""The transform that an entrypoint offers: beside its model, in it, or with the weights that it was called with.

What is looked at, in this order: the other parts of the result (`(model, transform)`, silero's `(model, utils)`, keys
of a dict), attributes of the model (`model.transforms`), torchvision's `Weights.transforms()` by the annotation of
the entrypoint's `weights`, and the numbers of timm's `pretrained_cfg`.  All of it is code of the repository: it runs
where the model runs.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import re
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.running import frameworks, images, inference, invoke, select
from hubcli.running.images import Preprocessing
from hubcli.running.inference import Input
from hubcli.running.result import Result

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

NONE = "none"  # the value of --transform that asks for no transform
_NAMED = re.compile(r"transform|pre_?proc|processor|prepare_model_input|feature_extractor|compose\Z", re.IGNORECASE)
_EVALUATION = re.compile(r"(?:^|[._])(val|valid|validation|eval|test|inference)", re.IGNORECASE)
_ATTRIBUTES = ("transforms", "transform", "preprocess", "preprocessor", "processor", "image_processor")
_BARE = ("image", "img", "picture")  # keys of a result that name no parameter


@dataclass(frozen=True)
class Preparation:
    """The preparation of images and sounds before the model gets them; `says` is the message for the user, or None."""

    says: str | None
    result: Result
    function: Callable[..., Any] | None = None
    preprocessing: Preprocessing = images.AS_IT_IS

    def __call__(self, inputs: Sequence[Input]) -> tuple[Input, ...]:
        """Return the inputs as the model takes them."""
        made: list[Input] = []
        for one in inputs:
            if self.function is not None and one.kind is not None:
                made += self._transformed(one)
            elif one.kind == "image":
                made.append(Input(None, self.preprocessing.prepared(images.image(one.array))))
            else:
                made.append(one)
        return tuple(made)

    def _transformed(self, one: Input) -> Iterator[Input]:
        framework = frameworks.import_framework(self.result.framework)
        with invoke.running(self.result, command=True), framework.no_grad():
            made = list(_values(self._called(one, framework)))
        if not made:
            raise UsageError(
                f"{self.says}: it made no tensor of the input",
                hint=f"--transform {NONE} leaves images as they are",
            )
        for name, value in made:
            array = _array(value)
            if one.kind == "image" and array.ndim == 3:
                array = array[None]
            yield Input(name, array)

    def _called(self, one: Input, framework: Any) -> Any:
        """Return what the transform makes of the input, in the first form that it takes."""
        function = self.function
        assert function is not None
        tensor = framework.from_numpy(one.array.copy())
        if one.kind == "sound":
            return function(list(tensor)) if _name(function) == "prepare_model_input" else function(tensor)
        image = images.image(one.array)
        if hasattr(function, "model_input_names") or hasattr(function, "image_processor"):
            return function(images=image, return_tensors="pt")
        scaled = lambda: tensor.permute(2, 0, 1).float() / 255
        failures: list[Exception] = []
        for form in (lambda: image, lambda: one.array.copy(), scaled):
            try:
                return function(form())
            except (TypeError, AttributeError) as error:  # another form may be the one that is meant
                failures.append(error)
        raise failures[0]


def preparation(whole: Result, chosen: Result, path: str | None) -> Preparation:
    """Return how inputs become what `chosen`, the model in the result `whole`, takes; `path` is --transform.

    UsageError where the path leads to nothing that can be called.
    """
    if path == NONE:
        return Preparation(None, chosen)
    if path is not None:
        found = select.at(whole, path, "--transform")
        if not callable(found):
            raise UsageError(f"--transform {path!r} is {output.a(type(found).__name__)}, which cannot be called")
        return Preparation(f"transform: {path} of the result ({_name(found)})", chosen, found)
    beside = [] if whole.value is chosen.value else list(_beside(whole.value, chosen.value))
    if len(beside) > 1:
        beside = [one for one in beside if _EVALUATION.search(one[0]) or _EVALUATION.search(_name(one[1]))] or beside
    if len(beside) > 1:
        listed = ", ".join(f"{_line(name)} ({_name(value)})" for name, value in beside[:8])
        output.message(
            f"{whole.entrypoint} offers several transforms: {listed}; --transform {_line(beside[0][0])} takes one"
        )
        return Preparation(None, chosen)
    for name, value in beside:
        return Preparation(f"transform: {_line(name)} of the result ({_name(value)})", chosen, value)
    for name in _ATTRIBUTES:
        value = _plain_attribute(chosen.value, name)
        if callable(value) and not isinstance(value, type):
            return Preparation(f"transform: the model's {name} ({_name(value)})", chosen, value)
    with contextlib.suppress(Exception):  # annotations and enumerations of the repository
        member = _weights(chosen)
        if member is not None:
            says = f"transform: of the weights {type(member).__name__}.{member.name}"
            return Preparation(says, chosen, member.transforms())
    own = Preprocessing.of_model(chosen.value)
    if own is None:
        return Preparation(None, chosen)
    return Preparation(
        f"images as the model says: --resize {own.resize} --crop {own.crop} and its mean and std",
        chosen,
        preprocessing=own,
    )


def _beside(value: Any, model: Any, path: str = "", depth: int = 2) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a result, by path, that look like transforms."""
    seen: set[int] = set()
    for name, part in list(select.parts(value))[:64]:
        if part is model or id(part) in seen:
            continue
        seen.add(id(part))
        where = f"{path}{name}"
        if isinstance(part, tuple | list | Mapping):
            if depth > 1:
                yield from _beside(part, model, f"{where}.", depth - 1)
        elif callable(part) and not isinstance(part, type) and (_NAMED.search(_name(part)) or _NAMED.search(where)):
            yield where, part


def _plain_attribute(model: Any, name: str) -> Any:
    """Return an attribute; a model's own `__getattr__` may do anything."""
    try:
        return getattr(model, name, None)
    except Exception:
        return None


def _weights(result: Result) -> Any:
    """Return the member of torchvision's kind of enumeration that the entrypoint was called with, or None."""
    if result.call is None:
        return None
    function, args, kwargs = result.call
    plain = inspect.unwrap(function)
    signature = inspect.signature(plain)
    if "weights" not in signature.parameters:
        return None
    legacy = kwargs.get("pretrained") is True or (bool(args) and args[0] is True)
    rest = {name: value for name, value in kwargs.items() if name != "pretrained"}
    bound = signature.bind_partial(*(() if legacy else args), **rest)
    bound.apply_defaults()
    given = bound.arguments.get("weights")
    if isinstance(given, enum.Enum):
        return given if hasattr(given, "transforms") else None
    if not (legacy or isinstance(given, str)):
        return None
    hint = typing.get_type_hints(plain).get("weights")
    for kind in (hint, *typing.get_args(hint)):
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            known = kind.__members__
            names = [str(given).rpartition(".")[2]] if isinstance(given, str) else ["IMAGENET1K_V1", "DEFAULT"]
            member = next((known[name] for name in names if name in known), None)
            return member if hasattr(member, "transforms") else None
    return None


def _values(made: Any) -> Iterator[tuple[str | None, Any]]:
    """Yield the tensors of what a transform returned, with the keywords they go by."""
    if isinstance(made, Mapping) or (hasattr(made, "keys") and hasattr(made, "__getitem__")):
        for key in made.keys():  # noqa: SIM118 -- a BatchFeature iterates like a dict, others do not
            if _is_array(made[key]):
                yield (None if str(key) in _BARE else str(key)), made[key]
    elif isinstance(made, tuple | list):
        yield from ((None, one) for one in made if _is_array(one))
    elif _is_array(made):
        yield None, made


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and (hasattr(value, "detach") or hasattr(value, "__array_interface__"))


def _array(value: Any) -> Array:
    import numpy as np

    return inference.plain_array(value) if hasattr(value, "detach") else np.asarray(value)


def _name(value: Any) -> str:
    """Return how it is called where it was written: a function's name, else its class's."""
    name = getattr(value, "__name__", None)
    return _line(name if isinstance(name, str) else type(value).__name__)


def _line(text: str) -> str:
    """Words of the repository on one line of bounded length."""
    return " ".join(output.printable(text).split())[:80]
