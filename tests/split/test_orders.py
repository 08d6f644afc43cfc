"""Downsets and topological orders of a graph's fused groups, against those found by trying everything."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from pipeline.split.cuts import crossing_bytes, crossing_counts
from pipeline.split.orders import GroupDag, reorder
from tests.split.planning.orders.test_division import all_downsets, crossing, fork_join_graph

SEEDS = range(6)


@pytest.mark.parametrize("seed", SEEDS)
def test_downsets_are_all_of_them(seed: int) -> None:
    graph = fork_join_graph(seed, 12)
    dag = GroupDag.of(graph)
    downsets = dag.downsets(10_000)
    assert downsets is not None
    reference = {sum(1 << int(name[1:]) for name in names) for names in all_downsets(graph)}
    assert set(downsets) == reference
    assert len(downsets) == len(reference)
    assert [each.bit_count() for each in downsets] == sorted(each.bit_count() for each in downsets)
    assert dag.downsets(len(reference)) is not None
    assert dag.downsets(len(reference) - 1) is None


@pytest.mark.parametrize("seed", SEEDS)
def test_crossing_bytes_are_those_of_the_cuts(seed: int) -> None:
    graph = fork_join_graph(seed, 12)
    dag = GroupDag.of(graph)
    downsets = dag.downsets(10_000) or []
    nbytes, _ = dag.crossing(dag.membership(downsets))
    for names in all_downsets(graph):
        assert nbytes[downsets.index(sum(1 << int(name[1:]) for name in names))] == crossing(graph, names)[0]
    own, counts = dag.crossing(dag.membership(dag.prefixes(range(len(dag)))))
    assert own[1:-1].tolist() == crossing_bytes(graph)
    assert counts[1:-1].tolist() == crossing_counts(graph)


@pytest.mark.parametrize("seed", SEEDS)
def test_orders_are_topological(seed: int) -> None:
    graph = fork_join_graph(seed)
    dag, generator = GroupDag.of(graph), np.random.default_rng(seed)
    keys = generator.random(len(dag)).tolist()
    for order in (dag.order_by(keys), dag.order_by(keys, backwards=True), dag.depth_first(keys)):
        assert sorted(order) == list(range(len(dag)))
        arranged = reorder(graph, order)
        made = {"x"}
        for operator in arranged.operators:
            assert made.issuperset(operator.inputs)
            made.update(operator.outputs)
        assert [operator.group for operator in arranged.operators] == list(range(len(dag)))
        assert (arranged.digest, arranged.tensors) == (graph.digest, graph.tensors)
        # Back again, it is the graph that it was.
        back = np.argsort(order).tolist()
        assert reorder(arranged, back).operators == graph.operators


def test_depth_first_ends_a_branch_before_the_next() -> None:
    # 0 forks into 1-3-5 and 2-4-6, which are listed in turn and joined by 7.
    dag = GroupDag(
        ((), (0,), (0,), (1,), (2,), (3,), (4,), (5, 6)), ((1, 2), (3,), (4,), (5,), (6,), (7,), (7,), ()), ()
    )
    assert dag.depth_first([0.0] * 8) in ([0, 1, 3, 5, 2, 4, 6, 7], [0, 2, 4, 6, 1, 3, 5, 7])
    assert dag.depth_first([0, 1, 0, 0, 0, 0, 0, 0]) == [0, 2, 4, 6, 1, 3, 5, 7]
    assert not dag.is_chain
    assert GroupDag(((), (0,), (0, 1)), ((1, 2), (2,), ()), ()).is_chain


@pytest.mark.parametrize("seed", SEEDS)
def test_around_a_downset_are_its_neighbours_first(seed: int) -> None:
    graph = fork_join_graph(seed, 10)
    dag = GroupDag.of(graph)
    downsets = dag.downsets(10_000) or []
    centre = downsets[len(downsets) // 2]
    neighbours = {each for each in downsets if (each ^ centre).bit_count() == 1}
    found = dag.around([centre], 1 + len(neighbours))
    assert found[0] == centre
    assert neighbours <= set(found) <= set(downsets)
    assert set(dag.around([centre], 10_000)) == set(downsets)


@pytest.mark.parametrize("seed", SEEDS)
def test_coarse_downsets_are_some_of_all(seed: int) -> None:
    dag = GroupDag.of(fork_join_graph(seed))
    downsets = dag.downsets(10_000) or []
    coarse = dag.coarse_downsets(len(downsets) - 1)
    assert (coarse[0], coarse[-1]) == (downsets[0], downsets[-1])
    assert set(coarse) < set(downsets)
    assert dag.coarse_downsets(2) == []


def test_bits_of_many_groups_are_told_apart() -> None:
    count = 70
    dag = GroupDag(((),) * count, ((),) * count, ())
    downsets = [sum(1 << each for each in pair) for pair in combinations(range(0, count, 9), 2)]
    members = dag.membership(downsets)
    assert [[int(group) for group in np.flatnonzero(row)] for row in members] == [
        list(pair) for pair in combinations(range(0, count, 9), 2)
    ]
