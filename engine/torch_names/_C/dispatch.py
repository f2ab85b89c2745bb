"""torch's dispatch keys, by name: the engine chooses kernels by device and records gradients itself."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from engine.library import operators as _ops

__all__ = ["DispatchKey", "DispatchKeySet"]

_BACKENDS = "CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy MTIA MAIA PrivateUse1 PrivateUse2 PrivateUse3 Meta".split()
_PER_BACKEND = ("", "Quantized", "Sparse", "SparseCsr", "NestedTensor", "Autograd")
_OTHERS = """
Undefined FPGA Vulkan Metal Conjugate Negative ZeroTensor ADInplaceOrView AutogradOther AutogradFunctionality
AutogradNestedTensor Dense Quantized Sparse SparseCsr NestedTensor BackendSelect Python PythonTLSSnapshot
PythonDispatcher PreDispatch Functionalize Named Tracer FuncTorchDynamicLayerBackMode FuncTorchDynamicLayerFrontMode
FuncTorchGradWrapper
FuncTorchVmapMode FuncTorchBatched FuncTorchBatchedDecomposition Batched BatchedNestedTensor VmapMode
AutocastCPU AutocastCUDA AutocastXPU AutocastIPU AutocastHPU AutocastXLA AutocastMPS AutocastMTIA AutocastMAIA
AutocastPrivateUse1 DeferredInit TESTING_ONLY_GenericWrapper TESTING_ONLY_GenericMode CustomRNGKeyId MkldnnCPU
CompositeImplicitAutograd CompositeImplicitAutogradNestedTensor CompositeExplicitAutograd
CompositeExplicitAutogradNonFunctional Autograd FuncTorchBatched StartOfDenseBackends EndOfDenseBackends
"""
_names = [f"{kind}{backend}" for kind in _PER_BACKEND for backend in _BACKENDS] + _OTHERS.split()
DispatchKey = enum.IntEnum("DispatchKey", list(dict.fromkeys(_names)), module=__name__)  # type: ignore[misc]
DispatchKey.__str__ = lambda self: f"DispatchKey.{self.name}"  # type: ignore[method-assign]


class DispatchKeySet:
    """A set of keys."""

    def __init__(self, keys: Any = ()) -> None:
        self._keys = frozenset([keys] if isinstance(keys, DispatchKey) else keys)

    @staticmethod
    def from_raw_repr(raw: int) -> DispatchKeySet:
        """The set of the bits of a number."""
        return DispatchKeySet(key for key in DispatchKey if raw >> int(key) & 1)

    def raw_repr(self) -> int:
        """The set as the bits of a number."""
        return sum(1 << int(key) for key in self._keys)

    def has(self, key: Any) -> bool:
        """Return whether a key is in the set."""
        return key in self._keys

    def add(self, key: Any) -> DispatchKeySet:
        """The set with one more key."""
        return DispatchKeySet(self._keys | {key})

    def remove(self, key: Any) -> DispatchKeySet:
        """The set without a key."""
        return DispatchKeySet(self._keys - {key})

    def highestPriorityTypeId(self) -> Any:
        """The last key in the order of declaration."""
        return max(self._keys, default=DispatchKey.Undefined)

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(self._keys - other._keys)

    def __contains__(self, key: Any) -> bool:
        return key in self._keys

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(self._keys))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(key.name for key in sorted(self._keys))})"


class _BelowAutograd:
    """A context in which operators of `torch.ops` skip what is registered under the Autograd keys."""

    def __init__(self, *args: Any) -> None:
        self.before: list[bool] = []

    def __enter__(self) -> None:
        self.before.append(_ops.state.below_autograd)
        _ops.state.below_autograd = True

    def __exit__(self, *exc: object) -> None:
        _ops.state.below_autograd = self.before.pop()


_AutoDispatchBelowAutograd = _AutoDispatchBelowADInplaceOrView = _BelowAutograd


class _ExcludeDispatchKeyGuard:
    """A context without the keys of a set; those of Autograd have an effect."""

    def __init__(self, keys: DispatchKeySet) -> None:
        self.inner = _BelowAutograd() if any(key.name.startswith("Autograd") for key in keys) else None

    def __enter__(self) -> None:
        if self.inner is not None:
            self.inner.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self.inner is not None:
            self.inner.__exit__()


class _IncludeDispatchKeyGuard:
    """A context without effect."""

    def __init__(self, keys: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass


def _dispatch_has_kernel_for_dispatch_key(name: str, key: Any) -> bool:
    """Return whether an operator has a kernel under a key."""
    return _ops.find(name).has_kernel_for_dispatch_key(key)


def _dispatch_has_kernel(name: str) -> bool:
    """Return whether an operator has a kernel."""
    return bool(_ops.find(name).kernels)


def _dispatch_key_for_device(device: str) -> str:
    """`CPU` of "cpu"."""
    return device.upper()


def _dispatch_keys(tensor: Any) -> DispatchKeySet:
    """The key of a tensor's device, and that of its gradient."""
    name = tensor.device.type.upper()
    return DispatchKeySet([DispatchKey[name], DispatchKey[f"Autograd{name}"]])


def _dispatch_tls_is_dispatch_key_excluded(key: Any) -> bool:
    """Return whether a key is excluded in this thread."""
    return _ops.state.below_autograd and getattr(key, "name", str(key)).startswith("Autograd")


def _dispatch_get_all_op_names() -> list[str]:
    """The operators that `torch.library` defined."""
    return sorted(one._name for packet in _ops.OPERATORS.values() for one in packet._overloads.values())
