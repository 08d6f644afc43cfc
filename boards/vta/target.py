"""What a board's file says of its VTA: a device's target, such as ``{kind = "vta", board = "ultra96"}``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from boards.vta.config import Config
from pipeline.errors import BoardError, near

KEYS = ("kind", "board", "version", "config", "bitstream")
"""Which board's clock and bus, which instruction set, a ``vta_config.json`` for other sizes, what to load."""


def is_vta(target: Mapping[str, object] | None) -> bool:
    """Whether a device's target is a VTA of known sizes."""
    return target is not None and target.get("kind") == "vta"


def config(target: Mapping[str, object] | None) -> Config:
    """Return the sizes of the accelerator.

    Raises
    ------
    BoardError
        If a key is unknown, or its value is.
    """
    given = dict(target or {})
    for key, value in given.items():
        if key not in KEYS or not isinstance(value, str):
            raise BoardError(
                f"a VTA's target has no {key!r} = {value!r}; it has texts for {', '.join(KEYS)}{near(key, KEYS)}"
            )
    found = Config.load(str(given["config"])) if "config" in given else Config()
    return replace(found, target=str(given.get("board", found.target)), hw_ver=str(given.get("version", found.hw_ver)))


def bitstream(target: Mapping[str, object] | None) -> Path | None:
    """Return the bitstream to load; None if it is loaded already."""
    found = (target or {}).get("bitstream")
    return None if found is None else Path(str(found))
