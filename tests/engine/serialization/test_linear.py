"""Work and memory of the reader are linear in the file, seen by counting bytes, steps and opcodes."""

from __future__ import annotations

import io
import json
import struct
import sys
import tracemalloc

import numpy as np
import pytest

from engine.serialization import UnpicklingError, load, load_safetensors, read_arrays
from engine.serialization.errors import DEFAULT_LIMITS, Limits
from engine.serialization.pickler import Global, Reduce
from engine.serialization.unpickler import Unpickler

from . import forge
from .forge import storage, zipped

MIB = 1 << 20


def peak(function, *args) -> int:
    """Bytes that a call had allocated at most, refused or not."""
    tracemalloc.start()
    try:
        function(*args)
    except UnpicklingError:
        pass
    finally:
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return most


def steps(function, *args) -> int:
    """How many bytecodes of this package a call ran."""
    counted = _monitored if hasattr(sys, "monitoring") else _traced
    return counted(function, *args)


def _monitored(function, *args) -> int:
    """Since Python 3.12, where `f_trace_opcodes` of a frame that has begun may come too late."""
    count, monitoring = 0, sys.monitoring  # type: ignore[attr-defined]

    def instruction(code, offset):
        nonlocal count
        if "serialization" not in code.co_filename:
            return monitoring.DISABLE
        count += 1
        return None

    tool = monitoring.PROFILER_ID
    monitoring.use_tool_id(tool, "steps")
    try:
        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, instruction)
        monitoring.set_events(tool, monitoring.events.INSTRUCTION)
        function(*args)
    except UnpicklingError:
        pass
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(tool)
        monitoring.restart_events()
    return count


def _traced(function, *args) -> int:
    count = 0

    def local(frame, event, arg):
        nonlocal count
        count += event == "opcode"
        return local

    def trace(frame, event, arg):
        if "serialization" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return local

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    except UnpicklingError:
        pass
    finally:
        sys.settrace(before)
    return count


# -- safetensors


def described(shape, size=0) -> bytes:
    return forge.safetensors(
        json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}).encode(), b""
    )


@pytest.mark.parametrize("count", [65, 250, 100_000])
def test_many_dimensions_are_refused_before_they_are_multiplied(count):
    with pytest.raises(UnpicklingError, match=f"has {count} dimensions, more than 64"):
        load_safetensors(io.BytesIO(described([(1 << 62) - 1] * count)))


def test_sixty_four_dimensions_are_a_number_that_can_be_shown():
    with pytest.raises(UnpicklingError, match="has 0 bytes, not"):
        load_safetensors(io.BytesIO(described([(1 << 62) - 1] * 64)))
    ones = forge.safetensors(
        b'{"w":{"dtype":"F32","shape":[%s],"data_offsets":[0,16]}}' % b",".join([b"1"] * 63 + [b"4"])
    )
    assert load_safetensors(io.BytesIO(ones))["w"].numel() == 4


def test_a_header_is_refused_for_its_values_before_it_is_parsed():
    header = b'{"a":[' + b"0," * (DEFAULT_LIMITS.header_values + 1) + b"0]}"
    content = io.BytesIO(forge.safetensors(header, b""))
    assert peak(load_safetensors, content) < 4 * len(header)
    content.seek(0)
    with pytest.raises(UnpicklingError, match=r"header has \d+ values, more than"):
        load_safetensors(content)


# -- keys


def keys(*values: bytes, tail: bytes = b"N") -> bytes:
    """A dict with these keys, each an opcode with its argument."""
    return b"\x80\x02}(" + b"".join(value + tail for value in values) + b"u."


def numbers(values) -> list[bytes]:
    return [b"\x8a\x08" + struct.pack("<q", value) for value in values]


COLLIDING = {
    # numbers whose probes meet: the table is searched from the same place, step by step
    "numbers": numbers(n << 40 for n in range(40_000)),
    "floats": [b"G" + struct.pack(">d", float(n << 40)) for n in range(9_000)],
    # hash(a + bj) = a + 1000003 b
    "complex": [
        b"c__builtin__\ncomplex\nG" + struct.pack(">d", -1000003.0 * n) + b"G" + struct.pack(">d", n) + b"\x86R"
        for n in range(9_000)
    ],
    "tuples": [b"J" + struct.pack("<i", n) + b"K\x01\x86" for n in range(9_000)],
}


@pytest.mark.parametrize("kind", COLLIDING)
def test_keys_that_could_collide_are_refused_by_their_number(kind):
    with pytest.raises(UnpicklingError, match="too many keys are numbers"):
        load(io.BytesIO(zipped(keys(*COLLIDING[kind]))))
    few = COLLIDING[kind][:2_000]
    assert len(load(io.BytesIO(zipped(keys(*few))))) == len(few)


@pytest.mark.parametrize("container", ["set", "frozenset", "Counter", "pairs"])
def test_other_containers_charge_the_same(container):
    one = b"".join(numbers(n << 40 for n in range(40_000)))
    if container == "set":
        body = b"\x80\x04\x8f(" + one + b"\x90."
    elif container == "frozenset":
        body = b"\x80\x04(" + one + b"\x91."
    elif container == "pairs":
        pairs = b"".join(n + b"N\x86" for n in numbers(n << 40 for n in range(40_000)))
        body = b"\x80\x02ccollections\nOrderedDict\n](" + pairs + b"e\x85R."
    else:  # the same dictionary again and again: 20,000 keys are fine, once
        body = keys(*numbers(n << 40 for n in range(20_000)))[:-1] + b"q\x000"
        body += b"ccollections\nCounter\nh\x00\x85R0" * 4 + b"N."
    with pytest.raises(UnpicklingError, match="too many keys are numbers"):
        load(io.BytesIO(zipped(body)))


def test_ordinary_keys_are_free():
    dense = [b"J" + struct.pack("<i", n) for n in range(100_000)]
    assert len(load(io.BytesIO(zipped(keys(*dense))))) == 100_000
    addresses = numbers(140_000_000_000_000 + 64 * n for n in range(10_000))  # optimizers once used id()
    assert len(load(io.BytesIO(zipped(keys(*addresses))))) == 10_000
    text = [b"X\x05\x00\x00\x00%05dX\x01\x00\x00\x00x\x86" % n for n in range(20_000)]
    assert len(load(io.BytesIO(zipped(keys(*text))))) == 20_000


def test_what_is_charged_is_the_worst_case():
    """No table takes more steps than were charged: simulated for the keys that collide."""

    def walked(hashes: list[int], size: int) -> int:
        table, count = set(), 0
        for value in hashes:
            perturb, at = value % (1 << 64), value % size
            while at in table:
                perturb >>= 5
                at = (5 * at + perturb + 1) % size
                count += 1
            table.add(at)
        return count

    values = [n << 40 for n in range(1_000)]
    u = Unpickler(b"", resolver=None)
    u.check_keys(values)
    assert walked([hash(v) for v in values], 2048) <= u.probes == 1_000 * 999 // 2
    dense = Unpickler(b"", resolver=None)
    dense.check_keys(range(1_000))
    assert dense.probes == 0 == walked(list(range(1_000)), 2048)


# -- memory


def test_the_memo_costs_what_a_list_costs():
    body = b"\x80\x04" + b"N\x94" * (MIB // 8) + b"."
    assert peak(load, io.BytesIO(zipped(body))) < 20 * len(body)
    holes = b"\x80\x02" + b"".join(b"Nr" + struct.pack("<I", 2 * n + 1) for n in range(60_000)) + b"."
    assert peak(load, io.BytesIO(zipped(holes))) < 32 * len(holes)


def test_the_memo_is_read_as_it_was_written():
    body = b"\x80\x04](K\x07q\x05K\x08\x94K\x09q\x00h\x05h\x01h\x00e."
    assert load(io.BytesIO(zipped(body))) == [7, 8, 9, 7, 8, 9]


def quantized(count: int) -> bytes:
    """One storage of int8, dequantised `count` times."""
    params = (Global("torch", "per_tensor_affine"), 0.5, 3)
    on = storage("0", 4 * MIB, "QInt8Storage")
    one = Reduce(Global("torch._utils", "_rebuild_qtensor"), on, 0, (4 * MIB,), (1,), params, False, forge.ORDERED)
    body = forge.pickled(one)
    return zipped(body[:2] + b"](" + body[2:-1] * count + b"e.", {"0": bytes(4 * MIB)})


def test_a_storage_is_dequantised_once_and_then_charged():
    content = io.BytesIO(quantized(1))
    assert peak(read_arrays, content) < 8 * 4 * MIB  # the float32 result and pieces: not one float64 copy
    content.seek(0)
    (value,) = read_arrays(content)
    assert value.dtype == np.float32 and np.all(value == -1.5)
    with pytest.raises(UnpicklingError, match="would create more than"):
        read_arrays(io.BytesIO(quantized(8)))


def test_channels_are_dequantised_each_by_its_own():
    params = (Global("torch", "per_channel_affine"), [1.0, 0.5], [0, 2], 1)
    on = storage("0", 6, "QUInt8Storage")
    one = Reduce(Global("torch._utils", "_rebuild_qtensor"), on, 0, (3, 2), (2, 1), params, False, forge.ORDERED)
    value = read_arrays(io.BytesIO(zipped(forge.pickled(one), {"0": bytes([0, 2, 4, 6, 8, 10])})))
    assert value.tolist() == [[0.0, 0.0], [4.0, 2.0], [8.0, 4.0]]


# -- opcodes


def many(kind: str, n: int) -> bytes:
    if kind == "safetensors":
        entry = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}
        header = {f"w{i}": {**entry, "data_offsets": [i, i + 1]} for i in range(n)}
        return forge.safetensors(json.dumps(header).encode(), bytes(n))
    if kind == "keys":
        return zipped(keys(*numbers(i << 40 for i in range(n))))
    if kind == "memo":
        return zipped(b"\x80\x04" + b"N\x94" * n + b".")
    return zipped(b"\x80\x02](" + b"K\x01K\x02\x86" * n + b"e.")


@pytest.mark.parametrize("kind", ["safetensors", "keys", "memo", "tuples"])
def test_steps_grow_with_the_file(kind):
    once, twice = (steps(load, io.BytesIO(many(kind, n))) for n in (500, 1_000))
    assert 0 < once < twice < 2.2 * once


def test_limits_are_what_is_stated():
    assert Limits().probes == 1 << 29 and Limits().header_values == 8_000_000
