"""`__torch_function__` and modes: what handlers are told, what subclasses give, and that nothing stays behind.

Names, kinds and results are those that PyTorch 2.13 gives for the same lines.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

import engine as torch
from engine.dispatch.overriding import listening
from engine.torch_names import _overriding, overrides
from engine.torch_names._C import DisableTorchFunction, DisableTorchFunctionSubclass, _disabled_torch_function_impl
from engine.torch_names.overrides import TorchFunctionMode


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    _overriding.end()
    assert not listening[0]


class Sub(torch.Tensor):
    pass


class Further(Sub):
    pass


class Other(torch.Tensor):
    pass


class Log(torch.Tensor):
    """Notes the names of the functions that are called."""

    seen: list[str] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.seen.append(overrides.resolve_name(func) or func.__name__)
        return super().__torch_function__(func, types, args, kwargs)


class Duck:
    """No Tensor; handles every call."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func.__name__, len(args), sorted(kwargs or {})


class Declines:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


class Noting(TorchFunctionMode):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        return func(*args, **(kwargs or {}))


RESULTS = [  # (expression of x, a 2x3 Sub, and y, a Tensor; the type of the result or of its parts)
    ("x + y", "Sub"), ("y - x", "Sub"), ("2 / x", "Sub"), ("2 ** x", "Sub"), ("x @ y.T", "Sub"), ("-x", "Sub"),
    ("x == 1", "Sub"), ("x[0]", "Sub"), ("x.T", "Sub"), ("x.data", "Sub"), ("x.sum()", "Sub"), ("x.view(3, 2)", "Sub"),
    ("x.double()", "Sub"), ("x.detach()", "Sub"), ("x.clone()", "Sub"), ("x.new_zeros(2)", "Sub"), ("x.abs_()", "Sub"),
    ("torch.zeros_like(x)", "Sub"), ("torch.cat([y, x])", "Sub"), ("torch.stack([y, y])", "Tensor"),
    ("torch.nn.functional.relu(x)", "Sub"), ("torch.nn.Linear(3, 2)(x)", "Sub"), ("torch.as_tensor(x)", "Sub"),
    ("torch.linalg.norm(x)", "Sub"), ("torch.einsum('ij,kj->ik', y, x)", "Sub"), ("torch.where(x > 1, x, y)", "Sub"),
    ("x.unbind()", ["Sub", "Sub"]), ("x.max(1)", ["Sub", "Sub"]), ("x.split(1)", ["Sub", "Sub"]),
    ("list(x)", ["Sub"] * 2),
    ("x.shape", "Size"), ("x.dtype", "dtype"), ("x.tolist()", "list"), ("len(x)", "int"), ("x.requires_grad", "bool"),
    ("torch.tensor(x.tolist())", "Tensor"), ("x.as_subclass(torch.Tensor)", "Tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), RESULTS, ids=[text for text, _ in RESULTS])
def test_results_of_calls_with_a_subclass_are_of_that_class(text: str, kind: Any) -> None:
    x, y = torch.arange(6.0).reshape(2, 3).as_subclass(Sub), torch.ones(2, 3)
    result = eval(text, {"torch": torch, "x": x, "y": y})
    assert ([type(r).__name__ for r in result] if isinstance(kind, list) else type(result).__name__) == kind


def test_the_more_derived_class_handles_the_call_and_strangers_decline() -> None:
    a, b = torch.ones(2).as_subclass(Sub), torch.ones(2).as_subclass(Further)
    assert type(a + b) is Further and type(torch.add(b, a)) is Further
    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch.add'(.|\n)*Sub(.|\n)*Other"):
        torch.add(a, torch.ones(2).as_subclass(Other))


def test_gradients_flow_through_a_subclass_and_what_backward_computes_is_not_handled() -> None:
    Log.seen.clear()
    leaf = torch.ones(3, requires_grad=True)
    x = leaf.as_subclass(Log)
    assert x.grad_fn is not None and x.grad_fn.name() == "AliasBackward0"
    y = (x * x).sum()
    assert type(y) is Log
    before = len(Log.seen)
    y.backward()
    assert Log.seen[before:] == ["torch.Tensor.backward"]
    assert type(leaf.grad) is torch.Tensor and leaf.grad.tolist() == [2.0, 2.0, 2.0]


def test_what_handlers_are_told() -> None:
    x = torch.arange(6.0).reshape(2, 3).as_subclass(Log)
    Log.seen.clear()
    x + 1, 1 - x, x.shape, x.T, x.size(), torch.nn.functional.relu(x), torch.linalg.norm(x), torch.cat([x]), x.tolist()
    x.numpy(), torch.nn.functional.linear(x, x), torch.is_tensor(x), x.grad
    assert Log.seen == [
        "torch.add",
        "torch.Tensor.__rsub__",
        "torch.Tensor.shape.__get__",
        "torch.Tensor.T.__get__",
        "torch.Tensor.size",
        "torch.nn.functional.relu",
        "torch.linalg.norm",
        "torch.cat",
        "torch.Tensor.tolist",
        "torch.Tensor.numpy",
        "torch.nn.functional.linear",
        "torch.Tensor.grad.__get__",
    ]
    Log.seen.clear()
    x[0] = 1
    x.grad = torch.zeros(2, 3)
    assert len(Log.seen) == 2 and Log.seen[1] == "torch.Tensor.grad.__set__" and x.grad.tolist() == [[0.0] * 3] * 2


def test_functions_with_python_bodies_are_told_with_every_argument() -> None:
    seen: list[Any] = []

    class Telling(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((len(args), sorted(kwargs or {})))
            return super().__torch_function__(func, types, args, kwargs)

    x = torch.ones(2, 3).as_subclass(Telling)
    torch.nn.functional.softmax(x, -1)
    torch.nn.functional.dropout(x)
    assert seen == [(1, ["_stacklevel", "dim", "dtype"]), (1, ["inplace", "p", "training"])]


def test_an_object_that_is_no_tensor_handles_calls() -> None:
    assert not listening[0]
    assert torch.trace(Duck()) == ("trace", 1, [])  # the first call that no layout handles puts the listeners in
    assert listening[0]
    _overriding.end()
    assert torch.add(torch.ones(2), Duck(), alpha=2) == ("add", 2, ["alpha"])
    _overriding.end()
    assert torch.cat([torch.ones(2), Duck()]) == ("cat", 1, [])
    _overriding.end()
    assert torch.ones(2) + Duck() == ("add", 2, [])
    _overriding.end()
    assert torch.flatten(Duck(), 1) == ("flatten", 2, [])
    assert torch.nn.functional.relu(Duck()) == ("relu", 1, ["inplace"])
    with pytest.raises(TypeError, match=r"dispatch failed for .torch\.add."):
        torch.add(Declines(), 1)
    with pytest.raises(TypeError, match=r"found for .torch\.nn\.functional\.relu. on types that implement"):
        torch.nn.functional.relu(Declines())
    with pytest.raises(TypeError, match="unsupported operand type"):
        torch.ones(2) + Declines()


def test_an_argument_that_handles_nothing_is_refused_as_before() -> None:
    with pytest.raises(TypeError, match=r"mean\(\): argument 'input' \(position 1\) must be Tensor, not object"):
        torch.mean(object())
    assert not listening[0]


def test_a_parameter_of_a_subclass_trains_and_plain_parameters_handle_nothing() -> None:
    plain = torch.nn.Parameter(torch.ones(2))
    assert type(plain * 1) is torch.Tensor and not listening[0]
    layer = torch.nn.Linear(3, 2)
    layer.weight = torch.nn.Parameter(torch.ones(2, 3).as_subclass(Sub))
    assert isinstance(layer.weight, torch.nn.Parameter) and type(layer.weight) is Sub
    y = layer(torch.ones(4, 3))
    assert type(y) is Sub
    y.sum().backward()
    assert type(layer.weight.grad) is torch.Tensor
    torch.optim.SGD(layer.parameters(), lr=0.5).step()
    assert type(layer.weight) is Sub and layer.weight.tolist() == [[-1.0] * 3] * 2


def test_a_class_that_disables_handling_gives_plain_results() -> None:
    class Quiet(torch.Tensor):
        __torch_function__ = _disabled_torch_function_impl

    x = torch.ones(2).as_subclass(Quiet)
    assert type(x + 1) is torch.Tensor and not listening[0]


def test_contexts_without_handlers() -> None:
    x = torch.ones(2).as_subclass(Sub)
    mode = Noting()
    with mode:
        with DisableTorchFunctionSubclass():
            assert type(x + 1) is torch.Tensor
        with DisableTorchFunction():
            assert type(x * 1) is torch.Tensor
    assert mode.seen == ["add"]


def test_subclasses_are_copied_and_pickled() -> None:
    x = torch.ones(2).as_subclass(Sub)
    assert type(pickle.loads(pickle.dumps(x))) is Sub


# --- modes


def test_a_mode_sees_every_call_and_goes_when_it_is_left() -> None:
    mode = Noting()
    with mode as entered:
        assert entered is mode and overrides._get_current_function_mode() is mode
        a = torch.zeros(3)
        (a + torch.ones(3)).sum()
        with Noting() as inner:
            a * 2
        torch.nn.functional.relu(a)
        torch.is_grad_enabled()
    assert mode.seen == ["zeros", "ones", "add", "sum", "mul", "relu"] and inner.seen == ["mul"]
    assert not listening[0]
    a * 2
    assert len(mode.seen) == 6


def test_a_mode_gives_other_results() -> None:
    class Fixed(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.rand:
                return torch.full(args, 0.5)
            return func(*args, **(kwargs or {}))

    with Fixed():
        assert torch.rand(2).tolist() == [0.5, 0.5]
        assert torch.ones(1).tolist() == [1.0]
    with pytest.raises(NotImplementedError), TorchFunctionMode():
        torch.ones(1)


def test_a_mode_that_declines_leaves_the_call_to_the_arguments() -> None:
    class Lazy(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return NotImplemented

    with Lazy():
        assert torch.add(Duck(), 1) == ("add", 2, [])
        with pytest.raises(TypeError, match="mode object"):
            torch.ones(2)


def test_an_error_inside_leaves_the_mode_and_listeners() -> None:
    with pytest.raises(RuntimeError, match="ours"), Noting():
        raise RuntimeError("ours")
    assert not listening[0] and overrides._get_current_function_mode_stack() == []


# --- torch.overrides


def test_one_asks_and_hands_over_by_the_functions_of_overrides() -> None:
    def own(x: Any, *, k: int = 1) -> Any:
        if overrides.has_torch_function((x,)):
            return overrides.handle_torch_function(own, (x,), x, k=k)
        return x * k

    assert own(torch.ones(1), k=3).item() == 3.0
    assert own(Duck(), k=2) == ("own", 1, ["k"])
    x = own(torch.ones(1).as_subclass(Sub), k=2)
    assert type(x) is Sub and x.item() == 2.0
    wrapped = overrides.wrap_torch_function(lambda x: (x,))(lambda x: "plain")
    assert wrapped(1) == "plain" and wrapped(Duck()) == ("<lambda>", 1, [])
    with pytest.raises(TypeError, match="no implementation found"):
        own(Declines())
    assert overrides.is_tensor_like(Duck()) and overrides.is_tensor_like(torch.ones(1))
    assert not overrides.is_tensor_like(1) and not overrides.has_torch_function((torch.ones(1), 1))


def test_what_can_be_handled_is_listed() -> None:
    found = overrides.get_overridable_functions()
    assert torch.add in found[torch] and torch.Tensor.tolist in found[torch.Tensor]
    assert torch.Tensor.shape.__get__ in found[torch.Tensor] and torch.nn.functional.relu in found[torch.nn.functional]
    everything = {f for functions in found.values() for f in functions}
    assert not everything & overrides.get_ignored_functions()
    assert torch.get_default_dtype in overrides.get_ignored_functions()
    dummies = overrides.get_testing_overrides()
    assert dummies[torch.add](1, 2, alpha=3) == -1 and dummies[torch.Tensor.tolist](1) == -1
    assert overrides.is_tensor_method_or_property(torch.Tensor.shape.__get__)
    assert not overrides.is_tensor_method_or_property(torch.nn.functional.relu)
    assert overrides.resolve_name(torch.linalg.norm) == "torch.linalg.norm"
    assert overrides.resolve_name(print) is None


def test_vmap_and_grad_of_functions_go_on_while_a_class_handles_calls() -> None:
    x = torch.ones(2, 3).as_subclass(Sub)
    assert type(x.exp()) is Sub
    assert torch.func.grad(lambda z: (z * z).sum())(torch.ones(2)).tolist() == [2.0, 2.0]
    assert torch.vmap(lambda z: z.sum())(torch.ones(2, 3)).tolist() == [3.0, 3.0]
    with Noting() as mode:
        assert torch.vmap(lambda z: z.sum())(torch.ones(2, 3)).tolist() == [3.0, 3.0]
    assert "sum" in mode.seen


def test_the_device_of_a_context() -> None:
    from engine.utils._device import DeviceContext

    with DeviceContext("meta"):
        assert torch.ones(2).device.type == "meta"
        with torch.device("cpu"):
            assert torch.nn.Linear(2, 2).weight.device.type == "cpu"
    assert torch.ones(2).device.type == "cpu"


@pytest.mark.filterwarnings("ignore")
def test_signatures_while_others_handle_calls() -> None:
    """What torch.fx and ONNX files say of a call does not depend on whether functions carry listeners."""
    from engine import fx, onnx
    from engine.nn import functional as F

    class Mine(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs)

    def call(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(F.upsample(F.max_pool2d(x, 2), scale_factor=2.0), size=(4, 4))

    before = fx.symbolic_trace(call).code
    torch.ones(2).as_subclass(Mine)
    assert fx.symbolic_trace(call).code == before
    x, file = torch.ones(1, 1, 4, 4), io.BytesIO()
    onnx.export(call, (x,), file)
    assert torch.equal(onnx.load(file.getvalue())(x), call(x))


def test_a_function_first_called_while_its_method_has_a_listener() -> None:
    """`torch.resize_as_` and the method are one function: the listener's code says nothing of its parameters."""
    from engine.dispatch import arguments

    def scaled(input: torch.Tensor, times: int = 2, *, more: int = 1) -> Any:
        return input * times + more

    public = arguments.checked(scaled)
    scaled.__code__ = (lambda *args, **kwargs: "heard").__code__
    assert torch.equal(public(torch.ones(2), 3, more=4), torch.full((2,), 7.0))
    with pytest.raises(TypeError, match=r"scaled\(\): argument 'times' \(position 2\) must be int, not str"):
        public(torch.ones(2), "3")
