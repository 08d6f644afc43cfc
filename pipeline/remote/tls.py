"""TLS: both ends of an encrypted connection, with their authentication.

The files of a server and those of its clients lie in folders of their own:

=============== ====== ====== ==========================================================
file            server client content
=============== ====== ====== ==========================================================
``server.crt``  yes    yes    the server's certificate; for clients, what they believe
``server.key``  yes    no     its private key
``token``       may    may    a word that clients show
``clients.crt`` may    no     who signs the certificates that clients show
``client.crt``  no     may    a client's certificate
``client.key``  no     may    its private key
=============== ====== ====== ==========================================================

A client is let in with the token, or with a certificate.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import socket
import ssl
import stat
from pathlib import Path

from pipeline.errors import InputError
from pipeline.remote.encrypted_socket import EncryptedSocket

logger = logging.getLogger(__name__)

SERVER_CERTIFICATE, SERVER_KEY, TOKEN = "server.crt", "server.key", "token"
CLIENT_AUTHORITY, CLIENT_CERTIFICATE, CLIENT_KEY = "clients.crt", "client.crt", "client.key"

SHORTEST_TOKEN = 16
"""Characters; a shorter one can be guessed."""

_EXPIRED = 10
"""Code of OpenSSL, X509_V_ERR_CERT_HAS_EXPIRED."""

_ALL = stat.S_IROTH | stat.S_IWOTH
"""Rights of everybody; a group may be that of a service."""

_HANDSHAKE = 0x16
"""First byte of whoever speaks TLS (RFC 8446, 5.1)."""


class NoTls(ConnectionError):
    """Raised when a client speaks no TLS to a TLS server."""


class ServerTls:
    """The server's end.

    Raises `InputError` if a file is missing or wrong, or there is nothing that clients could show.
    """

    def __init__(self, folder: Path) -> None:
        self._context = _new_context(ssl.PROTOCOL_TLS_SERVER)
        # A client begins each session anew: nothing to resume, and nothing that arrives behind the handshake.
        self._context.num_tickets = 0
        _load_pair(self._context, folder / SERVER_CERTIFICATE, folder / SERVER_KEY)
        _check_validity(self._context, folder / SERVER_CERTIFICATE)
        authority = folder / CLIENT_AUTHORITY
        self._token = read_token(folder / TOKEN) if (folder / TOKEN).exists() else ""
        if authority.exists():
            # Those without one may have the token.
            self._context.verify_mode = ssl.CERT_OPTIONAL if self._token else ssl.CERT_REQUIRED
            _load_authority(self._context, authority)
        elif not self._token:
            raise InputError(
                f"{str(folder)!r} has neither {TOKEN!r} nor {CLIENT_AUTHORITY!r}, so that no client could be told from "
                "others; make one with 'soc-pipeline serve --init-tls DIR'"
            )

    def wrap(self, connection: socket.socket) -> EncryptedSocket:
        """Return the encrypted connection before its handshake.

        Raises `NoTls` if the client speaks something else, of which nothing has been read; `OSError` if it has gone, or
        says nothing within the connection's time limit.
        """
        first = connection.recv(1, socket.MSG_PEEK)
        if first and first[0] != _HANDSHAKE:
            raise NoTls("this server speaks TLS; add '?tls=DIR' to its address, with the folder of its certificate")
        return EncryptedSocket(connection, self._context)

    def admits(self, connection: EncryptedSocket, token: str) -> bool:
        """Test if a client has authenticated itself."""
        # What is not signed by the authority has not come through the handshake.
        if connection.peer_certificate():
            return True
        # In a time that does not tell how much of it is right; empty tokens are nobody's.
        return bool(self._token) and hmac.compare_digest(token.encode(), self._token.encode())


class ClientTls:
    """The client's end, with the token that it shows, if it has one.

    Raises `InputError` if a file is missing or wrong.
    """

    def __init__(self, folder: Path) -> None:
        self._context = _new_context(ssl.PROTOCOL_TLS_CLIENT)
        _load_authority(self._context, folder / SERVER_CERTIFICATE)
        if (folder / CLIENT_CERTIFICATE).exists():
            _load_pair(self._context, folder / CLIENT_CERTIFICATE, folder / CLIENT_KEY)
        self.token = read_token(folder / TOKEN) if (folder / TOKEN).exists() else ""

    def connect(self, connection: socket.socket, host: str) -> EncryptedSocket:
        """Return the encrypted connection with a server certified as `host`.

        Raises `OSError` if the handshake fails; see `describe_error`.
        """
        encrypted = EncryptedSocket(connection, self._context, host)
        try:
            encrypted.do_handshake()
        except BaseException:
            encrypted.close()
            raise
        return encrypted


def describe_error(error: ssl.SSLError) -> str:
    """Explain a failed handshake, or first answer, to a client."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not believed: {error.verify_message}"
    reason = error.reason or str(error)
    if "ALERT" in reason:
        detail = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return f"the server does not take this client's certificate ({detail}); see docs/remote.md"
    return "the server does not speak TLS; leave out 'tls' in its address, or start it with --tls"


def read_token(path: Path) -> str:
    """Return the token in a file, or raise `InputError`."""
    _check_secret(path)
    try:
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the token in {str(path)!r}: {error}") from None
    if len(token) < SHORTEST_TOKEN:
        raise InputError(f"the token in {str(path)!r} has {len(token)} characters; {SHORTEST_TOKEN} are the least")
    return token


def _new_context(side: int) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    # Both ends are this project's own, so that nothing older has to be spoken.
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _load_pair(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    for path in (certificate, key):
        _check_readable(path)
    _check_secret(key)
    try:
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        raise InputError(f"{str(certificate)!r} and {str(key)!r} are no certificate with its key: {error}") from None


def _check_validity(context: ssl.SSLContext, certificate: Path) -> None:
    """Raise `InputError` for an expired server certificate, as clients see it."""
    client = _new_context(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    # Whoever signed it: in this check the certificate itself is believed.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    outgoing, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, outgoing), context.wrap_bio(outgoing, back, server_side=True)
    try:
        for end in (*ends, ends[0]):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    except ssl.SSLCertVerificationError as error:
        message = f"{str(certificate)!r}: {error.verify_message}"
        if error.verify_code != _EXPIRED:
            # The clock of a board without a battery is wrong until it hears the time.
            logger.warning("%s; look at the clock of this machine", message)
            return
        raise InputError(f"{message}; 'soc-pipeline serve --init-tls DIR' makes a new one") from None


def _check_secret(path: Path) -> None:
    """Raise `InputError` for a file accessible to everybody."""
    # Of Windows the bits tell nothing. A missing file is for others to name.
    if os.name == "posix" and path.exists() and stat.S_IMODE(path.stat().st_mode) & _ALL:
        raise InputError(
            f"everybody on this machine may read {str(path)!r}, or change it; 'chmod 600 {path}' keeps it to its owner"
        )


def _load_authority(context: ssl.SSLContext, certificate: Path) -> None:
    _check_readable(certificate)
    try:
        context.load_verify_locations(certificate)
    except ssl.SSLError as error:
        raise InputError(f"{str(certificate)!r} is no certificate: {error}") from None


def _check_readable(path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {str(path)!r}: {error.strerror}; 'soc-pipeline serve --init-tls DIR' makes all files"
        ) from None
