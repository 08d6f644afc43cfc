"""Configuration file: YAML, or parameters of ROS 2, as a configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pipeline.errors import InputError
from pipeline.ros.configuration import Configuration
from pipeline.ros.parameters import convert_values, set_value
from pipeline.ros.ros_arguments import RosArguments, first_node, node_parameters
from pipeline.system.files import check_regular
from pipeline.system.optional import require

PATHS = ("bundle", "card", "labels")
"""Keys of files."""


def read_configuration(path: str | Path, changes: Sequence[str] = (), ros: RosArguments | None = None) -> Configuration:
    """Read a YAML configuration, or ROS 2 parameters of one node.

    The path is empty if all is in the arguments of ROS 2. `changes` are differences from the file, such as
    ``"subscribe.topic=/camera"``, with a value in YAML. Raises `InputError`, with the key, if it is missing, no YAML,
    or has wrong values; `MissingExtra` if PyYAML is not installed.
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
                values = set_value(values, key.split("."), _beside(file, key, value), key)
    for node, key, text in ros.parameters:
        if node in ("", name, f"{namespace}/{name}"):
            values = set_value(values, key.split("."), _yaml(text, f"-p {key}"), key)
    for change in changes:
        values = _apply_change(values, change)
    origin = str(path or "--ros-args")
    configuration = convert_values(values, origin)
    configuration = msgspec.structs.replace(configuration, name=name, namespace=namespace)
    return _resolve(_place(configuration, Path(path).parent if path else Path()), ros)


def _load(path: str | Path) -> Any:
    try:
        # Reading a pipe or a device might never end.
        check_regular(Path(path))
        return _yaml(Path(path).read_text(encoding="utf-8"), f"{str(path)!r}")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the configuration {str(path)!r}: {error}") from None


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
    return set_value(values, name.split("."), _yaml(text, f"--set {change}"), change)
