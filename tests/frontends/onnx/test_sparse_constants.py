"""Constants that are stored without their zeros are read like others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx_models import check_outputs

VALUES = np.array([0.5, -2, 3], np.float32)
POSITIONS = {"counted": np.array([1, 5, 6]), "by axis": np.array([[0, 1], [1, 2], [1, 3]])}


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("is_node", [False, True])
def test_a_sparse_constant(tmp_path: Path, positions: str, *, is_node: bool) -> None:
    indices = numpy_helper.from_array(POSITIONS[positions], "positions")
    sparse = helper.make_sparse_tensor(numpy_helper.from_array(VALUES, "k"), indices, [2, 4])
    nodes = [helper.make_node("Mul", ["x", "k"], ["scaled"]), helper.make_node("Add", ["scaled", "k"], ["y"])]
    if is_node:
        nodes.insert(0, helper.make_node("Constant", [], ["k"], sparse_value=sparse))
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 4])] for name in "xy"]
    graph = helper.make_graph(nodes, "m", *ends, sparse_initializer=[] if is_node else [sparse])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    check_outputs(tmp_path / "m.onnx")
