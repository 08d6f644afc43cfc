"""The largest of whole numbers that TVM's sorts do not take."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import pipeline
from tests.support.onnx_models import in_stages


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "uint64"])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.one_in(2)
def test_top_of_all_integers(dtype: str, largest: int) -> None:
    """Models were built, and each of their frames failed."""
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    describe = onnx.helper.make_tensor_value_info
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("TopK", ["x", "k"], ["v", "i"], largest=largest)],
        "top",
        [describe("x", kind, [2, 6])],
        [describe("v", kind, [2, 3]), describe("i", onnx.TensorProto.INT64, [2, 3])],
        [onnx.helper.make_tensor("k", onnx.TensorProto.INT64, [1], [3])],
    )
    opset = onnx.helper.make_opsetid("", 24)
    graph = pipeline.read(onnx.helper.make_model(body, opset_imports=[opset], ir_version=10))
    limits = np.iinfo(dtype)
    row = [limits.max, limits.min, 1, limits.max // 2 + 1, 0, limits.max - 1]
    values = np.array([row, row[::-1]], dtype)
    outputs = in_stages(graph, [], {"x": values})
    order = np.argsort(values, axis=1, kind="stable")
    order = order[:, ::-1][:, :3] if largest else order[:, :3]
    expected = np.take_along_axis(values, order, 1)
    np.testing.assert_array_equal(outputs["v"], expected)
    np.testing.assert_array_equal(np.take_along_axis(values, outputs["i"], 1), expected)
