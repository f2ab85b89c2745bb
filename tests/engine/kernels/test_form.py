"""The source form: what can be written, what is refused, and how it is printed."""

from __future__ import annotations

import pytest

from engine.kernels import cuda_c
from engine.kernels.form import FormError, Kernel, call, where


def _scaled(dense: bool = False) -> Kernel:
    k = Kernel("scaled", "map")
    x, out = k.array("x", "float16", dense=dense), k.array("out", "float16", True, dense)
    k.store(out, k.index, k.load(x, k.index) * k.scalar("factor", "float32"))
    return k


def test_the_example_of_the_docstring_is_printed() -> None:
    text = cuda_c.printed(_scaled())
    assert (
        "void __launch_bounds__(256) scaled(const float16 *__restrict__ x, float16 *out, float factor, index count) {"
        in text
    )
    assert "const float v1 = widened(x[i]);" in text
    assert "out[i] = narrowed<float16>::of(v2);" in text


def test_dense_arrays_are_loaded_sixteen_bytes_at_a_time() -> None:
    k = _scaled(dense=True)
    assert cuda_c.vector_of(k) == 8 and cuda_c.vector_of(_scaled()) == 1
    text = cuda_c.printed(k, vector=8)
    assert "several<float16, 8> all_x = *(const several<float16, 8> *)(x + base);" in text
    assert "several<float16, 8> all_out;" in text  # what is only written is not read
    assert "if (base + 8 <= count) {" in text


def test_types_that_differ_are_refused() -> None:
    k = Kernel("k", "map")
    a, b = k.load(k.array("a", "float32"), k.index), k.load(k.array("b", "int32"), k.index)
    with pytest.raises(FormError, match="add of"):
        a + b
    assert (a + k.cast(b, "float32")).type == "float32"
    assert (a > 1).type == "bool" and where(a > 1, a, 0).type == "float32"


def test_values_are_unknown_while_a_kernel_is_written() -> None:
    k = Kernel("k", "map")
    with pytest.raises(FormError, match="not known"):
        if k.index > 3:
            pass


@pytest.mark.parametrize("type", ["complex64", "float8", "object"])
def test_types_that_no_kernel_knows(type: str) -> None:
    with pytest.raises(FormError, match=f"kernels know no arrays of {type}"):
        Kernel("k", "map").array("x", type)


def test_parameters_have_different_names() -> None:
    k = Kernel("k", "map")
    k.scalar("x", "float32")
    for name in ("x", "count", "i"):
        with pytest.raises(FormError, match="two parameters"):
            k.array(name, "float32")


def test_rows_only_in_kernels_of_rows() -> None:
    k = Kernel("k", "map")
    with pytest.raises(FormError, match="a map has no rows"):
        k.reduce("sum", k.count, lambda j: j)
    with pytest.raises(FormError, match="map or rows"):
        Kernel("k", "grid")


def test_a_reduction_stands_at_the_top() -> None:
    """All threads of a row must come to it."""
    k = Kernel("k", "rows")
    x = k.array("x", "float32")
    with k.each(k.count), pytest.raises(FormError, match="no reduction"):
        k.reduce("sum", k.count, lambda j: k.load(x, j))
    with pytest.raises(FormError, match="no reduction by median"):
        k.reduce("median", k.count, lambda j: k.load(x, j))


@pytest.mark.parametrize(
    ("group", "how"), [("warp", "warp_reduce"), ("block", "block_reduce"), ("columns", "column_reduce")]
)
def test_one_row_kernel_is_printed_for_each_way_of_sharing_a_row(group: str, how: str) -> None:
    k = Kernel("total", "rows")
    x, out, width = k.array("x", "float32"), k.array("out", "float32", True), k.scalar("width", "index")
    total = k.reduce("sum", width, lambda j: k.load(x, k.index * width + j))
    with k.once():
        k.store(out, k.index, total)
    text = cuda_c.printed(k, group=group)
    assert f"{how}<by_sum>" in text and ("__shared__" in text) == (group != "warp")
    assert "if (active && part == 0) {" in text


@pytest.mark.parametrize(
    ("number", "type", "text"),
    [
        (0.1, "float32", "(0.10000000149011612f)"),
        (0.1, "float64", "(0.1)"),
        (float("inf"), "float32", "infinite(0.0f)"),
        (-1e300, "float32", "-infinite(0.0f)"),
        (True, "bool", "true"),
        (-(2**63), "int64", "(-9223372036854775807LL - 1)"),
        (2**64 - 1, "uint64", "18446744073709551615ull"),
        (-3, "int8", "((int8)-3)"),
    ],
)
def test_constants(number: object, type: str, text: str) -> None:
    assert cuda_c._Printer._number(number, type) == text


def test_whole_numbers_wrap() -> None:
    """C may assume that signed ones do not."""
    k = Kernel("k", "map")
    x, out = k.array("x", "int32"), k.array("out", "int32", True)
    k.store(out, k.index, k.load(x, k.index) * 3 + 1)
    assert "(int32)((uint32)v1 * (uint32)((int32)3))" in cuda_c.printed(k)


def test_what_a_type_cannot_do_is_refused_when_printed() -> None:
    k = Kernel("k", "map")
    x, out = k.array("x", "int32"), k.array("out", "int32", True)
    k.store(out, k.index, call("exp", k.load(x, k.index)))
    with pytest.raises(FormError, match="exp of int32"):
        cuda_c.printed(k)


def _shifted(lanes: int) -> Kernel:
    k = Kernel("shifted", "jobs", lanes)
    x, out = k.array("x", "float32"), k.array("out", "float32", True)
    width = k.scalar("width", "index")
    with k.loop(k.begin, k.end) as job, k.loop(0, width, lanes) as c:
        line = k.either((job % 2).equals(0), k.view(x, job * width), x)
        k.store(out, job * width + c, call("fma", k.vector(line, c), k.spread(k.load(x, 0)), 1.0))
    return k


def test_vectors_have_the_lanes_of_their_kernel() -> None:
    k = Kernel("k", "jobs", 8)
    x = k.array("x", "float32")
    value = k.vector(x)
    assert value.type == "float32*8" and (value > 0.0).type == "bool*8"
    assert k.view(x, 3).type == "float32"
    with pytest.raises(FormError, match="add of"):
        value + k.load(x, 0)


def test_jobs_are_no_code_of_a_gpu() -> None:
    with pytest.raises(FormError, match="jobs in CUDA C"):
        cuda_c.printed(_shifted(1))
