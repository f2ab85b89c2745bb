"""The references that `sys.getrefcount` counts of an object that nobody else holds.

Some memory is used again, or given on, only if nobody else can see it.  The reference count shows that, and what
it is of an object that one local name alone holds depends on the interpreter: the name and the argument of
`getrefcount` until Python 3.13, the name alone from 3.14 on, where names are lent to calls.  So it is measured here,
in a function of the same form as those that ask.  More references than these (a debugger that has read the local
variables holds some) mean a copy, never shared memory.
"""

from __future__ import annotations

import sys

__all__ = ["LOCAL", "LOCAL_AND_ONE"]


def _of_a_local_name() -> int:
    made = [object()]
    held = made[0]
    made.clear()
    return sys.getrefcount(held)


LOCAL = _of_a_local_name()  # an object that a local name holds, and nothing else
LOCAL_AND_ONE = LOCAL + 1  # and an attribute, a list, ... beside it
