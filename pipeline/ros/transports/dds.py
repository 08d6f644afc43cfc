"""DDS: messages under ROS 2 names without ROS, by Cyclone DDS."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from pipeline.errors import InputError
from pipeline.ros.transports.base import TRANSIT, Endpoint, MessageLine, Receive, Sender, Transport
from pipeline.ros.transports.dds_domain import open_domain
from pipeline.ros.transports.dds_types import describe_type, library
from pipeline.ros.transports.peer_watch import PeerTopic, PeerWatch

if TYPE_CHECKING:
    from pipeline.ros.configuration import Configuration, Quality

PATIENCE_S = 1.0
"""Seconds of waiting for receivers that are behind: by a reliable publisher, and by a closing one."""

GREETING_S = 1.0
"""Seconds for which a publisher that came is greeted."""

CYCLONE = b"\x01\x10"
"""First bytes of the keys of Cyclone's endpoints, its vendor's number."""


class Dds(Transport):
    """A participant of a DDS domain of ROS 2, as in ``ROS_DOMAIN_ID``.

    With `localhost` it talks to this machine only, without multicast, whatever ``CYCLONEDDS_URI`` says. With `octets`
    it tells peers that numbers of 8 bits are octets. Programs with Cyclone DDS 0.10 need that: its compiler calls uint8
    an octet as well, and told otherwise they end in a segmentation fault. Raises `MissingExtra` if Cyclone DDS is not
    installed; `InputError` if the domain cannot be joined.
    """

    def __init__(self, domain: int, *, localhost: bool = False, octets: bool = False) -> None:
        self._octets, self._number = octets, domain
        core, participants = library("core"), library("domain")
        try:
            # Has to exist before its participant, which takes the settings of the environment alone otherwise.
            self._domain = open_domain(domain, localhost=localhost)
            self._participant = participants.DomainParticipant(domain)
        except core.DDSException as error:
            raise InputError(f"DDS domain {domain} cannot be joined: {error}; CYCLONEDDS_URI may be wrong") from None
        # Wakes every thread that waits for samples, so that none sees only after a second that it shall end.
        self._stopping = core.GuardCondition(self._participant)
        self._writers: list[Any] = []
        self._threads: list[threading.Thread] = []
        self._reliable_topics: dict[str, Any] = {}
        self._peers = PeerWatch()
        self._start(self._watch, "DDS peers")

    def read(self, topic: str, kind: str, quality: Quality, line: MessageLine) -> Endpoint:
        """Read in a thread of its own."""
        sub, topic_of_dds = library("sub"), self._topic(topic, kind, quality, publishes=False)
        policies = quality_policies(replace(quality, depth=max(TRANSIT, quality.depth)))
        reader = sub.DataReader(self._participant, topic_of_dds, qos=policies)
        if quality.reliable:
            self._reliable_topics[topic_of_dds.name] = topic_of_dds
        ending = library("core").GuardCondition(self._participant)
        thread = self._start(self._read, f"take {topic}", reader, ending, line.put)

        def end() -> None:
            ending.set(True)
            thread.join()

        return Endpoint(lambda: len(reader.get_matched_publications()), end)

    def publisher(self, topic: str, kind: str, quality: Quality) -> Sender:
        """Return a function writing a sample."""
        policies, sample = quality_policies(quality), describe_type(kind, octets=self._octets)
        topic_of_dds = self._topic(topic, kind, quality, publishes=True)
        writer = library("pub").DataWriter(self._participant, topic_of_dds, qos=policies)
        # Kept, since a writer without references leaves the domain, and its last samples with it.
        self._writers.append(writer)
        return Sender(
            lambda: len(writer.get_matched_subscriptions()),
            lambda: self._writers.remove(writer),
            lambda payload, stamp: writer.write(sample(payload), timestamp=stamp or None),
        )

    def find_similar(self, kind: str) -> str:
        """Describe topics of that type, and other domains."""
        return f" in domain {self._number}{self._peers.find_similar(kind, self._number)}"

    def stop_reading(self) -> None:
        """End the readers."""
        self._stopping.set(True)
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        """Wait briefly for receivers, and leave the domain."""
        for writer in self._writers:
            _wait_for_receivers(writer)
        self._writers, self._threads, self._reliable_topics = [], [], {}
        # Entities of Cyclone end when nothing refers to them; in this order, each before what it belongs to.
        del self._stopping, self._participant, self._domain

    def _start(self, work: Callable[..., None], name: str, *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _topic(self, topic: str, kind: str, quality: Quality, *, publishes: bool) -> Any:
        # Without a quality of its own, which all its readers and writers would have to share.
        description = describe_type(kind, octets=self._octets)
        name = topic.strip("/")
        self._peers.add(PeerTopic(f"/{name}", kind, publishes, quality.reliable))
        return library("topic").Topic(self._participant, f"rt/{name}", description)

    def _wait_set(self, *conditions: Any) -> Any:
        wait_set = library("core").WaitSet(self._participant)
        for condition in (self._stopping, *conditions):
            wait_set.attach(condition)
        return wait_set

    def _read(self, reader: Any, ending: Any, receive: Receive) -> None:
        wait_set = self._wait_set(ending, _condition(reader))
        invalid = library("internal").InvalidSample
        while not (self._stopping.read() or ending.read()):
            wait_set.wait(library("util").duration(seconds=1))
            while not (self._stopping.read() or ending.read()) and (samples := reader.take(1)):
                # Publishers that leave send samples without data.
                if not isinstance(samples[0], invalid):
                    receive(samples[0].payload)

    def _watch(self) -> None:
        """Note the network's endpoints, which the built-in topics list with their types."""
        builtin = library("builtin")
        readers = {
            True: builtin.BuiltinDataReader(self._participant, builtin.BuiltinTopicDcpsPublication),
            False: builtin.BuiltinDataReader(self._participant, builtin.BuiltinTopicDcpsSubscription),
        }
        wait_set = self._wait_set(*map(_condition, readers.values()))
        greetings: list[tuple[float, Any]] = []
        while not self._stopping.read():
            wait_set.wait(library("util").duration(seconds=1))
            greetings = [(end_s, greeting) for end_s, greeting in greetings if end_s > monotonic()]
            for publishes, reader in readers.items():
                # Taken and not read, so that the wait set waits for what is new.
                for endpoint in reader.take(64):
                    # Those that leave are told of by samples without content.
                    if getattr(endpoint, "topic_name", None):
                        self._peers.note(_peer(endpoint, publishes=publishes))
                        if publishes and (greeting := self._greet(endpoint)) is not None:
                            greetings.append((monotonic() + GREETING_S, greeting))

    def _greet(self, publisher: Any) -> Any:
        """Return a second reader, by which a publisher of Fast DDS says where its messages begin.

        It says so to readers that come, once, and said it to ours before Cyclone had heard of the publisher.  Without
        that, Cyclone begins behind the message that it hears of first, and loses one that comes in several pieces.
        """
        topic = self._reliable_topics.get(publisher.topic_name)
        if topic is None or publisher.key.bytes.startswith(CYCLONE):
            return None
        quality = library("qos").Qos(library("qos").Policy.Reliability.Reliable(0))
        return library("sub").DataReader(self._participant, topic, qos=quality)


def quality_policies(quality: Quality) -> Any:
    """Return a quality of service as Cyclone has it."""
    qos, util = library("qos"), library("util")
    policy = qos.Policy
    # Not for ever: a receiver that hangs must not hold up the node.
    patience = util.duration(seconds=PATIENCE_S)
    return qos.Qos(
        policy.Reliability.Reliable(patience) if quality.reliable else policy.Reliability.BestEffort,
        policy.History.KeepLast(quality.depth),
        # Answers to frames of long ago are of no use to whoever comes later.
        policy.Durability.Volatile,
        # What ROS 2 sends and understands.
        policy.DataRepresentation(use_cdrv0_representation=True),
    )


def _condition(reader: Any) -> Any:
    core = library("core")
    return core.ReadCondition(reader, core.SampleState.Any | core.ViewState.Any | core.InstanceState.Any)


def _peer(endpoint: Any, *, publishes: bool) -> PeerTopic:
    """Return ``sensor_msgs/msg/Image`` for ``sensor_msgs::msg::dds_::Image_``, and so on."""
    policy, policies = library("qos").Policy, endpoint.qos
    kind = re.sub(r"^(\w+)::(\w+)::dds_::(\w+)_$", r"\1/\2/\3", endpoint.type_name)
    reliable = policy.Reliability not in policies or policies[policy.Reliability] != policy.Reliability.BestEffort
    latched = policy.Durability in policies and policies[policy.Durability] != policy.Durability.Volatile
    return PeerTopic(endpoint.topic_name.removeprefix("rt"), kind, publishes, reliable, latched)


def _wait_for_receivers(writer: Any) -> None:
    core, util = library("core"), library("util")
    try:
        writer.wait_for_acks(util.duration(seconds=PATIENCE_S))
    except (core.DDSException, AttributeError, TypeError):
        # Of a best-effort writer, or in vain: nobody is left to be told.
        return


def open_transport(domain: int, configuration: Configuration) -> Dds:
    """Connect as a configuration says."""
    return Dds(domain, localhost=configuration.localhost, octets=configuration.octets)
