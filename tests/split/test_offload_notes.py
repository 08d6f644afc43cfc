"""Notes on what accelerators leave to other devices: operators of one reason together."""

from __future__ import annotations

from pathlib import Path

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.split import offload
from pipeline.split.planning.problem.group_work import groups
from tests.support.onnx_models import node, save


def test_reasons_are_grouped(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(7)]
    nodes = [
        node("Softmax", source, target)
        for source, target in zip(["x", *names], [*names, "y"][: len(names)], strict=False)
    ]
    graph = pipeline.read(save(tmp_path / "model.onnx", nodes, {"x": (1, 4, 8, 8)}, [names[-1]]))
    own_groups = groups(graph)
    operators = [group[-1].name for group in own_groups]
    refusals = {number: f"the zero point {number} of {operators[number]!r} is odd" for number in range(5)}
    refusals[5] = "it has a softmax"
    (note,) = offload.notes(graph, own_groups, Board("b", (Device("npu", "null"),)), {"npu": refusals})
    first = f"5 operators: such as the zero point 0 of {operators[0]!r} is odd"
    listed = ", ".join(map(repr, operators[:3]))
    assert note == (
        f"npu cannot run 6 of {len(own_groups)} groups, and leaves to other devices: {first} ({listed}, 2 more); "
        f"1 operator: it has a softmax ({operators[5]!r})."
    )
