"""Activations of ONNX Runtime's own domain, and powers of mixed dtypes, without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import pipeline
from tests.support.onnx_models import assert_close, by_onnxruntime, in_stages, node, save, weights


@pytest.mark.parametrize("kind", ["Gelu", "FastGelu", "QuickGelu", "BiasGelu", "FastGelu with a bias"])
def test_gelu(tmp_path: Path, kind: str) -> None:
    has_bias = "ias" in kind
    nodes = [node(kind.split(maxsplit=1)[0], "x b" if has_bias else "x", "y", domain="com.microsoft")]
    path = save(tmp_path / "m.onnx", nodes, {"x": (3, 50)}, ["y"], {"b": weights(50)} if has_bias else {})
    values = {"x": 3 * weights(3, 50)}
    assert_close(in_stages(pipeline.read(path, fallback=False), [], values), by_onnxruntime(path, values))


@pytest.mark.parametrize("dtypes", [("int32", "int32"), ("int64", "float32"), ("float32", "int64")], ids=str)
def test_power(tmp_path: Path, dtypes: tuple[str, str]) -> None:
    types = [onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (*dtypes, dtypes[0])]
    kinds = dict(zip(("x", "n", "y"), types, strict=True))
    path = save(tmp_path / "m.onnx", [node("Pow", "x n", "y")], {"x": (4,), "n": (4,)}, ["y"], dtypes=kinds)
    values = {"x": np.array([1, 2, -3, 7], dtypes[0]), "n": np.array([0, 5, 3, 2], dtypes[1])}
    assert_close(in_stages(pipeline.read(path, fallback=False), [], values), by_onnxruntime(path, values))
