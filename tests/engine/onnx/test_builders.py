"""Every operator with an ONNX form: its samples exported, read back by `load`, and equal."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest

from engine.onnx import OnnxExporterError, load
from engine.onnx.builders import BUILDERS
from engine.onnx.functions import FUNCTIONS
from tests.engine.onnx.programs import differences, program, sampled, single

# no sample, or none that has an ONNX form alone: they are parts of test_exporting.py, or give indices
ELSEWHERE = frozenset(
    """__getitem__ adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d arange broadcast_to chunk copy_ det
    einsum empty empty_like expand_as eye fill_ flatten full full_like gru lstm masked_fill narrow new_empty new_full
    new_ones new_zeros one_hot ones ones_like repeat_interleave reshape reshape_as rnn_relu rnn_tanh scalar_tensor tile
    unflatten view view_as where zero_ zeros zeros_like""".split()
)
SAMPLED = sampled()


@pytest.mark.parametrize("case", SAMPLED, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_reads_back_equal(case) -> None:
    args, kwargs = single(case)
    try:
        case.function(*args, **kwargs)
    except Exception:
        return  # not in float32
    try:
        made = program(lambda *a, **k: case.function(*a, **k), args, kwargs)
    except OnnxExporterError as error:
        assert case.name.strip("_") in str(error) or case.function.__name__ in str(error)
        return
    found = load(made.data)(*made.inputs)
    found = found if isinstance(found, tuple) else (found,)
    assert not list(differences([t.detach().numpy() for t in found], made.expected))


def test_each_is_written_for_one_of_its_samples() -> None:
    written = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in SAMPLED:
            if case.name not in written:
                args, kwargs = single(case)
                try:
                    program(lambda *a, f=case.function, **k: f(*a, **k), args, kwargs)
                    written.add(case.name)
                except Exception:
                    continue
    assert sorted(set(BUILDERS) - written - ELSEWHERE) == []


def test_the_page_names_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "onnx.md").read_text()
    for mark, table in (("ops", BUILDERS), ("operators", FUNCTIONS)):
        (part,) = re.findall(rf"<!-- {mark} -->\n(.*?)<!-- end -->", page, re.S)
        assert re.findall(r"`(\w+)`", part) == sorted(table)
