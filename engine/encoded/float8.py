"""Tensors of 8-bit floats, as checkpoints hold them: held bit for bit, converted from and to other dtypes.

`Float8Tensor` has its elements as bytes.  `to(torch.float32)` and its like give the values, exactly;
`view(torch.uint8)` gives the bytes; views, copies and saving keep them.  Of arithmetic there are the products of
`scaled_products`.  Everything else raises NotImplementedError with the dtype's name.
https://docs.pytorch.org/docs/2.13/tensor_attributes.html
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.core import dtypes
from engine.core.device import device
from engine.core.grad_mode import mode
from engine.core.printing import _with_suffixes, contents
from engine.encoded import EncodedTensor
from engine.tensor import Tensor, wrap

__all__ = ["NAMES", "Float8Tensor", "encoded", "from_array", "numpy_dtype", "rounded"]

NAMES = frozenset(("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"))


def numpy_dtype(name: str) -> np.dtype:
    """The numpy dtype (of ml_dtypes) of the 8-bit float `name`."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


class Float8Tensor(EncodedTensor):
    """A tensor (*) of 8-bit floats on the CPU."""

    is_quantized = False

    @property
    def _array(self) -> Any:  # type: ignore[override]
        raise NotImplementedError(
            f"this operation is not implemented for {self.dtype}: convert the tensor first, with .to(torch.float32) or "
            "another dtype; .view(torch.uint8) gives its bytes"
        )

    dtype = property(lambda self: getattr(dtypes, self._q.dtype.name), doc="`torch.float8_e4m3fn` or its like.")

    # --- the values in other dtypes

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """The values in another dtype (exactly: each has more bits), or the tensor itself, for the CPU.

        NotImplementedError for other devices, TypeError for what is neither dtype nor device.
        """
        wanted: Any = None
        for value in (*args, *(kwargs[name] for name in ("dtype", "device", "other") if name in kwargs)):
            value = value.dtype if isinstance(value, Tensor) else value
            if isinstance(value, dtypes.dtype) or value in (float, int, bool, complex):
                wanted = dtypes.of_type(value)
            elif isinstance(value, str | device) and device(value).type != "cpu":
                raise NotImplementedError(f"tensors of {self.dtype} are on the CPU only; convert them first")
        if wanted is None or wanted is self.dtype:
            return self
        if wanted.name in NAMES:
            return from_array(rounded(self._q.astype(np.float32), wanted.name))
        return wrap(self._q.astype(np.float32)).to(wanted)

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the tensor's type, or its values in another dtype."""
        return f"torch.{self.dtype.name.capitalize()}Tensor" if dtype is None else self.to(dtype)

    def float(self, memory_format: Any = None) -> Tensor:
        """The values as float32 (*)."""
        return self.to(dtypes.float32)

    def double(self, memory_format: Any = None) -> Tensor:
        """The values as float64 (*)."""
        return self.to(dtypes.float64)

    def half(self, memory_format: Any = None) -> Tensor:
        """The values as float16 (*)."""
        return self.to(dtypes.float16)

    def bfloat16(self, memory_format: Any = None) -> Tensor:
        """The values as bfloat16 (*)."""
        return self.to(dtypes.bfloat16)

    def tolist(self) -> Any:
        """The values as Python's numbers, in nested lists."""
        return self._q.astype(np.float32).tolist()

    def item(self) -> Any:
        """The value of a tensor of one element."""
        return self.float().item()

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError: numpy has no such dtype."""
        raise TypeError(f"Got unsupported ScalarType {self.dtype.name.capitalize()}")

    # --- views and copies

    def view(self, *shape: Any) -> Any:
        """The same bytes in another shape, or as another dtype of one byte."""
        if len(shape) == 1 and isinstance(shape[0], dtypes.dtype):
            name = shape[0].name
            if name in NAMES:
                return from_array(self._q.view(numpy_dtype(name)))
            if shape[0].itemsize != 1:
                raise NotImplementedError(f"a view of {self.dtype} as {shape[0]}; view it as torch.uint8 first")
            return wrap(self._q.view(dtypes.to_numpy(shape[0])))
        return self.reshape(*shape)

    def __getitem__(self, index: Any) -> Float8Tensor:
        return from_array(np.asarray(self._q[index], self._q.dtype))

    def reshape(self, *shape: Any) -> Float8Tensor:
        """The same elements in another shape."""
        return from_array(self._q.reshape(*shape))

    def permute(self, *dims: Any) -> Float8Tensor:
        """The dims in another order."""
        return from_array(self._q.transpose(*dims))

    def t(self) -> Float8Tensor:
        """(m, n) -> (n, m)."""
        return from_array(self._q.T)

    def clone(self, *, memory_format: Any = None) -> Float8Tensor:
        """A copy."""
        return from_array(self._q.copy())

    def detach(self) -> Float8Tensor:
        """The same memory."""
        return from_array(self._q)

    data = property(detach, doc="The same memory.")

    def contiguous(self, memory_format: Any = None) -> Float8Tensor:
        """With elements in order."""
        return self if self._q.flags.c_contiguous else from_array(np.ascontiguousarray(self._q))

    def cpu(self, memory_format: Any = None) -> Float8Tensor:
        """The tensor itself."""
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Float8Tensor:
        """RuntimeError for True: nothing here has gradients."""
        if requires_grad:
            raise RuntimeError(f"tensors of {self.dtype} have no gradients here")
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Float8Tensor:
        if id(self) not in memo:
            memo[id(self)] = self.clone()
        return memo[id(self)]  # type: ignore[no-any-return]

    def __copy__(self) -> Float8Tensor:
        return self.detach()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _from_bytes, (self._q.view(np.uint8), self._q.dtype.name)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        text = contents(self._q.astype(np.float32), len("tensor("))
        return _with_suffixes("tensor(" + text, [f"dtype={self.dtype}"], len("tensor("))


def from_array(elements: np.ndarray) -> Float8Tensor:
    """A tensor around an array (*) of one of ml_dtypes' 8-bit floats, sharing its memory."""
    if elements.dtype.name not in NAMES:
        raise TypeError(f"{elements.dtype} is none of {', '.join(sorted(NAMES))}")
    result = object.__new__(Float8Tensor)
    result.__dict__.update(_q=elements, _vc=[0])
    return result


def rounded(values: np.ndarray, name: str) -> np.ndarray:
    """float32 values (*) as the 8-bit float `name`, to nearest, of two the even one.

    Beyond the range, e4m3fn gives its largest value and the others infinity or nan.  e8m0fnu has no sign and no zero:
    it takes the magnitude, and for 0 its smallest value.
    """
    if name == "float8_e4m3fn":
        values = np.clip(values, -448, 448)
    elif name == "float8_e8m0fnu":
        values = np.maximum(np.abs(values), np.float32(2.0**-127))
    found = values.astype(numpy_dtype(name))
    if name == "float8_e5m2":  # of the nans the one with all bits, as torch writes it
        found.view(np.uint8)[np.isnan(values)] |= 3
    return found


def encoded(tensor: Tensor, dtype: dtypes.dtype) -> Float8Tensor:
    """The values of a CPU tensor (*), rounded to the 8-bit float `dtype` as by `rounded`.

    RuntimeError where a gradient would be lost, NotImplementedError for other devices.
    """
    if not isinstance(tensor._array, np.ndarray):
        raise NotImplementedError(f"tensors of {dtype} are on the CPU only; the tensor is on {tensor.device}")
    if mode.enabled and tensor.requires_grad:
        raise RuntimeError(f"tensors of {dtype} have no gradients here: convert tensor.detach()")
    return from_array(rounded(tensor._array.astype(np.float32), dtype.name))


def _from_bytes(raw: np.ndarray, name: str) -> Float8Tensor:
    return from_array(raw.view(numpy_dtype(name)))
