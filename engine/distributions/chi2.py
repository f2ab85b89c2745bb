"""`Chi2`."""

from __future__ import annotations

from typing import Any

from engine.distributions import constraints
from engine.distributions.gamma import Gamma
from engine.tensor import Tensor

__all__ = ["Chi2"]


class Chi2(Gamma):
    """The sum of `df` squares of standard normal numbers.  df (*) -> batch (*)."""

    arg_constraints = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Chi2:
        return super().expand(batch_shape, self._get_checked_instance(Chi2, _instance))

    @property
    def df(self) -> Tensor:
        """The degrees of freedom."""
        return self.concentration * 2
