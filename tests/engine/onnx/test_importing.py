"""`load`: modules of engine ops from files, and what files are refused."""

from __future__ import annotations

import random

import numpy as np
import pytest

import engine
from engine import nn, onnx
from engine.onnx import importing
from engine.onnx.tensors import from_array
from engine.onnx.wire import encode
from engine.tensor import wrap
from tests.engine.onnx.programs import differences, net, program


def file(nodes, inputs=("x",), outputs=("y",), weights=(), opset=18, shape=None, dtype=1) -> bytes:
    """A model of these nodes: (operator, inputs, outputs, attributes)."""

    def port(name: str) -> dict:
        dims = {} if shape is None else {"shape": {"dim": [{"dim_value": n} for n in shape]}}
        return {"name": name, "type": {"tensor_type": {"elem_type": dtype, **dims}}}

    def attribute(name: str, value) -> dict:
        if isinstance(value, np.ndarray):
            return {"name": name, "t": from_array("", value), "type": 4}
        kinds = {int: ("i", 2), float: ("f", 1), str: ("s", 3), list: ("ints", 7)}
        field, number = kinds[type(value)]
        return {"name": name, field: value.encode() if field == "s" else value, "type": number}

    made = {
        "ir_version": 8,
        "opset_import": [{"domain": "", "version": opset}],
        "graph": {
            "node": [
                {
                    "op_type": kind,
                    "input": list(given),
                    "output": list(made),
                    "attribute": [attribute(*item) for item in options.items()],
                }
                for kind, given, made, options in nodes
            ],
            "initializer": [from_array(name, array) for name, array in weights],
            "input": [port(name) for name in inputs],
            "output": [port(name) for name in outputs],
        },
    }
    return b"".join(bytes(piece) for piece in encode("ModelProto", made))


def run(kind, *arrays, outputs=("y",), opset=18, **options) -> list[np.ndarray]:
    """One operator on arrays."""
    names = [f"x{i}" for i in range(len(arrays))]
    weights = list(zip(names, map(np.asarray, arrays)))[1:]
    dtype = {"f": 1, "i": 7, "b": 9}[np.asarray(arrays[0]).dtype.kind]
    loaded = onnx.load(file([(kind, names, outputs, options)], names[:1], outputs, weights, opset, dtype=dtype))
    found = loaded(wrap(np.asarray(arrays[0])))
    return [t.detach().numpy() for t in (found if isinstance(found, tuple) else (found,))]


X = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4) - 7


def test_plans_serve_a_loaded_model() -> None:
    model, inputs = net()
    loaded = onnx.load(program(model, inputs).data)
    planned = engine.compile(loaded)
    with engine.no_grad():
        expected = [t.numpy() for t in loaded(*inputs)]
        for _ in range(2):
            assert not list(differences([t.numpy() for t in planned(*inputs)], expected))
    assert not isinstance(planned.plans[0], str)


def test_weights_are_parameters_and_train() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    loaded = onnx.load(program(model.eval(), (engine.ones(2, 3),)).data)
    names = [name.removeprefix("program.") for name, _ in loaded.named_parameters()]
    assert names == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert len(list(loaded.buffers())) == 2
    before = loaded(engine.ones(2, 3)).sum()
    before.backward()
    engine.optim.SGD(loaded.parameters(), 0.1).step()
    assert loaded(engine.ones(2, 3)).sum() < before


def test_inputs_are_checked_and_may_be_named() -> None:
    loaded = onnx.load(file([("Add", ["a", "b"], ["y"], {})], ["a", "b"], shape=[2]))
    one, two = engine.ones(2), engine.full((2,), 2.0)
    assert loaded(one, b=two).tolist() == loaded(a=one, b=two).tolist() == [3, 3]
    for args, kwargs, why in (
        ((one,), {}, r"\['b'\] are missing"),
        ((one, two, one), {}, "takes"),
        ((one,), {"c": two}, r"not \['c'\]"),
        ((one, two.double()), {}, "is torch.float64"),
        ((one, engine.ones(3)), {}, r"has the shape \[3\]"),
        ((one, 2), {}, "is a int"),
    ):
        with pytest.raises((TypeError, ValueError), match=why):
            loaded(*args, **kwargs)


def test_forms_that_the_exporter_does_not_write() -> None:
    assert run("Softmax", X, opset=11, axis=2)[0].sum() == pytest.approx(2)
    assert run("Unsqueeze", X, opset=11, axes=[0])[0].shape == (1, 1, 2, 3, 4)
    assert run("ReduceSum", X, opset=11, axes=[1], keepdims=0)[0].shape == (1, 3, 4)
    assert run("Slice", X, opset=9, starts=[1], ends=[3], axes=[2])[0].tolist() == X[:, :, 1:3].tolist()
    back = run("Slice", X, np.array([-1]), np.array([-(2**31)]), np.array([3]), np.array([-2]))[0]
    assert back.tolist() == X[..., ::-2].tolist()
    assert run("Clip", X, opset=6 + 1, min=-1.0, max=2.0)[0].max() == 2
    assert run("Pad", X, np.array([0, 0, 1, 0, 0, 0, 0, 2]), mode="edge")[0].shape == (1, 2, 4, 6)
    assert run("Pad", X, np.array([0, 0, 1, 0, 0, 0, 0, 1]), mode="reflect")[0][0, 0, 0].tolist() == [-3, -2, -1, 0, -1]
    assert run("Flatten", X, axis=2)[0].shape == (2, 12)
    assert run("DepthToSpace", np.tile(X, (1, 2, 1, 1)), blocksize=2)[0].shape == (1, 1, 6, 8)
    assert run("SpaceToDepth", X[:, :, :2], blocksize=2)[0].shape == (1, 8, 1, 2)
    assert run("Dropout", X)[0].tolist() == X.tolist()
    assert run("HardSigmoid", X)[0].max() == 1 and run("Celu", X)[0].min() > -1
    assert run("GatherND", X[0], np.array([[0, 1], [1, 2]]))[0].tolist() == X[0][[0, 1], [1, 2]].tolist()
    assert run("ScatterElements", X[0, 0], np.array([[1, -1, 0, 1]]), np.ones((1, 4), np.float32))[0][1].tolist() == [
        1,
        -2,
        -1,
        1,
    ]
    assert run("OneHot", np.array([0, -1]), np.array(3), np.array([0.0, 5.0]))[0].tolist() == [[5, 0, 0], [0, 0, 5]]
    assert run("ArgMax", np.array([[1.0, 3.0, 3.0]]).astype(np.float32), axis=1, select_last_index=1)[0].tolist() == [
        [2]
    ]
    assert run("CumSum", np.float32([1, 2, 3]), np.array(0), exclusive=1, reverse=1)[0].tolist() == [5, 3, 0]
    assert run("Mod", np.array([-7, 7]), np.array([3, -3]))[0].tolist() == [2, -2]
    assert run("Div", np.array([-7, 7]), np.array([2, 2]))[0].tolist() == [-3, 3]
    weight = np.ones((1, 2, 2, 2), np.float32)
    assert run("Conv", X, weight, auto_pad="SAME_UPPER")[0].shape == (1, 1, 3, 4)
    assert run("AveragePool", X, kernel_shape=[2, 2], auto_pad="SAME_UPPER")[0][0, 0, 2, 3] == X[0, 0, 2, 3]
    assert run("ConstantOfShape", np.array([2, 1]), value=np.float32([4]))[0].tolist() == [[4], [4]]
    assert run("EyeLike", np.zeros((2, 3), np.float32), k=1)[0].tolist() == [[0, 1, 0], [0, 0, 1]]
    assert run("GroupNormalization", X, np.ones(1, np.float32), np.zeros(1, np.float32), num_groups=1)[0].mean() < 1e-6


def test_constants_and_sizes() -> None:
    nodes = [
        ("Constant", [], ["c"], {"value": np.array([3, -1])}),
        ("Constant", [], ["two"], {"value_float": 2.0}),
        ("Reshape", ["x", "c"], ["r"], {}),
        ("Mul", ["r", "two"], ["y"], {}),
    ]
    assert onnx.load(file(nodes))(engine.ones(6)).tolist() == [[2, 2]] * 3


CYCLE = [("Add", ["x", "b"], ["a"], {}), ("Relu", ["a"], ["b"], {}), ("Relu", ["b"], ["y"], {})]
REFUSED = {
    "nothing": (b"", "no graph"),
    "text": (b"#!/bin/sh\necho\n", "wire type|reaches beyond"),
    "cycle": (file(CYCLE), "reads 'b', which nothing before it makes"),
    "unknown input": (file([("Relu", ["z"], ["y"], {})]), "reads 'z'"),
    "unknown output": (file([("Relu", ["x"], ["q"], {})]), "an output reads 'y'"),
    "made twice": (file([("Relu", ["x"], ["y"], {}), ("Relu", ["x"], ["y"], {})]), "there already"),
    "input made again": (file([("Relu", ["x"], ["x"], {})], outputs=["x"]), "there already"),
    "two inputs of one name": (file([("Add", ["x", "x"], ["y"], {})], ["x", "x"]), "two inputs"),
    "two weights of one name": (
        file([("Relu", ["x"], ["y"], {})], weights=[("w", np.ones(1)), ("w", np.ones(1))]),
        "two weights",
    ),
    "no outputs": (file([("Relu", ["x"], ["y"], {})], outputs=[]), "no outputs"),
    "too many inputs": (file([("Relu", ["x", "x"], ["y"], {})]), "has 2 inputs"),
    "operator": (file([("Loop", ["x"], ["y"], {}), ("Custom", ["y"], ["z"], {})]), "Custom, Loop"),
    "attribute": (file([("Relu", ["x"], ["y"], {"alpha": 1.0})]), "Relu with alpha is not supported"),
    "attribute's name": (file([("Relu", ["x"], ["y"], {"a b": 1})]), "has the attribute"),
    "attribute of ours": (file([("Softmax", ["x"], ["y"], {"opset": 1})]), "has the attribute"),
    "opset": (file([("Relu", ["x"], ["y"], {})], opset=99), "opset 99"),
    "element type": (file([("Relu", ["x"], ["y"], {})], dtype=8), "strings"),
    "outputs": (file([("Relu", ["x"], ["y", "z"], {})]), "2 outputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    data, why = REFUSED[name]
    with pytest.raises((onnx.FormatError, onnx.UnsupportedOperatorError), match=why):
        onnx.load(data)


HOSTILE = (
    "forward",
    "training",
    "__class__",
    "_parameters",
    "a.forward",
    "x):\n import os\ndef f(",
    '"); os.system("x',
    "",
    ".",
    "a..b",
    "a" * 5000,
    "a.a.a",
    "if",
    "é",
    "0",
    "program",
)


def test_names_of_a_file_never_become_code_or_replace_anything() -> None:
    weights = [(name, np.float32([i])) for i, name in enumerate(HOSTILE) if name]
    weights += [("w", np.float32([1])), ("w.w", np.float32([1]))]
    before = "x"
    nodes = []
    for i, (name, _) in enumerate(weights):
        nodes.append(("Add", [before, name], [f"{name}!{i}"], {}))
        before = f"{name}!{i}"
    for given in ("x):\n import os", "self", "class"):
        changed = [(k, [given if n == "x" else n for n in ins], outs, o) for k, ins, outs, o in nodes]
        loaded = onnx.load(file(changed, [given], [before], weights))
        total = sum(float(array[0]) for _, array in weights)
        assert loaded(engine.zeros(1)).tolist() == [total]
        assert "import os" not in loaded.program.code and callable(loaded.program.forward)


def test_damaged_files_are_refused_or_read() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    whole = program(model, (engine.ones(1, 1, 4, 4),)).data
    rng = random.Random(0)
    for _ in range(300):
        broken = bytearray(whole)
        for _ in range(rng.randint(1, 5)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        try:
            onnx.load(bytes(broken))
        except (onnx.FormatError, onnx.UnsupportedOperatorError):
            continue


def test_describe_tells_without_loading(tmp_path) -> None:
    (tmp_path / "m.onnx").write_bytes(
        file([("Loop", ["x"], ["y"], {})], weights=[("w", np.ones((2, 3)))], shape=[1, 2])
    )
    told = importing.describe(tmp_path / "m.onnx")
    assert told["operators"] == [{"name": "Loop", "count": 1, "supported": False}] and told["parameters"] == 6
    assert told["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, 2]}]
