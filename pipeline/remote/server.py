"""Server: lets clients run stages on this machine's devices."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections import Counter

from pipeline.errors import PipelineError
from pipeline.remote import messages
from pipeline.remote.entrance import Arrival, Entrance
from pipeline.remote.offer import Offer
from pipeline.remote.rate_limit import RateLimit
from pipeline.remote.session import ServerSession, SessionLimits
from pipeline.remote.tls import ServerTls

logger = logging.getLogger(__name__)

LIMITS = SessionLimits()

MOST_ARRIVALS = 64
"""Unauthenticated clients at once; an honest one needs some milliseconds."""


class Server:
    """Listens for clients, with one session and thread per client; port 0 takes a free one.

    When `sessions` are at work, one that has been silent for long makes room for a further client, first of the address
    that has most sessions; such a client begins anew with its next frame. If there is none, the further client is told
    to come again. Without certificates everybody is let in. Raises `PipelineError` if it cannot listen there.
    """

    def __init__(  # noqa: PLR0913 - most by keyword
        self,
        host: str,
        port: int,
        offer: Offer,
        *,
        sessions: int = 32,
        limits: SessionLimits = LIMITS,
        tls: ServerTls | None = None,
        rate_limit: RateLimit | None = None,
    ) -> None:
        self._offer, self._max_sessions, self._limits = offer, sessions, limits
        self._entrance = Entrance(offer, limits, tls, rate_limit)
        # Clients that have not shown yet who they are, in the order in which they came.
        self._arrivals: dict[threading.Thread, Arrival] = {}
        self._sessions: dict[threading.Thread, ServerSession] = {}
        # Guards both: the accepting thread adds them, each takes itself off, and `close` reads them.
        self._lock = threading.Lock()
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            # A crowd that comes at once, after a restart or to do harm, waits here for some milliseconds: whoever finds
            # the backlog full tries again after a second.
            self._listener = socket.create_server((host, port), family=family, backlog=1024)
        except OSError as error:
            raise PipelineError(
                f"cannot listen at {host}:{port}: {error.strerror or error}; choose another port"
            ) from None
        self.host, self.port = host, int(self._listener.getsockname()[1])
        self._closing = threading.Event()

    def serve(self) -> None:
        """Accept clients until `close` or Ctrl-C."""
        # Who waits for longer stays in the system's line, which costs nothing.
        while not self._closing.wait(min(1.0, self._entrance.pause())):
            try:
                connection, address = self._listener.accept()
            except OSError as error:
                if not self._closing.is_set():  # too many open files, for example
                    logger.warning("a client could not be let in: %s", error)
                    # Such a client stays in line, so that the next call would fail at once, and again, on a whole core.
                    self._closing.wait(0.1)
                continue
            if self._entrance.allows(str(address[0])):
                self._begin(connection)
            else:
                logger.info("%s came too often, and is not let in for a while", address[0])
                connection.close()

    def close(self) -> None:
        """Drop all clients and end threads, waiting a second for kernels."""
        self._closing.set()
        with contextlib.suppress(OSError):
            # Closing alone would leave `accept` asleep in its thread.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            arrivals, sessions = dict(self._arrivals), dict(self._sessions)
        # Without the lock, which each session needs to take itself off.
        for arrival in arrivals.values():
            arrival.break_off()
        for session in sessions.values():
            session.break_off()
        for thread in (*arrivals, *sessions):
            thread.join(1.0)
        self._offer.computing.close()

    @property
    def sessions(self) -> int:
        """Number of clients."""
        with self._lock:
            return len(self._sessions)

    def _begin(self, connection: socket.socket) -> None:
        arrival = Arrival(connection)
        # A daemon: a kernel cannot be interrupted, and must not keep the server from ending.
        thread = threading.Thread(target=self._live, args=(arrival,), name="session", daemon=True)
        with self._lock:
            self._arrivals[thread] = arrival
            # Of those who do not get on with their handshakes, whoever came first has had the most time.
            if len(self._arrivals) > MOST_ARRIVALS:
                self._arrivals.pop(next(iter(self._arrivals))).break_off()
            # Under the lock: `close` joins what it finds, and a thread that has not started cannot be joined.
            thread.start()

    def _turn_away(self, session: ServerSession) -> None:
        session.refuse(f"this server already has {self._max_sessions} clients, and takes no more", messages.BusyAnswer)

    def _make_room(self) -> bool:
        """Drop a silent client; return success. The caller holds the lock."""
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

    def _live(self, arrival: Arrival) -> None:
        thread = threading.current_thread()
        try:
            session = self._entrance.admit(arrival)
            if session is None:
                return
            if self._find_place(thread, session):
                session.serve()
            else:
                self._turn_away(session)
        except Exception:
            logger.exception("a session broke")
        finally:
            with self._lock:
                self._arrivals.pop(thread, None)
                self._sessions.pop(thread, None)

    def _find_place(self, thread: threading.Thread, session: ServerSession) -> bool:
        """Reserve a session's place; return success."""
        with self._lock:
            has_place = not self._closing.is_set() and (len(self._sessions) < self._max_sessions or self._make_room())
            if has_place:
                self._arrivals.pop(thread, None)
                self._sessions[thread] = session
            return has_place
