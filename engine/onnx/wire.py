"""ONNX's messages as bytes: the protobuf wire format for the messages and fields that model files have.

Note [ONNX bytes]
A message is a dict: a repeated field a list, a message a dict again, `bytes` fields bytes or memoryview, absent fields
absent.  `MESSAGES` says the fields by number, as onnx.proto does (https://github.com/onnx/onnx, IR version 3 to 13).

Reading trusts nothing.  A file is bytes that name lengths: a length beyond what holds it, a number over ten bytes, a
field of the wrong wire type or messages nested deeper than `DEPTH` are refused with the place.  What is made is linear
in the file: fields that are not in the table are skipped, and nothing is allocated for a length that is only claimed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["MESSAGES", "FormatError", "decode", "encode"]

DEPTH = 64
_FIELDS = 10_000_000  # of one file: each costs memory


class FormatError(ValueError):
    """The bytes are not those of an ONNX file, or not of one that is read; the message says where and why."""


# message -> field number -> (name, kind); `*` repeated.  Kinds: int, float, double, str, bytes, or a message.
MESSAGES: dict[str, dict[int, tuple[str, str]]] = {
    "ModelProto": {
        1: ("ir_version", "int"), 2: ("producer_name", "str"), 3: ("producer_version", "str"), 4: ("domain", "str"),
        5: ("model_version", "int"), 6: ("doc_string", "str"), 7: ("graph", "GraphProto"),
        8: ("opset_import", "OperatorSetIdProto*"), 14: ("metadata_props", "StringStringEntryProto*"),
        25: ("functions", "FunctionProto*"),
    },
    "GraphProto": {
        1: ("node", "NodeProto*"), 2: ("name", "str"), 5: ("initializer", "TensorProto*"), 10: ("doc_string", "str"),
        11: ("input", "ValueInfoProto*"), 12: ("output", "ValueInfoProto*"), 13: ("value_info", "ValueInfoProto*"),
        15: ("sparse_initializer", "Unread*"),
    },
    "NodeProto": {
        1: ("input", "str*"), 2: ("output", "str*"), 3: ("name", "str"), 4: ("op_type", "str"),
        5: ("attribute", "AttributeProto*"), 6: ("doc_string", "str"), 7: ("domain", "str"),
    },
    "AttributeProto": {
        1: ("name", "str"), 2: ("f", "float"), 3: ("i", "int"), 4: ("s", "bytes"), 5: ("t", "TensorProto"),
        6: ("g", "GraphProto"), 7: ("floats", "float*"), 8: ("ints", "int*"), 9: ("strings", "bytes*"),
        10: ("tensors", "TensorProto*"), 11: ("graphs", "GraphProto*"), 20: ("type", "int"),
        21: ("ref_attr_name", "str"),
    },
    "TensorProto": {
        1: ("dims", "int*"), 2: ("data_type", "int"), 4: ("float_data", "float*"), 5: ("int32_data", "int*"),
        6: ("string_data", "bytes*"), 7: ("int64_data", "int*"), 8: ("name", "str"), 9: ("raw_data", "bytes"),
        10: ("double_data", "double*"), 11: ("uint64_data", "int*"), 13: ("external_data", "StringStringEntryProto*"),
        14: ("data_location", "int"),
    },
    "ValueInfoProto": {1: ("name", "str"), 2: ("type", "TypeProto"), 3: ("doc_string", "str")},
    "TypeProto": {1: ("tensor_type", "TensorType"), 4: ("sequence_type", "Unread"), 5: ("map_type", "Unread"),
                  9: ("optional_type", "Unread")},
    "TensorType": {1: ("elem_type", "int"), 2: ("shape", "TensorShapeProto")},
    "TensorShapeProto": {1: ("dim", "Dimension*")},
    "Dimension": {1: ("dim_value", "int"), 2: ("dim_param", "str")},
    "OperatorSetIdProto": {1: ("domain", "str"), 2: ("version", "int")},
    "StringStringEntryProto": {1: ("key", "str"), 2: ("value", "str")},
    "FunctionProto": {
        1: ("name", "str"), 4: ("input", "str*"), 5: ("output", "str*"), 6: ("attribute", "str*"),
        7: ("node", "NodeProto*"), 9: ("opset_import", "OperatorSetIdProto*"), 10: ("domain", "str"),
    },
    "Unread": {},
}  # fmt: skip
_NUMBERS = {
    message: {name: (number, kind) for number, (name, kind) in fields.items()} for message, fields in MESSAGES.items()
}
_WIRE = {"int": 0, "double": 1, "float": 5}  # others are bytes with a length: 2
_FORMAT = {"float": ("<f", 4, "<f4"), "double": ("<d", 8, "<f8")}


# --- writing


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1  # negative numbers as 64 bits in two's complement
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


def encode(message: str, value: dict[str, Any]) -> list[Any]:
    """The pieces of a message as bytes-like objects, in order; `b"".join` them or write them one by one."""
    pieces: list[Any] = []
    _write(pieces, message, value)
    return pieces


def _size(pieces: Iterable[Any]) -> int:
    return sum(len(p) if isinstance(p, bytes) else memoryview(p).nbytes for p in pieces)


def _write(pieces: list[Any], message: str, value: dict[str, Any]) -> None:
    table = _NUMBERS[message]
    for name, field in sorted(value.items(), key=lambda item: table[item[0]][0]):
        number, kind = table[name]
        single = kind.rstrip("*")
        if kind[-1] == "*" and single in ("int", "float", "double"):  # packed
            if field:
                packed = (
                    b"".join(map(_varint, field))
                    if single == "int"
                    else np.asarray(field, _FORMAT[single][2]).tobytes()
                )
                pieces += [_varint(number << 3 | 2), _varint(len(packed)), packed]
            continue
        for one in field if kind[-1] == "*" else [field]:
            pieces.append(_varint(number << 3 | _WIRE.get(single, 2)))
            if single == "int":
                pieces.append(_varint(one))
            elif single in _FORMAT:
                pieces.append(struct.pack(_FORMAT[single][0], one))
            else:
                _write_bytes(pieces, single, one)


def _write_bytes(pieces: list[Any], kind: str, value: Any) -> None:
    if kind == "str":
        value = value.encode()
    if kind in ("str", "bytes"):
        pieces += [_varint(_size([value])), value]
        return
    inner: list[Any] = []
    _write(inner, kind, value)
    pieces.append(_varint(_size(inner)))
    pieces += inner


# --- reading


def decode(message: str, data: Any) -> dict[str, Any]:
    """The message that the bytes are.  FormatError for anything else: Note [ONNX bytes]."""
    return _Reader(memoryview(data)).message(message, 0, len(data), 0)


class _Reader:
    """The fields of a file."""

    def __init__(self, data: memoryview) -> None:
        self.data, self.count = data, 0

    def varint(self, at: int, end: int) -> tuple[int, int]:
        """(the number, where the next byte is)."""
        value = shift = 0
        data = self.data
        while at < end:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value & (1 << 64) - 1, at
            shift += 7
            if shift > 63:
                raise FormatError(f"a number of more than ten bytes at byte {at}")
        raise FormatError(f"the data end within a number at byte {at}")

    def field(self, at: int, end: int) -> tuple[int, int, int, int]:
        """(field number, wire type, where its content begins, where it ends)."""
        self.count += 1
        if self.count > _FIELDS:
            raise FormatError(f"more than {_FIELDS} fields")
        key, at = self.varint(at, end)
        number, wire = key >> 3, key & 7
        start = at
        if wire == 0:
            _, at = self.varint(at, end)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
        elif wire == 2:
            length, start = self.varint(at, end)
            at = start + length
        else:
            raise FormatError(f"wire type {wire} at byte {start}: this is no ONNX file")
        if at > end or number == 0:
            raise FormatError(f"field {number} at byte {start} reaches beyond what holds it")
        return number, wire, start, at

    def message(self, name: str, at: int, end: int, depth: int) -> dict[str, Any]:
        if depth > DEPTH:
            raise FormatError(f"messages are nested deeper than {DEPTH}")
        table, found = MESSAGES[name], {}
        while at < end:
            number, wire, start, at = self.field(at, end)
            entry = table.get(number)
            if entry is None:
                continue
            label, kind = entry
            single = kind.rstrip("*")
            wanted = _WIRE.get(single, 2)
            if kind[-1] == "*":
                values = found.setdefault(label, [])
                if wire == 2 != wanted:
                    self.packed(values, single, start, at)
                    continue
            if wire != wanted:
                raise FormatError(f"{name}.{label} has wire type {wire} at byte {start}: this is no ONNX file")
            value = self.value(f"{name}.{label}", single, start, at, depth)
            if kind[-1] == "*":
                values.append(value)
            else:
                found[label] = value
        return found

    def value(self, label: str, kind: str, start: int, end: int, depth: int) -> Any:
        if kind == "int":
            value, _ = self.varint(start, end)
            return value - (1 << 64) if value >> 63 else value
        if kind in _FORMAT:
            return struct.unpack(_FORMAT[kind][0], self.data[start:end])[0]
        if kind == "bytes":
            return self.data[start:end]
        if kind == "str":
            try:
                return str(self.data[start:end], "utf-8")
            except UnicodeDecodeError:
                raise FormatError(f"{label} at byte {start} is no UTF-8 text") from None
        return self.message(kind, start, end, depth + 1)

    def packed(self, values: list[Any], kind: str, at: int, end: int) -> None:
        self.count += end - at
        if self.count > _FIELDS * 10:
            raise FormatError(f"more than {_FIELDS * 10} packed values")
        if kind in _FORMAT:
            _, width, dtype = _FORMAT[kind]
            if (end - at) % width:
                raise FormatError(f"packed numbers at byte {at} do not fill their bytes")
            values += np.frombuffer(self.data[at:end], dtype).tolist()
            return
        while at < end:
            value, at = self.varint(at, end)
            values.append(value - (1 << 64) if value >> 63 else value)
