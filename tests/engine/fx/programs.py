"""Programs that are traced, here and by PyTorch 2.13, whose answers are in programs.json.

Each takes nothing but what `of(torch)` closes over, so that PyTorch can trace the same text.
"""

import math
import operator
from collections import namedtuple
from typing import Any

Pair = namedtuple("Pair", "a b", module="programs")


def checked(x):
    """Checks its input twice."""
    assert x.sum() > 0
    assert x < 3, "too much"
    return x


def of(torch: Any) -> dict[str, Any]:
    """The programs by name: a function or module, or (one, concrete_args)."""
    nn, F, PH = torch.nn, torch.nn.functional, torch.fx.PH
    three = torch.ones(3)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.w = nn.Parameter(torch.zeros(4))
            self.seq = nn.Sequential(nn.ReLU(), nn.Linear(4, 2))
            self.register_buffer("b", torch.ones(2))
            self.again = self.lin

        def forward(self, x, y=3, *, z=None):
            a = self.lin(x) + self.w
            a = torch.cat([self.w + a, x], 1)
            a = F.relu(a, inplace=False)
            a = a.view(a.shape[0], -1)[:, :4, None].squeeze(-1)
            a = torch.mul(self.w, other=-(2 * a - y))
            a += 1
            return {"o": torch.flatten(self.seq(self.again(a)), 1) + self.b, "p": (a, [x])}

    def operators(x):
        a = [x @ x, x**2, 2**x, x > 1, ~x, x << 1, 1 / x, 7 // x, x % 3, x & x, +x, abs(x), x == x, 3 - x]
        return a, x[1:2, ..., None, :: x.n]

    def reflected(x):
        a = [three + x, three - x, three * x, three / x, three > x, three == x, three @ x, three**x]
        return a, three[x], three // x, three <= x, three & x, three % x, three << x, three ^ x

    def in_place(x):
        y = three + 0
        y += x
        y -= x
        x.add_(1)
        x += 1
        return x

    def functions(x):
        a = [F.avg_pool2d(x, 2), F.linear(x, x), torch.einsum("ij->ji", x), torch.einsum("ij", [x]), F.max_pool2d(x, 2)]
        a += [F.adaptive_avg_pool2d(x, (1, 1)), torch.split(x, 2, dim=1), torch.meshgrid(x, x), torch.zeros_like(x)]
        a += [torch.unique(x), torch.linalg.norm(x), torch.fft.fft(x), F.interpolate(x, scale_factor=2.0), F.sigmoid(x)]
        a += [torch.atleast_1d(x, x), F.dropout(x, 0.5, False), torch.norm(x, 2), F.normalize(x), F.pad(x, (1, 1))]
        a += [F.max_pool1d(x, 2, return_indices=True), F.upsample(x, 2), F.logsigmoid(x), torch.relu_(x)]
        a += [torch.softmax(x, dim=-1, dtype=torch.float), torch.abs(input=x, out=None), torch.broadcast_tensors(x, x)]
        a += [F.gelu(x), F.cross_entropy(x, x), F.scaled_dot_product_attention(x, x, x), torch.numel(x), F.softplus(x)]
        a += [
            nn.init.normal_(x),
            F.layer_norm(x, (3,)),
            F.batch_norm(x, None, None),
            F.group_norm(x, 2),
            F.conv2d(x, x),
        ]
        return a

    def methods(x):
        y = x.transpose(-1, -2).softmax(-1).to(torch.float32).to(device=torch.device("cpu"))
        z = y.T.contiguous(memory_format=torch.channels_last).sum((1, 2)).view(torch.Size([1, 2]))
        return z.max(dim=1)[0], z.unbind(0)[1], z.max(1).values.to(x.device), x.a.b(1, k=2), x(3), x.keys()

    def sizes(x):
        n = x.size(0)
        return torch.zeros(x.shape[0]), torch.full((n,), 1.0), torch.arange(n, device=x.device), torch.zeros((n, 3))

    def unpacked(x):
        a, b = x.shape
        return x.view(a, b) + x.new_tensor([1, 2])

    def values(x):
        return Pair(x, x + 1), {"a": x}, slice(x, None), range(3), -math.inf, 1j, "a\n", None, ..., torch.Size([1])

    def stars(*args, **kwargs):
        return args[0] + kwargs["b"]

    def annotated(
        x: torch.Tensor | None,
        y: list[int],
        z: tuple[int, ...] = (1, 2),
        w: torch.device = torch.device("cpu"),
    ) -> torch.Tensor:
        return x

    def wrapped(x):
        return math.sqrt(x) + math.floor(x)

    def asserted(x):
        assert x > 0, "not positive"
        return x

    def flagged(x, flag, z=1):
        return x + 1 if flag else x - z

    def nested(x, y):
        return x[0] + x[1]["a"] + y

    def looped(x):
        for _ in x:
            pass

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = torch.ones(2)
            self.m = nn.Linear(1, 1)

        def forward(self, x):
            return self.m(x) + self.m(x) + self.c + self.m.weight + self.c

    class Loose(nn.Module):
        def forward(self, x):
            return nn.Linear(2, 2)(x)

    return {
        "net": Net(), "shared": Shared(), "sequential": nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
        "linear": nn.Linear(2, 2), "operators": operators, "reflected": reflected, "in_place": in_place,
        "functions": functions, "methods": methods, "sizes": sizes, "unpacked": unpacked, "values": values,
        "stars": stars, "annotated": annotated, "wrapped": wrapped, "nothing": lambda x: None,
        "flagged": (flagged, {"flag": True}), "text": (flagged, {"flag": "abc"}), "none": (flagged, {"flag": None}),
        "nested": (nested, {"x": (PH, {"a": PH})}), "too_few": (flagged, (PH, True)),
        # what cannot be traced
        "loose": Loose(), "looped": looped, "asserted": asserted, "branch": lambda x: 1 if x > 0 else 2,
        "not": lambda x: not x, "and": lambda x: x and 1, "len": lambda x: len(x), "int": lambda x: int(x),
        "float": lambda x: float(x), "listed": lambda x: list(x), "range": lambda x: range(x),
        "index": lambda x: [1, 2][x], "in": lambda x: x in [1], "contains": lambda x: 3 in x, "double": lambda x: {**x},
        "starred": lambda x: torch.cat(*x), "round": lambda x: round(x), "item": lambda x: operator.setitem(x, 0, 1),
        "class": lambda x: x.foo(object()), "divmod": lambda x: divmod(x, 2), "complex": lambda x: complex(x),
        "f-string": lambda x: f"{x}",
    }  # fmt: skip


def answers(torch: Any) -> dict[str, Any]:
    """The code and graph of each program, or the error's type and text."""
    found: dict[str, Any] = {}
    for name, program in of(torch).items():
        root, concrete_args = program if isinstance(program, tuple) else (program, None)
        try:
            module = torch.fx.symbolic_trace(root, concrete_args)
            found[name] = [module.code, str(module.graph)]
        except Exception as error:
            found[name] = [type(error).__name__, str(error)]
    return found
