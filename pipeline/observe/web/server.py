"""Live view: a local browser page on a running pipeline."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any, Protocol

from pipeline.observe.local_server import ADDRESS, LoopbackServer, listen
from pipeline.observe.web.feed import Feed
from pipeline.observe.web.update import DrawFrame, Rgb, WatchedPipeline
from pipeline.scheduler.pipeline import Pipeline
from pipeline.system.optional import require

EVENTS = 20_000
"""Events of a trace for the timeline."""

PURPOSE = "the live view"


class Watched(Protocol):
    """Work under observation, such as a pipeline or an application."""

    def update(self) -> Any:
        """Return what the page shows now, as plain values."""

    def close(self) -> object:
        """Observe no longer."""


class ViewServer(LoopbackServer):
    """Serves the page at `url` until closed, idle without readers.

    Port 0 takes one that is free.
    """

    def __init__(self, port: int = 0) -> None:
        super().__init__()
        require("tornado", "web", PURPOSE)
        self._watched: Watched | None = None
        listening = listen("the view", port, lambda: socket.create_server((ADDRESS, port)))
        listening.setblocking(False)  # else the loop would wait for one reader, and for nothing but that
        self.port: int = listening.getsockname()[1]
        self._server_loop = _ServerLoop(listening)
        self._start(self._server_loop.run, "live view")
        # Else a `close` that follows at once would find no loop to stop.
        self._server_loop.ready.wait()

    @property
    def url(self) -> str:
        """Address to open in a browser."""
        return f"http://{ADDRESS}:{self.port}/"

    def show(self, running: Pipeline, rgb: Rgb | None = None, draw: DrawFrame | None = None) -> None:
        """Show another pipeline from now on; `rgb` and `draw` as for `serve`."""
        self.watch(WatchedPipeline(running, rgb, draw))

    def watch(self, watched: Watched) -> None:
        """Show something else from now on, such as a `pipeline.app.app_view.AppView`."""
        with self._lock:
            previous, self._watched = self._watched, watched
            self._server_loop.watched = watched
        if previous is not None:
            previous.close()

    def close(self) -> None:
        """Stop serving after a last update; repeatable."""
        super().close()
        # Only now, so that the last update shows the pipeline still.
        with self._lock:
            watched, self._watched = self._watched, None
        if watched is not None:
            watched.close()

    def _stop(self) -> None:
        self._server_loop.stop()


def serve(running: Pipeline, port: int = 0, *, rgb: Rgb | None = None, draw: DrawFrame | None = None) -> ViewServer:
    """Serve a page on a pipeline at the loopback address.

    Raises `InputError` if the port is taken, not allowed, or none; `MissingExtra` if Tornado is not installed.

    Parameters
    ----------
    running : Pipeline
        Pipeline, which may also be closed before the server is: then its last work is shown.  The page has a timeline
        if the pipeline has a trace, such as ``pipeline.load("model.bundle", trace=pipeline.Trace(20_000))``.
    port : int
        0 takes one that is free; the result's ``port`` says which.
    rgb : callable, optional
        Turns the first input into RGB [height, width, 3], where it comes in a camera's own format.
    draw : callable, optional
        Called with a frame's metadata, inputs and outputs; returns a JPEG of its picture with the result, or None, and
        the result as a line of text.

    Returns
    -------
    ViewServer
        A context manager, that stops serving.

    Examples
    --------
    >>> with pipeline.load("model.bundle") as running, web.serve(running, 8080) as server:  # doctest: +SKIP
    ...     print(server.url)
    """
    server = ViewServer(port)
    server.show(running, rgb, draw)
    return server


class _ServerLoop:
    """The event loop of the server's thread."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.ready = threading.Event()
        self.watched: Watched | None = None

    def run(self) -> None:
        """Serve until `stop`."""
        asyncio.run(self._serve())

    def stop(self) -> None:
        """Let `run` come to its end; from another thread."""
        self._loop.call_soon_threadsafe(self._stopping.set)

    async def _serve(self) -> None:
        from tornado.httpserver import HTTPServer

        from pipeline.observe.web.site import application

        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        feed = Feed(self._read)
        server = HTTPServer(application(feed))
        server.add_socket(self._listening)
        updates = asyncio.create_task(feed.run())
        # Not before: `stop` needs the loop, and a browser the handlers.
        self.ready.set()
        await self._stopping.wait()
        # Before the last update is made, so that none comes behind it.
        updates.cancel()
        server.stop()
        await feed.end()
        # Also of readers that do not take what is sent to them.
        await server.close_all_connections()

    def _read(self) -> Any:
        return None if self.watched is None else self.watched.update()
