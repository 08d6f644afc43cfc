"""GStreamer's ``.modelinfo`` beside a model, as its inference elements read it.

A section for each tensor; ``ranges`` of an input has the smallest and largest value of a pixel, for all channels or
each: ``0.0,1.0`` or ``-1.0,1.0;-1.0,1.0;-1.0,1.0``.
"""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

from pipeline.core.card_file import read_text
from pipeline.core.model_card import ModelCard
from pipeline.errors import InputError, reason
from pipeline.frontends.cards import Inputs, Metadata

SUFFIX = ".modelinfo"

_SECTION, _MAJOR = "modelinfo", "1"

_BYTES = 128
"""Width of a range from which its numbers are bytes and not shares of white."""


def find(metadata: Metadata, path: Path | None, inputs: Inputs) -> ModelCard | None:  # noqa: ARG001
    """Return the card of the file beside a model: ``model.onnx.modelinfo`` or ``model.modelinfo``."""
    files = [] if path is None else [path.with_name(path.name + SUFFIX), path.with_suffix(SUFFIX)]
    file = next((file for file in files if file.is_file()), None)
    if file is None:
        return None
    info = _read(file)
    name = next(iter(inputs), "")
    ranges = info.get(name, "ranges", fallback="")
    if not ranges:
        return None
    pairs = [_parse_range(text, file) for text in ranges.split(";") if text.strip()]
    if len(pairs) not in (1, 3):
        raise InputError(f"{file.name!r}: ranges of {name!r} has {len(pairs)} ranges; it takes one or three")
    # A pixel p becomes low + p / 255 * (high - low); a preparation computes (p / 255 * scale - mean) / std.
    scale = 255 if pairs[0][1] - pairs[0][0] >= _BYTES else 1
    preparation: dict[str, Any] = {
        "scale": scale,
        "std": tuple(scale / (high - low) for low, high in pairs),
        "mean": tuple(-low * scale / (high - low) for low, high in pairs),
    }
    return ModelCard.of(file.name, preparation=preparation)


def _read(file: Path) -> configparser.ConfigParser:
    info = configparser.ConfigParser(delimiters=("=",), interpolation=None, default_section="")
    try:
        info.read_string(read_text(file, "model information"))
    except configparser.Error as error:
        raise InputError(f"{file.name!r} is no file of sections: {reason(error, line=0)}") from None
    version = info.get(_SECTION, "version", fallback="")
    if version.partition(".")[0] != _MAJOR:
        raise InputError(f"{file.name!r} has version {version!r}; version {_MAJOR}.0 is read")
    return info


def _parse_range(text: str, file: Path) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise InputError(f"{file.name!r}: a range is {text!r}, not two numbers such as 0.0,1.0") from None
    # Also false of what is no number.
    if not -1e6 < low < high < 1e6:
        raise InputError(f"{file.name!r}: a range is {text!r}; the second number must be larger")
    return low, high
