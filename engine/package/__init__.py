"""torch.package: archives that carry a model together with the Python source that it needs.

`PackageExporter` writes them, `PackageImporter` loads their modules apart from those of the process, under names of its
own.  The source in such an archive is code: importing it runs it, as importing any package does; `contents` tells what
an archive holds and runs nothing.
"""

from __future__ import annotations

from .contents import Contents, contents
from .exporter import EmptyMatchError, PackageExporter, PackagingError
from .files import Directory, GlobGroup
from .importer import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, PackageImporter, sys_importer

__all__ = [
    "Contents",
    "Directory",
    "EmptyMatchError",
    "GlobGroup",
    "Importer",
    "ObjMismatchError",
    "ObjNotFoundError",
    "OrderedImporter",
    "PackageExporter",
    "PackageImporter",
    "PackagingError",
    "contents",
    "is_from_package",
    "sys_importer",
]


def is_from_package(obj: object) -> bool:
    """Return whether a module, or an object by its class, was loaded by a PackageImporter."""
    from types import ModuleType

    name = obj.__name__ if isinstance(obj, ModuleType) else type(obj).__module__
    return name.startswith("<torch_package_")
