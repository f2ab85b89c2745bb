"""The element types of GGUF files: how many bytes a block has, and its values as float32.

A quantized tensor is a sequence of blocks; a block holds the values of 32 or 256 neighbours of the last dim as small
integers `q`, with a scale `d` that they share.  The types with a K have blocks of 256 values, whose groups of 16 or
32 have scales (and minimums `m`) of their own, small integers too, which the block's `d` (and `dmin`) multiply.

| type | values | bytes | fields, in this order | a value |
|---|---|---|---|---|
| Q4_0 | 32 | 18 | d f16, qs 16: value i in the low half of byte i, value i + 16 in the high one | d (q - 8) |
| Q4_1 | 32 | 20 | d f16, m f16, qs 16 as Q4_0 | d q + m |
| Q5_0 | 32 | 22 | d f16, qh 4: bit i is the fifth bit of value i, qs 16 as Q4_0 | d (q - 16) |
| Q5_1 | 32 | 24 | d f16, m f16, qh 4 as Q5_0, qs 16 as Q4_0 | d q + m |
| Q8_0 | 32 | 34 | d f16, qs 32 signed | d q |
| Q2_K | 256 | 84 | scales 16 (low half the scale, high half the minimum), qs 64, d f16, dmin f16 | d s q - dmin m |
| Q3_K | 256 | 110 | hmask 32, qs 64, scales 12 (16 of six bits), d f16 | d (s - 32) (q - 4) |
| Q4_K | 256 | 144 | d f16, dmin f16, scales 12 (8 and 8 of six bits), qs 128 | d s q - dmin m |
| Q5_K | 256 | 176 | d f16, dmin f16, scales 12 as Q4_K, qh 32, qs 128 | d s q - dmin m |
| Q6_K | 256 | 210 | ql 128, qh 64, scales 16 signed, d f16 | d s (q - 32) |

The bits of a K block's values are spread: where a byte has k values of 8 / k bits, 32 (of ql 64) neighbouring bytes
have the first of them for the first 32 values, the second for the next 32, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["TYPES", "TYPE_CODES", "ElementType", "dequantized", "group_values", "grouped", "quantized"]

_CHUNK = 1 << 17  # values that are computed at a time: 512 kB of float32, which a processor's cache holds
_HALVES, _QUARTERS, _BITS = (0, 4), (0, 2, 4, 6), range(8)  # by how many bits the numbers of a byte are shifted


def _fields(*fields: tuple[str, str, int]) -> np.dtype:
    """Return the packed layout of a block: (name, type, count) of each field; a count of 0 is a single number."""
    return np.dtype([(name, kind, (count,)) if count else (name, kind) for name, kind, count in fields])


_Q4_0 = _fields(("d", "<f2", 0), ("qs", "u1", 16))
_Q4_1 = _fields(("d", "<f2", 0), ("m", "<f2", 0), ("qs", "u1", 16))
_Q5_0 = _fields(("d", "<f2", 0), ("qh", "u1", 4), ("qs", "u1", 16))
_Q5_1 = _fields(("d", "<f2", 0), ("m", "<f2", 0), ("qh", "u1", 4), ("qs", "u1", 16))
_Q8_0 = _fields(("d", "<f2", 0), ("qs", "i1", 32))
_Q2_K = _fields(("scales", "u1", 16), ("qs", "u1", 64), ("d", "<f2", 0), ("dmin", "<f2", 0))
_Q3_K = _fields(("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", "<f2", 0))
_Q4_K = _fields(("d", "<f2", 0), ("dmin", "<f2", 0), ("scales", "u1", 12), ("qs", "u1", 128))
_Q5_K = _fields(("d", "<f2", 0), ("dmin", "<f2", 0), ("scales", "u1", 12), ("qh", "u1", 32), ("qs", "u1", 128))
_Q6_K = _fields(("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", "<f2", 0))


def _float(field: np.ndarray) -> np.ndarray:
    """Return one number of each block, (n,) float16, as (n, 1) float32."""
    return field.astype(np.float32)[:, None]


def _each(groups: np.ndarray, values: int) -> np.ndarray:
    """Return the number of each group, (n, groups), for each of its values, (n, values): faster than broadcasting."""
    return np.repeat(groups.reshape(-1), values // groups.shape[1]).reshape(-1, values)


def _spread(field: np.ndarray, run: int, shifts: Sequence[int], mask: int) -> np.ndarray:
    """Return the small numbers of bytes in order: for each run of `run` bytes, those at each of `shifts`.

    field: uint8 (n, bytes).  -> uint8 (n, bytes / run * shifts * run).
    """
    runs = np.ascontiguousarray(field).reshape(len(field), -1, run)
    found = np.empty((len(field), runs.shape[1], len(shifts), run), np.uint8)
    for i, shift in enumerate(shifts):
        found[:, :, i] = runs >> shift & mask
    return found.reshape(len(field), -1)


def _four_bits(blocks: np.ndarray) -> np.ndarray:
    """Return the 32 four-bit numbers of each block, uint8 (n, 32)."""
    return _spread(blocks["qs"], 16, _HALVES, 15)


def _five_bits(blocks: np.ndarray) -> np.ndarray:
    """Return the 32 five-bit numbers of each block, uint8 (n, 32): those of `qs` with `qh` above them."""
    q = np.unpackbits(blocks["qh"], axis=1, bitorder="little")
    q <<= 4
    q |= _four_bits(blocks)
    return q


# Each returns of blocks (n,) the integers q, (n, values) of one byte, and the scale and minimum of each group of
# neighbours, (n, groups) float32, the second None where there is none: a value is scale * q - minimum.
_Groups = tuple[np.ndarray, np.ndarray, np.ndarray | None]


def _q4_0(blocks: np.ndarray) -> _Groups:
    return _four_bits(blocks).view(np.int8) - np.int8(8), _float(blocks["d"]), None


def _q4_1(blocks: np.ndarray) -> _Groups:
    return _four_bits(blocks), _float(blocks["d"]), -_float(blocks["m"])


def _q5_0(blocks: np.ndarray) -> _Groups:
    return _five_bits(blocks).view(np.int8) - np.int8(16), _float(blocks["d"]), None


def _q5_1(blocks: np.ndarray) -> _Groups:
    return _five_bits(blocks), _float(blocks["d"]), -_float(blocks["m"])


def _q8_0(blocks: np.ndarray) -> _Groups:
    return blocks["qs"], _float(blocks["d"]), None


def _q2_k(blocks: np.ndarray) -> _Groups:
    scales = blocks["scales"]
    q = _spread(blocks["qs"], 32, _QUARTERS, 3)
    return q, _float(blocks["d"]) * (scales & 15), _float(blocks["dmin"]) * (scales >> 4)


def _q3_k(blocks: np.ndarray) -> _Groups:
    """The third bit is in `hmask`: byte i has that of the values i, i + 32, ...; 4 is taken off where it is 0."""
    low, high = blocks["scales"][:, :8], blocks["scales"][:, 8:]
    scales = _spread(low, 8, _HALVES, 15) | _spread(high, 4, _QUARTERS, 3) << 4
    q = _spread(blocks["hmask"], 32, _BITS, 1)
    q <<= 2
    q |= _spread(blocks["qs"], 32, _QUARTERS, 3)
    return q.view(np.int8) - np.int8(4), _float(blocks["d"]) * (scales.astype(np.float32) - 32), None


def _scales_and_minimums(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the eight scales and eight minimums of six bits that 12 bytes of each block hold, each uint8 (n, 8).

    Bytes 0 to 3 are the scales 0 to 3 and bytes 4 to 7 the minimums 0 to 3, in their low six bits.  The low halves of
    bytes 8 to 11 are the low four bits of the scales 4 to 7, the high halves those of the minimums 4 to 7; their upper
    two bits are the ones left in bytes 0 to 3 and 4 to 7.
    """
    first, second, third = np.ascontiguousarray(packed.T).reshape(3, 4, -1)
    found = np.empty((2, 8, len(packed)), np.uint8)
    found[0, :4], found[0, 4:] = first & 63, third & 15 | first >> 2 & 48
    found[1, :4], found[1, 4:] = second & 63, third >> 4 | second >> 2 & 48
    return found[0].T, found[1].T


def _scaled(blocks: np.ndarray, q: np.ndarray) -> _Groups:
    """Return the groups of the numbers q of Q4_K or Q5_K."""
    scales, minimums = _scales_and_minimums(blocks["scales"])
    return q, _float(blocks["d"]) * scales, _float(blocks["dmin"]) * minimums


def _q4_k(blocks: np.ndarray) -> _Groups:
    return _scaled(blocks, _spread(blocks["qs"], 32, _HALVES, 15))


def _q5_k(blocks: np.ndarray) -> _Groups:
    q = _spread(blocks["qh"], 32, _BITS, 1)
    q <<= 4
    q |= _spread(blocks["qs"], 32, _HALVES, 15)
    return _scaled(blocks, q)


def _q6_k(blocks: np.ndarray) -> _Groups:
    q = _spread(blocks["qh"], 32, _QUARTERS, 3)
    q <<= 4
    q |= _spread(blocks["ql"], 64, _HALVES, 15)
    return q.view(np.int8) - np.int8(32), _float(blocks["d"]) * blocks["scales"], None


@dataclass(frozen=True)
class ElementType:
    """An element type of GGUF.

    values, bytes: of a block.  dense: the dtype of the values where a block is one value.  layout, groups: the fields
    of a quantized block, and the function that takes blocks apart (`_Groups`); None where the values of the type are
    not read.
    """

    name: str
    code: int
    values: int
    bytes: int
    dense: str | None = None
    layout: np.dtype | None = None
    groups: Callable[[np.ndarray], _Groups] | None = None


def _dense(name: str, code: int, dtype: str, width: int) -> ElementType:
    return ElementType(name, code, 1, width, dense=dtype)


def _quantized(
    name: str, code: int, values: int, layout: np.dtype, groups: Callable[[np.ndarray], _Groups]
) -> ElementType:
    return ElementType(name, code, values, layout.itemsize, layout=layout, groups=groups)


TYPE_CODES: dict[int, ElementType] = {
    one.code: one
    for one in (
        _dense("F32", 0, "float32", 4),
        _dense("F16", 1, "float16", 2),
        _quantized("Q4_0", 2, 32, _Q4_0, _q4_0),
        _quantized("Q4_1", 3, 32, _Q4_1, _q4_1),
        _quantized("Q5_0", 6, 32, _Q5_0, _q5_0),
        _quantized("Q5_1", 7, 32, _Q5_1, _q5_1),
        _quantized("Q8_0", 8, 32, _Q8_0, _q8_0),
        _quantized("Q2_K", 10, 256, _Q2_K, _q2_k),
        _quantized("Q3_K", 11, 256, _Q3_K, _q3_k),
        _quantized("Q4_K", 12, 256, _Q4_K, _q4_k),
        _quantized("Q5_K", 13, 256, _Q5_K, _q5_k),
        _quantized("Q6_K", 14, 256, _Q6_K, _q6_k),
        ElementType("IQ2_XXS", 16, 256, 66),
        ElementType("IQ2_XS", 17, 256, 74),
        ElementType("IQ3_XXS", 18, 256, 98),
        ElementType("IQ1_S", 19, 256, 50),
        ElementType("IQ4_NL", 20, 32, 18),
        ElementType("IQ3_S", 21, 256, 110),
        ElementType("IQ2_S", 22, 256, 82),
        ElementType("IQ4_XS", 23, 256, 136),
        _dense("I8", 24, "int8", 1),
        _dense("I16", 25, "int16", 2),
        _dense("I32", 26, "int32", 4),
        _dense("I64", 27, "int64", 8),
        _dense("F64", 28, "float64", 8),
        ElementType("IQ1_M", 29, 256, 56),
        _dense("BF16", 30, "bfloat16", 2),
        ElementType("TQ1_0", 34, 256, 54),
        ElementType("TQ2_0", 35, 256, 66),
        ElementType("MXFP4", 39, 32, 17),
        ElementType("NVFP4", 40, 64, 36),
        ElementType("Q1_0", 41, 128, 18),
    )
}
TYPES: dict[str, ElementType] = {one.name: one for one in TYPE_CODES.values()}


def dequantized(kind: ElementType, data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The values of quantized blocks, computed in float32 a few blocks at a time.

    kind: a type with `groups`.  data: uint8 (blocks * kind.bytes,).  -> (blocks * kind.values,) of `dtype`.
    """
    blocks, groups = _blocks(kind, data)
    out = np.empty((len(blocks), kind.values), dtype)
    step = _CHUNK // kind.values
    buffer = None if dtype == np.float32 else np.empty((min(step, len(blocks)), kind.values), np.float32)
    with np.errstate(all="ignore"):  # a scale may be any float16, inf and nan too
        for at in range(0, len(blocks), step):
            part = blocks[at : at + step]
            target = out[at : at + step] if buffer is None else buffer[: len(part)]
            q, scale, minimum = groups(part)
            target[:] = q
            target *= _each(scale, kind.values)
            if minimum is not None:
                target -= _each(minimum, kind.values)
            if buffer is not None:
                out[at : at + step] = target
    return out.reshape(-1)


def _blocks(kind: ElementType, data: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], _Groups]]:
    if kind.layout is None or kind.groups is None:
        raise TypeError(f"the values of the type {kind.name} are not read")
    return data.view(kind.layout), kind.groups


def group_layout(values: int) -> np.dtype:
    """Return the layout of a group of neighbours that any quantized type fits: scale * q + shift."""
    return _fields(("scale", "<f4", 0), ("shift", "<f4", 0), ("q", "i1", values))


def grouped(kind: ElementType, data: np.ndarray) -> tuple[int, np.ndarray]:
    """The values of quantized blocks as groups (`group_layout`), exactly.

    -> how many values a group has, 16 or 32, and the bytes of the groups, uint8 (n,).
    """
    blocks, groups = _blocks(kind, data)
    count = groups(blocks[:1])[1].shape[1] if len(blocks) else 1  # groups of a block
    out = np.empty((len(blocks), count), group_layout(kind.values // count))
    step = _CHUNK // kind.values
    with np.errstate(all="ignore"):
        for at in range(0, len(blocks), step):
            q, scale, minimum = groups(blocks[at : at + step])
            target = out[at : at + step]
            target["q"], target["scale"] = q.reshape(target["q"].shape), scale
            target["shift"] = 0 if minimum is None else -minimum
    return kind.values // count, out.reshape(-1).view(np.uint8)


def group_values(values: int, data: np.ndarray) -> np.ndarray:
    """The values of groups, float32 (n,)."""
    found = data.view(group_layout(values))
    with np.errstate(all="ignore"):
        return (found["q"] * found["scale"][:, None] + found["shift"][:, None]).reshape(-1)


def quantized(kind: ElementType, values: np.ndarray) -> np.ndarray:
    """The blocks of Q8_0 or Q4_0 for float32 values, uint8 (n,), rounded as llama.cpp does.

    values: (blocks * 32,).  TypeError for other types.
    """
    x = values.reshape(-1, kind.values)
    if kind.name == "Q8_0":
        d = np.abs(x).max(axis=1, keepdims=True) / np.float32(127)
        scaled = x * _inverse(d)
        whole = np.trunc(scaled)
        half = np.abs(scaled - whole) >= 0.5
        q = (whole + np.copysign(half, scaled)).astype(np.int8)  # halves away from zero
    elif kind.name == "Q4_0":
        largest = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
        d = largest / np.float32(-8)
        q = np.minimum(np.trunc(x * _inverse(d) + np.float32(8.5)), 15).astype(np.uint8)
        q = q[:, :16] | q[:, 16:] << 4
    else:
        raise TypeError(f"values are written as F32, F16, BF16, Q8_0 and Q4_0, not as {kind.name}")
    blocks = np.empty(len(x), kind.layout)
    blocks["d"], blocks["qs"] = d[:, 0], q
    return blocks.view(np.uint8)


def _inverse(d: np.ndarray) -> np.ndarray:
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)
