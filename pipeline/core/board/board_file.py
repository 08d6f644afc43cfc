"""A board as a TOML file. Its keys are the fields of the values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline.core.board.board import Accuracy, Board, Cluster, Device, Link
from pipeline.core.board.device_kinds import describe_unknown, find_kind, kind_names
from pipeline.errors import BoardError, PipelineError, near
from pipeline.system.files import check_regular

SUFFIX = ".toml"

EXPORT_SUFFIX = ".json"
"""Suffix of measured boards, of `pipeline.measure.board_export`."""

_INSIDE: dict[type, dict[str, type]] = {
    Board: {"devices": Device, "links": Link},
    Device: {"clusters": Cluster, "accuracy": Accuracy},
}


def read(path: Path) -> Board:
    """Return the board of a TOML file, or of an exported one.

    Raises `BoardError` if the file is missing or no TOML, has an unknown key or kind of device, a value of a wrong
    type, or an impossible one; the message names the file and the key.
    """
    try:
        check_regular(path)
        data = path.read_bytes()
    except OSError as error:
        raise BoardError(
            f"cannot read the board {str(path)!r}: {error.strerror}; 'soc-pipeline boards' lists those that come along"
        ) from None
    try:
        # Outside of the reading, so that only errors of the content get the path in front.
        return _decode_export(data) if path.suffix == EXPORT_SUFFIX else decode(data, path.stem)
    except BoardError as error:
        raise BoardError(f"{path}: {error}") from None


def _decode_export(data: bytes) -> Board:
    try:
        table = msgspec.json.decode(data)["board"]
    except (msgspec.DecodeError, TypeError, KeyError, RecursionError):
        raise BoardError("not a board that 'profile --export' has written") from None
    return from_table(table)


def decode(data: bytes, name: str) -> Board:
    """Return the board written in `data`; `name` is the default name."""
    return from_table({"name": name, **parse_table(data)})


def from_table(table: Mapping[str, Any]) -> Board:
    """Return the board from a table of its fields."""
    # Before msgspec, which ignores unknown keys: a misspelt field would silently keep its default.
    check_keys(table, Board)
    try:
        board = msgspec.convert(table, Board)
    except msgspec.ValidationError as error:
        # Errors of the board's own checks arrive wrapped.
        if isinstance(error.__cause__, PipelineError):
            raise error.__cause__ from None
        raise BoardError(_put_key_first(str(error))) from None
    except (OverflowError, RecursionError) as error:
        raise BoardError(str(error)) from None
    for device in board.devices:
        kind = find_kind(device.kind)
        if kind is None or not kind.in_files:
            kinds = kind_names(lambda kind: kind.in_files)
            raise BoardError(
                f"device {device.name!r} is of kind {device.kind!r}, which nothing drives; "
                f"{describe_unknown(device.kind, kinds)}"
            )
    return board


def parse_table(data: bytes) -> dict[str, Any]:
    """Return the table of a TOML file; else raise `BoardError`."""
    try:
        table: dict[str, Any] = msgspec.toml.decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no UTF-8, or a number of thousands of digits
        raise BoardError(f"not a TOML file: {error}") from None
    return table


def check_keys(table: Mapping[str, Any], kind: type, prefix: str = "") -> None:
    """Raise `BoardError` for keys unknown to `kind`."""
    fields = [field.name for field in dataclasses.fields(kind)]
    for key, value in table.items():
        if key not in fields:
            raise BoardError(f"unknown key {f'{prefix}{key}'!r}; known are {', '.join(fields)}{near(key, fields)}")
        if key in _INSIDE.get(kind, {}):
            for number, subtable in enumerate(_tables(value)):
                index = "" if isinstance(value, Mapping) else f"[{number}]"
                check_keys(subtable, _INSIDE[kind][key], f"{prefix}{key}{index}.")


def _tables(value: Any) -> Iterable[Mapping[str, Any]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, Mapping)]


def _put_key_first(text: str) -> str:
    """Return msgspec's message with the key in front. An example: ``devices[0].flops: expected float, got str``."""
    problem, separator, path = text.replace("`", "").rpartition(" - at ")
    if not separator:
        problem, path = path, "the file"
    return f"{path.removeprefix('$').lstrip('.')}: {problem[:1].lower()}{problem[1:]}"
