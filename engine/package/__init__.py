"""torch.package: archives that carry a model together with the Python source that it needs.

`PackageExporter` writes them, `PackageImporter` loads their modules apart from those of the process, under names of its
own.  The source in such an archive is code: importing it runs it, as importing any package does.
"""

from __future__ import annotations

from .exporter import EmptyMatchError, PackageExporter, PackagingError
from .files import Directory, GlobGroup
from .importer import Importer, ObjMismatchError, ObjNotFoundError, OrderedImporter, PackageImporter, sys_importer

__all__ = [
    "Directory", "EmptyMatchError", "GlobGroup", "Importer", "ObjMismatchError", "ObjNotFoundError", "OrderedImporter",
    "PackageExporter", "PackageImporter", "PackagingError", "is_from_package", "sys_importer",
]  # fmt: skip


def is_from_package(obj: object) -> bool:
    """Whether a module, or an object by its class, was loaded by a PackageImporter."""
    from types import ModuleType

    name = obj.__name__ if isinstance(obj, ModuleType) else type(obj).__module__
    return name.startswith("<torch_package_")
