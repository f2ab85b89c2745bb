"""`export`: modules, sizes that vary, names, settings, refusals."""

from __future__ import annotations

import io
import os
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import engine
from engine import nn, onnx
from engine.jit import TracerWarning
from engine.nn import functional as F
from engine.onnx.wire import decode
from engine.tensor import Tensor, wrap
from tests.engine.onnx.programs import AXES, differences, net, other_sizes, program
from tests.engine.samples import tensors_of


def check(model, made, *inputs) -> None:
    """The file, read back, gives what the model gives."""
    with engine.no_grad():
        expected = [t.numpy() for t in tensors_of(model(*inputs))]
        found = onnx.load(made)(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    assert not list(differences([t.numpy() for t in found], expected))


@pytest.mark.parametrize("opset", [17, 18, 20, 21, 23])
def test_a_module_of_many_layers(opset: int) -> None:
    model, inputs = net()
    check(model, program(model, inputs, opset_version=opset).data, *inputs)


def test_sizes_that_vary() -> None:
    model, inputs = net()
    made = program(model, inputs, dynamic_axes=AXES)
    check(model, made.data, *inputs)
    check(model, made.data, *other_sizes())
    loaded = onnx.load(made.data)
    assert [port.shape for port in loaded.inputs] == [("batch", 3, 8, 8), ("batch", "time", 8)]
    assert loaded.outputs[4].shape == ("batch", "time", "time")


def test_names_are_those_of_the_state_dict_and_of_forward() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    made = program(model, (engine.ones(2, 3),), input_names=["picture"], output_names=["scores"])
    graph = decode("ModelProto", made.data)["graph"]
    assert [t["name"] for t in graph["initializer"]] == ["0.weight", "0.bias", "2.weight", "2.bias"]
    assert [i["name"] for i in graph["input"]] == ["picture"] and [o["name"] for o in graph["output"]] == ["scores"]
    assert [n["op_type"] for n in graph["node"]] == ["Gemm", "Relu", "Gemm"]
    assert onnx.export(model, engine.ones(2, 3)).input_names == ["input"]


def test_eval_mode_for_the_export_only() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    made = onnx.export(model, engine.ones(2, 3))
    assert model.training and model[1].training
    assert [n["op_type"] for n in made.model_proto["graph"]["node"]] == ["Gemm"]


def test_is_in_onnx_export_while_the_module_runs() -> None:
    seen = []

    def function(x: Tensor) -> Tensor:
        seen.append(onnx.is_in_onnx_export())
        return x + 1

    onnx.export(function, engine.ones(2))
    assert seen == [True] and not onnx.is_in_onnx_export()


def test_a_size_that_python_computed_is_refused() -> None:
    def function(x: Tensor) -> Tensor:
        return x.reshape(int(x.shape[0] / 1), 3) * 2

    assert program(function, (engine.ones(4, 3),)).data
    with pytest.raises(onnx.OnnxExporterError, match="bakes a size in: an argument of"):
        onnx.export(function, engine.ones(4, 3), dynamic_axes={"x": {0: "batch"}})

    def constant(x: Tensor) -> Tensor:
        return x + wrap(np.arange(int(x.size(0)), dtype=np.float32))

    with pytest.raises(onnx.OnnxExporterError, match="the constant constant_0"):
        onnx.export(constant, engine.ones(4), dynamic_axes={"x": [0]})


def test_arithmetic_of_sizes_is_computed_in_the_graph() -> None:
    def function(x: Tensor) -> Tensor:
        n, m = x.shape
        half = (n + 1) // 2
        padded = F.pad(x, (0, -m % 4))
        return engine.cat([padded[:half], padded[half:]], 0).reshape(n * padded.shape[1]) + engine.ones(1).new_full(
            (1,), 2
        )

    made = program(function, (wrap(np.random.default_rng(0).random((6, 5), np.float32)),), dynamic_axes={"x": [0, 1]})
    for shape in ((6, 5), (7, 8), (3, 2)):
        check(function, made.data, wrap(np.random.default_rng(1).random(shape, np.float32)))


def test_a_size_that_the_model_takes_alone() -> None:
    model = nn.Linear(3, 2)
    with pytest.raises(onnx.OnnxExporterError, match=r"runs with no other size of \['features'\]"):
        onnx.export(model, engine.ones(1, 3), dynamic_axes={"input": {1: "features"}})


def test_reading_values_warns_and_fixes_them() -> None:
    def function(x: Tensor) -> Tensor:
        return x * 2 if x.sum().item() > 0 else x * 3

    with pytest.warns(TracerWarning, match=r"Tensor\.item reads the values"):
        made = program(function, (engine.ones(2),))
    assert onnx.load(made.data)(-engine.ones(2)).tolist() == [-2, -2]


def test_random_numbers_and_operators_without_a_form_are_named() -> None:
    with pytest.raises(onnx.OnnxExporterError, match="draws random numbers"):
        onnx.export(lambda x: x + engine.rand(2), engine.ones(2))
    with pytest.raises(onnx.UnsupportedOperatorError, match="'lgamma'"):
        onnx.export(lambda x: engine.lgamma(x), engine.ones(2))
    with pytest.raises(onnx.OnnxExporterError, match="returns no tensor"):
        onnx.export(lambda x: 3, engine.ones(2))


def test_settings() -> None:
    x = engine.ones(2)
    with pytest.raises(ValueError, match="opset_version 9 is not supported"):
        onnx.export(lambda x: x + 1, x, opset_version=9)
    with pytest.raises(TypeError, match="unexpected keyword argument 'opset'"):
        onnx.export(lambda x: x + 1, x, opset=18)
    with pytest.raises(NotImplementedError, match=r"torch\.onnx\.export: weights are always written"):
        onnx.export(lambda x: x + 1, x, export_params=False)
    with pytest.raises(ValueError, match="2 input_names for 1"):
        onnx.export(lambda x: x + 1, x, input_names=["a", "b"])
    with pytest.raises(ValueError, match="has 1 dims, not dim 3"):
        onnx.export(lambda x: x + 1, x, dynamic_axes={"x": {3: "n"}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = onnx.export(lambda x: x + 1, x, do_constant_folding=True, dynamo=False, verbose=False)
    assert made.output_names == ["output"]


def test_keywords_nested_inputs_and_outputs_that_are_inputs() -> None:
    def function(pair, scale=None, flag=True):
        a, b = pair
        return a, (a + b) * scale if flag else a, a

    given = ((engine.ones(2), engine.full((2,), 3.0)),)
    made = program(function, given, {"scale": engine.full((2,), 2.0)})
    assert made.names == ["pair_0", "pair_1", "scale"]
    found = onnx.load(made.data)(*made.inputs)
    assert [t.tolist() for t in found] == [[1, 1], [8, 8], [1, 1]]


def test_weights_beside_the_file(tmp_path) -> None:
    model = nn.Sequential(nn.Linear(30, 40), nn.Linear(40, 2))
    x = engine.ones(1, 30)
    made = onnx.export(model, x, tmp_path / "m.onnx", external_data=True)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 30 * 40 * 4
    assert (tmp_path / "m.onnx").stat().st_size < 2000
    assert engine.allclose(onnx.load(tmp_path / "m.onnx")(x), model(x))
    with pytest.raises(onnx.OnnxExporterError, match="need a path"):
        made.save(io.BytesIO(), external_data=True)
    assert sorted(p.name for p in tmp_path.glob("m.*")) == ["m.onnx", "m.onnx.data"]


def test_dynamic_shapes_of_torch_export() -> None:
    made = onnx.export(
        lambda x, y: x + y, (engine.ones(2, 3), engine.ones(2, 3)), dynamic_shapes={"x": {0: "n"}, "y": {0: "n"}}
    )
    assert onnx.load(bytes(made)).outputs[0].shape == ("n", 3)


def test_the_alias_serves_it() -> None:
    assert engine.onnx is onnx and onnx.utils.export is onnx.export
    assert onnx.TrainingMode.EVAL.value == 0


def test_a_file_beside_the_models_is_left_and_a_pipe_stays_one(tmp_path) -> None:
    x = engine.ones(1, 3)
    made = onnx.export(nn.Linear(3, 2), x)
    (tmp_path / "m.onnx.part").write_text("notes")
    made.save(tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx.part").read_text() == "notes"
    pipe, link = tmp_path / "pipe", tmp_path / "link.onnx"
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        read = pool.submit(pipe.read_bytes)
        made.save(pipe)
        assert read.result(10) == (tmp_path / "m.onnx").read_bytes() and pipe.is_fifo()
    link.symlink_to("m.onnx")
    made.save(link)
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == sorted(["home", "link.onnx", "m.onnx", "m.onnx.part", "pipe"])
