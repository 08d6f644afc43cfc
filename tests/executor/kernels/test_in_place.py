"""Sums that overwrite an operand: only what nobody reads any more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import pipeline
from tests.support.onnx_models import assert_close, by_onnxruntime, frame, in_stages, node, save, weights

CONSTANTS = {name: weights(8, 8, 3, 3, seed=seed) / 9 for seed, name in enumerate("uvw")}


def conv(source: str, kernel: str, target: str) -> Any:
    return node("Conv", f"{source} {kernel}", target, target, pads=[1, 1, 1, 1])


@pytest.mark.parametrize(
    ("nodes", "outputs"),
    [
        # The sum may take the place of a.
        ([conv("x", "u", "a"), conv("a", "v", "b"), node("Add", "b a", "y")], ["y"]),
        # The convolution reads what the sum would overwrite, around each element.
        ([conv("x", "u", "a"), conv("a", "v", "b"), node("Add", "a b", "c"), conv("c", "w", "y")], ["y"]),
        # A later convolution, a later sum or the caller still reads a.
        ([conv("x", "u", "a"), conv("a", "v", "b"), node("Add", "b a", "c"), conv("a", "w", "y")], ["c", "y"]),
        (
            [
                *(conv("x", "u", "a"), conv("x", "v", "b"), conv("b", "w", "c")),
                *(node("Add", "c a", "d"), conv("d", "v", "e"), node("Add", "e a", "y")),
            ],
            ["y"],
        ),
        ([conv("x", "u", "a"), conv("x", "v", "b"), node("Add", "b a", "y")], ["a", "y"]),
        # The stage's own input belongs to the caller.
        ([conv("x", "u", "b"), node("Add", "b x", "y")], ["y"]),
        # Twice the same.
        ([conv("x", "u", "a"), conv("x", "v", "b"), node("Add", "b a", "c"), node("Add", "c a", "y")], ["y"]),
    ],
    ids=["dead", "next", "convolution", "sum", "output", "input", "twice"],
)
def test_no_operand_is_lost(tmp_path: Path, nodes: Sequence[Any], outputs: Sequence[str]) -> None:
    used = {name: values for name, values in CONSTANTS.items() if any(name in each.input for each in nodes)}
    path = save(tmp_path / "m.onnx", nodes, {"x": (1, 8, 12, 12)}, outputs, used)
    graph = pipeline.read(path)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))
