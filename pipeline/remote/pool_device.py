"""Pool candidate: a pool of servers for one stage's frames."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from pipeline.errors import DeviceLost, RemoteError
from pipeline.remote.candidate import DeviceCandidate, Loaded
from pipeline.remote.member_health import Cause
from pipeline.remote.pool import Pool
from pipeline.remote.pool_members import Member, Place, PoolSession, SampleFrame, SharedStages
from pipeline.remote.roster import OtherVersion, absence_cause
from pipeline.system.memory import snapshot

Result = TypeVar("Result")

ATTEMPTS = 2
"""A frame whose server is lost is tried once elsewhere."""


class PoolCandidate(DeviceCandidate):
    """Worker's view of a pool: frames go to the least busy member.

    The pool comes by `use_pool` when it is first needed; `stages` is the list itself, which grows. Frames wait for
    `patience` seconds while no member is there, members may take `timeout` seconds to answer for the first time, and
    `attempts` of them may be lost with one frame.
    """

    def __init__(
        self,
        use_pool: Callable[[], contextlib.AbstractContextManager[Pool]],
        stages: Loaded,
        *,
        patience: float,
        timeout: float,
        attempts: int = ATTEMPTS,
    ) -> None:
        self._loaded, self._patience, self._timeout, self._attempts = stages, patience, timeout, attempts
        self._use_pool, self._use = use_pool, contextlib.ExitStack()
        self._joined: tuple[Pool, SharedStages] | None = None
        self._place: Place | None = None
        self._is_broken_off = False

    @property
    def session_address(self) -> str:
        """Address of the frame's current member, empty between frames."""
        return "" if self._place is None else str(self._place.member.endpoint)

    def prepare(self) -> None:
        """Load all stages on one member; others load with their first frames."""
        pool, stages = self._join()
        pool.give_back(self._take_open(pool, stages, None, at_start=True))
        self._place = None

    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, with the member device's seconds; `DeviceLost` after losing two members.

        A frame that one member fails on, or takes much longer for than usual, is tried once elsewhere; what comes of
        that says whose fault it was.
        """
        stage, (_, stages) = self._loaded[program][0], self._join()
        result = self.call(
            lambda session: session.connection.run_timed(session.programs[program], stage, inputs), judges=True
        )
        if stages.wants_sample:
            # A copy: the arrays are the caller's, who may use them again.
            stages.sample, stages.wants_sample = SampleFrame(program, list(map(snapshot, inputs))), False
        return result

    def break_off(self) -> None:
        """Abort a call waiting for a member or place, from another thread."""
        self._is_broken_off = True
        if (place := self._place) is not None:
            place.break_off()
        if (joined := self._joined) is not None:
            joined[0].wake()

    def close(self) -> None:
        """End the unused sessions."""
        if self._joined is not None:
            pool, stages = self._joined
            pool.leave(stages)
            self._use.close()
            self._joined = None

    def call(self, work: Callable[[PoolSession], Result], *, judges: bool = False) -> Result:
        """Run `work` on the least busy member, or on another after loss.

        `judges` is True if a member that fails, or is slow, may be to blame.
        """
        pool, stages = self._join()
        failure: DeviceLost | RemoteError | None = None
        failed: Member | None = None
        attempts = 0
        while attempts < self._attempts:
            place = self._take_open(pool, stages, failed)
            try:
                result, seconds = self._work(pool, place, work, is_limited=judges and attempts + 1 < self._attempts)
            except OtherVersion as error:
                # Its result is none of this stream's, and nobody's fault.
                pool.lose(place, Cause.VERSION, error)
                continue
            except DeviceLost as error:
                is_hung = place.hangs or self._is_broken_off or isinstance(error.__cause__, TimeoutError)
                pool.lose(place, Cause.HANG if is_hung else Cause.FAULT, error)
                failure = failure if isinstance(failure, RemoteError) else error
            except RemoteError as error:
                has_other = judges and pool.has_other(place)
                place.member.health(stages).is_doubted = True
                pool.give_back(place)
                if not has_other:
                    raise
                failure = error
            except BaseException:
                # In the middle of a message nobody knows any more where the next one begins.
                place.discard_session()
                pool.give_back(place)
                raise
            else:
                pool.give_back(place, seconds)
                if isinstance(failure, RemoteError) and failed is not None:
                    pool.blame(failed, stages, DeviceLost(str(failure)))
                return result
            finally:
                self._place = None
            failed = place.member
            attempts += 1
        raise failure or DeviceLost("")

    def _join(self) -> tuple[Pool, SharedStages]:
        """Return the pool, and this worker's stages there."""
        if self._joined is None:
            pool = self._use.enter_context(self._use_pool())
            self._joined = pool, pool.enter(self._key(), self._loaded)
        return self._joined

    def _take_open(self, pool: Pool, stages: SharedStages, failed: Member | None, *, at_start: bool = False) -> Place:
        """Return a place with an open session, skipping unreachable and refusing members."""
        # Members that have just been asked for the first time need a moment to answer.
        patience = max(self._patience, 0.0 if failed else self._timeout)
        failure = DeviceLost("")
        # Each of them leaves the rotation, and may be back once or twice meanwhile.
        for _ in range(3 * len(pool.members) + 1):
            place = self._place = pool.take(stages, failed, patience, lambda: self._is_broken_off, at_start=at_start)
            try:
                self._open(pool, place)
            except DeviceLost as error:
                failure = error
                pool.lose(place, absence_cause(error), error)
            except BaseException:
                place.discard_session()
                pool.give_back(place)
                self._place = None
                raise
            else:
                return place
        self._place = None
        raise failure

    def _open(self, pool: Pool, place: Place) -> None:
        """Open a session in a place, with all stages."""
        # A server that was restarted since the last frame said goodbye.
        if place.session is not None and not place.session.connection.usable():
            place.discard_session()
        endpoint = place.member.endpoint
        if place.session is None:
            place.session = PoolSession(endpoint.connect())
            pool.check_version(place, endpoint.version_of(place.session.connection))
        place.session.open_stages(self._loaded)

    def _work(
        self, pool: Pool, place: Place, work: Callable[[PoolSession], Result], *, is_limited: bool
    ) -> tuple[Result, float]:
        """Return the work's result and seconds."""
        session = place.session
        assert session is not None  # noqa: S101 - `_take_open` gives one
        begin = time.monotonic()
        if is_limited:
            pool.limits.begin(place)
        try:
            result = work(session)
        except DeviceLost as error:
            if place.hangs:
                raise DeviceLost(f"{place.member.endpoint}: a frame takes much longer than usual") from error
            raise
        finally:
            pool.limits.end(place)
        pool.check_version(place, place.member.endpoint.version_of(session.connection))
        return result, time.monotonic() - begin

    def _key(self) -> Hashable:
        # Replicas of a stage have one code, so that any of them may use a session that another one has begun.
        return tuple((stage.name, id(code)) for stage, code in self._loaded[:1])
