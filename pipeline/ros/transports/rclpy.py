"""Rclpy: the same messages through an installed ROS 2 and its middleware.

Messages pass as bytes in both directions, so that ROS makes no Python objects of pictures.
"""

from __future__ import annotations

import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError, MissingExtra
from pipeline.ros.transports.base import Receive, Send, Transport

if TYPE_CHECKING:
    from pipeline.ros.configuration import Configuration, Quality


class Rclpy(Transport):
    """A node of ROS 2.

    Raises
    ------
    MissingExtra
        If there is no rclpy.
    """

    def __init__(self, domain: int, name: str) -> None:
        try:
            rclpy, executors, qos = map(import_module, ("rclpy", "rclpy.executors", "rclpy.qos"))
            self._class = import_module("rosidl_runtime_py.utilities").get_message
        except ImportError as error:
            raise MissingExtra(
                f"transport rclpy: {error}; source the setup file of a ROS 2 installation, or use the transport dds"
            ) from None
        self._profile, self._reliability, self._history = qos.QoSProfile, qos.ReliabilityPolicy, qos.HistoryPolicy
        # A context of its own, so that it can be shut down beside other nodes of the process.
        self._context = rclpy.Context()
        rclpy.init(context=self._context, domain_id=domain)
        self._node = rclpy.create_node(name, context=self._context)
        self._executor = executors.SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        # One thread for all subscriptions: each `receive` is called with one message at a time.
        self._thread = threading.Thread(target=self._executor.spin, name="rclpy", daemon=True)

    def subscribe(self, topic: str, kind: str, quality: Quality, receive: Receive) -> None:
        """Let rclpy's executor call `receive`."""
        self._node.create_subscription(self._message(kind), topic, receive, self._qos(quality), raw=True)
        # Only now: a node that does nothing but publish needs no thread.
        if not self._thread.is_alive():
            self._thread.start()

    def publisher(self, topic: str, kind: str, quality: Quality) -> Send:
        """Return a publishing function; rclpy records the time itself."""
        publisher = self._node.create_publisher(self._message(kind), topic, self._qos(quality))
        # rclpy sends `bytes` as they are, and refuses whatever else is no message of its own.
        return lambda payload, _: publisher.publish(bytes(payload))

    def stop(self) -> None:
        """End the executor."""
        self._executor.shutdown()
        # A node that only publishes has never started it.
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        """Destroy the node."""
        self._node.destroy_node()
        self._context.try_shutdown()

    def _message(self, kind: str) -> Any:
        try:
            return self._class(kind)
        # A package that is not installed, a message that it lacks, or no name of a message at all.
        except (ModuleNotFoundError, AttributeError, ValueError) as error:
            raise InputError(f"this installation of ROS has no {kind}: {error}") from None

    def _qos(self, quality: Quality) -> Any:
        kinds = self._reliability
        return self._profile(
            depth=quality.depth,
            history=self._history.KEEP_LAST,
            reliability=kinds.RELIABLE if quality.reliable else kinds.BEST_EFFORT,
        )


def open_transport(domain: int, configuration: Configuration) -> Rclpy:
    """Connect as a configuration says."""
    return Rclpy(domain, configuration.name)
