"""Wire: messages over a stream socket, bounded before allocation.

A message is a magic number, the length of its head, the head in MessagePack, and what the head says follows: tensors
or a file.  They are sent from and received into their own memory, without another copy.
"""

from __future__ import annotations

import contextlib
import math
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from pipeline.remote.encrypted_socket import BLOCK, EncryptedSocket
from pipeline.remote.messages import ClientMessage, ServerMessage
from pipeline.system import forks

# Whoever speaks something else, a browser say, is recognised by its first four bytes, before any length is believed.
MAGIC = b"SoC1"
# Eight bytes from anybody make the receiver allocate a head: this is the most that they can ask for.
LARGEST_HEAD = 4 << 20
"""Bytes; a stage with thousands of parameters has a tenth of it."""

LARGEST_GREETING = 8 << 10
"""Upper bound on a greeting's head in bytes, all that a stranger may send. A token has some dozens."""

MOST_DISCARDED = 1 << 16
"""Bytes of a stranger in vain before it is dropped."""

# Below that, no link is worth sending frames over: who is slower dawdles on purpose, and keeps others out.
SLOWEST = 10_000
"""Bytes per second; who sends or takes fewer for longer than the time limit is let go."""

_PRELUDE = struct.Struct("!4sI")
_RECORD = 16 << 10
"""Largest TLS record in bytes, by its standard."""

_HANDSHAKE = b"\x16\x03"
"""First bytes of TLS."""

_AT_ONCE = 512
"""Buffers per system call; every system takes more."""

Message = TypeVar("Message")


class MalformedMessage(ValueError):
    """Raised on a malformed or unexpected message; the connection is unusable."""


class Wire(Generic[Message]):
    """One end of a connection, which belongs to this object from now on.

    Messages of type `incoming` may come, such as `ClientMessage` or `ServerMessage`. Every call raises `OSError` if the
    other side has gone, or the time limit has passed; `MalformedMessage` if a received message is not one of this
    protocol.
    """

    def __init__(self, connection: socket.socket, incoming: Any, largest_head: int = LARGEST_HEAD) -> None:
        self._socket = connection
        encrypted = connection if isinstance(connection, EncryptedSocket) else None
        self._receive_into = connection.recv_into if encrypted is None else encrypted.receive_into
        self.expect(incoming, largest_head)
        _prepare(connection)
        forks.watch(self)

    def expect(self, incoming: Any, largest_head: int = LARGEST_HEAD) -> None:
        """Let other messages come from now on."""
        self._decoder = msgspec.msgpack.Decoder(incoming)
        self._largest_head = largest_head

    def after_fork(self) -> None:
        """Close the forked process's end, invisibly to the other side."""
        self._socket.close()

    def limit(self, seconds: float | None) -> None:
        """Limit later calls: progress within `seconds`, at `SLOWEST` overall; None lifts it."""
        self._socket.settimeout(seconds)

    def send(self, message: Any, buffers: Sequence[memoryview] = ()) -> None:
        """Send a message with its buffers."""
        head = msgspec.msgpack.encode(message)
        chunks = [memoryview(_PRELUDE.pack(MAGIC, len(head)) + head), *(buffer for buffer in buffers if buffer.nbytes)]
        # One deadline for the whole message: a time limit of the socket begins anew with each byte.
        deadline = self._deadline(sum(chunk.nbytes for chunk in chunks))
        while chunks:
            _check(deadline)
            count = self._send_some(chunks, deadline)
            # The system may take any number of bytes: whole pieces go, and the last one is shortened.
            while chunks and count >= chunks[0].nbytes:
                count -= chunks.pop(0).nbytes
            if count:
                chunks[0] = chunks[0][count:]

    def _send_some(self, chunks: Sequence[memoryview], deadline: float) -> int:
        """Return the number of bytes sent from the first chunks."""
        if not isinstance(self._socket, EncryptedSocket):
            return self._socket.sendmsg(chunks[:_AT_ONCE])
        block = chunks[0][:BLOCK]
        # One record for what fits into one: each costs a checksum, and a call.
        if len(chunks) > 1 and block.nbytes + chunks[1].nbytes <= _RECORD:
            block = memoryview(b"".join(chunks[:2]))
        encrypted = self._socket.encrypt(block)
        while encrypted.nbytes:
            _check(deadline)
            encrypted = encrypted[self._socket.send(encrypted) :]
        return block.nbytes

    def receive(self) -> Message:
        """Return the next message, with `fill` for its buffers."""
        prelude = bytearray(_PRELUDE.size)
        self.fill(memoryview(prelude))
        magic, nbytes = _PRELUDE.unpack(prelude)
        if magic[:2] == _HANDSHAKE:
            raise MalformedMessage("the other side speaks TLS, and this one does not; start the server with --tls")
        if magic != MAGIC:
            raise MalformedMessage(f"what came begins with {bytes(magic)!r}, and is no message of this version")
        if nbytes > self._largest_head:
            raise MalformedMessage(
                f"the head of a message has {nbytes} bytes; at most {self._largest_head} are allowed"
            )
        # Memory for it only now, when its size is known to be bounded.
        head = bytearray(nbytes)
        self.fill(memoryview(head))
        try:
            message: Message = self._decoder.decode(head)
        except (ValueError, RecursionError) as error:  # also what the values themselves refuse
            raise MalformedMessage(f"a message is not valid: {error}") from None
        return message

    def fill(self, buffer: memoryview) -> None:
        """Receive exactly as many bytes as `buffer` has."""
        deadline = self._deadline(buffer.nbytes)
        while buffer.nbytes:
            _check(deadline)
            # Straight into the array that the kernel reads: no copy, and never more than the message says.
            if not (count := self._receive_into(buffer)):
                raise ConnectionResetError("the other side has closed the connection")
            buffer = buffer[count:]

    def _deadline(self, nbytes: int) -> float:
        limit = self._socket.gettimeout()
        return math.inf if limit is None else time.monotonic() + limit + nbytes / SLOWEST

    def wait(self) -> None:
        """Wait for input or the end, without a time limit."""
        # A client may pause between frames for as long as it likes: the server's room for others is
        # `Server._make_room`'s matter, and TCP's own probes find dead machines.
        self._has_arrived(None)

    @property
    def peer(self) -> str:
        """Address of the other side without port, if any."""
        return peer_address(self._socket)

    def quiet(self) -> bool:
        """Return True without any input, even the end."""
        return not self._has_arrived(0)

    def _has_arrived(self, timeout_ms: int | None) -> bool:
        # Of a block that has been received, some may be left.
        if isinstance(self._socket, EncryptedSocket) and self._socket.pending():
            return True
        # `poll`, since `select` fails on descriptors above 1023, which a program with many files has.
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(timeout_ms))

    def finish(self, seconds: float, most_bytes: float = math.inf) -> None:
        """Announce the end, giving the other side time to notice."""
        finish(self._socket, seconds, most_bytes)

    def break_off(self) -> None:
        """End all waiting calls, in any thread."""
        break_off(self._socket)

    def close(self) -> None:
        """Give the connection up."""
        self.break_off()
        self._socket.close()


def blocks(wire: Wire[ClientMessage] | Wire[ServerMessage], nbytes: int, size: int = 1 << 20) -> Iterator[memoryview]:
    """Yield a message's bytes in blocks, valid until the next."""
    room = memoryview(bytearray(min(nbytes, size)))
    while nbytes:
        block = room[: min(nbytes, size)]
        wire.fill(block)
        nbytes -= block.nbytes
        yield block


def peer_address(connection: socket.socket) -> str:
    """Return the other side's address without port, empty if gone."""
    try:
        name = connection.getpeername()
    except OSError:
        return ""
    return str(name[0]) if isinstance(name, tuple) else ""


def is_loopback(address: str) -> bool:
    """Test for an address of this machine; tunnels may lead elsewhere."""
    return address.startswith("127.") or address in {"::1", "::ffff:127.0.0.1"}


def break_off(connection: socket.socket) -> None:
    """End all calls waiting for a connection; closing alone wakes none."""
    with contextlib.suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)


def finish(connection: socket.socket, seconds: float, most_bytes: float = math.inf) -> None:
    """Send an end, then discard input until the other's, within limits.

    Were the connection closed with something unread in it, the system would throw away also what was sent last.
    """
    connection.shutdown(socket.SHUT_WR)
    connection.settimeout(seconds)
    deadline, scratch = time.monotonic() + seconds, bytearray(1 << 16)
    while most_bytes > 0 and time.monotonic() < deadline:
        # Of an encrypted connection as it comes: what nobody reads need not be decrypted.
        if not (count := connection.recv_into(scratch)):
            return
        most_bytes -= count


@contextlib.contextmanager
def closing_on_error(connection: socket.socket) -> Iterator[None]:
    """Close a connection if something goes wrong with it."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _check(deadline: float) -> None:
    # Who sends a byte now and then makes progress, and would never end.
    if time.monotonic() > deadline:
        raise TimeoutError("the other side is too slow")


def _prepare(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if connection.family == getattr(socket, "AF_UNIX", None):
        return
    # A message is complete when it is sent: nothing is gained by waiting for more.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A machine that has lost its power does not say goodbye: the system asks for it, and notices within half a minute.
    for option, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
