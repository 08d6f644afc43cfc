"""Entry points: additions of other packages, by name."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.errors import BoardError, reason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def entry_names(group: str) -> tuple[str, ...]:
    """Return the names in a group of installed packages, sorted."""
    return tuple(_entries(group, tuple(sys.path)))


def entry_owner(group: str, name: str) -> str:
    """Return package and version of an entry point, or ""."""
    owners = _entries(group, tuple(sys.path)).get(name, ())
    return ", ".join(map(_owner, owners))


def load_entry(group: str, name: str) -> Any:
    """Import an entry point's object; None without one.

    Raises `BoardError` if it cannot be imported, or two packages have one of this name; the message names the packages.
    """
    candidates = _entries(group, tuple(sys.path)).get(name, ())
    if not candidates:
        return None
    title = f"{name!r} of the entry points {group!r}"
    if len(candidates) > 1:
        raise BoardError(f"{title} is in several packages: {', '.join(map(_owner, candidates))}; uninstall all but one")
    (entry,) = candidates
    try:
        return entry.load()
    # Whatever the code of others may raise on import.
    except Exception as error:
        raise BoardError(f"{title}, in the package {_owner(entry)}, cannot be imported: {reason(error)}") from error


# By the search path: a program that extends it has other packages afterwards.
@functools.lru_cache(maxsize=16)
def _entries(group: str, path: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:  # noqa: ARG001 - the key
    from importlib.metadata import entry_points

    entries = sorted(entry_points(group=group), key=lambda entry: (entry.name, _owner(entry)))
    names = dict.fromkeys(entry.name for entry in entries)
    return {name: tuple(entry for entry in entries if entry.name == name) for name in names}


def _owner(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value
