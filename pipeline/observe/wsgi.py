"""WsgiServer: answers single loopback requests despite silent or foreign clients."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from pipeline.observe.local_server import ADDRESS, is_local_name

logger = logging.getLogger(__name__)

# Prometheus needs one, a browser some.
CONNECTIONS = 16
"""Connections at once. One more takes the place of the oldest, which has most likely nothing to say."""

IDLE_S = 10.0
"""Seconds of silence of a client."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class WsgiServer(WSGIServer):
    """Serves local clients, with a thread per connection and few connections.

    Port 0 takes one that is free. A connection that is silent for `idle_s` seconds is closed.
    """

    def __init__(
        self, application: Application, port: int, *, connections: int = CONNECTIONS, idle_s: float = IDLE_S
    ) -> None:
        self._connections, self._idle_s = connections, idle_s
        # In the order in which they came; only the serving thread changes it, and `end` after that.
        self._clients: dict[threading.Thread, socket.socket] = {}
        super().__init__((ADDRESS, port), _Handler)
        self.set_app(_guard(application))

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of the connection's own."""
        # Only here: who has left in the meantime costs nothing until somebody comes.
        self._clients = {thread: client for thread, client in self._clients.items() if thread.is_alive()}
        if len(self._clients) >= self._connections:
            self._cut(next(iter(self._clients)))
        # Else a client that connects and says nothing would have its thread for ever.
        request.settimeout(self._idle_s)
        thread = threading.Thread(target=self._answer, args=(request, client_address), name="metrics", daemon=True)
        self._clients[thread] = request
        thread.start()

    def _answer(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception as error:  # noqa: BLE001 - of one client, whatever it is
            logger.debug("a client was not answered: %r", error)
        finally:
            self.shutdown_request(request)

    def _cut(self, thread: threading.Thread) -> None:
        """Cut a client's connection and wait for its thread."""
        with contextlib.suppress(OSError):  # the client was faster
            self._clients[thread].shutdown(socket.SHUT_RDWR)
        thread.join()
        del self._clients[thread]

    def end(self) -> None:
        """Stop answering and close all connections."""
        # No new clients; then the port; then those that are still there.
        self.shutdown()
        self.server_close()
        for thread in list(self._clients):
            self._cut(thread)


# Requests are not for the terminal of whoever runs the pipeline.
class _Handler(WSGIRequestHandler):
    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _guard(application: Application) -> Application:
    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # A foreign page could have its own name point here, and then read what is served.
        if is_local_name(environ.get("HTTP_HOST", "")):
            return application(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"403 Ask for http://127.0.0.1 or http://localhost\n"]

    return answer
