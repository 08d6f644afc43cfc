"""Quantised operators of TFLite: the integers of LiteRT's reference kernels, bit for bit, without LiteRT."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
litert = pytest.importorskip("ai_edge_litert.interpreter", reason="LiteRT is not installed")

import pipeline  # noqa: E402

KINDS = {
    "int8": """
        CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED TRANSPOSE_CONV ADD MUL LEAKY_RELU MAXIMUM HARD_SWISH LOGISTIC SOFTMAX
        AVERAGE_POOL_2D MAX_POOL_2D MEAN RESIZE_BILINEAR QUANTIZE DEQUANTIZE BATCH_TO_SPACE_ND SLICE
    """,
    "uint8": """
        CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED SUB RELU6 TANH SOFTMAX MEAN RESIZE_BILINEAR CONCATENATION PAD
        SPACE_TO_BATCH_ND STRIDED_SLICE
    """,
    "int16": "CONV_2D FULLY_CONNECTED TRANSPOSE_CONV ADD LOGISTIC TANH SOFTMAX LEAKY_RELU AVERAGE_POOL_2D PAD QUANTIZE",
}
CASES = [(kind, dtype) for dtype, kinds in KINDS.items() for kind in kinds.split()]


@pytest.fixture(scope="module")
def cases(root: Path) -> Iterator[Any]:
    """Import the writer of random models from the benchmarks."""
    sys.path.insert(0, str(root / "bench"))
    yield importlib.import_module("tflite_cases")
    sys.path.remove(str(root / "bench"))


def by_reference(content: bytes, frame: dict[str, np.ndarray]) -> np.ndarray:
    resolver = litert.OpResolverType.BUILTIN_REF
    interpreter = litert.Interpreter(model_content=content, experimental_op_resolver_type=resolver)
    interpreter.allocate_tensors()
    for detail, values in zip(interpreter.get_input_details(), frame.values(), strict=True):
        interpreter.set_tensor(detail["index"], values)
    interpreter.invoke()
    return np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


def run(path: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return a random frame, and what a model without islands makes of it."""
    graph = pipeline.read(path)
    assert not graph.islands
    frame = {spec.name: random_values(spec) for spec in graph.inputs}
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)) as running:
        return frame, np.asarray(running.submit(frame).outputs(60)[graph.outputs[0].name])


def random_values(spec: Any) -> np.ndarray:
    random, dtype = np.random.default_rng(1), np.dtype(spec.dtype)
    if dtype.kind == "f":
        return np.asarray(random.standard_normal(spec.shape) * 2, dtype)
    limits = np.iinfo(dtype)
    return np.asarray(random.integers(limits.min, limits.max + 1, spec.shape), dtype)


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_integers(cases: Any, tmp_path: Path, kind: str, dtype: str) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(cases.make_case(kind, dtype, seed=2).content)
    frame, result = run(path)
    np.testing.assert_array_equal(result, by_reference(path.read_bytes(), frame))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D"])
def test_windows_of_bytes_have_a_kernel(cases: Any, tmp_path: Path, kind: str, dtype: str) -> None:
    """The general schedule would take a hundred times as long."""
    path = tmp_path / "model.tflite"
    path.write_bytes(cases.make_case(kind, dtype, seed=3).content)
    graph = pipeline.read(path)
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False)
    kinds = {operator.kind for stage in bundle.general for operator in stage.operators}
    assert not kinds & {"conv2d", "matmul", "max_pool2d"}
