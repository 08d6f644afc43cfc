"""Server: lets clients run stages on this machine's devices."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable

from pipeline.errors import PipelineError
from pipeline.remote import messages
from pipeline.remote.messages import ClientMessage
from pipeline.remote.offer import Offer
from pipeline.remote.session import ServerSession, SessionLimits
from pipeline.remote.wire import Wire

logger = logging.getLogger(__name__)

LIMITS = SessionLimits()


class Server:
    """Listens for clients; each one that comes gets a session with a thread of its own.

    Parameters
    ----------
    host, port : str, int
        Where to listen; port 0 takes a free one.
    offer : Offer
        What the sessions may use.
    sessions : int
        How many there may be at once.  For a further client, one that has been silent for long makes room, first of
        the address that has most sessions; such a client begins anew with its next frame.  If there is none, the
        further client is told to come again.
    limits : SessionLimits
        How long clients may take.

    Attributes
    ----------
    port : int
        Where it listens.

    Raises
    ------
    PipelineError
        If it cannot listen there.
    """

    def __init__(
        self, host: str, port: int, offer: Offer, *, sessions: int = 32, limits: SessionLimits = LIMITS
    ) -> None:
        self._offer, self._max_sessions, self._limits = offer, sessions, limits
        self._sessions: dict[threading.Thread, ServerSession] = {}
        # Guards the sessions: the accepting thread adds them, each takes itself off, and `close` reads them.
        self._lock = threading.Lock()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            # The backlog holds as many as there are places: a crowd that comes at once after a restart is not refused.
            self._listener = socket.create_server((host, port), family=family, backlog=sessions)
        except OSError as error:
            raise PipelineError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; choose another port"
            ) from None
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self._is_closed = False

    def serve(self) -> None:
        """Take clients in until `close` is called, or until Ctrl-C."""
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if not self._is_closed:  # too many open files, for example
                    logger.warning("a client could not be let in: %s", error)
                    # Such a client stays in line, so that the next call would fail at once, and again, on a whole core.
                    time.sleep(0.1)
                continue
            self._begin(connection)

    def close(self) -> None:
        """Let all clients go and end all threads; a kernel that runs is not waited for longer than a second."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            # Closing alone would leave `accept` asleep in its thread.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            sessions = dict(self._sessions)
        # Without the lock, which each session needs to take itself off.
        for session in sessions.values():
            session.break_off()
        for thread in sessions:
            thread.join(1.0)
        self._offer.computing.close()

    @property
    def sessions(self) -> int:
        """Number of clients."""
        with self._lock:
            return len(self._sessions)

    def _begin(self, connection: socket.socket) -> None:
        try:
            wire: Wire[ClientMessage] = Wire(connection, ClientMessage)
        except OSError:  # it has gone already
            connection.close()
            return
        session = ServerSession(wire, self._offer, self._limits)
        with self._lock:
            clients = len(self._sessions)
            # Turning somebody away takes a thread for a moment, too: their number needs a bound of its own.
            if clients >= 2 * self._max_sessions:  # so many that there is not even time to tell them
                wire.close()
                return
            work = (
                session.serve if clients < self._max_sessions or self._make_room() else lambda: self._turn_away(session)
            )
            # A daemon: a kernel cannot be interrupted, and must not keep the server from ending.
            thread = threading.Thread(target=self._live, args=(work,), name="session", daemon=True)
            self._sessions[thread] = session
            # Under the lock: `close` joins what it finds, and a thread that has not started cannot be joined.
            thread.start()

    def _turn_away(self, session: ServerSession) -> None:
        session.refuse(f"this server already has {self._max_sessions} clients, and takes no more", messages.BusyAnswer)

    def _make_room(self) -> bool:
        """Let a silent client go; return whether there was one.  The caller holds the lock."""
        clock_s = time.monotonic()
        peers = Counter(session.peer for session in self._sessions.values())
        silent = [
            (peers[session.peer], clock_s - since, thread)
            for thread, session in self._sessions.items()
            if (since := session.silent_since) is not None and clock_s - since >= self._limits.idle_s
        ]
        if not silent:
            return False
        # Whoever has most sessions gives one up first, so that one address cannot crowd out the others.
        *_, thread = max(silent, key=lambda entry: entry[:2])
        # Its thread ends within a moment, and the session's place is free from now on.
        session = self._sessions.pop(thread)
        session.break_off()
        return True

    def _live(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            logger.exception("a session broke")
        finally:
            with self._lock:
                self._sessions.pop(threading.current_thread(), None)
