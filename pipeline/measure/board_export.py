"""BoardExport: a measured board as a file, with the times of models on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.board.board_file import EXPORT_SUFFIX
from pipeline.errors import BoardError, InputError, reason
from pipeline.measure.profile import Profile
from pipeline.split.planning.problem.spans import SpanTimes
from pipeline.system.files import check_regular, write_atomically
from pipeline.system.version import VERSION

if TYPE_CHECKING:
    from pipeline.split.graph import Graph

_TIMES = ("seconds", "contended", "estimated", "spans", "tools")
"""Fields of a profile that a file has by the digest of the model's graph."""


def check_export(path: Path) -> None:
    """Raise `InputError` for another suffix, or a folder that is not there."""
    if path.suffix != EXPORT_SUFFIX:
        raise InputError(f"--export is {str(path)!r}; give a file that ends in {EXPORT_SUFFIX}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"--export is {str(path)!r}; make its folder first")


def export_profile(path: Path, graph: Graph, profile: Profile) -> None:
    """Write a profile's board and times, or add them to those of other models.

    Targets are spelt out, as "this machine" is another one elsewhere.  Raises `InputError` as `check_export` does.
    """
    check_export(path)
    board = replace(profile.board, name=path.stem, devices=tuple(map(_spell_out, profile.board.devices)))
    models = _read(path)["models"] if path.exists() else {}
    models[graph.digest] = {"model": graph.name, **{name: getattr(profile, name) for name in _TIMES}}
    # An infinite time becomes null.
    text = msgspec.json.encode({"version": VERSION, "board": board, "models": models}, enc_hook=np.ndarray.tolist)
    write_atomically(path, msgspec.json.format(text, indent=1))


def read_profile(path: str | Path, graph: Graph) -> Profile | None:
    """Return a model's profile in an exported board; None if it was not measured there."""
    import boards

    times = _read(Path(path))["models"].get(graph.digest)
    if times is None:
        return None
    seconds, contended = (
        {name: tuple(_array(row).tolist()) for name, row in times[field].items()} for field in _TIMES[:2]
    )
    spans = {
        name: SpanTimes(
            tuple(span["positions"]),
            _array(span["seconds"]),
            {int(count): share for count, share in span["threads"].items()},
            span["contention"],
        )
        for name, span in times["spans"].items()
    }
    # Divided groups have other times.
    if any(len(row) != len(graph.group_ends) for row in seconds.values()):
        return None
    return Profile(boards.get(str(path)), seconds, times["estimated"], contended, spans, times["tools"])


def _read(path: Path) -> dict[str, Any]:
    try:
        check_regular(path)
        # Boards that people write have none.
        return {"models": {}, **msgspec.json.decode(path.read_bytes(), type=dict[str, Any])}
    except (OSError, msgspec.DecodeError) as error:
        title = f"cannot read the board {str(path)!r}"
        raise BoardError(f"{title}: {reason(error)}; 'profile --export' writes one") from None


def _array(values: Any) -> np.ndarray:
    return np.nan_to_num(np.array(values, np.float64), nan=np.inf)


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
