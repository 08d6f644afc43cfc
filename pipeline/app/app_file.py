"""Application file: ``app.toml`` as a value."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline.app.application import App
from pipeline.app.nodes import NODE_KINDS, Node, Stream
from pipeline.core.card_file import convert_table, read_text
from pipeline.errors import AppError, InputError, near, reason

TABLES = ("name", "stream", *NODE_KINDS, "zone", "line")
"""Keys of a file."""

Points = tuple[tuple[float, float], ...]


def read_app(path: str | Path) -> App:
    """Read an application; paths in it are relative to its folder.

    Raises `AppError` if the file is missing or no TOML, has an unknown key or an impossible value.
    """
    path = Path(path)
    try:
        table = msgspec.toml.decode(read_text(path, "application"))
    except InputError as error:
        raise AppError(str(error)) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise AppError(f"the application {str(path)!r} is no TOML: {reason(error)}") from None
    try:
        return convert_app(table)
    except (AppError, InputError) as error:
        raise AppError(f"{path.name}: {error}") from None


def convert_app(table: Mapping[str, Any]) -> App:
    """Return the application of a decoded file."""
    for key in table:
        if key not in TABLES:
            raise AppError(f"unknown table {key!r}; there are {', '.join(TABLES)}{near(key, TABLES)}")
    streams = {name: convert_table(value, Stream, f"stream.{name}.") for name, value in _tables(table, "stream")}
    nodes: dict[str, Node] = {}
    for kind, node_type in NODE_KINDS.items():
        for name, value in _tables(table, kind):
            if name in nodes or name in streams:
                raise AppError(f"{kind}.{name}: the name {name!r} is taken already; names of streams and nodes differ")
            nodes[name] = convert_table(_listed(kind, value), node_type, f"{kind}.{name}.")
    return App(
        streams,
        nodes,
        {name: _points(value, f"zone.{name}") for name, value in table.get("zone", {}).items()},
        {name: _points(value, f"line.{name}") for name, value in table.get("line", {}).items()},
        str(table.get("name", "")),
    )


def _tables(table: Mapping[str, Any], kind: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the tables of a kind by their names."""
    tables = table.get(kind, {})
    if not isinstance(tables, Mapping) or not all(isinstance(value, Mapping) for value in tables.values()):
        raise AppError(f"{kind} has to be tables with a name, such as [{kind}.door]")
    return list(tables.items())


def _listed(kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table where a single name stands for a list of one."""
    names = ("reads", "to") if kind == "trigger" else ("reads",)
    return {key: [value] if key in names and isinstance(value, str) else value for key, value in table.items()}


def _points(value: Any, key: str) -> Points:
    try:
        points = msgspec.convert(value, Points)
    except msgspec.ValidationError:
        raise AppError(f"{key} has to be a list of points, such as [[0.1, 0.2], [0.9, 0.2], [0.5, 0.8]]") from None
    least = 3 if key.startswith("zone") else 2
    if len(points) < least:
        raise AppError(f"{key} has {len(points)} points; it needs {least}")
    values = [value for point in points for value in point]
    if min(values) < 0 or (max(values) > 1 and any(0 < value < 1 for value in values)):
        raise AppError(f"{key} has points outside of the picture: give shares from 0 to 1, or pixels, for all of them")
    return points
