"""Server slots: concurrent frames of servers, by their own account."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pipeline.core.board.board import Board, Device
from pipeline.core.remote_address import Address, alternatives
from pipeline.errors import DeviceLost

MOST_THREADS = 64
"""Servers asked at once: whoever is in a network may announce any number."""

LONGEST_S = 1.0
"""Longest wait of a plan for an absent server, in seconds."""


def ask_slots(board: Board) -> Board:
    """Return the board with server slots, unless specified or unreachable."""
    devices = tuple(_ask_device(device) for device in board.devices)
    return board if devices == board.devices else replace(board, devices=devices)


def _ask_device(device: Device) -> Device:
    if not device.capabilities.has_slots or device.slots or not device.address:
        return device
    address = alternatives(device.address)[0]
    if address.scheme not in ("remote", "pool"):
        return device
    members = _members(address)
    if not members:
        return device
    with ThreadPoolExecutor(min(MOST_THREADS, len(members))) as threads:
        counts = list(threads.map(_ask_server, members))
    if not any(counts):
        return device
    # A member that is away will be back; nothing is known of it but that it computes one frame.
    return replace(device, slots=sum(max(1, count) for count in counts))


def _members(address: Address) -> Sequence[Address]:
    """Return the reachable servers behind an address."""
    if address.scheme == "pool" and not address.members:
        from pipeline.remote.zenoh_members import find_members

        try:
            return find_members(address)
        except DeviceLost:
            return ()
    return address.members or (address,)


def _ask_server(address: Address) -> int:
    """Count a server's slots, or a tracker's servers; 0 without an answer."""
    if address.tracker:
        from pipeline.remote import rpc_tracker

        try:
            return rpc_tracker.count_servers(address)
        except DeviceLost:
            return 0
    from pipeline.remote.connection import Connection

    try:
        with contextlib.closing(Connection(replace(address, timeout=min(LONGEST_S, address.timeout)))) as connection:
            return connection.slots
    except DeviceLost:
        return 0
