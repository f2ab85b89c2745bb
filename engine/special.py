"""`torch.special`: its names for ops of `engine.ops`, and the ops that only it has."""

from __future__ import annotations

from typing import Any

from engine.dispatch import PUBLIC as _PUBLIC

_SAME = {
    "expm1": "expm1", "log1p": "log1p", "sinc": "sinc", "round": "round", "erf": "erf", "erfc": "erfc",
    "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid", "digamma": "digamma", "psi": "digamma",
    "gammaln": "lgamma", "i0": "i0", "logit": "logit", "log_softmax": "log_softmax", "softmax": "softmax",
    "logsumexp": "logsumexp", "multigammaln": "mvlgamma", "polygamma": "polygamma", "xlogy": "xlogy",
    "gammainc": "special_gammainc", "gammaincc": "special_gammaincc",
}  # fmt: skip
_OWN = (
    "entr", "erfcx", "i0e", "i1", "i1e", "log_ndtr", "ndtr", "ndtri", "xlog1py", "zeta", "chebyshev_polynomial_t",
    "chebyshev_polynomial_u", "chebyshev_polynomial_v", "chebyshev_polynomial_w", "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u", "shifted_chebyshev_polynomial_v", "shifted_chebyshev_polynomial_w",
    "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p",
    "modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0",
)  # fmt: skip


def _names() -> dict[str, Any]:
    found = {name: _PUBLIC[target] for name, target in _SAME.items()}
    found.update({name: _PUBLIC["special_" + name] for name in _OWN})
    return found


globals().update(_names())
__all__ = sorted((*_SAME, *_OWN))
