"""Models of each frontend, cut in three and written as ONNX, have the answers of the unsplit model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import models
import pytest

import pipeline
from pipeline.errors import BuildError
from pipeline.export import relax_onnx
from pipeline.frontends import references
from pipeline.split import extract
from pipeline.split.graph import Graph
from tests.support import relay_programs
from tests.support.onnx_models import LIGHT, Arrays, frame, in_stages
from tests.support.onnx_stages import assert_same, run_exported
from tests.support.random_models import random_model
from tests.support.relax_modules import network


def check(graph: Graph, model: Any, values: Arrays, steps: int = 0) -> None:
    """Compare with the library of the model's format."""
    _, outputs = references.run(model, values)
    reference = dict(zip((spec.name for spec in graph.outputs), outputs, strict=True))
    assert_same(run_exported(graph, values), reference, steps)


def test_the_demos_network(digits_onnx: Path) -> None:
    graph = pipeline.read(digits_onnx)
    check(graph, digits_onnx, frame(graph))


@pytest.mark.parametrize("seed", range(6))
def test_random_onnx_models(tmp_path: Path, seed: int) -> None:
    path = random_model(tmp_path / "m.onnx", seed)
    graph = pipeline.read(path)
    check(graph, path, frame(graph))


@pytest.mark.slow
@pytest.mark.parametrize("name", models.NAMES)
def test_networks(tmp_path: Path, name: str) -> None:
    assert len(LIGHT) == len(models.NAMES)
    path = models.write(name, tmp_path)
    graph = pipeline.read(path)
    check(graph, path, frame(graph))


def test_a_relay_program(tmp_path: Path) -> None:
    (tmp_path / "network.relay").write_text(relay_programs.NETWORK, encoding="utf-8")
    graph = pipeline.read(tmp_path / "network.relay", params=relay_programs.network_parameters())
    values = frame(graph)
    assert_same(run_exported(graph, values), in_stages(graph, [], values))


def test_a_relax_module() -> None:
    """Its kernel has no name that ONNX knows."""
    graph = pipeline.read(network())
    with pytest.raises(BuildError, match=r"cannot be written as ONNX: double \(tensor '"):
        run_exported(graph, frame(graph))


@pytest.mark.parametrize("name", ["ResNet", "VisionTransformer", "Encoder"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_networks_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from tests.support import torch_models

    network = torch_models.randomise(getattr(torch_models, name)())
    inputs: tuple[Any, ...] = (torch_models.image(1, 3, 32, 32),)
    if name == "Encoder":
        inputs = torch.arange(1, 17).reshape(1, 16), torch.tensor([[1] * 12 + [0] * 4])
    program = torch.export.export(network, inputs)
    graph = pipeline.read(program)
    values = {spec.name: each.numpy() for spec, each in zip(graph.inputs, inputs, strict=True)}
    check(graph, program, values)


TFLITE = """
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D FULLY_CONNECTED HARD_SWISH LEAKY_RELU LOGISTIC
    MAX_POOL_2D MEAN MUL PAD RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR SOFTMAX SUB TANH TRANSPOSE_CONV
"""


@pytest.mark.parametrize("kind", TFLITE.split())
def test_operators_of_tflite(tmp_path: Path, kind: str) -> None:
    """As they are, whole numbers are those of LiteRT's reference kernels; as layers of real ones, within a step."""
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed")
    import conformance_tflite
    import tflite_cases

    for dtype in tflite_cases.KINDS[kind][1]:
        content = tflite_cases.make_case(kind, dtype, 3).content
        inputs, outputs = conformance_tflite.by_litert(content)
        path = tmp_path / f"{dtype}.tflite"
        path.write_bytes(content)
        graph = pipeline.read(path)
        values = {spec.name: inputs[spec.name] for spec in graph.inputs}
        expected = dict(zip((spec.name for spec in graph.outputs), outputs, strict=True))
        assert_same(run_exported(graph, values, exact=True), expected)
        assert_same(run_exported(graph, values), expected, steps=1)


@pytest.mark.parametrize("kind", ["CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "LEAKY_RELU"])
def test_layers_of_integers_are_recognised(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    import tflite_cases

    path = tmp_path / "m.tflite"
    path.write_bytes(tflite_cases.make_case(kind, "int8", 3).content)
    graph = pipeline.read(path)
    (part,) = extract.parts(graph, [])
    written = {node.op_type for node in relax_onnx.write(extract.module(part), "stage").graph.node}
    assert {"DequantizeLinear", "QuantizeLinear"} <= written
    assert not written & {"Mod", "Div", "BitShift"}


@pytest.mark.parametrize("kind", ["AVERAGE_POOL_2D", "MEAN", "SOFTMAX"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_reductions_of_integers_are_recognised(tmp_path: Path, kind: str, dtype: str) -> None:
    pytest.importorskip("tflite", reason="the reader of TFLite files is not installed")
    import tflite_cases

    path = tmp_path / "m.tflite"
    path.write_bytes(tflite_cases.make_case(kind, dtype, 3).content)
    (part,) = extract.parts(pipeline.read(path), [])
    written = {node.op_type for node in relax_onnx.write(extract.module(part), "stage").graph.node}
    real = {"AVERAGE_POOL_2D": "AveragePool", "MEAN": "ReduceMean", "SOFTMAX": "Softmax"}[kind]
    assert {"DequantizeLinear", real, "QuantizeLinear"} <= written
    assert not written & {"Mod", "Div", "BitShift", "Gather"}
