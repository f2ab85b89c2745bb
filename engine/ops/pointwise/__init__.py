"""Operations on each element by itself: arithmetic, bits, functions of one number, choices between elements."""

from engine.ops.pointwise import arithmetic, bits, math, operators, power, select  # noqa: F401
