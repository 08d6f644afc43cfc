"""Entrance: starts each frame as soon as there is room for it, in the order of submission.

Whoever makes room starts the frame that waits for it.  So nobody polls, and a frame does not wait for its caller to
wake up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from pipeline.errors import FrameDropped
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.frame import Frame
from pipeline.scheduler.ledger import Ledger


class Ticket:
    """What a thread holds that waits for its frame to start."""

    def __init__(self) -> None:
        self._outcome: SimpleQueue[BaseException | None] = SimpleQueue()

    def settle(self, error: BaseException | None = None) -> None:
        """Tell that the frame has started, or why it never will."""
        self._outcome.put(error)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for that; raise the error, or `TimeoutError` after `timeout` seconds."""
        try:
            error = self._outcome.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error


class Entrance:
    """The line of frames that wait to start.

    Once a frame has started, it waits for nothing but later stages: so there is no deadlock.

    Parameters
    ----------
    admission : Admission
        Who may wait.
    ledger : Ledger
        Its lock guards the line too.
    capacity : callable
        Returns how many frames may be in flight.

    Attributes
    ----------
    paused : bool
        Whether no frame starts for the time being.
    """

    def __init__(self, admission: Admission, ledger: Ledger, capacity: Callable[[], int]) -> None:
        self.admission, self._ledger, self._capacity = admission, ledger, capacity
        self._line: deque[tuple[Frame, Ticket | None]] = deque()
        self.paused = False

    def __len__(self) -> int:
        """How many submitted frames wait; those whose callers wait are not submitted yet."""
        return len(self._line) if self.admission.drops else 0

    def submit(self, frame: Frame, ticket: Callable[[], Ticket] | None) -> Ticket | None:
        """Start the frame, or let it wait, or drop it, as the policy says; under the ledger's lock.

        Parameters
        ----------
        frame : Frame
        ticket : callable or None
            Makes what the caller would wait with, where the policy lets callers wait; None if it would not wait.

        Returns
        -------
        Ticket or None
            To wait for, if the caller has to wait.

        Raises
        ------
        TimeoutError
            If the caller would have to wait and does not want to.
        """
        if self.admission.drops:
            self._ledger.number(frame)
            self._line.append((frame, None))
            return None
        if not self._line and self._reserve(frame):
            self._start(frame)
            return None
        if ticket is None:
            raise TimeoutError
        held = ticket()
        self._line.append((frame, held))
        return held

    def freed(self) -> None:
        """Start frames that wait for the room that the caller has just made."""
        if self._line:
            self.settle()

    def settle(self) -> None:
        """Start the frames that may start, and drop those that must not wait any longer."""
        with self._ledger.lock:
            dropped = [frame for frame, reason in self._settled() if frame.withdraw(FrameDropped(frame.number, reason))]
        for frame in dropped:
            self._ledger.end_withdrawn(frame)

    def leave(self, ticket: Ticket) -> bool:
        """Wait no longer, and return whether that was in time: else the frame has started."""
        with self._ledger.lock:
            gone = [frame for frame, theirs in self._line if theirs is ticket]
            self._line = deque(each for each in self._line if each[1] is not ticket)
        for frame in gone:
            frame.end()
        return bool(gone)

    def remove(self, frame: Frame) -> None:
        """Take a frame out of the line, if it is there; under the ledger's lock."""
        self._line = deque(each for each in self._line if each[0] is not frame)

    def frames(self) -> list[Frame]:
        """Return the submitted frames that wait; under the ledger's lock."""
        return [frame for frame, ticket in self._line if ticket is None]

    def all(self) -> list[Frame]:
        """Return the frames that wait, submitted or not; under the ledger's lock."""
        return [frame for frame, _ in self._line]

    def refuse(self, error: Callable[[], BaseException]) -> None:
        """Tell those who wait for a place by an error that there will be none; under the ledger's lock."""
        refused = [(frame, ticket) for frame, ticket in self._line if ticket is not None]
        self._line = deque(each for each in self._line if each[1] is None)
        for frame, ticket in refused:
            ticket.settle(error())
            frame.end()

    def _settled(self) -> Iterator[tuple[Frame, str]]:
        while self._line:
            frame, ticket = self._line[0]
            if self.admission.late(frame.future.timestamp, frame.flow.forecast):
                yield frame, "late"
            elif not self._reserve(frame):
                break
            else:
                self._start(frame)
                if ticket is not None:
                    ticket.settle()
            self._line.popleft()
        while len(self._line) > self.admission.line:
            yield self._line.popleft()[0], self.admission.overflow

    def _reserve(self, frame: Frame) -> bool:
        return not self.paused and len(self._ledger) < self._capacity() and frame.flow.reserve()

    def _start(self, frame: Frame) -> None:
        self._ledger.start(frame)
        frame.flow.start(frame)
