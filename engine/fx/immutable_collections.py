"""The lists and dicts of a Node's arguments: changing one would leave the Node's users as they were."""

from __future__ import annotations

from typing import Any, NoReturn

__all__ = ["immutable_dict", "immutable_list"]


def _refuse(self: Any, *args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError(
        f"{type(self).__name__!r} object does not support mutation. If you are attempting to modify the kwargs or args "
        f"of a torch.fx.Node object,\ninstead create a new copy of it and assign the copy to the node:\n"
        f"    new_args = ... # copy and mutate args\n"
        f"    node.args = new_args\n"
    )


class immutable_list(list[Any]):
    """A list that cannot be changed."""

    append = clear = extend = insert = pop = remove = reverse = sort = _refuse
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self))

    def __reduce__(self) -> Any:
        return (immutable_list, (tuple(self),))


class immutable_dict(dict[Any, Any]):
    """A dict that cannot be changed."""

    clear = pop = popitem = setdefault = update = _refuse
    __setitem__ = __delitem__ = __ior__ = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> Any:
        return (immutable_dict, (dict(self),))
