"""A quantised ONNX model is also computed in real numbers: it limits values then, and rounds none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from pipeline.frontends import references
from tests.support.onnx_models import Arrays, node, save, weights

CONSTANTS: Arrays = {
    "s": np.array(0.5, np.float32), "t": np.array(2.0, np.float32), "z": np.array(100, np.uint8),
    "v": np.array(-3, np.int8), "w": np.array([[2]], np.int8), "n": np.array(0, np.int8),
}  # fmt: skip
START = [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "d")]
X = np.array([[-1000.0], [-0.26], [0.1], [1.3], [1000.0]], np.float32)
LIMITED = np.clip(X, -50, 77.5)


def run(folder: Path, nodes: list[Any], dtype: int = TensorProto.FLOAT, opset: int = 17) -> np.ndarray | None:
    path = save(folder / "m.onnx", nodes, {"x": X.shape}, ["y"], CONSTANTS, dtypes={"y": dtype}, opset=opset)
    results = references.run_real(path, {"x": X})
    return None if results is None else results[0]


@pytest.mark.parametrize(
    ("nodes", "dtype", "expected"),
    [
        ([*START, node("Relu", "d", "y")], TensorProto.FLOAT, np.maximum(LIMITED, 0)),
        ([*START, node("QuantizeLinear", "d t v", "y")], TensorProto.INT8, np.clip(LIMITED / 2 - 3, -128, 127)),
        ([START[0], node("Transpose", "q", "r"), node("DequantizeLinear", "r s z", "y")], 1, LIMITED.T),
        ([node("DequantizeLinear", "w t n", "k"), *START, node("MatMul", "d k", "y")], 1, LIMITED * 4),
        ([node("QuantizeLinear", "x s", "q"), node("DequantizeLinear", "q s", "y")], 1, np.clip(X, 0, 127.5)),
    ],
    ids=["relu", "quantised output", "bytes that move", "constant weights", "no zero point"],
)
def test_values_are_limited_and_not_rounded(nodes: list[Any], dtype: int, expected: np.ndarray, tmp_path: Path) -> None:
    result = run(tmp_path, nodes, dtype)
    assert result is not None
    np.testing.assert_allclose(result, expected, atol=1e-4)


@pytest.mark.parametrize("case", ["not quantised", "of an old version", "whole numbers", "scales by channel"])
def test_other_models_have_no_such_form(case: str, tmp_path: Path) -> None:
    end = node("Relu", "d", "y")
    if case == "not quantised":
        assert run(tmp_path, [node("Relu", "x", "y")]) is None
    elif case == "of an old version":
        assert run(tmp_path, [*START, end], opset=11) is None
    elif case == "whole numbers":
        nodes = [START[0], node("QLinearMatMul", "q s z w t n s z", "p"), node("DequantizeLinear", "p s z", "y")]
        assert run(tmp_path, nodes) is None
    else:
        path = save(
            tmp_path / "m.onnx", [node("QuantizeLinear", "x s z", "q"), node("DequantizeLinear", "q s z", "y")],
            {"x": (2, 3)}, ["y"], {"s": np.full(3, 0.5, np.float32), "z": np.zeros(3, np.uint8)},
        )  # fmt: skip
        assert references.run_real(path, {"x": weights(2, 3)}) is None
