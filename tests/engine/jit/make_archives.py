# The old forms of types and of formatting are what torch 1.13 compiles:
# ruff: noqa: UP006, UP007, UP031, UP035, UP045
"""Writes the archives of tests/engine/jit/archives and the numbers that torch gives for them.

Run with a python that has torch (2.13 and 1.13 were used): `python make_archives.py archives`.  Each program is saved
as `VERSION/NAME.pt`, its inputs and outputs flattened into `VERSION/NAME.npz`: `i0, i1, ...` and `o0, o1, ...`; the
numbers, text and None among them, and the form of the whole, stand in `VERSION/cases.json`.
The types are written in the old way, the only one that torch 1.13 compiles.
"""

import importlib
import json
import math
import sys
import tempfile
import zipfile
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Tuple, Union

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Pair(NamedTuple):
    left: Tensor
    count: int


class Colour(Enum):
    RED = 1
    BLUE = 2


NEW = int(torch.__version__.partition(".")[0]) >= 2  # 1.13 cannot script classes under Python 3.11


def scripted_class(cls: Any) -> Any:
    return torch.jit.script(cls) if NEW else cls


@scripted_class
class Counter:
    def __init__(self, start: int):
        self.n = start
        self.seen: Dict[str, int] = {}

    def add(self, key: str, step: int = 1) -> int:
        self.n += step
        self.seen[key] = self.n
        return self.n


@torch.jit.interface
class Shape(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2


class ControlFlow(nn.Module):
    def forward(self, x: Tensor, n: int, flag: bool = True) -> Tensor:
        out = x
        for i in range(n):
            if i % 2 == 0:
                out = out + i
            elif flag:
                out = out * 0.5
            else:
                continue
            if i > 6:
                break
        k = 0
        while k * k < n:
            k += 1
            out = out - 1 / k
        if bool(out.sum() > 0) and not flag:
            out = -out
        for row in range(2, 8, 3):
            out = out + row // 2 - row % 4
        return out


class Classes(nn.Module):
    shape: Shape

    def __init__(self) -> None:
        super().__init__()
        self.shape = Doubled()
        self.start = 3

    def forward(self, x: Tensor) -> Tuple[Tensor, int, Dict[str, int], bool]:
        counter = Counter(self.start)
        for key in ["a", "b", "a"]:
            counter.add(key, 2)
        pair = Pair(self.shape(x), counter.n)
        colour = Colour.BLUE if counter.n > 5 else Colour.RED
        return pair.left + pair.count, pair.count, counter.seen, colour == Colour.BLUE


class Containers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3, bias=False)])
        self.named = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
        self.weights = [0.5, 2.0]
        self.table = {"one": 1, "two": 2}
        self.size = (4, 2.5)
        self.nothing: Optional[int] = None
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("fleeting", torch.ones(3), persistent=False)

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        out: Dict[str, Tensor] = {}
        for i, layer in enumerate(self.layers):
            x = layer(x) * self.weights[i]
            out[str(i)] = x
        for name, layer in self.named.items():
            x = layer(x)
            out[name] = x * self.scale + self.fleeting
        total = 0
        for key in self.table:
            total += self.table[key]
        if self.nothing is None:
            total += self.size[0]
        out["total"] = torch.tensor(total)
        items = [v for v in out.values()]
        out["stacked"] = torch.stack(items[:2])
        return out


class Optionals(nn.Module):
    def forward(
        self, x: Tensor, other: Optional[Tensor] = None, factors: Optional[List[float]] = None, name: str = "plain"
    ) -> Tuple[Tensor, Optional[Tensor], str]:
        if other is not None:
            x = x + other
        if factors is not None:
            for factor in factors:
                x = x * factor
        text = f"{name} has {x.size(0)}" + "!"
        return x, other, text.upper()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True)
        self.gru = nn.GRU(8, 2)
        self.cell = nn.LSTMCell(2, 3)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
        out, (h, c) = self.lstm(x)
        out, _ = self.gru(out.transpose(0, 1))
        state = torch.zeros(out.size(1), 3, dtype=x.dtype), torch.zeros(out.size(1), 3, dtype=x.dtype)
        for t in range(out.size(0)):
            state = self.cell(out[t], state)
        return out, h + c, state[0]


class Convnet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, padding=1, groups=2, bias=False),
            nn.GroupNorm(2, 4),
            nn.SiLU(),
        )
        self.up = nn.ConvTranspose2d(4, 2, 2, stride=2)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        x = self.features(x)
        pooled = F.adaptive_avg_pool2d(x, 1)
        up = F.interpolate(self.up(x), scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.head(torch.flatten(pooled, 1)), up


class Indexing(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> List[Tensor]:
        y = x.clone()
        y[0] = 1
        y[:, 1:] = x[:, :-1] * 2
        y[y > 2] = 0.25
        rows = x[index]
        pieces = torch.split(x, 2, dim=1)
        a, b = x[..., None, 0], x[1:, ::2]
        return [y, rows, pieces[0], a, b, x.gather(1, index.view(-1, 1)[: x.size(0)]), x.T, x[-1]]


class Numbers(nn.Module):
    def forward(self, x: Tensor, n: int, f: float) -> Tuple[List[int], List[float], str, bool, int]:
        ints = [n // 3, n % 3, -n // 4, max(n, 3), min(n, 2), abs(-n), int(f), n << 2, n & 6, n | 1, n ^ 3, len([1, n])]
        ints.append(sum([n, 1]))
        ints.sort()
        floats = [
            n / 4,
            f * n,
            f**2,
            math.sqrt(f),
            math.floor(f) * 1.0,
            math.exp(f),
            float(round(f)),
            float(n),
            math.pi,
            float(x.item()) if x.numel() == 1 else float(x.sum()),
        ]
        text = ",".join([str(i) for i in ints]) + " %s %d" % ("and", n) + f"{n}"
        return ints, floats, text.replace("and", "or"), n in ints, text.find("or")


class Kinds(nn.Module):
    def forward(self, x: Tensor, value: Union[int, str]) -> Tuple[Tensor, Tensor, Tensor, str, int]:
        half = x.to(torch.float16).float()
        whole = x.to(torch.int64)
        made = torch.zeros(2, 3, dtype=torch.float64, device=x.device) + torch.arange(3)
        if isinstance(value, int):
            kind = "int"
            number = value
        else:
            kind = "str"
            number = len(value)
        if x.dtype == torch.float32 and x.device.type == "cpu" and not x.is_cuda:
            number += 1
        with torch.no_grad():
            made = made * number
        return half, whole, made, kind, number


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.embed = nn.Embedding(10, 8, padding_idx=0)
        self.norm = nn.LayerNorm(8)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.norm(self.layer(self.embed(tokens)) + 1)


class Raising(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != 2:
            raise ValueError(f"expected 2 dims, got {x.dim()}")
        assert x.size(0) < 5, "too many rows"
        return x


class Forked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Tensor:
        futures = [torch.jit.fork(self.linear, x * i) for i in range(3)]
        out = torch.zeros_like(x)
        for future in futures:
            out = out + torch.jit.wait(future)
        return out


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(16))

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        spectrum = torch.stft(x, 16, 4, 16, self.window, center=True, return_complex=True)
        power = spectrum.abs().pow(2.0).clamp(min=1e-5).log10()
        back = torch.istft(spectrum, 16, 4, 16, self.window)
        return power, back


class Halved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tuple[Tensor, Tensor]:
        product = F.linear(x, self.linear.weight.float(), self.linear.bias.float())
        return product, x.half() + self.linear.weight[0]


class Shared(nn.Module):
    """One module under two names, one weight in two modules, a constant tensor, methods beside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.tied = nn.Linear(2, 2)
        self.tied.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.again(self.tied(self.first(x)))

    @torch.jit.export
    def halved(self, x: Tensor, by: int = 2) -> Tensor:
        return self(x) / by


@torch.jit.script
def helper(x: Tensor, rate: float = 0.5) -> Tensor:
    return x * rate if x.sum() > 0 else x / rate


class Traced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = Convnet()

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        a, b = self.net(x)
        size = b.shape[2] * 2
        b = helper(b.reshape(b.shape[0], -1, size // 2, b.shape[3])) + torch.tensor([0.25])
        c = torch.cat([b, torch.zeros(b.shape[0], 1, b.shape[2], b.shape[3])], 1)
        return {"a": torch.softmax(a, -1), "b": c.permute(0, 2, 3, 1)[:, 1:, ::2].contiguous()}


def cases() -> Dict[str, Callable[[], Tuple[Any, List[tuple]]]]:
    torch.manual_seed(3)
    x34, picture = torch.randn(3, 4), torch.randn(2, 3, 16, 16)
    index, frames = torch.tensor([2, 0, 1]), torch.randn(2, 5, 3)

    def script(module: Any) -> Any:
        return torch.jit.script(module.eval())

    return {
        "control_flow": lambda: (script(ControlFlow()), [(x34, 5), (x34, 11, False), (-x34, 0)]),
        **({"classes": lambda: (script(Classes()), [(x34,)])} if NEW else {}),
        "containers": lambda: (script(Containers()), [(torch.randn(2, 3),)]),
        "optionals": lambda: (script(Optionals()), [(x34,), (x34, x34), (x34, None, [2.0, 0.25], "named")]),
        "recurrent": lambda: (script(Recurrent()), [(torch.randn(2, 5, 3),)]),
        "convnet": lambda: (script(Convnet()), [(picture,)]),
        "indexing": lambda: (script(Indexing()), [(x34, index)]),
        "numbers": lambda: (script(Numbers()), [(torch.tensor([2.5]), 7, 2.5), (x34, 12, 0.3)]),
        "kinds": lambda: (script(Kinds()), [(x34, 3), (x34.double(), "text")]),
        "attention": lambda: (script(Attention()), [(torch.tensor([[1, 2, 0], [3, 9, 4]]),)]),
        "raising": lambda: (script(Raising()), [(x34,)]),
        "forked": lambda: (script(Forked()), [(torch.randn(3, 2),)]),
        "spectral": lambda: (script(Spectral()), [(torch.randn(2, 64),)]),
        "shared": lambda: (script(Shared()), [(torch.randn(2, 2),)]),
        "half": lambda: (script(Halved().half()), [(x34,)]),
        "traced_convnet": lambda: (torch.jit.trace(Convnet().eval(), (picture,)), [(picture,)]),
        "traced": lambda: (torch.jit.trace(Traced().eval(), (picture,), strict=False), [(picture,)]),
        "traced_recurrent": lambda: (torch.jit.trace(Recurrent().eval(), (frames,)), [(frames + 1,)]),
        "frozen": lambda: (torch.jit.freeze(torch.jit.script(Convnet().eval())), [(picture,)]),
    }


def flat(value: Any, arrays: Dict[str, np.ndarray], prefix: str) -> Any:
    """The form of a value with each tensor replaced by the name of its array."""
    if isinstance(value, Tensor):
        name = f"{prefix}{len([k for k in arrays if k[0] == prefix])}"
        arrays[name] = value.detach().numpy()
        return {"array": name}
    if isinstance(value, dict):
        return {"dict": [[k, flat(v, arrays, prefix)] for k, v in value.items()]}
    if isinstance(value, (list, tuple)):
        return {
            type(value).__name__ if type(value) in (list, tuple) else "tuple": [flat(v, arrays, prefix) for v in value]
        }
    return {"value": value}


def stored(path: Path) -> None:
    """Without the source ranges, which tell where the author's files lay."""
    with zipfile.ZipFile(path) as old:
        entries = [(i, old.read(i)) for i in old.infolist() if not i.filename.endswith(".debug_pkl")]
    with zipfile.ZipFile(path, "w") as new:
        for info, content in entries:
            made = zipfile.ZipInfo(info.filename, (1980, 1, 1, 0, 0, 0))
            made.compress_type = info.compress_type
            new.writestr(made, content)


def expressions(out: Path) -> None:
    """One module with a method for each line of expressions.txt, as operators.pt and operators.npz (2.13 only)."""
    lines = (Path(__file__).parent / "expressions.txt").read_text().splitlines()
    text = (
        "import torch\nimport torch.nn.functional as F\nfrom torch import Tensor\n\nclass Operators(torch.nn.Module):\n"
    )
    for i, line in enumerate(lines):
        text += "    @torch.jit.export\n" if i else ""
        name = f"m{i}" if i else "forward"
        text += f"    def {name}(self, x: Tensor, img: Tensor, idx: Tensor):\n        return {line}\n"
    with tempfile.TemporaryDirectory() as there:
        (Path(there) / "operators_of_torch.py").write_text(text)
        sys.path.insert(0, there)
        module = torch.jit.script(importlib.import_module("operators_of_torch").Operators())
        torch.manual_seed(0)
        given = {"x": torch.randn(4, 6), "img": torch.randn(2, 3, 8, 8), "idx": torch.tensor([2, 0, 1, 3])}
        arrays = {k: v.numpy() for k, v in given.items()}
        for i in range(len(lines)):
            value = getattr(module, f"m{i}" if i else "forward")(*(v.clone() for v in given.values()))
            arrays[f"o{i}"] = value.detach().resolve_neg().numpy() if isinstance(value, Tensor) else np.array(value)
        torch.jit.save(module, str(out / "operators.pt"))
    stored(out / "operators.pt")
    np.savez_compressed(out / "operators.npz", **arrays)


def main(folder: str) -> None:
    out = Path(folder) / torch.__version__.partition("+")[0]
    out.mkdir(parents=True, exist_ok=True)
    table = {}
    for name, make in cases().items():
        torch.manual_seed(len(name))
        module, calls = make()
        arrays: Dict[str, np.ndarray] = {}
        rows = [
            {"inputs": [flat(a, arrays, "i") for a in args], "output": flat(module(*args), arrays, "o")}
            for args in calls
        ]
        torch.jit.save(module, str(out / f"{name}.pt"))
        stored(out / f"{name}.pt")
        np.savez_compressed(out / f"{name}.npz", **arrays)
        table[name] = {"calls": rows, "state": list(module.state_dict())}
    if NEW:
        expressions(out)
    (out / "cases.json").write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
