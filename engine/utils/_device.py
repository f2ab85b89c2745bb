"""`DeviceContext`: a context whose factories make their tensors on a device, as `with torch.device(...)`."""

from __future__ import annotations

from typing import Any

from engine.core.device import device

__all__ = ["DeviceContext"]


class DeviceContext:
    """`with DeviceContext(device):` tensors made without `device=` are on `device`."""

    def __init__(self, device_: Any) -> None:
        self.device = device(device_)

    def __enter__(self) -> DeviceContext:
        self.device.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.device.__exit__(*exc)
