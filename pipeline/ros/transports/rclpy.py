"""Rclpy: the same messages through an installed ROS 2 and its middleware, as a managed node.

Messages pass as bytes in both directions, so that ROS makes no Python objects of pictures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pipeline.errors import InputError, MissingExtra, PipelineError
from pipeline.ros.transports.base import TRANSIT, Endpoint, Lifecycle, MessageLine, Sender, Transport
from pipeline.ros.transports.peer_watch import PeerTopic, PeerWatch

if TYPE_CHECKING:
    from pipeline.ros.configuration import Configuration, Quality

INTERVAL_S = 1.0
"""Seconds between two looks at the peers on this node's topics."""

SERVICES = ("pause", "resume", "swap")
"""Functions of a node that are services, each a ``std_srvs/srv/Trigger``."""


class Rclpy(Transport):
    """A managed node of ROS 2.

    Raises `MissingExtra` if there is no rclpy.
    """

    def __init__(self, domain: int, name: str, namespace: str = "") -> None:
        try:
            rclpy, executors, self._qos_module = map(import_module, ("rclpy", "rclpy.executors", "rclpy.qos"))
            self._lifecycle_module = import_module("rclpy.lifecycle")
        except ImportError as error:
            raise MissingExtra(
                f"transport rclpy: {error}; source the setup file of a ROS 2 installation, or use the transport dds"
            ) from None
        # A context of its own, so that it can be shut down beside other nodes of the process.
        self._context, self._domain = rclpy.Context(), domain
        # Without arguments: names and parameters in those of the command line are the configuration's by now.
        rclpy.init(args=[], context=self._context, domain_id=domain)
        try:
            self._node = self._lifecycle_module.LifecycleNode(name, namespace=namespace, context=self._context)
        except Exception as error:  # noqa: BLE001 - a wrong name, or a middleware that is not there
            self._context.try_shutdown()
            raise InputError(f"the node {name!r} cannot be made: {error}") from None
        self._executor = executors.SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._peers, self._topics, self._stopping = PeerWatch(), set[str](), threading.Event()
        self._threads = [
            threading.Thread(target=self._executor.spin, name="rclpy", daemon=True),
            threading.Thread(target=self._watch, name="ROS peers", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def read(self, topic: str, kind: str, quality: Quality, line: MessageLine) -> Endpoint:
        """Let rclpy's executor fill a line, so that it goes on with services."""
        self._add(topic, kind, quality, publishes=False)
        qos = self._qos(replace(quality, depth=max(TRANSIT, quality.depth)))
        subscription = self._node.create_subscription(_message(kind), topic, line.put, qos, raw=True)
        return Endpoint(subscription.get_publisher_count, lambda: self._node.destroy_subscription(subscription))

    def publisher(self, topic: str, kind: str, quality: Quality) -> Sender:
        """Return a publisher; rclpy records the time itself."""
        self._add(topic, kind, quality, publishes=True)
        publisher = self._node.create_publisher(_message(kind), topic, self._qos(quality))
        # rclpy sends `bytes` as they are, and refuses whatever else is no message of its own.
        return Sender(
            publisher.get_subscription_count,
            lambda: self._node.destroy_publisher(publisher),
            lambda payload, _: publisher.publish(bytes(payload)),
        )

    def manage(self, lifecycle: Lifecycle) -> None:
        """Offer transitions, services and parameters, and start by itself if the configuration says so."""
        self._node.add_managed_entity(_managed_entity(self._lifecycle_module, lifecycle))
        lifecycle.on_failure = self._node.trigger_deactivate
        trigger = import_module("std_srvs.srv").Trigger
        for name in SERVICES:
            self._node.create_service(trigger, f"~/{name}", _service(getattr(lifecycle, name)))
        self._declare(lifecycle)
        if lifecycle.configuration.autostart:
            success = self._lifecycle_module.TransitionCallbackReturn.SUCCESS
            for transition in (self._node.trigger_configure, self._node.trigger_activate):
                if transition() != success:
                    raise lifecycle.error or InputError("the node does not start")

    def find_similar(self, kind: str) -> str:
        """Describe topics of that type, and other domains."""
        own = {name if name.startswith("/") else f"/{name}" for name in self._topics}
        for name, kinds in self._node.get_topic_names_and_types():
            if kind in kinds and name not in own and self._node.count_publishers(name):
                self._peers.note(PeerTopic(name, kind, publishes=True))
        return f" in domain {self._domain}{self._peers.find_similar(kind, self._domain)}"

    def stop_reading(self) -> None:
        """End the executor."""
        self._stopping.set()
        self._executor.shutdown()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Destroy the node."""
        self._node.destroy_node()
        self._context.try_shutdown()

    def _declare(self, lifecycle: Lifecycle) -> None:
        parameters = import_module("rclpy.parameter")
        descriptor = import_module("rcl_interfaces.msg").ParameterDescriptor(dynamic_typing=True)
        result = import_module("rcl_interfaces.msg").SetParametersResult
        for name, value in lifecycle.parameters().items():
            if not self._node.has_parameter(name):
                self._node.declare_parameter(name, value, descriptor)
        # `use_sim_time` was declared by rclpy itself, for the clock of the node.
        self._node.set_parameters([parameters.Parameter("use_sim_time", value=lifecycle.configuration.use_sim_time)])

        def change(changes: Any) -> Any:
            names = lifecycle.parameters().keys()
            try:
                lifecycle.change({each.name: each.value for each in changes if each.name in names})
            except PipelineError as error:
                return result(successful=False, reason=str(error))
            return result(successful=True)

        self._node.add_on_set_parameters_callback(change)

    def _add(self, topic: str, kind: str, quality: Quality, *, publishes: bool) -> None:
        self._topics.add(topic)
        self._peers.add(PeerTopic(topic, kind, publishes, quality.reliable))

    def _watch(self) -> None:
        """Note the peers on this node's topics, which ROS's graph lists with types and qualities."""
        while not self._stopping.wait(INTERVAL_S):
            for topic in tuple(self._topics):
                # The node may be closed meanwhile.
                with suppress(Exception):
                    for peer in self._node.get_publishers_info_by_topic(topic):
                        self._peers.note(self._peer(topic, peer, publishes=True))
                    for peer in self._node.get_subscriptions_info_by_topic(topic):
                        self._peers.note(self._peer(topic, peer, publishes=False))

    def _peer(self, topic: str, peer: Any, *, publishes: bool) -> PeerTopic:
        module, quality = self._qos_module, peer.qos_profile
        reliable = quality.reliability != module.ReliabilityPolicy.BEST_EFFORT
        latched = quality.durability == module.DurabilityPolicy.TRANSIENT_LOCAL
        return PeerTopic(topic, peer.topic_type, publishes, reliable, latched)

    def _qos(self, quality: Quality) -> Any:
        module = self._qos_module
        kinds = module.ReliabilityPolicy
        return module.QoSProfile(
            depth=quality.depth,
            history=module.HistoryPolicy.KEEP_LAST,
            reliability=kinds.RELIABLE if quality.reliable else kinds.BEST_EFFORT,
        )


def _message(kind: str) -> Any:
    """Return the class of a message, or raise `InputError`."""
    package, _, name = kind.partition("/msg/")
    try:
        return getattr(import_module(f"{package}.msg"), name)
    # A package that is not installed, or a message that it lacks.
    except (ModuleNotFoundError, AttributeError) as error:
        raise InputError(f"this installation of ROS has no {kind}: {error}; install the package {package}") from None


def _managed_entity(module: Any, lifecycle: Lifecycle) -> Any:
    """Return what ROS's state machine calls at each transition."""
    codes = module.TransitionCallbackReturn

    def callback(work: Callable[[], None]) -> Callable[..., Any]:
        def call(*_: object) -> Any:
            try:
                work()
            # Whatever it is, the state machine goes on to `on_error`.
            except Exception as error:  # noqa: BLE001
                lifecycle.note(error)
                return codes.ERROR
            return codes.SUCCESS

        return call

    steps = {
        "configure": lifecycle.configure,
        "activate": lifecycle.activate,
        "deactivate": lifecycle.deactivate,
        "cleanup": lifecycle.cleanup,
        "shutdown": lifecycle.cleanup,
        "error": lifecycle.cleanup,
    }
    return type("Managed", (module.ManagedEntity,), {f"on_{name}": callback(work) for name, work in steps.items()})()


def _service(work: Callable[[], str]) -> Callable[[Any, Any], Any]:
    def answer(_: Any, response: Any) -> Any:
        try:
            response.success, response.message = True, work()
        except PipelineError as error:
            response.success, response.message = False, str(error)
        return response

    return answer


def open_transport(domain: int, configuration: Configuration) -> Rclpy:
    """Connect as a configuration says."""
    return Rclpy(domain, configuration.name, configuration.namespace)
