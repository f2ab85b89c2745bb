"""Classifiers of 8 x 8 pictures of handwritten digits.  Input (N, 1, 8, 8) in 0..1, output (N, 10) logits."""

import torch
from torch import nn


class DigitsMLP(nn.Module):
    """Two hidden layers over the 64 pixels."""

    def __init__(self, hidden=96, dropout=0.1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(),
            nn.Linear(64, hidden),
            nn.ReLU(),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden // 2),
            nn.ReLU(),
            nn.Linear(hidden // 2, 10),
        )

    def forward(self, x):
        return self.layers(x)


class DigitsCNN(nn.Module):
    """Two convolutions with batch norm, one pooling, one linear layer."""

    def __init__(self, width=24, dropout=0.25):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Dropout(dropout),
        )
        self.classifier = nn.Linear(2 * width * 16, 10)

    def forward(self, x):
        return self.classifier(torch.flatten(self.features(x), 1))
