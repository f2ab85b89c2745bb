"""torch.utils.cpp_extension's names: extensions in C++ need torch's own library."""

from __future__ import annotations

from typing import Any

__all__ = ["CUDA_HOME", "ROCM_HOME", "BuildExtension", "CUDAExtension", "CppExtension", "load", "load_inline"]

CUDA_HOME = ROCM_HOME = None


def _refuse(name: str) -> Any:
    raise NotImplementedError(
        f"torch.utils.cpp_extension.{name} is not supported: extensions compile against torch's C++ library; use "
        "framework='torch'"
    )


def load(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse("load")


def load_inline(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse("load_inline")


def CppExtension(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse("CppExtension")


def CUDAExtension(*args: Any, **kwargs: Any) -> Any:
    """NotImplementedError."""
    _refuse("CUDAExtension")


class BuildExtension:
    """NotImplementedError."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse("BuildExtension")

    @classmethod
    def with_options(cls, **options: Any) -> type[BuildExtension]:
        """The class itself: making one raises."""
        return cls


def _get_build_directory(name: str, verbose: bool) -> str:
    """NotImplementedError."""
    _refuse("load")
    return ""
