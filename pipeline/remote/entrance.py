"""Entrance: a server's connections until their clients have shown who they are."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Callable

from pipeline.remote.messages import ClientMessage
from pipeline.remote.offer import Offer
from pipeline.remote.rate_limit import RateLimit
from pipeline.remote.session import FAREWELL_S, ServerSession, SessionLimits
from pipeline.remote.tls import NoTls, ServerTls
from pipeline.remote.wire import Wire, break_off, finish, peer_address

logger = logging.getLogger(__name__)


class Arrival:
    """A connection whose client has not shown yet who it is.

    Attributes
    ----------
    connection : socket
        Encrypted as soon as it is.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def break_off(self) -> None:
        """Let the client go, from another thread; the one that waits for it closes the connection."""
        break_off(self.connection)


class Entrance:
    """Lets clients in.

    Parameters
    ----------
    offer : Offer
        What their sessions may use.
    limits : SessionLimits
    tls : ServerTls, optional
        Without it connections are not encrypted, and all clients are let in.
    rate_limit : RateLimit, optional
        How often an address may try.
    """

    def __init__(
        self, offer: Offer, limits: SessionLimits, tls: ServerTls | None = None, rate_limit: RateLimit | None = None
    ) -> None:
        self._offer, self._limits, self._tls = offer, limits, tls
        self._rate_limit = rate_limit or RateLimit()

    def allows(self, address: str) -> bool:
        """Return whether an address may open another connection now."""
        return self._rate_limit.allows(address)

    def admit(self, arrival: Arrival) -> ServerSession | None:
        """Return the session of a client that has said and shown who it is; None if it was refused, and told so."""
        arrival.connection.settimeout(self._limits.greeting_s)
        peer = peer_address(arrival.connection)
        try:
            if self._tls is None:
                return self._greet(arrival)
            session = self._greet_encrypted(arrival, self._tls)
        except NoTls as error:
            session = None
            # In the client's own language.
            ServerSession(Wire(arrival.connection, ClientMessage), self._offer, self._limits).refuse(str(error))
            logger.warning("a client is refused: it does not speak TLS")
        except OSError as error:
            session = None
            if isinstance(error, ssl.SSLError):
                # It shall read the alert that says why.
                with contextlib.suppress(OSError):
                    finish(arrival.connection, FAREWELL_S)
            arrival.connection.close()
            # A client that is gone is nothing to report; one that fails to encrypt is.
            level = logging.WARNING if isinstance(error, ssl.SSLError) else logging.INFO
            logger.log(level, "a client could not be let in: %s", getattr(error, "reason", None) or error)
        if session is None and self._tls is not None:
            self._rate_limit.note_failure(peer)
        return session

    def _greet_encrypted(self, arrival: Arrival, tls: ServerTls) -> ServerSession | None:
        encrypted = tls.wrap(arrival.connection)
        # Before the handshake, which may have to be broken off.
        arrival.connection = encrypted
        encrypted.do_handshake()
        return self._greet(arrival, lambda token: tls.admits(encrypted, token))

    def _greet(self, arrival: Arrival, admits: Callable[[str], bool] = lambda _: True) -> ServerSession | None:
        session = ServerSession(Wire(arrival.connection, ClientMessage), self._offer, self._limits)
        return session if session.greet(admits) else None
