"""Kinds of devices for the time of a test, added as another package adds them: by an entry point."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipeline.core.board.device_kinds import GROUP, DeviceKind
from tests.support.distributions import write_distribution

_KINDS: dict[str, DeviceKind] = {}


def __getattr__(name: str) -> DeviceKind:
    """Return an added kind: the entry points are attributes of this module."""
    try:
        return _KINDS[name]
    except KeyError:
        raise AttributeError(name) from None


@contextmanager
def added_kind(kind: DeviceKind) -> Iterator[None]:
    """Have a kind of device."""
    with tempfile.TemporaryDirectory() as folder:
        write_distribution(Path(folder), f"added_{kind.name}", "", {GROUP: {kind.name: f"{__name__}:{kind.name}"}})
        _KINDS[kind.name] = kind
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)
            del _KINDS[kind.name]
