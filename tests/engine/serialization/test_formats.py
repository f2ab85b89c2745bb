"""Files of real torch and files made by hand load with torch's values, strides and sharing."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter, OrderedDict

import numpy as np
import pytest

import engine
from engine import serialization
from engine.nn.parameter import Parameter
from engine.serialization import UnpicklingError, load, read_arrays, sniff
from engine.serialization.arrays import ArrayBuilder

from . import forge
from .forge import DATA

EXPECTED = json.loads((DATA / "expected.json").read_text())
FILES = [name for name in EXPECTED if name != "parameters.pth"]


def check(actual, expected, strided=True):
    if isinstance(actual, engine.Tensor):
        actual = (actual.dequantize() if actual.is_quantized else actual)._array
    array = actual
    assert engine.core.dtypes.from_numpy(array.dtype).name == expected["dtype"]
    assert list(array.shape) == expected["shape"]
    wide = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
    flat = np.ascontiguousarray(wide).reshape(-1)
    flat = flat.view(np.float64) if wide.dtype.kind == "c" else flat
    assert flat.tolist() == [float(x) for x in expected["values"]]
    if strided and isinstance(actual, engine.Tensor) and array.size:
        assert list(actual.stride()) == expected["stride"]
        assert actual.storage_offset() == expected["offset"]


@pytest.mark.parametrize("mmap", [None, False], ids=["mapped", "copied"])
@pytest.mark.parametrize("name", FILES)
def test_tensors_of_real_torch(name, mmap):
    found = load(DATA / name, mmap=mmap)
    order = sorted if name.endswith(".safetensors") else list  # whose library sorts by dtype
    assert order(found) == order(EXPECTED[name])
    for key, expected in EXPECTED[name].items():
        check(found[key], expected, strided=key != "conj" and name != "quantized.pth")
        assert found[key].requires_grad == expected["requires_grad"]


@pytest.mark.parametrize("name", EXPECTED)
def test_arrays_of_real_torch(name):
    found = read_arrays(DATA / name)
    for key, expected in EXPECTED[name].items():
        check(found[key], expected)


def test_parameters():
    found = load(DATA / "parameters.pth")
    assert type(found) is OrderedDict and found._metadata == {"": {"version": 1}}
    for key, expected in EXPECTED["parameters.pth"].items():
        assert type(found[key]) is Parameter
        assert found[key].requires_grad == expected["requires_grad"]
        check(found[key], expected)


def test_python_values():
    found = load(DATA / "python.pth")
    assert found == {
        "a": [1, 2.5, None, True, "é"],
        "t": (1, (2, 3)),
        "big": 2**70,
        "neg": -5,
        "wide": 2**20,
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "array": bytearray(b"xy"),
        "complex": 1 + 2j,
        "size": (2, 3),
        "device": engine.device("cuda:1"),
        "dtype": engine.float16,
        "counter": Counter("aab"),
    }
    assert type(found["size"]) is engine.Size and type(found["counter"]) is Counter


def test_numpy_values():
    found = load(DATA / "numpy.pth")
    assert found["c"].tolist() == [[0, 1, 2], [3, 4, 5]] and found["f"].flags.f_contiguous
    assert found["scalar"] == 2.5 and type(found["scalar"]) is np.float64
    assert found["text"].tolist() == ["ab", "c"]


def test_views_share_their_storage():
    found = load(DATA / "zip.pth")
    found["base"]._array[1, 2] = 99
    assert found["row"].tolist()[2] == 99 and found["transposed"].tolist()[2][1] == 99


def test_writing_to_a_mapped_tensor_leaves_the_file(tmp_path):
    path = tmp_path / "copy.pth"
    path.write_bytes((DATA / "zip.pth").read_bytes())
    before = path.read_bytes()
    found = load(path, mmap=True)
    found["base"]._array[...] = -1
    assert path.read_bytes() == before and load(path)["base"].tolist()[0][0] == 0


def test_mapped_storages_are_not_copied():
    array = read_arrays(DATA / "zip.pth", mmap=True)["float32"]
    while isinstance(array.base, np.ndarray):
        array = array.base
    assert type(array.base.obj).__name__ == "mmap"
    assert array.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("name", ["zip.pth", "legacy.pth"])
def test_file_objects(name):
    content = (DATA / name).read_bytes()
    for f in (io.BytesIO(content), DATA.joinpath(name).open("rb")):
        with f:
            assert sniff(f) == name[:-4] and f.tell() == 0
            check(load(f)["int16"], EXPECTED[name]["int16"])
            assert f.tell() == len(content)


class Unseekable(io.RawIOBase):
    def __init__(self, content):
        self.inner = io.BytesIO(content)

    def read(self, n=-1):
        return self.inner.read(n)


def test_streams_without_seek():
    found = load(Unseekable((DATA / "zip.pth").read_bytes()))
    check(found["int64"], EXPECTED["zip.pth"]["int64"])


def test_several_legacy_objects_in_one_file(tmp_path):
    path = tmp_path / "two.pt"
    path.write_bytes((DATA / "legacy.pth").read_bytes() * 2)
    with open(path, "rb") as f:
        first, second = load(f), load(f)
        assert first["base"].tolist() == second["base"].tolist()
        with pytest.raises(UnpicklingError, match="the file is empty"):
            load(f)


def test_text_files_are_a_type_error():
    with pytest.raises(TypeError, match="binary mode"):
        load(io.StringIO("text"))


def test_mmap_needs_a_path_and_a_new_file(tmp_path):
    with pytest.raises(ValueError, match="f must be a file path"):
        load(io.BytesIO(b"x"), mmap=True)
    with pytest.raises(RuntimeError, match="mmap can only be used with files saved with"):
        load(DATA / "legacy.pth", mmap=True)


@pytest.mark.parametrize("mmap", [None, False], ids=["mapped", "copied"])
def test_tar(tmp_path, mmap):
    path = tmp_path / "resnet18-5c106cde.pth"
    path.write_bytes(forge.tarred(forge.tar_parts()))
    assert sniff(path) == "tar"
    found = load(path, mmap=mmap)
    assert found["w"].tolist() == [[1, 2], [3, 4]] and found["part"].tolist() == [3, 4]
    assert type(found["p"]) is Parameter and found["p"].tolist() == [[1, 2], [3, 4]]
    assert found["p"].requires_grad
    found["w"]._array[1, 1] = 9
    assert found["part"].tolist() == [3, 9]


def test_tar_arrays(tmp_path):
    found = read_arrays(io.BytesIO(forge.tarred(forge.tar_parts())))
    assert found["p"].tolist() == [[1, 2], [3, 4]]


def test_old_tar_header_without_ustar():
    content = bytearray(forge.tarred(forge.tar_parts()))
    content[257:265] = bytes(8)
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    assert sniff(io.BytesIO(bytes(content))) == "tar"


def test_legacy_storage_views_and_modules():
    part = forge.storage(view=("1", 2, 2))
    whole = forge.storage(view=None)
    obj = {"whole": forge.tensor(on=whole), "part": forge.tensor((2,), (1,), 0, part)}
    found = load(io.BytesIO(forge.legacy(obj, [("0", 4, forge.FLOATS)])))
    assert found["part"].tolist() == [3, 4]
    found["whole"]._array[2] = 7
    assert found["part"].tolist() == [7, 4]


def test_big_endian_files():
    raw = struct.pack(">4f", 1, 2, 3, 4)
    content = forge.zipped(forge.pickled(forge.tensor()), {"0": raw}, byteorder=b"big")
    assert load(io.BytesIO(content)).tolist() == [1, 2, 3, 4]
    content = forge.legacy(forge.tensor(on=forge.storage(view=None)), [("0", 4, raw)], little=False)
    assert load(io.BytesIO(content)).tolist() == [1, 2, 3, 4]
    on = forge.storage(numel=2, kind="ComplexFloatStorage")
    content = forge.zipped(forge.pickled(forge.tensor((2,), (1,), 0, on)), {"0": raw}, byteorder=b"big")
    assert load(io.BytesIO(content)).tolist() == [1 + 2j, 3 + 4j]


def test_v1_tensors_and_unaligned_entries():
    from engine.serialization.pickler import Global, Reduce

    v1 = Reduce(Global("torch._utils", "_rebuild_tensor"), forge.storage(), 1, (3,), (1,))
    for pad in range(4):
        content = forge.zipped(forge.pickled(v1), None, pad=b"x" * pad)
        found = load(io.BytesIO(content))
        assert found.tolist() == [2, 3, 4] and found._array.flags.aligned


def test_map_location():
    content = forge.zipped(forge.pickled([forge.tensor(on=forge.storage(location="cuda:0"))] * 2))
    for where in ("cpu", engine.device("cpu"), {"cuda:0": "cpu"}, lambda s, tag: s, lambda s, tag: s.cpu(), b"cpu"):
        assert load(io.BytesIO(content), map_location=where)[0].device.type == "cpu"
    seen = []
    load(io.BytesIO(content), map_location=lambda s, tag: seen.append((s.tolist(), tag, s.nbytes())) or s)
    assert seen == [([1, 2, 3, 4], "cuda:0", 16)]
    restore = serialization.default_restore_location
    assert load(io.BytesIO(content), map_location=lambda s, tag: restore(s, "cpu"))[0].tolist() == [1, 2, 3, 4]
    with pytest.raises(TypeError, match="map_location returned a str"):
        load(io.BytesIO(content), map_location=lambda s, tag: "cpu")
    with pytest.raises(TypeError, match="map_location must be"):
        load(io.BytesIO(content), map_location=3)
    with pytest.raises(RuntimeError, match="don't know how to restore data location"):
        load(io.BytesIO(content), map_location={"cuda:0": "xla:0"})


def test_a_missing_device_has_torchs_sentence(monkeypatch):
    from engine import backends

    def none(where):
        raise RuntimeError("no CUDA here")

    monkeypatch.setattr(backends, "of_device", none)
    content = forge.zipped(forge.pickled(forge.tensor(on=forge.storage(location="cuda:0"))))
    with pytest.raises(RuntimeError, match=r"torch.cuda.is_available\(\) is False"):
        load(io.BytesIO(content))


def test_sniff(tmp_path):
    assert sniff(DATA / "zip.pth") == "zip" and sniff(DATA / "legacy.pth") == "legacy"
    script = forge.zip_entries([("m/data.pkl", b""), ("m/constants.pkl", b""), ("m/code/x.py", b"")])
    assert sniff(io.BytesIO(script)) == "torchscript"
    assert sniff(io.BytesIO(forge.safetensors(b"{}", b""))) == "safetensors"
    assert sniff(io.BytesIO(b"nothing at all")) == "unknown"
    (tmp_path / "empty").touch()
    assert sniff(tmp_path / "empty") == "unknown"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"\x89HDF\r\n", "HDF5"),
        (b"version https://git-lfs.github", "Git LFS"),
        (b"<!DOCTYPE html>", "web page"),
        (b"\x80\x04K\x01.", "not one of torch"),
        (b"\x93NUMPY", ".npy"),
        (b"hello world, hello", "none of torch's formats"),
        (b"\xff" * 8 + b"{}", "safetensors file is truncated"),
    ],
)
def test_other_files_are_named(content, reason):
    with pytest.raises(UnpicklingError, match=reason):
        load(io.BytesIO(content))


def test_python2_strings_and_encodings():
    body = b"\x80\x02}(U\x01aK\x01U\x02\xc3\xa9K\x02U\x01\xffK\x03u."
    content = forge.zipped(body)
    assert load(io.BytesIO(content)) == {"a": 1, "é": 2, b"\xff": 3}
    assert load(io.BytesIO(content), encoding="bytes") == {b"a": 1, b"\xc3\xa9": 2, b"\xff": 3}
    assert load(io.BytesIO(content), encoding="latin1")["ÿ"] == 3


def test_load_arguments_of_torch():
    content = forge.zipped(forge.pickled([1]))
    with pytest.raises(RuntimeError, match="explicit pickle_module"):
        load(io.BytesIO(content), None, json)
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        load(io.BytesIO(content), nonsense=1)
    with pytest.warns(UserWarning, match="pickle_load_args are ignored"):
        assert load(io.BytesIO(content), weights_only=False, errors="strict") == [1]


def test_array_builder_ignores_attributes():
    builder = ArrayBuilder()
    array = np.zeros(2)
    builder.set_attributes(array, {"tag": 1})
    builder.set_requires_grad(array, True)
    assert builder.parameter(array, True) is array


def test_importing_the_engine_does_not_import_this():
    import subprocess
    import sys

    code = "import sys, engine; print(any(m.startswith('engine.serialization') for m in sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
