"""AdmissionQueue: starts frames in order as soon as there is room.

Whoever makes room starts the frame that waits for it.  So nobody polls, and a frame does not wait for its caller to
wake up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue

from pipeline.errors import FrameDropped
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.frame import Carrier, Frame
from pipeline.scheduler.interrupts import uninterrupted
from pipeline.scheduler.ledger import Ledger
from pipeline.system.forks import keep


class Ticket:
    """Wait of a thread for its frame to start."""

    def __init__(self) -> None:
        # Settled in any thread, under the ledger's lock or in a signal handler: putting never waits for a lock.
        self._outcome: SimpleQueue[BaseException | None] = SimpleQueue()

    def settle(self, error: BaseException | None = None) -> None:
        """End the wait: the frame started, or cannot because of `error`."""
        self._outcome.put(error)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for settlement; raise its error, or `TimeoutError` after `timeout` seconds."""
        try:
            error = self._outcome.get(timeout=timeout)
        except Empty:
            raise TimeoutError from None
        if error is not None:
            raise error


class AdmissionQueue:
    """Frames waiting to start, guarded by the ledger's lock.

    Once a frame has started, it waits for nothing but later stages: so there is no deadlock. `capacity` says how many
    frames may be in flight. `on_unbuilt_change` is called, under the lock, when a frame has left `unbuilt_frames`,
    which wait for a build and then for their place in the queue.
    """

    def __init__(self, admission: Admission, ledger: Ledger, capacity: Callable[[], int]) -> None:
        self.admission, self._ledger, self._capacity = admission, ledger, capacity
        # Computed once: asked for twice for each frame.
        self.drops = admission.drops
        # With a ticket: the frame of a caller that blocks, which has no number yet.  Without: a submitted frame.
        self._waiting: deque[tuple[Frame, Ticket | None]] = deque()
        self.is_paused = False
        self.unbuilt_frames: list[Frame] = []
        self.on_unbuilt_change: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        """Count submitted frames, without blocked callers'. The caller holds the ledger's lock."""
        return len(self.frames())

    @property
    def blocked_callers(self) -> int:
        """Number of callers blocked in submitting, under the ledger's lock."""
        return sum(ticket is not None for _, ticket in self._waiting)

    def submit(self, frame: Frame, make_ticket: Callable[[], Ticket] | None) -> Ticket | None:
        """Start, queue or drop a frame by policy, under the ledger's lock.

        Where the policy lets callers wait, `make_ticket` makes the ticket to wait with, which is returned then; None
        would not wait. Raises `TimeoutError` if the caller would have to wait and does not want to.
        """
        if self.drops:
            # At once, since the caller goes away with it.  A frame that a caller blocks for gets its number when it
            # starts, so that giving up leaves no gap.
            self._ledger.number(frame)
            self._waiting.append((frame, None))
            return None
        # Room or not, nobody overtakes those who wait already: results come in the order of submission.
        if not self._waiting and self._has_room(frame):
            self._start(frame)
            return None
        if make_ticket is None:
            raise TimeoutError
        ticket = make_ticket()
        self._waiting.append((frame, ticket))
        return ticket

    def use_room(self) -> None:
        """Start waiting frames in newly freed room."""
        if self._waiting:
            self.settle()

    @uninterrupted
    def settle(self) -> None:
        """Start frames with room, and drop expired ones."""
        with self._ledger.lock:
            dropped_frames = [
                frame for frame, reason in self._start_waiting() if frame.withdraw(FrameDropped(frame.number, reason))
            ]
        # Without the lock: their callbacks may call back into the pipeline.
        for frame in dropped_frames:
            self._ledger.end_withdrawn(frame)

    @uninterrupted
    def leave(self, ticket: Ticket) -> bool:
        """Stop waiting; return False if the frame has already started."""
        with self._ledger.lock:
            # Whoever starts the frame takes it out of the queue under this lock: either it is still there, or it has
            # started.
            withdrawn = [frame for frame, entry in self._waiting if entry is ticket]
            self._waiting = deque(entry for entry in self._waiting if entry[1] is not ticket)
        for frame in withdrawn:
            frame.end()
        return bool(withdrawn)

    def remove(self, frame: Frame) -> None:
        """Remove a frame from the queue, under the ledger's lock."""
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not frame)
        if frame in self.unbuilt_frames:
            # Both are in the same books; whoever withdraws a frame does not know which of the two it waits in.
            self.unbuilt_frames.remove(frame)
            self.on_unbuilt_change()

    def admit(self, frame: Frame) -> None:
        """Queue a previously unbuilt frame, under the ledger's lock."""
        self.remove(frame)
        self._waiting.append((frame, None))

    def frames(self) -> list[Frame]:
        """Return the submitted waiting frames, under the ledger's lock."""
        return [*(frame for frame, ticket in self._waiting if ticket is None), *self.unbuilt_frames]

    def all_frames(self) -> list[Frame]:
        """Return all queued frames, submitted or not, under the ledger's lock."""
        return [frame for frame, _ in self._waiting]

    def after_fork(self) -> None:
        """Clear the queue in a forked process."""
        keep(self._waiting)
        self._waiting, self.unbuilt_frames = deque(), []

    def refuse(self, error: Callable[[], BaseException], deployment: Carrier | None = None) -> None:
        """Fail the waiting frames of one or all deployments, under the lock."""
        refusals = [
            (frame, ticket)
            for frame, ticket in self._waiting
            if ticket is not None and deployment in (None, frame.deployment)
        ]
        refused_frames = {frame for frame, _ in refusals}
        self._waiting = deque(entry for entry in self._waiting if entry[0] not in refused_frames)
        for frame, ticket in refusals:
            # An error for each caller: raising one and the same in several threads would mix up their tracebacks.
            ticket.settle(error())
            frame.end()

    def _start_waiting(self) -> Iterator[tuple[Frame, str]]:
        while self._waiting:
            frame, ticket = self._waiting[0]
            # Also without room: a late frame must not keep the place of one that can still be in time.
            if self.admission.is_late(frame.future.timestamp, frame.deployment.forecast):
                yield frame, "late"
            elif not self._has_room(frame):
                break
            else:
                self._start(frame)
                if ticket is not None:
                    ticket.settle()
            self._waiting.popleft()
        while len(self._waiting) > self.admission.most_waiting:
            yield self._waiting.popleft()[0], self.admission.overflow

    def _has_room(self, frame: Frame) -> bool:
        # The bound on the whole pipeline is what excludes deadlock: edges that skip stages could otherwise fill the
        # channels with frames that wait for each other.
        return not self.is_paused and len(self._ledger) < self._capacity() and frame.deployment.has_room()

    def _start(self, frame: Frame) -> None:
        # First the books, then the channel: a worker may finish the frame before the next line is run.
        self._ledger.start(frame)
        frame.deployment.start(frame)
