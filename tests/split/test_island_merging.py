"""Islands that a stage has side by side become one, and compute what they computed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import pipeline
from pipeline.comparison.random_frame import random_frame
from pipeline.core import packed_model
from pipeline.frontends.grouping import Links, find_neighbours
from pipeline.model.passes import bindings
from pipeline.split import extract
from pipeline.split.cuts import legal_cuts
from tests.support.onnx_models import assert_close, by_onnxruntime, in_stages, node


@pytest.mark.parametrize(
    ("nodes", "members", "groups"),
    [
        ("a>b b>c c>d", {0, 1, 2}, [[0, 1, 2]]),
        # One outside, on the way between two members.
        ("a>b b>c c>d", {0, 2}, [[0], [2]]),
        # Also where the two are neighbours as well: they would wait for it, and it for them.
        ("a>b b>c bc>d", {0, 2}, [[0], [2]]),
        # Beside them, what is outside can come before or behind them.
        ("a>b a>c bc>d", {0, 2}, [[0, 2]]),
        ("a>b a>c b>d", {0, 2}, [[0, 2]]),
        # Two pairs of which each waits for something outside that the other makes possible.
        ("a>b c>d b>e d>f bf>g de>h", {0, 1, 4, 5}, [[0], [1], [4], [5]]),
        ("", set(), []),
    ],
)
def test_neighbours(nodes: str, members: set[int], groups: list[list[int]]) -> None:
    links = [Links(*(tuple(names) for names in text.split(">"))) for text in nodes.split()]
    assert find_neighbours(links, members) == groups


def _vectorizer(inputs: str, output: str) -> Any:
    """Return an operator that only ONNX Runtime computes: it puts rows side by side."""
    sizes = [EXTENTS[name] for name in inputs.split()]
    return node("FeatureVectorizer", inputs, output, output, domain="ai.onnx.ml", inputdimensions=sizes)


EXTENTS = {"x": 8, "a": 8, "b": 16, "c": 24, "d": 16, "e": 40, "f": 56, "y": 96}
"""Of the rows of each tensor."""

BRANCHES = [
    node("Relu", "x", "a", "a"),
    _vectorizer("a a", "b"),
    _vectorizer("b a", "c"),
    node("Sigmoid", "b", "d", "d"),
    _vectorizer("c b", "e"),
    _vectorizer("e d", "f"),
    node("Concat", "e f", "y", "y", axis=1),
]


@pytest.fixture
def branches(tmp_path: Path) -> Path:
    def tensor(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, (4, EXTENTS[name]))

    # Nothing infers the shapes of these operators' results.
    inner_tensors = [tensor(name) for name in "abdef"]
    graph = helper.make_graph(BRANCHES, "branches", [tensor("x")], [tensor("y"), tensor("c")], value_info=inner_tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "branches.onnx")
    return tmp_path / "branches.onnx"


def test_islands_of_onnx_are_merged(branches: Path) -> None:
    graph = pipeline.read(branches)
    assert [len(island.operators) for island in graph.islands] == [1, 1, 1, 1]
    (part,) = extract.parts(graph, [])
    # The last one waits for a sigmoid, which waits for the first.
    assert _island_results(extract.module(part)) == [3, 1]
    frame = random_frame(graph.inputs, 0)
    assert_close(in_stages(graph, [], frame), by_onnxruntime(branches, frame))


def test_islands_are_cut(branches: Path) -> None:
    graph = pipeline.read(branches)
    frame = random_frame(graph.inputs, 0)
    cuts = legal_cuts(graph)
    assert {"b", "c", "e"} <= {cut.after for cut in cuts}
    for cut in cuts:
        assert_close(in_stages(graph, [cut.position], frame), by_onnxruntime(branches, frame))


def _island_results(module: Any) -> list[int]:
    """Return the number of results of each island in a stage's module."""
    lines = [line for block in module["main"].body.blocks for line in block.bindings]
    calls = [line.value for line in lines if packed_model.function_kind(bindings.island(line.value))]
    return [len(getattr(call.ty, "fields", [call])) for call in calls]
