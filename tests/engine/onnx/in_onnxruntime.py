"""`make test-onnx`: what is exported passes ONNX's checker and gives the engine's numbers in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx as checker
import onnxruntime
import pytest

import engine
from engine.onnx import OnnxExporterError
from tests.engine.onnx.programs import AXES, Program, differences, net, other_sizes, program, sampled, single
from tests.engine.samples import tensors_of

TIES = ("topk-4-", "topk-5-", "topk-6-")  # equal values, whose order ONNX leaves open


def check(made: Program, inputs=None, expected=None) -> None:
    checker.checker.check_model(checker.load_from_string(made.data), full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(made.data, options, providers=["CPUExecutionProvider"])
    given = dict(zip(made.names, (t.detach().numpy() for t in inputs or made.inputs)))
    found = session.run(None, {one.name: given[one.name] for one in session.get_inputs()})
    assert not list(differences([np.asarray(f) for f in found], expected or made.expected))


@pytest.mark.parametrize("case", sampled(), ids=str)
@pytest.mark.filterwarnings("ignore")
def test_operator(case) -> None:
    args, kwargs = single(case)
    try:
        case.function(*args, **kwargs)
    except Exception:
        return  # not in float32
    try:
        made = program(lambda *a, **k: case.function(*a, **k), args, kwargs)
    except OnnxExporterError:
        return  # test_builders.py has what it says
    if not str(case).startswith(TIES):
        check(made)


@pytest.mark.parametrize("opset", range(17, 24))
def test_module(opset: int) -> None:
    model, inputs = net()
    check(program(model, inputs, opset_version=opset))


@pytest.mark.parametrize("opset", (17, 18, 21))
def test_module_with_sizes_that_vary(opset: int) -> None:
    model, inputs = net()
    made = program(model, inputs, dynamic_axes=AXES, opset_version=opset)
    check(made)
    with engine.no_grad():
        check(made, other_sizes(), [t.numpy() for t in tensors_of(model(*other_sizes()))])
