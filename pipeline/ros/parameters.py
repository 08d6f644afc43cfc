"""Parameters: the values of a configuration by dotted names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from pipeline.errors import InputError
from pipeline.ros.configuration import Configuration, Publication, Topic, quality
from pipeline.ros.messages.types import fields


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
        values = set_value(values, name.split("."), plain_value, name)
    return convert_values(values, "parameters")


def convert_values(values: Any, origin: str) -> Configuration:
    """Return a configuration of its values, or raise `InputError`."""
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


def set_value(values: Any, keys: Sequence[str], value: Any, change: str) -> Any:
    """Return values with another one at keys; lists by position or name."""
    if not keys:
        return value
    key, deeper_keys = keys[0], keys[1:]
    # Lists by position or name, as in `publish.0.score`; nothing can be appended.
    if isinstance(values, list):
        names = [each.get("name") if isinstance(each, dict) else None for each in values]
        position = names.index(key) if key in names else int(key) if key.isdecimal() else len(values)
        if position < len(values):
            return [
                *values[:position],
                set_value(values[position], deeper_keys, value, change),
                *values[position + 1 :],
            ]
    # Missing mappings on the way come into being: `prepare.mean` works without `prepare` in the file.
    if isinstance(values, dict) or values is None:
        mapping = values or {}
        return {**mapping, key: set_value(mapping.get(key), deeper_keys, value, change)}
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
