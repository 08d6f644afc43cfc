"""Option ``--view`` of streaming commands."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pipeline.commands.shared import console, values

if TYPE_CHECKING:
    from pipeline.observe.web import ViewServer
    from pipeline.scheduler.trace import Trace


def argument(parser: argparse.ArgumentParser) -> None:
    """Add where to serve the view."""
    parser.add_argument(
        "--view",
        metavar="PORT",
        type=values.port,
        help="serve a page that shows what the stages do and the last picture with its result, on this machine's "
        "loopback address; 0 takes a free port and says which",
    )


@contextlib.contextmanager
def serve_view(port: int | None) -> Iterator[tuple[ViewServer | None, Trace | None]]:
    """Yield the page's server and a trace, None without `port`; `InputError` if it is taken."""
    if port is None:
        yield None, None
        return
    from pipeline.observe.web import ViewServer
    from pipeline.observe.web.server import EVENTS
    from pipeline.scheduler.trace import Trace

    # Before the model is read: a port that is taken is found at once.
    with ViewServer(port) as server:
        console.notice(f"view: {server.url}")
        yield server, Trace(EVENTS)
