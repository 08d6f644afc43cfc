"""Bridge: messages in, ordered results out, for every middleware.

A middleware calls `take` with each message, from whichever thread it likes, and the bridge calls `publish` with each
answer, from a thread of its own.  Embedded in one that is not known here::

    import numpy as np
    import pipeline
    from pipeline.ros.bridge import Bridge, BridgeRequest, Header

    def decode(message):
        header = Header(message.time_ns, message.frame)
        return BridgeRequest(header, np.frombuffer(message.payload, np.uint8).reshape(480, 640, 3))

    def publish(answer):
        for name, array in answer.outputs.items():
            bus.send(f"results/{name}", array.tobytes(), answer.header.stamp, answer.header.frame_id)

    with pipeline.load("model.bundle", admission="latest") as running:
        with Bridge(running, decode, publish) as bridge:
            bus.subscribe("camera", bridge.take)
            bus.spin()
        print(bridge.counts(), running.statistics())
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pipeline.errors import InputError, PipelineClosed
from pipeline.io.source_frame import SECOND
from pipeline.io.stream_loop import Outputs, StreamLoop, SubmittedFrame
from pipeline.scheduler.pipeline import Pipeline
from pipeline.system.closable import Closable


@dataclass(frozen=True)
class Header:
    """Stamp and coordinates, copied from message to answer."""

    stamp: int = 0
    """Time of capture, in nanoseconds of the sender's clock; 0 if the sender does not say."""
    frame_id: str = ""
    """Coordinates of the message."""


@dataclass(frozen=True)
class BridgeRequest:
    """A message as the pipeline takes it."""

    header: Header
    inputs: np.ndarray | Mapping[str, np.ndarray]
    """Inputs of `Pipeline.submit`; nobody may change them from now on."""
    is_timed: bool = True
    """False if the stamp is of another clock than this machine's, as in a simulation."""


@dataclass(frozen=True)
class BridgeAnswer:
    """Outputs of the pipeline for a message."""

    header: Header
    """The message's own."""
    outputs: Mapping[str, np.ndarray]
    """Outputs by name."""
    inputs: np.ndarray | Mapping[str, np.ndarray]
    """The request's."""


@dataclass(frozen=True)
class Counts:
    """Messages by outcome, besides the pipeline's own statistics.

    ``received == refused + dropped + submitted`` of the statistics, and once it is closed ``delivered == published +
    unpublished``.
    """

    # Messages that came, and those that could not be read or do not fit the model.
    received: int = 0
    refused: int = 0
    # Messages given up before they were read, since the node was too far behind.
    dropped: int = 0
    # Answers that were sent, and those whose sending failed.
    published: int = 0
    unpublished: int = 0


def ignore(_: Exception) -> None:
    """Say nothing of an error."""


class Bridge(Closable):
    """A running pipeline between a subscription and a publication.

    Nothing piles up: while answers are not taken by the middleware, `take` waits, and so does the middleware, which
    then drops messages or holds them back, as its quality of service says.

    Parameters
    ----------
    running : Pipeline
        Pipeline whose admission decides about messages that come too fast: ``"latest"`` for sensor data, ``"block"``
        where each message counts.  It is closed by whoever opened it, after the node.
    decode : callable
        Makes a `BridgeRequest` of a message; may raise `InputError`.
    publish : callable
        Function to call with each `BridgeAnswer`, in the order of the messages, one at a time.
    report : callable
        Function to call with each message that was refused, frame that failed, and answer that could not be sent.  They
        end alone.
    drop : callable
        Function to call with the header of each message that the admission dropped.
    """

    def __init__(
        self,
        running: Pipeline,
        decode: Callable[[Any], BridgeRequest],
        publish: Callable[[BridgeAnswer], None],
        report: Callable[[Exception], None] = ignore,
        drop: Callable[[Header], object] = lambda _: None,
    ) -> None:
        self._decode, self._publish, self._report = decode, publish, report
        self._loop = StreamLoop(
            running, self._deliver, report, "answers", lambda frame: drop(frame.future.metadata.header)
        )
        # Of whoever calls `take`, which middlewares do from several threads, and of `close`.
        self._entrance, self._is_closed = threading.Lock(), False
        # Of the middleware's threads and the loop's.
        self._counting, self._counts = threading.Lock(), Counts()

    def take(self, message: Any) -> bool:
        """Submit a message when there is room.

        Returns True if it was submitted; messages that cannot be are reported, and none is once the node is closed.
        """
        # One after the other, so that the line has the order of the frames.
        with self._entrance:
            if self._is_closed:
                return False
            self._count(received=1)
            try:
                request = self._decode(message)
                # Without a stamp it counts as captured now.
                stamp = request.header.stamp / SECOND if request.header.stamp and request.is_timed else None
                self._loop.submit(request.inputs, copy=False, timestamp=stamp, metadata=request)
            except (InputError, PipelineClosed) as error:
                self._count(refused=1)
                self._report(error)
                return False
            return True

    def counts(self) -> Counts:
        """Return the counts of messages so far."""
        return self._counts

    def close(self) -> None:
        """Accept no more messages, publish the remaining answers, and return."""
        # A message that was let in is submitted before the loop closes.
        with self._entrance:
            self._is_closed = True
        self._loop.close()

    def _deliver(self, frame: SubmittedFrame, outputs: Outputs) -> None:
        try:
            # By the loop's thread alone, so that answers leave one at a time and in order.
            request = frame.future.metadata
            self._publish(BridgeAnswer(request.header, outputs, request.inputs))
        except Exception as error:  # noqa: BLE001 - a middleware's trouble with one answer must not end the others
            self._count(unpublished=1)
            self._report(error)
        else:
            self._count(published=1)

    def _count(self, **increments: int) -> None:
        with self._counting:
            self._counts = replace(
                self._counts, **{name: getattr(self._counts, name) + by for name, by in increments.items()}
            )
