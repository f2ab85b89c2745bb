"""Hostile files are refused with one sentence that names the reason, in bounded time and memory."""

from __future__ import annotations

import io
import resource
import struct
import time

import pytest

from engine.serialization import (
    UnpicklingError,
    get_unsafe_globals_in_checkpoint,
    load,
    load_safetensors,
)
from engine.serialization.arrays import ArrayBuilder
from engine.serialization.errors import Limits
from engine.serialization.formats import read
from engine.serialization.pickler import Global, Reduce

from . import forge
from .forge import ORDERED, pickled, storage, tensor, zipped

HUGE = 1 << 62
M = b"\x80\x02"  # PROTO 2


def refused(content: bytes, reason: str, function=load, seconds: float = 5.0) -> str:
    """Load `content`; assert one sentence that says `reason`, in time and without taking memory."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    with pytest.raises(UnpicklingError, match=reason) as caught:
        function(io.BytesIO(content))
    assert time.perf_counter() - start < seconds
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 400 << 10  # KiB
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


# -- globals


def call(module: str, name: str, *args: object) -> bytes:
    return pickled(Reduce(Global(module, name), *args))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("builtins", "exec"),
        ("subprocess", "Popen"),
        ("torch", "load"),
        ("torch.serialization", "load"),
        ("torch.hub", "load"),
        ("numpy", "load"),
        ("numpy.core.multiarray", "frombuffer"),
        ("engine.serialization", "load"),
        ("operator", "attrgetter"),
        ("functools", "partial"),
        ("importlib", "import_module"),
        ("torch._utils", "_rebuild_tensor_v2.__globals__"),
        ("collections", "OrderedDict.__init__.__globals__"),
        ("pickle", "loads"),
        ("torch.jit", "load"),
    ],
)
def test_foreign_globals_are_named(module, name):
    body = call(module, name, "echo pwned > /tmp/pwned")
    for content in (zipped(body), forge.legacy(Reduce(Global(module, name), "x"), [])):
        message = refused(content, "Unsupported global: ")
        assert f"{module}.{name} was refused" in message
        refused(content, "Unsupported global: ", lambda f: read(f, ArrayBuilder()))
    assert get_unsafe_globals_in_checkpoint(io.BytesIO(zipped(body))) == [f"{module}.{name}"]


def test_foreign_globals_in_a_tar_and_in_headers():
    parts = forge.tar_parts()
    parts["pickle"] = call("os", "system", "x")
    refused(forge.tarred(parts), "os.system was refused")
    parts = forge.tar_parts()
    parts["storages"] = call("os", "system", "x")
    refused(forge.tarred(parts), "os.system was refused")
    head = pickled(forge.LEGACY_MAGIC) + pickled(forge.LEGACY_VERSION) + call("os", "system", "x")
    refused(head, "os.system was refused in the file's header")


def test_global_names_are_shown_harmlessly():
    body = M + b"cevil\x1b[31m\nnam\xc3\xa9" + b"e" * 200 + b"\n."
    message = refused(zipped(body), "Unsupported global")
    assert "\x1b" not in message


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (M + b"cos\nsystem", "line without an end"),
        (M + b"c" + b"a" * 5000 + b"\nb\n.", "line without an end"),
        (M + b"\x93.", "truncated|malformed"),
        (M + b"K\x01K\x02\x93.", "two short strings"),
        (M + b"}(K\x01\x85R.", "malformed|truncated|calls"),
        (M + b"K\x01)R.", "the file calls an object of type int"),
        (M + b"K\x01)\x81.", "the file creates an object of type int"),
        (M + b"K\x01K\x02R.", "the arguments of a call are a int"),
        (M + b"]}b.", "changes the state of builtins.list"),
        (M + b"ctorch\nFloatTensor\nK\x01\x85R.", "called with arguments"),
        (M + b"ctorch\nFloatStorage\n)R.", "the file calls torch.FloatStorage"),
        (M + b"ccollections\nOrderedDict\n)R}X\x05\x00\x00\x00itemsK\x01sb.", "hide its methods"),
        (M + b"ccollections\nOrderedDict\n)RK\x01b.", "hide its methods"),
        (M + b"(cos\nsystem\no.", "os.system was refused"),
        (M + b"(i__main__\nX\n.", r"opcode INST \(0x69\) is refused"),
        (M + b"Ptext\n.", r"opcode PERSID \(0x50\)"),
        (M + b"\x82\x01.", "opcode EXT1"),
        (M + b"\x97.", "opcode NEXT_BUFFER"),
        (M + b"\xff.", "opcode is unknown"),
        (b"\x80\x06.", "protocol 6"),
        (M, "truncated"),
        (b"", "truncated"),
        (M + b"0.", "malformed|truncated"),
        (M + b".", "malformed|truncated"),
        (M + b"h\x07.", "malformed"),
        (M + b"q\x00.", "malformed"),
        (M + b"]K\x01e.", "malformed"),
        (M + b"(K\x01d.", "a key without a value"),
        (M + b"}]K\x01s.", "malformed.*unhashable"),
        (M + b"K\x01(K\x02u.", "a key without a value"),
        (M + b"K\x01(K\x02K\x03u.", "puts items into builtins.int"),
        (M + b"K\x01K\x02a.", "puts items into builtins.int"),
        (M + b"](K\x01\x90.", "ADDITEMS is for sets"),
        (M + b"X\xff\xff\xff\xffabc.", "4294967295 bytes are announced"),
        (M + b"\x8d" + b"\xff" * 8 + b"abc.", "18446744073709551615 bytes are announced"),
        (M + b"\x8e\x00\x00\x00\x00\x00\x00\x00\x80.", "bytes are announced"),
        (M + b"\x95" + b"\xff" * 8 + b".", "a frame of"),
        (M + b"\x8b\x00\x00\x00\x7f.", "an integer of 2130706432 bytes"),
        (M + b"\x8b\xff\xff\xff\xff.", "an integer of -1 bytes"),
        (M + b"I" + b"9" * 5000 + b"\n.", "a line without an end"),
        (M + b"L" + b"9" * 1000 + b"\n.", "more than 512 digits"),
        (M + b"Ix\n.", "malformed"),
        (M + b"p-1\n.", "memo index"),
        (M + b"p99999999999\n.", "memo index"),
        (M + b"S'a\n.", "without quotes"),
        (M + b"S'\\q'\n.", "unknown escape"),
        (M + b"V\\u12\n.", "malformed"),
        (M + b"X\x01\x00\x00\x00\xff.", "malformed"),
        (M + b"K\x01Q.", "not a storage"),
        (M + b"(X\x06\x00\x00\x00moduleK\x01K\x02K\x03K\x04tQ.", "not a storage"),
    ],
)
def test_bad_pickles(body, reason):
    refused(zipped(body), reason)


@pytest.mark.parametrize(
    ("function", "args", "reason"),
    [
        (("builtins", "bytearray"), (1 << 40,), "a bytearray is made from something other"),
        (("builtins", "bytes"), (1 << 40,), "a bytearray is made from something other"),
        (("builtins", "set"), (1 << 40,), "a set is made from something other"),
        (("builtins", "complex"), ("1",), "a complex number"),
        (("_codecs", "encode"), ("x", "rot13"), "_codecs.encode is for"),
        (("_codecs", "encode"), ("x", "latin1", "surrogateescape"), "_codecs.encode is for"),
        (("collections", "defaultdict"), (Global("torch", "Size"),), "a factory that is not"),
        (("collections", "OrderedDict"), ([1, 2],), "something other than pairs"),
        (("collections", "Counter"), ([1, 2],), "something other than a dict"),
        (("torch", "Size"), (["a"],), "something other than integers"),
        (("torch", "device"), (3,), "something other than a name"),
        (("torch", "device"), ("nowhere",), "malformed.*Expected one of cpu"),
        (("numpy", "dtype"), ("O8", False, True), "numpy dtype O8 is refused"),
        (("numpy", "dtype"), ("(2,)f8", False, True), "is refused"),
        (("numpy", "dtype"), ("V8", False, True), "is refused"),
        (("numpy", "ndarray"), ((1 << 40,),), "made by a direct call"),
        (
            ("numpy.core.multiarray", "_reconstruct"),
            (Global("builtins", "list"), (0,), b"b"),
            "only plain numpy arrays",
        ),
        (("numpy.core.multiarray", "_reconstruct"), (Global("numpy", "ndarray"), (1 << 40,), b"b"), "only plain"),
        (("numpy.core.multiarray", "scalar"), ("f8", b"12345678"), "lacks its dtype"),
        (
            ("numpy.core.multiarray", "scalar"),
            (Reduce(Global("numpy", "dtype"), "f8", False, True), b"12"),
            "2 bytes",
        ),
        (("torch.serialization", "_get_layout"), ("torch.sparse_bsr",), "layout torch.sparse_bsr"),
        (("torch._utils", "_rebuild_parameter"), (1, True, ORDERED), "a tensor is expected"),
        (("torch._utils", "_rebuild_tensor_v2"), (1, 0, (1,), (1,), False, ORDERED), "instead of a storage"),
        (("torch._utils", "_rebuild_tensor_v2"), (), "malformed"),
        (
            ("torch._utils", "_rebuild_tensor_v3"),
            (storage(), 0, (1,), (1,), False, ORDERED, 7),
            "not an element type",
        ),
        (
            ("torch._utils", "_rebuild_qtensor"),
            (storage(), 0, (1,), (1,), (), False, ORDERED),
            "elements of type float32",
        ),
        (("torch._utils", "_rebuild_sparse_tensor"), (0, ()), "sparse tensors"),
        (("torch._utils", "_rebuild_nested_tensor"), (0, 0, 0, 0), "nested tensors"),
        (("torch._utils", "_rebuild_meta_tensor_no_storage"), (0,), "meta device"),
        (("torch._tensor", "_rebuild_from_type_v2"), (Global("os", "system"), 0, (), None), "os.system was refused"),
        (
            ("torch._tensor", "_rebuild_from_type_v2"),
            (Global("builtins", "set"), 0, (), None),
            "other than a tensor function",
        ),
    ],
)
def test_bad_calls(function, args, reason):
    refused(zipped(call(*function, *args)), reason)


@pytest.mark.parametrize("key", ["data", "shape", "__class__", "_array", "requires_grad", "not an identifier"])
def test_attributes_cannot_hide_a_tensors_own(key):
    function = Global("torch._utils", "_rebuild_parameter_with_state")
    refused(zipped(pickled(Reduce(function, tensor(), True, ORDERED, {key: 1}))), "would hide its own|dict of names")


def test_metadata_and_types():
    refused(zipped(pickled(tensor((4,), (1,), 0, None, {"evil": True}))), "unknown metadata")
    on = storage(kind="QInt8Storage", numel=16)
    refused(zipped(pickled(tensor(on=on))), "lacks its scale")
    refused(zipped(pickled(Global("torch", "float4_e2m1fn_x2"))), "torch.float4_e2m1fn_x2 is not supported")


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ((), "no quantizer"),
        ((1, 2, 3), "no quantizer"),
        ((Global("torch", "per_tensor_affine"), "x", 0), "not a number"),
        ((Global("torch", "per_tensor_affine"), 1.0, 1 << 40), "not a number"),
        ((Global("torch", "per_channel_affine"), [1.0], [0], 5), "channel dimension 5"),
        ((Global("torch", "per_channel_affine"), [1.0], [0], 0), "one scale and zero point"),
        ((Global("torch", "per_tensor_symmetric"), 1.0, 0), "quantization scheme"),
    ],
)
def test_quantizers(params, reason):
    on = storage(kind="QInt8Storage", numel=16)
    function = Global("torch._utils", "_rebuild_qtensor")
    refused(zipped(pickled(Reduce(function, on, 0, (4,), (1,), params, False, ORDERED))), reason)


# -- views and storages


@pytest.mark.parametrize(
    ("size", "stride", "offset", "reason"),
    [
        ((5,), (1,), 0, "reaches outside its storage of 16 bytes"),
        ((4,), (1,), 1, "reaches outside"),
        ((4,), (2,), 0, "reaches outside"),
        ((1,), (1,), 4, "reaches outside"),
        ((2, 2), (3, 1), 0, "reaches outside"),
        ((1,), (1,), HUGE, "reaches outside"),
        ((4,), (1,), -1, "storage offset -1"),
        ((4,), (1,), True, "storage offset True"),
        ((4,), (1,), 0.0, "storage offset 0.0"),
        ((-4,), (1,), 0, "negative size or stride"),
        ((4,), (-1,), 3, "negative size or stride"),
        ((-2, -2), (1, 1), 0, "negative size"),
        ((HUGE,), (1,), 0, "reaches outside|absurd"),
        ((HUGE, HUGE), (0, 0), 0, "absurd size"),
        ((1 << 32, 1 << 32), (1, 1), 0, "absurd size"),
        ((0, HUGE * 4), (1, 1), 0, "absurd size"),
        ((4,), (HUGE,), 0, "reaches outside"),
        ((2,), (1 << 80,), 0, "reaches outside"),
        ((1 << 40,), (0,), 0, "repeats its storage of 16 bytes"),
        ((1 << 30, 1 << 30), (0, 0), 0, "repeats"),
        ((4,), (1, 1), 0, "1 sizes but 2 strides"),
        ((1,) * 65, (1,) * 65, 0, "65 dimensions"),
        ((4.0,), (1,), 0, "size is not a tuple of integers"),
        ("four", (1,), 0, "size is not a tuple"),
        ((True,), (1,), 0, "size is not a tuple"),
        ((4,), None, 0, "stride is not a tuple"),
    ],
)
def test_views_outside_their_storage(size, stride, offset, reason):
    refused(zipped(pickled(tensor(size, stride, offset))), reason)
    refused(zipped(pickled(tensor(size, stride, offset))), reason, lambda f: read(f, ArrayBuilder()))
    on = storage(view=None)
    refused(forge.legacy(tensor(size, stride, offset, on), [("0", 4, forge.FLOATS)]), reason)


@pytest.mark.parametrize("offset", [3, -1, HUGE - 1])
def test_tar_views_outside_their_storage(offset):
    refused(forge.tarred(forge.tar_parts(offset=offset)), "reaches outside|storage offset")


@pytest.mark.parametrize(
    ("numel", "reason"),
    [
        (5, "16 bytes, but 20 are declared"),
        (1 << 50, "are declared"),
        (-1, "absurd size"),
        (1 << 62, "absurd"),
        ("4", "absurd"),
        (4.0, "absurd"),
        (True, "absurd"),
    ],
)
def test_storages_larger_than_their_entry(numel, reason):
    refused(zipped(pickled(tensor(on=storage(numel=numel)))), reason)


def test_storages_that_are_not_there():
    refused(zipped(pickled(tensor(on=storage("7")))), "lacks the entry archive/data/7")
    refused(zipped(pickled(tensor(on=storage("../version", 1)))), "lacks the entry")
    refused(zipped(pickled(tensor(on=storage(kind="Evil")))), "torch.Evil was refused")
    two = pickled([tensor((2,), (1,), 0, storage(numel=2)), tensor(on=storage(numel=4))])
    refused(zipped(two), "declared with two sizes")


def test_legacy_storages():
    on = storage(view=None)
    good = [("0", 4, forge.FLOATS)]
    refused(forge.legacy(tensor(on=on), [("0", 1 << 50, forge.FLOATS)]), "truncated")
    refused(forge.legacy(tensor(on=on), [("0", -1, forge.FLOATS)]), "absurd size -1")
    refused(forge.legacy(tensor(on=on), [("0", 2, forge.FLOATS[:8])]), "fewer than its pickle declares")
    refused(forge.legacy(tensor(on=on), []), "lacks the storage 0")
    refused(forge.legacy(tensor(on=on), good * 2), "stores it twice")
    refused(forge.legacy(tensor(on=on), [*good, ("9", 1, b"1234")]), "does not use")
    refused(forge.legacy(tensor(on=on), good)[:-1], "truncated")
    refused(forge.legacy(tensor(on=on), good)[:-17], "truncated inside its storages")
    for view in (("1", 3, 2), ("1", -1, 2), ("1", 0, -2), ("1", HUGE, 1), ("1", 0), 5):
        content = forge.legacy(tensor((1,), (1,), 0, storage(view=view)), good)
        refused(content, "reaches outside|part of a storage wrongly")
    magic, version = forge.LEGACY_MAGIC, forge.LEGACY_VERSION
    refused(pickled(magic) + pickled(1002) + pickled({}), "Invalid protocol version: 1002")
    refused(pickled(magic) + pickled(version) + pickled(5), "no description of the machine")
    refused(pickled(magic) + pickled(version) + pickled({}) + pickled([]) + pickled("x"), "no list of storages")


def test_tar_members():
    for name in ("storages", "tensors", "pickle"):
        parts = forge.tar_parts()
        del parts[name]
        refused(forge.tarred(parts), f"no member {name}")
        parts[name] = b""
        refused(forge.tarred(parts), "truncated")
    content = forge.tarred(forge.tar_parts())
    refused(content[:1500], "no member storages")
    refused(content[: content.index(b"pickle\0") + 520], "truncated")
    refused(forge.tarred(forge.tar_parts(numel=1 << 40)), "truncated")
    refused(forge.tarred(forge.tar_parts(numel=-3)), "absurd size")
    refused(forge.tarred(forge.tar_parts(size=(1,) * 65, stride=(1,) * 65)), "65 dimensions")
    parts = forge.tar_parts()
    parts["pickle"] = M + b"K\x63Q."
    refused(forge.tarred(parts), "refers to the object 99")
    parts["storages"] = pickled(1 << 60)
    refused(forge.tarred(parts), "declares 1152921504606846976 storages")


# -- the zip container


def patched(content: bytes, signature: bytes, offset: int, value: bytes, which: int = 0) -> bytes:
    """`content` with the bytes at `offset` behind the `which`-th `signature` replaced."""
    at = -1
    for _ in range(which + 1):
        at = content.index(signature, at + 1)
    at += offset
    return content[:at] + value + content[at + len(value) :]


GOOD = zipped(pickled(tensor()))
LOCAL, CENTRAL, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (GOOD[:-1], "no central directory"),
        (GOOD[:100], "no central directory"),
        (GOOD + b"x", "no central directory"),
        (b"PK\x03\x04" + GOOD, "directory is not where"),
        (patched(GOOD, CENTRAL, 8, b"\x01\x00"), "encrypted"),
        (patched(GOOD, LOCAL, 6, b"\x01\x00"), "differs between"),
        (patched(GOOD, CENTRAL, 8, b"\x00\x20"), "encrypted"),
        (patched(GOOD, CENTRAL, 10, b"\x08\x00"), "differs between"),
        (patched(GOOD, CENTRAL, 10, b"\x0c\x00"), "compressed by a method other than DEFLATE"),
        (patched(GOOD, LOCAL, 8, b"\x08\x00"), "differs between"),
        (patched(GOOD, LOCAL, 14, b"1234"), "differs between"),
        (patched(GOOD, LOCAL, 18, b"\x01\x00\x00\x00"), "differs between"),
        (patched(GOOD, LOCAL, 30, b"X"), "differs between"),
        (patched(GOOD, LOCAL, 0, b"PK\x03\x05", 1), "has no header"),
        (patched(GOOD, CENTRAL, 20, struct.pack("<LL", 1 << 30, 1 << 30)), "truncated"),
        (patched(GOOD, CENTRAL, 20, struct.pack("<LL", 10, 1 << 30)), "compressed"),
        (patched(GOOD, CENTRAL, 42, struct.pack("<L", 1 << 30)), "truncated"),
        (patched(GOOD, CENTRAL, 42, struct.pack("<L", 0), 1), "overlaps"),
        (patched(GOOD, CENTRAL, 28, b"\xff\xff"), "malformed"),
        (patched(GOOD, CENTRAL, 0, b"XX"), "malformed"),
        (patched(GOOD, CENTRAL, 46, b"\xff"), "not UTF-8"),
        (patched(GOOD, CENTRAL, 34, b"\x03\x00"), "one part of several"),
        (patched(GOOD, END, 4, b"\x01\x00"), "one part of several"),
        (patched(GOOD, END, 8, b"\xf0\x00\xf0\x00"), "declares 240 entries"),
        (patched(GOOD, END, 8, b"\x01\x00\x01\x00"), "bytes behind its last entry"),
        (patched(GOOD, END, 16, b"\x00\x00\x00\x00"), "not where the archive says"),
        (forge.zip_entries([("a/data.pkl", pickled(1)), ("a/data.pkl", pickled(2))]), "a/data.pkl twice"),
        (forge.zip_entries([("a/data.pkl", pickled(1)), ("b/data.pkl", pickled(2))]), "more than one data.pkl"),
        (forge.zip_entries([("a/data.pkl", b""), ("a/constants.pkl", b""), ("a/code/x.py", b"")], 8), "TorchScript"),
        (forge.zip_entries([("x.npy", b"")]), "a numpy .npz file"),
        (forge.zip_entries([("x/METADATA", b"")]), "a package"),
        (forge.zip_entries([("readme.txt", b"")]), "no data.pkl"),
        (forge.zip_entries([("data.pkl", b"")]), "no data.pkl"),
        (zipped(pickled(1), byteorder=b"middle"), "byte order"),
    ],
)
def test_zip_archives(content, reason):
    refused(content, reason)


def test_entries_that_share_bytes():
    """The same data under two names: one name's header lies inside the other's content (a zip bomb's trick)."""
    inner = forge.zip_entries([("a/data/1", b"x" * 64)])
    inner = inner[: inner.index(CENTRAL)]
    outer = forge.zip_entries([("a/data.pkl", pickled(1)), ("a/data/0", inner)])
    at = outer.index(b"a/data/1") - 30
    end = outer.index(END)
    start = outer.index(CENTRAL)
    fake = forge.zip_entries([("a/data/1", b"x" * 64)])
    extra = bytearray(fake[fake.index(CENTRAL) : fake.index(END)])
    extra[42:46] = struct.pack("<L", at)
    directory = outer[start:end] + bytes(extra)
    tail = struct.pack("<4s4H2LH", END, 0, 0, 3, 3, len(directory), start, 0)
    refused(outer[:start] + directory + tail, "overlaps another")


def test_zip64_fields():
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 1 << 60, 1)
    at = GOOD.index(END)
    refused(GOOD[:at] + locator + GOOD[at:], "malformed zip64")
    content = patched(GOOD, CENTRAL, 24, b"\xff\xff\xff\xff")
    refused(content, "compressed|truncated|malformed zip64")


# -- depth, bombs and slow keys


@pytest.mark.parametrize(
    "body",
    [
        M + b"]" * 100_000 + b"a" * 99_999 + b".",
        M + b")" + b"\x85" * 100_000 + b".",
        M + b"(" * 100_000 + b"t" * 100_000 + b".",
        M + b"}K\x01" * 50_000 + b"}" + b"s" * 50_000 + b".",
    ],
    ids=["lists", "tuples", "marks", "dicts"],
)
def test_deep_nesting(body):
    refused(zipped(body), "nested more than 256 deep|nests more than 1000 deep|more than .* bytes of objects")


def test_laughs_by_memo_are_cheap_as_values_and_refused_as_keys():
    laughs = b")q\x000" + b"".join(b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(60))
    found = load(io.BytesIO(zipped(M + laughs + b"h\x3c.")))
    assert type(found) is tuple and found[0] is found[1]
    laughs += b"(h\x3c"
    refused(zipped(M + b"}" + laughs + b"K\x01u."), "a key of more than 64 parts")
    refused(zipped(b"\x80\x04\x8f" + laughs + b"\x90."), "a key of more than 64 parts")
    refused(zipped(b"\x80\x04" + laughs + b"\x91."), "a key of more than 64 parts")
    refused(zipped(M + b"c__builtin__\nset\n" + laughs + b"l\x85R."), "a key of more than 64 parts")


def test_laughs_are_not_printed():
    laughs = b")q\x000" + b"".join(b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(60))
    body = pickled(tensor())
    at = body.index(b"Q") + 1  # the storage has been read; its offset follows
    place = body.index(b"K\x00K\x04", at) if b"K\x00K\x04" in body[at:] else body.index(b"K\x00", at)
    refused(zipped(body[:2] + laughs + body[2:place] + b"h\x3c" + body[place + 2 :]), "a tensor has the storage offset")


def test_laughs_in_a_tar():
    laughs = M + b")q\x000" + b"".join(b"h%ch%c\x86q%c0" % (i, i, i + 1) for i in range(60))
    kind = b"ctorch\nFloatStorage\n"
    head = pickled(1)
    floats = struct.pack("<q", 4) + forge.FLOATS
    for first in (b"h\x3cX\x03\x00\x00\x00cpu", b"K\x0bh\x3c"):
        parts = forge.tar_parts()
        parts["storages"] = head + laughs + first + kind + b"\x87." + floats + pickled([])
        refused(forge.tarred(parts), "describes a storage wrongly")
    for body in (b"(h\x3cK\x0bK\x00K\x00t", b"(K\x0ch\x3cK\x00K\x00t"):
        parts = forge.tar_parts()
        parts["storages"] = head + pickled((11, "cpu", Global("torch", "FloatStorage"))) + floats
        parts["storages"] += laughs + b"](" + body + b"e."
        refused(forge.tarred(parts), "describes a part of a storage wrongly")
    parts = forge.tar_parts()
    parts["tensors"] = pickled(1) + laughs + b"K\x15h\x3cN\x87."
    refused(forge.tarred(parts), "describes a tensor wrongly")


def test_memo_bombs():
    text = b"X" + struct.pack("<L", 1 << 20) + b"a" * (1 << 20) + b"q\x00"
    copies = b"(" + text + b"c_codecs\nencode\nq\x010" + b"h\x01h\x00\x85R" * 10_000 + b"t."
    refused(zipped(M + copies), "more than .* bytes of objects")


def test_container_bombs():
    small = Limits(base_memory=1 << 20, memory_ratio=8)
    for one in (b"]", b"}", b"\x8f", b"h\x00)R"):
        body = M + b"ccollections\nOrderedDict\nq\x00(" + one * 200_000 + b"t."
        refused(zipped(body), "more than .* bytes of objects", lambda f: read(f, ArrayBuilder(), limits=small))


def test_colliding_keys():
    refused(zipped(M + b"}\x8a\x10" + b"\xff" * 15 + b"\x00K\x01s."), "more than 64 bits")
    keys = b"".join(b"J" + struct.pack("<i", i) + b"\x85K\x00" for i in range(70_000))
    refused(zipped(M + b"}(" + keys + b"u."), "too many keys are numbers")


def test_too_many_opcodes():
    with pytest.raises(UnpicklingError, match="more than 1000 opcodes"):
        read(io.BytesIO(zipped(M + b"N0" * 1000 + b"N.")), ArrayBuilder(), limits=Limits(opcodes=1000))


def test_materialised_views_are_charged():
    """Expanded views that must be copied (conj) cannot multiply a small storage without end."""
    one = tensor((1 << 20, 8), (0, 0), 0, storage(kind="ComplexDoubleStorage", numel=1), {"conj": True})
    body = pickled(
        [one] + [tensor((1 << 20, 8), (0, 0), 0, storage(kind="ComplexDoubleStorage", numel=1), {"neg": True})] * 40
    )
    refused(zipped(body), "more than .* bytes of objects")


# -- safetensors


F32 = b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}'


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"123", "none of torch's formats"),
        (struct.pack("<Q", 1 << 60) + b"{}", "truncated inside its header"),
        (struct.pack("<Q", 200_000_000) + b"{}", "truncated inside its header"),
        (forge.safetensors(b"{" + b" " * 10), "not JSON"),
        (forge.safetensors(b"{}]"), "not JSON"),
        (forge.safetensors(b'{"a":' + b"[" * 50_000), "not JSON"),
        (forge.safetensors(b'{"a":' + b"9" * 10_000 + b"}"), "not JSON"),
        (forge.safetensors(b'{"a":NaN}'), "the number NaN"),
        (forge.safetensors(b'{"a":1.5}'), "the number 1.5"),
        (forge.safetensors(b'{"\xff":1}'), "not JSON"),
        (forge.safetensors(b'{"a":1,"a":2}'), "a key twice"),
        (forge.safetensors(b'{"a":1}'), "not described by"),
        (forge.safetensors(b'{"a":{}}'), "not described by"),
        (forge.safetensors(b'{"__metadata__":{"a":1}}', b""), "not a map from text to text"),
        (forge.safetensors(F32.replace(b"F32", b"F4") + b"}"), "unsupported dtype F4"),
        (forge.safetensors(F32.replace(b'"F32"', b"7") + b"}"), "unsupported dtype 7"),
        (forge.safetensors(F32.replace(b"[4]", b"[3]") + b"}"), "16 bytes, not 12"),
        (forge.safetensors(F32.replace(b"[4]", b"[-4]") + b"}"), "the shape"),
        (forge.safetensors(F32.replace(b"[4]", b"[4611686018427387904,4]") + b"}"), "the shape"),
        (forge.safetensors(F32.replace(b"[4]", b"[2000000000,2000000000]") + b"}"), "16 bytes, not"),
        (forge.safetensors(F32.replace(b"[4]", b"true") + b"}"), "the shape"),
        (forge.safetensors(F32.replace(b"[0,16]", b"[16,0]") + b"}"), "the offsets"),
        (forge.safetensors(F32.replace(b"[0,16]", b"[0]") + b"}"), "the offsets"),
        (forge.safetensors(F32.replace(b"[0,16]", b"[-16,0]") + b"}"), "the offsets"),
        (forge.safetensors(F32.replace(b"[0,16]", b"[0,32]") + b"}"), "truncated"),
        (forge.safetensors(F32 + b"}", forge.FLOATS[:-1]), "truncated"),
        (forge.safetensors(F32 + b"}", forge.FLOATS + b"x"), "1 bytes behind its last tensor"),
        (forge.safetensors(F32 + b"," + F32[1:].replace(b'"a"', b'"b"') + b"}"), "overlaps another"),
        (forge.safetensors(F32.replace(b"[0,16]", b"[4,20]") + b"}", forge.FLOATS + b"1234"), "follows a hole"),
        (
            forge.safetensors(b'{"a":{"dtype":"F32","shape":[' + b"1," * 70 + b'4],"data_offsets":[0,16]}}'),
            "71 dimensions",
        ),
    ],
)
def test_safetensors(content, reason):
    refused(content, reason)


def test_only_safetensors():
    refused(GOOD, "has the format zip, not safetensors", load_safetensors)
