"""What a board's file says of its VTA: known keys with values of their kind, and everything else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boards.vta import target
from boards.vta.config import ULTRA96
from pipeline.errors import BoardError

GIVEN = {"kind": "vta", "board": "ultra96", "version": "0.0.1"}


def test_sizes_are_those_of_the_board() -> None:
    assert target.config(GIVEN) == ULTRA96
    assert target.config({**GIVEN, "bitstream": "vta.bit", "fewest_channels": 3}) == ULTRA96


def test_the_bitstream_is_a_path() -> None:
    assert target.bitstream(GIVEN) is None
    assert target.bitstream({**GIVEN, "bitstream": "vta.bit"}) == Path("vta.bit")


def test_pictures_stay_on_the_cpu_unless_asked() -> None:
    assert target.fewest_channels(None) == target.fewest_channels(GIVEN) == 4
    assert target.fewest_channels({**GIVEN, "fewest_channels": 3}) == 3


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bitsream", "vta.bit", "did you mean 'bitstream'"),
        ("bitstream", 7, "has no 'bitstream' = 7"),
        ("fewest_channels", 0, "whole number of at least 1"),
        ("fewest_channels", "3", "whole number of at least 1"),
        ("fewest_channels", True, "whole number of at least 1"),
        ("board", "ultra69", "did you mean 'ultra96'"),
        ("version", "1", "known are 0.0.1, 0.0.2"),
    ],
)
def test_what_is_wrong_is_named(key: str, value: Any, message: str) -> None:
    with pytest.raises(BoardError, match=message):
        target.config({**GIVEN, key: value})
