"""Special functions: error functions and their inverses, the gamma and Bessel families, orthogonal polynomials."""

from engine.ops.special import erf, gamma, polynomials  # noqa: F401
