"""ROS node: a bundle as a ROS 2 node, by configuration."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

import pipeline
from pipeline.core.model_card import Preparation
from pipeline.errors import InputError, PipelineError
from pipeline.io.prepared_bundle import prepare_bundle
from pipeline.io.result_reader import make_reader
from pipeline.ros.bridge import Bridge, BridgeAnswer, BridgeRequest, Counts, ignore
from pipeline.ros.configuration import Quality, quality
from pipeline.ros.messages import cdr, diagnostics
from pipeline.ros.messages.diagnostics import Condition
from pipeline.ros.messages.message_reader import MessageReader
from pipeline.ros.messages.message_writer import MessageWriter
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.switch_interval import choose_interval
from pipeline.scheduler.waiting import Latch
from pipeline.system.closable import Closable

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels
    from pipeline.ros.configuration import Configuration
    from pipeline.ros.transports.base import Transport
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.trace import Trace

INTERVAL_S = 1.0
"""Seconds between two messages of diagnostics."""


class RosNode(Closable):
    """Subscribes, lets the pipeline work, publishes.

    The pipeline is opened by the first message, which says what pictures there are to prepare.

    Parameters
    ----------
    configuration : Configuration
    bundle : Bundle
        Bundle of the configuration.
    transport : Transport
        Closed by whoever opened it, after the plugin.
    report : callable
        Function to call with each message without an answer.
    on_open : callable, optional
        Function to call with the pipeline, the pixels of its pictures and their geometry, before the first frame.
    trace : Trace, optional
        Trace of the pipeline.

    Raises
    ------
    InputError
        If topics, types and the model do not go together.
    """

    def __init__(  # noqa: PLR0913 - all but the first four by keyword
        self,
        configuration: Configuration,
        bundle: Bundle,
        transport: Transport,
        report: Callable[[Exception], None] = ignore,
        *,
        on_open: Callable[[Pipeline, Pixels | None, Geometry | None], object] | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._on_open, self._trace = on_open, trace
        self._configuration, self._bundle, self._transport = configuration, bundle, transport
        self._on_report, self._trouble = report, ""
        self._reader = MessageReader(configuration.subscribe.type)
        card = configuration.complete_card(bundle)
        self._preparation, self._results = card.preparation or Preparation(), make_reader(bundle.plan, card)
        self._decoding: dict[str, Any] = {
            "task": card.task if self._results else "",
            "guessed": card.origins.get("decoder", "").startswith("guess"),
        }
        self._publications = [
            msgspec.structs.replace(publication, labels=publication.labels or card.labels)
            for publication in configuration.publish
        ]
        self._check()
        # Says at once whether the bundle runs here, and lets the first message find all libraries in memory.
        pipeline.load(bundle).close()
        # What the first message opens; a signal may end it meanwhile, so that the latch is one that handlers can set.
        self._stack, self._end = ExitStack(), Latch()
        self._node: Bridge | None = None
        self._running: Pipeline | None = None
        self._pixels: Any = None
        self._early_counts, self._error = Counts(), None  # type: tuple[Counts, PipelineError | None]
        # Announced before the first message, so that receivers are found by the time of the first answer.
        self._senders = [
            transport.publisher(publication.topic, publication.type, quality(publication.qos))
            for publication in configuration.publish
        ]
        self._diagnose = self._diagnostics()
        self._previous_condition: Condition | None = None
        subscription = configuration.subscribe
        # Last: from here on messages come, in another thread.
        transport.subscribe(subscription.topic, subscription.type, quality(subscription.qos), self.receive)

    def receive(self, payload: bytes) -> None:
        """Take one message."""
        if self._end.is_set():
            return
        # By one thread only, since transports hand over one message at a time.
        if self._node is None and not self._open_for(payload):
            return
        if self._node is not None:
            self._node.take(payload)

    def run(self, stop: threading.Event | Latch) -> None:
        """Publish diagnostics until `stop` is set.

        Raises
        ------
        PipelineError
            If the pipeline cannot be opened for the messages that come.
        """
        while not stop.wait(INTERVAL_S) and not self._end.is_set():
            self.diagnose()
        if self._error is not None:
            raise self._error

    def diagnose(self) -> None:
        """Publish the diagnostics."""
        if self._diagnose is not None:
            condition = self.condition()
            self._diagnose(diagnostics.message(self._configuration.name, condition, self._previous_condition))
            self._previous_condition = condition

    def condition(self) -> Condition:
        """Return the condition by the work so far."""
        counts = self._node.counts() if self._node else Counts()
        early_counts = self._early_counts
        counts = replace(
            counts, received=counts.received + early_counts.received, refused=counts.refused + early_counts.refused
        )
        return Condition(counts, self._running.statistics() if self._running else None, self._trouble)

    def close(self) -> None:
        """Accept no more messages, and publish the remaining answers."""
        # First, so that no message comes for a pipeline that is closing.
        self._transport.stop()
        self._stack.close()
        # Once more with the last counts.
        self.diagnose()

    def _check(self) -> None:
        plan = self._bundle.plan
        if len(plan.inputs) != 1:
            names = ", ".join(spec.name for spec in plan.inputs)
            raise InputError(f"a message is one input, but the model has {names}")
        for publication in self._publications:
            # Made for its errors: those for the answers know the geometry of the pictures as well.
            MessageWriter(publication, plan.outputs, **self._decoding)

    def _open_for(self, payload: bytes) -> bool:
        try:
            _, pixels, _ = self._reader.read(payload)
        except InputError as error:
            # The bridge, which counts the others, is not there yet.
            counts = self._early_counts
            self._early_counts = replace(counts, received=counts.received + 1, refused=counts.refused + 1)
            self._report(error)
            return False
        try:
            self._open(pixels)
        except PipelineError as error:
            self._error = error
            self._end.set()
        return self._error is None

    def _open(self, pixels: Any) -> None:
        configuration = self._configuration
        bundle, geometry = prepare_bundle(self._bundle, pixels, self._preparation)
        deadline = math.inf if configuration.deadline is None else configuration.deadline
        try:
            admission = Admission(configuration.policy, deadline=deadline)
            # Messages are read beside the workers.
            interval = choose_interval(bundle.plan)
            running = pipeline.load(bundle, admission=admission, switch_interval=interval, trace=self._trace)
        except ValueError as error:
            raise InputError(str(error)) from None
        # Before the bridge, which is closed first and hands over what is still inside.
        self._running = self._stack.enter_context(running)
        self._pixels, self._geometry = pixels, geometry
        if self._on_open is not None:
            self._on_open(running, pixels, geometry)
        plan = bundle.plan
        self._writers = [
            MessageWriter(publication, plan.outputs, geometry, plan.quantization, **self._decoding)
            for publication in self._publications
        ]
        self._node = self._stack.enter_context(Bridge(running, self._request, self._publish, self._report))

    def _request(self, payload: bytes) -> BridgeRequest:
        header, pixels, array = self._reader.read(payload)
        # The stage that prepares pictures was made for one size and encoding.
        if pixels != self._pixels:
            raise InputError(f"the images change from {self._pixels} to {pixels}; start the node again for these")
        return BridgeRequest(header, array)

    def _publish(self, answer: BridgeAnswer) -> None:
        result = None
        if self._results is not None and any(writer.decodes for writer in self._writers):
            size = None if self._pixels is None else (self._pixels.width, self._pixels.height)
            # Once for all topics.
            result = self._results.read(answer.outputs, self._geometry, size)
        for writer, send in zip(self._writers, self._senders, strict=True):
            send(writer.payload(answer, result), answer.header.stamp)

    def _report(self, error: Exception) -> None:
        self._trouble = str(error)
        self._on_report(error)

    def _diagnostics(self) -> Callable[[Any], None] | None:
        topic, kind = self._configuration.diagnostics, diagnostics.DIAGNOSTICS
        if not topic:
            return None
        send = self._transport.publisher(topic, kind, Quality())
        return lambda message: send(cdr.encode(message, kind), 0)
