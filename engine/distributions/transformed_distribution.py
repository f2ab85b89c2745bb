"""`TransformedDistribution`."""

from __future__ import annotations

from typing import Any

from engine.distributions import constraints
from engine.distributions.distribution import Distribution
from engine.distributions.independent import Independent
from engine.distributions.transforms import ComposeTransform, Transform
from engine.distributions.utils import _sum_rightmost
from engine.ops import functions as torch
from engine.tensor import Size, Tensor

__all__ = ["TransformedDistribution"]


class TransformedDistribution(Distribution):
    """The distribution of transforms of draws of `base_distribution`, in order.

    log_prob(y (*s, *batch_shape, *event_shape)) -> (*s, *batch_shape) = base.log_prob(x) - sum of log |det dy/dx|;
    transforms with larger events make batch dims event dims.
    """

    arg_constraints: dict[str, Any] = {}

    def __init__(self, base_distribution: Distribution, transforms: Any, validate_args: bool | None = None) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        elif not isinstance(transforms, list) or not all(isinstance(t, Transform) for t in transforms):
            raise ValueError(f"transforms must be a Transform or list of Transforms, but was {transforms}")
        self.transforms = transforms
        base_shape = Size(tuple(base_distribution.batch_shape) + tuple(base_distribution.event_shape))
        whole = ComposeTransform(self.transforms)
        if len(base_shape) < whole.domain.event_dim:
            raise ValueError(
                f"base_distribution needs to have shape with size at least {whole.domain.event_dim}, but got "
                f"{base_shape}."
            )
        shape = Size(whole.forward_shape(base_shape))
        inner = Size(whole.inverse_shape(shape))
        if base_shape != inner:
            base_distribution = base_distribution.expand(inner[: len(inner) - len(base_distribution.event_shape)])
        more = whole.domain.event_dim - len(base_distribution.event_shape)
        if more > 0:
            base_distribution = Independent(base_distribution, more)
        self.base_dist = base_distribution
        event_dim = whole.codomain.event_dim + max(len(base_distribution.event_shape) - whole.domain.event_dim, 0)
        cut = len(shape) - event_dim
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        batch_shape = Size(batch_shape)
        inner = ComposeTransform(self.transforms).inverse_shape(batch_shape + self._event_shape)
        base = self.base_dist.expand(Size(inner[: len(inner) - len(self.base_dist.event_shape)]))
        if _instance is None:
            _instance = self._get_checked_instance(TransformedDistribution)
        return self._expanded(batch_shape, _instance, transforms=self.transforms, base_dist=base)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        if not self.transforms:
            return self.base_dist.support
        support = self.transforms[-1].codomain
        more = len(self._event_shape) - support.event_dim
        return constraints.independent(support, more) if more > 0 else support

    @property
    def has_rsample(self) -> bool:  # type: ignore[override]
        return self.base_dist.has_rsample

    def _through(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with torch.no_grad():
            return self._through(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._through(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Tensor) -> Tensor:
        if self._validate_args:
            self._validate_sample(value)
        event_dim = len(self._event_shape)
        total: Any = 0.0
        y = value
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            event_dim += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            total = total - _sum_rightmost(slope, event_dim - transform.domain.event_dim)
            y = x
        return total + _sum_rightmost(self.base_dist.log_prob(y), event_dim - len(self.base_dist.event_shape))

    def _monotonize(self, value: Tensor) -> Tensor:
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for transform in self.transforms[::-1]:
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._through(self.base_dist.icdf(self._monotonize(value)))
