"""Encrypted socket: TLS over a socket, in large blocks.

Python's own takes two calls of the system for each record of 16 kB, on both sides, and wakes the other side as often:
for 10 MB that is more than encrypting them.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from typing import Any

BLOCK = 1 << 18
"""Bytes that are encrypted, sent and received at once."""

_RECORD = (16 << 10) + 512
"""Bytes of a TLS record with its overhead: enough until large tensors come."""


class EncryptedSocket(socket.socket):
    """Socket with encryption by `encrypt` in front of sending.

    The connection belongs to this object from now on. Clients give the server's name in its certificate; without it
    this is the server's side.
    """

    def __init__(self, connection: socket.socket, context: ssl.SSLContext, server_hostname: str | None = None) -> None:
        limit = connection.gettimeout()
        super().__init__(connection.family, connection.type, connection.proto, connection.detach())
        self.settimeout(limit)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server_hostname is None, server_hostname=server_hostname
        )
        self._room = memoryview(bytearray(_RECORD))

    def do_handshake(self) -> None:
        """Agree on keys within the whole time limit.

        Raises `OSError` if that fails; the other side has been told why.
        """
        limit = self.gettimeout()
        deadline = float("inf") if limit is None else time.monotonic() + limit
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush()
            except ssl.SSLError:
                with contextlib.suppress(OSError):
                    self._flush()
                raise
            else:
                self._flush()
                return
            if time.monotonic() > deadline:
                raise TimeoutError("the other side is too slow")
            self._fetch()

    def encrypt(self, content: memoryview) -> memoryview:
        """Return the ciphertext of at most `BLOCK` bytes."""
        self._tls.write(content)
        return memoryview(self._outgoing.read())

    def receive_into(self, buffer: memoryview) -> int:
        """Decrypt bytes into a buffer and return their count, 0 at the end."""
        if buffer.nbytes > len(self._room):
            self._room = memoryview(bytearray(BLOCK))
        while True:
            try:
                count: Any = self._tls.read(buffer.nbytes, buffer)
                return int(count)
            except ssl.SSLWantReadError:  # noqa: PERF203 - most blocks have several records
                self._fetch()
            except ssl.SSLEOFError:
                return 0

    def pending(self) -> bool:
        """Test for received but unread bytes."""
        return bool(self._tls.pending() or self._incoming.pending)

    def peer_certificate(self) -> bytes | None:
        """Return the other side's certificate, if shown."""
        return self._tls.getpeercert(binary_form=True)

    def _flush(self) -> None:
        if self._outgoing.pending:
            self.sendall(self._outgoing.read())

    def _fetch(self) -> None:
        if count := self.recv_into(self._room):
            self._incoming.write(self._room[:count])
        else:
            self._incoming.write_eof()
