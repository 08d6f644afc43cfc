"""Operators that only ONNX Runtime still knows are compiled, as what they consist of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.onnx_models import check_outputs, node

CROPS: list[dict[str, Any]] = [{"border": [1, 2, 0, 3]}, {"border": [1, 2, 0, 0], "scale": [3, 4]}]


@pytest.mark.parametrize("crop", CROPS)
def test_they_are_compiled(tmp_path: Path, crop: dict[str, Any]) -> None:
    """As CoreML's converter writes a network for pictures."""
    nodes = [
        node("ImageScaler", "x", "scaled", "scaler", bias=[-1.0, 0.5, 2.0], scale=0.25),
        node("Relu", "scaled", "r"),
        node("Crop", "r", "c", "crop", **crop),
        node("Affine", "c", "y", "last", alpha=3.0, beta=-0.5),
    ]
    # Its shape is stated: the onnx package does not infer it.
    shapes = {"x": [1, 3, 8, 8], "y": [1, 3, 3, 7 if "scale" not in crop else 4]}
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    graph = helper.make_graph(nodes, "g", [values["x"]], [values["y"]])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 7)], ir_version=8), path)
    assert not check_outputs(path).islands
