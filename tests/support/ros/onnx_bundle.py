"""A model in two stages whose results are known: the picture inverted, and rows of detections from its first bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import pipeline


def save(path: Path, height: int, width: int) -> None:
    """Build and save it for pictures of that size."""
    model = path.with_suffix(".onnx")
    onnx.save(_model(height, width), model)
    graph = pipeline.read(model)
    pipeline.build(graph, pipeline.plan(graph, cuts=["real"]), check=False).save(path)


def inverted(picture: np.ndarray) -> np.ndarray:
    """Return what the output ``image`` is."""
    return 255 - picture


def rows(picture: np.ndarray) -> np.ndarray:
    """Return what the output ``rows`` is: [2, 6], the last of a row below 1 and its score among the five before."""
    detections: np.ndarray = picture[0, :4, :].reshape(2, 6).astype(np.float32)
    return detections


def _model(height: int, width: int) -> onnx.ModelProto:
    shape = (height, width, 3)
    constants = {
        "white": np.float32(255),
        "shape": np.array([2, 6], np.int64),
        "begin": np.array([0, 0, 0], np.int64),
        "end": np.array([1, 4, 3], np.int64),
    }
    nodes = [
        helper.make_node("Cast", ["picture"], ["real"], "real", to=TensorProto.FLOAT),
        helper.make_node("Sub", ["white", "real"], ["negative"], "negative"),
        helper.make_node("Cast", ["negative"], ["image"], "image", to=TensorProto.UINT8),
        helper.make_node("Slice", ["real", "begin", "end"], ["corner"], "corner"),
        helper.make_node("Reshape", ["corner", "shape"], ["rows"], "rows"),
    ]
    graph = helper.make_graph(
        nodes,
        "inverter",
        [helper.make_tensor_value_info("picture", TensorProto.UINT8, shape)],
        [
            helper.make_tensor_value_info("image", TensorProto.UINT8, shape),
            helper.make_tensor_value_info("rows", TensorProto.FLOAT, (2, 6)),
        ],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
