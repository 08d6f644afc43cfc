"""Shared pool: one per address and process, with its membership."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from pipeline.core.remote_address import Address
from pipeline.remote.endpoint import ServerEndpoint
from pipeline.remote.pool import Pool


@dataclass
class _Use:
    """A pool in use."""

    pool: Pool
    membership: contextlib.ExitStack
    users: int = 0


_uses: dict[Address, _Use] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def shared_pool(address: Address) -> Iterator[Pool]:
    """Yield an address's pool, shared by this process's workers.

    Raises
    ------
    DeviceLost
        If nobody can be asked for its members.
    MissingExtra
        If Zenoh would be, and is not installed.
    """
    with _lock:
        use = _uses.get(address)
        if use is None:
            use = _uses[address] = _open_pool(address)
        use.users += 1
    try:
        yield use.pool
    finally:
        with _lock:
            use.users -= 1
            is_last = not use.users
            if is_last:
                del _uses[address]
        if is_last:
            use.membership.close()


def _open_pool(address: Address) -> _Use:
    pool = Pool([ServerEndpoint(member) for member in address.members if member.scheme == "remote"])
    with contextlib.ExitStack() as stack:
        stack.callback(pool.close)
        if not address.members:
            from pipeline.remote.zenoh_members import follow_announcements

            stack.enter_context(follow_announcements(address, pool))
        elif address.members[0].tracker:
            from pipeline.remote.tracker_members import follow_tracker

            stack.enter_context(follow_tracker(address.members[0], pool))
        return _Use(pool, stack.pop_all())
