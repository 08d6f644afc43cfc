"""Calls that one operator of the model was taken apart into are one operator of the graph."""

from __future__ import annotations

import random

import pytest

from pipeline.split.model_operators import Operator, group_by_model


def call(name: str, reads: str, kind: str = "add", flops: int = 1) -> Operator:
    return Operator(name, kind, tuple(reads.split()), (name,), flops, parameter_bytes=2)


def merge(calls: list[Operator], leaving: str, inner: str) -> list[tuple[str, str, tuple[str, ...], int]]:
    operators = group_by_model(calls, set(leaving.split()), frozenset(inner.split()))
    return [(operator.name, operator.kind, operator.inputs, operator.group) for operator in operators]


def test_parts_join_the_operator_that_alone_reads_them() -> None:
    calls = [
        call("y:wide", "x", "astype"),
        call("y:sums", "y:wide", "conv2d"),
        call("y", "y:sums", "requantize"),
        call("z", "y x", "add"),
    ]
    (first, second) = group_by_model(calls, {"z"}, frozenset({"y:wide", "y:sums"}))
    assert (first.name, first.kind, first.inputs, first.outputs) == ("y", "conv2d", ("x",), ("y",))
    assert (first.flops, first.parameter_bytes) == (3, 6)
    assert (second.name, second.inputs) == ("z", ("y", "x"))


def test_a_part_that_two_operators_read_is_one_itself() -> None:
    calls = [call("a:shared", "x", "exp"), call("a", "a:shared"), call("b", "a:shared")]
    assert [name for name, *_ in merge(calls, "a b", "a:shared")] == ["a:shared", "a", "b"]


def test_an_operator_with_two_operands_says_more_than_one_that_changes_a_tensor() -> None:
    calls = [call("y:a", "x", "astype"), call("y:sum", "y:a z", "add"), call("y", "y:sum", "clip")]
    assert merge(calls, "y", "y:a y:sum") == [("y", "add", ("x", "z"), 0)]


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_stay_in_order(seed: int) -> None:
    """Each operator reads what others before it make, and groups are contiguous and in order."""
    generator = random.Random(seed)
    kinds = ("add", "conv2d", "softmax", "sum", "reshape", "astype", "unknown")
    calls = [call("x0", "x", "relu")]
    for number in range(1, generator.randint(2, 30)):
        names = {f"x{generator.randint(max(0, number - 4), number - 1)}" for _ in range(generator.randint(1, 2))}
        calls.append(call(f"x{number}", " ".join(sorted(names)), generator.choice(kinds)))
    read = {name for each in calls for name in each.inputs}
    leaving = {each.name for each in calls if each.name not in read}
    inner = frozenset(each.name for each in calls if each.name not in leaving and generator.random() < 0.5)
    operators = group_by_model(calls, leaving, inner)
    made = {"x"}
    for operator in operators:
        assert made.issuperset(operator.inputs)
        made.update(operator.outputs)
    assert leaving <= made
    assert sum(operator.flops for operator in operators) == len(calls)
    groups = [operator.group for operator in operators]
    assert groups == sorted(groups)
    assert set(groups) == set(range(len(set(groups))))
