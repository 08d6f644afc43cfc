"""TLS in large blocks: what goes in comes out, whole blocks are encrypted at once, and ends and limits are seen."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.remote.encrypted_socket import BLOCK, EncryptedSocket

pytest.importorskip("cryptography", reason="the extra 'tls' is not installed")
from pipeline.remote.credentials import create_credentials

LIMIT = 60.0


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    folder: Path = tmp_path_factory.mktemp("keys") / "board"
    create_credentials(folder)
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    server.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.num_tickets = 0
    client.load_verify_locations(folder / "server.crt")
    return server, client


@pytest.fixture
def ends(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> Iterator[tuple[EncryptedSocket, EncryptedSocket]]:
    server, client = contexts
    here, there = socket.socketpair()
    for end in (here, there):
        end.settimeout(LIMIT)
    with EncryptedSocket(here, server) as ours, EncryptedSocket(there, client, "localhost") as theirs:
        thread = threading.Thread(target=ours.do_handshake)
        thread.start()
        theirs.do_handshake()
        thread.join(LIMIT)
        yield ours, theirs


def receive(end: EncryptedSocket, nbytes: int) -> bytes:
    buffer = memoryview(bytearray(nbytes))
    rest = buffer
    while rest.nbytes and (count := end.receive_into(rest)):
        rest = rest[count:]
    return bytes(buffer[: nbytes - rest.nbytes])


def test_a_block_is_encrypted_at_once_and_arrives(ends: tuple[EncryptedSocket, EncryptedSocket]) -> None:
    """Each record of 16 kB was a call of the system, on both sides: 10 MB took five times as long as plain."""
    ours, theirs = ends
    content = bytes(range(256)) * (BLOCK // 256)
    encrypted = ours.encrypt(memoryview(content))
    assert encrypted.nbytes > BLOCK
    assert content[:64] not in bytes(encrypted)
    thread = threading.Thread(target=ours.sendall, args=(encrypted,))
    thread.start()
    assert receive(theirs, BLOCK) == content
    thread.join(LIMIT)


def test_what_was_received_and_not_read_is_pending_and_the_end_is_seen(
    ends: tuple[EncryptedSocket, EncryptedSocket],
) -> None:
    ours, theirs = ends
    ours.sendall(ours.encrypt(memoryview(b"abcdef")))
    assert not theirs.pending()
    assert receive(theirs, 2) == b"ab"
    assert theirs.pending()
    ours.close()
    assert receive(theirs, 100) == b"cdef"
    assert not theirs.pending()
    assert receive(theirs, 1) == b""


def test_a_damaged_record_is_refused(ends: tuple[EncryptedSocket, EncryptedSocket]) -> None:
    ours, theirs = ends
    damaged = bytearray(ours.encrypt(memoryview(b"abcdef")))
    damaged[-1] ^= 1
    ours.sendall(damaged)
    with pytest.raises(ssl.SSLError):
        receive(theirs, 6)


def test_a_handshake_has_a_time_limit(contexts: tuple[ssl.SSLContext, ssl.SSLContext]) -> None:
    here, there = socket.socketpair()
    here.settimeout(0.05)
    with contextlib.closing(there), EncryptedSocket(here, contexts[0]) as ours, pytest.raises(TimeoutError):
        ours.do_handshake()
