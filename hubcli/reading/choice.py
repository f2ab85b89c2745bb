"""The choice of the entrypoint: the one that was named, or the only one."""

from __future__ import annotations

import shlex

from hubcli.base import output
from hubcli.errors import UsageError
from hubcli.reading.hubconf import EntryPoint, HubConf

_SHOWN = 20


def entrypoint(
    conf: HubConf, name: str | None, spec: str, command: str, *, dynamic: bool = True, renewal: str | None = None
) -> str:
    """Return the name to call: `name` if there is one like it, else the only one of the repository's own.

    A name that is not in the source may still be made when hubconf.py runs (`dynamic`: it has not run).
    NotFoundError names what is like it, and `renewal`, how to get a newer copy; UsageError lists the choices.
    """
    if name is not None:
        if not (conf.dynamic and dynamic):
            conf.entrypoint(name, spec=spec, renewal=renewal)
        return name
    names = [one.name for one in conf.entrypoints if _is_published(one)] or [one.name for one in conf.entrypoints]
    if len(names) == 1 and not (conf.dynamic and dynamic):
        output.message(f"entrypoint: {names[0]}, the only one")
        return names[0]
    if not names:
        text = f"{spec} defines no entrypoint that can be read without running it"
        raise UsageError(text, hint=f"hub list {shlex.quote(spec)} --exec", spec=spec)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    raise UsageError(
        f"name an entrypoint of {spec}: {', '.join(names[:_SHOWN])}{more}",
        hint=f"e.g. hub {command} {shlex.quote(spec)} {names[0]}",
        spec=spec,
    )


def _is_published(entry: EntryPoint) -> bool:
    """Return whether the entrypoint is meant as one: not a class or a package's function that hubconf.py imports to
    use it."""
    return not entry.external and not (entry.source in ("import", "star") and entry.name[:1].isupper())
