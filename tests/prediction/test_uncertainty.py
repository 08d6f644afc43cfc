"""Ranges of rates by published accuracy, against values by hand."""

from __future__ import annotations

import dataclasses

import pytest

from pipeline.core.board.board import Accuracy, Board, Device, Link
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.prediction.uncertainty import draws, gain_share, rate_range

CPU = Device("cpu", cores=(0, 1), accuracy=Accuracy(6, 0.8, 1.25))
NPU = Device("npu0", "vendor", memory="npu", accuracy=Accuracy(9, 0.5, 2.0), target={"options": {"core": 0}})
TWIN = dataclasses.replace(NPU, name="npu1", target={"options": {"core": 1}})
BOARD = Board("b", (CPU, NPU, TWIN), (Link(("host", "npu"), 1e9, 1e-3),))


def plan(*stages: tuple[str, float], board: Board = BOARD) -> Plan:
    """Return a plan of stages, each on a device for some seconds."""
    tensors = [TensorSpec(f"t{number}", (250_000,)) for number in range(len(stages) + 1)]
    return Plan(
        "m",
        "",
        board,
        (tensors[0],),
        (tensors[-1],),
        tuple(
            StagePlan(f"stage{number}", device, (tensors[number],), (tensors[number + 1],), seconds=seconds)
            for number, (device, seconds) in enumerate(stages)
        ),
    )


def without_accuracy() -> Board:
    devices = tuple(dataclasses.replace(device, accuracy=None) for device in BOARD.devices)
    return dataclasses.replace(BOARD, devices=devices)


def test_one_device_has_its_own_range_transfers_included() -> None:
    # Each megabyte takes 2 ms of the 20.
    span = rate_range(plan(("npu0", 0.02)))
    assert span is not None
    assert (span.low, span.high, span.figures) == (pytest.approx(25, rel=0.01), pytest.approx(100, rel=0.01), 9)


def test_a_chain_has_a_range_between_those_of_its_devices() -> None:
    span = rate_range(plan(("cpu", 0.02), ("npu0", 0.02)))
    assert span is not None
    # The slower one sets the pace: rarely more than either of them.
    assert 24 < span.low < 30
    assert 50 < span.high < 62.5
    assert span.figures == 15


def test_equal_devices_err_alike() -> None:
    assert {draw["npu0"] == draw["npu1"] for draw in draws(BOARD)} == {True}
    assert rate_range(plan(("npu0", 0.02), ("npu1", 0.02))) == rate_range(plan(("npu0", 0.02)))


def test_draws_are_the_same_each_time_and_hold_90_percent() -> None:
    assert draws(BOARD) == draws(BOARD)
    inside = [0.5 <= draw["npu0"] <= 2.0 for draw in draws(BOARD)]
    assert 0.88 <= sum(inside) / len(inside) <= 0.92


def test_measured_plans_and_boards_without_figures_have_no_range() -> None:
    assert rate_range(dataclasses.replace(plan(("cpu", 0.02)), measured=True)) is None
    assert rate_range(plan(("cpu", 0.02), board=without_accuracy())) is None
    assert draws(without_accuracy()) == ({},)


@pytest.mark.parametrize(
    ("seconds", "accurate", "share"),
    [
        (0.0100, True, 1.0),  # twice as fast on the same device: whatever its error
        (0.0185, True, 0.0),  # 1.08 times, whatever its error
        (0.0185, False, 0.0),
        (0.0180, False, 1.0),
    ],
)
def test_both_sides_meet_the_same_draw(seconds: float, *, accurate: bool, share: float) -> None:
    board = BOARD if accurate else without_accuracy()
    assert gain_share(plan(("npu0", seconds), board=board), plan(("npu0", 0.02), board=board)) == share


def test_a_gain_by_another_device_is_as_sure_as_both() -> None:
    share = gain_share(plan(("cpu", 0.016)), plan(("npu0", 0.02)))
    # The ratio's logarithm is normal with the variance of both; its mean is that of 1.25 over 1.1.
    assert 0.5 < share < 0.75
