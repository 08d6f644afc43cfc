"""Products of floats on Arm, whose elements are loaded a vector at a time: each shape that does so differently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import pipeline
from pipeline.frontends import references
from tests.executor.arm.conftest import SLOW, ArmPython, board

pytestmark = list(SLOW)

CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "vectors": ((1, 16, 9, 11), (24, 16, 3, 3), {"pads": [1] * 4}),
    "pointwise": ((2, 12, 7, 5), (20, 12, 1, 1), {}),
    "first": ((1, 3, 23, 19), (18, 3, 7, 7), {"pads": [3] * 4, "strides": [2, 2]}),
    "odd": ((1, 5, 8, 8), (7, 5, 3, 3), {}),
    "one": ((1, 1, 12, 12), (6, 1, 5, 5), {"pads": [2] * 4}),
    "long": ((1, 37, 6, 6), (9, 37, 3, 3), {"pads": [1] * 4}),
    "grouped": ((1, 24, 10, 6), (16, 12, 3, 3), {"group": 2, "pads": [1] * 4}),
    "narrow groups": ((1, 12, 6, 6), (16, 3, 3, 3), {"group": 4}),
    "dilated": ((1, 6, 14, 14), (8, 6, 3, 3), {"dilations": [2, 2]}),
    "transformed": ((1, 48, 26, 27), (64, 48, 3, 3), {"pads": [1] * 4}),
    "depthwise": ((1, 13, 9, 9), (13, 1, 3, 3), {"group": 13, "pads": [1] * 4}),
}
"""Name -> shapes of data and weights, and attributes."""

RUN = """
import sys
from pathlib import Path
import numpy as np
import pipeline
for path in sorted(Path(sys.argv[1]).glob("*.bundle")):
    with pipeline.load(path) as running:
        (result,) = running.map([np.load(path.with_suffix(".frame.npy"))])
        np.save(path.with_suffix(".result.npy"), result)
"""
"""Several bundles by one Python, which takes seconds to start where it is emulated."""


def save(name: str, folder: Path) -> Path:
    data, weights, attributes = CONVOLUTIONS[name]
    random = np.random.default_rng(len(name))
    constants = [
        numpy_helper.from_array(random.standard_normal(weights).astype(np.float32), "w"),
        numpy_helper.from_array(random.standard_normal(weights[0]).astype(np.float32), "b"),
    ]
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], **attributes), helper.make_node("Relu", ["c"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, data)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = folder / f"{name}.onnx"
    onnx.save(onnx.shape_inference.infer_shapes(model), file)
    return file


def save_product(folder: Path, rows: int, depth: int) -> Path:
    """Save a product of two matrices that are both data."""
    graph = helper.make_graph(
        [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1]), helper.make_node("MatMul", ["x", "t"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, rows, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, rows, rows])],
    )
    file = folder / f"matrices{depth}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
    return file


@pytest.mark.parametrize("processor", ["cortex-a53", "cortex-a76"])
def test_products_answer_as_the_reference(arm: ArmPython, processor: str, tmp_path: Path) -> None:
    for error, name in run_products(arm, processor, tmp_path):
        assert error < 1e-5, name


@pytest.mark.parametrize(
    ("processor", "transformed"),
    [("cortex-a55", ("transformed", "long")), ("cortex-a76", ("transformed",)), ("neoverse-n1", ("transformed",))],
)
def test_products_of_float16_answer_nearly_so(
    arm: ArmPython, processor: str, transformed: tuple[str, ...], tmp_path: Path
) -> None:
    errors = {name: error for error, name in run_products(arm, processor, tmp_path, precision="float16")}
    # By Winograd's transforms, which save more than float16, and multiply float32.
    for name in transformed:
        assert errors.pop(name) < 1e-5, name
    # None of the others is as exact as float32.
    for name, error in errors.items():
        assert 1e-5 < error < 4e-3, name


def test_products_of_bfloat16_answer_nearly_so(arm: ArmPython, tmp_path: Path) -> None:
    errors = {name: error for error, name in run_products(arm, "max", tmp_path, precision="bfloat16")}
    # Depthwise products and those of two tensors stay float32.
    for name in ("depthwise", "matrices16", "matrices7"):
        assert errors.pop(name) < 1e-5, name
    for name, error in errors.items():
        assert 1e-4 < error < 2e-2, name


def run_products(arm: ArmPython, processor: str, folder: Path, precision: str = "float32") -> list[tuple[float, str]]:
    """Return the error of each product's answer, as a share of the largest value, and its name."""
    files = [save(name, folder) for name in CONVOLUTIONS]
    files += [save_product(folder, rows, depth) for rows, depth in ((10, 16), (9, 7))]
    frames = {}
    for file in files:
        graph = pipeline.read(file)
        shape = graph.inputs[0].shape
        frames[file.stem] = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
        np.save(folder / f"{file.stem}.frame.npy", frames[file.stem])
        plan = pipeline.plan(graph, board(processor), stages=1)
        # The only product is the first one and the last, which would stay float32.
        (stage,) = plan.stages
        plan = replace(plan, stages=(replace(stage, options=replace(stage.options, float32_layers=())),))
        bundle = pipeline.build(graph, plan, check=False, precision=precision)
        bundle.save(folder / f"{file.stem}.bundle")
    process = arm.run(processor, "-c", RUN, folder)
    assert process.returncode == 0, process.stderr
    errors = list[tuple[float, str]]()
    for file in files:
        expected = references.run(file, {"x": frames[file.stem]})[1][0]
        result = np.load(folder / f"{file.stem}.result.npy")
        assert result.shape == expected.shape
        errors.append((float(np.abs(result - expected).max() / np.abs(expected).max()), file.stem))
    return errors
