"""A small causal transformer over characters."""

import torch
from torch import nn


class CharLM(nn.Module):
    """Input (N, T) character codes below `vocab`, T <= context; output (N, T, vocab) logits of the next one."""

    def __init__(self, vocab=128, width=64, heads=4, layers=2, context=128, dropout=0.0):
        super().__init__()
        self.context = context
        self.tokens = nn.Embedding(vocab, width)
        self.positions = nn.Embedding(context, width)
        block = nn.TransformerEncoderLayer(
            width,
            heads,
            4 * width,
            dropout=dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab)

    def forward(self, codes):
        length = codes.size(1)
        if length > self.context:
            raise ValueError(f"{length} characters exceed the context of {self.context}")
        x = self.tokens(codes) + self.positions(torch.arange(length, device=codes.device))
        mask = torch.full((length, length), float("-inf"), device=codes.device).triu(1)
        return self.head(self.norm(self.blocks(x, mask=mask)))
