"""Server slots: how many frames servers compute at once, as they say themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pipeline.core.board.board import Board, Device
from pipeline.core.remote_address import Address, alternatives
from pipeline.errors import DeviceLost

MOST_THREADS = 64
"""Servers that are asked at once: whoever is in a network may announce any number."""

LONGEST_S = 1.0
"""A plan does not wait for longer for a server that is away."""


def ask_slots(board: Board) -> Board:
    """Return the board with the slots of its servers, where neither its file tells them nor the server is away."""
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
    """Return the servers behind an address, as far as they can be asked for now."""
    if address.scheme == "pool" and not address.members:
        from pipeline.remote.zenoh_members import find_members

        try:
            return find_members(address)
        except DeviceLost:
            return ()
    return address.members or (address,)


def _ask_server(address: Address) -> int:
    """Return the slots of a server, or the number of a tracker's servers; 0 if it cannot be asked."""
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
