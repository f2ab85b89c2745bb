"""`Tensor`: an array with history.  Its operations come from the op registry (`dispatch.py`); what stands here is
the object itself: memory, versions, gradient, hooks, conversion to Python, copying and pickling.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from engine import backends
from engine.autograd import graph
from engine.autograd.graph import MAYBE, Node, registered, requires_grad_of, view_edge
from engine.autograd.versions import Aliases, aliased, mark
from engine.backends.cpu.relayout import RestoreTorchOrder
from engine.core import dtypes, tensor_messages
from engine.core.checks import contiguous_strides, own_dim, single
from engine.core.device import CPU, device
from engine.core.grad_mode import inferring
from engine.core.hooks import HookDict, RemovableHandle, warn_if_unserializable
from engine.core.layouts import ChannelsLast, adopted, element_strides
from engine.core.legacy_constructor import legacy_array, tensor_array
from engine.core.size import Size, new_size
from engine.core.storage import Memory, Storage, UntypedStorage, memory_of, strided
from engine.core.storage_tensors import follow, follow_both, following

__all__ = ["Size", "Tensor", "is_tensor", "wrap"]

new = object.__new__


def raw_array(tensor: Any) -> Any:
    """The array of a tensor however it is laid out: for sizes and dtypes, and for code that takes any layout."""
    return tensor._array if (converted := tensor._channels_last) is None else converted


def _scalar(array: Any) -> Any:
    """The one element of an array as a Python number."""
    value = array.item() if type(array) is np.ndarray else backends.of_array(array).item(array)
    known = isinstance(value, int | float | complex)  # bfloat16 and complex32 have scalars of their own
    return value if known else complex(value) if array.dtype.kind == "W" else float(value)


class _TensorMeta(type):
    """The class of `Tensor`, as in torch; see engine/dispatch/README.md."""


class Tensor(metaclass=_TensorMeta):
    """A multi-dimensional array that remembers how it was made.

    `_array` the strided array; `_requires_grad` False, True or MAYBE; `_edge` (node, output_nr) of its history, None
    for leaves and views; `_vc` the version counter.  The rest has class-level defaults: most tensors lack it.
    """

    _array: Any
    _channels_last: Any = None  # instead of `_array`: Note [Channels-last tensors]
    _requires_grad: bool | int
    _edge: tuple[Node, int] | None
    _vc: list[int]
    _base: Any = None
    _view: Any = None
    _grad: Tensor | None = None
    _grad_dtype: Any = ...  # as the tensor's
    _hooks: HookDict | None = None
    _replaced = 0  # how often `.data` was set or batch norm moved a statistic, which no version shows
    _aliases: Aliases | None = None
    _accumulator: Any = None
    _post_accumulate_hooks: Any = None
    name = None
    __array_priority__ = 1000  # numpy's operators give way to ours
    is_sparse = False
    is_sparse_csr = False
    is_quantized = False
    is_meta = property(lambda self: self.device.type == "meta", doc="Whether it has shape and dtype alone.")
    _cdata = property(id)
    is_mkldnn = False
    is_nested = False
    is_mps = is_xpu = is_ipu = is_xla = is_vulkan = is_maia = is_mtia = False
    if TYPE_CHECKING:  # ops that are used here; `engine/tensor.pyi` has them all
        flip: Callable[..., Tensor]
        unbind: Callable[..., tuple[Tensor, ...]]

    itemsize = property(lambda self: raw_array(self).dtype.itemsize, doc="Bytes an element.")

    def __new__(cls, *data: Any, device: Any = None) -> Any:
        """`Tensor(2, 3)` uninitialised of that size, `Tensor([1, 2])` of that data, in the default dtype."""
        return _legacy_new(cls, dtypes.get_default_dtype(), data, device)

    # --- what it is

    @property
    def shape(self) -> Size:
        """The sizes."""
        converted = self._channels_last
        return new_size(Size, self._array.shape if converted is None else converted.shape)

    def size(self, dim: int | None = None) -> Any:
        """The sizes, or the one of `dim`."""
        converted = self._channels_last
        shape = self._array.shape if converted is None else converted.shape
        if dim is None:
            return new_size(Size, shape)
        if dim.__class__ is int and -len(shape) <= dim < len(shape):
            return shape[dim]
        return shape[own_dim("size", dim, len(shape))]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        n: int = raw_array(self).ndim
        return n

    def dim(self) -> int:
        """The number of dimensions."""
        converted = self._channels_last
        n: int = self._array.ndim if converted is None else converted.ndim
        return n

    ndimension = dim

    def numel(self) -> int:
        """The number of elements."""
        return int(raw_array(self).size)

    nelement = numel

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(raw_array(self).size) * int(raw_array(self).dtype.itemsize)

    def element_size(self) -> int:
        """Bytes per element."""
        return int(raw_array(self).dtype.itemsize)

    @property
    def dtype(self) -> dtypes.dtype:
        """The element type."""
        return dtypes.from_numpy(raw_array(self).dtype)

    @property
    def device(self) -> device:
        """The device of the memory."""
        array = raw_array(self)
        return CPU if isinstance(array, np.ndarray) else backends.of_array(array).device_of(array)

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_cpu(self) -> bool:
        return self.device.type == "cpu"

    def get_device(self) -> int:
        """The index of the CUDA device; -1 on the CPU."""
        index = self.device.index
        return -1 if index is None else index

    def is_floating_point(self) -> bool:
        """Return whether the dtype is floating point."""
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Return whether the dtype is complex."""
        return self.dtype.is_complex

    def is_signed(self) -> bool:
        """Return whether the dtype is signed."""
        return self.dtype.is_signed

    def is_conj(self) -> bool:
        """False: conjugation and negation are never lazy here."""
        return False

    is_neg = is_conj

    def is_inference(self) -> bool:
        """Return whether it was made in inference_mode."""
        return self._vc.__class__ is not list

    # --- memory

    def stride(self, dim: int | None = None) -> Any:
        """Steps in elements between neighbours along each dim, or along `dim`."""
        converted = self._channels_last
        strides = element_strides(self._array) if converted is None else contiguous_strides(converted.shape)
        if dim is None:
            return strides
        return strides[own_dim("stride", dim, len(strides))]

    def storage_offset(self) -> int:
        """Elements between the start of the storage and the first element."""
        array = self._array
        if not array.size or (array.base is None and (not adopted or id(array) not in adopted)):
            return 0
        return int((backends.of_array(array).pointer(array) - Memory.of(array).pointer) // array.dtype.itemsize)

    def data_ptr(self) -> int:
        """Address of the first element; 0 for an empty tensor."""
        array = self._array
        return backends.of_array(array).pointer(array) if array.size else 0

    def storage(self) -> Storage:
        """The typed storage, shared with every alias."""
        return Storage(memory_of(self), self.dtype)

    def untyped_storage(self) -> UntypedStorage:
        """The bytes behind this tensor, shared with every alias."""
        return UntypedStorage(memory_of(self))

    def is_set_to(self, tensor: Tensor) -> bool:
        """Return whether both are the same view of the same memory."""
        return (
            Memory.of(self._array) is Memory.of(tensor._array)
            and self.shape == tensor.shape
            and self.stride() == tensor.stride()
            and self.storage_offset() == tensor.storage_offset()
        )

    def is_shared(self) -> bool:
        """Return whether the memory can be mapped by other processes."""
        return self.untyped_storage().is_shared()

    def is_pinned(self, device: Any = None) -> bool:
        """Return whether the memory is page-locked, for copies to the GPU that need not wait."""
        return bool(backends.is_pinned(self._array))

    @property
    def data(self) -> Tensor:
        """The same memory without history, and with a version counter of its own."""
        return aliased(self, wrap_alias(self))  # type: ignore[no-any-return]

    @data.setter
    def data(self, source: Tensor) -> None:
        if not isinstance(source, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(source).__name__}")
        if self._requires_grad and not (source.is_floating_point() or source.is_complex()):
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        if source.is_sparse:
            tensor_messages.refuse_data()
        self._array, self._channels_last = source._array, None
        self._replaced += 1
        if following.on:
            follow_both(self, source)

    @data.deleter
    def data(self) -> None:
        raise RuntimeError("Deleting tensor data is not allowed. Delete tensor instead!")

    @property
    def _version(self) -> int:
        return self._vc[0] if self._vc.__class__ is list else self._vc.untracked()  # type: ignore[attr-defined]

    def _is_view(self) -> bool:
        return self._base is not None

    # --- gradient

    @property
    def requires_grad(self) -> bool:
        """Return whether gradients flow to this tensor; can be set on leaves only."""
        flag = self._requires_grad
        return flag if flag is not MAYBE else requires_grad_of(self)  # type: ignore[return-value]  # a bool

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise RuntimeError("requires_grad must be a bool")
        recorded = self._recorded()
        if not value:
            if recorded:
                raise RuntimeError(
                    "you can only change requires_grad flags of leaf variables. If you want to use a computed "
                    "variable in a subgraph that doesn't require differentiation use var_no_grad = var.detach()."
                )
        elif not (self.is_floating_point() or self.is_complex()):
            raise RuntimeError("only Tensors of floating point and complex dtype can require gradients")
        elif recorded:
            raise RuntimeError("you can only change requires_grad flags of leaf variables.")
        if value and self._vc.__class__ is not list:
            self._vc.check_requires_grad()  # type: ignore[attr-defined]
        if value or self._requires_grad is not MAYBE:
            self._requires_grad = value or (MAYBE if self._view is not None and self._requires_grad else False)
        if not value:
            graph.no_longer_requires_grad(self)

    @requires_grad.deleter
    def requires_grad(self) -> None:
        raise RuntimeError("requires_grad must be a bool")

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Set `requires_grad` in place and return the tensor.  RuntimeError for integers and False on a non-leaf."""
        if requires_grad is True:
            if not (self.is_floating_point() or self.is_complex()):
                raise RuntimeError("only Tensors of floating point dtype can require gradients")
            if self._recorded():
                return self
        self.requires_grad = requires_grad
        return self

    def _recorded(self) -> bool:
        """Return whether there is history, without a look at what a write to its base makes of a view's."""
        return (self._edge if self._view is None else self._view.edge) is not None

    @property
    def grad_fn(self) -> Node | None:
        """The node that made this tensor; None for leaves."""
        edge = self._edge if self._view is None else view_edge(self)
        return None if edge is None else edge[0]

    _grad_fn = property(
        lambda self: self.grad_fn, None, tensor_messages.refuse_deletion, "`grad_fn`, as torch's own code has it."
    )

    @property
    def output_nr(self) -> int:
        """The number of this output of `grad_fn`."""
        edge = self._edge if self._view is None else view_edge(self)
        return 0 if edge is None else edge[1]

    @property
    def is_leaf(self) -> bool:
        """True for tensors made by the user and for all that do not require grad."""
        return self.grad_fn is None

    @property
    def grad(self) -> Tensor | None:
        """The accumulated gradient, or None; for a non-leaf without `retain_grad()` with a warning."""
        found = self._grad
        if found is None and (self._edge or self._view) and self._recorded() and not self.retains_grad:
            warnings.warn(tensor_messages.GRAD_OF_NON_LEAF, stacklevel=2)
        return found

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                kind = type(value).__name__
                raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {kind}")
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            wanted = self.dtype if self._grad_dtype is ... else self._grad_dtype
            if wanted is not None and value.dtype is not wanted:
                tensor_messages.refuse_gradient(value.dtype, wanted)
            if value.device != self.device:
                places = f"located on device '{value.device}' to a tensor on '{self.device}'"
                raise RuntimeError(f"attempting to assign a gradient {places}")
            if value.shape != self.shape:
                raise RuntimeError(
                    f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                    f"'{list(self.shape)}'. Please ensure that the gradient and the tensor are the same size"
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    def detach(self) -> Tensor:
        """The same memory and version counter, out of the graph: a leaf that does not require grad."""
        result = wrap_alias(self)
        result._vc = self._vc
        return result

    def detach_(self) -> Tensor:
        """Cut this tensor from its graph in place.  RuntimeError for a view."""
        if self._view is not None:
            raise RuntimeError(
                "Can't detach views in-place. Use detach() instead. If you are using DistributedDataParallel (DDP) for "
                "training, and gradient_as_bucket_view is set as True, gradients are views of DDP buckets, and hence "
                "detach_() cannot be called on these gradients. To fix this error, please refer to the "
                "Optimizer.zero_grad() function in torch/optim/optimizer.py as the solution."
            )
        self._edge = None
        self._requires_grad = False
        self._hooks = None
        graph.no_longer_requires_grad(self)
        return self

    def register_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(grad)` with every gradient of this tensor; a returned Tensor replaces it."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        node = self.grad_fn
        if node is None:
            if self._hooks is None:
                self._hooks = HookDict()
            hooks = self._hooks
        else:
            more = node._more()
            if more.pre_hooks is None:
                more.pre_hooks = {}
            hooks = more.pre_hooks.setdefault(self.output_nr, HookDict())
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    @property
    def _backward_hooks(self) -> HookDict | None:
        """The hooks of `register_hook`, for code that looks; None if there never was one."""
        node = self.grad_fn
        if node is None:
            return self._hooks
        found = None if node._extra is None else node._extra.pre_hooks
        return None if found is None else found.get(self.output_nr)

    @_backward_hooks.setter
    def _backward_hooks(self, hooks: Any) -> None:
        self._hooks = hooks

    @_backward_hooks.deleter
    def _backward_hooks(self) -> None:
        raise RuntimeError("Deletion of _backwards_hooks not allowed!")

    def register_post_accumulate_grad_hook(self, hook: Callable[..., Any]) -> RemovableHandle:
        """Call `hook(tensor)` on a leaf after its `.grad` was accumulated."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if self.grad_fn is not None:
            raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
        hooks = self._post_accumulate_hooks
        if hooks is None:
            hooks = self._post_accumulate_hooks = HookDict()
        handle = RemovableHandle(hooks)
        hooks[handle.id] = hook
        return handle

    def retain_grad(self) -> None:
        """Keep the gradient of a non-leaf in `.grad`; nothing for a leaf."""
        if not self.requires_grad:
            raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
        graph.retain(self)

    @property
    def retains_grad(self) -> bool:
        """Return whether `retain_grad()` holds for this non-leaf."""
        return graph.retained(self)

    # --- to Python and numpy

    def numpy(self, *, force: bool = False) -> np.ndarray:
        """The elements as a numpy array that shares the memory.  `force=True`: detached, and copied from the GPU.

        RuntimeError if it requires grad, TypeError on the GPU or in bfloat16.
        """
        if not force:
            if self.requires_grad:
                raise RuntimeError(
                    "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
                )
            if type(self._array) is not np.ndarray:
                if self.device.type != "cpu":
                    raise TypeError(
                        f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the "
                        "tensor to host memory first."
                    )
                return backends.of_array(self._array).to_host(self._array)
            if self.dtype is dtypes.bfloat16:
                raise TypeError("Got unsupported ScalarType BFloat16")
            return self._array
        return backends.of_array(self._array).to_host(self._array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            return array.astype(dtype)
        return array.copy() if copy else array

    def item(self) -> Any:
        """The one element as a Python number.  RuntimeError unless there is exactly one."""
        array = self._array
        if array.size != 1:
            raise RuntimeError(f"a Tensor with {array.size} elements cannot be converted to Scalar")
        return _scalar(array)

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers; a number for a 0-dim tensor."""
        array = backends.of_array(self._array).to_host(self._array)
        if self.dtype in dtypes.STORED_BY_ML_DTYPES:
            array = array.astype(np.complex64 if self.dtype.is_complex else np.float32)
        return array.tolist()

    def __len__(self) -> int:
        if not raw_array(self).ndim:
            raise TypeError("len() of a 0-d tensor")
        length: int = raw_array(self).shape[0]
        return length

    def __bool__(self) -> bool:
        size = self._array.size
        if size == 1:
            return bool(_scalar(self._array))
        if size == 0:
            raise RuntimeError("Boolean value of Tensor with no values is ambiguous")
        raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")

    def __int__(self) -> int:
        return int(single(self._array.size) and _scalar(self._array))

    def __float__(self) -> float:
        if self._requires_grad:
            tensor_messages.warn_of_conversion()
        return float(single(self._array.size) and _scalar(self._array))

    def __complex__(self) -> complex:
        return complex(single(self._array.size) and _scalar(self._array))

    def __index__(self) -> int:
        if self._array.size != 1 or self._array.dtype.kind not in "iub":
            raise TypeError("only integer tensors of a single element can be converted to an index")
        return int(_scalar(self._array))

    def __hash__(self) -> int:
        return id(self)

    def __delitem__(self, index: Any) -> None:
        raise TypeError("Tensor does not support deleting items")

    def __contains__(self, element: Any) -> bool:
        if isinstance(element, Tensor | int | float | complex):
            found: Any = self == element
            return bool(found._array.any())
        raise RuntimeError(f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a {type(element)}.")

    def __iter__(self) -> Iterator[Tensor]:
        if not self._array.ndim:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __reversed__(self) -> Tensor:
        return self.flip(0) if self._array.ndim else self

    def __format__(self, spec: str) -> str:
        if not self._array.ndim and type(self) is Tensor:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        from engine.core import printing as _tensor_str

        return _tensor_str.tensor_repr(self, tensor_contents)

    def __dir__(self) -> list[str]:
        return sorted(set(object.__dir__(self)))

    # --- copying and pickling

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the "
                "moment.  If you were attempting to deepcopy a module, this may be because of a "
                "torch.nn.utils.weight_norm usage, see https://github.com/pytorch/pytorch/pull/103001"
            )
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        import copy

        memory = copy.deepcopy(Memory.of(self._array), memo)
        flat = memory.flat(self.dtype)
        result = new(type(self))
        _init(result, strided(flat, self._array.shape, self.stride(), self.storage_offset()))
        result._requires_grad = self.requires_grad
        memo[id(self)] = result
        if self._grad is not None:
            result._grad = copy.deepcopy(self._grad, memo)
        for key, value in self.__dict__.items():
            if key not in _INTERNAL:
                result.__dict__[key] = copy.deepcopy(value, memo)
        return result

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        warn_if_unserializable(self._backward_hooks)
        state = {k: v for k, v in self.__dict__.items() if k not in _INTERNAL}
        memory = memory_of(self)
        return (
            _rebuild,
            (type(self), memory, self.dtype, self.storage_offset(), tuple(self.shape), self.stride(),
             self.requires_grad),
            state or None,
        )  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @classmethod
    def _from_array(cls, array: Any) -> Tensor:
        """A leaf around an array of a known backend, sharing its memory."""
        result: Tensor = new(cls)
        _init(result, array)
        return result

    @staticmethod
    def _make_subclass(cls: type, data: Tensor, require_grad: bool = False) -> Any:
        """`data` as an instance of a Tensor subclass: same memory, no history."""
        result: Any = new(cls)
        _init(result, data._array)
        result._vc = data._vc
        if following.on:
            follow_both(result, data)
        if require_grad:
            if not (data.is_floating_point() or data.is_complex()):
                raise RuntimeError("Only Tensors of floating point and complex dtype can require gradients")
            result.requires_grad = True
        return result


for _name, _member in list(vars(Tensor).items()):
    if type(_member) is property and _member.fget is not None and _member.fset is None and _member.fdel is None:
        setattr(Tensor, _name, tensor_messages.read_only(_name, _member.fget, _member.__doc__))


_INTERNAL = frozenset(
    ("_array", "_channels_last", "_replaced", "_requires_grad", "_edge", "_vc", "_base", "_view", "_grad", "_hooks",
     "_grad_dtype", "_accumulator", "_aliases", "_post_accumulate_hooks", "_seen")
)  # fmt: skip


def _init(tensor: Any, array: Any) -> None:
    tensor._array = array
    tensor._requires_grad = False
    tensor._edge = None
    tensor._vc = [0]
    if inferring[0]:
        mark(tensor)
    if tensor.__class__ is not Tensor:
        registered.subclass_made(tensor.__class__)


def wrap(array: Any) -> Tensor:
    """A new leaf around `array`, sharing its memory."""
    result = new(Tensor)
    result._array = array
    result._requires_grad = False
    result._edge = None
    result._vc = [0]
    if inferring[0]:
        mark(result)
    return result


def wrap_alias(source: Tensor) -> Tensor:
    """A new leaf over the memory of another tensor, with a version counter of its own."""
    result = wrap(source._array)
    if following.on:
        follow_both(result, source)
    return result


registered.wrap, registered.Tensor = wrap, Tensor


def rewrap(array: Any) -> Tensor:
    """`wrap` for a result that may be converted."""
    if type(array) is not ChannelsLast:
        return wrap(array)
    result = wrap(None)
    del result._array
    hold_converted(result, array)
    return result


def hold_converted(tensor: Tensor, array: ChannelsLast) -> None:
    """Make `tensor` a converted one; an array that it has must go."""
    tensor._channels_last = array
    if "_array" not in Tensor.__dict__:
        Tensor._array = RestoreTorchOrder()
        registered.begin_conversion()


def _rebuild(
    cls: type, memory: Memory, dtype: dtypes.dtype, offset: int, size: Sequence[int], stride: Sequence[int],
    requires_grad: bool,
) -> Any:  # fmt: skip
    result: Any = new(cls)
    _init(result, memory.strided(dtype, tuple(size), tuple(stride), offset))
    result._requires_grad = requires_grad
    if following.on:
        follow(result, result._array)
    return result


def _legacy_new(cls: type, dtype: dtypes.dtype, data: tuple[Any, ...], where: Any) -> Any:
    """Build a tensor for `Tensor(...)` and `FloatTensor(...)`: by sizes, or from a sequence, an array or a tensor."""
    source = data[0] if len(data) == 1 else None
    array = tensor_array(source, dtype) if isinstance(source, Tensor) else legacy_array(data, dtype)
    if where is not None and device(where).type != "cpu":
        target = device(where)
        array = backends.of_device(target).from_host(array, target)
    result: Any = new(cls)
    _init(result, array)
    return result


def is_tensor(obj: Any) -> bool:
    """Return whether `obj` is a Tensor."""
    return isinstance(obj, Tensor)
