"""Targets of VTA in a board's file: known keys with values of their kind, and everything else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from boards.vta import target
from boards.vta.isa.config import ULTRA96
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


def test_a_vta_is_simulated_only_where_its_target_says_so() -> None:
    assert not target.is_simulated(None)
    assert not target.is_simulated(GIVEN)
    assert target.is_simulated({**GIVEN, "simulated": True})
    assert target.config({**GIVEN, "simulated": True}) == ULTRA96


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("bitsream", "vta.bit", "did you mean 'bitstream'"),
        ("bitstream", 7, "has no 'bitstream' = 7"),
        ("fewest_channels", 0, "whole number of at least 1"),
        ("fewest_channels", "3", "whole number of at least 1"),
        ("fewest_channels", True, "whole number of at least 1"),
        ("simulated", "yes", "must be true or false"),
        ("simulate", True, "did you mean 'simulated'"),
        ("board", "ultra69", "did you mean 'ultra96'"),
        ("version", "1", "known are 0.0.1, 0.0.2"),
    ],
)
def test_what_is_wrong_is_named(key: str, value: Any, message: str) -> None:
    with pytest.raises(BoardError, match=message):
        target.config({**GIVEN, key: value})
