"""How the source form is printed in LLVM's language."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels import llvm_columns, llvm_ir, rows
from engine.kernels.form import FormError, Kernel, call


def _scaled() -> Kernel:
    k = Kernel("scaled", "map")
    x, out = k.array("x", "bfloat16", dense=True), k.array("out", "bfloat16", True, True)
    k.store(out, k.index, k.load(x, k.index) * k.scalar("factor", "float32"))
    return k


def test_a_map_is_one_loop_of_independent_turns() -> None:
    text = llvm_ir.printed(_scaled(), "scaled")
    assert "define void @scaled(ptr noalias readonly %args, i64 %begin, i64 %end)" in text
    assert text.count("!llvm.loop !") == 1 and "llvm.loop.parallel_accesses" in text
    assert text.count("!llvm.access.group") == 2  # the load and the store of an element
    assert "fmul float" in text and "lshr i32" in text  # rounded to the upper half


def test_coordinates_become_loops() -> None:
    """Nothing is divided within them."""
    from engine.kernels.elementwise import collapsed, recorded

    layout = collapsed((3, 4, 5), [(1, 3, 12), (20, 5, 1)])
    code = recorded("f", lambda xp, a: xp.exp(a), [np.dtype("f4")], {}, layout.classes, True)
    text = llvm_ir.printed(code.kernel, "f")
    inner = text[text.index("llvm.access.group") :] if "llvm.access.group" in text else ""
    assert "urem i64 %begin" not in text and inner and text.count("!llvm.loop !") == 1


def test_what_is_known_is_a_constant() -> None:
    k = Kernel("k", "map")
    x, out, step = k.array("x", "float32"), k.array("out", "float32", True), k.scalar("step", "index")
    k.store(out, k.index, k.load(x, k.index * step))
    assert "mul i64" in llvm_ir.printed(k, "k")
    assert ", 1\n" in llvm_ir.printed(k, "k", known={"step": 1})
    assert "load i64, ptr" in llvm_ir.printed(k, "k") and llvm_ir.printed(k, "k") != llvm_ir.printed(
        k, "k", known={"step": 1}
    )


def test_what_has_no_code_is_refused() -> None:
    k = Kernel("k", "map")
    x, out = k.array("x", "float64"), k.array("out", "float64", True)
    k.store(out, k.index, call("atan2", k.load(x, k.index), 2.0))
    with pytest.raises(FormError, match="no atan2 of float64 in generated code for processors"):
        llvm_ir.printed(k, "k")


def test_columns_know_no_places_of_extremes() -> None:
    made = rows.Rows("r", ["float32", "int64"], 1, ["dense", "dense"], [(True,), (False,)])
    found = made.kernel.reduce("argmax", made.width, lambda j: made.load(0, j))
    with made.kernel.once():
        made.store(1, found[1])
    with pytest.raises(FormError, match="argmax of columns"):
        llvm_columns.printed(made.kernel, "r")
