"""Tracker members: a pool of TVM tracker's servers under one key."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.core.remote_address import Address
from pipeline.errors import DeviceLost
from pipeline.remote import rpc_tracker
from pipeline.remote.endpoint import Endpoint, RemoteSession
from pipeline.remote.pool import Pool
from pipeline.remote.pool_members import Member

logger = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two questions to the tracker. It announces nobody's coming and going by itself."""


@dataclass(frozen=True)
class TrackerEndpoint(Endpoint):
    """One of the tracker's free servers, chosen by it anonymously."""

    address: Address
    """The tracker's, with the servers' key."""
    number: int
    """Number, from 0."""
    # Of TVM's servers, each has one session, in which a call takes its turn.
    overlaps = False

    def __str__(self) -> str:
        return f"{self.address} (server {self.number})"

    def count_slots(self) -> int:
        """Return 1 if the tracker has a free server."""
        if not rpc_tracker.has_free_server(self.address):
            raise DeviceLost(f"{self.address}: the tracker has no free server")
        return 1

    def connect(self) -> RemoteSession:
        """Begin a session with a free server."""
        from pipeline.remote.rpc_device import RpcConnection

        return RpcConnection(self.address)


@contextlib.contextmanager
def follow_tracker(address: Address, pool: Pool) -> Iterator[None]:
    """Match a pool's size to the tracker's servers during the block."""
    ending = threading.Event()
    thread = threading.Thread(target=_follow, args=(address, pool, ending), name=f"members of {address}", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        # A tracker that hangs takes its whole time limit, for which nobody waits.
        thread.join(LOOK_S)


def _follow(address: Address, pool: Pool, ending: threading.Event) -> None:
    members: list[Member] = []
    is_known = True
    while not ending.is_set():
        try:
            count = rpc_tracker.count_servers(address)
        except DeviceLost as error:
            # Its servers are as good as before: sessions with them do not pass through it.
            if is_known:
                logger.warning("the members of a pool are not known any more: %s", error)
            is_known = False
        else:
            is_known = True
            while len(members) < count:
                members.append(pool.add(TrackerEndpoint(address, len(members))))
            while len(members) > count:
                pool.remove(_pop_unused(members))
        ending.wait(LOOK_S)


def _pop_unused(members: list[Member]) -> Member:
    """Take a member off the list, preferably a lost one."""
    lost = [member for member in members if member.error is not None]
    member = (lost or members)[-1]
    members.remove(member)
    return member
