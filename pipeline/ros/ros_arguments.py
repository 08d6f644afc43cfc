"""ROS arguments: names, remappings and parameters behind ``--ros-args``, as ``ros2 launch`` hands them over."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline.errors import InputError

PARAMETERS = "ros__parameters"
"""Key of a node's parameters in files of ROS 2."""

_WITH_VALUE = ("-r", "--remap", "-p", "--param", "--params-file", "--log-level", "-e", "--enclave", "--log-config-file")
_FLAGS = re.compile(r"--(en|dis)able-\w+-logs")


@dataclass
class RosArguments:
    """Arguments of a node, in their order."""

    files: list[str] = field(default_factory=list)
    """Parameter files."""
    parameters: list[tuple[str, str, str]] = field(default_factory=list)
    """Node, or empty for each; name; and value as YAML."""
    remaps: list[tuple[str, str, str]] = field(default_factory=list)
    """Node, or empty for each; name; and what it becomes."""

    @classmethod
    def parse(cls, arguments: Sequence[str]) -> RosArguments:
        """Read arguments; `InputError` for those that ROS 2 does not know."""
        result, remaining = cls(), iter(arguments)
        for name in remaining:
            if name in ("--", "--ros-args") or _FLAGS.fullmatch(name):
                continue
            value = next(remaining, None)
            if name not in _WITH_VALUE or value is None:
                raise InputError(f"--ros-args: {name!r} is unknown, or lacks its value")
            if name == "--params-file":
                result.files.append(value)
            elif name in ("-p", "--param"):
                result.parameters.append(_rule(value))
            elif name in ("-r", "--remap"):
                result.remaps.append(_rule(value))
        return result

    def name_node(self, name: str, namespace: str) -> tuple[str, str]:
        """Return a node's name and namespace after remapping."""
        for node, key, value in self.remaps:
            if node in ("", name) and key in ("__node", "__name"):
                name = value
            elif node in ("", name) and key == "__ns":
                namespace = value
        return name, f"/{namespace.strip('/')}".rstrip("/")

    def resolve(self, topic: str, name: str, namespace: str) -> str:
        """Return a topic's full name: within the namespace unless it begins with a slash, and remapped."""
        full_name = resolve(topic, name, namespace)
        for node, key, value in self.remaps:
            if node in ("", name) and not key.startswith("__") and resolve(key, name, namespace) == full_name:
                return resolve(value, name, namespace)
        return full_name


def _rule(text: str) -> tuple[str, str, str]:
    key, assignment, value = text.partition(":=")
    if not assignment or not key:
        raise InputError(f"--ros-args: {text!r} should be NAME:=VALUE")
    node, colon, name = key.rpartition(":")
    return (node, name, value) if colon else ("", key, value)


def resolve(topic: str, name: str, namespace: str) -> str:
    """Return a name as ROS 2 does: ``~/x`` within the node, ``x`` within the namespace."""
    if not topic or topic.startswith("/"):
        return topic
    return f"{namespace}/{name}{topic[1:]}" if topic.startswith("~") else f"{namespace}/{topic}"


def node_parameters(values: Any, name: str, namespace: str) -> Iterator[Mapping[str, Any]]:
    """Yield the parameters of a file that are for a node, in their order."""
    full_name = f"{namespace}/{name}"
    for pattern, parameters in _sections(values, ""):
        if _pattern(pattern).fullmatch(full_name):
            yield parameters


def first_node(values: Any) -> str:
    """Return the name of a file's only node; empty for a pattern, or several."""
    names = [pattern.rpartition("/")[2] for pattern, _ in _sections(values, "")]
    return names[0] if len(names) == 1 and "*" not in names[0] else ""


def _sections(values: Any, prefix: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for key, contents in values.items() if isinstance(values, dict) else ():
        path = f"{prefix}/{str(key).strip('/')}"
        if isinstance(contents, dict) and isinstance(contents.get(PARAMETERS), dict):
            yield path, contents[PARAMETERS]
        elif isinstance(contents, dict):
            yield from _sections(contents, path)


def _pattern(text: str) -> re.Pattern[str]:
    # `/**` is any number of names, `*` one of them (rcl's rules for files of parameters).
    parts: Callable[[str], str] = lambda part: {"**": ".*", "*": "[^/]*"}.get(part, re.escape(part))  # noqa: E731
    pattern = "/".join(map(parts, text.split("/")))
    # A name alone is in any namespace of the caller's file, as it was before there were namespaces.
    return re.compile(pattern if text.count("/") > 1 or "*" in text else f"(.*){pattern}")
