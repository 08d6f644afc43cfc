"""DDS domains: those that this process has joined, with their settings."""

from __future__ import annotations

import os
import threading
from typing import Any
from weakref import WeakValueDictionary

from pipeline.ros.transports.dds_types import library

COMPATIBILITY = (
    "<CycloneDDS><Domain><Compatibility><IgnoreTypeInformation>1.15</IgnoreTypeInformation></Compatibility></Domain>"
    "</CycloneDDS>"
)
"""Configuration of Cyclone DDS that compares types of eProsima's by name only.

Fast DDS 3, as in ROS 2 Kilted, announces types that differ from those of the messages.
"""

LOCALHOST = (
    '<CycloneDDS><Domain><General><Interfaces><NetworkInterface name="lo"/></Interfaces>'
    "<AllowMulticast>false</AllowMulticast>"
    # As large as UDP has them: a picture in 15 pieces instead of hundreds.
    "<MaxMessageSize>65000B</MaxMessageSize><FragmentSize>64000B</FragmentSize></General>"
    '<Discovery><Peers><Peer Address="127.0.0.1"/></Peers><ParticipantIndex>auto</ParticipantIndex>'
    "<MaxAutoParticipantIndex>32</MaxAutoParticipantIndex></Discovery></Domain></CycloneDDS>"
)
"""Configuration of Cyclone DDS for this machine alone, without multicast, which loopback often lacks."""

# By number.  All who join one share it, since a domain takes its participants along when it ends.
_domains: WeakValueDictionary[int, Any] = WeakValueDictionary()
_domains_lock = threading.Lock()


def open_domain(number: int, *, localhost: bool) -> Any:
    """Open a domain with settings; None if already open here."""
    core, participants = library("core"), library("domain")
    with _domains_lock:
        if (domain := _domains.get(number)) is not None:
            return domain
        settings = LOCALHOST if localhost else os.environ.get("CYCLONEDDS_URI", "")
        try:
            domain = _domains[number] = participants.Domain(number, ",".join(filter(None, (COMPATIBILITY, settings))))
        except core.DDSException:
            if localhost:
                raise
            # A wrong CYCLONEDDS_URI is an error of the participant.
            return None
        return domain
