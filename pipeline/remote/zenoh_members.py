"""Zenoh members: servers announced under a key, as a pool.

A server declares a token of Zenoh's liveliness, whose key has its address.  The token ends with the server's process,
or with its connection to Zenoh.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from pipeline.core.remote_address import Address
from pipeline.errors import BoardError, DeviceLost, InputError
from pipeline.remote.endpoint import ServerEndpoint
from pipeline.remote.pool import Pool
from pipeline.remote.pool_members import Member
from pipeline.system.optional import require

logger = logging.getLogger(__name__)

PREFIX = "soc-pipeline/members"
CONNECTING_MS = 2000
"""Milliseconds for Zenoh to reach its configured endpoints."""

LOOK_S = 1.0
"""Seconds for members' answers to a single question."""

MOST_MEMBERS = 1024
"""Upper bound on servers under one key: anybody in the network may announce any number."""

WILDCARDS = {"", "0.0.0.0", "::"}  # noqa: S104 - they are compared
"""Addresses of a server that listens at all of its addresses."""


@contextlib.contextmanager
def announce_server(address: Address, host: str, port: int) -> Iterator[None]:
    """Announce a server during the block; for `address` see `pipeline.core.remote_address`.

    Raises `MissingExtra` if Zenoh is not installed; `InputError` if it cannot be reached.
    """
    try:
        with _open_session(address) as session:
            name = network_address() if host in WILDCARDS else host
            token = session.liveliness().declare_token(f"{PREFIX}/{address.key}/{name}:{port}")
            # A declaration is only sent. The router answers behind it, in order: then everybody sees the token.
            _announced_keys(session, address)
            try:
                yield
            finally:
                token.undeclare()
    except DeviceLost as error:
        raise InputError(str(error)) from error


@contextlib.contextmanager
def follow_announcements(address: Address, pool: Pool) -> Iterator[None]:
    """Keep a pool's members as announced under its key, during the block."""
    follower = _Follower(address, pool)
    with _open_session(address) as session:
        subscriber = session.liveliness().declare_subscriber(f"{PREFIX}/{address.key}/*", follower.note, history=True)
        try:
            yield
        finally:
            subscriber.undeclare()


def find_members(address: Address) -> list[Address]:
    """Return the servers announced under the address's key now, or raise `DeviceLost`."""
    with _open_session(address) as session:
        members = [_member_address(address, text) for text in _announced_keys(session, address)]
    return [member for member in members if member is not None]


def network_address() -> str:
    """Return this machine's network address, or loopback without network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        try:
            # Nothing is sent: the system only says from where it would be.
            datagrams.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(datagrams.getsockname()[0])


class _Follower:
    """Members of a pool by announcement, called from Zenoh's threads."""

    def __init__(self, address: Address, pool: Pool) -> None:
        self._address, self._pool = address, pool
        self._members: dict[str, Member] = {}
        self._announced: set[str] = set()
        self._lock = threading.Lock()

    def note(self, sample: Any) -> None:
        """Add an announced member, or handle one withdrawn."""
        zenoh = _library()
        text = str(sample.key_expr)
        member_address = _member_address(self._address, text)
        if member_address is None:
            logger.warning("what is announced as a member of the pool is no address: %s", text)
            return
        with self._lock:
            if sample.kind == zenoh.SampleKind.PUT:
                self._announced.add(text)
                if text in self._members:
                    return
                if len(self._members) >= MOST_MEMBERS:
                    logger.warning("%s is announced as well; a pool has at most %d members", text, MOST_MEMBERS)
                    return
                self._members[text] = self._pool.add(ServerEndpoint(member_address))
                return
            self._announced.discard(text)
        # Not in Zenoh's thread, which others wait for.
        self._pool.probes.add(partial(self._see_after, text, member_address))

    def _see_after(self, text: str, address: Address) -> None:
        """Remove a member, unless only Zenoh's connection was lost."""
        with contextlib.suppress(DeviceLost):
            ServerEndpoint(address).count_slots()
            return
        with self._lock:
            # It may have come back meanwhile.
            if text in self._announced or text not in self._members:
                return
            member = self._members.pop(text)
        self._pool.remove(member)
        logger.warning("a member of the pool has gone: %s", address)


def _announced_keys(session: Any, address: Address) -> dict[str, None]:
    """Keys of the tokens below the address's key, in order."""
    replies = session.liveliness().get(f"{PREFIX}/{address.key}/*", timeout=LOOK_S)
    return dict.fromkeys(str(reply.ok.key_expr) for reply in replies if reply.ok is not None)


def _member_address(pool: Address, text: str) -> Address | None:
    """Return a token's address, if valid."""
    match = re.fullmatch(r"(.+):(\d{1,5})", text.rpartition("/")[2])
    if match is None or not 0 < int(match[2]) < 1 << 16:
        return None
    return replace(pool, scheme="remote", host=match[1], port=int(match[2]), key="", via="")


@contextlib.contextmanager
def _open_session(address: Address) -> Iterator[Any]:
    zenoh = _library()
    try:
        session = zenoh.open(_settings(zenoh, address.via))
    except (zenoh.ZError, OSError) as error:
        raise DeviceLost(f"{address}: Zenoh cannot be reached: {error}") from None
    try:
        yield session
    finally:
        session.close()


def _library() -> Any:
    return require("zenoh", "zenoh", "a pool of servers that announce themselves")


def _settings(zenoh: Any, via: str) -> Any:
    """Return a session's settings: user file, discovered peer, or endpoints."""
    if path := os.environ.get("ZENOH_SESSION_CONFIG_URI"):
        return zenoh.Config.from_file(path)
    settings = zenoh.Config()
    if via:
        settings.insert_json5("mode", '"client"')
        settings.insert_json5("connect/endpoints", f'["{via}"]')
        settings.insert_json5("connect/timeout_ms", str(CONNECTING_MS))
        settings.insert_json5("connect/exit_on_failure", "true")
        settings.insert_json5("scouting/multicast/enabled", "false")
    return settings


def parse_announcement(text: str) -> Address:
    """Return ``serve --announce``'s pool; raises `BoardError` if malformed."""
    from pipeline.core.remote_address import parse

    address = parse(f"pool:{text}")
    if address.members:
        raise BoardError(f"{text!r} is no key; give a name, such as 'cameras'")
    return address
