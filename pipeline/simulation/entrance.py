"""Entrance: arrived frames, started, queued or dropped by scheduler rules."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence

from pipeline.scheduler.admission import Admission


class Entrance:
    """Waiting line in front of a simulated pipeline.

    Frames arrive at `times`, or are all there from the start; `forecast` returns how many seconds a frame that starts
    now will take. `drops` counts frames that were not started, by the reason.
    """

    def __init__(
        self, frames: int, times: Sequence[float] | None, admission: Admission, forecast: Callable[[], float]
    ) -> None:
        self._frames, self._times = frames, times
        self._admission, self._forecast = admission, forecast
        self._line: deque[int] = deque()
        self._next = 0
        self.drops: Counter[str] = Counter()

    def arrival(self, number: int) -> float:
        """Return a frame's arrival time."""
        return 0.0 if self._times is None else self._times[number]

    def admit(self, time: float, reserve: Callable[[], bool]) -> Iterator[int]:
        """Yield frames starting now, each after `reserve`; drop expired ones.

        One frame is let in after the other, as each of them is looked at when it comes.
        """
        yield from self._admit_waiting(time, reserve)
        while self._next < self._frames and self.arrival(self._next) <= time:
            self._line.append(self._next)
            self._next += 1
            yield from self._admit_waiting(time, reserve)

    def _admit_waiting(self, time: float, reserve: Callable[[], bool]) -> Iterator[int]:
        while self._line:
            # The same three rules in the same order as `AdmissionQueue`: late, started, overflow.
            if self._late(self._line[0], time):
                self._drop("late")
            elif reserve():
                yield self._line.popleft()
            else:
                break
        while len(self._line) > self._admission.most_waiting:
            self._drop(self._admission.overflow)

    def _late(self, number: int, time: float) -> bool:
        limit = self._admission.deadline
        return self._admission.policy == "deadline" and time + self._forecast() > self.arrival(number) + limit

    def _drop(self, reason: str) -> None:
        self._line.popleft()
        self.drops[reason] += 1
