"""What a user writes: a module, optimizers, a loader, a training loop, a model of the hub.

Never run by the tests: pyright and mypy read it (`make types`), as an editor would.  `assert_type` says what an editor
must know; a line that is wrong on purpose bears an ignore comment, which is itself an error where nothing is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, assert_type

import engine
import engine.nn as nn
import engine.nn.functional as F
import hubcli
from engine import Tensor, autograd, optim
from engine.distributions import Categorical, Normal
from engine.nn.utils import clip_grad_norm_
from engine.nn.utils.rnn import pack_padded_sequence, pad_sequence
from engine.optim.lr_scheduler import CosineAnnealingLR, StepLR
from engine.utils.data import DataLoader, Dataset, TensorDataset, random_split


class Block(nn.Module):
    """Two convolutions and what they are added to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)
        self.register_buffer("seen", engine.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        assert_type(self.conv, nn.Conv2d)
        assert_type(self.conv.weight, nn.Parameter)
        out: Tensor = self.act(self.norm(self.conv(x)))
        return out + x


class Net(nn.Module):
    """A small classifier."""

    def __init__(self, classes: int = 10, width: int = 16) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.ModuleList([Block(width) for _ in range(2)])
        self.scale = nn.Parameter(engine.ones(1))
        self.head = nn.Linear(width, classes)
        self.dropout = nn.Dropout(p=0.5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = F.adaptive_avg_pool2d(x, 1).flatten(1) * self.scale
        return F.log_softmax(self.head(self.dropout(x)), dim=-1)


class Squares(Dataset[tuple[Tensor, Tensor]]):
    """n pictures and their labels."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return engine.randn(3, 8, 8), engine.tensor(index % 10)


class Double(autograd.Function):
    """2 x, with its gradient."""

    @staticmethod
    def forward(ctx: autograd.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: autograd.FunctionCtx, grad: Tensor) -> Tensor:
        (_x,) = ctx.saved_tensors
        return grad * 2


def tensors() -> None:
    """What operations on tensors are."""
    x = engine.randn(2, 3, requires_grad=True)
    assert_type(x, Tensor)
    assert_type(engine.tensor([1.0, 2.0], dtype=engine.float32), Tensor)
    assert_type(x + 1, Tensor)
    assert_type(2.0 * x, Tensor)
    assert_type(x @ x.t(), Tensor)
    assert_type(-x, Tensor)
    assert_type(x > 0, Tensor)
    assert_type(x == 0, Tensor)
    assert_type(x[0, 1:], Tensor)
    assert_type(x.sum(), Tensor)
    assert_type(x.mean(dim=0, keepdim=True), Tensor)
    assert_type(engine.matmul(x, x.mT), Tensor)
    assert_type(engine.cat([x, x], dim=1), Tensor)
    assert_type(engine.where(x > 0, x, 0.0), Tensor)
    assert_type(x.view(-1).to(engine.float64), Tensor)
    assert_type(x.shape, engine.Size)
    assert_type(x.dtype, engine.dtype)
    assert_type(x.device, engine.device)
    assert_type(x.grad, Tensor | None)
    assert_type(x.dim(), int)
    assert_type(x.numel(), int)
    assert_type(x.requires_grad, bool)
    assert_type(x.is_contiguous(), bool)
    assert_type(len(x), int)
    values, indices = engine.max(x, dim=1)
    assert_type(values, Tensor)
    top = x.topk(2)
    assert_type(top.values, Tensor)
    x.sum().backward()
    assert_type(engine.linalg.norm(x), Tensor)
    assert_type(engine.fft.fft(x), Tensor)
    assert_type(engine.special.erf(x), Tensor)
    print(indices, x.item(), x.tolist(), x.numpy())
    (g,) = autograd.grad(x.sum(), x)
    print(g, Double.apply(x))
    for row in x:
        assert_type(row, Tensor)


def losses(output: Tensor, target: Tensor) -> Tensor:
    """Losses as modules and as functions."""
    loss: Tensor = nn.CrossEntropyLoss(label_smoothing=0.1)(output, target) + F.mse_loss(output, output.detach())
    assert_type(F.cross_entropy(output, target), Tensor)
    assert_type(F.nll_loss(output, target, reduction="sum"), Tensor)
    assert_type(F.relu(output), Tensor)
    assert_type(F.one_hot(target, 10), Tensor)
    return loss


def optimizers(net: nn.Module) -> Iterator[optim.Optimizer]:
    """Groups of parameters, and bare ones."""
    assert_type(net.parameters(), Iterator[nn.Parameter])
    yield optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    yield optim.Adam(net.parameters(), lr=1e-3, betas=(0.9, 0.999), weight_decay=1e-4)
    yield optim.AdamW([{"params": net.parameters(), "lr": 1e-3}], lr=1e-4)


def train(epochs: int) -> dict[str, Any]:
    """The loop that every tutorial has."""
    engine.manual_seed(0)
    device = engine.device("cuda" if engine.cuda.is_available() else "cpu")
    net = Net(classes=10).to(device)
    assert_type(net, Net)
    assert_type(net.train(), Net)
    data = TensorDataset(engine.randn(8, 3, 8, 8), engine.randint(0, 10, (8,)))
    some, rest = random_split(data, [6, 2])
    loader = DataLoader(some, batch_size=2, shuffle=True, drop_last=False)
    pictures = DataLoader(Squares(8), batch_size=4, num_workers=0)
    print(len(rest), len(pictures), len(loader))
    optimizer = optim.SGD(net.parameters(), lr=0.1)
    scheduler = StepLR(optimizer, step_size=10, gamma=0.1)
    _ = CosineAnnealingLR(optimizer, T_max=10)
    criterion = nn.NLLLoss()
    scaler = engine.amp.GradScaler("cpu", enabled=False)
    total = 0.0
    for _epoch in range(epochs):
        for x, y in loader:
            x, y = x.to(device), y.to(device, non_blocking=True)
            optimizer.zero_grad(set_to_none=True)
            with engine.autocast("cpu", enabled=False):
                loss = criterion(net(x), y)
            scaler.scale(loss).backward()
            clip_grad_norm_(net.parameters(), max_norm=1.0)
            optimizer.step()
            total += loss.item()
        scheduler.step()
    net.eval()
    with engine.no_grad(), engine.inference_mode():
        print(net(engine.randn(1, 3, 8, 8)).argmax(dim=1), total)
    engine.save(net.state_dict(), "net.pth")
    net.load_state_dict(engine.load("net.pth", map_location="cpu", weights_only=True), strict=True)
    for name, parameter in net.named_parameters():
        assert_type(name, str)
        assert_type(parameter, nn.Parameter)
        parameter.requires_grad_(False)
    for module in net.modules():
        assert_type(module, nn.Module)
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    state: dict[str, Any] = net.state_dict()
    return state


@engine.no_grad()
def sequences() -> Tensor:
    """Recurrent layers and padding; a decorated function keeps its type."""
    lstm = nn.LSTM(8, 16, num_layers=2, batch_first=True)
    batch = pad_sequence([engine.randn(3, 8), engine.randn(2, 8)], batch_first=True)
    packed = pack_padded_sequence(batch, [3, 2], batch_first=True)
    out, (h, c) = lstm(batch)
    print(packed, h, c)
    attention = nn.MultiheadAttention(16, 4, batch_first=True)
    result: Tensor = attention(out, out, out)[0]
    return result


def chances() -> Tensor:
    """Distributions."""
    drawn = Normal(0.0, 1.0).rsample((3,))
    assert_type(drawn, Tensor)
    return Categorical(logits=drawn).log_prob(engine.tensor(0))


def models() -> None:
    """The hub's functions."""
    model = hubcli.load("owner/repo:main", "small", pretrained=True, trust_repo=True)
    assert_type(model, Any)
    assert_type(hubcli.list("owner/repo"), list[str])
    assert_type(hubcli.help("owner/repo", "small"), str | None)
    assert_type(hubcli.get_dir(), str)
    state = hubcli.load_state_dict_from_url("https://models.example/small-0123abcd.pth", progress=False)
    print(model(engine.randn(1, 3, 8, 8)), state, hubcli.pull("owner/repo").path)
