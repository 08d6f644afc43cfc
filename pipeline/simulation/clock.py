"""Clock: simulated time, and processes that wait for it or for each other."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from itertools import count

Resume = Callable[[], None]
Request = Callable[[Resume], None]
"""What a process yields: it is given what lets the process go on."""

Process = Generator[Request, None, None]


class Clock:
    """Runs processes, the one with the earliest time first; at the same time, in the order of their requests.

    Attributes
    ----------
    time : float
        Seconds since the start.
    """

    def __init__(self) -> None:
        self.time = 0.0
        self._due: list[tuple[float, int, Resume]] = []
        self._order = count()

    def after(self, seconds: float, resume: Resume) -> None:
        """Call `resume` in `seconds`."""
        # The number decides between equal times, and keeps functions from being compared.
        heapq.heappush(self._due, (self.time + seconds, next(self._order), resume))

    def sleep(self, seconds: float) -> Request:
        """Return the request to go on in `seconds`."""
        return lambda resume: self.after(seconds, resume)

    def start(self, process: Process) -> None:
        """Let a process run from now on."""

        def step() -> None:
            # Each step runs to its next request, without interruption: what lies between two yields is atomic, and
            # needs no lock.
            request = next(process, None)
            if request is not None:
                request(step)

        self.after(0.0, step)

    def run(self) -> None:
        """Go on until nothing is due any more; whoever waits then waits for ever."""
        while self._due:
            self.time, _, resume = heapq.heappop(self._due)
            resume()


class Tokens:
    """Places, cores, links: a number of things to take and to give back.

    Who asks with the least number is served first, and of equal ones who came first.

    Parameters
    ----------
    clock : Clock
    places : int
        How many are free.
    """

    def __init__(self, clock: Clock, places: int) -> None:
        self._clock, self.free = clock, places
        self._waiting: list[tuple[int, int, Resume]] = []
        self._order = count()

    def take(self, frame: int = 0) -> Request:
        """Return the request to go on with one of them; where age counts, for a frame of this number."""

        def request(resume: Resume) -> None:
            if self.free:
                self.free -= 1
                self._clock.after(0.0, resume)
            else:
                heapq.heappush(self._waiting, (frame, next(self._order), resume))

        return request

    def try_take(self) -> bool:
        """Take one if there is one, and return whether there was."""
        available = self.free > 0
        self.free -= available
        return available

    def give(self) -> None:
        """Give one back, to whoever is the next."""
        # Handed over directly: a process that asks at this very moment must not overtake those who wait.
        if self._waiting:
            self._clock.after(0.0, heapq.heappop(self._waiting)[-1])
        else:
            self.free += 1
