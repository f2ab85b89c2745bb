"""The names that query whether operations are being traced: they never are."""

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """None: nothing is traced."""
