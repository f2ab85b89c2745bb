"""Special functions: error functions and their inverses, the gamma and Bessel families, orthogonal polynomials."""

from engine.ops.special import bessel, erf, gamma, incomplete, polynomials  # noqa: F401
