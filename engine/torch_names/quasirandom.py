"""Quasi-random points (torch.quasirandom): Sobol sequences, which fill the unit cube more evenly than random points.

https://docs.pytorch.org/docs/2.13/generated/torch.quasirandom.SobolEngine.html
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.core import dtypes
from engine.ops import functions as torch
from engine.tensor import Tensor, wrap

__all__ = ["SobolEngine"]


def _primitive() -> Iterator[tuple[int, int]]:
    """(degree, polynomial) of the primitive polynomials over GF(2) in ascending order, bits as coefficients."""
    degree = 0
    while True:
        degree += 1
        order = (1 << degree) - 1
        factors = {order // f for f in _factors(order)}
        for poly in range(order + 2, 2 << degree, 2):
            if _power_of_x(order, poly, degree) == 1 and all(_power_of_x(f, poly, degree) != 1 for f in factors):
                yield degree, poly


def _factors(n: int) -> set[int]:
    """The prime factors of n."""
    found, f = set(), 2
    while f * f <= n:
        while n % f == 0:
            found.add(f)
            n //= f
        f += 1
    return found | {n} - {1}


def _power_of_x(exponent: int, poly: int, degree: int) -> int:
    """x**exponent modulo a polynomial of that degree."""
    result, base = 1, 2 if degree > 1 else 2 ^ poly
    while exponent:
        if exponent & 1:
            result = _product(result, base, poly, degree)
        base = _product(base, base, poly, degree)
        exponent >>= 1
    return result


def _product(a: int, b: int, poly: int, degree: int) -> int:
    result = 0
    while b:
        if b & 1:
            result ^= a
        a <<= 1
        if a >> degree:
            a ^= poly
        b >>= 1
    return result


@functools.cache
def _initial() -> list[tuple[int, int, list[int]]]:
    """(degree, polynomial, m_1 ... m_degree) of dims 2 to 1111."""
    import base64

    from engine.torch_names._sobol_numbers import BITS, DIMENSIONS

    bits = iter(np.unpackbits(np.frombuffer(base64.b85decode(BITS), np.uint8)).tolist())
    found = []
    for (degree, poly), _ in zip(_primitive(), range(DIMENSIONS - 1)):
        numbers = [functools.reduce(lambda m, _: 2 * m + next(bits), range(i), 0) * 2 + 1 for i in range(degree)]
        found.append((degree, poly, numbers))
    return found


def _from_scipy(dimension: int) -> list[tuple[int, int, list[int]]]:
    """The same for more dims, from the table that scipy carries."""
    try:
        import importlib.resources

        file = importlib.resources.files("scipy.stats") / "_sobol_direction_numbers.npz"
        with file.open("rb") as opened:
            table = np.load(opened)
            polys, numbers = table["poly"][1:dimension].tolist(), table["vinit"][1:dimension].tolist()
    except (ImportError, OSError, KeyError) as error:
        raise NotImplementedError(
            f"SobolEngine of {dimension} dimensions needs a table of directions that is not carried here beyond 1111: "
            "install scipy, which has it (pip install scipy)"
        ) from error
    return [(p.bit_length() - 1, p, m[: p.bit_length() - 1]) for p, m in zip(polys, numbers)]


def _directions(dimension: int, bits: int) -> np.ndarray:
    """The direction numbers of each dim, by the recurrence of its polynomial: (dimension, bits) of int64."""
    rows = _initial() if dimension <= 1111 else _from_scipy(dimension)
    result = np.empty((dimension, bits), np.int64)
    result[0] = 1
    for d, (degree, poly, first) in enumerate(rows[: dimension - 1], 1):
        m = list(first)
        for i in range(degree, bits):
            value = m[i - degree] ^ (m[i - degree] << degree)
            for k in range(1, degree):
                if poly >> (degree - k) & 1:
                    value ^= m[i - k] << k
            m.append(value)
        result[d] = m[:bits]
    return result << np.arange(bits - 1, -1, -1)


class SobolEngine:
    """Points of a Sobol sequence in [0, 1)**dimension, in the order and with the numbers of torch.

    dimension: 1 to 21201; beyond 1111 scipy must be installed, whose table of directions is used (NotImplementedError).
    scramble: a random linear scrambling of the digits and a random shift, by `seed` or the default generator; the
    random bits are not torch's.  ValueError for other dimensions.
    """

    MAXBIT = 30
    MAXDIM = 21201

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]")
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        directions = _directions(dimension, self.MAXBIT)
        self.shift = wrap(np.zeros(dimension, np.int64))
        if scramble:
            directions, self.shift = self._scrambled(directions)
        self.sobolstate = wrap(directions)
        self.reset()

    def _scrambled(self, directions: np.ndarray) -> tuple[np.ndarray, Tensor]:
        """Each direction times a random lower triangular matrix of bits, and the random shift (dimension)."""
        generator = None if self.seed is None else torch.Generator().manual_seed(self.seed)
        bits, d = self.MAXBIT, self.dimension
        powers = 1 << np.arange(bits - 1, -1, -1)
        shift = torch.randint(2, (d, bits), generator=generator)._array @ powers
        matrix = torch.randint(2, (d, bits, bits), generator=generator)._array
        matrix = np.tril(matrix, -1) + np.eye(bits, dtype=np.int64)
        digits = (directions[:, :, None] & powers) != 0  # (d, direction, bit from the highest)
        found = (digits.astype(np.int64) @ matrix.transpose(0, 2, 1)) & 1
        return found @ powers, wrap(shift)

    def reset(self) -> SobolEngine:
        """Back to the first point."""
        self.quasi = self.shift.clone()
        self.num_generated = 0
        self._first_point = wrap((self.quasi._array / 2**self.MAXBIT).reshape(1, -1)).to(torch.get_default_dtype())
        return self

    def _steps(self, count: int) -> np.ndarray:
        """The next `count` points as whole numbers (count, dimension), of which `quasi` becomes the last."""
        at = np.arange(self.num_generated, self.num_generated + count, dtype=np.int64)
        if count and int(at[-1]) >= (1 << self.MAXBIT) - 1:
            raise RuntimeError(f"a Sobol sequence of {self.MAXBIT} bits has {1 << self.MAXBIT} points and no more")
        lowest = np.log2((~at & (at + 1)).astype(np.float64)).astype(np.int64)  # the lowest bit that is 0
        steps = self.sobolstate._array.T[lowest]
        if count:
            steps[0] ^= self.quasi._array
            np.bitwise_xor.accumulate(steps, 0, out=steps)
            self.quasi = wrap(steps[-1].copy())
        return steps

    def draw(self, n: int = 1, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next n points -> (n, dimension) of `dtype` (float32 or float64; the default dtype)."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        first = self.num_generated == 0
        if n < first:
            raise RuntimeError(
                f"Trying to create tensor with negative dimension {n - first}: [{n - first}, {self.dimension}]"
            )
        if not first or n > 1:
            if dtype not in (dtypes.float32, dtypes.float64):
                kind = {"float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int"}
                name = str(dtype).removeprefix("torch.")
                raise NotImplementedError(f"\"_sobol_engine_draw\" not implemented for '{kind.get(name, name)}'")
            self.num_generated -= not first  # counted are the steps after the first point
            points = self._steps(n - first) / 2**self.MAXBIT
            self.num_generated += not first
            result = wrap(points).to(dtype)
            if first:
                result = torch.cat([self._first_point.to(dtype), result])
        else:
            result = self._first_point.to(dtype)
        self.num_generated += n
        if out is None:
            return result
        out.resize_(result.shape).copy_(result)
        return out

    def draw_base2(self, m: int, out: Tensor | None = None, dtype: Any = None) -> Tensor:
        """The next 2**m points -> (2**m, dimension).  ValueError where that makes no power of 2 in all."""
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: n={self.num_generated}+2**{m}="
                f"{total}. If you still want to do this, please use 'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def fast_forward(self, n: int) -> SobolEngine:
        """Skip n points: those up to there are not computed, but for the last."""
        done = max(self.num_generated - 1, 0)
        steps = done + n - (self.num_generated == 0)
        if n and steps >= 0:
            gray = steps ^ (steps >> 1)
            value = self.shift._array.copy()
            for bit in range(self.MAXBIT):
                if gray >> bit & 1:
                    value ^= self.sobolstate._array[:, bit]
            self.quasi = wrap(value)
        self.num_generated += n
        return self

    def __repr__(self) -> str:
        parts = [f"dimension={self.dimension}"]
        if self.scramble:
            parts.append("scramble=True")
        if self.seed is not None:
            parts.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(parts)})"
