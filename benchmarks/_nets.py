"""The networks that the workloads time, written once with torch's names for whichever `torch` a contender brings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def nets(torch: Any) -> SimpleNamespace:
    """The classes, made on `torch.nn` (torch's or the engine's)."""
    nn = torch.nn

    class BasicBlock(nn.Module):
        """Two 3x3 convolutions and a residual sum (He et al. 2015, arXiv:1512.03385)."""

        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(outside)
            self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(outside)
            self.relu = nn.ReLU(inplace=True)
            self.downsample = None
            if stride != 1 or inside != outside:
                self.downsample = nn.Sequential(
                    nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
                )

        def forward(self, x: Any) -> Any:
            same = x if self.downsample is None else self.downsample(x)
            out = self.relu(self.bn1(self.conv1(x)))
            out = self.bn2(self.conv2(out))
            out += same
            return self.relu(out)

    class ResNet18(nn.Module):
        """ResNet-18 for 224x224 pictures: (N, 3, 224, 224) -> (N, 1000)."""

        def __init__(self) -> None:
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            self.relu = nn.ReLU(inplace=True)
            self.maxpool = nn.MaxPool2d(3, 2, 1)
            blocks, inside = [], 64
            for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
                blocks += [BasicBlock(inside, outside, stride), BasicBlock(outside, outside, 1)]
                inside = outside
            self.layers = nn.Sequential(*blocks)
            self.avgpool = nn.AdaptiveAvgPool2d(1)
            self.fc = nn.Linear(512, 1000)

        def forward(self, x: Any) -> Any:
            x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
            x = self.avgpool(self.layers(x))
            return self.fc(torch.flatten(x, 1))

    class InvertedResidual(nn.Module):
        """Widen, convolve each channel, narrow (Sandler et al. 2018, arXiv:1801.04381)."""

        def __init__(self, inside: int, outside: int, stride: int, widen: int) -> None:
            super().__init__()
            hidden = inside * widen
            layers = []
            if widen != 1:
                layers += [
                    nn.Conv2d(inside, hidden, 1, bias=False),
                    nn.BatchNorm2d(hidden),
                    nn.ReLU6(inplace=True),
                ]
            layers += [
                nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
                nn.BatchNorm2d(hidden),
                nn.ReLU6(inplace=True),
                nn.Conv2d(hidden, outside, 1, bias=False),
                nn.BatchNorm2d(outside),
            ]
            self.conv = nn.Sequential(*layers)
            self.residual = stride == 1 and inside == outside

        def forward(self, x: Any) -> Any:
            return x + self.conv(x) if self.residual else self.conv(x)

    class MobileNetV2(nn.Module):
        """MobileNetV2 for 224x224 pictures: (N, 3, 224, 224) -> (N, 1000)."""

        def __init__(self) -> None:
            super().__init__()
            layers = [
                nn.Conv2d(3, 32, 3, 2, 1, bias=False),
                nn.BatchNorm2d(32),
                nn.ReLU6(inplace=True),
            ]
            inside = 32
            rows = (
                (1, 16, 1, 1),
                (6, 24, 2, 2),
                (6, 32, 3, 2),
                (6, 64, 4, 2),
                (6, 96, 3, 1),
                (6, 160, 3, 2),
                (6, 320, 1, 1),
            )
            for widen, outside, count, stride in rows:
                for i in range(count):
                    layers.append(InvertedResidual(inside, outside, stride if i == 0 else 1, widen))
                    inside = outside
            layers += [
                nn.Conv2d(inside, 1280, 1, bias=False),
                nn.BatchNorm2d(1280),
                nn.ReLU6(inplace=True),
            ]
            self.features = nn.Sequential(*layers)
            self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

        def forward(self, x: Any) -> Any:
            x = nn.functional.adaptive_avg_pool2d(self.features(x), (1, 1))
            return self.classifier(torch.flatten(x, 1))

    class SmallCNN(nn.Module):
        """Two convolutions and two linear layers: (N, 1, 28, 28) -> (N, 10)."""

        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, 1, 1), nn.Conv2d(32, 64, 3, 1, 1)
            self.fc1, self.fc2 = nn.Linear(64 * 7 * 7, 128), nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            F = nn.functional
            x = F.max_pool2d(F.relu(self.conv1(x)), 2)
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            return self.fc2(F.relu(self.fc1(x.view(x.size(0), -1))))

    class MLP(nn.Sequential):
        """784-512-512-10."""

        def __init__(self) -> None:
            super().__init__(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))

    class Transformer(nn.Module):
        """Four encoder layers of width 256 on 8 sequences of 128 tokens: (N, L) -> (N, L, 1000)."""

        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(1000, 256)
            layer = nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, activation="gelu", batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(256, 1000)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.layers(self.embed(tokens)))

    class LSTM(nn.Module):
        """Two LSTM layers of 256 and a linear layer: (N, L, 64) -> (N, 10)."""

        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(64, 256, 2, batch_first=True)
            self.head = nn.Linear(256, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.lstm(x)[0][:, -1])

    class Encoded(nn.Module):
        """One layer of BERT (Devlin et al. 2018, arXiv:1810.04805), width 384, 12 heads: (N, L, 384) -> same."""

        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value, self.dense = (nn.Linear(384, 384) for _ in range(4))
            self.inner, self.outer = nn.Linear(384, 1536), nn.Linear(1536, 384)
            self.norm1, self.norm2 = nn.LayerNorm(384, eps=1e-12), nn.LayerNorm(384, eps=1e-12)

        def forward(self, x: Any) -> Any:
            heads = [
                p(x).view(x.size(0), x.size(1), 12, 32).transpose(1, 2) for p in (self.query, self.key, self.value)
            ]
            found = nn.functional.scaled_dot_product_attention(*heads).transpose(1, 2).reshape(x.shape)
            x = self.norm1(x + self.dense(found))
            return self.norm2(x + self.outer(nn.functional.gelu(self.inner(x))))

    class MiniLM(nn.Module):
        """The shape of all-MiniLM-L6: six layers of BERT on 128 tokens, (N, 128) -> the mean over tokens, (N, 384)."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.places, self.norm = nn.Embedding(30522, 384), nn.Embedding(512, 384), nn.LayerNorm(384)
            self.layers = nn.Sequential(*[Encoded() for _ in range(6)])

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places(torch.arange(tokens.size(1), device=tokens.device))
            return self.layers(self.norm(x)).mean(1)

    return SimpleNamespace(
        MiniLM=MiniLM,
        ResNet18=ResNet18,
        MobileNetV2=MobileNetV2,
        SmallCNN=SmallCNN,
        MLP=MLP,
        Transformer=Transformer,
        LSTM=LSTM,
    )
