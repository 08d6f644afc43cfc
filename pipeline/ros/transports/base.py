"""Transport: carrier of messages, with one small adapter per middleware."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.errors import InputError
from pipeline.system.closable import Closable

if TYPE_CHECKING:
    from pipeline.ros.configuration import Quality

Receive = Callable[[bytes], None]
Payload = bytes | bytearray
Send = Callable[[Payload, int], None]
"""Function sending a message, with its source time in nanoseconds for the middleware."""


class Transport(Closable, ABC):
    """Messages by topic and type, as encapsulated CDR bytes."""

    @abstractmethod
    def subscribe(self, topic: str, kind: str, quality: Quality, receive: Receive) -> None:
        """Call `receive` with messages one at a time, queued by quality."""

    @abstractmethod
    def publisher(self, topic: str, kind: str, quality: Quality) -> Send:
        """Return a function sending messages one at a time, from any thread."""

    @abstractmethod
    def stop(self) -> None:
        """Call no `receive` any more; publishers go on."""

    @abstractmethod
    def close(self) -> None:
        """Release everything after sending the published, as far as possible."""

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.close()


def choose_domain(number: int | None) -> int:
    """Return the domain: as configured, else ``ROS_DOMAIN_ID``, else 0.

    Raises
    ------
    InputError
        If it is no number from 0 to 232.
    """
    # An empty variable counts as none, as in ROS.
    text = os.environ.get("ROS_DOMAIN_ID", "") or "0" if number is None else str(number)
    # Ports begin at 7400 + 250 * domain (RTPS, well-known ports): those of 233 would exceed 65535.
    if not text.isdecimal() or int(text) > 232:
        raise InputError(f"the domain is {text!r}; it must be a number from 0 to 232")
    return int(text)
