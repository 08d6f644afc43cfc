"""Transport: carrier of messages, with one small adapter per middleware."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from queue import Empty, Full, Queue
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.system.closable import Closable, call_all

if TYPE_CHECKING:
    from pipeline.ros.configuration import Configuration, Quality


INTERVAL_S = 0.1
"""Seconds between two looks if a line has ended."""

TRANSIT = 32
"""Messages that a middleware keeps at least, so that a burst does not overtake the thread that takes them."""

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

    def subscribe(
        self, topic: str, kind: str, quality: Quality, receive: Receive, lose: Receive = lambda _: None
    ) -> Endpoint:
        """Call `receive` with messages one at a time, queued by quality, and `lose` with those that find no place."""
        line = MessageLine(topic, quality.depth, receive, lose)
        self._lines.add(line)
        endpoint = self.read(topic, kind, quality, line)
        # The line first: a middleware that waits for a place goes on.
        return replace(
            endpoint, close=lambda: call_all([line.close, endpoint.close, lambda: self._lines.discard(line)])
        )

    @cached_property
    def _lines(self) -> set[MessageLine]:
        return set()

    @abstractmethod
    def read(self, topic: str, kind: str, quality: Quality, line: MessageLine) -> Endpoint:
        """Put messages into a line."""

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

    def stop(self) -> None:
        """Call no `receive` any more; publishers go on."""
        call_all([*(line.close for line in tuple(self._lines)), self.stop_reading])

    @abstractmethod
    def stop_reading(self) -> None:
        """Put no messages into lines any more."""

    @abstractmethod
    def close(self) -> None:
        """Release everything after sending the published, as far as possible."""

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.close()


class MessageLine(Closable):
    """Line of messages in front of `receive`, which a thread of its own calls one after the other.

    Middlewares forget messages of a reader that is behind, and say nothing: so they are taken from them at once, and
    `lose` is called with those for which the line has no place.
    """

    def __init__(self, topic: str, depth: int, receive: Receive, lose: Receive) -> None:
        self._receive, self._lose, self._queue = receive, lose, Queue[bytes](depth)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"read {topic}", daemon=True)
        self._thread.start()

    def put(self, payload: bytes) -> None:
        """Add a message; a full line gives up its oldest, an ended one all."""
        if self._ending.is_set():
            self._lose(payload)
        else:
            keep_newest(self._queue, payload, self._lose)

    def put_patiently(self, payload: bytes) -> None:
        """Add a message, waiting for a place."""
        while not self._ending.is_set():
            with contextlib.suppress(Full):
                self._queue.put(payload, timeout=INTERVAL_S)
                return
        self._lose(payload)

    def close(self) -> None:
        """Call `receive` no more, and give up what waits."""
        self._ending.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        with contextlib.suppress(Empty):
            while True:
                self._lose(self._queue.get_nowait())

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                payload = self._queue.get(timeout=INTERVAL_S)
            except Empty:
                continue
            self._receive(payload)


def keep_newest(line: Queue[bytes], payload: bytes, lose: Receive = lambda _: None) -> None:
    """Make a place by giving up the oldest."""
    while True:
        try:
            line.put_nowait(payload)
        except Full:  # noqa: PERF203 - once, unless it is full
            # The reader may have taken the last one meanwhile.
            with contextlib.suppress(Empty):
                lose(line.get_nowait())
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


MODULES = {
    "dds": "pipeline.ros.transports.dds",
    "rclpy": "pipeline.ros.transports.rclpy",
    "zenoh": "pipeline.ros.transports.zenoh",
}
"""Modules by name, with an `open_transport` of domain and configuration; loaded when chosen."""


def connect(configuration: Configuration) -> Transport:
    """Return the configuration's transport, connected.

    Raises `InputError` if the domain is none, or cannot be joined; `MissingExtra` if its package is not installed.
    """
    module = importlib.import_module(MODULES[configuration.transport])
    transport: Transport = module.open_transport(choose_domain(configuration.domain), configuration)
    return transport
