"""Operators that ONNX Runtime's optimiser writes, without it; others of its domain become islands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import pipeline
from tests.support.onnx_models import (
    IMAGE,
    KERNEL,
    Arrays,
    assert_close,
    by_onnxruntime,
    frame,
    in_stages,
    node,
    save,
    weights,
)

ROWS = {"x": (1, 3, 8), "s": (1, 3, 8)}
NORM = {"g": weights(8), "b": weights(8, seed=1), "c": weights(8, seed=2)}
WEIGHTS = {"w": np.random.default_rng(0).integers(0, 256, (4, 2, 8)).astype(np.uint8), "k": weights(8)}


def microsoft(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return node(kind, inputs, outputs, domain="com.microsoft", **attributes)


@pytest.mark.parametrize(
    ("operator", "inputs", "constants"),
    [
        (microsoft("FusedConv", "x w b", activation="Relu", pads=[1] * 4), IMAGE, KERNEL | {"b": weights(4)}),
        (microsoft("FusedConv", "x w", activation="LeakyRelu", activation_params=[0.2]), IMAGE, KERNEL),
        (microsoft("FusedMatMul", "x w", alpha=0.5, transB=1), {"x": (3, 8)}, {"w": weights(5, 8)}),
        (
            microsoft("FusedGemm", "x w b", activation="Tanh", alpha=0.5, beta=2.0, transB=1), {"x": (3, 8)},
            {"w": weights(5, 8), "b": weights(5)},
        ),
        (
            microsoft("FusedGemm", "x w b", activation="LeakyRelu", activation_alpha=0.3, transA=1), {"x": (8, 3)},
            {"w": weights(8, 5), "b": weights(5)},
        ),
        (microsoft("SkipLayerNormalization", "x s g b c"), ROWS, NORM),
        (microsoft("SkipLayerNormalization", "x s g b", "y - - t"), ROWS, NORM),
        (microsoft("SkipSimplifiedLayerNormalization", "x s g"), ROWS, NORM),
        (node("SimplifiedLayerNormalization", "x g", "y"), {"x": (1, 3, 8)}, NORM),
        (microsoft("MatMulNBits", "x w k", K=32, N=4, bits=4, block_size=16), {"x": (3, 32)}, WEIGHTS),
        (
            microsoft("MatMulNBits", "x w k z", K=32, N=4, bits=4, block_size=16), {"x": (3, 32)},
            WEIGHTS | {"z": np.arange(4, dtype=np.uint8) * 17},
        ),
    ],
    ids=lambda value: value.op_type if hasattr(value, "op_type") else "",
)  # fmt: skip
def test_fused(tmp_path: Path, operator: Any, inputs: dict[str, Any], constants: Arrays) -> None:
    constants = {name: value for name, value in constants.items() if name in operator.input}
    path = save(tmp_path / "m.onnx", [operator], inputs, [name for name in operator.output if name], constants)
    graph = pipeline.read(path, fallback=False)
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))


@pytest.mark.parametrize(
    ("operator", "constants"),
    [
        (microsoft("Attention", "x w b", num_heads=2), {"w": weights(8, 24), "b": weights(24)}),
        (microsoft("MultiHeadAttention", "x x x", num_heads=2), {}),
        (
            microsoft("DynamicQuantizeMatMul", "x w k z"),
            {
                "w": np.arange(64, dtype=np.uint8).reshape(8, 8),
                "k": np.full(1, 0.1, np.float32),
                "z": np.full(1, 3, np.uint8),
            },
        ),
    ],
    ids=lambda value: value.op_type if hasattr(value, "op_type") else "",
)
def test_island(tmp_path: Path, operator: Any, constants: Arrays) -> None:
    path = save(tmp_path / "m.onnx", [operator], {"x": (1, 3, 8)}, ["y"], constants)
    model = onnx.load(path)
    model.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (1, 3, 8)))
    onnx.save(model, path)
    graph = pipeline.read(path)
    assert [island.operators[0].split()[0] for island in graph.islands] == [operator.op_type]
    values = frame(graph)
    assert_close(in_stages(graph, [], values), by_onnxruntime(path, values))
