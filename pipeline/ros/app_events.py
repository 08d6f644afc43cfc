"""Events of applications in ROS 2: each a ``std_msgs/msg/String`` with its JSON."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pipeline.errors import InputError
from pipeline.io.uri import parse_uri
from pipeline.ros.configuration import PROFILES, Configuration, Topic
from pipeline.ros.messages import cdr
from pipeline.ros.messages.types import create_message
from pipeline.ros.transports import registry

STRING = "std_msgs/msg/String"


def open_events(text: str) -> tuple[Callable[[bytes], object], Callable[[], object]]:
    """Return functions that publish an event, and that leave ROS.

    Parameters
    ----------
    text : str
        ``ros:/TOPIC``, with the options ``transport``, ``domain`` and ``localhost`` of a node's configuration.
    """
    uri = parse_uri(text, ["ros"])
    options = uri.check_options("transport", "domain", "localhost")
    values = {"bundle": "", "subscribe": Topic(""), "publish": [], "name": "soc_pipeline_events", **options}
    try:
        configuration = msgspec.convert(values, Configuration, strict=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{text!r}: {error}") from None
    connection = registry.connect(configuration)
    send = connection.publisher(f"/{uri.location.lstrip('/')}", STRING, PROFILES["reliable"])

    def close() -> None:
        connection.stop()
        connection.close()

    return lambda line: send(cdr.encode(create_message(STRING, line.decode()), STRING), 0), close
