"""The base classes of passes over graphs."""

__all__: list[str] = []
