"""BoardExport: a measured board as a file, with the times of models on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.board.board_file import EXPORT_SUFFIX
from pipeline.errors import BoardError, InputError, reason
from pipeline.measure.profile import Profile
from pipeline.split.planning.problem.spans import SpanTimes
from pipeline.system.files import check_regular, write_atomically
from pipeline.system.version import VERSION

if TYPE_CHECKING:
    from pipeline.split.graph import Graph

Seconds = dict[str, list[float | None]]
"""Seconds of groups by device; None where it cannot run one."""


class SpanRecord(msgspec.Struct, frozen=True):
    """Fields of `SpanTimes`."""

    positions: list[int]
    seconds: list[list[float | None]]
    threads: dict[int, float]
    contention: float


class ModelTimes(msgspec.Struct, frozen=True):
    """Times of a model's groups, as `Profile` has them."""

    model: str
    digest: str
    seconds: Seconds
    contended: Seconds
    estimated: dict[str, str]
    spans: dict[str, SpanRecord]
    tools: dict[str, str]


class BoardExport(msgspec.Struct, frozen=True):
    """A board and the models that were measured on it."""

    version: str
    """Version of this package that measured: another one may have other kernels."""
    board: dict[str, object]
    models: list[ModelTimes]


def export_profile(path: Path, graph: Graph, profile: Profile) -> None:
    """Write a profile's board and times, or add them to a file's.

    Targets are spelt out, as "this machine" is another one elsewhere.  Raises `InputError` for another suffix.
    """
    if path.suffix != EXPORT_SUFFIX:
        raise InputError(f"--export is {str(path)!r}; give a file that ends in {EXPORT_SUFFIX}")

    board = replace(profile.board, name=path.stem, devices=tuple(map(_spell_out, profile.board.devices)))
    times = ModelTimes(
        graph.name,
        graph.digest,
        _finite(profile.seconds),
        _finite(profile.contended),
        dict(profile.estimated),
        {name: _record(spans) for name, spans in profile.spans.items()},
        dict(profile.tools),
    )
    earlier = [entry for entry in _read(path).models if entry.digest != graph.digest] if path.exists() else []
    content = BoardExport(VERSION, msgspec.to_builtins(board), [*earlier, times])
    write_atomically(path, msgspec.json.format(msgspec.json.encode(content), indent=1))


def _spell_out(device: Device) -> Device:
    """Return a device with the target of this machine's processor, if it has none."""
    from pipeline.executor.build import target_of

    if device.target is not None or not device.capabilities.is_processor:
        return device
    return replace(device, target={str(key): _plain(value) for key, value in target_of(device).export().items()})


def _plain(value: Any) -> object:
    """Return a value of a target without TVM's classes."""
    if isinstance(value, str):
        return str(value)
    return int(value) if isinstance(value, int) else list(map(str, value))


def read_profile(path: str | Path, graph: Graph) -> Profile | None:
    """Return a model's profile in an exported board; None if it was not measured there."""
    import boards

    export = _read(Path(path))
    times = next((entry for entry in export.models if entry.digest == graph.digest), None)
    # Divided groups have other times.
    if times is None or any(len(row) != len(graph.group_ends) for row in times.seconds.values()):
        return None
    board: Board = boards.get(str(path))
    spans = {name: _span_times(record) for name, record in times.spans.items()}
    return Profile(board, _infinite(times.seconds), times.estimated, _infinite(times.contended), spans, times.tools)


def _read(path: Path) -> BoardExport:
    try:
        check_regular(path)
        return msgspec.json.decode(path.read_bytes(), type=BoardExport)
    except (OSError, msgspec.DecodeError) as error:
        title = f"cannot read the board {str(path)!r}"
        raise BoardError(f"{title}: {reason(error)}; 'profile --export' writes one") from None


def _record(spans: SpanTimes) -> SpanRecord:
    rows = [_row(row) for row in np.asarray(spans.seconds).tolist()]
    return SpanRecord(list(spans.positions), rows, dict(spans.threads), spans.contention)


def _span_times(record: SpanRecord) -> SpanTimes:
    seconds = np.array([[math.inf if value is None else value for value in row] for row in record.seconds])
    return SpanTimes(tuple(record.positions), seconds, record.threads, record.contention)


def _row(seconds: Sequence[float]) -> list[float | None]:
    # JSON has no infinity.
    return [value if math.isfinite(value) else None for value in seconds]


def _finite(seconds: Mapping[str, Sequence[float]]) -> Seconds:
    return {name: _row(row) for name, row in seconds.items()}


def _infinite(seconds: Seconds) -> dict[str, tuple[float, ...]]:
    return {name: tuple(math.inf if value is None else value for value in row) for name, row in seconds.items()}
