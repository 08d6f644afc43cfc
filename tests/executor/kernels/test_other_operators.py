"""Operators without a rule of their own, around a convolution that changes the layout: still right, and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.executor import host_target, kernels
from pipeline.split import extract
from pipeline.tvm.access import compiler_lock
from tests.support.onnx_models import check_outputs, node, save, weights

IMAGE = {"x": (2, 6, 9, 10)}
CONV = node("Conv", "x w", "c")
KERNEL = {"w": weights(6, 6, 3, 3)}
SCALES = np.array([1, 1, 2, 2], np.float32)

Case = tuple[list[Any], dict[str, np.ndarray]]
CASES: dict[str, Case] = {
    "softmax over channels": ([CONV, node("Softmax", "c", "y", axis=1)], {}),
    "softmax over a row": ([CONV, node("Softmax", "c", "y", axis=-1)], {}),
    "transposed convolution": ([CONV, node("ConvTranspose", "c v", "y", strides=[2, 2])], {"v": weights(6, 7, 3, 3)}),
    "resize": ([CONV, node("Resize", "c - s", "y", mode="nearest")], {"s": SCALES}),
    "layer norm": ([CONV, node("LayerNormalization", "c g b", "y")], {"g": weights(8), "b": weights(8)}),
    "instance norm": ([CONV, node("InstanceNormalization", "c g b", "y")], {"g": weights(6), "b": weights(6)}),
    "cumulative sum": ([CONV, node("CumSum", "c k", "y")], {"k": np.array(2)}),
    "largest": ([CONV, node("TopK", "c k", "y z")], {"k": np.array([3])}),
    "reduction": ([CONV, node("ReduceMax", "c", "y", axes=[1], keepdims=0)], {}),
    "split": ([CONV, node("Split", "c", "p q", axis=1, num_outputs=2), node("Concat", "q p", "y", axis=1)], {}),
    "transpose": ([CONV, node("Transpose", "c", "y", perm=[0, 2, 3, 1])], {}),
    "flatten": ([CONV, node("Flatten", "c", "f"), node("MatMul", "f v", "y")], {"v": weights(336, 11)}),
    "one slope per channel": ([CONV, node("PRelu", "c s", "y")], {"s": weights(6, 1, 1)}),
    "channels to space": (
        [node("Conv", "x v", "c"), node("DepthToSpace", "c", "y", blocksize=2)], {"v": weights(8, 6, 1, 1)}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_result_is_that_of_onnxruntime(case: str, tmp_path: Path) -> None:
    nodes, constants = CASES[case]
    opset = 17 if case == "reduction" else 18
    check_outputs(save(tmp_path / "model.onnx", nodes, IMAGE, ["y"], KERNEL | constants, opset=opset))


def test_a_gate_of_one_value_per_channel_is_spread_over_the_pixels(tmp_path: Path) -> None:
    """TVM fuses the product into the small convolution, whose kernel makes one pixel only."""
    nodes = [
        CONV,
        node("GlobalAveragePool", "c", "g"),
        node("Conv", "g v", "h"),
        node("Sigmoid", "h", "i"),
        node("Mul", "c i", "y"),
    ]
    check_outputs(save(tmp_path / "model.onnx", nodes, IMAGE, ["y"], KERNEL | {"v": weights(6, 6, 1, 1)}))


def test_kernels_tell_which_rule_made_them(tmp_path: Path) -> None:
    nodes = [CONV, node("Softmax", "c", "y", axis=1)]
    path = save(tmp_path / "model.onnx", nodes, IMAGE, ["y"], KERNEL)
    module = extract.module(extract.parts(pipeline.read(path), [])[0])
    with compiler_lock:
        rules = kernels.kernels(kernels.optimise(module, kernels.target_for(host_target.host_target())))
    assert ("convolution", 2 * 2 * 7 * 8 * 6 * 6 * 9) in rules.values()
    assert ("general", 0) in rules.values()
