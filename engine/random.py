"""Random numbers: `Generator` and the default one per device.

Note [Random bits]
One counter-based generator (Philox4x64-10, Salmon et al. 2011, https://doi.org/10.1145/2063384.2063405) serves every
device.  A draw of n 64-bit words takes ceil(n / 4) blocks of the key (seed, 0): block i is Philox of the counter
i + 1, so word j depends on the seed and j alone and any device can make it.  State = (seed, blocks taken), 16 bytes.
Numbers are made of words by elementwise arithmetic (`ops/random/__init__.py`), never by rejection, for the same reason.
Reproducible by seed; not torch's stream of bits.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine import backends
from engine.core.device import device
from engine.core.slots import Keyed
from engine.tensor import Tensor, wrap

__all__ = [
    "Generator",
    "default_generator",
    "fork_rng",
    "get_rng_state",
    "initial_seed",
    "manual_seed",
    "seed",
    "set_rng_state",
]

_STATE_BYTES = 16
_MANY = 1 << 17  # words worth several threads


@functools.cache
def _unseeded() -> Any:
    """What stands for numpy's own seeds, which take three quarters of the time to make a generator."""

    class Zeros(np.random.bit_generator.ISeedSequence):  # numpy loads `random` when it is first named
        def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
            return np.zeros(n_words, dtype)

    return Zeros()


_START = {"buffer": np.zeros(4, np.uint64), "buffer_pos": 4, "has_uint32": 0, "uinteger": 0}


def philox(seed: int, block: int) -> np.random.Philox:
    """numpy's generator at the start of a block."""
    made = np.random.Philox(_unseeded())
    state = {"counter": np.array([block, 0, 0, 0], np.uint64), "key": np.array([seed, 0], np.uint64)}
    made.state = {"bit_generator": "Philox", "state": state, **_START}
    return made


def _entropy() -> int:
    """64 bits from the operating system (`secrets` would load OpenSSL at start-up)."""
    return int.from_bytes(os.urandom(8), "little")


class Generator:
    """A source of random numbers: `Generator(device="cpu")`, then `manual_seed`, `get_state`, `set_state`."""

    def __init__(self, device: Any = "cpu") -> None:
        self._device = _device(device)
        self._lock = threading.Lock()
        self._seed = _entropy() >> 1
        self._blocks = 0
        self._bits: Any = None

    @property
    def device(self) -> device:
        """The device whose numbers this generator makes."""
        return self._device

    def manual_seed(self, seed: int) -> Generator:
        """Start anew from a seed in [-2**63, 2**64); returns the generator."""
        number = int(seed)
        if not -(2**63) <= number < 2**64:
            raise ValueError("Overflow when unpacking long long")
        with self._lock:
            self._seed, self._blocks, self._bits = number % 2**64, 0, None
        return self

    def initial_seed(self) -> int:
        """The seed this generator started from."""
        return self._seed

    def seed(self) -> int:
        """Start anew from a seed of the operating system's; returns it."""
        number = _entropy()
        self.manual_seed(number)
        return number

    def get_state(self) -> Tensor:
        """The state as a uint8 Tensor."""
        return wrap(np.array([self._seed, self._blocks], "<u8").view(np.uint8))

    def set_state(self, new_state: Tensor) -> None:
        """Go back to a state of `get_state`.  TypeError, RuntimeError for anything else."""
        array = getattr(new_state, "_array", None)
        if array is None:
            raise TypeError(f"expected a torch.ByteTensor, but got {type(new_state).__name__}")
        if array.dtype != np.uint8:
            raise TypeError("RNG state must be a torch.ByteTensor")
        array = backends.of_array(array).to_host(array)
        if array.size != _STATE_BYTES:
            raise RuntimeError(
                f"RNG state is wrong size: expected {_STATE_BYTES} bytes of this engine's, got {array.size}"
            )
        state = np.ascontiguousarray(array).reshape(-1).view("<u8")
        with self._lock:
            self._seed, self._blocks, self._bits = int(state[0]), int(state[1]), None

    def get_offset(self) -> int:
        """The number of 64-bit words taken so far."""
        return self._blocks * 4

    def set_offset(self, offset: int) -> None:
        """Go to a number of words taken, a multiple of 4."""
        if offset % 4:
            raise RuntimeError("offset must be a multiple of 4")
        with self._lock:
            self._blocks, self._bits = offset // 4, None

    def clone_state(self) -> Generator:
        """A generator of its own in the same state."""
        twin = Generator(self._device)
        twin._seed, twin._blocks = self._seed, self._blocks
        return twin

    graphsafe_get_state = clone_state

    def reserve(self, count: int) -> Callable[[int, int], np.ndarray]:
        """Take `count` words of numpy's without making them yet.

        draw(start, stop) makes those in between, in any order and in any thread; `start` is a multiple of 4.
        """
        with self._lock:
            seed, first = self._seed, self._blocks
            self._blocks, self._bits = first - (-count // 4), None

        def draw(start: int, stop: int) -> np.ndarray:
            bits = philox(seed, first + start // 4)
            return bits.random_raw(stop - start)

        return draw

    def take(self, count: int) -> tuple[int, int]:
        """Take the blocks of `count` words for a device that makes them itself: (seed, first block)."""
        with self._lock:
            first = self._blocks
            self._blocks, self._bits = first - (-count // 4), None
        return self._seed, first

    def words(self, xp: Any, count: int) -> Any:
        """The next `count` 64-bit words as a uint64 array of `xp`; see Note [Random bits]."""
        if xp is np and count >= _MANY:
            return self._many_words(count)
        if self._device.type == "meta":
            return xp.empty(count, np.uint64)
        kernel = word_kernels.get(self._device.type)
        if kernel is not None and (made := kernel(xp, self, count)) is not NotImplemented:
            return made
        blocks = -(-count // 4)
        with self._lock:
            if self._bits is None:
                self._bits = philox(self._seed, self._blocks)
            drawn = self._bits.random_raw(blocks * 4)
            self._blocks += blocks
        return drawn[:count] if xp is np else xp.asarray(drawn[:count])

    def _many_words(self, count: int) -> np.ndarray:
        """`words`, made by a few threads."""
        from engine.backends.cpu.fast import fast

        draw, made = self.reserve(count), fast.empty(count, np.uint64)

        def work(quads: slice) -> None:
            rows = slice(quads.start * 4, min(quads.stop * 4, count))
            made[rows] = draw(rows.start, rows.stop)

        fast.share(work, -(-count // 4), count)
        return made

    def __reduce__(self) -> tuple:
        return _rebuild, (str(self._device), self._seed, self._blocks)


# kernel(xp, generator, count) -> words, or NotImplemented, for devices that make them themselves
word_kernels: Keyed[str, Any] = Keyed()


def _device(where: Any) -> device:
    return where if isinstance(where, device) else device(where)


def _rebuild(where: str, seed: int, blocks: int) -> Generator:
    made = Generator(where)
    made._seed, made._blocks = seed, blocks
    return made


default_generator = Generator()
_others: dict[str, Generator] = {}
_seeded: list[int | None] = [None]


def default_for(where: device) -> Generator:
    """The default generator of a device; all start from the seed of `manual_seed`."""
    if where.type == "cpu":
        return default_generator
    if where.type == "cuda" and where.index is None:
        where = backends.of_device(where).current()
    name = str(where)
    found = _others.get(name)
    if found is None:
        found = _others[name] = Generator(where)
        if _seeded[0] is not None:
            found.manual_seed(_seeded[0])
    return found


def manual_seed(seed: int) -> Generator:
    """Seed the default generators of all devices.

    Args:
        seed: Any integer of 64 bits; negative ones count from 2**64.

    Returns:
        The generator of the CPU.

    Raises:
        ValueError: the seed does not fit 64 bits.
    """
    default_generator.manual_seed(seed)
    _seeded[0] = default_generator.initial_seed()
    for other in _others.values():
        other.manual_seed(seed)
    return default_generator


def seed() -> int:
    """Seed the default generators by the operating system; returns the seed."""
    number = _entropy()
    manual_seed(number)
    return number


def initial_seed() -> int:
    """The seed of the CPU's default generator."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The state of the CPU's default generator as a uint8 Tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Set the state of the CPU's default generator."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Restore the state of the default generators after the block."""
    if not enabled:
        yield
        return
    states = [(g, g._seed, g._blocks) for g in (default_generator, *_others.values())]
    try:
        yield
    finally:
        for generator, number, blocks in states:
            with generator._lock:
                generator._seed, generator._blocks, generator._bits = number, blocks, None
