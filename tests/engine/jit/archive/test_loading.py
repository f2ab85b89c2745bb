"""Archives that torch wrote (`make_archives.py`) load, run and give torch's numbers."""

from __future__ import annotations

import copy
import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import jit, nn
from engine.serialization import UnpicklingError
from tests.engine.jit import forge

FOLDER = Path(__file__).parents[1] / "archives"
VERSIONS = sorted(path.name for path in FOLDER.iterdir() if path.is_dir())


@cache
def table(version: str) -> dict[str, Any]:
    return json.loads((FOLDER / version / "cases.json").read_text())


CASES = [(version, name) for version in VERSIONS for name in table(version)]


def rebuilt(form: Any, arrays: Any) -> Any:
    """A stored value: arrays become tensors."""
    ((kind, inside),) = form.items()
    if kind == "array":
        return engine.from_numpy(np.array(arrays[inside]))
    if kind == "dict":
        return {key: rebuilt(value, arrays) for key, value in inside}
    if kind in ("list", "tuple"):
        return (list if kind == "list" else tuple)(rebuilt(value, arrays) for value in inside)
    return inside


def assert_equal(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    if isinstance(expected, engine.Tensor):
        assert isinstance(found, engine.Tensor)
        assert (found.dtype, tuple(found.shape)) == (expected.dtype, tuple(expected.shape))
        if expected.dtype == engine.float16:
            tolerance = 2e-3
        np.testing.assert_allclose(found.detach().numpy(), expected.numpy(), rtol=tolerance, atol=tolerance)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_equal(found[key], value)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for a, b in zip(found, expected):
            assert_equal(a, b)
    elif isinstance(expected, float):
        assert type(found) is float
        assert found == pytest.approx(expected, rel=1e-6)
    else:
        assert type(found) is type(expected)
        assert found == expected


@pytest.mark.parametrize(("version", "name"), CASES)
def test_numbers_of_torch(version: str, name: str) -> None:
    case = table(version)[name]
    module = jit.load(str(FOLDER / version / f"{name}.pt"))
    assert list(module.state_dict()) == case["state"]
    with np.load(FOLDER / version / f"{name}.npz") as arrays:
        for call in case["calls"]:
            inputs = [rebuilt(form, arrays) for form in call["inputs"]]
            assert_equal(module(*inputs), rebuilt(call["output"], arrays))


def load(name: str, version: str = "2.13.0") -> Any:
    return jit.load(str(FOLDER / version / f"{name}.pt"))


def test_a_loaded_module_is_a_module() -> None:
    module = load("convnet")
    assert isinstance(module, nn.Module)
    assert isinstance(module, jit.ScriptModule)
    assert isinstance(module.features[0].weight, nn.Parameter)
    assert module.original_name == "Convnet"
    assert module.features[1].running_mean.shape == (4,)
    assert module.features[0].stride == (2, 2)
    assert "original_name=Convnet" in repr(module)
    assert not module.training
    assert module.train().features[1].training
    seen = []
    module.register_forward_hook(lambda m, inputs, output: seen.append(len(output)))
    module(engine.randn(1, 3, 16, 16))
    assert seen == [2]
    again = copy.deepcopy(module)
    again.features[0].weight.data.zero_()
    assert module.features[0].weight.abs().sum() > 0
    assert module.double()(engine.randn(1, 3, 16, 16).double())[0].dtype == engine.float64
    other = load("convnet")
    other.load_state_dict({k: v * 0 for k, v in other.state_dict().items()})
    assert other(engine.randn(1, 3, 16, 16))[0].abs().sum() == 0


def test_batch_norm_follows_train_and_eval() -> None:
    module, x = load("convnet"), engine.randn(4, 3, 16, 16)
    before = module.features[1].running_mean.clone()
    module(x)
    assert bool((module.features[1].running_mean == before).all())
    module.train()(x)
    assert bool((module.features[1].running_mean != before).any())
    assert int(module.features[1].num_batches_tracked) == 1


@pytest.mark.parametrize("name", ["convnet", "recurrent", "traced_convnet", "traced_recurrent"])
def test_training_reaches_every_parameter(name: str) -> None:
    """All change but the bias of a convolution before batch norm, which subtracts it again: its gradient is "
    "rounding."""
    engine.manual_seed(11)  # rounding is then too small to move the bias
    without_effect = {"features.0.bias"} if name == "convnet" else set()
    module = load(name).train()
    x = engine.randn(2, 5, 3) if "recurrent" in name else engine.randn(2, 3, 16, 16)
    optimizer = engine.optim.SGD(module.parameters(), lr=0.01)
    before = {key: value.clone() for key, value in module.named_parameters()}
    sum(out.pow(2).sum() for out in module(x)).backward()
    assert all(p.grad is not None for p in module.parameters())
    optimizer.step()
    for key, value in module.named_parameters():
        if key in without_effect:
            assert float(value.grad.abs().max()) < 1e-5
        else:
            assert bool((value != before[key]).any()), key


def test_shared_weights_are_one_parameter() -> None:
    module = load("shared")
    assert module.first.weight is module.again.weight
    assert module.first.weight is module.tied.weight
    assert len(list(module.parameters())) == 3
    x = engine.ones(1, 2)
    assert engine.equal(module.halved(x, by=4) * 4, module(x))


def test_attributes_and_methods() -> None:
    module = load("containers")
    assert (module.weights, module.table, module.size) == ([0.5, 2.0], {"one": 1, "two": 2}, (4, 2.5))
    assert module.nothing is None
    assert len(module.layers) == 2
    assert "relu" in module.named
    assert module.named["tanh"] is module.named.tanh
    module.weights = [0.0, 0.0]
    assert module(engine.ones(1, 3))["0"].abs().sum() == 0
    assert module.code.startswith("def forward(self: __torch__.Containers,\n  x: Tensor)")
    assert module.script_method().schema == "forward(__torch__.Containers self, Tensor x) -> Dict(str, Tensor)"
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = module.nope
    assert str(module.graph).startswith("graph(%self : __torch__.Containers,\n      %x : Tensor):\n")


def test_errors_are_torchs() -> None:
    module = load("raising")
    with pytest.raises(jit.Error, match=r"builtins\.ValueError: expected 2 dims, got 3") as caught:
        module(engine.ones(1, 1, 1))
    assert 'File "code/__torch__.py", line' in str(caught.value)
    with pytest.raises(jit.Error, match="AssertionError: too many rows"):
        module(engine.ones(9, 1))
    with pytest.raises(RuntimeError, match=r"forward\(\) Expected a value of type 'Tensor' for argument 'x' but"):
        module("text")
    with pytest.raises(RuntimeError, match=r"forward\(\) is missing value for argument 'x'"):
        module()
    with pytest.raises(RuntimeError, match="at most 2 argument"):
        module(engine.ones(1, 1), 2)
    with pytest.raises(RuntimeError, match="Unknown keyword argument 'y'"):
        module(engine.ones(1, 1), y=1)


def test_arguments_are_converted() -> None:
    module = load("optionals")
    x = engine.ones(1, 4)
    assert module(x, factors=(2, 3.0))[0].tolist() == [[6.0] * 4]
    assert module(other=x, x=x, name="a")[2] == "A HAS 1!"


def test_files_and_where_they_go() -> None:
    path = FOLDER / "2.13.0" / "half.pt"
    content = io.BytesIO(path.read_bytes())
    assert jit.load(content, map_location="cpu").linear.weight.dtype == engine.float16
    with pytest.raises(ValueError, match="does not exist"):
        jit.load(str(path) + "x")
    with pytest.raises(ValueError, match="is a directory"):
        jit.load(str(FOLDER))
    with pytest.raises(UnpicklingError, match="truncated"):
        jit.load(io.BytesIO(path.read_bytes()[:900]))
    with pytest.raises(UnpicklingError, match="TorchScript"):
        engine.load(path)


def test_the_fast_path_of_attention() -> None:
    """Without gradients the archive's code takes torch's fused operators."""
    for version in VERSIONS:
        if "attention" not in table(version):
            continue
        call = table(version)["attention"]["calls"][0]
        with np.load(FOLDER / version / "attention.npz") as arrays, engine.no_grad():
            tokens = rebuilt(call["inputs"][0], arrays)
            assert_equal(load("attention", version)(tokens), rebuilt(call["output"], arrays))


@pytest.mark.parametrize(("version", "name"), CASES)
def test_saved_anew(version: str, name: str, tmp_path: Path) -> None:
    """What `save` writes was opened by torch 2.13, which gave the stored numbers for all of these."""
    jit.save(load(name, version), tmp_path / "again.pt")
    module = jit.load(tmp_path / "again.pt")
    assert list(module.state_dict()) == table(version)[name]["state"]
    with np.load(FOLDER / version / f"{name}.npz") as arrays:
        call = table(version)[name]["calls"][0]
        assert_equal(module(*(rebuilt(form, arrays) for form in call["inputs"])), rebuilt(call["output"], arrays))


def test_saved_after_a_change_and_with_extra_files() -> None:
    module = load("containers")
    module.layers[0].weight.data.fill_(1.0)
    module.weights = [3.0, 4.0]
    out = io.BytesIO()
    module.half().save(out, {"note": "text", "raw": b"\0\1"})
    out.seek(0)
    extra: dict[str, Any] = {"note": "", "raw": b"", "none": ""}
    again = jit.load(out, _extra_files=extra)
    assert extra == {"note": "text", "raw": b"\0\1", "none": ""}
    assert again.weights == [3.0, 4.0]
    assert again.layers[0].weight.dtype == engine.float16
    assert bool((again.layers[0].weight == 1).all())
    with pytest.raises(NotImplementedError, match=r"make it a program by torch\.jit\.script"):
        jit.save(nn.Linear(1, 1), io.BytesIO())


def test_the_layout_of_torch_1_4() -> None:
    """Imports and the version stand in the text, buffers have no list, integer division cuts."""
    code = (
        "op_version_set = 1\nimport __torch__.other\nclass M(Module):\n  __parameters__ = ['weight', ]\n  weight : "
        "Tensor\n  table : Tensor\n  training : bool\n  scale : Final[float] = 2.0\n  def forward(self: "
        "__torch__.M,\n    x: Tensor) -> Tensor:\n    _0 = torch.div(torch.tensor(-7), torch.tensor(2))\n    y = "
        "__torch__.other.twice(torch.mul(x, self.weight), )\n    return torch.add(y, torch.add(_0, self.table), "
        "alpha=1)\n"
    )
    other = "op_version_set = 1\ndef twice(x: Tensor) -> Tensor:\n  return torch.mul(x, 2)\n"
    tensor = (
        b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x00%s"
        b"X\x03\x00\x00\x00cpuK\x01tQK\x00))%sccollections\nOrderedDict\n)RtR"
    )
    state = forge.nested({"weight": tensor % (b"0", b"\x88"), "table": tensor % (b"1", b"\x89"), "training": True})
    module = jit.load(
        forge.archive(
            {"code/__torch__.py": code, "code/__torch__/other.py": other},
            b"c__torch__\nM\n)\x81" + state + b"b",
            extra={"a/data/0": np.float32(3).tobytes(), "a/data/1": np.float32(10).tobytes()},
            version=b"1\n",
        )
    )
    assert list(module.state_dict()) == ["weight", "table"]
    assert module.weight.requires_grad
    assert module.scale == 2.0
    assert module(engine.ones(1)).tolist() == [6.0 - 3.0 + 10.0]


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_reductions_of_losses_are_numbers(reduction: int) -> None:
    x, y, words = engine.rand(4, 3), engine.rand(4, 3), ("none", "mean", "sum")[reduction]
    f = engine.nn.functional
    for name, function in (
        ("mse_loss", f.mse_loss),
        ("l1_loss", f.l1_loss),
        ("smooth_l1_loss", f.smooth_l1_loss),
        ("huber_loss", f.huber_loss),
        ("soft_margin_loss", f.soft_margin_loss),
    ):
        code = forge.body(f"return torch.{name}(x, CONSTANTS.c0, {reduction})".replace("CONSTANTS.c0", "(self).y(x, )"))
        code += "  def y(self: __torch__.M,\n    x: Tensor) -> Tensor:\n    return torch.flip(x, [0])\n"
        found = jit.load(forge.archive(code))(x)
        assert engine.equal(found, function(x, x.flip(0), reduction=words))
    code = forge.body(f"return torch.cross_entropy_loss(x, torch.argmax(x, 1), None, {reduction}, -100, 0.1)")
    expected = f.cross_entropy(y, y.argmax(1), reduction=words, label_smoothing=0.1)
    assert engine.equal(jit.load(forge.archive(code))(y), expected)
    code = forge.body(f"return torch.binary_cross_entropy_with_logits(x, torch.sigmoid(x), None, None, {reduction})")
    expected = f.binary_cross_entropy_with_logits(y, y.sigmoid(), reduction=words)
    assert engine.equal(jit.load(forge.archive(code))(y), expected)


CALLS: list[tuple[str, Any]] = [  # of x = [[3, 4]]; what torch 2.13 gives
    ("torch.cdist(x, torch.zeros_like(x), 2., None)", [[5.0]]),
    ("torch.cdist(x, torch.zeros_like(x), 2., 1)", [[5.0]]),
    ("torch.cdist(x, torch.zeros_like(x), 1., 2)", [[7.0]]),
    ('torch.einsum("ij,kj->ik", [x, x], path=[0, 1])', [[25.0]]),
    ("torch.copy(x, torch.ones([1], dtype=4))", [[1.0, 1.0]]),
    ("torch.add(torch.add_(torch.detach_copy(x), 1), x)", [[7.0, 9.0]]),
    ("torch.subtract(x, 1, 2)", [[1.0, 2.0]]),
    ("torch.subtract_(torch.mul(x, 1), 1, 2)", [[1.0, 2.0]]),
    ("torch.dequantize(x)", [[3.0, 4.0]]),
    ("torch.nuclear_norm(x, True)", [[5.0]]),
    ("torch.nuclear_norm(x, [0, 1])", 5.0),
    ('torch.sub(torch.gelu_(torch.mul(x, 1), approximate="tanh"), torch.gelu(x, approximate="tanh"))', [[0.0, 0.0]]),
]


@pytest.mark.parametrize(("text", "expected"), CALLS, ids=[text for text, _ in CALLS])
def test_arguments_of_operators(text: str, expected: Any) -> None:
    found = jit.load(forge.archive(forge.body(f"return {text}")))(engine.tensor([[3.0, 4.0]]))
    assert engine.allclose(found, engine.tensor(expected)) and found.dtype == engine.float32


EXPRESSIONS = (Path(__file__).parents[1] / "expressions.txt").read_text().splitlines()


@cache
def operators() -> Any:
    return load("operators")


@pytest.mark.parametrize("number", range(len(EXPRESSIONS)), ids=lambda i: EXPRESSIONS[i][:50])
def test_operators(number: int) -> None:
    with np.load(FOLDER / "2.13.0" / "operators.npz") as arrays:
        inputs = [engine.from_numpy(arrays[name].copy()) for name in ("x", "img", "idx")]
        expected = arrays[f"o{number}"]
    found = getattr(operators(), f"m{number}" if number else "forward")(*inputs)
    if isinstance(found, engine.Tensor):
        found = found.detach().numpy()
        assert found.dtype == expected.dtype
    found = np.asarray(found)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=3e-4, atol=3e-5)
