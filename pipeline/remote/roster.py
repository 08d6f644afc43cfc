"""Roster: a pool's members, their rotation, and their return."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from pipeline.errors import DeviceLost, PipelineError, RemoteError
from pipeline.remote.candidate import Loaded
from pipeline.remote.connection import ServerRefusal
from pipeline.remote.endpoint import Endpoint
from pipeline.remote.member_health import Cause
from pipeline.remote.pool_members import Member, Place, PoolSession, SampleFrame, SharedStages
from pipeline.remote.probes import Probes
from pipeline.remote.served_bundle import BundleVersion

logger = logging.getLogger(__name__)


class OtherVersion(DeviceLost):
    """Raised when a member runs another bundle version than the stream."""


class FailedTrial(DeviceLost):
    """Raised when a member fails on a frame computed by others."""


class Roster(ABC):
    """Members, with the knowledge about them, and probes with questions to servers."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.probes = Probes("probe of a pool")
        # Those that have answered once: only they are looked at for each frame, however many are announced.
        self._answered: list[Member] = []
        self._stages: dict[Hashable, SharedStages] = {}
        self._idle: dict[tuple[Member, SharedStages], list[PoolSession]] = defaultdict(list)
        # Sessions in which members are tried out.
        self._trials: set[PoolSession] = set()
        self._is_closed = False
        # Guards all of the above, and what members are known for.
        self._lock = threading.Lock()

    def add(self, endpoint: Endpoint) -> Member:
        """Add a member, in rotation once it answers."""
        member = Member(endpoint)
        member.health(None).error = DeviceLost(f"{endpoint}: not asked yet")
        with self._lock:
            self.members.append(member)
        self.probes.add(partial(self._probe, member, None))
        return member

    def remove(self, member: Member) -> None:
        """Remove a member from rotation; its frames may finish there."""
        with self._lock:
            self.members.remove(member)
            member.is_removed = True
            if member in self._answered:
                self._answered.remove(member)
            sessions = self._pop_idle(lambda of, _: of is member)
            for stages in tuple(self._stages.values()):
                self._note_absence(stages)
            self._assign()
        close_sessions(sessions)

    def enter(self, key: Hashable, loaded: Loaded) -> SharedStages:
        """Return a key's shared stages for another worker, until `leave`."""
        # Rather the version that the caller has the manifest of than another one.
        version = next((code.checksum for _, code in loaded if isinstance(code, BundleVersion)), "")
        with self._lock:
            stages = self._stages.setdefault(key, SharedStages(key, loaded, version))
            stages.users += 1
            return stages

    def leave(self, stages: SharedStages) -> None:
        """Release a worker's stages; the last one ends their sessions."""
        sessions: list[PoolSession] = []
        with self._lock:
            stages.users -= 1
            if not stages.users:
                self._stages.pop(stages.key, None)
                sessions = self._pop_idle(lambda _, of: of is stages)
                for member in self.members:
                    member.forget(stages)
        close_sessions(sessions)

    def blame(self, member: Member, stages: SharedStages, error: DeviceLost) -> None:
        """Count a member's fault on a frame computed elsewhere."""
        with self._lock:
            self._dismiss(member, stages, Cause.FAULT, error)

    def has_other(self, place: Place) -> bool:
        """Test if another member could try a frame."""
        with self._lock:
            return any(member is not place.member for member in self._in_rotation(place.stages))

    def check_version(self, place: Place, version: str) -> None:
        """Raise `OtherVersion` unless a member runs the stream's version."""
        with self._lock:
            self._check_version(place.member, place.stages, version)

    # Everything below is called with the lock held, but for `_probe` and `_try_out`.

    @abstractmethod
    def _assign(self) -> None:
        """Offer members to the waiters."""

    @abstractmethod
    def _wake_all(self) -> None:
        """Let all who wait look again."""

    def _in_rotation(self, stages: SharedStages) -> list[Member]:
        return [member for member in self._answered if member.absence(stages) is None]

    def _dismiss(self, member: Member, stages: SharedStages, cause: Cause, error: DeviceLost) -> None:
        """Take a member out of rotation and schedule its probe."""
        health = member.health(stages)
        if health.error is not None or member.is_removed:
            return
        pause_s = health.leave(cause, error, time.monotonic())
        logger.warning("a member of the pool %s: %s", cause.text, error)
        stages.wants_sample = stages.sample is None
        self.probes.add(partial(self._probe, member, stages), pause_s)
        self._note_absence(stages)

    def _note_absence(self, stages: SharedStages) -> None:
        """Handle the waiters after a departure or failed return."""
        absences = [member.absence(stages) for member in self.members]
        if None in absences:
            return
        # None has the old version, and none is about to come back with it.
        if all(health is not None and health.waits for health in absences):
            self._change_version(stages)
        # They wait for as long as their patience lasts from now on.
        self._wake_all()

    def _change_version(self, stages: SharedStages) -> None:
        """Switch a stream to the majority's version, if only that excludes them."""
        healths = [member.health(stages) for member in self.members if member.health(None).error is None]
        outdated = [health for health in healths if health.is_out and health.cause is Cause.VERSION]
        if not outdated:
            return
        stages.version = Counter(health.version for health in outdated).most_common(1)[0][0]
        logger.warning("the stream goes on with another version of the bundle: %s", stages.version)
        for health in outdated:
            if health.version == stages.version:
                health.come_back(time.monotonic())
        self._assign()

    def _check_version(self, member: Member, stages: SharedStages, version: str) -> None:
        member.health(stages).version = version
        stages.version = stages.version or version
        if version != stages.version:
            title = f"{member.endpoint}: its bundle is {version[:12]}"
            raise OtherVersion(f"{title}, that of the stream {stages.version[:12]}")

    def _pop_idle(self, condition: Callable[[Member, SharedStages], bool]) -> list[PoolSession]:
        """Take over and return idle sessions satisfying a condition."""
        keys = [key for key in self._idle if condition(*key)]
        return [session for key in keys for session in self._idle.pop(key)]

    def _probe(self, member: Member, stages: SharedStages | None) -> float | None:
        """Probe a member; return the next pause, None if back or unneeded."""
        health, is_first = member.health(stages), member.slots == 0
        is_unwanted = self._is_closed or member.is_removed or (stages is not None and not stages.users)
        if is_unwanted or health.error is None:
            return None
        try:
            session = self._try_out(member, stages)
        except PipelineError as error:
            lost = error if isinstance(error, DeviceLost) else ServerRefusal(str(error))
            with self._lock:
                pause_s = health.stay_out(absence_cause(lost), lost)
                for key_stages in tuple(self._stages.values()) if stages is None else (stages,):
                    self._note_absence(key_stages)
                return pause_s if health.is_out else None
        with self._lock:
            health.come_back(time.monotonic())
            if stages is None and not member.is_removed:
                self._answered.append(member)
            if session is not None and stages is not None and stages.users and not self._is_closed:
                self._idle[member, stages].append(session)
                session = None
            self._assign()
        close_sessions([session] if session is not None else [])
        if not is_first:
            logger.warning("a member of the pool is back: %s", member.endpoint)
        return None

    def _try_out(self, member: Member, stages: SharedStages | None) -> PoolSession | None:
        """Return a session in which a member ran the stages correctly."""
        slots = member.endpoint.count_slots()
        with self._lock:
            member.slots = max(1, slots)
        if stages is None:
            return None
        session = PoolSession(member.endpoint.connect())
        with self._lock:
            self._trials.add(session)
        try:
            with self._lock:
                self._check_version(member, stages, member.endpoint.version_of(session.connection))
            session.open_stages(stages.loaded)
            if stages.sample is not None:
                begin = time.monotonic()
                _run_sample(session, stages.sample, stages.loaded)
                member.health(stages).note_time(time.monotonic() - begin)
        except BaseException:
            session.connection.close()
            raise
        finally:
            with self._lock:
                self._trials.discard(session)
        return session


def _run_sample(session: PoolSession, sample: SampleFrame, loaded: Loaded) -> None:
    try:
        sample.run(session, loaded)
    except (DeviceLost, RemoteError) as error:
        raise FailedTrial(str(error)) from error


def absence_cause(error: DeviceLost) -> Cause:
    """Return why a probed member takes no frames."""
    if isinstance(error, OtherVersion):
        return Cause.VERSION
    if isinstance(error, FailedTrial):
        return Cause.FAULT
    return Cause.REFUSAL if isinstance(error, ServerRefusal) else Cause.AWAY


def close_sessions(sessions: Sequence[PoolSession]) -> None:
    """Close orphaned sessions."""
    for session in sessions:
        session.connection.close()
