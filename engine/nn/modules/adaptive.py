"""AdaptiveLogSoftmaxWithLoss (arXiv:1609.04309)."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

from engine.autograd.graph import name_node
from engine.nn import functional as F
from engine.nn.modules.container import ModuleList, Sequential
from engine.nn.modules.linear import Linear
from engine.nn.modules.module import Module
from engine.ops import functions as torch
from engine.tensor import Tensor

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-softmax over many classes, the rare ones in clusters.  input (N, in_features), target (N) -> (N), ()."""

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        cutoffs = list(cutoffs)
        if len(cutoffs) == 0:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (
            cutoffs != sorted(cutoffs)
            or min(cutoffs) <= 0
            or max(cutoffs) > n_classes - 1
            or len(set(cutoffs)) != len(cutoffs)
            or any(int(c) != c for c in cutoffs)
        ):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                "value is between 1 and n_classes-1"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        where = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **where)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            hidden = int(in_features // (div_value ** (i + 1)))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, **where),
                    Linear(hidden, size, bias=False, **where),
                )
            )

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        self.head.reset_parameters()
        for i2h, h2o in self.tail:
            i2h.reset_parameters()
            h2o.reset_parameters()

    def _check(self, input: Tensor, target: Tensor) -> None:
        ndim = target.dim()
        if ndim == 1:
            if input.size(0) != target.size(0):
                raise RuntimeError("Input and target should have the same size in the batch dimension.")
            if input.dim() != 2:
                raise RuntimeError(
                    f"1D target tensor expects 2D input tensors, but found inputs with size {input.size()}"
                )
        elif ndim == 0:
            if input.dim() != 1:
                raise RuntimeError(
                    f"0D target tensor expects 1D input tensors, but found inputs with size {input.size()}"
                )
        else:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        """The log-probability of each target, and minus their mean."""
        self._check(input_, target_)
        batched = target_.dim() > 0
        input = input_ if batched else input_.unsqueeze(0)
        target = target_ if batched else target_.unsqueeze(0)
        low, high = int(target.min()), int(target.max())
        if low < 0 or high >= self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range [{low}, {high}] were "
                "found. "
            )
        in_head = target
        parts, rows = [], []
        for i, (start, stop) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            found = ((target >= start) & (target < stop)).nonzero().squeeze(1)
            if found.numel() == 0:
                continue
            in_head = in_head.index_fill(0, found, self.shortlist_size + i)
            logprob = F.log_softmax(self.tail[i](input.index_select(0, found)), dim=1)
            local = (target.index_select(0, found) - start).unsqueeze(1)
            parts.append(logprob.gather(1, local).squeeze(1))
            rows.append(found)
        output = F.log_softmax(self.head(input), dim=1).gather(1, in_head.unsqueeze(1)).squeeze(1)
        if parts:
            output = output.index_add(0, torch.cat(rows), torch.cat(parts))
            name_node(output, "AddBackward0")
        loss = (-output).mean()
        return _ASMoutput(output if batched else output.squeeze(0), loss)

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        head = F.log_softmax(head_output, dim=1)
        parts = [head[:, : self.shortlist_size]]
        for i in range(self.n_clusters):
            tail = F.log_softmax(self.tail[i](input), dim=1)
            parts.append(tail + head[:, self.shortlist_size + i].unsqueeze(1))
        return torch.cat(parts, dim=1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Log-probabilities of all classes.  (N, in_features) -> (N, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row.  (N, in_features) -> (N)."""
        head_output = self.head(input)
        output = torch.argmax(head_output, dim=1)
        if not (output >= self.shortlist_size).any():
            return output
        return torch.where(
            output >= self.shortlist_size,
            torch.argmax(self._get_full_log_prob(input, head_output), dim=1),
            output,
        )
