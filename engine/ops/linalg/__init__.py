"""Matrices: contractions, systems of equations, factorizations, eigenvalues, norms.

They come at first use (`engine/ops/lazy.py`); products are a family of their own, `engine/ops/products`.
"""
