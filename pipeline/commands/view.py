"""The option ``--view`` of the commands that stream."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.commands import common
from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.scheduler.trace import Trace
    from pipeline.web import ViewServer


def argument(parser: argparse.ArgumentParser) -> None:
    """Add where to serve the view."""
    parser.add_argument(
        "--view",
        metavar="PORT",
        help="serve a page that shows what the stages do, on this machine's loopback address; 0 takes a free port and "
        "says which",
    )


@contextlib.contextmanager
def serving(port: str | None) -> Iterator[tuple[ViewServer | None, Trace | None]]:
    """Give the server of the page, and a trace for the pipelines that it shows; neither of them without `port`.

    Raises
    ------
    InputError
        If the port is none, or taken.
    """
    if port is None:
        yield None, None
        return
    if not port.isdecimal():
        raise InputError(f"--view is {port!r}; it must be a port, or 0 for one that is free")
    from pipeline.scheduler.trace import Trace
    from pipeline.web import ViewServer
    from pipeline.web.server import EVENTS

    with ViewServer(int(port)) as server:
        common.notice(f"view: {server.url}")
        yield server, Trace(EVENTS)
