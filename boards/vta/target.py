"""What a board's file says of its VTA: a device's target, such as ``{kind = "vta", board = "ultra96"}``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from boards.vta.config import Config
from pipeline.errors import BoardError, near

TEXTS = ("kind", "board", "version", "config", "bitstream")
"""Which board's clock and bus, which instruction set, a ``vta_config.json`` for other sizes, what to load."""

FEWEST_CHANNELS = "fewest_channels"
"""Of the input of a convolution that VTA runs; what has fewer goes to other devices."""

_USUAL_CHANNELS = 4
"""With fewer, most of VTA's lanes multiply zeros, and the CPU is better at it."""


def config(target: Mapping[str, object] | None) -> Config:
    """Return the sizes of the accelerator.

    Raises
    ------
    BoardError
        If a key is unknown, or its value is.
    """
    given = dict(target or {})
    for key, value in given.items():
        _check(key, value)
    found = Config.load(str(given["config"])) if "config" in given else Config()
    return replace(found, target=str(given.get("board", found.target)), hw_ver=str(given.get("version", found.hw_ver)))


def fewest_channels(target: Mapping[str, object] | None) -> int:
    """Return how many channels the input of a convolution must have for VTA to run it."""
    found = (target or {}).get(FEWEST_CHANNELS, _USUAL_CHANNELS)
    _check(FEWEST_CHANNELS, found)
    return int(str(found))


def bitstream(target: Mapping[str, object] | None) -> Path | None:
    """Return the bitstream to load; None if it is loaded already."""
    found = (target or {}).get("bitstream")
    return None if found is None else Path(str(found))


def _check(key: str, value: object) -> None:
    if key == FEWEST_CHANNELS:
        if type(value) is not int or value < 1:
            raise BoardError(f"a VTA's target has {key} = {value!r}; it must be a whole number of at least 1")
    elif key not in TEXTS or not isinstance(value, str):
        known = (*TEXTS, FEWEST_CHANNELS)
        raise BoardError(
            f"a VTA's target has no {key!r} = {value!r}; it has texts for {', '.join(TEXTS)}, and a number for "
            f"{FEWEST_CHANNELS}{near(key, known)}"
        )
