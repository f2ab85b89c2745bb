"""`Parameter` and `Buffer`: Tensors that a Module registers when they are assigned to it."""

from __future__ import annotations

import sys
from collections import OrderedDict
from typing import Any, Self

from engine.dispatch import PUBLIC
from engine.dispatch.overriding import disabled
from engine.ops import functions as torch
from engine.tensor import _INTERNAL, Tensor, _TensorMeta, wrap

__all__ = [
    "Buffer",
    "Parameter",
    "UninitializedBuffer",
    "UninitializedParameter",
    "UninitializedTensorMixin",
    "is_lazy",
]


class _ParameterMeta(_TensorMeta):
    """Instances of other Tensor subclasses that carry `_is_param` count as Parameters."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        return cls is Parameter and isinstance(instance, Tensor) and getattr(instance, "_is_param", False)


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A Tensor that is a Module's parameter: shares the memory of `data`, requires grad by default."""

    def __new__(cls, data: Any = None, requires_grad: bool = True, **attributes: Any) -> Self:
        # accelerate hands on the `__dict__` of another Parameter, which is empty in torch
        if not attributes.keys() <= Tensor.__annotations__.keys():
            unknown = next(name for name in attributes if name not in Tensor.__annotations__)
            raise TypeError(f"Parameter.__new__() got an unexpected keyword argument '{unknown}'")
        if data is None:
            data = torch.empty(0)
        if type(data) is Tensor or type(data) is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        t = data.detach().requires_grad_(requires_grad)
        if type(t) is not type(data):
            if cls is not Parameter or isinstance(data, Tensor):
                return Tensor._make_subclass(cls, data, requires_grad)
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {type(data).__name__} requires that detach() returns "
                f"an instance of the same type, but return type {type(t).__name__} was found instead."
            )
        t._is_param = True
        return t

    __torch_function__ = disabled

    def __init__(self, data: Any = None, requires_grad: bool = True, **attributes: Any) -> None:
        pass

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        result = memo[id(self)] = type(self)(wrap(self._array.copy(order="K")), self.requires_grad)
        return result

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return "Parameter containing:\n" + super().__repr__(tensor_contents=tensor_contents)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        state = {k: v for k, v in self.__dict__.items() if k not in _INTERNAL}
        arguments = (self.data, self.requires_grad, OrderedDict())
        if not state:
            return _rebuild_parameter, arguments
        return _rebuild_parameter_with_state, (*arguments, state)


def _rebuild_parameter(data: Tensor, requires_grad: bool, backward_hooks: Any) -> Parameter:
    """A Parameter from its pickle."""
    return Parameter(data, requires_grad)


def _rebuild_parameter_with_state(data: Tensor, requires_grad: bool, backward_hooks: Any, state: dict) -> Parameter:
    """A Parameter with further attributes from its pickle."""
    param = Parameter(data, requires_grad)
    param.__dict__.update(state)
    return param


class _BufferMeta(_TensorMeta):
    """A Tensor that carries `_is_buffer` counts as a Buffer."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if cls is Buffer and isinstance(instance, Tensor) and getattr(instance, "_is_buffer", False):
            return True
        return type.__instancecheck__(cls, instance)


class Buffer(Tensor, metaclass=_BufferMeta):
    """A Tensor that is registered as a buffer when assigned to a Module; `persistent`: part of state_dict."""

    __torch_function__ = disabled

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Self:
        if data is None:
            data = torch.empty(0)
        t = data.detach().requires_grad_(data.requires_grad)
        t.persistent = persistent
        t._is_buffer = True
        return t

    def __init__(self, data: Any = None, *, persistent: bool = True) -> None:
        pass


def _used(self: Any) -> Any:
    frame: Any = sys._getframe(1)
    while frame and frame.f_code.co_name not in PUBLIC and frame.f_code.co_name not in vars(Tensor):
        frame = frame.f_back
    name = (frame or sys._getframe(1)).f_code.co_name
    raise ValueError(
        f"Attempted to use an uninitialized parameter in <function {name}>. This error happens when you are using a "
        "`LazyModule` or explicitly manipulating `torch.nn.parameter.UninitializedParameter` objects. When using "
        "LazyModules Call `forward` with a dummy batch to initialize the parameters before calling torch functions"
    )


def _set_data(self: Any, source: Any) -> None:
    Tensor.data.__set__(self, source.data if is_lazy(source) else source)  # type: ignore[attr-defined]


class UninitializedTensorMixin:
    """The base of lazy parameters and buffers: no shape until `materialize`.

    Functions read the array of a tensor; here that is an error, which names the function (ValueError).
    """

    cls_to_become: type
    _array = property(_used, lambda self, array: self.__dict__.__setitem__("_array", array))
    data = property(lambda self: wrap(self.__dict__["_array"]), _set_data, doc="An empty tensor.")
    dtype = property(lambda self: self.data.dtype, doc="The type that it will have.")
    device = property(lambda self: self.data.device, doc="Where it will be.")
    layout = property(lambda self: self.data.layout, doc="`torch.strided`.")
    ndim = property(lambda self: 1, doc="1, as of an empty tensor.")
    nbytes = property(lambda self: 0, doc="0, as of an empty tensor.")
    itemsize = property(lambda self: self.data.itemsize, doc="Bytes an element.")

    def size(self, dim: int | None = None) -> Any:
        """As of an empty tensor."""
        return self.data.size(dim)

    def is_floating_point(self) -> bool:
        """Return whether the dtype is floating point."""
        return bool(self.data.is_floating_point())

    def is_complex(self) -> bool:
        """Return whether the dtype is complex."""
        return bool(self.data.is_complex())

    def _moved(self, data: Tensor) -> Any:
        if data.dtype is self.dtype and data.device == self.device:
            return self
        return data if isinstance(self, Parameter) else UninitializedBuffer(False, data.device, data.dtype)

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Itself, or an empty tensor of another dtype or device."""
        return self._moved(self.data.to(*args, **kwargs))

    def cpu(self) -> Any:
        """Itself, or an empty tensor on the CPU."""
        return self._moved(self.data.cpu())

    def cuda(self, *args: Any, **kwargs: Any) -> Any:
        """An empty tensor on a CUDA device."""
        return self._moved(self.data.cuda(*args, **kwargs))

    def float(self) -> Any:
        """Itself, or an empty tensor of float32."""
        return self._moved(self.data.float())

    def double(self) -> Any:
        """Itself, or an empty tensor of float64."""
        return self._moved(self.data.double())

    def half(self) -> Any:
        """Itself, or an empty tensor of float16."""
        return self._moved(self.data.half())

    def bfloat16(self) -> Any:
        """Itself, or an empty tensor of bfloat16."""
        return self._moved(self.data.bfloat16())

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Give it uninitialised memory of `shape` and make it an ordinary Parameter or Tensor."""
        device = self.data.device if device is None else device
        dtype = self.data.dtype if dtype is None else dtype
        self.data = torch.empty(shape, device=device, dtype=dtype)
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> Any:
        """Unknown: RuntimeError."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer. This error usually happens in "
            "`load_state_dict` when trying to load an uninitialized parameter into an initialized one. Call `forward` "
            "to initialize the parameters before accessing their attributes."
        )

    def share_memory_(self) -> Any:
        """Impossible yet: RuntimeError."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer. Call `forward` to initialize the parameters "
            "before calling `module.share_memory()`."
        )

    def __repr__(self, **_: Any) -> str:
        return f"<{type(self).__name__}>"

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return type(self), (self.requires_grad,)

    def __deepcopy__(self, memo: dict) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        data = self.data
        result = memo[id(self)] = type(self)(self.requires_grad, data.device, data.dtype)
        return result


def is_lazy(param: Any) -> bool:
    """Return whether `param` still lacks a shape."""
    return isinstance(param, UninitializedTensorMixin)


class UninitializedParameter(UninitializedTensorMixin, Parameter):
    """A Parameter whose shape the first forward decides."""

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Any:
        return Tensor._make_subclass(cls, torch.empty(0, device=device, dtype=dtype), requires_grad)

    def __init__(self, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> None:
        pass


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer whose shape the first forward decides."""

    cls_to_become = Tensor
    __torch_function__ = disabled

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Any:
        data = torch.empty(0, device=device, dtype=dtype)
        result = Tensor._make_subclass(cls, data, requires_grad)
        result.persistent = persistent
        result._is_buffer = True
        return result

    def __init__(self, *_: Any, **__: Any) -> None:
        pass
