"""`VonMises`."""

from __future__ import annotations

import math
from typing import Any

from engine.distributions import constraints
from engine.distributions.distribution import Distribution
from engine.distributions.utils import broadcast_all, lazy_property
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["VonMises"]


class VonMises(Distribution):
    """Angles in [-pi, pi) around `loc`, of density proportional to exp(concentration cos(x - loc)).

    Both (*) -> batch (*).
    """

    arg_constraints = {"loc": constraints.real, "concentration": constraints.positive}
    support = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.loc, self.concentration = broadcast_all(loc, concentration)
        super().__init__(self.loc.shape, Size(), validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> VonMises:
        return self._expanded(batch_shape, _instance, "loc", "concentration")

    @property
    def mean(self) -> Tensor:
        return self.loc

    @property
    def mode(self) -> Tensor:
        return self.loc

    @lazy_property
    def variance(self) -> Tensor:  # type: ignore[override]
        k = self.concentration
        return 1 - torch.special_i1e(k) / torch.special_i0e(k)

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        k = self.concentration
        return k * (torch.cos(value - self.loc) - 1) - math.log(2 * math.pi) - torch.special_i0e(k).log()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws by rejection from a wrapped Cauchy distribution (Best and Fisher 1979)."""
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            k = self.concentration.double().expand(shape)
            tau = 1 + (1 + 4 * k * k).sqrt()
            rho = (tau - (2 * tau).sqrt()) / (2 * k)
            r = torch.where(k < 1e-5, 1 / k + k, (1 + rho * rho) / (2 * rho))
            angle = torch.zeros_like(r)
            done = torch.zeros(shape, dtype=torch.bool, device=r.device)
            while not bool(done.all()):
                u1, u2, u3 = torch.rand((3, *shape), dtype=r.dtype, device=r.device).unbind()
                z = torch.cos(math.pi * u1)
                f = ((1 + r * z) / (r + z)).clamp(min=-1, max=1)
                c = k * (r - f)
                accept = ((c * (2 - c) - u2) > 0) | ((c / u2).log() + 1 - c >= 0)
                angle = torch.where(accept & ~done, (u3 - 0.5).sign() * f.acos(), angle)
                done = done | accept
            return ((angle + math.pi + self.loc) % (2 * math.pi) - math.pi).to(self.loc.dtype)
