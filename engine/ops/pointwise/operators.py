"""Arithmetic by Python's operators, `x + y` and their kin, in place and reflected."""

from __future__ import annotations

from engine.dispatch import operator_form
from engine.ops.pointwise.arithmetic import neg, positive
from engine.ops.pointwise.power import reciprocal
from engine.tensor import Tensor

_div_operator = operator_form("true_div")
_mul_operator = operator_form("mul")
_pow_operator = operator_form("pow")
_floor_operator = operator_form("floor_divide")
_mod_operator = operator_form("remainder")


def _rdiv_operator(self, other):
    """other / self, rounded twice as torch rounds it."""
    if not isinstance(self, Tensor):
        raise AttributeError(f"'{type(self).__name__}' object has no attribute 'reciprocal'")
    return _mul_operator(reciprocal(self), other)


Tensor.__add__ = Tensor.__radd__ = operator_form("add")
Tensor.__sub__ = operator_form("sub")
Tensor.__rsub__ = operator_form("rsub")
Tensor.__mul__ = Tensor.__rmul__ = _mul_operator
Tensor.__truediv__ = _div_operator
Tensor.__rtruediv__ = _rdiv_operator
Tensor.__floordiv__ = _floor_operator
Tensor.__rfloordiv__ = lambda self, other: _floor_operator(other, self)
Tensor.__mod__ = _mod_operator
Tensor.__rmod__ = lambda self, other: _mod_operator(other, self)
Tensor.__pow__ = _pow_operator
Tensor.__rpow__ = lambda self, other: _pow_operator(other, self)
Tensor.__neg__ = neg
Tensor.__pos__ = positive
Tensor.__iadd__ = operator_form("add", inplace=True)
Tensor.__isub__ = operator_form("sub", inplace=True)
Tensor.__imul__ = operator_form("mul", inplace=True)
Tensor.__itruediv__ = Tensor.__idiv__ = operator_form("true_div", inplace=True)
Tensor.__ifloordiv__ = operator_form("floor_divide", inplace=True)
Tensor.__imod__ = operator_form("remainder", inplace=True)
Tensor.__ipow__ = operator_form("pow", inplace=True)
Tensor.__div__, Tensor.__rdiv__ = Tensor.__truediv__, Tensor.__rtruediv__
