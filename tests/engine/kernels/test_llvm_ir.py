"""How the source form is printed in LLVM's language."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest

from engine.kernels import cpu, llvm_columns, llvm_ir, llvm_jobs, llvm_math, processor, rows
from engine.kernels.form import FormError, Kernel, call
from engine.kernels.jobs import Jobs
from engine.ops.generated import route


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
    """One for each, so that nothing is divided within them but where a piece begins and ends."""
    from engine.kernels.elementwise import collapsed, recorded

    layout = collapsed((2, 3, 4, 5), [(1, 2, 6, 24), (60, 20, 5, 1)])
    code = recorded("f", lambda xp, a: xp.exp(a), [np.dtype("f4")], {}, layout.classes, True)
    text = llvm_ir.printed(code.kernel, "f")
    assert "llvm.access.group" in text and text.count("!llvm.loop !") == 1
    assert "rem i64" not in text and "udiv" not in text and text.count("sdiv i64") == 2 * 3


def test_lines_of_a_known_length_have_a_loop_of_that_many_turns() -> None:
    from engine.kernels.elementwise import collapsed, recorded

    layout = collapsed((6, 7), [(14, 1), (7, 1)])
    code = recorded("f", lambda xp, a: xp.negative(a), [np.dtype("f4")], {}, layout.classes, True)
    text = llvm_ir.printed(code.kernel, "f", known={"n1": 7})
    assert text.count("!llvm.loop !") == 1 and "llvm.smax.i64(i64 7" not in text
    assert text.count("fneg") == 2  # of whole lines, and of those that a piece begins or ends in


def test_rows_find_their_coordinates_without_dividing_and_by_numbers_of_their_own() -> None:
    """A number that is worked out within a row is not known outside of it."""
    k = Kernel("k", "rows")
    x, out, n = k.array("x", "float32"), k.array("out", "float32", True), k.scalar("n", "index")
    k.store(out, k.index, k.load(x, k.index % n * 2 + k.index // n))
    assert "rem i64" not in llvm_ir.printed(k, "k")
    k = Kernel("k", "rows")
    x, out, n = k.array("x", "float32"), k.array("out", "float32", True), k.scalar("n", "index") + 1
    k.store(out, k.index, k.load(x, k.index % n))
    assert "urem i64" in llvm_ir.printed(k, "k")


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


def _products(lanes: int) -> Kernel:
    k = Kernel("products", "jobs", lanes)
    x, out = k.array("x", "float32"), k.array("out", "float32", True)
    with k.loop(k.begin, k.end, 2) as job:
        line = k.either(job > 3, k.view(x, job * lanes), x)
        total = k.variable(k.vector(line))
        k.set(total, call("fma", total, k.spread(k.load(x, 1)), 0.5))
        k.store(out, job * lanes, total)
    return k


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_jobs_have_vectors_of_any_width(lanes: int) -> None:
    text = llvm_jobs.JobPrinter(_products(lanes), "f", {}, "", None).text()
    assert f"load <{lanes} x float>, ptr" in text and f"store <{lanes} x float>" in text
    assert f"fmul contract <{lanes} x float>" in text and f"fadd contract <{lanes} x float>" in text
    assert "select i1" in text and "vectorize" not in text  # an address is chosen; loops are as they are written
    assert "add nsw i64" in text


def test_arrays_of_jobs_are_memory_or_objects() -> None:
    plain = llvm_jobs.in_llvm(_products)("f", 4, "")
    assert llvm_jobs.in_llvm(_products, 16)("f", 4, "").count("load ptr") == 2 * plain.count("load ptr")


def test_vectors_have_some_functions() -> None:
    def text(function: str) -> str:
        k = Kernel("k", "jobs", 4)
        x, out = k.array("x", "float32"), k.array("out", "float32", True)
        k.store(out, 0, call(function, k.vector(x)))
        return llvm_jobs.JobPrinter(k, "f", {}, "", None).text()

    assert "declare <4 x float> @llvm.fmuladd.v4f32(<4 x float>, <4 x float>, <4 x float>)" in text("exp")
    with pytest.raises(FormError, match="no erf of vectors of float32"):
        text("erf")


@pytest.mark.skipif(not processor.available(), reason="without llvmlite")
@pytest.mark.parametrize("function", sorted(llvm_math.FUNCTIONS))
def test_functions_of_vectors_are_those_of_numbers(function: str) -> None:
    x = np.concatenate([np.linspace(-90, 90, 4092), [0.0, math.inf, -math.inf, math.nan]]).astype("float32")
    single = Kernel("single", "map")
    given, out = single.array("x", "float32"), single.array("out", "float32", True)
    single.store(out, single.index, call(function, single.load(given, single.index)))
    want, found = np.empty_like(x), np.empty_like(x)
    cpu.build(single)([x, want], len(x), 1)

    @llvm_jobs.in_llvm
    def several() -> Kernel:
        k = Kernel("several", "jobs", 4)
        given, out = k.array("x", "float32"), k.array("out", "float32", True)
        with k.loop(k.begin, k.end, 4) as at:
            k.store(out, at, call(function, k.vector(given, at)))
        return k

    route.linked(several)(struct.pack("<2Q", x.ctypes.data, found.ctypes.data), 0, len(x))
    np.testing.assert_array_equal(found, want)


def test_a_loop_in_steps_is_refused_in_rows() -> None:
    """It would be walked in steps of 1."""
    k = Kernel("stepped", "rows")
    out = k.array("out", "float32", True)
    with k.loop(0, 8, 2) as i:
        k.store(out, i, k.constant(1.0, "float32"))
    with pytest.raises(FormError, match="a loop in steps in stepped"):
        llvm_ir.printed(k, "KERNEL")


def test_loops_that_store_in_order_are_left_as_they_are() -> None:
    """LLVM prints a warning to the terminal where it cannot vectorize what is marked for it."""
    k = Kernel("added", "rows")
    x, places, out = k.array("x", "float32"), k.array("places", "int64"), k.array("out", "float32", True)
    n = k.scalar("n", "index")
    with k.loop(0, n) as i:
        at = k.cast(k.load(places, i), "index")
        k.store(out, at, k.load(out, at) + k.load(x, k.index * n + i))
    assert "vectorize.enable" not in llvm_ir.printed(k, "added")
    with k.each(n) as i:
        k.store(out, i, k.load(x, i))
    assert llvm_ir.printed(k, "added").count("vectorize.enable") == 1


@pytest.mark.parametrize("lanes", [4, 16])
def test_numbers_of_several_places_become_vectors(lanes: int) -> None:
    k = Jobs("k", lanes, ("x", "out"), 2)
    x, out = k.arrays
    places = [k.begin * lane for lane in range(lanes)]
    pair = k.pairs(x, places)
    k.store_pairs(out, [k.begin], pair)
    k.scatter(out, places, k.gathered(x, places))
    text = llvm_jobs.JobPrinter(k, "f", {}, "", None).text()
    assert text.count("load i64, ptr") == lanes and text.count("load float, ptr") == lanes  # a pair at once
    assert text.count("store float") == lanes and text.count(f"store <{lanes} x i64>") == 1


@pytest.mark.parametrize("lanes", [4, 8])
def test_vectors_are_transposed(lanes: int) -> None:
    k = Jobs("k", lanes, ("x",), 1)
    rows = [k.vector(k.arrays[0], lane * lanes) for lane in range(lanes)]
    made = k.transposed(rows)
    assert [row.type for row in made] == [f"float32*{lanes}"] * lanes
    text = llvm_jobs.JobPrinter(k, "f", {}, "", None).text()
    assert text.count("shufflevector") == lanes * (lanes.bit_length() - 1)


def test_a_table_of_sixteen_is_looked_up_in_one_instruction() -> None:
    k = Jobs("k", 16, ("x", "out"), 2, {"x": "int32"})
    x, out = k.arrays
    k.store(out, 0, k.looked_up(k.vector_of([0.5 * n for n in range(16)]), k.vector(x)))
    text = llvm_jobs.JobPrinter(k, "f", {}, "", None).text()
    assert text.count("call <16 x float> @llvm.x86.avx512.permvar.sf.512") == 1
    assert "declare <16 x float> @llvm.x86.avx512.permvar.sf.512(<16 x float>, <16 x i32>)" in text
