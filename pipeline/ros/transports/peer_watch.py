"""Peer watch: warns of peers that a node never hears, by their type or quality of service."""

from __future__ import annotations

import re
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FIRST_PORT, PORTS = 7400, 250
"""Port of RTPS's domain 0, and ports per domain."""


@dataclass(frozen=True)
class PeerTopic:
    """A topic as one end has it."""

    # Name and type, as ROS 2 has them.
    topic: str
    kind: str
    # True if it publishes, sends again or wants that, and keeps messages for late subscribers or wants these.
    publishes: bool
    reliable: bool = True
    latched: bool = False

    @property
    def verb(self) -> str:
        """Verb for what it does."""
        return "publishes" if self.publishes else "subscribes to"


class PeerWatch:
    """Compares peers' topics with those of this node.

    Middlewares never match ends whose types or qualities differ, and tell neither of them: a camera that publishes
    compressed images looks like one that is switched off.
    """

    def __init__(self) -> None:
        # Of all below: topics are added by the caller's thread, peers come up in the watching one.
        self._lock = threading.Lock()
        self._topics: set[PeerTopic] = set()
        # Also of topics that are not ours: one may be added after its peers were discovered.
        self._peers: set[PeerTopic] = set()

    def add(self, own: PeerTopic) -> None:
        """Expect peers for a topic of this node."""
        for peer in self._join(own, self._topics, self._peers):
            _warn(own, peer)

    def note(self, peer: PeerTopic) -> None:
        """Compare a peer with what this node has."""
        for own in self._join(peer, self._peers, self._topics):
            _warn(own, peer)

    def find_similar(self, kind: str, domain: int | None = None) -> str:
        """Describe topics of a type that peers publish, or else the domains of DDS on this machine but one."""
        with self._lock:
            own = {each.topic for each in self._topics}
            topics = sorted({peer.topic for peer in self._peers if peer.publishes and peer.kind == kind} - own)
        if topics:
            return f"; of that type there are {', '.join(map(describe_name, topics))}"
        others = "" if domain is None else ", ".join(map(str, sorted(find_domains() - {domain})))
        return f"; on this machine there are nodes in domain {others} (ROS_DOMAIN_ID)" if others else ""

    def _join(self, end: PeerTopic, side: set[PeerTopic], others: set[PeerTopic]) -> set[PeerTopic]:
        """Add an end to its side, and return those of the other side that it has not met."""
        with self._lock:
            is_new = end not in side
            side.add(end)
            return set(others) if is_new else set()


def _warn(own: PeerTopic, peer: PeerTopic) -> None:
    if own.topic != peer.topic or own.publishes == peer.publishes:
        return
    writer, reader = (own, peer) if own.publishes else (peer, own)
    if own.kind != peer.kind:
        facts = [f"{end.verb} {describe_name(end.kind)}" for end in (peer, own)]
    elif reader.reliable and not writer.reliable:
        facts = [f"{end.verb} it {'reliably' if end.reliable else 'as best effort'}" for end in (peer, own)]
    elif reader.latched and not writer.latched:
        facts = [f"{end.verb} it as {'transient local' if end.latched else 'volatile'}" for end in (peer, own)]
    else:
        return
    warnings.warn(
        f"topic {own.topic!r}: a peer {facts[0]}, but this participant {facts[1]}; nothing passes between them",
        RuntimeWarning,
        stacklevel=3,
    )


def describe_name(name: str) -> str:
    """Return a name of ROS 2; others in quotes."""
    # Anybody in the network chooses these, and warnings are printed on a terminal.
    return name if re.fullmatch(r"[\w/]+", name, re.ASCII) else repr(name)


def find_domains() -> set[int]:
    """Return domains whose ports for discovery are in use on this machine."""
    ports = set()
    for table in ("udp", "udp6"):
        with suppress(OSError):
            rows = Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]
            ports |= {int(row.split()[1].rpartition(":")[2], 16) - FIRST_PORT for row in rows}
    # Its multicast port, or both of a participant's own (RTPS, well-known ports); a single one may be anybody's.
    in_pairs = {port for port in ports if port % PORTS >= 10 and port % 2 == 0 and port + 1 in ports}
    numbers = {port // PORTS for port in in_pairs | {port for port in ports if port % PORTS == 0}}
    return {number for number in numbers if 0 <= number <= 232}
