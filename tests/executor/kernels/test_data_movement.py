"""Operators that only move elements, between convolutions whose channels are last, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.onnx_models import check_outputs, node, save, weights

CONV = node("Conv", "x w", "c")
AFTER = node("Conv", "d v", "y")
SCALES = np.array([1, 1, 2, 2], np.float32)
PADS = np.array([0, 0, 1, 2, 0, 0, 0, 3])
NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}

Case = tuple[list[Any], dict[str, np.ndarray]]
CASES: dict[str, Case] = {
    "resize to the nearest": ([node("Resize", "c - s", "d", **NEAREST), AFTER], {"s": SCALES}),
    "resize linearly": ([node("Resize", "c - s", "d", mode="linear"), AFTER], {"s": SCALES}),
    "resize to a size": ([node("Resize", "c - - s", "d", mode="linear"), AFTER], {"s": np.array([2, 7, 5, 21])}),
    "pad": ([node("Pad", "c p", "d"), AFTER], {"p": PADS}),
    "pad by reflection": ([node("Pad", "c p", "d", mode="reflect"), AFTER], {"p": PADS}),
    "pad channels": ([node("Pad", "c p", "y")], {"p": np.array([0, 1, 0, 0, 0, 2, 0, 0])}),
    "take channels": ([node("Gather", "c i", "d", axis=1), AFTER], {"i": np.array([6, 0, 3, 3, 1, 2, 5])}),
    "take columns": ([node("Gather", "c i", "d", axis=-1), AFTER], {"i": np.array([6, 0])}),
    "take one row": ([node("Gather", "c i", "y", axis=2)], {"i": np.array(3)}),
    "turn to channels last": ([node("Transpose", "c", "y", perm=[0, 2, 3, 1])], {}),
    "turn otherwise": ([node("Transpose", "c", "y", perm=[2, 0, 1, 3])], {}),
    "turn there and back": (
        [node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Relu", "t", "u"),
         node("Transpose", "u", "d", perm=[0, 3, 1, 2]), AFTER], {},
    ),
    "split channels": (
        [node("Split", "c s", "p q r", axis=1), node("Concat", "r p q", "d", axis=1), AFTER], {"s": np.array([2, 4, 1])}
    ),
    "split columns": ([node("Split", "c", "p q", axis=3, num_outputs=2), node("Add", "q p", "d"), AFTER], {}),
    "head": (
        [node("Transpose", "c", "t", perm=[0, 2, 3, 1]), node("Reshape", "t r", "y")], {"r": np.array([2, -1, 7])}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_result_is_that_of_onnxruntime(case: str, tmp_path: Path) -> None:
    nodes, constants = CASES[case]
    values = {"w": weights(7, 6, 3, 3), "v": weights(5, 7, 1, 1), **constants}
    check_outputs(save(tmp_path / "model.onnx", [CONV, *nodes], {"x": (2, 6, 9, 10)}, ["y"], values, opset=18))


def test_input_with_channels_last(tmp_path: Path) -> None:
    nodes = [node("Transpose", "x", "t", perm=[0, 3, 1, 2]), node("Conv", "t w", "y")]
    check_outputs(save(tmp_path / "model.onnx", nodes, {"x": (2, 9, 10, 6)}, ["y"], {"w": weights(7, 6, 3, 3)}))
