"""NodeWorker: the thread of a node, and the line of frames in front of it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from pipeline.app.app_frame import AppFrame
from pipeline.app.steps import Condition, Finish, Step

Item = TypeVar("Item")


class FairQueue(Generic[Item]):
    """Takes items of several streams in turn.

    The stream that was served least comes first, and of equal ones the earliest capture: start-time fair queueing
    (Goyal, Vin and Cheng, 1996) with equal weights.  A stream that was away gets no turns for those that it missed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, deque[tuple[float, Item]]] = {}
        # Turns that each stream has had, and those of the stream that was served last, when it was.
        self._turns: dict[str, int] = {}
        self._now = 0
        # A token per item; readers wait for these, in C.
        self._tokens: SimpleQueue[bool] = SimpleQueue()

    def put(self, stream: str, time_s: float, item: Item) -> None:
        """Add an item of a stream, behind its earlier ones."""
        with self._lock:
            line = self._lines.setdefault(stream, deque())
            if not line:
                self._turns[stream] = max(self._turns.get(stream, 0), self._now)
            line.append((time_s, item))
        self._tokens.put(True)

    def get(self) -> Item | None:
        """Wait for an item; None once closed and drained."""
        if not self._tokens.get():
            return None
        with self._lock:
            waiting = (name for name, line in self._lines.items() if line)
            stream = min(waiting, key=lambda name: (self._turns[name], self._lines[name][0][0]))
            self._now = self._turns[stream]
            self._turns[stream] += 1
            return self._lines[stream].popleft()[1]

    def close(self) -> None:
        """End the reader after the remaining items."""
        self._tokens.put(False)


class NodeWorker:
    """Runs a node's step on the frames that are ready for it.

    Parameters
    ----------
    condition : Condition or None
        The node is skipped for frames where it does not hold.
    needs : callable
        Test for a frame that has all that the node reads.
    finish : callable
        Function to call with the name, each frame, and the result or `SKIPPED`.
    skips_failed : bool
        False for a step that wants frames that have failed as well.
    feedback : callable
        Function to call first with each frame: waits for results of the frame before.
    """

    def __init__(  # noqa: PLR0913 - the parts of a node
        self,
        name: str,
        step: Step,
        condition: Condition | None,
        needs: Callable[[AppFrame], bool],
        finish: Callable[[str, AppFrame, Any], None],
        *,
        skips_failed: bool = True,
        feedback: Callable[[AppFrame], None] = lambda _: None,
    ) -> None:
        self.step = step
        # Held from the moment that a frame is ready until it is in line, so that frames of a stream keep their order.
        self.lock = threading.Lock()
        self._condition, self._needs, self._skips_failed = condition, needs, skips_failed
        self._feedback = feedback
        self._finish: Finish = lambda frame, result: finish(name, frame, result)
        self._queue: FairQueue[AppFrame] = FairQueue()
        self._thread = threading.Thread(target=self._run, name=f"node {name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, frame: AppFrame) -> None:
        """Put a frame in line, under `lock`."""
        self._queue.put(frame.stream, frame.frame.ready, frame)

    def forget(self, stream: str) -> None:
        """Forget what is remembered of a stream."""
        if self._condition is not None:
            self._condition.forget(stream)
        self.step.forget(stream)

    def close(self) -> None:
        """End the thread behind the frames in line, then the step."""
        self._queue.close()
        if self._thread.ident is not None:
            self._thread.join()
        self.step.close()

    def _run(self) -> None:
        while (frame := self._queue.get()) is not None:
            try:
                self._feedback(frame)
                # The condition sees each frame, so that what it counts is true.
                holds = self._condition is None or self._condition.holds(frame)
                if (frame.error is not None and self._skips_failed) or not holds or not self._needs(frame):
                    self.step.skip(frame, self._finish)
                else:
                    self.step.begin(frame, self._finish)
            except BaseException as error:  # noqa: BLE001, PERF203 - the frame ends with it, whatever it is
                frame.fail(error)
                self.step.skip(frame, self._finish)
