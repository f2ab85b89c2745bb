"""Wrong calls, each of which pyright and mypy report: a comment that ignores nothing is an error itself.

mypy reads `type: ignore`, pyright `pyright: ignore`.
"""

from __future__ import annotations

import engine
import hubcli
from engine import Tensor, nn, optim
from engine.nn import functional as F

x = engine.randn(2, 3)

# names that are not there
nn.Linaer(3, 4)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
engine.autograd.gard(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
engine.special.ert(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
engine.utils.dada()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
engine.rnadn(2)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
x.reshpae(3, 2)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
F.rleu(x)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
hubcli.laod("owner/repo", "m")  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]

# arguments of another type, too few, too many
nn.Linear("3", 4)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
nn.Conv2d(3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
nn.Linear(3, 4, bais=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
engine.randn("2")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
engine.add(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
engine.zeros(2, dtype="float32")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
engine.cat(x)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
x.sum(dims=0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
x.transpose("a", 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
F.relu(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
F.conv2d(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
F.cross_entropy(x)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
optim.SGD([x], learning_rate=0.1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
hubcli.load("owner/repo")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
hubcli.load("owner/repo", 3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
hubcli.set_dir(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]

# results that are something else
n: int = x.sum()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
y: Tensor = x.shape  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
s: str = engine.max(x, dim=1).values  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
w: nn.Conv2d = nn.Linear(2, 3).to("cpu")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
