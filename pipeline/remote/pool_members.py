"""Pool members: their stages, and places for frames."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

import numpy as np

from pipeline.errors import DeviceLost
from pipeline.remote.candidate import Loaded
from pipeline.remote.endpoint import Endpoint, RemoteSession
from pipeline.remote.member_health import Cause, Health
from pipeline.system.watchdog import TimedRun


@dataclass(eq=False)
class PoolSession:
    """Session with a member, and its open stages."""

    connection: RemoteSession
    programs: list[int] = field(default_factory=list)
    """Numbers of the stages there."""

    def open_stages(self, loaded: Loaded) -> None:
        """Open the missing stages."""
        for stage, code in loaded[len(self.programs) :]:
            self.programs.append(self.connection.open(stage, code))


@dataclass(frozen=True)
class SampleFrame:
    """Frame with a verified result, to try out members."""

    program: int
    """Number of the stage."""
    inputs: Sequence[np.ndarray]
    """Copies."""

    def run(self, session: PoolSession, loaded: Loaded) -> None:
        """Run the frame in a session, with its errors."""
        session.connection.run(session.programs[self.program], loaded[self.program][0], self.inputs)


@dataclass(eq=False)
class SharedStages:
    """Stages of equal code, shared by workers on a pool."""

    key: Hashable
    """Equal for those workers."""
    loaded: Loaded
    version: str = ""
    """Checksum of the bundle's manifest whose results the stream has; empty as long as nobody has told one."""
    users: int = 0
    """Workers."""
    usual_s: float = 0.0
    """Seconds that a frame usually takes, with whatever member."""
    wants_sample: bool = False
    """True if a member is to be tried out, and there is no frame for it."""
    sample: SampleFrame | None = None


@dataclass(eq=False)
class Member:
    """A server, or another place, of the pool."""

    endpoint: Endpoint
    slots: int = 0
    """Stages that it runs at once; 0 until it has answered."""
    in_use: int = 0
    """Frames that it has."""
    last_use: int = 0
    """Number of the last frame that it got: of members that are equally busy, the one that waited longest is next."""
    is_removed: bool = False
    """True if it was taken out of the pool."""
    _greeting: Health = field(default_factory=Health)
    _healths: dict[SharedStages, Health] = field(default_factory=dict)

    @property
    def places(self) -> int:
        """Upper bound on concurrent frames."""
        # For each that it computes another one is on its way.
        return self.slots * (2 if self.endpoint.overlaps else 1)

    @property
    def error(self) -> DeviceLost | None:
        """Error keeping it from frames of some stages, if any."""
        errors = (health.error for health in (self._greeting, *self._healths.values()))
        return next((error for error in errors if error is not None), None)

    def health(self, stages: SharedStages | None) -> Health:
        """Return its health for some stages, or its answering for None."""
        return self._greeting if stages is None else self._healths.setdefault(stages, Health())

    def absence(self, stages: SharedStages) -> Health | None:
        """Return the health behind its absence for some stages, if absent."""
        if self._greeting.error is not None:
            return self._greeting
        health = self._healths.get(stages)
        return None if health is None or health.error is None else health

    def refuses(self, stages: SharedStages) -> bool:
        """Test if it refused some stages."""
        health = self.absence(stages)
        return health is not None and health.cause is Cause.REFUSAL

    def forget(self, stages: SharedStages) -> None:
        """Forget its health for unused stages."""
        self._healths.pop(stages, None)


@dataclass(eq=False)
class Place:
    """The right to send one frame to a member."""

    member: Member
    stages: SharedStages
    session: PoolSession | None = None
    """Session of it; None as long as there is none yet."""
    run: TimedRun | None = None
    """Run while the frame's time is limited."""
    hangs: bool = False
    """True if the frame took too long, and its session was broken off."""

    def break_off(self) -> None:
        """Abort another thread's call waiting for the server."""
        if (session := self.session) is not None:
            session.connection.break_off()

    def discard_session(self) -> None:
        """End an open session; the place remains."""
        if self.session is not None:
            self.session.connection.close()
            self.session = None


@dataclass(eq=False)
class Turn:
    """A frame in line for a place."""

    stages: SharedStages
    avoid: Member | None = None
    """Member that has failed with the frame."""
    place: Place | None = None
    """Place that it was given."""
    _alarm: SimpleQueue[None] = field(default_factory=SimpleQueue)

    def wake(self) -> None:
        """Let whoever waits look again."""
        self._alarm.put(None)

    def wait(self, timeout: float | None) -> None:
        """Wait to be woken, at most for so long."""
        try:
            self._alarm.get(timeout=timeout)
        except Empty:
            return
