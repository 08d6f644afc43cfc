"""Transport: what carries messages; one small adapter for each middleware."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from pipeline.errors import InputError

if TYPE_CHECKING:
    from pipeline.io.ros.configuration import Configuration, Quality

Kind = TypeVar("Kind", bound="Transport")
Receive = Callable[[bytes], None]
Send = Callable[[bytes, int], None]
"""Sends a message, with the time in nanoseconds that the middleware shall note as its source's."""


class Transport(ABC):
    """Messages by topic and type, each as the bytes of its CDR with the encapsulation in front."""

    @abstractmethod
    def subscribe(self, topic: str, kind: str, quality: Quality, receive: Receive) -> None:
        """Let `receive` be called with each message, one at a time; while it does not return, quality decides."""

    @abstractmethod
    def publisher(self, topic: str, kind: str, quality: Quality) -> Send:
        """Return what sends a message; from any thread, and one at a time."""

    @abstractmethod
    def stop(self) -> None:
        """Call no `receive` any more; publishers go on."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything, after what was published has left as well as it can."""

    def __enter__(self: Kind) -> Kind:  # noqa: PYI019 - Self is newer than the oldest Python
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self.close()


def domain(configured: int | None) -> int:
    """Return the domain: as configured, else ``ROS_DOMAIN_ID``, else 0.

    Raises
    ------
    InputError
        If it is no number from 0 to 232.
    """
    text = os.environ.get("ROS_DOMAIN_ID", "") or "0" if configured is None else str(configured)
    if not text.isdecimal() or int(text) > 232:
        raise InputError(f"the domain is {text!r}; it must be a number from 0 to 232")
    return int(text)


def connect(configuration: Configuration) -> Transport:
    """Return the transport that a configuration names, connected.

    Raises
    ------
    MissingExtra
        If its package is not installed.
    """
    number, localhost = domain(configuration.domain), configuration.localhost
    if configuration.transport == "zenoh":
        from pipeline.io.ros.over_zenoh import Zenoh

        return Zenoh(number, localhost=localhost)
    if configuration.transport == "rclpy":
        from pipeline.io.ros.over_rclpy import Rclpy

        return Rclpy(number, configuration.name)
    from pipeline.io.ros.over_dds import Dds

    return Dds(number, localhost=localhost)
