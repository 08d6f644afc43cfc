"""A board that exists is possible; the host's describes this process."""

from __future__ import annotations

import dataclasses
import math
import os
from typing import Any

import pytest

import boards
from pipeline.core.board.board import Accuracy, Board, Cluster, Device, Link
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
        ((Device(""),), "a device has no name"),
    ],
)
def test_impossible_boards_are_refused(devices: tuple[Device, ...], message: str) -> None:
    with pytest.raises(BoardError, match=message):
        Board("b", devices)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flops": 0}, "device 'a': flops and bytes_per_s must be above 0"),
        ({"flops": math.nan}, "device 'a': flops and bytes_per_s must be above 0"),
        ({"bytes_per_s": -1}, "device 'a': flops and bytes_per_s must be above 0"),
        ({"bytes_per_s": math.inf}, "device 'a': flops and bytes_per_s must be above 0"),
        ({"launch_s": -1}, "launch_s at least 0"),
        ({"memory_bytes": -1}, "memory_bytes is -1; it must be at least 0"),
        ({"watts_idle": math.nan}, "watts_idle is nan; it must be at least 0"),
        ({"watts_idle": 3, "watts_busy": 2}, "watts_busy is 2, less than watts_idle, 3"),
        ({"families": ("depthwize",)}, "family 'depthwize' is unknown; .* did you mean 'depthwise'"),
        ({"efficiency": {"conv": 1}}, "efficiency 'conv' is unknown; .* did you mean 'convolution'"),
        ({"efficiency": {"matmul": 0}}, "efficiency of 'matmul' is 0; it must be above 0"),
        ({"accuracy": Accuracy(0, 0.5, 2.0)}, "accuracy must have figures above 0"),
        ({"accuracy": Accuracy(3, 1.5, 1.0)}, "low above 0 and at most high"),
        ({"measured": ("flop",)}, "measured 'flop' is unknown; .* did you mean 'flops'"),
        ({"cores": (0, 1, 0)}, "core 0 cannot be"),
        ({"cores": (0, -2)}, "core -2 cannot be"),
        ({"cores": (0, 1), "clusters": (Cluster("big", (1,)),)}, r"clusters have the cores \[1\], but it has \[0, 1\]"),
        ({"clusters": (Cluster("a", (0,)), Cluster("b", (0,)))}, "core 0 cannot be"),
        ({"clusters": (Cluster("a", (0,)), Cluster("a", (1,)))}, "two clusters called 'a'"),
        ({"clusters": (Cluster("a", ()),)}, "cluster 'a' must have cores, and a speed above 0"),
        ({"clusters": (Cluster("a", (0,), 0),)}, "cluster 'a' must have cores, and a speed above 0"),
    ],
    ids=str,
)
def test_impossible_devices_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(BoardError, match=message):
        Board("b", (Device("a", **fields),))


def test_cores_are_those_of_the_clusters() -> None:
    device = Device("cpu", clusters=(Cluster("big", (4, 5)), Cluster("little", (0, 1), 0.4)))
    assert device.cores == (4, 5, 0, 1)
    assert [device.speed(core) for core in device.cores] == [1.0, 1.0, 0.4, 0.4]
    assert Device("cpu", cores=(0,)).speed(0) == 1.0
    assert dataclasses.replace(device, name="other").cores == device.cores


def test_keys_of_a_target_are_changed_in_a_board_of_its_own() -> None:
    board = Board("b", (Device("cpu"), Device("vta", "vta", target={"kind": "vta", "board": "pynq"})))
    new_board = board.with_target("vta", {"board": "ultra96"}).with_target("cpu", {"kind": "llvm"})
    assert new_board.device("vta").target == {"kind": "vta", "board": "ultra96"}
    assert new_board.device("cpu").target == {"kind": "llvm"}
    assert board.device("vta").target == {"kind": "vta", "board": "pynq"}
    with pytest.raises(BoardError, match="has no device 'npu'"):
        board.with_target("npu", {})


def test_places_of_a_device() -> None:
    assert Device("cpu", cores=(0, 1, 2)).places == 3
    assert Device("vta", "vta").places == 1
    assert Device("gpu", "cuda", at_once=4).places == 4


# Links.


def test_transfers_within_a_memory_cost_one_reading() -> None:
    slow, fast = Device("one", bytes_per_s=1e9), Device("two", bytes_per_s=2e9)
    board = Board("b", (slow, fast))
    assert board.transfer_s(slow, fast, 10**9) == pytest.approx(0.5)
    assert board.transfer_s(fast, slow, 10**9) == pytest.approx(1.0)
    assert board.transfer_s(slow, fast, 0) == 0


def test_transfers_between_memories_cost_the_link() -> None:
    host, remote = Device("host"), Device("far", memory="far")
    board = Board("b", (host, remote), (Link(("far", "host"), 1e6, 0.25),))
    assert board.transfer_s(host, remote, 500_000) == board.transfer_s(remote, host, 500_000) == pytest.approx(0.75)


def test_transfers_in_shared_memory_cost_one_reading_and_the_latency() -> None:
    host, remote = Device("host"), Device("far", memory="far", bytes_per_s=1e9)
    board = Board("b", (host, remote), (Link(("host", "far"), 1.0, 0.25, shared=True),))
    assert board.transfer_s(host, remote, 10**9) == pytest.approx(1.25)


def test_a_missing_link_names_both_ends() -> None:
    host, remote = Device("cpu"), Device("gpu", memory="vram")
    with pytest.raises(BoardError, match=r"no link between 'host' .device 'cpu'. and 'vram' .device 'gpu'."):
        Board("b", (host, remote)).transfer_s(host, remote, 1)


@pytest.mark.parametrize(
    ("links", "message"),
    [
        ([(("host", "vran"), 1)], "link host - vran: no device of board 'b' has the memory 'vran'; .*mean 'vram'"),
        ([(("host", "host"), 1)], "both ends are one memory"),
        ([(("host", "vram"), 0)], "bytes_per_s must be above 0, latency_s at least 0"),
        ([(("host", "vram"), 1, -1)], "bytes_per_s must be above 0, latency_s at least 0"),
        ([(("host", "vram"), 1), (("vram", "host"), 1)], "two links host - vram; leave one out"),
    ],
    ids=str,
)
def test_impossible_links_are_refused(links: list[Any], message: str) -> None:
    devices = (Device("cpu"), Device("gpu", memory="vram"))
    with pytest.raises(BoardError, match=message):
        Board("b", devices, tuple(Link(*each) for each in links))


def test_the_host_has_the_cores_of_this_process() -> None:
    device = boards.get("host").devices[0]
    assert device.kind == "cpu"
    assert device.target is None
    assert device.memory_bytes > 1 << 20
    if hasattr(os, "sched_getaffinity"):
        assert set(device.cores) == os.sched_getaffinity(0)
    assert device.cores
    # From a small core of a board to the widest vectors there are.
    assert 1e9 < device.flops < 1e12
