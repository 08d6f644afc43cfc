"""Server: lets clients run stages on this machine's devices."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable

from pipeline.errors import PipelineError
from pipeline.remote.messages import Request
from pipeline.remote.offer import Offer
from pipeline.remote.session import Session
from pipeline.remote.wire import Wire

logger = logging.getLogger(__name__)


class Server:
    """Listens for clients; each one that comes gets a session with a thread of its own.

    Parameters
    ----------
    host, port : str, int
        Where to listen; port 0 takes a free one.
    offer : Offer
        What the sessions may use.
    sessions : int
        How many there may be at once; a further client is told so and let go.

    Attributes
    ----------
    port : int
        Where it listens.

    Raises
    ------
    PipelineError
        If it cannot listen there.
    """

    def __init__(self, host: str, port: int, offer: Offer, *, sessions: int = 32) -> None:
        self._offer, self._most = offer, sessions
        self._sessions: dict[threading.Thread, Wire[Request]] = {}
        self._lock = threading.Lock()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            self._listener = socket.create_server((host, port), family=family, backlog=sessions)
        except OSError as error:
            raise PipelineError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; choose another port"
            ) from None
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self._ended = False

    def serve(self) -> None:
        """Take clients in until `close` is called, or until Ctrl-C."""
        while not self._ended:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if not self._ended:  # too many open files, for example
                    logger.warning("a client could not be let in: %s", error)
                    time.sleep(0.1)
                continue
            self._begin(connection)

    def close(self) -> None:
        """Let all clients go and end all threads; a kernel that runs is not waited for longer than a second."""
        self._ended = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sessions = dict(self._sessions)
        for wire in sessions.values():
            wire.break_off()
        for thread in sessions:
            thread.join(1.0)
        self._offer.computing.close()

    @property
    def sessions(self) -> int:
        """How many clients there are."""
        with self._lock:
            return len(self._sessions)

    def _begin(self, connection: socket.socket) -> None:
        try:
            wire: Wire[Request] = Wire(connection, Request)
        except OSError:  # it has gone already
            connection.close()
            return
        session = Session(wire, self._offer)
        with self._lock:
            clients = len(self._sessions)
            if clients >= 2 * self._most:  # so many that there is not even time to tell them
                wire.close()
                return
            work = session.serve if clients < self._most else lambda: session.refuse(self._full)
            thread = threading.Thread(target=self._live, args=(work,), name="session", daemon=True)
            self._sessions[thread] = wire
            thread.start()

    @property
    def _full(self) -> str:
        return f"this server already has {self._most} clients, and takes no more"

    def _live(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            logger.exception("a session broke")
        finally:
            with self._lock:
                self._sessions.pop(threading.current_thread(), None)
