"""A board as a TOML file, whose keys are the fields of the board's values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pipeline import board as values
from pipeline.board import Board, Cluster, Device, Link
from pipeline.errors import BoardError, PipelineError, near

SUFFIX = ".toml"

KINDS = tuple(kind for kind in values.KINDS if kind != "python")
"""Kinds of device that a board's file may name, whether or not something drives them here: functions are in no file."""

_INSIDE: dict[type, dict[str, type]] = {Board: {"devices": Device, "links": Link}, Device: {"clusters": Cluster}}


def read(path: Path) -> Board:
    """Return the board that a TOML file describes; it is called as the file is, unless it has a name of its own.

    Raises
    ------
    BoardError
        If the file is missing or no TOML, has an unknown key or kind of device, a value of a wrong type, or an
        impossible one; the message names the file and the key.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BoardError(
            f"cannot read the board {str(path)!r}: {error.strerror}; 'soc-pipeline boards' lists those that come along"
        ) from None
    try:
        return decode(data, path.stem)
    except BoardError as error:
        raise BoardError(f"{path}: {error}") from None


def decode(data: bytes, name: str) -> Board:
    """Return the board written in `data`; `name` is what it is called if it has no name of its own."""
    return from_table({"name": name, **_parsed(data)})


def from_table(found: Mapping[str, Any]) -> Board:
    """Return the board whose fields are the keys of a table."""
    _check_keys(found, Board, "")
    try:
        board = msgspec.convert(found, Board)
    except msgspec.ValidationError as error:
        # Errors of the board's own checks arrive wrapped.
        if isinstance(error.__cause__, PipelineError):
            raise error.__cause__ from None
        raise BoardError(_located(str(error))) from None
    for device in board.devices:
        if device.kind not in KINDS:
            raise BoardError(
                f"device {device.name!r} is of kind {device.kind!r}, which is unknown; there are {', '.join(KINDS)}"
                f"{near(device.kind, KINDS)}"
            )
    return board


def _parsed(data: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.toml.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BoardError(f"not a TOML file: {error}") from None
    return found


def _check_keys(table: Mapping[str, Any], kind: type, where: str) -> None:
    """Raise `BoardError` for a key that `kind` has no field for; wrong types are found later."""
    known = [each.name for each in dataclasses.fields(kind)]
    for key, value in table.items():
        if key not in known:
            raise BoardError(f"unknown key {f'{where}{key}'!r}; known are {', '.join(known)}{near(key, known)}")
        if key in _INSIDE.get(kind, {}):
            for number, inner in enumerate(_tables(value)):
                _check_keys(inner, _INSIDE[kind][key], f"{where}{key}[{number}].")


def _tables(value: Any) -> Iterable[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _located(text: str) -> str:
    """Return msgspec's message with the key in front, as in ``devices[0].flops: expected float, got str``."""
    what, separator, where = text.replace("`", "").rpartition(" - at ")
    if not separator:
        what, where = where, "the file"
    return f"{where.removeprefix('$').lstrip('.')}: {what[:1].lower()}{what[1:]}"
