"""Element types: torch's `dtype` objects over numpy's, their classes, promotion and limits.

A `dtype` is a singleton, `repr` `torch.float32`.  `to_numpy(dtype)` and `from_numpy(np.dtype)` convert;
bfloat16 is ml_dtypes' and is imported on first use.  Promotion follows torch 2.13
(https://docs.pytorch.org/docs/2.13/tensor_attributes.html#type-promotion-doc): within one category a
tensor with dimensions beats a 0-dim tensor, which beats a Python number; a higher category
(bool < integer < floating < complex) always wins.
"""

from __future__ import annotations

from builtins import bool as _bool
from builtins import float as _float
from builtins import int as _int
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from engine.core.arrays import Array

__all__ = [
    "bfloat16",
    "bool",
    "cdouble",
    "cfloat",
    "chalf",
    "complex32",
    "complex64",
    "complex128",
    "double",
    "dtype",
    "finfo",
    "float",
    "float4_e2m1fn_x2",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "float16",
    "float32",
    "float64",
    "get_default_dtype",
    "half",
    "iinfo",
    "int",
    "int8",
    "int16",
    "int32",
    "int64",
    "long",
    "qint8",
    "qint32",
    "quint8",
    "set_default_dtype",
    "short",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]

# Categories, in the order in which they win a promotion.
BOOL, INTEGER, FLOATING, COMPLEX = range(4)


class dtype:
    """The element type of a Tensor.  Attributes: `is_floating_point`, `is_complex`, `is_signed`, `itemsize`."""

    __slots__ = (
        "__weakref__",
        "_np",
        "category",
        "is_complex",
        "is_floating_point",
        "is_signed",
        "itemsize",
        "name",
        "rank",
    )

    def __init__(self, name: str, category: _int, itemsize: _int, rank: _int, signed: _bool = True) -> None:
        self.name = name
        self.category = category
        self.itemsize = itemsize
        self.rank = rank  # order of widening within a category
        self.is_floating_point = category == FLOATING
        self.is_complex = category == COMPLEX
        self.is_signed = signed
        self._np: np.dtype | None = None

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> str:
        return self.name

    def __copy__(self) -> dtype:
        return self

    def __deepcopy__(self, memo: dict[_int, object]) -> dtype:
        return self

    def to_complex(self) -> dtype:
        """The complex type of the same precision (`float32` -> `complex64`)."""
        return {float16: complex32, float32: complex64, float64: complex128}.get(
            self, self if self.is_complex else complex64
        )

    def to_real(self) -> dtype:
        """The real type of the same precision (`complex64` -> `float32`)."""
        return {complex32: float16, complex64: float32, complex128: float64}.get(self, self)


bool = dtype("bool", BOOL, 1, 0, signed=False)
uint8 = dtype("uint8", INTEGER, 1, 1, signed=False)
int8 = dtype("int8", INTEGER, 1, 1)
int16 = dtype("int16", INTEGER, 2, 3)
int32 = dtype("int32", INTEGER, 4, 5)
int64 = dtype("int64", INTEGER, 8, 7)
uint16 = dtype("uint16", INTEGER, 2, 2, signed=False)
uint32 = dtype("uint32", INTEGER, 4, 4, signed=False)
uint64 = dtype("uint64", INTEGER, 8, 6, signed=False)
float16 = dtype("float16", FLOATING, 2, 1)
bfloat16 = dtype("bfloat16", FLOATING, 2, 1)
float32 = dtype("float32", FLOATING, 4, 2)
float64 = dtype("float64", FLOATING, 8, 3)
complex32 = dtype("complex32", COMPLEX, 4, 1)
complex64 = dtype("complex64", COMPLEX, 8, 2)
complex128 = dtype("complex128", COMPLEX, 16, 3)

# Types that exist by name alone, for code that compares with them: tensors of them are refused.
float8_e4m3fn = dtype("float8_e4m3fn", FLOATING, 1, 0)
float8_e5m2 = dtype("float8_e5m2", FLOATING, 1, 0)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", FLOATING, 1, 0)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", FLOATING, 1, 0)
float8_e8m0fnu = dtype("float8_e8m0fnu", FLOATING, 1, 0, signed=False)
float4_e2m1fn_x2 = dtype("float4_e2m1fn_x2", FLOATING, 1, 0)
qint8 = dtype("qint8", INTEGER, 1, 0)
quint8 = dtype("quint8", INTEGER, 1, 0, signed=False)
qint32 = dtype("qint32", INTEGER, 4, 0)

half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
chalf, cfloat, cdouble = complex32, complex64, complex128

ALL = (
    bool,
    uint8,
    int8,
    int16,
    int32,
    int64,
    uint16,
    uint32,
    uint64,
    float16,
    bfloat16,
    float32,
    float64,
    complex64,
    complex128,
)

_FROM_NUMPY: dict[np.dtype, dtype] = {}
STORED_BY_ML_DTYPES = (bfloat16, complex32)  # a dtype of that package, looked up when first used
INEXACT: set[np.dtype] = set()  # numpy dtypes that can require grad; those of ml_dtypes join when they are first used
NATIVE: set[np.dtype] = set()  # those of them that numpy itself has: Python numbers are weak beside them
for _d in ALL:
    if _d is not bfloat16:
        _d._np = np.dtype(_d.name)
        _FROM_NUMPY[_d._np] = _d
        if _d.category >= FLOATING:
            INEXACT.add(_d._np)
            NATIVE.add(_d._np)
del _d


def to_numpy(dtype: dtype) -> np.dtype:
    """The numpy dtype that stores `dtype`.  TypeError for what has none: complex32 takes ml_dtypes 0.6."""
    found = dtype._np
    if found is None:
        import ml_dtypes

        stored = getattr(ml_dtypes, dtype.name, None) if dtype in STORED_BY_ML_DTYPES else None
        if stored is None:
            why = "numpy has no such type, use float16 or int8"
            if dtype is complex32:
                why = f"it takes ml_dtypes 0.6 or newer (here {ml_dtypes.__version__}): upgrade it, or use complex64"
            raise TypeError(f"{dtype!r} is not supported: {why}")
        found = dtype._np = np.dtype(stored)
        _FROM_NUMPY[found] = dtype
        INEXACT.add(found)
    return found


def part(array: Array, which: _int) -> Array:
    """The real (0) or imaginary (1) parts of complex numbers, sharing memory."""
    if array.dtype.kind == "W":  # type: ignore[comparison-overlap]  # complex32, which numpy takes for a real type
        return array[..., None].view("float16")[..., which]
    return array.imag if which else array.real


def from_numpy(np_dtype: DTypeLike) -> dtype:
    """The dtype stored as `np_dtype` (any object numpy takes for a dtype).  Raises TypeError, as torch, for others."""
    try:
        return _FROM_NUMPY[np_dtype]  # type: ignore[index]  # whatever it is: KeyError, TypeError
    except (KeyError, TypeError):
        pass
    normal = np.dtype(np_dtype)
    for extended in STORED_BY_ML_DTYPES:
        if normal.name == extended.name:
            to_numpy(extended)
    found = _FROM_NUMPY.get(normal)
    if found is None and not normal.isnative:
        found = _FROM_NUMPY.get(normal.newbyteorder("="))
    if found is None:
        raise TypeError(
            f"can't convert np.ndarray of type numpy.{normal.type.__name__}. The only supported types are: float64, "
            "float32, float16, complex64, complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8, and "
            "bool."
        )
    return found


T = TypeVar("T")
PYTHON_TYPES = {_bool: bool, _int: int64, _float: float64, complex: complex128}  # Python's types that say a dtype


def of_type(given: T) -> T | dtype:
    """The dtype that `float`, `int`, `bool` or `complex` stands for; anything else as it is."""
    return PYTHON_TYPES.get(given, given) if isinstance(given, type) else given


_default = [float32]


def get_default_dtype() -> dtype:
    """The floating dtype of new tensors made from Python floats; float32 unless changed."""
    return _default[0]


def set_default_dtype(d: dtype) -> None:
    """Set the default floating dtype.  Raises TypeError unless `d` is floating point."""
    if not isinstance(d, dtype) or not d.is_floating_point:
        raise TypeError("invalid dtype object: only floating-point types are supported as the default type")
    _default[0] = d


def default_complex() -> dtype:
    """The complex type that goes with the default dtype."""
    return get_default_dtype().to_complex()


def of_number(value: object) -> dtype:
    """The dtype of a 0-dim tensor made from a Python number: bool, int64, default float or complex."""
    if isinstance(value, _bool):
        return bool
    if isinstance(value, _int):
        return int64
    if isinstance(value, complex):
        return default_complex()
    return get_default_dtype()


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest type that both convert to (torch.promote_types)."""
    type1, type2 = of_type(type1), of_type(type2)
    if type1 is type2:
        return type1
    a, b = (type1, type2) if type1.category >= type2.category else (type2, type1)
    if a.category != b.category:
        if a.category == COMPLEX and b.category == FLOATING:
            return _wider(a, b.to_complex()) if b is not bfloat16 else _wider(a, complex64)
        return a
    if a.category == INTEGER:
        if uint8 in (a, b):
            other = b if a is uint8 else a
            if other is int8:
                return int16
        elif a.is_signed != b.is_signed:
            signed, unsigned = (a, b) if a.is_signed else (b, a)
            if signed.rank > unsigned.rank:
                return signed
            raise RuntimeError(
                f"Promotion for uint16, uint32, uint64 types is not supported, attempted to promote "
                f"{_scalar_name(a)} and {_scalar_name(b)}"
            )
    if {a, b} == {float16, bfloat16}:
        return float32
    return _wider(a, b)


def _wider(a: dtype, b: dtype) -> dtype:
    return a if a.rank >= b.rank else b


_SCALAR_NAMES = {
    "bool": "Bool",
    "uint8": "Byte",
    "int8": "Char",
    "int16": "Short",
    "int32": "Int",
    "int64": "Long",
    "float16": "Half",
    "bfloat16": "BFloat16",
    "float32": "Float",
    "float64": "Double",
    "complex32": "ComplexHalf",
    "complex64": "ComplexFloat",
    "complex128": "ComplexDouble",
    "uint16": "UInt16",
    "uint32": "UInt32",
    "uint64": "UInt64",
}


def _scalar_name(d: dtype) -> str:
    """The name that torch's messages use: `Float`, `Long`, ..."""
    return _SCALAR_NAMES[d.name]


def can_cast(from_: dtype, to: dtype) -> _bool:
    """Return whether an in-place result of type `from_` may be stored in `to` (torch.can_cast)."""
    from_, to = of_type(from_), of_type(to)
    return from_.category <= to.category


class _Limits:
    """The base of finfo and iinfo: two objects of one type are equal and have no hash, and nothing can be assigned."""

    __slots__ = ("dtype",)
    dtype: str

    def __eq__(self, other: object) -> _bool:
        return type(other) is type(self) and other.dtype == self.dtype

    __hash__ = None  # type: ignore[assignment]

    def __setattr__(self, name: str, value: object) -> None:
        if hasattr(type(self), name):
            raise AttributeError(f"attribute '{name}' of 'torch.{type(self).__name__}' objects is not writable")
        raise AttributeError(f"'torch.{type(self).__name__}' object has no attribute '{name}'")

    def _fill(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (globals()[self.dtype],)


def _checked_type(asked: str, given: object) -> dtype:
    found = of_type(given)
    if not isinstance(found, dtype):
        raise TypeError(f"{asked}(): argument 'type' (position 1) must be torch.dtype, not {type(found).__name__}")
    return found


class finfo(_Limits):
    """Limits of a floating dtype: bits, eps, max, min, tiny, smallest_normal, resolution (torch.finfo).

    `type` is the default dtype if not given; of a complex dtype the limits are those of its parts.  Raises TypeError
    for any other dtype.
    """

    __slots__ = ("bits", "eps", "max", "min", "resolution", "smallest_normal", "tiny")
    bits: _int
    eps: _float
    max: _float
    min: _float
    resolution: _float
    smallest_normal: _float
    tiny: _float

    def __init__(self, type: dtype | None = None) -> None:
        type = get_default_dtype() if type is None else _checked_type("finfo", type)
        if not (type.is_floating_point or type.is_complex):
            raise TypeError(f"torch.finfo() requires a floating point input type. Use torch.iinfo to handle '{type!r}'")
        real = type.to_real()
        if real is bfloat16 or real.itemsize == 1:
            import ml_dtypes

            info: Any = ml_dtypes.finfo(getattr(ml_dtypes, real.name))  # type: ignore[no-untyped-call]
        else:
            info = np.finfo(to_numpy(real))
        tiny = _float(info.tiny)
        self._fill(
            bits=real.itemsize * 8,
            eps=_float(info.eps),
            max=_float(info.max),
            min=_float(info.min),
            tiny=tiny,
            smallest_normal=tiny,
            resolution=10.0 ** -_int(info.nmant * 0.30103),
            dtype=real.name,
        )

    def __repr__(self) -> str:
        return (
            f"finfo(resolution={self.resolution:g}, min={self.min:g}, max={self.max:g}, eps={self.eps:g}, "
            f"smallest_normal={self.smallest_normal:g}, tiny={self.tiny:g}, dtype={self.dtype})"
        )


class iinfo(_Limits):
    """Limits of an integer dtype: bits, min, max (torch.iinfo).  Raises TypeError for any other dtype."""

    __slots__ = ("bits", "max", "min")
    bits: _int
    max: _int
    min: _int

    def __init__(self, type: dtype) -> None:
        type = _checked_type("iinfo", type)
        if type is bool:
            raise TypeError("torch.bool is not supported by torch.iinfo")
        if type.category != INTEGER:
            raise TypeError(f"torch.iinfo() requires an integer input type. Use torch.finfo to handle '{type!r}'")
        bits = 8 * type.itemsize
        low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if type.is_signed else (0, (1 << bits) - 1)
        self._fill(bits=bits, min=low, max=high, dtype=type.name)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


def tensor_type(d: dtype, device_type: str = "cpu") -> str:
    """The legacy type name: `torch.FloatTensor`, `torch.cuda.LongTensor`."""
    return f"torch.{'cuda.' if device_type == 'cuda' else ''}{_scalar_name(d)}Tensor"


scalar_name = _scalar_name

_CPP_NAMES = {
    "float32": "float",
    "float64": "double",
    "int64": "long int",
    "int32": "int",
    "int16": "short int",
    "int8": "signed char",
    "uint8": "unsigned char",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "uint16": "short unsigned int",
    "uint32": "unsigned int",
    "uint64": "long unsigned int",
}


def cpp_name(d: dtype) -> str:
    """A dtype as C++ spells it, for torch's messages: `float`, `long int`."""
    return _CPP_NAMES.get(d.name, d.name)
