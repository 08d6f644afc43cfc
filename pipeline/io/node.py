"""Node: messages in, results out, in order; the same core for every middleware.

A middleware calls `take` with each message, from whichever thread it likes, and the node calls `publish` with each
answer, from a thread of its own.  Embedded in one that is not known here::

    import numpy as np
    import pipeline
    from pipeline.io.node import Header, Node, Request

    def decode(message):
        header = Header(message.time_ns, message.frame)
        return Request(header, np.frombuffer(message.payload, np.uint8).reshape(480, 640, 3))

    def publish(answer):
        for name, array in answer.outputs.items():
            bus.send(f"results/{name}", array.tobytes(), answer.header.stamp, answer.header.frame_id)

    with pipeline.load("model.bundle", admission="latest") as running:
        with Node(running, decode, publish) as node:
            bus.subscribe("camera", node.take)
            bus.spin()
        print(node.counts(), running.statistics())
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, replace
from queue import Queue
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import FrameDropped, InputError, PipelineClosed, PipelineError
from pipeline.io.frame import SECOND

if TYPE_CHECKING:
    from pipeline.scheduler.frame import FrameFuture
    from pipeline.scheduler.pipeline import Pipeline


@dataclass(frozen=True)
class Header:
    """What comes back with an answer as it came with the message.

    Attributes
    ----------
    stamp : int
        When it was captured, in nanoseconds of the sender's clock; 0 if the sender does not say.
    frame_id : str
        Which coordinates it is in.
    """

    stamp: int = 0
    frame_id: str = ""


@dataclass(frozen=True)
class Request:
    """A message as the pipeline takes it.

    Attributes
    ----------
    header : Header
    inputs : array, or mapping of str to array
        As for `Pipeline.submit`; nobody may change them from now on.
    """

    header: Header
    inputs: np.ndarray | Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Answer:
    """What the pipeline made of a message.

    Attributes
    ----------
    header : Header
        The message's own.
    outputs : mapping of str to array
        By name.
    """

    header: Header
    outputs: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Counts:
    """What became of the messages, besides the pipeline's own statistics.

    ``received == refused + submitted`` of the statistics, and once it is closed ``delivered == published +
    unpublished``.

    Attributes
    ----------
    received, refused : int
        Messages that came, and those that could not be read or do not fit the model.
    published, unpublished : int
        Answers that were sent, and those whose sending failed.
    """

    received: int = 0
    refused: int = 0
    published: int = 0
    unpublished: int = 0


def ignore(_: Exception) -> None:
    """Say nothing of an error."""


class Node:
    """A running pipeline between a subscription and a publication.

    Nothing piles up: while answers are not taken by the middleware, `take` waits, and so does the middleware, which
    then drops messages or holds them back, as its quality of service says.

    Parameters
    ----------
    running : Pipeline
        Its admission decides about messages that come too fast: ``"latest"`` for sensor data, ``"block"`` where each
        message counts.  It is closed by whoever opened it, after the node.
    decode : callable
        Makes a `Request` of a message; may raise `InputError`.
    publish : callable
        Called with each `Answer`, in the order of the messages, one at a time.
    report : callable
        Told of each message that was refused, frame that failed, and answer that could not be sent.  They end alone.
    """

    def __init__(
        self,
        running: Pipeline,
        decode: Callable[[Any], Request],
        publish: Callable[[Answer], None],
        report: Callable[[Exception], None] = ignore,
    ) -> None:
        self._running, self._decode, self._publish, self._report = running, decode, publish, report
        self._names = [spec.name for spec in running.plan.outputs]
        # More than are inside, so that the pipeline never waits for its results to be taken.
        self._line: Queue[FrameFuture | None] = Queue(2 * running.plan.frames_in_flight + 2)
        self._entrance, self._closed, self._counts = threading.Lock(), False, Counts()
        self._counting = threading.Lock()
        self._taker = threading.Thread(target=self._take_answers, name="answers", daemon=True)
        self._taker.start()

    def take(self, message: Any) -> bool:
        """Submit a message, as soon as there is a place for it.

        Returns
        -------
        bool
            Whether it was submitted; messages that cannot be are reported, and none is once the node is closed.
        """
        # One after the other, so that the line has the order of the frames.
        with self._entrance:
            if self._closed:
                return False
            self._count(received=1)
            try:
                request = self._decode(message)
                # Without a stamp it counts as captured now.
                stamp = request.header.stamp / SECOND if request.header.stamp else None
                future = self._running.submit(request.inputs, copy=False, timestamp=stamp, metadata=request.header)
            except (InputError, PipelineClosed) as error:
                self._count(refused=1)
                self._report(error)
                return False
            self._line.put(future)
            return True

    def counts(self) -> Counts:
        """Return what became of the messages so far."""
        return self._counts

    def close(self) -> None:
        """Take no more messages, publish the answers to those that were taken, and return."""
        with self._entrance:
            if not self._closed:
                self._closed = True
                self._line.put(None)
        self._taker.join()

    def __enter__(self) -> Node:  # noqa: PYI034 - Self is newer than the oldest Python
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _take_answers(self) -> None:
        while (future := self._line.get()) is not None:
            try:
                result = future.result()
            except (FrameDropped, CancelledError):
                continue
            except PipelineError as error:
                self._report(error)
                continue
            outputs = result if isinstance(result, dict) else {self._names[0]: result}
            self._send(Answer(future.metadata, outputs))

    def _send(self, answer: Answer) -> None:
        try:
            self._publish(answer)
        except Exception as error:  # noqa: BLE001 - a middleware's trouble with one answer must not end the others
            self._count(unpublished=1)
            self._report(error)
        else:
            self._count(published=1)

    def _count(self, **more: int) -> None:
        with self._counting:
            self._counts = replace(
                self._counts, **{name: getattr(self._counts, name) + by for name, by in more.items()}
            )
