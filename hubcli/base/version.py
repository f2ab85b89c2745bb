"""The version of this package; a test keeps it equal to the one in pyproject.toml."""

__version__ = "0.1.0"
