"""ROS node: a bundle as a ROS 2 node, by configuration."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

import pipeline
from pipeline.errors import InputError, PipelineError
from pipeline.io.prepared_bundle import prepare_bundle
from pipeline.io.source_frame import SECOND
from pipeline.ros.bridge import Bridge, BridgeAnswer, BridgeRequest, Counts, Header, ignore
from pipeline.ros.configuration import PROFILES, Configuration, Quality, quality
from pipeline.ros.messages import cdr, scans
from pipeline.ros.messages.diagnostics import Condition
from pipeline.ros.messages.message_reader import HEADER, MessageReader, message_header
from pipeline.ros.messages.message_writer import CAMERA_INFO
from pipeline.ros.monitor import NodeMonitor
from pipeline.ros.result_publisher import ResultPublisher
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.switch_interval import choose_interval
from pipeline.scheduler.waiting import Latch
from pipeline.system.closable import Closable

if TYPE_CHECKING:
    from typing_extensions import Self

    from pipeline.executor.bundle import Bundle
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels
    from pipeline.ros.transports.base import Endpoint, Transport
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.trace import Trace

LIVE = ("bundle", "labels", "publish")
"""Keys that may change while a node is configured; a bundle is used from its swap on."""

REMEDY = "let it come more slowly, raise depth of its qos for bursts, or choose the policy latest"

CLOCK = "rosgraph_msgs/msg/Clock"


class RosNode(Closable):
    """Subscribes, lets the pipeline work, publishes; a context manager that is active within its block.

    The pipeline is opened by the first message, which says what pictures there are to prepare. Whoever opened the
    transport closes it, after the node. `report` is called with each message without an answer, and with a topic
    without a publisher; `on_open` with the pipeline, the pixels of its pictures and their geometry, before the first
    frame. While it `is_paused`, messages are left alone. `error` ended the work: the pipeline cannot be opened for the
    messages that come. Raises `InputError` if topics, types and the model do not go together.
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
        if len(bundle.plan.inputs) != 1:
            names = ", ".join(spec.name for spec in bundle.plan.inputs)
            raise InputError(f"a message is one input, but the model has {names}")
        self._publisher = ResultPublisher(configuration, bundle)
        # Says at once whether the bundle runs here, and lets the first message find all libraries in memory.
        pipeline.load(bundle).close()
        # What the first message opens; a signal may end it meanwhile, so that the latch is one that handlers can set.
        self._stack, self._end = ExitStack(), Latch()
        self._node: Bridge | None = None
        self._running: Pipeline | None = None
        self._pixels: Any = None
        self._early_counts, self.error = Counts(), None  # type: tuple[Counts, PipelineError | None]
        self.is_paused, self._is_behind, self._given_up = False, False, 0
        self._sim_time, self._camera_info = 0, None  # type: tuple[int, Any]
        self._subscriptions: list[Endpoint] = []
        # Announced before the first message, so that receivers are found by the time of the first answer.
        self._publisher.announce(transport)
        self._drop = transport.announce(configuration.dropped, HEADER, PROFILES["reliable"])
        self._monitor = NodeMonitor(configuration, transport, self.now)

    def __enter__(self) -> Self:
        self.activate()
        return self

    def activate(self) -> None:
        """Subscribe; from here on messages come, in another thread."""
        configuration = self._configuration
        topics = {configuration.camera_info: (CAMERA_INFO, self._keep_camera_info)}
        if configuration.use_sim_time:
            topics["/clock"] = (CLOCK, self._keep_time)
        main = configuration.subscribe
        # First, as its silence is told of.
        self._subscriptions = [
            self._transport.subscribe(main.topic, main.type, quality(main.qos), self.receive, self.lose)
        ]
        self._subscriptions += [
            self._transport.subscribe(topic, kind, Quality(reliable=False), receive)
            for topic, (kind, receive) in topics.items()
            if topic
        ]

    def deactivate(self) -> None:
        """Unsubscribe."""
        while self._subscriptions:
            self._subscriptions.pop().close()

    def receive(self, payload: bytes) -> None:
        """Take one message."""
        if self._end.is_set() or self.is_paused:
            return
        # By one thread only, since transports hand over one message at a time.
        if self._node is None and not self._open_for(payload):
            return
        if self._node is not None:
            self._node.take(payload)

    def lose(self, payload: bytes) -> None:
        """Count a message that found no place, and tell its sender."""
        # Those that wait at the end, without a subscription any more, do not say that the node is slow.
        if self._subscriptions and not self._is_behind:
            self._is_behind, topic = True, self._configuration.subscribe
            behind = f"the node is more than {quality(topic.qos).depth} messages behind"
            self._report(InputError(f"{topic.topic} is dropped in part, since {behind}; {REMEDY}"))
        self._given_up += 1
        # Of one that cannot be read, nobody can be told.
        with suppress(InputError):
            self._tell_dropped(self._reader.read(payload)[0])

    def watch(self) -> None:
        """Publish diagnostics and statistics, and report a topic without a publisher: once per `INTERVAL_S`."""
        self._monitor.diagnose(self.condition())
        self._monitor.publish_statistics()
        has_peers = not self._subscriptions or bool(self._subscriptions[0].peers())
        if silence := self._monitor.find_silence(has_peers=has_peers):
            self._report(InputError(silence))

    def condition(self) -> Condition:
        """Return the condition by the work so far."""
        counts = self._node.counts() if self._node else Counts()
        early_counts = self._early_counts
        counts = replace(
            counts,
            received=counts.received + early_counts.received + self._given_up,
            refused=counts.refused + early_counts.refused,
            dropped=self._given_up,
        )
        return Condition(counts, self._running.statistics() if self._running else None, self._trouble)

    def now(self) -> int:
        """Return the time of the node's clock in nanoseconds."""
        return self._sim_time if self._configuration.use_sim_time else time.time_ns()

    def swap(self, bundle: Bundle) -> None:
        """Run another bundle for later messages; an error leaves the first one at work."""
        if self._running is not None:
            self._running.swap(prepare_bundle(bundle, self._pixels, self._publisher.preparation)[0])
        self._bundle = bundle

    def change(self, configuration: Configuration) -> None:
        """Take over what may change in a configuration; `InputError` for the rest."""
        old, new = (msgspec.structs.asdict(each) for each in (self._configuration, configuration))
        topics = [[(each.topic, each.type, each.qos) for each in values["publish"]] for values in (old, new)]
        fixed = [name for name, value in new.items() if value != old[name] and name not in LIVE]
        if fixed or topics[0] != topics[1]:
            raise InputError(f"{', '.join(fixed) or 'topics'} cannot change now: clean up the node first")
        self._publisher.configure(configuration, self._bundle)
        self._configuration = configuration

    def close(self) -> None:
        """Accept no more messages, and publish the remaining answers."""
        # First, so that no message comes for a pipeline that is closing.
        self.deactivate()
        self._stack.close()
        # Once more with the last counts.
        self._monitor.diagnose(self.condition())
        self._monitor.close()
        self._publisher.close()
        self._drop.close()

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
            self.error = error
            self._end.set()
        return self.error is None

    def _open(self, pixels: Any) -> None:
        configuration = self._configuration
        bundle, geometry = prepare_bundle(self._bundle, pixels, self._publisher.preparation)
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
        self._pixels = pixels
        self._publisher.fit(pixels, geometry)
        if self._on_open is not None:
            self._on_open(running, pixels, geometry)
        bridge = Bridge(running, self._request, self._publish, self._report, self._tell_dropped)
        self._node = self._stack.enter_context(bridge)

    def _request(self, payload: bytes) -> BridgeRequest:
        header, pixels, array = self._reader.read(payload)
        self._monitor.statistics.add(header.stamp, self.now())
        # The stage that prepares pictures was made for one size and encoding.
        if pixels != self._pixels:
            raise InputError(f"the images change from {self._pixels} to {pixels}; start the node again for these")
        if self._configuration.subscribe.type in scans.READERS:
            spec = self._bundle.plan.inputs[0]
            array = scans.fit(array, spec.shape, spec.dtype)
        return BridgeRequest(header, array, not self._configuration.use_sim_time)

    def _publish(self, answer: BridgeAnswer) -> None:
        self._publisher.publish(answer, self._camera_info)

    def _tell_dropped(self, header: Header) -> None:
        self._drop(cdr.encode(message_header(header), HEADER), header.stamp)

    def _keep_camera_info(self, payload: bytes) -> None:
        self._camera_info = cdr.decode(payload, CAMERA_INFO)

    def _keep_time(self, payload: bytes) -> None:
        clock = cdr.decode(payload, CLOCK).clock
        self._sim_time = clock.sec * SECOND + clock.nanosec

    def _report(self, error: Exception) -> None:
        self._trouble = str(error)
        self._on_report(error)
