"""ROS topics as sources: the newest messages as frames, over any transport."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from queue import Empty, Queue

from pipeline.errors import InputError
from pipeline.io.source_frame import SourceFrame
from pipeline.io.sources.base import FrameSource, SourceKind, SourceOptions
from pipeline.io.uri import Uri
from pipeline.ros.configuration import PROFILES, Configuration, Topic, quality
from pipeline.ros.messages.message_reader import MessageReader
from pipeline.ros.transports.base import MODULES, Transport, connect, keep_newest

OPTIONS = ("domain", "localhost", "qos", "transport", "type")
"""Options of a topic's text, as in the node's configuration."""

LOCALHOST = {"true": True, "false": False, "1": True, "0": False}
"""Values of that option."""

PATIENCE_S = 10.0
"""Seconds without a message until that is told."""


def connect_topic(uri: Uri, kind: str, names: Sequence[str] = OPTIONS, node: str = "") -> tuple[Topic, Transport]:
    """Return the topic of a text such as ``ros:/camera?qos=reliable`` and its transport, or raise `InputError`.

    Messages are of that kind, unless the text says otherwise by one of the options `names`. By default the node's name
    is after the topic.
    """
    options = uri.check_options(*names)
    if not uri.location.strip("/"):
        raise InputError(f"{uri.text!r} names no topic; write such as ros:/camera")
    qos, transport, domain = (options.get(name, "") for name in ("qos", "transport", "domain"))
    known = (qos or "reliable") in PROFILES and (transport or "dds") in MODULES and (domain or "0").isdecimal()
    if not known or options.get("localhost", "false") not in LOCALHOST:
        raise InputError(
            f"{uri.text!r}: qos is {' or '.join(PROFILES)}, transport is {', '.join(MODULES)}, domain is a number, "
            f"localhost is {' or '.join(LOCALHOST)}"
        )
    name = f"/{uri.location.strip('/')}"
    topic = Topic(name, options.get("type", kind), PROFILES[qos or "sensor_data"])
    configuration = Configuration(
        "",
        topic,
        (),
        name=node or f"soc_pipeline{name.replace('/', '_')}",
        transport=transport or "dds",  # type: ignore[arg-type]
        domain=int(domain) if domain else None,
        localhost=LOCALHOST[options.get("localhost", "false")],
    )
    return topic, connect(configuration)


class TopicSource(FrameSource):
    """Frames of a topic; of messages that come too fast, the newest."""

    live = True
    owns_memory = True

    def __init__(self, uri: Uri, options: SourceOptions) -> None:
        self._topic, self._transport = connect_topic(uri, "sensor_msgs/msg/Image")
        try:
            self._reader = MessageReader(self._topic.type)
            self._line: Queue[bytes] = Queue(1)
            qos = quality(self._topic.qos)
            self._endpoint = self._transport.subscribe(
                self._topic.topic, self._topic.type, qos, partial(keep_newest, self._line)
            )
            self._count, self._is_closed, self._notice = 0, False, options.notice
            # The first one says what all are.
            self._first = self._next()
            self.pixels = self._first.pixels
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[SourceFrame]:
        """Yield the messages as frames."""
        yield self._first
        while not self._is_closed:
            frame = self._next()
            if frame.pixels != self.pixels:
                raise InputError(f"{self._topic.topic}: the images change from {self.pixels} to {frame.pixels}")
            yield frame

    def close(self) -> None:
        """Leave the network."""
        self._is_closed = True
        self._transport.stop()
        self._transport.close()

    def _next(self) -> SourceFrame:
        silence_end = time.monotonic() + PATIENCE_S
        while True:
            try:
                payload = self._line.get(timeout=0.2)
            except Empty:
                if silence_end and time.monotonic() > silence_end and not self._endpoint.peers():
                    silence_end = 0.0
                    similar = self._transport.find_similar(self._topic.type)
                    self._notice(
                        f"no publisher of {self._topic.topic!r} ({self._topic.type}) for {PATIENCE_S:g} s{similar}"
                    )
                continue
            try:
                header, pixels, array = self._reader.read(payload)
            except InputError as error:
                self._notice(str(error))
                continue
            self._count += 1
            name = f"{self._topic.topic.strip('/').replace('/', '_')}-{self._count - 1:06d}"
            return SourceFrame(name, array, header.stamp or time.time_ns(), pixels=pixels, frame_id=header.frame_id)


KINDS = (SourceKind(("ros",), TopicSource, "ros:TOPIC", live=True, options=OPTIONS),)
