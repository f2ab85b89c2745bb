"""Functions and modules become programs that give what Python gives, and are read back from what they are saved as."""

from __future__ import annotations

import enum
import io
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import engine as torch
import engine.nn.functional as F
from engine import nn
from engine.jit.scripting.annotations import BroadcastingList2
from engine.jit.scripting.frontend import NotSupportedError, UnsupportedNodeError
from engine.serialization.errors import UnpicklingError
from tests.engine.jit import forge


def again(module):
    """The module saved and loaded."""
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


def loops(x, n: int = 3):
    total = 0
    for i in range(n):
        if i == 1:
            continue
        if i > 6:
            break
        x = x + i if i % 2 == 0 else x * 2
        total += i
    while total > 3:
        total -= 2
    return x, total


def containers(xs: list[int], d: dict[str, int]) -> tuple[list[int], dict[str, int], str]:
    out: dict[str, int] = {}
    for i, (k, v) in enumerate(d.items()):
        out[k] = v + i
    ys = [x * 2 for x in xs if x > 1]
    ys.append(len(out))
    return ys, out, "-".join(["a", "b"]) + f"{len(ys)}"


def optionals(x: torch.Tensor | None, scale: float | None = None):
    if x is None:
        raise ValueError("no tensor")
    if scale is not None and scale > 1.0:
        return x * scale
    return x[1:, None, ..., 0]


def early(x):
    if x.dim() == 1:
        return x.sum()
    for row in x:
        if bool(row.sum() > 0):
            return row
    return x.mean()


def writes(x):
    x = x.clone()
    x[0] = 1.0
    x[:, 1] = x[:, 0] * 2
    x[x > 1.5] = -1.0
    x += 1
    return x


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (loops, (torch.ones(3),)),
        (loops, (torch.ones(3), 9)),
        (containers, ([1, 2, 3], {"u": 1, "v": 5})),
        (optionals, (torch.ones(3, 4),)),
        (optionals, (torch.ones(3, 4), 2.5)),
        (early, (torch.ones(3),)),
        (early, (torch.tensor([[-1.0, 0], [2, 3]]),)),
        (early, (-torch.ones(2, 2),)),
        (writes, (torch.zeros(3, 3),)),
    ],
)
def test_functions(function, args) -> None:
    compiled = torch.jit.script(function)
    wanted = function(*args)
    for program in (compiled, again(compiled)):
        assert_same(program(*args), wanted)


def assert_same(found, wanted) -> None:
    if isinstance(wanted, torch.Tensor):
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-6)
    elif isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted):
            assert_same(a, b)
    else:
        assert found == wanted


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    first: torch.Tensor
    second: int = 3


class Counter:
    def __init__(self, n: int):
        self.n = n
        self.seen: list[int] = []

    def add(self, x: int) -> int:
        self.seen.append(x)
        self.n += x
        return self.n


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pass


class Doubled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Net(nn.Module):
    layer: Layer

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4)
        self.blocks = nn.ModuleList([nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.1)])
        self.named = nn.ModuleDict({"u": nn.Linear(4, 4), "v": nn.GELU()})
        self.layer = Doubled()
        self.down = None
        self.colour = Colour.RED
        self.sizes = {"a": 1}
        self.register_buffer("offset", torch.zeros(4))

    @torch.jit.export
    def shift(self, by: float) -> None:
        self.offset.fill_(by)

    @torch.jit.unused
    def python_only(self, x):
        return (lambda y: y)(x)

    @property
    def width(self) -> int:
        return 7

    def forward(self, x, flag: bool = True) -> Pair:
        x = F.relu(self.bn(self.conv(x)), inplace=True).mean([2, 3])
        for block in self.blocks:
            x = block(x)
        for name, block in self.named.items():
            x = block(x) + len(name)
        if self.down is not None:
            x = self.down(x)
        counter = Counter(2)
        count = counter.add(self.width) + self.sizes["a"]
        if self.colour == Colour.RED:
            count += 1
        with torch.no_grad():
            y = x * 2
        if not torch.jit.is_scripting():
            y = self.python_only(y)
        later = torch.jit.fork(torch.sin, x)
        assert count > 0, "no count"
        layer: Layer = self.layer
        return Pair(torch.jit.wait(later) + y + self.offset + layer.forward(x), count)


def test_a_module_and_what_it_may_hold() -> None:
    torch.manual_seed(0)
    net = Net().eval()
    x = torch.randn(2, 3, 6, 6)
    wanted = net(x)
    compiled = torch.jit.script(net)
    for program in (compiled, again(compiled)):
        found = program(x)
        assert_same(found.first, wanted.first)
        assert found.second == wanted.second == 11
        assert list(program.state_dict()) == list(net.state_dict())
    compiled.shift(2.0)
    assert_same(compiled(x).first, wanted.first + 2)
    assert "unused" not in compiled.code


def test_training_goes_through_to_the_module() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh())
    compiled = torch.jit.script(net)
    assert [id(p) for p in compiled.parameters()] == [id(p) for p in net.parameters()]
    heard = []
    compiled.register_forward_hook(lambda module, args, result: heard.append(result.shape))
    compiled(torch.randn(5, 3)).sum().backward()
    assert net[0].weight.grad is not None
    assert int(net[1].num_batches_tracked) == 1
    assert heard == [(5, 4)]
    assert compiled.double()[0].weight.dtype == torch.float64


def test_recurrent_and_attention_modules() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(10, 4)
            self.lstm = nn.LSTM(4, 4, 2, batch_first=True, bidirectional=True)
            self.gru = nn.GRU(8, 4)
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
            self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

        def forward(self, x):
            y, (h, c) = self.lstm(self.embedding(x))
            z, last = self.gru(y)
            out, weights = self.attention(z, z, z)
            return self.encoder(out), weights, h, c, last

    torch.manual_seed(1)
    model = Model().eval()
    x = torch.randint(0, 10, (2, 5))
    for found, wanted in zip(again(torch.jit.script(model))(x), model(x)):
        np.testing.assert_allclose(found.detach().numpy(), wanted.detach().numpy(), rtol=1e-5, atol=1e-6)


def test_programs_inside_of_programs() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.jit.script(nn.Linear(2, 2))
            self.b = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
            self.c = again(torch.jit.script(nn.Linear(2, 2)))

        def forward(self, x):
            return self.b(self.a(x)) + self.c(x)

    outer = Outer()
    x = torch.randn(3, 2)
    compiled = torch.jit.script(outer)
    assert compiled.a.weight is outer.a.weight
    assert_same(again(compiled)(x), outer(x))


def test_freezing_leaves_no_parameters() -> None:
    net = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="eval mode"):
        torch.jit.freeze(net)
    frozen = torch.jit.freeze(net.eval())
    x = torch.ones(1, 2)
    assert not list(frozen.parameters())
    assert_same(again(frozen)(x), net(x))
    with pytest.raises(RuntimeError, match="expects a ScriptModule"):
        torch.jit.freeze(nn.Linear(2, 2))


def test_a_source_text() -> None:
    unit = torch.jit.CompilationUnit(
        """
        def half(x, n: int = 2):
            return x / n
        def both(x: Tensor, y: Optional[Tensor] = None) -> Tensor:
            if y is None:
                y = half(x)
            return y + 1
        """
    )
    assert_same(unit.both(torch.ones(2)), torch.full((2,), 1.5))
    with pytest.raises(AttributeError):
        _ = unit.third


def tries(x):
    try:
        return x
    except ValueError:
        return x


def uses_lambda(x):
    return (lambda y: y)(x)


def makes_set(x):
    return {1, 2}


def starred(x, *rest):
    return x


def half_defined(x):
    if bool(x.sum() > 0):
        y = 1
    return y


def retyped(x, n: int):
    y = n
    for _ in range(3):
        y = [x]
    return y


def wrong_result(x) -> list[int]:
    return x


def no_such(x):
    return x.no_such_method()


@pytest.mark.parametrize(
    ("function", "kind", "text"),
    [
        (tries, UnsupportedNodeError, "try blocks aren't supported"),
        (uses_lambda, UnsupportedNodeError, "lambda functions aren't supported"),
        (makes_set, UnsupportedNodeError, "set literals aren't supported"),
        (starred, NotSupportedError, "variable number of arguments"),
        (half_defined, RuntimeError, "y is not defined in the false branch"),
        (
            retyped,
            RuntimeError,
            r"Variable 'y' previously had type int but is now being assigned to a value of type "
            r"List\[Tensor\]",
        ),
        (wrong_result, RuntimeError, r"annotated as having type List\[int\] but is actually of type Tensor"),
        (no_such, RuntimeError, "'Tensor' object has no attribute or method 'no_such_method'"),
    ],
)
def test_what_the_language_lacks(function, kind, text) -> None:
    with pytest.raises(kind, match=text) as told:
        torch.jit.script(function)
    assert "HERE" in str(told.value)


def test_python_that_is_called_is_not_saved() -> None:
    class Model(nn.Module):
        @torch.jit.ignore
        def python(self, x: torch.Tensor) -> torch.Tensor:
            return x + len("ab")

        def forward(self, x):
            return self.python(x) * 2

    compiled = torch.jit.script(Model())
    assert_same(compiled(torch.ones(2)), torch.full((2,), 6.0))
    with pytest.raises(RuntimeError, match="Could not export Python function call 'python'"):
        torch.jit.save(compiled, io.BytesIO())


def test_errors_of_a_program_name_its_lines() -> None:
    with pytest.raises(torch.jit.Error, match=r"builtins\.ValueError: no tensor"):
        torch.jit.script(optionals)(None)


def test_isinstance_looks_into_generic_types() -> None:
    assert torch.jit.isinstance([1, 2], list[int])
    assert not torch.jit.isinstance([1.5], list[int])
    assert torch.jit.isinstance({"a": torch.ones(1)}, dict[str, torch.Tensor])


def moved(x: torch.Tensor, by: BroadcastingList2[int] = 1, scale: BroadcastingList2[float] = 2.0) -> torch.Tensor:
    return x * scale[1] + by[0] + 10 * by[1]


def test_one_number_is_the_default_of_a_list_of_several() -> None:
    compiled = torch.jit.script(moved)
    one = torch.ones(1)
    given = ((), ([3, 4],), ([5, 5], [3.0, 3.0]))
    assert [compiled(one, *args).item() for args in given] == [13.0, 45.0, 58.0]
    assert "by: List[int]=[1, 1]" in compiled.code
    assert "scale: List[float]=[2.0, 2.0]" in compiled.code


def named_results(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    best = x.max(dim=1)
    return best.values, best.indices, x.sort(dim=0, descending=True).values


def test_results_of_operators_have_names() -> None:
    compiled, x = torch.jit.script(named_results), torch.tensor([[1.0, 3.0], [4.0, 2.0]])
    assert [one.tolist() for one in compiled(x)] == [[3.0, 4.0], [1, 0], [[4.0, 3.0], [1.0, 2.0]]]
    with pytest.raises(RuntimeError, match="no_such"):
        torch.jit.script(no_such_result)


def no_such_result(x: torch.Tensor) -> torch.Tensor:
    return x.max(dim=1).no_such


def of_three(t: tuple[int, int, int], i: int) -> int:
    return t[i] + [t[j] for j in range(3)][i]


def of_two_types(t: tuple[int, float], i: int) -> int:
    return t[i]


def into(a, b):
    c = torch.empty(0)
    torch.neg(a, out=c)
    torch.add(c, b, alpha=2, out=c)
    d = torch.addcmul(c, a, b, out=c)
    e = torch.clamp(a, 0.5, 1.5, out=torch.empty(2, 2))
    return c, d, e, torch.where(a > 0, a, b, out=torch.empty(0)), torch.sum(a, [1], out=torch.empty(2))


def test_results_stored_into_what_is_given() -> None:
    a, b = torch.arange(4.0).view(2, 2), torch.ones(2, 2)
    scripted = torch.jit.script(into)
    for function in (scripted, again(scripted)):
        found, expected = function(a, b), into(a, b)
        assert found[0] is found[1]
        assert all(map(torch.equal, found, expected))
    with pytest.raises(RuntimeError, match=r"neg\(\): functions with out=... arguments don't support automatic"):
        scripted(a.clone().requires_grad_(), b)
    for name in ("system", "numel"):  # no operator, and one without such a form
        forged = forge.archive(forge.body(f"return torch.{name}(x, out=x)"))
        with pytest.raises(UnpicklingError, match=f"aten::{name} is not on the list"):
            torch.jit.load(forged)


def test_tuples_of_one_type_take_any_index() -> None:
    compiled = torch.jit.script(of_three)
    assert (compiled((1, 2, 3), 2), compiled((1, 2, 3), -1)) == (6, 6)
    with pytest.raises(RuntimeError, match="index out of range"):
        compiled((1, 2, 3), 5)
    with pytest.raises(RuntimeError, match="we cannot resolve the output type"):
        torch.jit.script(of_two_types)


def test_a_dataclass_stays_as_it_is() -> None:
    import dataclasses

    @dataclasses.dataclass
    class Point:
        x: int = 0

    assert torch.jit.script(Point) is Point and repr(Point(2)).endswith("Point(x=2)")


@pytest.mark.parametrize(
    "text",
    [
        "torch.norm(v, dim=-1, keepdim=True)",
        "torch.norm(v)",
        "torch.norm(v, 3)",
        "torch.norm(v, p=1.5, dim=[0, 1])",
        "torch.norm(v, 'fro', 1, True)",
        "torch.norm(v, 'nuc')",
        "torch.norm(v, 2, 1, dtype=torch.float64)",
        "torch.tensordot(v, v)",
        "torch.tensordot(v, v, 1)",
        "torch.tensordot(v, v, ([0], [1]))",
        "torch.tensordot(v, v, dims=[[1], [1]])",
        "torch.stft(w, 8, return_complex=True).abs()",
        "torch.stft(w, 8, 2, center=False, return_complex=True).abs()",
        "torch.stft(w, 8, 2, 8, torch.hann_window(8), True, 'constant', return_complex=True).abs()",
        "torch.unique(v.round())",
        "torch.unique(v.round(), dim=0)",
        "torch.unique(v.round(), return_counts=True)",
        "torch.unique(v.round(), True, True)",
        "torch.unique(v.round(), return_inverse=True, return_counts=True)",
        "torch.unique_consecutive(v.round())",
        "torch.unique_consecutive(v.round(), return_counts=True)",
        "torch.unique_consecutive(v.round(), True, True, 0)",
        "torch.nn.functional.max_pool1d(v, 2, return_indices=True)",
        "torch.nn.functional.adaptive_max_pool1d(v, 2, True)",
        "torch.nn.functional.max_pool1d(v, 2, 1, 0, 1, False, True)",
    ],
)
def test_functions_whose_arguments_say_what_they_return(text: str) -> None:
    v, w = torch.arange(9.0).reshape(3, 3).sin() * 3, torch.arange(40.0).cos()
    unit = torch.jit.CompilationUnit(f"def f(v: Tensor, w: Tensor):\n    return {text}\n")
    found, expected = unit.f(v, w), eval(text, {"torch": torch, "F": F, "v": v, "w": w})
    assert isinstance(found, tuple) == isinstance(expected, tuple)
    for a, b in zip(
        found if isinstance(found, tuple) else [found], expected if isinstance(found, tuple) else [expected]
    ):
        assert a.dtype is b.dtype
        assert a.shape == b.shape
        assert torch.allclose(a, b)


def stars(x: torch.Tensor, shape: tuple[int, int], more: list[int]):
    a = torch.zeros([x.shape[0], *shape, 2], device=x.device)
    b = (*shape, 1.5, *(x, 2))
    return a, b, x.reshape(1, -1, *shape), [*shape]


def test_tuples_are_taken_apart_in_lists_and_tuples() -> None:
    x = torch.arange(12.0)
    a, b, c, d = again(torch.jit.script(stars))(x, (2, 3), [1])
    assert (a.shape, c.shape, d) == ((12, 2, 3, 2), (1, 2, 2, 3), [2, 3])
    assert b[:3] == (2, 3, 1.5)
    assert torch.equal(b[3], x)
    assert b[4] == 2
    unit = "def f(n: List[int]):\n    return [1, *n]\n"
    with pytest.raises(RuntimeError, match=r"cannot use a List\[int\] with \*: only tuples are unpacked"):
        torch.jit.CompilationUnit(unit).f([2])


@pytest.mark.parametrize("name", ["sum", "any", "all"])
def test_reductions_without_an_argument_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"reduce_{name}.py"
    path.write_text(f"def reduce():\n    return {name}()\n")
    scope = {"__name__": f"reduce_{name}"}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    with pytest.raises(RuntimeError, match="Arguments for call are not valid"):
        torch.jit.script(scope["reduce"])


def test_constants_stand_in_the_order_of_their_classes() -> None:
    class Many(nn.Module):
        __constants__ = ["zebra", "apple", "mango", "kiwi", "pear", "fig"]

        def __init__(self) -> None:
            super().__init__()
            for number, name in enumerate(self.__constants__):
                setattr(self, name, number)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.zebra + self.fig

    unit = torch.jit.script(Many())
    code = buffer_of(unit)
    places = [code.index(f"{name} : Final[int]") for name in Many.__constants__]
    assert places == sorted(places)


def buffer_of(module: torch.jit.ScriptModule) -> str:
    """The text of the classes in an archive of the module."""
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    with zipfile.ZipFile(buffer) as archive:
        return "".join(archive.read(n).decode() for n in archive.namelist() if n.endswith(".py"))
