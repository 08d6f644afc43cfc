"""TVM's tracker: its servers, and a free one."""

from __future__ import annotations

import contextlib
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

from pipeline.core.remote_address import Address
from pipeline.errors import DeviceLost
from pipeline.remote.connection import why

LARGEST_ANSWER = 1 << 16
"""Bytes of a tracker's answer."""

_TRACKER_MAGIC = 0x2F271
_REQUEST, _SUMMARY, _SUCCESS = 4, 6, 0


def take_server(address: Address) -> tuple[str, int, str]:
    """Ask TVM's tracker for a free server; it answers only then."""
    try:
        return _server(_ask_tracker(address, [_REQUEST, address.key, "", 1]))
    except TimeoutError:
        raise DeviceLost(f"{address}: the tracker has no free server within {address.timeout:g} s") from None
    except (ValueError, TypeError) as error:
        raise DeviceLost(f"{address}: the tracker's answer is no server: {error}") from None


def has_free_server(address: Address) -> bool:
    """Ask TVM's tracker for an immediately free server."""
    try:
        status, summary = _ask_tracker(address, [_SUMMARY])
        return status == _SUCCESS and int(summary["queue_info"].get(address.key, {}).get("free", 0)) > 0
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def count_servers(address: Address) -> int:
    """Count a tracker's servers with the address's key, free or not, or raise `DeviceLost`."""
    try:
        status, summary = _ask_tracker(address, [_SUMMARY])
        servers = summary["server_info"] if status == _SUCCESS else ()
        return sum(server["key"] == f"server:{address.key}" for server in servers)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DeviceLost(f"{address}: the tracker does not say which servers there are: {error}") from error


def _server(answer: Any) -> tuple[str, int, str]:
    status, (host, port, key) = answer
    if status != _SUCCESS:
        raise ValueError(answer)
    return str(host), int(port), str(key)


def _answer(tracker: socket.socket) -> Any:
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + _length(data):
        if not (chunk := tracker.recv(LARGEST_ANSWER)):
            raise ValueError("it has closed the connection")
        # A peer that is no tracker may send anything: the length is checked before more is read.
        data += chunk
    return json.loads(data[4:])


def _length(data: bytearray) -> int:
    (length,) = struct.unpack("<i", data[:4])
    if not 0 < length < LARGEST_ANSWER:
        raise ValueError(f"{length} bytes")
    return int(length)


def _ask_tracker(address: Address, question: list[Any]) -> Any:
    """Return a tracker's answer, or raise `TimeoutError`."""
    with _tracker(address) as tracker:
        request = json.dumps(question).encode()
        tracker.sendall(struct.pack("<i", len(request)) + request)
        return _answer(tracker)


@contextlib.contextmanager
def _tracker(address: Address) -> Iterator[socket.socket]:
    try:
        stream = socket.create_connection((address.host, address.port), timeout=address.timeout)
    except OSError as error:
        raise DeviceLost(f"{address}: {why(error, address.timeout)}") from error
    with stream:
        stream.sendall(struct.pack("<i", _TRACKER_MAGIC))
        if stream.recv(4, socket.MSG_WAITALL) != struct.pack("<i", _TRACKER_MAGIC):
            raise DeviceLost(f"{address}: there is no TVM tracker")
        yield stream
