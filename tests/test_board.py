"""A board that exists is sound; the host's describes this process."""

from __future__ import annotations

import os

import pytest

import boards
from pipeline.board import Board, Device, Link
from pipeline.errors import BoardError


def test_devices_are_found_by_name() -> None:
    board = Board("b", (Device("cpu"), Device("gpu0")))
    assert board.device("gpu0") is board.devices[1]
    with pytest.raises(BoardError, match="board 'b' has no device 'gpu'; it has cpu, gpu0; did you mean 'gpu0'"):
        board.device("gpu")


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ((), "board 'b' has no devices; give it at least one"),
        ((Device("a"), Device("b"), Device("a")), "board 'b' has two devices called 'a'"),
        ((Device("a", flops=0),), "device 'a': flops and bytes_per_s must be above 0"),
        ((Device("a", bytes_per_s=-1),), "device 'a': flops and bytes_per_s must be above 0"),
        ((Device("a", launch_s=-1),), "launch_s at least 0"),
    ],
)
def test_impossible_boards_are_refused(devices: tuple[Device, ...], message: str) -> None:
    with pytest.raises(BoardError, match=message):
        Board("b", devices)


def test_transfers_within_a_memory_cost_one_reading() -> None:
    one, two = Device("one", bytes_per_s=1e9), Device("two", bytes_per_s=2e9)
    board = Board("b", (one, two))
    assert board.transfer_s(one, two, 10**9) == pytest.approx(0.5)
    assert board.transfer_s(two, one, 10**9) == pytest.approx(1.0)
    assert board.transfer_s(one, two, 0) == 0


def test_transfers_between_memories_cost_the_link() -> None:
    host, far = Device("host"), Device("far", memory="far")
    board = Board("b", (host, far), (Link(("far", "host"), 1e6, 0.25),))
    assert board.transfer_s(host, far, 500_000) == board.transfer_s(far, host, 500_000) == pytest.approx(0.75)


def test_a_missing_link_names_both_ends() -> None:
    host, far = Device("cpu"), Device("gpu", memory="vram")
    with pytest.raises(BoardError, match=r"no link between 'host' .device 'cpu'. and 'vram' .device 'gpu'."):
        Board("b", (host, far)).transfer_s(host, far, 1)


def test_the_host_has_the_cores_of_this_process() -> None:
    (device,) = boards.get("host").devices
    assert device.kind == "cpu"
    assert device.target is None
    assert device.memory_bytes > 1 << 20
    if hasattr(os, "sched_getaffinity"):
        assert device.cores == tuple(sorted(os.sched_getaffinity(0)))
    assert device.cores
    # From a small core of a board to the widest vectors there are.
    assert 1e9 < device.flops < 1e12


def test_an_unknown_board_is_refused() -> None:
    with pytest.raises(BoardError, match=r"unknown board 'hots'; known are .*; did you mean 'host'"):
        boards.get("hots")
