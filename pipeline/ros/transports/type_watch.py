"""Type watch: warns of DDS peers with another type on a topic."""

from __future__ import annotations

import re
import threading
import warnings
from typing import TYPE_CHECKING, Any

from pipeline.system.optional import require

if TYPE_CHECKING:
    from types import ModuleType

VERBS = {"publication": ("publishes", "subscribes to"), "subscription": ("subscribes to", "publishes")}
"""Verbs by kind of a peer's endpoint: for the peer, and for its counterpart here."""


class TypeWatch:
    """Compares peers' types from discovery with this participant's topics.

    DDS never matches endpoints whose types differ, and tells neither side: a camera that publishes compressed images
    looks like one that is switched off.  Cyclone's status "inconsistent topic" is none for types that peers have, so
    the built-in topics are read, where each endpoint of the network is listed with its topic and its type.
    """

    def __init__(self, participant: Any) -> None:
        builtin = _library("builtin")
        self._participant = participant
        self._readers = {
            "publication": builtin.BuiltinDataReader(participant, builtin.BuiltinTopicDcpsPublication),
            "subscription": builtin.BuiltinDataReader(participant, builtin.BuiltinTopicDcpsSubscription),
        }
        # Of all below: topics are added by the caller's thread, peers come up in the watching one.
        self._lock = threading.Lock()
        self._own_types: dict[tuple[str, str], str] = {}
        # Also of topics that are not ours: one may be added after its peers were discovered.
        self._peer_types: dict[tuple[str, str], set[str]] = {}
        self._warned: set[tuple[str, str, str]] = set()

    def add(self, peer_kind: str, topic: str, type_name: str) -> None:
        """Expect a type on a topic from a kind of peer endpoint, such as ``"publication"``."""
        with self._lock:
            self._own_types[peer_kind, topic] = type_name
            peer_types = set(self._peer_types.get((peer_kind, topic), ()))
        for peer_type in peer_types:
            self._compare(peer_kind, topic, peer_type)

    def run(self, stopping: Any) -> None:
        """Compare discovered types until the guard condition `stopping`."""
        core = _library("core")
        state = core.SampleState.Any | core.ViewState.Any | core.InstanceState.Any
        wait_set = core.WaitSet(self._participant)
        wait_set.attach(stopping)
        for reader in self._readers.values():
            wait_set.attach(core.ReadCondition(reader, state))
        second = _library("util").duration(seconds=1)
        while not stopping.read():
            wait_set.wait(second)
            for peer_kind, reader in self._readers.items():
                # Taken and not read, so that the wait set waits for what is new.
                for endpoint in reader.take(64):
                    # Those that leave are told of by samples without content.
                    if getattr(endpoint, "topic_name", None):
                        self._note(peer_kind, endpoint.topic_name, endpoint.type_name)

    def _note(self, peer_kind: str, topic: str, peer_type: str) -> None:
        with self._lock:
            self._peer_types.setdefault((peer_kind, topic), set()).add(peer_type)
        self._compare(peer_kind, topic, peer_type)

    def _compare(self, peer_kind: str, topic: str, peer_type: str) -> None:
        with self._lock:
            own_type = self._own_types.get((peer_kind, topic), peer_type)
            mismatch = (peer_kind, topic, peer_type)
            if own_type == peer_type or mismatch in self._warned:
                return
            self._warned.add(mismatch)
        peer_verb, own_verb = VERBS[peer_kind]
        warnings.warn(
            f"topic {topic.removeprefix('rt')!r}: a peer {peer_verb} {_ros_name(peer_type)}, but this participant "
            f"{own_verb} {_ros_name(own_type)}; nothing passes between them",
            RuntimeWarning,
            stacklevel=2,
        )


def _library(part: str) -> ModuleType:
    return require(f"cyclonedds.{part}", "ros2", "ROS 2 over DDS")


def _ros_name(type_name: str) -> str:
    """Return ``sensor_msgs/msg/Image`` for ``sensor_msgs::msg::dds_::Image_``, and other names in quotes."""
    match = re.fullmatch(r"(\w+)::(\w+)::dds_::(\w+)_", type_name)
    # Quoted, since anybody in the network chooses these, and the warning is printed on a terminal.
    return "/".join(match.groups()) if match else repr(type_name)
