"""Clusters, caches and threads of cores, from trees like those of Linux."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.core.board.board import Cluster
from pipeline.executor import topology


def tree(root: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")
    return root


def test_big_and_little_by_capacity(tmp_path: Path) -> None:
    capacity = dict(enumerate([414, 414, 414, 414, 1024, 1024, 1024, 1024]))
    root = tree(tmp_path, {f"cpu/cpu{core}/cpu_capacity": value for core, value in capacity.items()})
    big_cluster, little_cluster = Cluster("big", (4, 5, 6, 7)), Cluster("little", (0, 1, 2, 3), 0.404)
    assert topology.clusters(range(8), root) == (big_cluster, little_cluster)
    assert topology.clusters((0, 5), root) == (Cluster("big", (5,)), Cluster("little", (0,), 0.404))
    assert topology.clusters((4, 5, 6), root) == ()


def test_clusters_by_clock_where_capacities_are_alike(tmp_path: Path) -> None:
    clock = [5_100_000, 5_200_000, 3_900_000, 3_900_000]
    files: dict[str, object] = {f"cpu/cpu{core}/cpu_capacity": 1024 for core in range(4)}
    files |= {f"cpu/cpu{core}/cpufreq/cpuinfo_max_freq": value for core, value in enumerate(clock)}
    cluster_list = topology.clusters(range(4), tree(tmp_path, files))
    assert cluster_list == (Cluster("big", (0, 1)), Cluster("little", (2, 3), 0.75))


@pytest.mark.parametrize("kinds", [3, 4])
def test_more_than_two_clusters(tmp_path: Path, kinds: int) -> None:
    root = tree(tmp_path, {f"cpu/cpu{core}/cpu_capacity": 1000 >> core for core in range(kinds)})
    names = [each.name for each in topology.clusters(range(kinds), root)]
    assert names == (["big", "middle", "little"] if kinds == 3 else [f"cluster{number}" for number in range(4)])


def test_a_core_that_tells_nothing_makes_all_alike(tmp_path: Path) -> None:
    root = tree(tmp_path, {"cpu/cpu0/cpu_capacity": 1024, "cpu/cpu1/cpu_capacity": 400, "cpu/cpu2/cpu_capacity": "x"})
    assert topology.clusters(range(3), root) == ()


def test_caches_threads_and_nodes(tmp_path: Path) -> None:
    files: dict[str, object] = {}
    for core in range(2):
        for index, (level, kind, size, siblings_list) in enumerate(
            [(1, "Data", "48K", core), (1, "Instruction", "32K", core), (2, "Unified", "2M", "0-1")]
        ):
            folder = f"cpu/cpu{core}/cache/index{index}"
            files |= {f"{folder}/level": level, f"{folder}/type": kind}
            files |= {f"{folder}/size": size, f"{folder}/shared_cpu_list": siblings_list}
        files[f"cpu/cpu{core}/topology/thread_siblings_list"] = "0-1"
    files |= {"node/node0/cpulist": "0", "node/node1/cpulist": "1,3-4"}
    root = tree(tmp_path, files)
    assert topology.caches((0, 1), root) == (
        topology.Cache(1, 48 << 10, (0,)),
        topology.Cache(1, 48 << 10, (1,)),
        topology.Cache(2, 2 << 20, (0, 1)),
    )
    assert topology.siblings((0, 1), root) == ((0, 1),)
    assert topology.nodes(root) == {0: (0,), 1: (1, 3, 4)}


def test_where_nothing_is_told_there_is_nothing(tmp_path: Path) -> None:
    assert topology.clusters((0, 1), tmp_path) == ()
    assert topology.caches((0, 1), tmp_path) == ()
    assert topology.siblings((0, 1), tmp_path) == ()
    assert topology.nodes(tmp_path) == {}
