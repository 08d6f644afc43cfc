"""Kinds of cores: by what Linux says of them, and by the clusters of a board."""

from __future__ import annotations

from pathlib import Path

from pipeline.core.board.board import Cluster, Device
from pipeline.executor import core_kinds

A55, A76 = 0x412FD050, 0x414FD0B0
"""Main identification registers of an RK3588's cores."""


def tree(root: Path, registers: dict[int, int]) -> Path:
    for core, register in registers.items():
        file = root / f"cpu/cpu{core}/regs/identification/midr_el1"
        file.parent.mkdir(parents=True)
        file.write_text(f"{register:#018x}\n")
    return root


def test_linux_names_the_cores(tmp_path: Path) -> None:
    root = tree(tmp_path, {0: A55, 1: A55, 4: A76, 5: 0x61000230})
    assert core_kinds.processor((0, 1), root=root) == "cortex-a55"
    assert core_kinds.processor((4,), root=root) == "cortex-a76"
    assert not core_kinds.processor((1, 4), root=root), "they are unlike"
    assert not core_kinds.processor((5,), root=root), "another maker's part"
    assert not core_kinds.processor((), root=root)


def test_a_board_names_them_where_linux_does_not(tmp_path: Path) -> None:
    clusters = (Cluster("big", (4, 5)), Cluster("little", (0, 1), target={"mcpu": "cortex-a55"}))
    device = Device("cpu", clusters=clusters)
    assert core_kinds.processor((0, 1), device, tmp_path) == "cortex-a55"
    assert not core_kinds.processor((4, 5), device, tmp_path)
    root = tree(tmp_path, {0: A76, 1: A76})
    assert core_kinds.processor((0, 1), device, root) == "cortex-a76", "it is there, and the board's file may be wrong"


def test_clusters_of_this_machine_get_their_processors(tmp_path: Path) -> None:
    root = tree(tmp_path, {0: A55, 1: A55, 2: A76})
    big, little, other = core_kinds.with_targets(
        (Cluster("big", (2,)), Cluster("little", (0, 1)), Cluster("x", (7,))), root
    )
    assert (big.target, little.target, other.target) == ({"mcpu": "cortex-a76"}, {"mcpu": "cortex-a55"}, None)
