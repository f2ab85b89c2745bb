"""The version of the engine and of hubcli."""

__version__ = "0.1.0"
