"""Stages as models of their source's own format: run one after the other they compute what the model does."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed")

import pipeline
from pipeline.comparison.judgement import Bounds
from pipeline.comparison.random_frame import random_frame
from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import BuildError
from pipeline.export.stage_export import EXTRACTED, WRITTEN, StageExport
from pipeline.frontends.onnx.reference import literal_options, open_session
from pipeline.split.graph import Graph
from pipeline.split.stage_parts import parts
from pipeline.workflow.reference_check import ReferenceCheck
from tests.support.onnx_models import KERNEL, node, save, weights

Arrays = dict[str, np.ndarray]


def stages(graph: Graph, cuts: Sequence[str]) -> list[tuple[StageExport, Sequence[TensorSpec], Sequence[TensorSpec]]]:
    """Return the stages between cuts, with their inputs and outputs in the plan's order."""
    plan = pipeline.plan(graph, cuts=list(cuts), allow_unfused=True)
    exports = [StageExport(graph, part) for part in parts(graph, plan)]
    return [(export, stage.inputs, stage.outputs) for export, stage in zip(exports, plan.stages, strict=True)]


def in_stages(graph: Graph, cuts: Sequence[str], run: Callable[..., Sequence[np.ndarray]]) -> tuple[Arrays, Arrays]:
    """Run a random frame through exported stages; return their outputs, and those of the model in its library."""
    frame = random_frame(graph.inputs, seed=1)
    tensors = dict(frame)
    for export, inputs, outputs in stages(graph, cuts):
        results = run(export, {spec.name: tensors[spec.name] for spec in inputs}, [spec.name for spec in outputs])
        for spec, array in zip(outputs, results, strict=True):
            assert (array.shape, str(array.dtype)) == (spec.shape, spec.dtype)
            tensors[spec.name] = array
    return {spec.name: tensors[spec.name] for spec in graph.outputs}, dict(
        ReferenceCheck(graph, Bounds()).run(frame)[1]
    )


def extracted_onnx(export: StageExport, frame: Mapping[str, np.ndarray], outputs: Sequence[str]) -> Any:
    """Run a stage, which has to be a part of the model, by ONNX Runtime."""
    model, origin = export.onnx_and_origin()
    assert origin == EXTRACTED
    onnx.checker.check_model(model)
    session = open_session(model, literal_options())
    assert [value.name for value in session.get_inputs()] == list(frame)
    assert [value.name for value in session.get_outputs()] == list(outputs)
    return session.run(None, dict(frame))


def check_equal(graph: Graph, cuts: Sequence[str]) -> None:
    actual, expected = in_stages(graph, cuts, extracted_onnx)
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)


@pytest.fixture
def skips(tmp_path: Path) -> Path:
    """Two inputs and two outputs, a norm, and a tensor that crosses two cuts."""
    nodes = [
        node("Conv", "x w", "c", "conv", pads=[1] * 4), node("Relu", "c", "r"),
        node("Conv", "r w", "d", "second", pads=[1] * 4), node("Sigmoid", "d", "s"),
        node("Conv", "s w", "e", "third", pads=[1] * 4), node("Add", "e r", "f"), node("Mul", "f z", "y"),
        node("Tanh", "s", "t"),
    ]  # fmt: skip
    inputs = {"x": (1, 4, 6, 6), "z": (1, 4, 6, 6)}
    return save(tmp_path / "skips.onnx", nodes, inputs, ["y", "t"], KERNEL)


def test_skip_connections_and_several_ends(skips: Path) -> None:
    graph = pipeline.read(skips)
    specs = [([spec.name for spec in inputs], [spec.name for spec in outputs])
             for _, inputs, outputs in stages(graph, ["r", "s"])]  # fmt: skip
    assert specs[1] == (["r"], ["s"])
    assert set(specs[2][0]) == {"s", "r", "z"}
    check_equal(graph, ["r", "s"])


def test_a_model_in_memory(skips: Path) -> None:
    check_equal(pipeline.read(onnx.load(skips)), ["r", "s"])


def test_open_shapes_become_fixed(tmp_path: Path) -> None:
    """Also those that a model computes of the shapes of its inputs."""
    nodes = [
        node("Relu", "x", "r"), node("Shape", "x", "shape"), node("Gather", "shape zero", "batch"),
        node("Identity", "batch", "first"), node("Concat", "first rest", "target", axis=0),
        node("Softmax", "r", "s"), node("Reshape", "s target", "flat"), node("Softmax", "flat", "y"),
    ]  # fmt: skip
    constants = {"zero": np.array([0]), "rest": np.array([-1])}
    path = save(tmp_path / "open.onnx", nodes, {"x": ("N", 3, 4)}, ["y"], constants)
    graph = pipeline.read(path, {"x": (2, 3, 4)})
    check_equal(graph, ["r", "s"])
    last = stages(graph, ["r", "s"])[-1][0].onnx()
    assert [each.dim_value for each in last.graph.output[0].type.tensor_type.shape.dim] == [2, 12]
    # The shape of x, which the stage does not read, is a constant of it.
    assert [value.name for value in last.graph.input] == ["s"]


def test_parameters_in_another_file(skips: Path, tmp_path: Path) -> None:
    model = onnx.load(skips)
    large = onnx.numpy_helper.from_array(weights(4, 4, 3, 3) / 6, "w")
    model.graph.initializer[0].CopyFrom(large)
    onnx.save(model, tmp_path / "apart.onnx", save_as_external_data=True, location="apart.data", size_threshold=0)
    check_equal(pipeline.read(tmp_path / "apart.onnx"), ["r", "s"])


def test_a_changed_file_is_refused(skips: Path) -> None:
    graph = pipeline.read(skips)
    export = stages(graph, ["r"])[0][0]
    os.utime(skips, (1, 1))
    with pytest.raises(BuildError, match="not what was read any more"):
        export.onnx()


def test_only_a_tflite_model_has_tflite_stages(skips: Path) -> None:
    with pytest.raises(BuildError, match="TFLite"):
        stages(pipeline.read(skips), ["r"])[0][0].tflite()


def test_the_module_has_the_inputs_of_the_stage(skips: Path) -> None:
    graph = pipeline.read(skips)
    export, inputs, _ = stages(graph, ["r", "s"])[1]
    assert [str(param.name) for param in export.module()["main"].params] == [spec.name for spec in inputs]


def test_a_loop_in_a_stage(tmp_path: Path) -> None:
    """ONNX Runtime computes it in ours, too; what it captures of outside comes as an input."""
    body = onnx.helper.make_graph(
        [node("Identity", "go", "goes_on"), node("Add", "state r", "next")],
        "body",
        [onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
         onnx.helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
         onnx.helper.make_tensor_value_info("state", onnx.TensorProto.FLOAT, (2, 4))],
        [onnx.helper.make_tensor_value_info("goes_on", onnx.TensorProto.BOOL, []),
         onnx.helper.make_tensor_value_info("next", onnx.TensorProto.FLOAT, (2, 4))],
    )  # fmt: skip
    nodes = [
        node("Relu", "x", "r"), node("Softmax", "r", "s"), node("Loop", "count - s", "l", body=body),
        node("Reshape", "l shape", "m"), node("Softmax", "m", "y"),
    ]  # fmt: skip
    inputs, constants = {"x": (2, 4), "count": ()}, {"shape": np.array([4, 2])}
    dtypes = {"count": onnx.TensorProto.INT64}
    graph = pipeline.read(save(tmp_path / "loop.onnx", nodes, inputs, ["y"], constants, dtypes=dtypes))
    assert [island.tensor for island in graph.islands] == ["l"]
    check_equal(graph, ["s", "l"])


@pytest.mark.parametrize("zero", [np.array(120, np.uint8), np.array(-5, np.int8)], ids=["unsigned", "signed"])
def test_quantised_by_q_and_dq(tmp_path: Path, zero: np.ndarray) -> None:
    """Stages begin and end with bytes, and dequantise what they read themselves; bytes of the graph are unsigned."""
    nodes = [
        node("QuantizeLinear", "x sx zx", "xq"), node("DequantizeLinear", "xq sx zx", "xd"),
        node("DequantizeLinear", "wq sw zw", "wd"), node("Conv", "xd wd", "c", "conv", pads=[1] * 4),
        node("Relu", "c", "r"), node("QuantizeLinear", "r sx zx", "rq"), node("DequantizeLinear", "rq sx zx", "rd"),
        node("Conv", "rd wd", "d", "second", pads=[1] * 4), node("QuantizeLinear", "d sx zx", "dq"),
        node("DequantizeLinear", "dq sx zx", "dd"), node("Add", "dd rd", "e"), node("QuantizeLinear", "e sx zx", "eq"),
        node("DequantizeLinear", "eq sx zx", "y"),
    ]  # fmt: skip
    constants: Arrays = {
        "sx": np.array(0.05, np.float32), "zx": zero, "sw": np.array(0.01, np.float32),
        "zw": np.array(0, np.int8),
        "wq": np.random.default_rng(0).integers(-90, 90, (4, 4, 3, 3)).astype(np.int8),
    }  # fmt: skip
    graph = pipeline.read(save(tmp_path / "qdq.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], constants))
    assert {graph.tensors[name].dtype for name in ("rq", "dq")} == {"uint8"}
    check_equal(graph, ["rq", "dq"])


def test_operators_of_signed_bytes(tmp_path: Path) -> None:
    """They take the bytes themselves, so that a stage that begins with unsigned ones is no part of the model."""
    constants: Arrays = {
        "s": np.array(0.05, np.float32), "z": np.array(0, np.int8), "b": np.zeros(4, np.int32),
        "w": np.random.default_rng(0).integers(-90, 90, (4, 4, 3, 3)).astype(np.int8),
    }  # fmt: skip
    nodes = [
        node("QuantizeLinear", "x s z", "q"), node("QLinearConv", "q s z w s z s z b", "r", "first", pads=[1] * 4),
        node("QLinearConv", "r s z w s z s z b", "t", "second", pads=[1] * 4), node("DequantizeLinear", "t s z", "y"),
    ]  # fmt: skip
    graph = pipeline.read(save(tmp_path / "integers.onnx", nodes, {"x": (1, 4, 6, 6)}, ["y"], constants))
    assert graph.tensors["r"].dtype == "uint8"
    origins = [export.onnx_and_origin()[1] for export, _, _ in stages(graph, ["r"])]
    assert origins == [WRITTEN, WRITTEN]


def test_an_output_that_is_another_name_of_what_crosses(tmp_path: Path) -> None:
    nodes = [
        node("Softmax", "x", "a"), node("Identity", "a", "out"), node("Softmax", "a", "b"),
        node("Softmax", "b", "y"),
    ]  # fmt: skip
    graph = pipeline.read(save(tmp_path / "twice.onnx", nodes, {"x": (2, 4)}, ["out", "y"]))
    check_equal(graph, ["out", "b"])


def test_an_output_of_any_shape(tmp_path: Path) -> None:
    """Only who asks for it gets one: devices have tensors of fixed shapes."""
    nodes = [node("Relu", "x", "r"), node("Softmax", "r", "s"), node("NonZero", "s", "y")]
    path = save(tmp_path / "any.onnx", nodes, {"x": (2, 4)}, ["y"], dtypes={"y": onnx.TensorProto.INT64})
    export = stages(pipeline.read(path), ["s"])[-1][0]
    with pytest.raises(BuildError, match="'y' is no tensor of a fixed shape"):
        export.onnx()
    model, origin = export.onnx_and_origin(open_ends=True)
    (result,) = open_session(model, literal_options()).run(None, {"s": np.eye(2, 4, dtype=np.float32)})
    assert (origin, result.tolist()) == (EXTRACTED, [[0, 1], [0, 1]])
