"""What passes over graphs are derived from."""

__all__: list[str] = []
