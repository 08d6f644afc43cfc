"""Sessions of ONNX Runtime for the parts of a stage that it computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from pipeline.executor import onnx_sessions

VALUE = helper.make_tensor_value_info


def test_a_model_that_the_optimiser_refuses_is_computed_without_it() -> None:
    """Its constants say that the branch not taken gets too few axes, which Silero's detector of voices has."""
    compute = onnx_sessions.open_model(branches(), 1)
    x, y = np.array([[1, -2, 3, -4]], np.float32), np.zeros((1, 4), np.float32)
    compute([x, np.array(False), y])
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_a_model_that_is_none_is_an_error() -> None:
    with pytest.raises(Exception, match="protobuf"):
        onnx_sessions.open_model(b"no model", 1)


def branches() -> bytes:
    """Return ``Conv(x) if condition else Relu(x)``, whose number of axes is known once constants are folded."""
    bodies = {
        name: helper.make_graph([helper.make_node(kind, operands, [name])], name, [], [VALUE(name, 1, None)])
        for name, kind, operands in (("first", "Conv", ["same", "w"]), ("second", "Relu", ["same"]))
    }
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Cast", ["shape"], ["extents"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["extents"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["number"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["number", "zero"], ["end"]),
        helper.make_node("Slice", ["shape", "zero", "end"], ["same_shape"]),
        helper.make_node("Reshape", ["x", "same_shape"], ["same"]),
        helper.make_node("If", ["condition"], ["y"], then_branch=bodies["first"], else_branch=bodies["second"]),
    ]
    inputs = [VALUE("x", TensorProto.FLOAT, [1, 4]), VALUE("condition", TensorProto.BOOL, [])]
    constants = {"w": np.ones((1, 1, 1), np.float32), "zero": np.array([0])}
    tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "branches", inputs, [VALUE("y", TensorProto.FLOAT, [1, 4])], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())
