"""Target: keys of a VTA board file, such as ``{kind = "vta", board = "ultra96"}``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from boards.vta.isa.config import Config
from pipeline.errors import BoardError, near

TEXTS = ("kind", "board", "version", "config", "bitstream")
"""Keys of text: clock and bus, instruction set, ``vta_config.json`` for other sizes, bitstream."""

FEWEST_CHANNELS = "fewest_channels"
"""Key for the fewest input channels of a convolution on VTA. Others go to other devices."""

SIMULATED = "simulated"
"""Key for the simulator in place of a board."""

_USUAL_CHANNELS = 4
"""Default of the fewest channels. With fewer, most of VTA's lanes multiply zeros, and the CPU is better at it."""


def config(target: Mapping[str, object] | None) -> Config:
    """Return the sizes of the accelerator, or raise `BoardError`."""
    entries = dict(target or {})
    for key, value in entries.items():
        _check(key, value)
    sizes = Config.load(str(entries["config"])) if "config" in entries else Config()
    # Keys of the board's file win over those of VTA's: one `vta_config.json` may serve several boards.
    return replace(
        sizes, target=str(entries.get("board", sizes.target)), hw_ver=str(entries.get("version", sizes.hw_ver))
    )


def fewest_channels(target: Mapping[str, object] | None) -> int:
    """Fewest input channels of a convolution for VTA."""
    value = (target or {}).get(FEWEST_CHANNELS, _USUAL_CHANNELS)
    _check(FEWEST_CHANNELS, value)
    # By way of text, since values of a target are plain objects; `_check` has seen that it is a number.
    return int(str(value))


def is_simulated(target: Mapping[str, object] | None) -> bool:
    """Test if the device is this machine's simulator."""
    value = (target or {}).get(SIMULATED, False)
    _check(SIMULATED, value)
    return value is True


def bitstream(target: Mapping[str, object] | None) -> Path | None:
    """Return the bitstream to load; None if already loaded."""
    path = (target or {}).get("bitstream")
    return None if path is None else Path(str(path))


def _check(key: str, value: object) -> None:
    if key == FEWEST_CHANNELS:
        # Not `isinstance`: for Python, true is a whole number, too.
        if type(value) is not int or value < 1:
            raise BoardError(f"a VTA's target has {key} = {value!r}; it must be a whole number of at least 1")
    elif key == SIMULATED:
        if type(value) is not bool:
            raise BoardError(f"a VTA's target has {key} = {value!r}; it must be true or false")
    elif key not in TEXTS or not isinstance(value, str):
        keys = (*TEXTS, FEWEST_CHANNELS, SIMULATED)
        raise BoardError(
            f"a VTA's target has no {key!r} = {value!r}; it has texts for {', '.join(TEXTS)}, a number for "
            f"{FEWEST_CHANNELS}, and true or false for {SIMULATED}{near(key, keys)}"
        )
