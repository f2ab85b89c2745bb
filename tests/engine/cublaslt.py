"""A libcublasLt for tests: checks every argument against what cublasLt.h says, and computes with numpy.

Handles and descriptors are live or destroyed, attributes have their sizes, shapes fit the product, leading dimensions
hold a column, addresses have the alignment that the preference promised, and all memory that a product touches lies in
an array that `within` was given.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np

from engine.backends.cuda import blaslt

KINDS = {0: np.dtype("float32"), 1: np.dtype("float64"), 2: np.dtype("float16"), 14: np.dtype(ml_dtypes.bfloat16)}
COMPUTES = {68: (0, {0, 2, 14}), 77: (0, {0}), 70: (1, {1})}  # compute type: (scale type, types of operands)
OK, INVALID, UNSUPPORTED = 0, 7, 15


class Refused(AssertionError):
    """An argument that the real library would refuse, or read past an array with."""


def need(holds: Any, why: str) -> None:
    if not holds:
        raise Refused(why)


@dataclass
class Thing:
    """A handle, descriptor, layout or preference."""

    kind: str
    values: dict[Any, Any] = field(default_factory=dict)


class CublasLt:
    """The functions of the library that the engine calls."""

    def __init__(self, workspace: int = 0) -> None:
        self.things: dict[int, Thing] = {}
        self.next, self.needs, self.calls = 0x1000, workspace, 0
        self.memory: list[np.ndarray] = []
        self.computes: list[int] = []  # of the products done

    def within(self, *arrays: np.ndarray) -> None:
        """Memory that products may touch."""
        for a in arrays:
            while isinstance(a.base, np.ndarray):
                a = a.base
            self.memory.append(a)

    # --- things

    def _new(self, target: Any, kind: str, **values: Any) -> int:
        self.next += 16
        self.things[self.next] = Thing(kind, values)
        target._obj.value = self.next
        return OK

    def _get(self, pointer: Any, kind: str) -> dict[Any, Any]:
        thing = self.things.get(pointer.value)
        need(thing is not None, f"a {kind} that was destroyed or never made")
        assert thing is not None
        need(thing.kind == kind, f"a {thing.kind} where a {kind} belongs")
        return thing.values

    def _destroy(self, pointer: Any, kind: str) -> int:
        self._get(pointer, kind)
        del self.things[pointer.value]
        return OK

    def cublasLtCreate(self, handle: Any) -> int:
        return self._new(handle, "handle")

    def cublasLtDestroy(self, handle: Any) -> int:
        return self._destroy(handle, "handle")

    def cublasLtMatmulDescCreate(self, desc: Any, compute: Any, scale: Any) -> int:
        need(compute.value in COMPUTES, "a compute type")
        need(scale.value == COMPUTES[compute.value][0], "a scale type that does not go with the compute type")
        return self._new(desc, "desc", compute=compute.value, scale=scale.value)

    def cublasLtMatmulDescDestroy(self, desc: Any) -> int:
        return self._destroy(desc, "desc")

    def cublasLtMatmulDescSetAttribute(self, desc: Any, attribute: Any, value: Any, size: Any) -> int:
        sizes = {blaslt.DESC_TRANSA: 4, blaslt.DESC_TRANSB: 4, blaslt.DESC_EPILOGUE: 4, blaslt.DESC_BIAS_POINTER: 8}
        need(sizes.get(attribute.value) == size.value, "the size of an attribute of a product")
        self._get(desc, "desc")[attribute.value] = value._obj.value
        return OK

    def cublasLtMatrixLayoutCreate(self, layout: Any, type: Any, rows: Any, cols: Any, ld: Any) -> int:
        need(type.value in KINDS and rows.value > 0 and cols.value > 0, "a layout's type or sizes")
        need(ld.value >= rows.value, "a leading dimension shorter than a column")
        return self._new(layout, "layout", type=type.value, rows=rows.value, cols=cols.value, ld=ld.value)

    def cublasLtMatrixLayoutDestroy(self, layout: Any) -> int:
        return self._destroy(layout, "layout")

    def cublasLtMatrixLayoutSetAttribute(self, layout: Any, attribute: Any, value: Any, size: Any) -> int:
        names = {blaslt.LAYOUT_BATCH_COUNT: (4, "batch"), blaslt.LAYOUT_BATCH_OFFSET: (8, "stride")}
        bytes_, name = names[attribute.value]
        need(bytes_ == size.value, "the size of an attribute of a layout")
        self._get(layout, "layout")[name] = value._obj.value
        return OK

    def cublasLtMatmulPreferenceCreate(self, preference: Any) -> int:
        return self._new(preference, "preference")

    def cublasLtMatmulPreferenceDestroy(self, preference: Any) -> int:
        return self._destroy(preference, "preference")

    def cublasLtMatmulPreferenceSetAttribute(self, preference: Any, attribute: Any, value: Any, size: Any) -> int:
        need(size.value == (8 if attribute.value == blaslt.PREF_WORKSPACE else 4), "the size of a preference")
        need(attribute.value in (blaslt.PREF_WORKSPACE, *blaslt.PREF_ALIGNMENT), "a preference")
        self._get(preference, "preference")[attribute.value] = value._obj.value
        return OK

    # --- products

    def cublasLtMatmulAlgoGetHeuristic(
        self,
        handle: Any,
        desc: Any,
        a: Any,
        b: Any,
        c: Any,
        d: Any,
        preference: Any,
        wanted: Any,
        found: Any,
        count: Any,
    ) -> int:
        self._get(handle, "handle")
        self._checked(desc, a, b, c, d)
        wishes = self._get(preference, "preference")
        need(self.needs <= wishes[blaslt.PREF_WORKSPACE], "no room for the algorithm")
        aligned = [wishes.get(n, 256) for n in blaslt.PREF_ALIGNMENT]
        need(all(n in (1, 2, 4, 8, 16, 32, 64, 128, 256) for n in aligned), "an alignment")
        result = found._obj
        result.algo[0], result.workspace, result.state = 0xA160, self.needs, 0
        for n, one in enumerate(aligned):
            result.algo[1 + n] = one
        count._obj.value = 1
        return OK

    def _checked(self, desc: Any, *layouts: Any) -> tuple[dict, list[dict]]:
        """The rules of shapes: op(A) is m x k, op(B) k x n, C and D m x n; one type; one batch count."""
        product, found = self._get(desc, "desc"), [self._get(one, "layout") for one in layouts]
        a, b, c, d = found
        kinds = {one["type"] for one in found}
        need(len(kinds) == 1 and kinds <= COMPUTES[product["compute"]][1], "operands of this compute type")
        turn_a, turn_b = product.get(blaslt.DESC_TRANSA, 0), product.get(blaslt.DESC_TRANSB, 0)
        need({turn_a, turn_b} <= {0, 1}, "an operation")
        m, k = (a["cols"], a["rows"]) if turn_a else (a["rows"], a["cols"])
        k2, n = (b["cols"], b["rows"]) if turn_b else (b["rows"], b["cols"])
        need(k == k2, "inner dimensions that differ")
        need((d["rows"], d["cols"]) == (m, n) == (c["rows"], c["cols"]), "a result of another shape")
        need(len({one.get("batch", 1) for one in found}) == 1, "batch counts that differ")
        if d.get("batch", 1) > 1:
            need(d["stride"] >= d["ld"] * (n - 1) + m, "results that overlap")
        epilogue = product.get(blaslt.DESC_EPILOGUE, 1)
        need(epilogue in (blaslt.EPILOGUE_DEFAULT, blaslt.EPILOGUE_BIAS), "an epilogue")
        need(
            (epilogue == blaslt.EPILOGUE_BIAS) == bool(product.get(blaslt.DESC_BIAS_POINTER)),
            "a bias without its epilogue, or none",
        )
        return product, found

    def _seen(self, address: int, layout: dict, batch: int) -> np.ndarray:
        """The matrices at an address: (batch, rows, cols), a view of the memory."""
        kind = KINDS[layout["type"]]
        size, ld, stride = kind.itemsize, layout["ld"], layout.get("stride", 0)
        last = (batch - 1) * stride + (layout["cols"] - 1) * ld + layout["rows"]
        for array in self.memory:
            begin = array.__array_interface__["data"][0]
            if begin <= address and address + last * size <= begin + array.nbytes:
                flat = np.frombuffer((ctypes.c_char * (last * size)).from_address(address), kind)
                return np.lib.stride_tricks.as_strided(
                    flat, (batch, layout["rows"], layout["cols"]), (stride * size, size, ld * size)
                )
        raise Refused("memory outside of every array")

    def cublasLtMatmul(
        self,
        handle: Any,
        desc: Any,
        alpha: Any,
        a: Any,
        of_a: Any,
        b: Any,
        of_b: Any,
        beta: Any,
        c: Any,
        of_c: Any,
        d: Any,
        of_d: Any,
        algo: Any,
        workspace: Any,
        size: Any,
        stream: Any,
    ) -> int:
        self.calls += 1
        self._get(handle, "handle")
        product, found = self._checked(desc, of_a, of_b, of_c, of_d)
        chosen = algo._obj.algo
        need(chosen[0] == 0xA160, "an algorithm that no heuristic gave")
        for n, pointer in enumerate((a, b, c, d)):
            need(pointer.value % chosen[1 + n] == 0, "an address less aligned than promised")
        need(size.value >= self.needs, "too small a workspace")
        need(not size.value or (workspace.value and workspace.value % 256 == 0), "a workspace")
        need((stream.value or 0) == self.current_stream(), "another stream than the current one")
        number = ctypes.c_double if product["scale"] == 1 else ctypes.c_float
        need(type(alpha._obj) is number and type(beta._obj) is number, "factors of another type than the scale type")
        batch = found[3].get("batch", 1)
        left, right, out = (
            self._seen(p.value, layout, batch) for p, layout in ((a, found[0]), (b, found[1]), (d, found[3]))
        )
        wide = np.float64 if product["scale"] == 1 else np.float32
        biased = product[blaslt.DESC_EPILOGUE] == blaslt.EPILOGUE_BIAS
        turned = product[blaslt.DESC_TRANSA], product[blaslt.DESC_TRANSB]
        factor, vector = alpha._obj.value, None
        if biased:
            vector = self._seen(product[blaslt.DESC_BIAS_POINTER], {**found[3], "cols": 1, "stride": 0}, 1)[0]

        def work() -> None:
            x, y = left.astype(wide), right.astype(wide)
            x = x.transpose(0, 2, 1) if turned[0] else x
            y = y.transpose(0, 2, 1) if turned[1] else y
            made = factor * (x @ y)
            out[...] = (made if vector is None else made + vector.astype(made.dtype)).astype(out.dtype)

        reads = [a.value, b.value, *([product[blaslt.DESC_BIAS_POINTER]] if biased else [])]
        self.computes.append(product["compute"])
        self.launch(reads, [d.value, *([workspace.value] if size.value else [])], work)
        return OK

    def current_stream(self) -> int:
        return 0x57

    def launch(self, reads: list[int], writes: list[int], work: Any) -> None:
        """Do the work of a product that reads and writes at these addresses."""
        work()
