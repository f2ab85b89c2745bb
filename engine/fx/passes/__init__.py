"""Passes over graphs."""

__all__: list[str] = []
