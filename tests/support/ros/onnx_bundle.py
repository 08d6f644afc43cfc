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


def save_peak(path: Path, samples: int) -> None:
    """Build and save a model of sound: the highest of its samples of 16 bits."""
    nodes = [
        helper.make_node("Cast", ["sound"], ["real"], "real", to=TensorProto.FLOAT),
        helper.make_node("ReduceMax", ["real"], ["peak"], "peak", keepdims=1),
    ]
    tensors = [
        helper.make_tensor_value_info("sound", TensorProto.INT16, (samples,)),
        helper.make_tensor_value_info("peak", TensorProto.FLOAT, (1,)),
    ]
    _save(path, helper.make_graph(nodes, "peak", tensors[:1], tensors[1:]))


def save_segmenter(path: Path) -> None:
    """Build and save a model for `yolov8-seg` of 32x32: its one box is from 8 to 24, of its mask the upper half."""
    boxes, prototypes = np.zeros((1, 7, 21), np.float32), np.full((1, 2, 8, 8), -1, np.float32)
    boxes[0, :, 3], prototypes[0, 0, :4] = [16, 16, 16, 16, 0.75, 1, 0], 1
    arrays = {"boxes": boxes, "prototypes": prototypes}
    nodes = [
        helper.make_node("Cast", ["picture"], ["real"], "real", to=TensorProto.FLOAT),
        # Of no picture at all, so that the outputs depend on the input.
        helper.make_node("ReduceMin", ["real"], ["least"], "least", keepdims=0),
        helper.make_node("Mul", ["least", "zero"], ["nothing"], "nothing"),
        *(helper.make_node("Add", ["nothing", f"{name} alone"], [name], name) for name in arrays),
    ]
    constants = {"zero": np.float32(0), **{f"{name} alone": array for name, array in arrays.items()}}
    graph = helper.make_graph(
        nodes,
        "segmenter",
        [helper.make_tensor_value_info("picture", TensorProto.UINT8, (32, 32, 3))],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in arrays.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    _save(path, graph)


def _save(path: Path, graph: onnx.GraphProto) -> None:
    model = path.with_suffix(".onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    read = pipeline.read(model)
    pipeline.build(read, pipeline.plan(read, stages=1), check=False).save(path)


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
