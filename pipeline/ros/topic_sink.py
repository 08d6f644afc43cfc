"""ROS topics as sinks: results as messages with the stamps and frame ids of their frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from pipeline.errors import InputError, near
from pipeline.io.results import Classes, Detections, FrameResults, Mask
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.source_frame import StreamFrame
from pipeline.io.uri import Uri, parse_uri
from pipeline.ros.bag_source import IMAGE
from pipeline.ros.bridge import Header
from pipeline.ros.configuration import PROFILES, Publication, quality
from pipeline.ros.messages import cdr
from pipeline.ros.messages.detections import CLASSIFICATION, DETECTIONS, classification, detection_array
from pipeline.ros.messages.message_reader import message_header
from pipeline.ros.messages.message_writer import image
from pipeline.ros.messages.types import create_message
from pipeline.ros.topic_source import OPTIONS, connect_topic

STRING = "std_msgs/msg/String"
"""Type of messages with JSON, also of an application's events."""

RESULTS: dict[str, tuple[type, ...]] = {
    DETECTIONS: (Detections,),
    CLASSIFICATION: (Classes,),
    # Of other results than a mask, the picture with them.
    IMAGE: (Mask,),
    # A line of JSON, as in files of results.
    STRING: (),
}
"""Types of messages, and results that each is for."""


class TopicSink(Sink):
    """Publishes results; by default detections."""

    def __init__(self, uri: Uri, options: SinkOptions) -> None:  # noqa: ARG002 - one interface
        self._kind = uri.options.get("type", DETECTIONS)
        if self._kind not in RESULTS:
            raise InputError(f"{uri.text!r}: type is one of {', '.join(RESULTS)}{near(self._kind, RESULTS)}")
        topic, self._transport = connect_topic(uri, self._kind)
        self._publication = Publication(topic.topic, self._kind)
        # As nodes of ROS 2 publish, unless said otherwise: any subscriber hears that.
        qos = quality(topic.qos if "qos" in uri.options else "reliable")
        self._send = self._transport.publisher(topic.topic, self._kind, qos)

    def add(self, result: StreamFrame) -> None:
        """Publish one result, if somebody subscribes."""
        if not self._send.peers():
            return
        header = message_header(Header(result.frame.stamp, result.frame.frame_id))
        if (message := self._message(result, header)) is not None:
            self._send(cdr.encode(message, self._kind), result.frame.stamp)

    def finish(self) -> None:
        """Leave the network."""
        self._transport.stop()
        self._transport.close()

    def _message(self, frame: StreamFrame, header: Any) -> Any:
        if self._kind == STRING:
            facts = {"stream": frame.stream, "name": frame.name, "timestamp": frame.timestamp}
            results = frame.result.facts() if frame.result is not None else []
            return create_message(STRING, msgspec.json.encode({**facts, "results": results}).decode())
        whole = frame.result
        parts = whole.parts.values() if isinstance(whole, FrameResults) else (whole,)
        result = next((part for part in parts if isinstance(part, RESULTS[self._kind])), None)
        if isinstance(result, Mask):
            return image(np.asarray(result.classes), header, self._publication)
        if self._kind == IMAGE:
            from pipeline.io.sinks.overlay import draw

            picture = np.ascontiguousarray(frame.picture)
            return image(picture if whole is None else draw(picture, whole), header, self._publication)
        if self._kind == DETECTIONS:
            found = result if isinstance(result, Detections) else _NOTHING
            return detection_array(found, header, 0.0, ())
        return classification(result, header, 0.0, ()) if isinstance(result, Classes) else None


_NOTHING = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
"""A frame without a result is answered as well, so that receivers can tell it from one that was lost."""

KINDS = (SinkKind("ros", TopicSink, "ros:TOPIC", is_file=False, options=OPTIONS),)


def open_events(text: str) -> tuple[Callable[[bytes], object], Callable[[], object]]:
    """Return functions that publish an event, and that leave ROS.

    A text is ``ros:/TOPIC``, with the options ``transport``, ``domain`` and ``localhost`` of a node's configuration.
    """
    topic, transport = connect_topic(
        parse_uri(text, ["ros"]), STRING, ("transport", "domain", "localhost"), "soc_pipeline_events"
    )
    send = transport.publisher(topic.topic, STRING, PROFILES["reliable"])

    def close() -> None:
        transport.stop()
        transport.close()

    return lambda line: send(cdr.encode(create_message(STRING, line.decode()), STRING), 0), close
