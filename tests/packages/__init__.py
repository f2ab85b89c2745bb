"""Packages from PyPI that run unmodified on the engine: what scripts/packages.py imports, and one use of each.

Nothing here is collected by `make test`; `make packages` runs it.
"""
