"""Write the checkpoints of this folder with real torch, and expected.json with what torch reads from them.

python make_with_torch.py (torch 2.13, numpy, safetensors; see the commit that last changed a file for the versions).
"""

import collections
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    import torch
    from safetensors.torch import save_file

    def value(dtype):
        x = torch.arange(6).reshape(2, 3)
        return x % 2 == 0 if dtype == torch.bool else x.to(dtype)

    old = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64"]
    old += ["complex64", "complex128"]
    base = torch.arange(12.0).reshape(3, 4)
    views = {
        "base": base,
        "row": base[1],
        "transposed": base.t(),
        "stepped": base[:, ::2],
        "expanded": torch.ones(1, 3).expand(4, 3),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 3),
        "grad": torch.ones(2, requires_grad=True),
        "conj": torch.tensor([1 + 2j, 3 - 1j]).conj(),
    }
    plain = {
        "a": [1, 2.5, None, True, "é"],
        "t": (1, (2, 3)),
        "big": 2**70,
        "neg": -5,
        "wide": 2**20,
        "set": {1, 2},
        "bytes": b"\x00\xff",
        "array": bytearray(b"xy"),
        "complex": 1 + 2j,
        "size": torch.Size([2, 3]),
        "device": torch.device("cuda:1"),
        "dtype": torch.float16,
        "counter": collections.Counter("aab"),
    }
    tensors = collections.OrderedDict((n, value(getattr(torch, n))) for n in old)
    tensors.update(views)
    new = {n: value(getattr(torch, n)) for n in ("uint16", "uint32", "uint64")}
    parameters = collections.OrderedDict(
        w=torch.nn.Parameter(torch.arange(3.0)), b=torch.nn.Parameter(torch.arange(3.0), requires_grad=False)
    )
    parameters._metadata = {"": {"version": 1}}
    files = {
        "zip.pth": {**tensors, **new},
        "legacy.pth": tensors,
        "protocol4.pth": tensors,
        "python.pth": plain,
        "parameters.pth": parameters,
    }
    q = torch.quantize_per_tensor(base, 0.1, 3, torch.quint8)
    qc = torch.quantize_per_channel(base, torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8)
    files["quantized.pth"] = {"tensor": q, "channel": qc}
    import numpy as np

    arrays = {
        "c": np.arange(6.0).reshape(2, 3),
        "f": np.asfortranarray(np.arange(6, dtype="i4").reshape(2, 3)),
        "scalar": np.float64(2.5),
        "text": np.array(["ab", "c"]),
    }
    files["numpy.pth"] = arrays
    expected = {}
    described = {}
    # complex128 is not of the format; views are saved as tensors of their own
    whole = {n: t.contiguous() for n, t in {**tensors, **new}.items() if n not in ("complex128", "grad", "conj")}
    whole = {n: t.clone() for n, t in whole.items()}
    save_file(whole, os.path.join(HERE, "torch.safetensors"), {"format": "pt"})
    described["torch.safetensors"] = whole
    for name, obj in files.items():
        torch.save(
            obj,
            os.path.join(HERE, name),
            pickle_protocol=4 if name == "protocol4.pth" else 2,
            _use_new_zipfile_serialization=name != "legacy.pth",
        )
        if name in ("python.pth", "numpy.pth"):
            continue
        described[name] = obj
    for name, obj in described.items():
        expected[name] = {}
        for key, t in obj.items():
            t = t.detach()
            t = (t.dequantize() if t.is_quantized else t).resolve_conj()
            flat = torch.view_as_real(t).reshape(-1) if t.is_complex() else t.reshape(-1)
            flat = flat.to(torch.float64 if flat.is_floating_point() else torch.int64)
            expected[name][key] = {
                "dtype": str(t.dtype)[6:],
                "shape": list(t.shape),
                "stride": list(t.stride()),
                "offset": t.storage_offset(),
                "values": flat.tolist(),
                "requires_grad": obj[key].requires_grad,
            }
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    torch.save(module, os.path.join(HERE, "module.pth"))
    torch.save(base.to_sparse(), os.path.join(HERE, "sparse.pth"))
    torch.save(torch.ones(2).to(torch.float8_e4m3fn), os.path.join(HERE, "float8.pth"))
    with open(os.path.join(HERE, "expected.json"), "w") as f:
        json.dump(expected, f, separators=(",", ":"))
        f.write("\n")
    print("torch", torch.__version__, "python", sys.version.split()[0])


if __name__ == "__main__":
    main()
