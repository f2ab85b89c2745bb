"""Every case of `cases/` gives torch 2.13's values, gradients, reprs and errors, kept in data/*.json."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.nn import record

pytestmark = pytest.mark.onednn
TOLERANCE = {"float32": 3e-5, "float16": 2e-2, "complex64": 3e-5}


def compare(want: Any, have: Any, where: str) -> None:
    if isinstance(want, list) and want and want[0] == "T":
        assert have[:3] == want[:3], where
        rate = TOLERANCE.get(want[1], 1e-7)
        size = float(np.prod(want[2])) if want[2] else 1.0
        allowed = rate * max(1.0, want[-1]) * max(1.0, size**0.5)
        np.testing.assert_allclose(have[3:], want[3:], rate, allowed, err_msg=where)
    elif isinstance(want, list):
        assert isinstance(have, list) and len(have) == len(want), where
        for i, (a, b) in enumerate(zip(want, have)):
            compare(a, b, f"{where}[{i}]")
    elif isinstance(want, dict):
        assert list(have) == list(want), where
        for key in want:
            compare(want[key], have[key], f"{where}.{key}")
    elif isinstance(want, float):
        assert have == pytest.approx(want, rel=1e-9, nan_ok=True), where
    else:
        assert have == want, where


@pytest.mark.parametrize("name", record.NAMES)
def test_cases(name: str) -> None:
    wanted = json.loads((record.DATA / f"{name}.json").read_text())
    r, cases = record.cases_of(name, engine, "engine")
    failures, seen = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case, call in cases:
            have = json.loads(json.dumps(record.run(call, r)))
            seen.append(case)
            try:
                compare(wanted[case], have, case)
            except AssertionError as error:
                failures.append(
                    f"{case}: {str(error).strip()[:300]}\n  want {str(wanted[case])[:300]}\n  have {str(have)[:300]}"
                )
    assert not failures, "\n".join(failures)
    assert seen == list(wanted)
