"""Entrance: a server's connections before authentication."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable

from pipeline.remote.messages import ClientMessage
from pipeline.remote.offer import Offer
from pipeline.remote.rate_limit import RateLimit, RefusalLog
from pipeline.remote.session import FAREWELL_S, ServerSession, SessionLimits
from pipeline.remote.tls import NoTls, ServerTls
from pipeline.remote.wire import MOST_DISCARDED, Wire, break_off, finish, peer_address

logger = logging.getLogger(__name__)

ARRIVAL_S = 1e-3
"""Seconds of a core for accepting a client, starting its thread, and letting others wait for it."""


SHARE = 0.1
"""Seconds of a core in a second. Admitted clients lack what strangers cost."""

BURST_S = 0.1
"""Seconds of a burst, for some dozens who come together. They hold up all others meanwhile."""


class Arrival:
    """Connection of an unauthenticated client, encrypted as soon as it is."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.peer = connection, peer_address(connection)

    def break_off(self) -> None:
        """Drop the client from another thread; the waiting one closes it."""
        break_off(self.connection)


class Entrance:
    """Lets clients in.

    Without certificates connections are not encrypted, and all clients are let in.
    """

    def __init__(
        self, offer: Offer, limits: SessionLimits, tls: ServerTls | None = None, rate_limit: RateLimit | None = None
    ) -> None:
        self._offer, self._limits, self._tls = offer, limits, tls
        self._rate_limit = rate_limit or RateLimit()
        self._refusals, self._budget = RefusalLog(), StrangerBudget()

    def allows(self, address: str) -> bool:
        """Test if an address may open another connection now."""
        return self._rate_limit.allows(address)

    def pause(self) -> float:
        """Return the seconds of closed doors, after strangers cost too much."""
        return self._budget.pause()

    def admit(self, arrival: Arrival) -> ServerSession | None:
        """Return an authenticated client's session; None after telling a refusal."""
        begin_s = time.thread_time()
        session = self._try_admit(arrival)
        if session is None:
            # With what it took to take it in, and to start this thread.
            self._budget.spend(time.thread_time() - begin_s + ARRIVAL_S)
            if self._tls is not None:
                self._rate_limit.note_failure(arrival.peer)
        return session

    def _try_admit(self, arrival: Arrival) -> ServerSession | None:
        arrival.connection.settimeout(self._limits.greeting_s)
        try:
            return self._greet(arrival) if self._tls is None else self._greet_encrypted(arrival, self._tls)
        except NoTls as error:
            self._refusals.note(arrival.peer, "it does not speak TLS")
            # In the client's own language.
            self._session(arrival).refuse(str(error))
        except OSError as error:
            if isinstance(error, ssl.SSLError):
                self._refusals.note(arrival.peer, error.reason or str(error))
                # It shall read the alert that says why.
                with contextlib.suppress(OSError):
                    finish(arrival.connection, FAREWELL_S, MOST_DISCARDED)
            else:
                # A client that is gone is nothing to report.
                logger.info("a client could not be let in: %s", error)
            arrival.connection.close()
        return None

    def _greet_encrypted(self, arrival: Arrival, tls: ServerTls) -> ServerSession | None:
        encrypted = tls.wrap(arrival.connection)
        # Before the handshake, which may have to be broken off.
        arrival.connection = encrypted
        encrypted.do_handshake()
        return self._greet(arrival, lambda token: tls.admits(encrypted, token))

    def _greet(self, arrival: Arrival, admits: Callable[[str], bool] = lambda _: True) -> ServerSession | None:
        session = self._session(arrival)
        return session if session.greet(admits) else None

    def _session(self, arrival: Arrival) -> ServerSession:
        return ServerSession(Wire(arrival.connection, ClientMessage), self._offer, self._limits, self._refusals)


class StrangerBudget:
    """Bucket of seconds, refilled with time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._level_s, self._since_s = BURST_S, clock()
        self._lock = threading.Lock()

    def spend(self, seconds: float) -> None:
        """Take the time of one client out of it."""
        with self._lock:
            clock_s = self._clock()
            self._level_s = min(BURST_S, self._level_s + SHARE * (clock_s - self._since_s)) - seconds
            self._since_s = clock_s

    def pause(self) -> float:
        """Return the seconds of closed doors."""
        self.spend(0.0)
        return max(0.0, -self._level_s / SHARE)
