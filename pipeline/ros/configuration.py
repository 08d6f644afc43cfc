"""Configuration: the contents of a node's YAML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from pipeline.core.card_file import read_card, read_labels
from pipeline.core.model_card import ModelCard, Preparation
from pipeline.errors import InputError
from pipeline.io.decoders.registry import parse_decoder
from pipeline.io.result_reader import choose_card
from pipeline.ros.messages.types import fields
from pipeline.ros.ros_arguments import RosArguments, first_node, node_parameters
from pipeline.system.files import check_regular
from pipeline.system.optional import require

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle


PATHS = ("bundle", "card", "labels")
"""Keys of files."""


class Quality(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Quality of service of a topic.

    Attributes
    ----------
    reliable : bool
        True if lost messages are sent again.
    depth : int
        Messages that are stored for a slow receiver.
    """

    reliable: bool = True
    depth: int = 10


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
    """Publication of one output.

    Attributes
    ----------
    topic, type : str
    output : str
        Output of the model; may be left out if there is one.
    qos : str or Quality
    encoding : str
        Encoding of images, such as ``"bgr8"``; by default that of the output's channels, as RGB.
    score : float
        Detections below are left out.
    labels : sequence of str
        Names of classes, instead of the model's; numbers without any.
    part : str
        Part of the result: ``"points"``, ``"masks"`` as numbers of boxes, or the picture ``"annotated"`` with it, which
        is drawn while somebody subscribes.
    name : str
        Key of it where `Configuration.publish` is a mapping.
    """

    topic: str
    type: str
    output: str = ""
    qos: Profile = "reliable"
    encoding: str = ""
    score: float = 0.5
    labels: Sequence[str] = ()
    part: Literal["", "points", "masks", "annotated"] = ""
    name: str = ""


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node.

    Attributes
    ----------
    bundle : str
        Folder of the bundle; relative to the file.
    subscribe : Topic
    publish : sequence of Publication
        In a file also a mapping by name, since files of parameters of ROS 2 have no lists of mappings.
    name, namespace : str
        Names of the node.
    autostart : bool
        False if others configure and activate the node; for the transport rclpy.
    use_sim_time : bool
        True for the time of ``/clock``.
    transport : str
        ``"dds"``, ``"zenoh"`` or ``"rclpy"``.
    domain : int, optional
        Domain of DDS and ROS 2; ``ROS_DOMAIN_ID`` by default.
    localhost : bool
        True if the node only talks to others on this machine, without multicast.
    octets : bool
        True if peers are told that numbers of 8 bits are octets, as programs (not ROS nodes) with Cyclone DDS 0.10 want
        it; for the transport DDS.
    admission : str, optional
        Admission policy; by default ``"latest"`` for a subscription to sensor data, ``"block"`` for a reliable one.
    deadline : float, optional
        Seconds until the deadline, for the admission ``"deadline"``.
    card : str
        Model card of TOML that wins over the model's own; relative to the file.
    labels : sequence of str, or str
        Names of the classes, or a file of them, relative to this one.
    decode : str
        Decoder of the outputs, as for ``--decode``.
    prepare : Preparation
        Rules that win over those of the model's card, where they differ from the defaults.
    diagnostics, statistics : str
        Topics, once a second; none if they are empty.
    dropped : str
        Topic for the headers of messages that the admission dropped.
    camera_info : str
        Topic of the camera's facts, which publications of that type pass on with the headers of answers.
    patience : float
        Seconds without a publisher until that is told.
    devices : mapping of str to str
        Devices in place of those of the bundle's plan, as for `pipeline.load`.
    """

    bundle: str
    subscribe: Topic
    publish: Sequence[Publication]
    name: str = "soc_pipeline"
    namespace: str = ""
    autostart: bool = True
    use_sim_time: bool = False
    transport: Literal["dds", "zenoh", "rclpy"] = "dds"
    domain: int | None = None
    localhost: bool = False
    octets: bool = False
    admission: str | None = None
    deadline: float | None = None
    card: str = ""
    labels: Sequence[str] | str = ()
    decode: str = ""
    prepare: Preparation = Preparation()
    diagnostics: str = "/diagnostics"
    statistics: str = ""
    dropped: str = ""
    camera_info: str = ""
    patience: float = 10.0
    devices: Mapping[str, str] = msgspec.field(default_factory=dict)

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


def read(path: str | Path, changes: Sequence[str] = (), ros: RosArguments | None = None) -> Configuration:
    """Read a YAML configuration, or ROS 2 parameters of one node.

    Parameters
    ----------
    path : str or Path
        Empty if all is in the arguments of ROS 2.
    changes : sequence of str
        Differences from the file, such as ``"subscribe.topic=/camera"``, with a value in YAML.
    ros : RosArguments, optional
        Those of ROS 2.

    Raises
    ------
    InputError
        If it is missing, no YAML, or has wrong values; the message names the key.
    MissingExtra
        If PyYAML is not installed.
    """
    ros = ros or RosArguments()
    contents = [(str(file), _load(file)) for file in ([path] if path else []) + ros.files]
    first = contents[0][1] if path else {}
    plain = first if isinstance(first, dict) and ("bundle" in first or "subscribe" in first) else {}
    own_name = str(plain.get("name", "")) or next(filter(None, (first_node(values) for _, values in contents)), "")
    name, namespace = ros.name_node(own_name or "soc_pipeline", str(plain.get("namespace", "")))
    values: Any = dict(plain) if plain or not path else first
    for file, section in contents:
        for parameters in node_parameters(section, name, namespace):
            values = {} if values is first else values
            for key, value in parameters.items():
                # Folders of a file of parameters are beside it.
                values = _with(values, key.split("."), _beside(file, key, value), key)
    for node, key, text in ros.parameters:
        if node in ("", name, f"{namespace}/{name}"):
            values = _with(values, key.split("."), _yaml(text, f"-p {key}"), key)
    for change in changes:
        values = _apply_change(values, change)
    origin = str(path or "--ros-args")
    configuration = _convert(values, origin)
    configuration = msgspec.structs.replace(configuration, name=name, namespace=namespace)
    return _resolve(_place(configuration, Path(path).parent if path else Path()), ros)


def _load(path: str | Path) -> Any:
    try:
        # Reading a pipe or a device might never end.
        check_regular(Path(path))
        return _yaml(Path(path).read_text(encoding="utf-8"), f"{str(path)!r}")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the configuration {str(path)!r}: {error}") from None


def _convert(values: Any, origin: str) -> Configuration:
    if isinstance(values, dict) and isinstance(values.get("publish"), dict):
        publish = [
            {"topic": f"~/{name}", **each, "name": name} if isinstance(each, dict) else each
            for name, each in values["publish"].items()
        ]
        values = {**values, "publish": publish}
    try:
        configuration = msgspec.convert(values, Configuration)
    except msgspec.ValidationError as error:
        raise InputError(f"{origin!r}: {error}") from None
    _check(configuration)
    return configuration


def _beside(file: str, key: str, value: Any) -> Any:
    """Return a path of a parameter file, beside it if there: ros2 launch writes its own files elsewhere."""
    if key not in PATHS or not isinstance(value, str) or not value:
        return value
    neighbour = Path(file).absolute().parent / value
    return str(neighbour if neighbour.exists() else Path(value).absolute())


def _place(configuration: Configuration, folder: Path) -> Configuration:
    """Return a configuration with its files in a folder."""
    # So that a folder with all of them can be moved; an absolute path stays what it is.
    names = {name: getattr(configuration, name) for name in PATHS}
    paths = {name: str(folder / file) for name, file in names.items() if isinstance(file, str) and file}
    return msgspec.structs.replace(configuration, **paths)


def _resolve(configuration: Configuration, ros: RosArguments) -> Configuration:
    """Return a configuration with full names of topics."""

    def full_name(topic: str) -> str:
        return ros.resolve(topic, configuration.name, configuration.namespace)

    def with_full_name(topic: Any) -> Any:
        return msgspec.structs.replace(topic, topic=full_name(topic.topic))

    names = ("diagnostics", "statistics", "dropped", "camera_info")
    return msgspec.structs.replace(
        configuration,
        subscribe=with_full_name(configuration.subscribe),
        publish=[with_full_name(each) for each in configuration.publish],
        **{name: full_name(getattr(configuration, name)) for name in names},
    )


def list_parameters(configuration: Configuration) -> dict[str, Any]:
    """Return a configuration's values by dotted names, without those that ROS 2 has no parameters for."""
    return dict(_leaves(msgspec.to_builtins(configuration), ""))


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    prefix = f"{name}." if name else ""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(inner, f"{prefix}{key}")
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{prefix}{inner.get('name') or number}")
    # Those of rclpy itself have these names, and an empty list has no type.
    elif value not in (None, []) and name != "use_sim_time":
        yield name, value


def change_configuration(configuration: Configuration, changes: Mapping[str, Any]) -> Configuration:
    """Return a configuration with other values by dotted names, or raise `InputError`."""
    values = msgspec.to_builtins(configuration)
    for name, value in changes.items():
        plain_value = list(value) if not isinstance(value, str | int | float | bool) else value
        values = _with(values, name.split("."), plain_value, name)
    return _convert(values, "parameters")


def _yaml(text: str, origin: str) -> Any:
    yaml = require("yaml", "ros2", "the node's configuration")
    try:
        return yaml.safe_load(text)
    # Deeply nested lists end in a RecursionError, and PyYAML reports only some errors as its own.
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # numbers of thousands of digits, too
        raise InputError(f"{origin} is not valid YAML: {' '.join(str(error).split())}") from None


def _apply_change(values: Any, change: str) -> Any:
    name, equals, text = change.partition("=")
    if not equals or not name:
        raise InputError(f"--set is {change!r}; write it like subscribe.topic=/camera/image_raw")
    return _with(values, name.split("."), _yaml(text, f"--set {change}"), change)


def _with(values: Any, keys: Sequence[str], value: Any, change: str) -> Any:
    if not keys:
        return value
    key, deeper_keys = keys[0], keys[1:]
    # Lists by position or name, as in `publish.0.score`; nothing can be appended.
    if isinstance(values, list):
        names = [each.get("name") if isinstance(each, dict) else None for each in values]
        position = names.index(key) if key in names else int(key) if key.isdecimal() else len(values)
        if position < len(values):
            return [*values[:position], _with(values[position], deeper_keys, value, change), *values[position + 1 :]]
    # Missing mappings on the way come into being: `prepare.mean` works without `prepare` in the file.
    if isinstance(values, dict) or values is None:
        mapping = values or {}
        return {**mapping, key: _with(mapping.get(key), deeper_keys, value, change)}
    raise InputError(f"--set {change}: there is nothing called {key!r} to set")


def _check(configuration: Configuration) -> None:
    topics: Sequence[Topic | Publication] = (configuration.subscribe, *configuration.publish)
    for topic in topics:
        # Raises for a type that is unknown, with its neighbours.
        fields(topic.type)
        if quality(topic.qos).depth < 1:
            raise InputError(f"topic {topic.topic!r} has qos.depth {quality(topic.qos).depth}; it must be at least 1")
    if not configuration.publish:
        raise InputError("publish is empty; list at least one topic, with a type such as sensor_msgs/msg/Image")
