"""Sinks by their text, such as ``results.npz`` or ``out.mp4?show=label``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from pipeline.errors import InputError
from pipeline.io.address import Address, parse
from pipeline.io.arrays import Folder, Stacked
from pipeline.io.bag_sink import BagSink
from pipeline.io.geometry import Geometry
from pipeline.io.json_lines import JsonLines
from pipeline.io.overlay import BestLabel, Boxes, Reading
from pipeline.io.sink import Several, Sink
from pipeline.io.video import SUFFIXES
from pipeline.io.video_sink import Video
from pipeline.plans import TensorSpec

KINDS = ("bag", "folder", "jsonl", "npz", "video")
LINES = (".jsonl", ".ndjson")


def sink(text: str, outputs: Sequence[TensorSpec], place: Geometry | None = None) -> Sink:
    """Open the sink that `text` means.

    Parameters
    ----------
    text : str
        ``FILE.npz``, a folder, ``FILE.jsonl`` (``jsonl:-`` is standard output), ``bag:PATH?storage=sqlite3``, or
        ``FILE.mp4?show=label&labels=FILE&codec=ffv1``.
    outputs : sequence of TensorSpec
        The model's.
    place : Geometry, optional
        Where in the model's input the pictures lie.

    Raises
    ------
    InputError
        If there is no place for it, or an option is not for it.
    """
    address = _address(text)
    path = Path(address.place)
    if address.place != "-" and not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {text!r}: there is no folder {str(path.parent)!r}")
    return _OPEN[address.kind or _kind(path, text)](address, path, outputs, place)


@contextlib.contextmanager
def several(texts: Sequence[str], outputs: Sequence[TensorSpec], place: Geometry | None = None) -> Iterator[Sink]:
    """Open a sink for each text; all are completed if nothing went wrong, and else given up."""
    opened: list[Sink] = []
    try:
        opened += (sink(text, outputs, place) for text in texts)
    except BaseException:
        Several(opened).abandon()
        raise
    with Several(opened) as together:
        yield together


def _address(text: str) -> Address:
    address = parse(text, KINDS)
    # Options stand behind a path too, unless that is one which exists.
    place, mark, _ = text.partition("?")
    return parse(f"{_kind(Path(place), text)}:{text}", KINDS) if mark and not address.kind else address


def _kind(path: Path, text: str) -> str:
    suffix = path.suffix.lower()
    if path.is_dir() or not suffix:
        if path.exists() and not path.is_dir():
            raise InputError(f"{text!r} is a file; give a .npz file, or a folder for one .npz per frame")
        return "folder"
    kinds = {".npz": "npz", **dict.fromkeys(LINES, "jsonl"), **dict.fromkeys(SUFFIXES, "video")}
    if suffix not in kinds:
        raise InputError(
            f"cannot write {text!r}; give a .npz file, a folder for one .npz per frame, a .jsonl file, a video file "
            f"({' '.join(SUFFIXES)}), or bag:PATH"
        )
    return kinds[suffix]


def _npz(address: Address, path: Path, outputs: Sequence[TensorSpec], _: Geometry | None) -> Sink:
    address.only(())
    return Stacked(path, outputs)


def _folder(address: Address, path: Path, *_: object) -> Sink:
    address.only(())
    return Folder(path)


def _json(address: Address, path: Path, *_: object) -> Sink:
    address.only(())
    return JsonLines(None if address.place == "-" else path)


def _bag(address: Address, path: Path, outputs: Sequence[TensorSpec], _: Geometry | None) -> Sink:
    return BagSink(path, outputs, **address.only(("storage",)))


def _video(address: Address, path: Path, _: Sequence[TensorSpec], place: Geometry | None) -> Sink:
    options = address.only(("codec", "labels", "least", "show"))
    return Video(path, options.get("codec"), _reading(options, place))


def _reading(options: Mapping[str, str], place: Geometry | None) -> Reading | None:
    show = options.get("show")
    if show not in (None, "label", "boxes"):
        raise InputError(f"show is {show!r}; it must be 'label' or 'boxes'")
    if show is None and options.keys() & {"labels", "least"}:
        raise InputError("labels and least belong to show=label or show=boxes")
    labels = _labels(options.get("labels"))
    if show == "boxes":
        return Boxes(place, labels, _share(options.get("least", "0.5")))
    return BestLabel(labels) if show else None


def _labels(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"no labels, one per line, in {path!r}: {error}") from None


def _share(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"least is {text!r}; it must be a score") from None


_OPEN: dict[str, Callable[[Address, Path, Sequence[TensorSpec], Geometry | None], Sink]] = {
    "bag": _bag,
    "folder": _folder,
    "jsonl": _json,
    "npz": _npz,
    "video": _video,
}
