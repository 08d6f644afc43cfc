"""Configuration: the contents of a node's YAML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from pipeline.core.card_file import read_card, read_labels
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.io.decoders.registry import parse_decoder
from pipeline.io.result_reader import choose_card

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quality of service of a topic."""

    reliable: bool = True
    """True if lost messages are sent again."""
    depth: int = 10
    """Messages that are stored for a slow receiver."""


# The depths are those of `rmw_qos_profile_sensor_data` and `rmw_qos_profile_default`.
PROFILES = {"sensor_data": Quality(reliable=False, depth=5), "reliable": Quality()}
"""Quality of service by profile name, as in ROS 2."""

Profile = Literal["sensor_data", "reliable"] | Quality


def quality(profile: Profile) -> Quality:
    """Return the quality of a profile or its name."""
    return PROFILES[profile] if isinstance(profile, str) else profile


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Subscription of the node: topic, message type, quality of service."""

    topic: str
    type: str = "sensor_msgs/msg/Image"
    qos: Profile = "sensor_data"


class Publication(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Publication of one output."""

    topic: str
    type: str
    output: str = ""
    """Output of the model; may be left out if there is one."""
    qos: Profile = "reliable"
    encoding: str = ""
    """Encoding of images, such as ``"bgr8"``; by default that of the output's channels, as RGB."""
    score: float = 0.5
    """Detections below are left out."""
    labels: Sequence[str] = ()
    """Names of classes, instead of the model's; numbers without any."""
    part: Literal["", "points", "masks", "annotated"] = ""
    """Part of the result: ``"points"``, ``"masks"`` as numbers of boxes, or the picture ``"annotated"`` with it, which
    is drawn while somebody subscribes."""
    name: str = ""
    """Key of it where `Configuration.publish` is a mapping."""


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node."""

    bundle: str
    """Folder of the bundle; relative to the file."""
    subscribe: Topic
    publish: Sequence[Publication]
    """In a file also a mapping by name, since files of parameters of ROS 2 have no lists of mappings."""
    # Names of the node.
    name: str = "soc_pipeline"
    namespace: str = ""
    autostart: bool = True
    """False if others configure and activate the node; for the transport rclpy."""
    use_sim_time: bool = False
    """True for the time of ``/clock``."""
    transport: Literal["dds", "zenoh", "rclpy"] = "dds"
    """``"dds"``, ``"zenoh"`` or ``"rclpy"``."""
    domain: int | None = None
    """Domain of DDS and ROS 2; ``ROS_DOMAIN_ID`` by default."""
    localhost: bool = False
    """True if the node only talks to others on this machine, without multicast."""
    octets: bool = False
    """True if peers are told that numbers of 8 bits are octets, as programs (not ROS nodes) with Cyclone DDS 0.10 want
    it; for the transport DDS."""
    admission: str | None = None
    """Admission policy; by default ``"latest"`` for a subscription to sensor data, ``"block"`` for a reliable one."""
    deadline: float | None = None
    """Seconds until the deadline, for the admission ``"deadline"``."""
    card: str = ""
    """Model card of TOML that wins over the model's own; relative to the file."""
    labels: Sequence[str] | str = ()
    """Names of the classes, or a file of them, relative to this one."""
    decode: str = ""
    """Decoder of the outputs, as for ``--decode``."""
    prepare: Preparation = Preparation()
    """Rules that win over those of the model's card, where they differ from the defaults."""
    # Topics, once a second; none if they are empty.
    diagnostics: str = "/diagnostics"
    statistics: str = ""
    dropped: str = ""
    """Topic for the headers of messages that the admission dropped."""
    camera_info: str = ""
    """Topic of the camera's facts, which publications of that type pass on with the headers of answers."""
    patience: float = 10.0
    """Seconds without a publisher until that is told."""
    devices: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Devices in place of those of the bundle's plan, as for `pipeline.load`."""

    @property
    def policy(self) -> str:
        """The admission."""
        return self.admission or ("block" if quality(self.subscribe.qos).reliable else "latest")

    def read_card(self) -> ModelCard:
        """Return the card of what is written here, or raise `InputError`."""
        name, parameters = parse_decoder(self.decode) if self.decode else ("", {})
        written = ModelCard.of(
            "the configuration",
            labels=read_labels(self.labels) if isinstance(self.labels, str) else tuple(self.labels),
            decoder=name,
            parameters=parameters,
            # Defaults are left out, since most files state some of them.
            preparation=msgspec.to_builtins(self.prepare),
        )
        return written.merge(read_card(self.card)) if self.card else written

    def complete_card(self, bundle: Bundle) -> ModelCard:
        """Return the card of a bundle with what is written here, and with guesses."""
        card = self.read_card()
        # Bundles of earlier versions have no card, and nothing is guessed about them unless something is written.
        if bundle.card is None and not self.card and not self.decode:
            return card
        return choose_card(bundle.plan, card.merge(bundle.card or ModelCard()))
