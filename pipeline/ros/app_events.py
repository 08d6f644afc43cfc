"""Events of applications in ROS 2: each a ``std_msgs/msg/String`` with its JSON."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.io.uri import parse_uri
from pipeline.ros.configuration import PROFILES
from pipeline.ros.messages import cdr
from pipeline.ros.messages.types import create_message
from pipeline.ros.topic_source import connect_topic

STRING = "std_msgs/msg/String"
OPTIONS = ("transport", "domain", "localhost")


def open_events(text: str) -> tuple[Callable[[bytes], object], Callable[[], object]]:
    """Return functions that publish an event, and that leave ROS.

    A text is ``ros:/TOPIC``, with the options ``transport``, ``domain`` and ``localhost`` of a node's configuration.
    """
    topic, transport = connect_topic(parse_uri(text, ["ros"]), STRING, OPTIONS, "soc_pipeline_events")
    send = transport.publisher(topic.topic, STRING, PROFILES["reliable"])

    def close() -> None:
        transport.stop()
        transport.close()

    return lambda line: send(cdr.encode(create_message(STRING, line.decode()), STRING), 0), close
