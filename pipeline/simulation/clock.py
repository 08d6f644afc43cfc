"""Clock: simulated time, with processes waiting for it or each other."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from itertools import count

Resume = Callable[[], None]
Request = Callable[[Resume], None]
"""Request yielded by a process, with a function to resume it."""

Process = Generator[Request, None, None]


class Clock:
    """Runs processes, earliest first, then in request order.

    `time`: seconds since the start.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self._due: list[tuple[float, int, Resume]] = []
        self._order = count()

    def schedule(self, seconds: float, resume: Resume) -> None:
        """Call `resume` in `seconds`."""
        # The number decides between equal times, and keeps functions from being compared.
        heapq.heappush(self._due, (self.time + seconds, next(self._order), resume))

    def sleep(self, seconds: float) -> Request:
        """Return the request to go on in `seconds`."""
        return lambda resume: self.schedule(seconds, resume)

    def start(self, process: Process) -> None:
        """Let a process run from now on."""

        def step() -> None:
            # Each step runs to its next request, without interruption: what lies between two yields is atomic, and
            # needs no lock.
            request = next(process, None)
            if request is not None:
                request(step)

        self.schedule(0.0, step)

    def run(self) -> None:
        """Run until nothing is due; remaining processes wait forever."""
        while self._due:
            self.time, _, resume = heapq.heappop(self._due)
            resume()


class Tokens:
    """Places, cores, links: countable things to take and give back.

    Who asks with the least number is served first, and of equal ones who came first.
    """

    def __init__(self, clock: Clock, places: int) -> None:
        self._clock, self.free = clock, places
        self._waiting: list[tuple[int, int, Resume]] = []
        self._order = count()

    def take(self, frame: int = 0) -> Request:
        """Return a request for one token, by `frame` age where relevant."""

        def request(resume: Resume) -> None:
            if self.free:
                self.free -= 1
                self._clock.schedule(0.0, resume)
            else:
                heapq.heappush(self._waiting, (frame, next(self._order), resume))

        return request

    def try_take(self) -> bool:
        """Take a free token; return success."""
        available = self.free > 0
        self.free -= available
        return available

    def give(self) -> None:
        """Give one back, to whoever is the next."""
        # Handed over directly: a process that asks at this very moment must not overtake those who wait.
        if self._waiting:
            self._clock.schedule(0.0, heapq.heappop(self._waiting)[-1])
        else:
            self.free += 1
