"""The table of ops: what there is by name, and the families that are imported at the first name that is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

from engine.core.slots import Slot, Slots
from engine.tensor import Tensor

if TYPE_CHECKING:
    from engine.core.arrays import Array
    from engine.dispatch.gate import Call
    from engine.dispatch.record import Generated, Kernel, Launch, Op, Public

__all__ = [
    "COMPOSITES",
    "FUNCTIONS",
    "OPS",
    "PUBLIC",
    "Providers",
    "all_imported",
    "import_lazy",
    "providers",
    "register_lazy_members",
    "with_fact",
]

T = TypeVar("T")
_incomplete = [True]


def _nothing(chosen: Callable[[Op], bool]) -> None:
    """No op is compiled yet: there is no text to write again."""


class Providers(Slots):
    """What the table of ops needs of the ops, of sparse tensors and of the compiler."""

    lazy: Slot[Callable[[], None]]  # imports the families that are not imported yet
    blocks: Slot[Callable[[Op], Kernel]]  # blocks(record): the kernel that cuts large arrays into blocks
    onednn: Slot[Callable[[], None]]  # imports the kernels that call oneDNN
    cuda: Slot[Callable[[], bool]]  # whether kernels can be compiled for the GPU
    elements: Slot[Callable[[Op], Kernel | None]]  # elements(record): the kernel of an op of single numbers on a GPU
    # proved(kernel, own): the kernel that is compared with `own` at its first use
    proved: Slot[Callable[[Kernel, Kernel], Kernel | None]]
    generated: Slot[Callable[..., Generated]]  # generated(record, present, into): the generated kernel of an op
    # direct(record, present): what launches generated code for few elements
    direct: Slot[Callable[[Op, Kernel], Launch | None]]
    images: Slot[Callable[[], bool]]  # whether the kernels for channels-last images are there
    # the product of matrices where BLAS's threads would be in the way
    dot: Slot[Callable[[Array, Array], Array] | None] = None
    sparse_rows: Slot[Callable[..., Tensor]]  # sparse_rows(at, rows, shape): a sparse gradient
    sparse_sized: Slot[Callable[..., Tensor]]  # a sparse tensor of zeros
    rewrite: Slot[Callable[[Callable[[Op], bool]], None]] = _nothing  # write the texts of these ops again
    compile: Slot[Callable[..., Call]]  # compile(module, ...): what `Module.compile` calls


providers = Providers()


class _Table(dict[str, T]):
    """A dict that imports the lazy families when a key is missing."""

    def __missing__(self, name: str) -> T:
        if import_lazy():
            return self[name]
        raise KeyError(name)


OPS: dict[str, Op] = _Table()  # every op by name
PUBLIC: dict[str, Public] = _Table()  # what `engine.NAME` serves
COMPOSITES: dict[str, FunctionType] = {}  # the functions that are written with ops, by name
FUNCTIONS: dict[FunctionType, None] = {}  # every public function, in-place twin and operator: what listeners hear


def import_lazy() -> bool:
    """Import the lazy families; False if there is nothing (more) to import."""
    if not _incomplete:
        return False
    providers.lazy()  # another thread waits here until all of it is there
    return not _incomplete  # else this thread is importing them now


def all_imported() -> None:
    """The last line of the lazy families."""
    _incomplete.clear()


class _LazyMethod:
    """A method of Tensor that a lazy family defines: it imports the families, which put the method in its place.

    A `__getattr__` on the class would find them, too, but with it every attribute of every tensor is read through
    Python's slower slot for such classes, without the interpreter's inline caches.
    """

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def _defined(self, owner: object) -> Any:
        import_lazy()
        found = vars(Tensor)[self.__name__]
        if found is not self:
            return found
        name = self.__name__  # the families are being imported by this thread
        kind = f"type object '{owner.__name__}'" if isinstance(owner, type) else f"'{type(owner).__name__}' object"
        raise AttributeError(f"{kind} has no attribute '{name}'", name=name, obj=owner)

    def __get__(self, instance: Tensor | None, owner: type) -> object:
        return self._defined(owner if instance is None else instance).__get__(instance, owner)


class _LazyProperty(_LazyMethod):
    """A property of a lazy family: writing it imports the families, too."""

    __slots__ = ()

    def __set__(self, instance: Tensor, value: object) -> None:
        self._defined(instance).__set__(instance, value)

    def __delete__(self, instance: Tensor) -> None:
        self._defined(instance).__delete__(instance)


def register_lazy_members(methods: Iterable[str], properties: Iterable[str]) -> None:
    """Put what the lazy families define on Tensor in place, until they are imported."""
    for name in methods:
        setattr(Tensor, name, _LazyMethod(name))
    for name in properties:
        setattr(Tensor, name, _LazyProperty(name))


_found: dict[str, tuple[int, dict[str, Any]]] = {}  # by option: how many functions there were, and what they say


def with_fact(option: str) -> dict[str, Any]:
    """Return the ops, composites and methods that say something by this option: the values by name."""
    import_lazy()
    count, found = _found.get(option, (0, {}))
    if count == len(OPS) + len(COMPOSITES):
        return found
    said = {name: getattr(function, "facts", {}) for name, function in (*vars(Tensor).items(), *COMPOSITES.items())}
    found = {name: facts[option] for name, facts in said.items() if option in facts}
    found |= {name: getattr(record, option) for name, record in OPS.items() if option in record.__dict__}
    _found[option] = len(OPS) + len(COMPOSITES), found
    return found
