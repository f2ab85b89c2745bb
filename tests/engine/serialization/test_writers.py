"""What `save` writes: sharing, views, alignment, atomic replacement, zip64; and safetensors and convert."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest

import engine
from engine.nn.parameter import Parameter
from engine.serialization import (
    Conversion,
    UnpicklingError,
    convert,
    load,
    load_safetensors,
    read_arrays,
    save,
    save_safetensors,
    sniff,
    writers,
)
from engine.serialization.source import Source
from engine.serialization.ziparchive import ZipArchive
from engine.tensor import wrap

from . import forge
from .forge import DATA

DTYPES = [d for d in engine.core.dtypes.ALL]
OLD = [d for d in DTYPES if d.name not in ("uint16", "uint32", "uint64")]


def saved(obj, **options) -> bytes:
    out = io.BytesIO()
    save(obj, out, **options)
    return out.getvalue()


def again(obj, **options):
    return load(io.BytesIO(saved(obj, **options)))


def sample(dtype) -> engine.Tensor:
    return wrap(np.arange(6).reshape(2, 3).astype(engine.core.dtypes.to_numpy(dtype)))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype(dtype):
    found = again({"x": sample(dtype)})["x"]
    assert found.dtype is dtype and found.tolist() == sample(dtype).tolist()
    if dtype in OLD:
        found = again({"x": sample(dtype)}, _use_new_zipfile_serialization=False)["x"]
        assert found.dtype is dtype and found.tolist() == sample(dtype).tolist()
    else:
        with pytest.raises(pickle.PicklingError, match="no form for"):
            saved(sample(dtype), _use_new_zipfile_serialization=False)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_views_keep_strides_offsets_and_sharing(new):
    base = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    views = [
        base,
        base[1],
        base.T,
        base[:, ::2],
        base[1:, 1:3],
        base[:0],
        np.broadcast_to(base[:1], (5, 4)),
        base[1, 2],
    ]
    views[-1] = base[1:2, 2:3].reshape(())
    found = again([wrap(v) for v in views], _use_new_zipfile_serialization=new)
    for tensor, view in zip(found, views):
        assert tensor.tolist() == view.tolist() and tensor.shape == view.shape
        assert tensor._array.strides == view.strides or not view.size or view.ndim == 0
    assert len({t.untyped_storage().data_ptr() for t in found if t.numel()}) == 1
    found[0]._array[1, 2] = 99
    assert found[1].tolist()[2] == 99 and found[4].tolist()[0][1] == 99 and found[7].item() == 99


def test_strides_that_torch_lacks_are_copied():
    base = np.arange(6.0)
    record = np.zeros(3, [("a", "i1"), ("b", "<f4")])
    record["b"] = [1, 2, 3]
    found = again([wrap(base[::-1]), wrap(record["b"])])
    assert found[0].tolist() == [5, 4, 3, 2, 1, 0] and found[1].tolist() == [1, 2, 3]
    both = np.arange(4.0, dtype=np.float32)
    found = again([wrap(both), wrap(both.view(np.int32))])
    assert found[1].tolist() == both.view(np.int32).tolist() and found[0].tolist() == [0, 1, 2, 3]
    odd = np.frombuffer(bytearray(10), np.uint8)
    found = again([wrap(odd[:8].view(np.float32)), wrap(odd)])
    assert found[0].tolist() == [0, 0] and found[1].shape == (10,)


def test_parameters_and_nested_containers():
    state = OrderedDict(w=Parameter(sample(engine.float32), requires_grad=False), g=Parameter(sample(engine.float64)))
    state._metadata = OrderedDict({"": {"version": 2}})
    tagged = Parameter(sample(engine.float32))
    tagged.tag = "hello"
    plain = sample(engine.float32)
    plain.note = [1, 2]
    leaf = sample(engine.float32)
    leaf.requires_grad = True
    obj = {
        "state": state,
        "list": [1, (2.5, None, True)],
        "size": engine.Size([2, 3]),
        "device": engine.device("cuda", 1),
        "dtype": engine.bfloat16,
        "tagged": tagged,
        "plain": plain,
        "leaf": leaf,
        "np": np.arange(3),
        "same": [tagged, tagged],
    }
    found = again(obj)
    assert type(found["state"]["w"]) is Parameter and not found["state"]["w"].requires_grad
    assert found["state"]["g"].requires_grad and found["state"]._metadata == {"": {"version": 2}}
    assert found["list"] == obj["list"] and type(found["size"]) is engine.Size and found["device"] == obj["device"]
    assert found["dtype"] is engine.bfloat16 and found["tagged"].tag == "hello" and found["plain"].note == [1, 2]
    assert type(found["plain"]) is engine.Tensor and found["leaf"].requires_grad and found["np"].tolist() == [0, 1, 2]
    assert found["same"][0] is found["same"][1] is found["tagged"]


def test_storages():
    x = sample(engine.float32)
    found = again({"typed": x.storage(), "raw": x.untyped_storage(), "x": x})
    assert found["typed"].tolist() == [0, 1, 2, 3, 4, 5] and found["x"].tolist() == x.tolist()
    assert found["raw"].nbytes() == 24


def test_zip_layout():
    content = saved({"a": sample(engine.float32), "b": sample(engine.int8)})
    with zipfile.ZipFile(io.BytesIO(content)) as z:
        assert z.testzip() is None
        names = z.namelist()
        assert names == [
            "archive/data.pkl",
            "archive/.storage_alignment",
            "archive/byteorder",
            "archive/data/0",
            "archive/data/1",
            "archive/version",
        ]
        assert all(i.compress_type == zipfile.ZIP_STORED for i in z.infolist())
        assert z.read("archive/version") == b"3\n" and z.read("archive/.storage_alignment") == b"64"
    archive = ZipArchive(Source(io.BytesIO(content))).check()
    assert all(e.offset % 64 == 0 for e in archive.entries.values()) and archive.damaged() == []
    broken = bytearray(content)
    broken[archive.entries["archive/data/1"].offset] ^= 1
    assert ZipArchive(Source(io.BytesIO(bytes(broken)))).check().damaged() == ["archive/data/1"]


def test_zip64(monkeypatch):
    monkeypatch.setattr(writers, "ZIP64_LIMIT", 20)
    content = saved([sample(engine.float32), sample(engine.float64)])
    with zipfile.ZipFile(io.BytesIO(content)) as z:
        assert z.testzip() is None
    assert load(io.BytesIO(content))[1].tolist() == sample(engine.float64).tolist()


def test_saving_over_a_mapped_file(tmp_path):
    path = tmp_path / "model.pth"
    save({"x": sample(engine.float32)}, path)
    os.chmod(path, 0o640)
    found = load(path, mmap=True)
    save(found, path)
    assert found["x"].tolist() == load(path)["x"].tolist() == sample(engine.float32).tolist()
    assert os.stat(path).st_mode & 0o777 == 0o640 and os.listdir(tmp_path).count("model.pth") == 1
    assert [n for n in os.listdir(tmp_path) if n.endswith(".part")] == []
    with pytest.raises(pickle.PicklingError):
        save({"x": lambda: 0}, path)
    assert load(path)["x"].tolist() == found["x"].tolist()
    (tmp_path / "link.pth").symlink_to(path)
    save({"y": 1}, tmp_path / "link.pth")
    assert load(path) == {"y": 1} and (tmp_path / "link.pth").is_symlink()
    assert [n for n in os.listdir(tmp_path) if n.endswith(".part")] == []


def test_save_arguments(tmp_path):
    with pytest.raises(RuntimeError, match=r"Parent directory .* does not exist"):
        save(1, tmp_path / "no" / "where.pth")
    for protocol in (-1, 2, 4, pickle.HIGHEST_PROTOCOL):
        save([1], kept := io.BytesIO(), pickle_protocol=protocol)
        assert load(io.BytesIO(kept.getvalue())) == [1]
    with pytest.raises(ValueError, match=f"pickle protocol must be <= {pickle.HIGHEST_PROTOCOL}, not 9"):
        save(1, io.BytesIO(), pickle_protocol=9)
    with pytest.raises(AttributeError, match="file-like object with a 'write'"):
        save(1, 7)
    save([1], os.fspath(tmp_path / "s.pth").encode())
    assert load(tmp_path / "s.pth") == [1]


def test_functions_kept_as_attributes_have_torchs_names():
    """What torch 2.13 reads back: a model keeps its activations."""
    import engine
    from engine.nn import functional

    kept = {"a": functional.relu, "b": engine.relu, "c": functional.gelu, "d": functional.conv2d}
    file = io.BytesIO()
    engine.save(kept, file)
    data = zipfile.ZipFile(file).read("archive/data.pkl")
    for name in (b"ctorch.nn.functional\nrelu\n", b"ctorch\nrelu\n", b"ctorch.nn.functional\ngelu\n"):
        assert name in data
    file.seek(0)
    assert engine.load(file, weights_only=False) == kept
    file.seek(0)
    assert engine.load(file, weights_only=True, allow=list(kept.values())) == kept
    with pytest.raises(UnpicklingError, match="Unsupported global: torch"):
        file.seek(0)
        engine.load(file)


def test_names_of_classes_of_the_engine():
    from engine.serialization._tensors import rename

    assert rename("engine.nn.modules.conv", "Conv2d") == ("torch.nn.modules.conv", "Conv2d")
    assert rename("engine.nn.functional", "relu") == ("torch.nn.functional", "relu")
    assert rename("engine.optim.adam", "Adam") == ("torch.optim", "Adam")
    assert rename("engine.tensor", "Size") == ("torch.tensor", "Size") and rename("engineer", "x") == (
        "engineer",
        "x",
    )


# -- safetensors and convert


def test_safetensors_round_trip(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {d.name: sample(d) for d in DTYPES if d.name != "complex128"}
    tensors |= {
        "view": wrap(np.arange(12.0).reshape(3, 4).T[::2]),
        "scalar": wrap(np.array(3.5)),
        "none": wrap(np.zeros((0, 3))),
    }
    save_safetensors(tensors, path, {"format": "pt"})
    for found in (
        load_safetensors(path),
        load(path),
        load_safetensors(path, mmap=False),
        load(io.BytesIO(path.read_bytes())),
    ):
        assert list(found) == list(tensors)
        for name, tensor in tensors.items():
            assert found[name].dtype is tensor.dtype and found[name].tolist() == tensor.tolist()
    before = path.read_bytes()
    found = load_safetensors(path, mmap=True)
    found["float32"]._array[...] = 9
    assert path.read_bytes() == before
    (length,) = struct.unpack_from("<Q", before)
    assert (8 + length) % 64 == 0 and b'"__metadata__":{"format":"pt"}' in before
    assert sniff(path) == "safetensors" and load_safetensors(path, map_location="cpu")["int8"].device.type == "cpu"


def test_safetensors_refusals():
    for tensors, reason in [
        ({"x": sample(engine.complex128)}, "which safetensors lacks"),
        ({"x": 3}, "not a tensor"),
        ({7: sample(engine.float32)}, "cannot name a tensor"),
        ({"__metadata__": sample(engine.float32)}, "cannot name"),
    ]:
        with pytest.raises(TypeError, match=reason):
            save_safetensors(tensors, io.BytesIO())
    with pytest.raises(TypeError, match="str to str"):
        save_safetensors({}, io.BytesIO(), {"a": 1})


def test_convert(tmp_path):
    target = tmp_path / "x.safetensors"
    done = convert(DATA / "parameters.pth", target)
    assert done == Conversion(target.stat().st_size, 2, "safetensors") and load(target)["w"].tolist() == [0, 1, 2]
    nested = {"epoch": 3, "model": {"w": sample(engine.float32)}, "name": "x"}
    source = tmp_path / "nested.pth"
    save(nested, source)
    done = convert(source, target)
    assert done.skipped == ("epoch", "name") and list(load(target)) == ["w"]
    nested["ema"] = [{"w": sample(engine.bfloat16)}]
    save(nested, source)
    assert convert(source, target).tensors == 2 and list(load(target)) == ["model.w", "ema.0.w"]
    assert convert(source, target, key="model").tensors == 1
    with pytest.raises(ValueError, match=r"no entry 'state' \(it has: epoch, model, name, ema\)"):
        convert(source, target, key="state")
    with pytest.raises(ValueError, match="cannot tell the format"):
        convert(source, tmp_path / "x.what")
    with pytest.raises(ValueError, match="unknown format 'onnx'"):
        convert(source, target, format="onnx")
    done = convert(source, tmp_path / "old.pth", format="legacy")
    assert done.format == sniff(tmp_path / "old.pth") == "legacy" and done.tensors == 2
    back = convert(target, tmp_path / "new.pth")
    assert back.format == "zip" and load(tmp_path / "new.pth")["w"].tolist() == sample(engine.float32).tolist()
    done = convert(io.BytesIO(forge.tarred(forge.tar_parts())), tmp_path / "tar.pth")
    assert type(load(tmp_path / "tar.pth")["p"]) is Parameter and done.tensors == 3
    source.write_bytes(forge.zipped(forge.pickled({"a.b": forge.tensor(), "a": {"b": forge.tensor()}})))
    with pytest.raises(UnpicklingError, match=r"two tensors of the checkpoint would have the name a\.b"):
        convert(source, target)


def test_convert_says_what_shared_memory(tmp_path):
    source, target = tmp_path / "tied.pth", tmp_path / "tied.safetensors"
    base = sample(engine.float32)
    save({"head": base, "other": sample(engine.float32), "tied": base, "row": base[1]}, source)
    assert convert(source, target).shared == (("head", "tied", "row"),)
    assert load(target)["row"].tolist() == [3, 4, 5] and load(target)["tied"].tolist() == base.tolist()
    copy = tmp_path / "again.pth"
    assert convert(source, copy).shared == ()  # a zip file keeps the sharing
    found = load(copy)
    found["head"]._array[1, 0] = 9
    assert found["row"].tolist() == found["tied"].tolist()[1] == [9, 4, 5]


def test_convert_keeps_or_names_metadata(tmp_path):
    source, target = tmp_path / "a.safetensors", tmp_path / "b.safetensors"
    save_safetensors({"x": sample(engine.float32)}, source, {"licence": "MIT"})
    assert convert(source, target).skipped == () and b'"licence":"MIT"' in target.read_bytes()
    assert convert(source, tmp_path / "c.pth").skipped == ("__metadata__",)
    convert(tmp_path / "c.pth", target)
    assert b'"__metadata__":{"format":"pt"}' in target.read_bytes()
    assert convert(target, tmp_path / "c.pth").skipped == ()


def test_convert_refuses_views_that_multiply_the_file(tmp_path):
    shared = [forge.tensor((1 << 20, 8), (0, 0))] * 4
    source, target = tmp_path / "bomb.pth", tmp_path / "bomb.safetensors"
    source.write_bytes(forge.zipped(forge.pickled(shared)))
    with pytest.raises(UnpicklingError, match="share 4 bytes and would fill 134217728"):
        convert(source, target)
    assert not target.exists()


def test_convert_leaves_the_target_alone_when_it_fails(tmp_path):
    source, target = tmp_path / "a.pth", tmp_path / "a.safetensors"
    save({"x": sample(engine.complex128)}, source)
    target.write_bytes(b"before")
    with pytest.raises(TypeError, match="which safetensors lacks"):
        convert(source, target)
    with pytest.raises(pickle.PicklingError, match="no form for"):
        save({"x": sample(engine.uint16)}, source)
        convert(source, target, format="legacy")
    assert target.read_bytes() == b"before" and not list(tmp_path.glob(".*"))


def test_bfloat16_arrays():
    array = read_arrays(DATA / "zip.pth")["bfloat16"]
    assert array.dtype == ml_dtypes.bfloat16
