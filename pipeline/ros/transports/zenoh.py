"""Zenoh: messages with rmw_zenoh's keys and attachments, without ROS.

Nodes that run on rmw_zenoh find each other by a router; so does this one, at ``tcp/localhost:7447``, or as a Zenoh
configuration file in ``ZENOH_SESSION_CONFIG_URI`` says.
"""

from __future__ import annotations

import os
import secrets
import struct
import time
from itertools import count
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.ros.messages.types import message_store
from pipeline.ros.transports.base import Endpoint, MessageLine, Payload, Sender, Transport
from pipeline.ros.transports.peer_watch import PeerTopic, PeerWatch
from pipeline.system.optional import require

if TYPE_CHECKING:
    from types import ModuleType

    from pipeline.ros.configuration import Configuration, Quality

ROUTER = "tcp/localhost:7447"
INTERVAL_S = 0.1
"""Seconds until threads notice their end."""

ATTACHMENT = struct.Struct("<qqB16s")
"""Number of the message, its time in nanoseconds, and length and bytes of the publisher's identifier."""


TOKENS = "@ros2_lv"
"""First part of the keys by which nodes tell of their topics; a token lives as long as its session."""


def library() -> ModuleType:
    """Return Zenoh, or raise `MissingExtra`."""
    return require("zenoh", "zenoh", "ROS 2 over Zenoh")


def key(domain: int, topic: str, kind: str, digest: str) -> str:
    """Return a topic's key with its RIHS01 hash, or ``*``."""
    return f"{domain}/{topic.strip('/')}/{_dds_type(kind)}/{digest}"


def _dds_type(kind: str) -> str:
    """Return a type's name in keys."""
    package, _, type_name = kind.partition("/msg/")
    return f"{package}::msg::dds_::{type_name}_"


class Zenoh(Transport):
    """A session of Zenoh in a domain of ROS 2, as in ``ROS_DOMAIN_ID``.

    With `localhost` it talks to the router on this machine, and listens nowhere else; the endpoints to connect to are
    the router by default. Tokens have the node's names. Raises `MissingExtra` if Zenoh is not installed; `InputError`
    if nobody is there.
    """

    def __init__(
        self,
        domain: int,
        *,
        localhost: bool = False,
        endpoints: tuple[str, ...] = (ROUTER,),
        name: str = "soc_pipeline",
        namespace: str = "",
    ) -> None:
        zenoh = library()
        self._domain = domain
        try:
            self._session = zenoh.open(_settings(zenoh, endpoints, localhost=localhost))
        except zenoh.ZError as error:
            raise InputError(
                f"no Zenoh router at {' '.join(endpoints)}: {error}; start one (ros2 run rmw_zenoh_cpp rmw_zenohd)"
            ) from None
        self._subscribers: list[Any] = []
        self._peers, self._tokens = PeerWatch(), set[str]()
        session = str(self._session.info.zid())
        self._name = f"{_mangle('')}/{_mangle(namespace)}/{_mangle(name)}"
        self._node_key, self._next_entity = f"{TOKENS}/{domain}/{session}/0", count()
        # Kept, since a token ends with its last reference.
        self._token = self._declare("NN")
        liveliness = self._session.liveliness()
        # Of all domains, so that a publisher in another one can be told of.
        self._watcher = liveliness.declare_subscriber(f"{TOKENS}/**", self._note, history=True)

    def read(self, topic: str, kind: str, quality: Quality, line: MessageLine) -> Endpoint:
        """Put messages into a line; one that is full slows a reliable publisher."""
        put = line.put_patiently if quality.reliable else line.put
        subscriber = self._session.declare_subscriber(
            # Any hash: distributions before Iron know none.
            key(self._domain, topic, kind, "*"),
            lambda sample: put(sample.payload.to_bytes()),
        )
        self._subscribers.append(subscriber)
        token = self._add(topic, kind, quality, publishes=False)

        def end() -> None:
            for part in (subscriber, token):
                part.undeclare()
            self._subscribers.remove(subscriber)

        return Endpoint(lambda: self._count(topic, kind, "MP"), end)

    def publisher(self, topic: str, kind: str, quality: Quality) -> Sender:
        """Return a publisher putting messages with their attachments."""
        zenoh = library()
        # A reliable publisher waits for the network; another one drops what cannot be sent.
        control = zenoh.CongestionControl.BLOCK if quality.reliable else zenoh.CongestionControl.DROP
        topic_key = key(self._domain, topic, kind, message_store().hash_rihs01(kind))
        publisher = self._session.declare_publisher(topic_key, congestion_control=control)
        token = self._add(topic, kind, quality, publishes=True)
        # As rmw_zenoh has it in attachments: 16 bytes for each publisher, and by the numbers receivers tell what is
        # lost.
        identifier, numbers = secrets.token_bytes(16), count(1)

        def send(payload: Payload, stamp: int) -> None:
            attachment = ATTACHMENT.pack(next(numbers), stamp or time.time_ns(), len(identifier), identifier)
            publisher.put(payload, attachment=attachment)

        def end() -> None:
            token.undeclare()
            publisher.undeclare()

        # Also those without a token, which are no nodes of ROS.
        return Sender(lambda: int(publisher.matching_status.matching), end, send)

    def find_similar(self, kind: str) -> str:
        """Describe topics of that type, and other domains."""
        domains = {token.split("/")[1] for token in tuple(self._tokens) if "/MP/" in token}
        others = ", ".join(sorted(domains - {str(self._domain)}))
        similar = self._peers.find_similar(kind)
        elsewhere = f"; there are publishers in domain {others} (ROS_DOMAIN_ID)" if others and not similar else ""
        return f" in domain {self._domain}{similar}{elsewhere}"

    def stop_reading(self) -> None:
        """End the subscriptions."""
        for subscriber in self._subscribers:
            subscriber.undeclare()
        self._subscribers = []

    def close(self) -> None:
        """Close the session, sending the remaining messages."""
        self._session.close()

    def _declare(self, kind: str, *facts: str) -> Any:
        """Tell the graph of ROS of the node, or of a topic of it."""
        parts = (self._node_key, str(next(self._next_entity)), kind, self._name, *facts)
        return self._session.liveliness().declare_token("/".join(parts))

    def _add(self, topic: str, kind: str, quality: Quality, *, publishes: bool) -> Any:
        self._peers.add(PeerTopic(topic, kind, publishes))
        # As rmw's numbers have it: 2 is best effort; what is left out is the default.
        facts = f"{'' if quality.reliable else 2}::,{quality.depth}:,:,:,,"
        digest = message_store().hash_rihs01(kind)
        return self._declare("MP" if publishes else "MS", _mangle(topic), _dds_type(kind), digest, facts)

    def _note(self, sample: Any) -> None:
        token = str(sample.key_expr)
        if sample.kind == library().SampleKind.DELETE:
            self._tokens.discard(token)
            return
        self._tokens.add(token)
        parts = token.split("/")
        if len(parts) < 12 or parts[1] != str(self._domain) or parts[5] not in ("MP", "MS"):
            return
        # Qualities are not compared: Zenoh brings messages to subscribers of any.
        kind = parts[10].replace("::msg::dds_::", "/msg/").removesuffix("_")
        self._peers.note(PeerTopic(parts[9].replace("%", "/"), kind, publishes=parts[5] == "MP"))

    def _count(self, topic: str, kind: str, entity: str) -> int:
        facts = f"/{_mangle(topic)}/{_dds_type(kind)}/"
        start = f"{TOKENS}/{self._domain}/"
        return sum(
            token.startswith(start) and f"/{entity}/" in token and facts in token for token in tuple(self._tokens)
        )


def _mangle(name: str) -> str:
    """Return a name as one part of a key."""
    return name.replace("/", "%") or "%"


def _settings(zenoh: ModuleType, endpoints: tuple[str, ...], *, localhost: bool) -> Any:
    if path := os.environ.get("ZENOH_SESSION_CONFIG_URI"):
        return zenoh.Config.from_file(path)
    configuration = zenoh.Config()
    addresses = ", ".join(f'"{endpoint}"' for endpoint in endpoints)
    # As nodes on rmw_zenoh: a router makes the acquaintance, and messages pass directly.
    configuration.insert_json5("mode", '"peer"')
    configuration.insert_json5("connect/endpoints", f"[{addresses}]")
    # Without a router it should end with an error, instead of waiting for one in silence.
    configuration.insert_json5("connect/timeout_ms", "2000")
    configuration.insert_json5("connect/exit_on_failure", "true")
    # Peers are found by the router alone, so that a session never joins strangers in the network.
    configuration.insert_json5("scouting/multicast/enabled", "false")
    if localhost:
        configuration.insert_json5("listen/endpoints", '["tcp/localhost:0"]')
    return configuration


def open_transport(domain: int, configuration: Configuration) -> Zenoh:
    """Connect as a configuration says."""
    return Zenoh(domain, localhost=configuration.localhost, name=configuration.name, namespace=configuration.namespace)
