"""Whether operations are being traced: never."""

__all__ = ["get_proxy_mode"]


def get_proxy_mode() -> None:
    """None: nothing is traced."""
