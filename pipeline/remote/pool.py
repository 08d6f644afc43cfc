"""Pool: servers sharing a stage's frames, and the waiting line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from pipeline.errors import DeviceLost
from pipeline.remote.endpoint import Endpoint
from pipeline.remote.member_health import Cause, follow_time
from pipeline.remote.pool_members import Member, Place, SharedStages, Turn
from pipeline.remote.roster import Roster, close_sessions
from pipeline.remote.time_limits import TimeLimits

CLOSING_S = 0.1
"""Seconds for probes of a closing pool."""


class Pool(Roster):
    """Members and their users, for any number of threads.

    `limits`: time limits of frames that could be tried elsewhere.
    """

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        super().__init__()
        self.limits = TimeLimits(self.has_other)
        # Frames that wait for a place, in the order in which they get one.
        self._line: list[Turn] = []
        self._numbers = 0
        self._unused = threading.Condition(self._lock)
        for endpoint in endpoints:
            self.add(endpoint)

    def wait_unused(self, member: Member) -> None:
        """Wait until a removed member is unused, or the pool closed."""
        with self._lock:
            self._unused.wait_for(lambda: self._is_closed or not member.in_use)

    def take(
        self,
        stages: SharedStages,
        avoid: Member | None,
        patience: float,
        given_up: Callable[[], bool],
        *,
        at_start: bool = False,
    ) -> Place:
        """Return a place with the least busy member, waiting if necessary.

        A frame that failed goes to one of the members with the fewest faults but the one to `avoid`. Callers wait for
        `patience` seconds while no member is in the rotation; `at_start`, members that all refuse are not waited for.
        Raises `DeviceLost` if no member can be reached for so long, or the caller has given up.
        """
        turn, since = Turn(stages, avoid), None
        with self._lock:
            # Results leave in order: a later frame that overtakes an earlier one only waits for it in the end.
            self._line.insert(0 if avoid else len(self._line), turn)
            self._assign()
        try:
            while True:
                with self._lock:
                    if turn.place is not None:
                        return turn.place
                    self._check_wanted(given_up)
                    since = self._check_rotation(stages, since, patience, at_start=at_start)
                turn.wait(None if since is None else max(0.01, since + patience - time.monotonic()))
        except BaseException:
            with self._lock:
                if turn.place is None:
                    self._line.remove(turn)
                else:
                    self._free(turn.place)
            raise

    def give_back(self, place: Place, seconds: float = 0.0) -> None:
        """Release a place with its session, recording the frame's time."""
        with self._lock:
            if seconds:
                place.member.health(place.stages).note_time(seconds)
                place.stages.usual_s = follow_time(place.stages.usual_s, seconds)
            self._free(place)
        if place.session is not None:
            place.session.connection.close()

    def lose(self, place: Place, cause: Cause, error: DeviceLost) -> None:
        """Release a place and take its member out of rotation."""
        with self._lock:
            member, stages, session = place.member, place.stages, place.session
            # The other sessions are with the same server: they would fail with the next frame.
            sessions = [] if session is None else [session]
            sessions += self._pop_idle(lambda of, run: of is member and run is stages)
            place.session = None
            self._dismiss(member, stages, cause, error)
            self._free(place)
        close_sessions(sessions)

    def wake(self) -> None:
        """Wake all waiters to reconsider."""
        with self._lock:
            self._wake_all()

    def close(self) -> None:
        """End all sessions."""
        with self._lock:
            self._is_closed = True
            sessions = self._pop_idle(lambda *_: True)
            for trial in self._trials:
                trial.connection.break_off()
            self._wake_all()
            self._unused.notify_all()
        close_sessions(sessions)
        self.limits.close()
        self.probes.close(CLOSING_S)

    # Everything below is called with the lock held.

    def _assign(self) -> None:
        """Give free places to the first waiters, waking only them."""
        stuck: set[SharedStages] = set()
        for turn in tuple(self._line):
            if turn.stages in stuck:
                continue
            member = self._choose(turn)
            if member is not None:
                self._line.remove(turn)
                turn.place = self._occupy(member, turn.stages)
                turn.wake()
            elif turn.avoid is None:
                # Nor is there one for those behind, who want the same.
                stuck.add(turn.stages)
                if len(stuck) == len(self._stages):
                    return

    def _choose(self, turn: Turn) -> Member | None:
        """Return the least busy member with a free place."""
        members = self._in_rotation(turn.stages)
        if turn.avoid is not None:
            members = _most_reliable(members, turn.stages, turn.avoid)
        free = [member for member in members if member.in_use < member.places]
        return min(free, key=lambda member: (member.in_use / member.slots, member.last_use)) if free else None

    def _check_wanted(self, given_up: Callable[[], bool]) -> None:
        if self._is_closed or given_up():
            raise DeviceLost("the pool is closed")

    def _check_rotation(
        self, stages: SharedStages, since: float | None, patience: float, *, at_start: bool
    ) -> float | None:
        """Return the start of an empty rotation; raise `DeviceLost` over `patience`."""
        if self._in_rotation(stages):
            # With a member that is busy there will be a place; without any, somebody has to come back.
            return None
        clock_s = time.monotonic()
        since = clock_s if since is None else since
        is_refused = at_start and bool(self.members) and all(member.refuses(stages) for member in self.members)
        if is_refused or clock_s >= since + patience:
            absences = [member.absence(stages) for member in self.members]
            errors = [str(health.error) for health in absences if health is not None]
            raise DeviceLost("; ".join(errors) or "the pool has no member")
        return since

    def _occupy(self, member: Member, stages: SharedStages) -> Place:
        self._numbers += 1
        member.in_use += 1
        member.last_use = self._numbers
        idle = self._idle[member, stages]
        return Place(member, stages, idle.pop() if idle else None)

    def _free(self, place: Place) -> None:
        """Release a place, discarding its session."""
        member = place.member
        member.in_use -= 1
        if place.session is not None and not (self._is_closed or member.is_removed or not place.stages.users):
            self._idle[member, place.stages].append(place.session)
            place.session = None
        if member.is_removed:
            self._unused.notify_all()
        self._assign()

    def _wake_all(self) -> None:
        for turn in self._line:
            turn.wake()


def _most_reliable(members: Sequence[Member], stages: SharedStages, avoid: Member) -> list[Member]:
    """Return other members, fewest faults first, results before none."""
    candidates = [member for member in members if member is not avoid] or list(members)
    clock_s = time.monotonic()

    def rank(member: Member) -> tuple[int, bool, bool]:
        health = member.health(stages)
        return health.count_faults(clock_s), health.is_doubted, not health.usual_s

    best = min(map(rank, candidates), default=None)
    return [member for member in candidates if rank(member) == best]
