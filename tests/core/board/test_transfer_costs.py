"""Seconds for moving tensors are spent by the side that is away from the caller's memory."""

from __future__ import annotations

import pytest

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.board.transfer_costs import LAYOUT, enter_route, enter_s, leave_route, leave_s, link_ends
from pipeline.errors import BoardError

CPU, GPU, NPU, DSP = (
    Device("cpu", bytes_per_s=1e9),
    Device("gpu", "cuda", memory="gpu"),
    Device("npu", "vta", memory="npu"),
    Device("dsp", "opencl", memory="dsp"),
)
BOARD = Board(
    "b",
    (CPU, GPU, NPU, DSP),
    (
        Link(("host", "gpu"), 1e6, 0.5),
        Link(("npu", "host"), 1e3, 0.25),
        Link(("gpu", "dsp"), 2e6),
        Link(("dsp", "npu"), 1e6, shared=True),
    ),
)


def test_within_a_memory_the_reader_fetches_and_layouts_change() -> None:
    assert enter_s(BOARD, CPU, CPU, 1_000_000) == pytest.approx(1e-3 + LAYOUT * 1e-3)
    assert leave_s(BOARD, CPU, CPU, 1_000_000) == pytest.approx(LAYOUT * 1e-3)
    assert enter_s(BOARD, GPU, GPU, 1_000_000) == pytest.approx(1e6 / GPU.bytes_per_s), (
        "only CPU kernels have their own"
    )
    assert leave_s(BOARD, GPU, GPU, 1_000_000) == 0
    assert enter_s(BOARD, None, CPU, 1_000_000) == leave_s(BOARD, CPU, None, 1_000_000) == 0


def test_the_side_away_from_home_pays() -> None:
    assert (enter_s(BOARD, CPU, GPU, 1_000_000), leave_s(BOARD, CPU, GPU, 1_000_000)) == (1.5, 0)
    assert (enter_s(BOARD, GPU, CPU, 1_000_000), leave_s(BOARD, GPU, CPU, 1_000_000)) == (0, 1.5)
    assert enter_s(BOARD, None, NPU, 1000) == leave_s(BOARD, NPU, None, 1000) == 1.25
    assert enter_s(BOARD, None, GPU, 0) == 0, "nothing to move"


def test_two_sides_away_from_home_pay_each_its_own_link() -> None:
    assert (leave_s(BOARD, GPU, NPU, 1000), enter_s(BOARD, GPU, NPU, 1000)) == (0.501, 1.25)
    assert link_ends(BOARD, leave_route(BOARD, GPU, NPU)) == ("host", "gpu")
    assert link_ends(BOARD, enter_route(BOARD, GPU, NPU)) == ("npu", "host")


def test_without_a_way_home_the_reader_pays_the_direct_link() -> None:
    assert (leave_s(BOARD, GPU, DSP, 2_000_000), enter_s(BOARD, GPU, DSP, 2_000_000)) == (0, 1)
    assert link_ends(BOARD, enter_route(BOARD, GPU, DSP)) == ("gpu", "dsp")
    assert link_ends(BOARD, enter_route(BOARD, DSP, NPU)) is None, "both are the same chips"
    with pytest.raises(BoardError, match=r"no link between 'host' .* and 'dsp'"):
        enter_s(BOARD, None, DSP, 1)


def test_where_nothing_is_at_home_the_caller_is_not_counted() -> None:
    board = Board("far", (Device("far", "remote", address="remote://x:1/cpu", memory="far"),))
    assert board.home is None
    assert enter_s(board, None, board.devices[0], 1000) == 0
    assert BOARD.home == CPU
