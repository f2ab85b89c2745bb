"""Pull, inspect and run models that git repositories publish in a `hubconf.py`.

The functions are torch.hub's, by name and meaning; nothing heavy is imported before one is used.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from hubcli.base.version import __version__

if TYPE_CHECKING:
    from hubcli.torch_hub import (
        download_url_to_file,
        get_dir,
        help,
        list,
        load,
        load_state_dict_from_url,
        pull,
        set_dir,
    )
else:

    def __getattr__(name: str) -> Any:
        if name in __all__:
            from hubcli import torch_hub

            return getattr(torch_hub, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "__version__",
    "download_url_to_file",
    "get_dir",
    "help",
    "list",
    "load",
    "load_state_dict_from_url",
    "pull",
    "set_dir",
]


def __dir__() -> builtins.list[str]:
    return sorted(__all__)
