"""Pool: servers that share the frames of one stage; a lost one leaves the rotation until it answers again."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

from pipeline.errors import DeviceLost
from pipeline.remote.connection import ServerRefusal
from pipeline.remote.endpoint import Endpoint, RemoteSession

logger = logging.getLogger(__name__)

PROBE_S, LONGEST_PROBE_S = 0.1, 2.0
"""Until a lost server is asked again for the first time, and at most; the time doubles in between."""


@dataclass(eq=False)
class PoolSession:
    """A session with a member, and the stages that are open in it.

    Attributes
    ----------
    connection : RemoteSession
    programs : list of int
        Numbers of the stages there.
    """

    connection: RemoteSession
    programs: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Member:
    """A server, or another place, of the pool.

    Attributes
    ----------
    endpoint : Endpoint
    slots : int
        How many stages it runs at once; 0 until it has answered.
    in_use : int
        Frames that it has.
    last_use : int
        Number of the last frame that it got: of members that are equally busy, the one that waited longest is next.
    error : DeviceLost or None
        Why it is out of the rotation; None while it is in it.
    refusals : dict
        By what is run, why it does not run that.
    """

    endpoint: Endpoint
    slots: int = 0
    in_use: int = 0
    last_use: int = 0
    error: DeviceLost | None = None
    refusals: dict[Hashable, DeviceLost] = field(default_factory=dict)

    @property
    def places(self) -> int:
        """Frames that it may have at once."""
        # For each that it computes another one is on its way.
        return self.slots * (2 if self.endpoint.overlaps else 1)


@dataclass(eq=False)
class Place:
    """The right to send one frame to a member.

    Attributes
    ----------
    member : Member
    stages : hashable
        What is run.
    session : PoolSession or None
        None as long as there is no session for it yet.
    """

    member: Member
    stages: Hashable
    session: PoolSession | None = None

    def break_off(self) -> None:
        """End a call that waits for the server in another thread."""
        if (session := self.session) is not None:
            session.connection.break_off()

    def discard_session(self) -> None:
        """End the session, if there is one; the place remains."""
        if self.session is not None:
            self.session.connection.close()
            self.session = None


class Pool:
    """Members, and who has them; used by any number of threads.

    Parameters
    ----------
    endpoints : sequence of Endpoint
        Its first members.

    Attributes
    ----------
    members : list of Member
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self.members: list[Member] = []
        self._idle: dict[tuple[Member, Hashable], list[PoolSession]] = defaultdict(list)
        self._numbers = 0
        # Frames that wait for a place, in the order in which they get one.
        self._line: list[object] = []
        # Guards all of the above; told when a place, or a member, is free again.
        self._changed = threading.Condition()
        self._is_closed = False
        # Each lost member is asked by a thread of its own: one that does not answer takes its whole time limit.
        self._probes: dict[Member, threading.Thread] = {}
        for endpoint in endpoints:
            self.add(endpoint)

    def add(self, endpoint: Endpoint) -> Member:
        """Have one more member, which takes frames as soon as it has answered."""
        member = Member(endpoint, error=DeviceLost(f"{endpoint}: not asked yet"))
        with self._changed:
            self.members.append(member)
            self._start_probe(member)
        return member

    def remove(self, member: Member) -> None:
        """Send no more frames to a member; those that it has may end there."""
        with self._changed:
            self.members.remove(member)
            sessions = self._drop_sessions(member)
            # A probe that waits for it sees that it is not asked any more.
            self._changed.notify_all()
        for session in sessions:
            session.connection.close()

    def wait_unused(self, member: Member) -> None:
        """Wait until a member that was removed has no more frames, or the pool is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not member.in_use)

    def take(self, stages: Hashable, avoid: Member | None, patience: float, given_up: Callable[[], bool]) -> Place:
        """Return a place with the member that has the least to do, and wait for one if need be.

        Parameters
        ----------
        stages : hashable
            What is run; sessions are kept by it.
        avoid : Member or None
            Taken only if there is no other.
        patience : float
            How long to wait while no member is in the rotation.
        given_up : callable
            Whether the caller no longer wants one.

        Raises
        ------
        DeviceLost
            If no member can be reached for so long, all refuse, or the caller has given up.
        """
        with self._changed:
            # Results leave in order: a later frame that overtakes an earlier one only waits for it in the end.
            turn = object()
            self._line.insert(0 if avoid else len(self._line), turn)
            try:
                member = self._await_member(turn, stages, avoid, patience, given_up)
            finally:
                self._line.remove(turn)
                # It may be the turn of another one now.
                self._changed.notify_all()
            return self._occupy(member, stages)

    def give_back(self, place: Place) -> None:
        """Let others have a place; its session remains."""
        with self._changed:
            place.member.in_use -= 1
            if place.session is not None and not self._is_closed and place.member in self.members:
                self._idle[place.member, place.stages].append(place.session)
                place.session = None
            self._changed.notify_all()
        if place.session is not None:
            place.session.connection.close()

    def lose(self, place: Place, error: DeviceLost) -> None:
        """Take the member of a place out of the rotation, or what it refuses away from it."""
        with self._changed:
            member = place.member
            member.in_use -= 1
            sessions = [] if place.session is None else [place.session]
            if isinstance(error, ServerRefusal):
                member.refusals[place.stages] = error
                logger.warning("a member of the pool is left out: %s", error)
            elif member.error is None:
                # The other sessions are with the same server: they would fail with the next frame.
                sessions += self._drop_sessions(member)
                member.error = error
                if member in self.members:
                    logger.warning("a member of the pool is lost: %s", error)
                    self._start_probe(member)
            self._changed.notify_all()
        for session in sessions:
            session.connection.close()

    def forget(self, stages: Hashable) -> None:
        """End all sessions with certain stages that nobody uses."""
        with self._changed:
            keys = [key for key in self._idle if key[1] == stages]
            sessions = [session for key in keys for session in self._idle.pop(key)]
        for session in sessions:
            session.connection.close()

    def wake(self) -> None:
        """Let all who wait see whether they still want to."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all sessions."""
        with self._changed:
            self._is_closed = True
            sessions = [session for idle in self._idle.values() for session in idle]
            self._idle.clear()
            probes = list(self._probes.values())
            self._changed.notify_all()
        for session in sessions:
            session.connection.close()
        for probe in probes:
            # One that waits for a server ends with its time limit, and nobody waits for it.
            probe.join(PROBE_S)

    def _await_member(
        self, turn: object, stages: Hashable, avoid: Member | None, patience: float, given_up: Callable[[], bool]
    ) -> Member:
        """Return the member that has the least to do of those with a place, when it is the caller's turn."""
        since: float | None = None
        while True:
            if self._is_closed or given_up():
                raise DeviceLost("the pool is closed")
            members = self._candidates(stages)
            free = [member for member in members if member.in_use < member.places]
            chosen = [member for member in free if member is not avoid] or (free if len(members) == 1 else [])
            if chosen and self._line[0] is turn:
                return min(chosen, key=lambda each: (each.in_use / each.slots, each.last_use))
            # With a member that is busy there will be a place; without any, somebody has to come back.
            since = None if members else (time.monotonic() if since is None else since)
            if since is not None and time.monotonic() >= since + patience:
                raise DeviceLost("; ".join(str(member.error) for member in self.members) or "the pool has no member")
            self._changed.wait(None if since is None else max(0.01, since + patience - time.monotonic()))

    def _candidates(self, stages: Hashable) -> list[Member]:
        refusals = [_refusal(member, stages) for member in self.members]
        if refusals and all(refusals):
            raise DeviceLost("; ".join(map(str, refusals)))
        return [member for member in self.members if member.error is None and stages not in member.refusals]

    def _occupy(self, member: Member, stages: Hashable) -> Place:
        self._numbers += 1
        member.in_use += 1
        member.last_use = self._numbers
        idle = self._idle[member, stages]
        return Place(member, stages, idle.pop() if idle else None)

    def _drop_sessions(self, member: Member) -> list[PoolSession]:
        """Return the sessions with a member that nobody uses; from now on they are nobody's."""
        keys = [key for key in self._idle if key[0] is member]
        return [session for key in keys for session in self._idle.pop(key)]

    def _start_probe(self, member: Member) -> None:
        probe = threading.Thread(target=self._probe, args=(member,), name=f"probe {member.endpoint}", daemon=True)
        self._probes[member] = probe
        probe.start()

    def _probe(self, member: Member) -> None:
        """Ask a member until it answers."""
        pause, is_first = PROBE_S, member.slots == 0
        while not self._is_closed and member in self.members:
            try:
                slots = member.endpoint.count_slots()
            except DeviceLost as error:
                with self._changed:
                    # Who waits may see that all refuse.
                    member.error = error
                    self._changed.notify_all()
            else:
                with self._changed:
                    member.slots, member.error = max(1, slots), None
                    self._probes.pop(member, None)
                    self._changed.notify_all()
                if not is_first:
                    logger.warning("a member of the pool is back: %s", member.endpoint)
                return
            with self._changed:
                # A closed pool wakes it at once.
                self._changed.wait_for(lambda: self._is_closed or member not in self.members, pause)
            pause = min(LONGEST_PROBE_S, 2 * pause)
        with self._changed:
            self._probes.pop(member, None)


def _refusal(member: Member, stages: Hashable) -> DeviceLost | None:
    """Return why a member will not run the stages, however often it is asked; None if it may."""
    return member.refusals.get(stages) or (member.error if isinstance(member.error, ServerRefusal) else None)
