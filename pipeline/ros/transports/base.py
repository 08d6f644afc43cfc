"""Transport: carrier of messages, with one small adapter per middleware."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.system.closable import Closable

if TYPE_CHECKING:
    from pipeline.ros.configuration import Quality

Receive = Callable[[bytes], None]
Payload = bytes | bytearray
Lifecycle = Any
"""A `pipeline.ros.lifecycle.Lifecycle`, which stands above the transports."""


@dataclass(frozen=True)
class Endpoint:
    """A subscription of this node, or a publisher."""

    peers: Callable[[], int] = lambda: 1
    """Counts those at the other end."""
    close: Callable[[], object] = lambda: None
    """Ends it; nothing is received any more."""


@dataclass(frozen=True)
class Sender(Endpoint):
    """A publisher; called with a message, and its source time in nanoseconds for the middleware."""

    send: Callable[[Payload, int], object] = lambda *_: None

    def __call__(self, payload: Payload, stamp: int) -> None:
        """Send a message."""
        self.send(payload, stamp)


class Transport(Closable, ABC):
    """Messages by topic and type, as encapsulated CDR bytes."""

    @abstractmethod
    def subscribe(self, topic: str, kind: str, quality: Quality, receive: Receive) -> Endpoint:
        """Call `receive` with messages one at a time, queued by quality."""

    @abstractmethod
    def publisher(self, topic: str, kind: str, quality: Quality) -> Sender:
        """Return a publisher for messages one at a time, from any thread."""

    def announce(self, topic: str, kind: str, quality: Quality) -> Sender:
        """Return a publisher, which sends nothing if the topic is empty."""
        return self.publisher(topic, kind, quality) if topic else Sender()

    def manage(self, lifecycle: Lifecycle) -> None:
        """Bring a node up; also by calls of others, where the middleware has some."""
        lifecycle.start()

    def find_similar(self, kind: str) -> str:  # noqa: ARG002 - for those that know
        """Describe where messages of a type are published instead."""
        return ""

    @abstractmethod
    def stop(self) -> None:
        """Call no `receive` any more; publishers go on."""

    @abstractmethod
    def close(self) -> None:
        """Release everything after sending the published, as far as possible."""

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.close()


def keep_newest(line: Queue[bytes], payload: bytes) -> None:
    """Make a place by forgetting the oldest."""
    while True:
        try:
            line.put_nowait(payload)
        except Full:  # noqa: PERF203 - once, unless it is full
            # The reader may have taken the last one meanwhile.
            with contextlib.suppress(Empty):
                line.get_nowait()
        else:
            return


def choose_domain(number: int | None) -> int:
    """Return the domain: as configured, else ``ROS_DOMAIN_ID``, else 0.

    Raises `InputError` if it is no number from 0 to 232.
    """
    # An empty variable counts as none, as in ROS.
    text = os.environ.get("ROS_DOMAIN_ID", "") or "0" if number is None else str(number)
    # Ports begin at 7400 + 250 * domain (RTPS, well-known ports): those of 233 would exceed 65535.
    if not text.isdecimal() or int(text) > 232:
        raise InputError(f"the domain is {text!r}; it must be a number from 0 to 232")
    return int(text)
