"""Matrices: products, contractions, systems of equations, factorizations, eigenvalues, norms.

`products` comes with every tensor, the other families at first use (`engine/ops/lazy.py`).
"""
