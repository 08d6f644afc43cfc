"""Pool candidate: a pool of servers as a place where frames of one stage can be computed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from pipeline.errors import DeviceLost, RemoteError
from pipeline.remote.candidate import DeviceCandidate, Loaded
from pipeline.remote.pool import Place, Pool, PoolSession

Result = TypeVar("Result")

ATTEMPTS = 2
"""A frame whose server is lost is tried once elsewhere."""


class PoolCandidate(DeviceCandidate):
    """A pool as one worker uses it: each frame goes to the member that has the least to do.

    Parameters
    ----------
    use_pool : callable
        Returns a context manager that gives the pool; called when it is first needed.
    stages : sequence
        What is loaded; the list itself, which grows.
    patience : float
        Seconds that frames wait while no member is there.
    timeout : float
        Seconds that the members may take to answer for the first time.
    attempts : int
        How many members may be lost with one frame.
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
        self._stages, self._patience, self._timeout, self._attempts = stages, patience, timeout, attempts
        self._use_pool, self._use = use_pool, contextlib.ExitStack()
        self._pool: Pool | None = None
        self._place: Place | None = None
        self._is_broken_off = False

    @property
    def session_address(self) -> str:
        """The address of the member that has the worker's frame; empty between frames."""
        return "" if self._place is None else str(self._place.member.endpoint)

    def prepare(self) -> None:
        """Let one member load all stages; others do with their first frames."""
        self.call(lambda _: None)

    def run(self, program: int, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame, or raise `DeviceLost` if two members were lost with it."""
        return self.run_timed(program, inputs)[0]

    def run_timed(self, program: int, inputs: Sequence[np.ndarray]) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, and return the seconds that the member's device took as well."""
        stage = self._stages[program][0]
        return self.call(lambda session: session.connection.run_timed(session.programs[program], stage, inputs))

    def break_off(self) -> None:
        """End a call that waits for a member, or for a place, in another thread."""
        self._is_broken_off = True
        if (place := self._place) is not None:
            place.break_off()
        if (pool := self._pool) is not None:
            pool.wake()

    def close(self) -> None:
        """End the sessions that nobody uses."""
        if self._pool is not None:
            # Sessions of other workers with the same stages are in use, or are begun again.
            self._pool.forget(self._key())
            self._use.close()
            self._pool = None

    def call(self, work: Callable[[PoolSession], Result]) -> Result:
        """Return the result of `work` in a session of the least busy member, or of another one if that is lost."""
        if self._pool is None:
            self._pool = self._use.enter_context(self._use_pool())
        error: DeviceLost | None = None
        lost_place: Place | None = None
        for _ in range(self._attempts):
            avoid = lost_place.member if lost_place else None
            # Members that have just been asked for the first time need a moment to answer.
            patience = max(self._patience, self._timeout if error is None else 0.0)
            place = self._place = self._pool.take(self._key(), avoid, patience, lambda: self._is_broken_off)
            try:
                result = work(self._open(place))
            except DeviceLost as lost:
                error, lost_place = lost, place
                self._pool.lose(place, lost)
            except BaseException as failure:
                if not isinstance(failure, RemoteError):
                    # In the middle of a message nobody knows any more where the next one begins.
                    place.discard_session()
                self._pool.give_back(place)
                raise
            else:
                self._pool.give_back(place)
                return result
            finally:
                self._place = None
        raise error or DeviceLost("")

    def _open(self, place: Place) -> PoolSession:
        """Return the place's session, with all stages open in it."""
        # A server that was restarted since the last frame said goodbye.
        if place.session is not None and not place.session.connection.usable():
            place.discard_session()
        if place.session is None:
            place.session = PoolSession(place.member.endpoint.connect())
        session = place.session
        for stage, code in self._stages[len(session.programs) :]:
            session.programs.append(session.connection.open(stage, code))
        return session

    def _key(self) -> Hashable:
        # Replicas of a stage have one code, so that any of them may use a session that another one has begun.
        return tuple((stage.name, id(code)) for stage, code in self._stages[:1])
