"""`device`: where a Tensor lives.  Parsing and comparison only; whether it exists is the backend's word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["device"]

# what torch can name; tensors are made on the CPU, on CUDA and on meta
_KINDS = (
    "cpu",
    "cuda",
    "ipu",
    "xpu",
    "mkldnn",
    "opengl",
    "opencl",
    "ideep",
    "hip",
    "ve",
    "fpga",
    "maia",
    "xla",
    "lazy",
    "vulkan",
    "mps",
    "meta",
    "hpu",
    "mtia",
    "privateuseone",
)


class device:
    """`device("cpu")`, `device("cuda:1")`, `device("cuda", 1)`, `device(1)`: `type` (str) and `index` (int or None).

    Raises RuntimeError for a string that names no device.
    """

    __slots__ = ("index", "type")
    index: int | None
    type: str

    def __init__(self, type: Any = "cpu", index: int | None = None) -> None:
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        elif isinstance(type, int) and not isinstance(type, bool):
            type, index = "cuda", type
        elif not isinstance(type, str):
            raise TypeError(f"device(): argument 'type' must be str or int, not {type.__class__.__name__}")
        elif ":" in type:
            if index is not None:
                raise RuntimeError(
                    f"type (string) must not include an index because index was passed explicitly: {type}"
                )
            name, _, number = type.partition(":")
            if not number.isascii() or not number.isdigit() or (len(number) > 1 and number[0] == "0"):
                raise RuntimeError(f"Invalid device string: '{type}'")
            type, index = name, int(number)
        if type not in _KINDS:
            raise RuntimeError(f"Expected one of {', '.join(_KINDS)} device type at start of device string: {type}")
        object.__setattr__(self, "type", type)
        object.__setattr__(self, "index", index)

    if TYPE_CHECKING:  # `ops.creation` adds both: inside, factories make tensors on this device

        def __enter__(self) -> device: ...
        def __exit__(self, *raised: object) -> None: ...

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"attribute '{name}' of 'torch.device' objects is not writable")

    def __repr__(self) -> str:
        if not hasattr(self, "index"):  # a debugger shows the local variables of an `__init__` that failed
            return object.__repr__(self)
        return (
            f"device(type='{self.type}')" if self.index is None else f"device(type='{self.type}', index={self.index})"
        )

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and self.type == other.type and self.index == other.index

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __reduce__(self) -> tuple[object, ...]:
        return device, (self.type,) if self.index is None else (self.type, self.index)


CPU = device("cpu")
