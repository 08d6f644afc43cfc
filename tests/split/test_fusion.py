"""No cut separates what the compiler fuses: checked against TVM itself, and against the definitions."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import pipeline
from pipeline.split.cuts import legal_cuts
from pipeline.split.fusion import LARGEST_GROUP, fuse, post_dominators
from pipeline.split.graph import Graph
from tests.support.kernels import by_tvm
from tests.support.onnx_models import LIGHT, node, save, weights
from tests.support.random_models import random_model
from tests.support.random_seeds import seeds

KINDS = ("conv2d", "relu", "add", "multiply", "concat", "reshape", "sum", "softmax", "squeeze", "topk")


def assert_never_separated(graph: Graph) -> None:
    """Check that every kernel of TVM lies between two neighbouring legal cuts."""
    kernels = by_tvm(graph)
    position = {operator.name: index for index, operator in enumerate(graph.operators)}
    assert set().union(*kernels) == set(position), "each operator is in a kernel"
    cuts = [cut.position for cut in legal_cuts(graph)]
    for kernel in kernels:
        positions = [position[name] for name in kernel]
        separating = [cut for cut in cuts if min(positions) < cut <= max(positions)]
        assert not separating, (kernel, separating)


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
@pytest.mark.one_in(3)
def test_cuts_of_the_light_models_separate_no_kernel(path: Path) -> None:
    graph = pipeline.read(path)
    assert_never_separated(graph)
    kinds = {operator.name: operator.kind for operator in graph.operators}
    # These models make their largest parameters by operators, which belong to who reads them.
    kernels = [
        kernel
        for kernel in by_tvm(graph)
        if not {kinds.get(name) for name in kernel} <= {"broadcast_to", "permute_dims"}
    ]
    assert len(graph.group_ends) >= 0.9 * len(joined(kernels)), "and there are about as many as could be"


def joined(kernels: Sequence[set[str]]) -> list[set[str]]:
    """Return kernels of which no two have parts of one operator, which no cut separates."""
    result: list[set[str]] = []
    for kernel in kernels:
        related = [other for other in result if other & kernel]
        result = [other for other in result if not other & kernel] + [kernel.union(*related)]
    return result


@pytest.mark.parametrize("block", range(6))
@pytest.mark.one_in(3)
def test_cuts_of_random_models_separate_no_kernel(tmp_path: Path, block: int) -> None:
    for seed in range(10 * block, 10 * block + 10):
        assert_never_separated(pipeline.read(random_model(tmp_path / "m.onnx", seed, steps=15 + 5 * (seed % 4))))


CHANNELS = {"w": weights(4, 4, 3, 3), "w2": weights(4, 4, 3, 3, seed=2), "b": weights(4), "k": weights(1, 4, 1, 1)}


@pytest.mark.parametrize(
    ("nodes", "groups"),
    [
        pytest.param(
            [node("Conv", "x w b", "c", pads=[1] * 4), node("Sigmoid", "c", "s"), node("Mul", "c s", "y")],
            [["conv2d", "add", "sigmoid", "multiply"]],
            id="swish",
        ),
        pytest.param(
            [
                node("Conv", "x w b", "c", pads=[1] * 4),
                node("Relu", "c", "r"),
                node("Conv", "r w2", "d", pads=[1] * 4),
                node("Add", "d x", "e"),
                node("Relu", "e", "y"),
            ],
            [["conv2d", "add", "relu"], ["conv2d", "add", "relu"]],
            id="residual",
        ),
        pytest.param(
            [
                node("Conv", "x w", "c", pads=[1] * 4),
                node("Conv", "x w2", "d", pads=[1] * 4),
                node("Concat", "c d", "e", axis=1),
                node("Relu", "e", "y"),
            ],
            [["conv2d"], ["conv2d"], ["concat", "relu"]],
            id="concat",
        ),
        pytest.param(
            [node("Relu", "x", "r"), node("MaxPool", "r", "p", kernel_shape=[2, 2]), node("Relu", "p", "y")],
            [["relu"], ["max_pool2d", "relu"]],
            id="pool",
        ),
        pytest.param(
            [node("Conv", "x w", "c", pads=[1] * 4), node("Softmax", "c", "s", axis=1), node("Add", "c s", "y")],
            [["conv2d"], ["softmax", "add"]],
            id="an anchor on one of two ways",
        ),
        pytest.param(
            [node("Relu", "x", "r"), node("ReduceSum", "r axes", "s", keepdims=0), node("Neg", "s", "y")],
            [["relu", "sum"], ["negative"]],
            id="reduction",
        ),
    ],
)
def test_groups_of_known_patterns(tmp_path: Path, nodes: list[object], groups: list[list[str]]) -> None:
    import numpy as np

    constants = CHANNELS | {"axes": np.array([1])}
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], constants))
    group_kinds: list[list[str]] = [[] for _ in graph.group_ends]
    for operator in graph.operators:
        group_kinds[operator.group] += [call.kind for call in operator.calls]
    assert group_kinds == groups
    assert_never_separated(graph)


def test_a_residual_block_with_projection_is_never_separated_from_its_addition(tmp_path: Path) -> None:
    nodes = [
        node("Conv", "x w", "front", pads=[1] * 4),
        node("Conv", "x w2", "side", pads=[1] * 4),
        node("Add", "front side", "sum"),
        node("Relu", "sum", "y"),
    ]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], CHANNELS))
    assert_never_separated(graph)
    assert graph.operators[-1].kind == "relu"
    assert {each.group for each in graph.operators if each.kind in ("add", "relu")} == {graph.operators[-1].group}


def test_an_output_inside_a_chain_ends_its_group(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w", "c", pads=[1] * 4), node("Relu", "c", "y")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y", "c"], CHANNELS))
    assert [operator.group for operator in graph.operators] == [0, 1]
    assert_never_separated(graph)


def test_a_long_elementwise_chain_is_cut_where_tvm_stops(tmp_path: Path) -> None:
    count = 2 * LARGEST_GROUP + 90
    nodes = [node("Tanh", f"t{number}", f"t{number + 1}") for number in range(count)]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"t0": (4,)}, [f"t{count}"]))
    assert graph.group_ends == (LARGEST_GROUP, 2 * LARGEST_GROUP, count)
    assert_never_separated(graph)


def test_a_wide_diamond_larger_than_a_group_stays_legal() -> None:
    """One operator read by 300 others that meet again: too many for one kernel, so they stay apart."""
    width = LARGEST_GROUP + 44
    consumers = [list(range(1, width + 1)), *([width + 1] for _ in range(width)), []]
    ends = fuse(["relu"] * (width + 1) + ["concat"], consumers, [False] * (width + 1) + [True])
    assert len(set(ends)) > 1
    assert_convex_and_ordered(consumers, ends)


# The definitions, by brute force on random graphs.


def random_dag(seed: int) -> tuple[list[str], list[list[int]], list[bool]]:
    generator = random.Random(seed)
    count = generator.randint(1, 14)
    consumers = [
        sorted(
            {target for _ in range(generator.randint(0, 3)) for target in [generator.randint(source, count - 1)]}
            - {source}
        )
        for source in range(count)
    ]
    escapes = [not readers or generator.random() < 0.1 for readers in consumers]
    return [generator.choice(KINDS) for _ in range(count)], consumers, escapes


def exits_without(consumers: list[list[int]], escapes: list[bool], start: int, avoided: int) -> bool:
    """Tell whether some way from `start` leaves the graph without passing through `avoided`."""
    pending, visited = [start], set()
    while pending:
        operator = pending.pop()
        if operator == avoided or operator in visited:
            continue
        visited.add(operator)
        if escapes[operator]:
            return True
        pending.extend(consumers[operator])
    return False


def reachable(consumers: list[list[int]], start: int) -> set[int]:
    operators: set[int] = set()
    pending = [start]
    while pending:
        for operator in consumers[pending.pop()]:
            if operator not in operators:
                operators.add(operator)
                pending.append(operator)
    return operators


def assert_convex_and_ordered(consumers: list[list[int]], ends: list[int]) -> None:
    followers = [reachable(consumers, operator) for operator in range(len(consumers))]
    for first in range(len(consumers)):
        assert ends[first] >= first
        assert ends[ends[first]] == ends[first]
        for middle in followers[first]:
            assert ends[middle] >= ends[first], "ordering groups by their last operator is topological"
            for last in followers[middle]:
                if ends[first] == ends[last]:
                    assert ends[middle] == ends[first], "no way leaves a group and comes back"


@pytest.mark.parametrize("seed", seeds(50, 200))
def test_post_dominators_equal_their_definition(seed: int) -> None:
    _, consumers, escapes = random_dag(seed)
    for operator, dominator in enumerate(post_dominators(consumers, escapes)):
        all_of_them = [
            candidate
            for candidate in reachable(consumers, operator)
            if not exits_without(consumers, escapes, operator, candidate)
        ]
        assert dominator == min(all_of_them, default=None)


@pytest.mark.parametrize("seed", seeds(50, 200))
def test_groups_are_convex_and_in_topological_order(seed: int) -> None:
    kinds, consumers, escapes = random_dag(seed)
    assert_convex_and_ordered(consumers, fuse(kinds, consumers, escapes))


@pytest.mark.parametrize("seed", seeds(50, 200))
def test_groups_with_operators_taken_apart_are_convex_too(seed: int) -> None:
    kinds, consumers, escapes = random_dag(seed)
    generator = random.Random(seed)
    parts = [
        bool(readers) and not out and generator.random() < 0.5 for readers, out in zip(consumers, escapes, strict=True)
    ]
    ends = fuse(kinds, consumers, escapes, parts)
    assert_convex_and_ordered(consumers, ends)
    # Whatever is read by one operator only has its group.
    for operator, (part, readers) in enumerate(zip(parts, consumers, strict=True)):
        if part and len(readers) == 1:
            assert ends[operator] == ends[readers[0]]


def test_what_one_operator_of_the_model_becomes_stays_together(tmp_path: Path) -> None:
    nodes = [node("Relu", "x", "a"), node("LRN", "a", "b", size=3), node("Softmax", "b", "y")]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (1, 8, 5, 5)}, ["y"]))
    ends = [graph.operators[end - 1].name for end in graph.group_ends]
    assert [len(operator.calls) > 1 for operator in graph.operators] == [False, True, False]
    assert ends == ["a", "b", "y"]


@pytest.mark.parametrize(
    ("kinds", "parts", "groups"),
    [
        # A convolution of bytes, and another one that widens what it reads.
        (["conv2d", "add", "astype", "astype", "subtract", "conv2d", "astype"], "110 1110", [2, 2, 2, 6, 6, 6, 6]),
        (["conv2d", "astype", "astype", "pad", "conv2d", "astype"], "10 1110", [1, 1, 5, 5, 5, 5]),
        # A sum of bytes computes element by element, and is fused with what makes them.
        (["conv2d", "astype", "astype", "add", "astype"], "10 110", [4, 4, 4, 4, 4]),
    ],
)
def test_operators_of_bytes_that_sum_begin_a_group(kinds: list[str], parts: str, groups: list[int]) -> None:
    consumers = [[position + 1] for position in range(len(kinds) - 1)] + [[]]
    are_parts = [digit == "1" for digit in parts.replace(" ", "")]
    assert fuse(kinds, consumers, [False] * (len(kinds) - 1) + [True], are_parts) == groups
