"""A network in Relay has the results of ONNX Runtime, unsplit and in stages, and its names are those of the text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from pipeline.errors import ModelError
from tests.support.relay_programs import NETWORK, network_parameters, random

INPUTS = {"x": random(1, 8, 12, 12, seed=4), "b": random(1, 8, 12, 12, seed=5)}


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "network.relay"
    path.write_text(NETWORK, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """The same network, written by hand, in ONNX Runtime."""
    onnxruntime = pytest.importorskip("onnxruntime")
    from tests.support.onnx_models import node, save

    nodes = [
        node("Conv", "x w1", "t0", "convolution", pads=[1] * 4),
        node("BatchNormalization", "t0 scale shift shift scale", "t1", "norm"),
        node("Relu", "t1", "v", "positive"),
        node("Add", "v b", "sum", "residual"),
        node("GlobalAveragePool", "sum", "t2", "pool"),
        node("Flatten", "t2", "t3", "flat"),
        node("Gemm", "t3 w2", "t4", "dense", transB=1),
        node("Softmax", "t4", "y", "shares"),
    ]
    shapes = {name: array.shape for name, array in INPUTS.items()}
    path = save(tmp_path_factory.mktemp("onnx") / "m.onnx", nodes, shapes, ["sum", "y"], network_parameters())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return dict(zip(("sum", "y"), session.run(["sum", "y"], INPUTS), strict=True))


@pytest.mark.parametrize("stages", [1, 3])
def test_results_are_those_of_onnx_runtime(program: Path, expected: dict[str, np.ndarray], stages: int) -> None:
    graph = pipeline.read(program, params=network_parameters())
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=stages))
    with pipeline.load(bundle) as running:
        outputs = running.submit(INPUTS).result()
    for spec, reference in zip(graph.outputs, expected.values(), strict=True):
        np.testing.assert_allclose(outputs[spec.name], reference, rtol=1e-4, atol=1e-5)


def test_cuts_are_named_as_the_text_shows_them(program: Path) -> None:
    graph = pipeline.read(program, params=network_parameters())
    assert graph.outputs[0].name == "%2"
    plan = pipeline.plan(graph, cuts=["%2"])
    assert [spec.name for spec in plan.stages[1].inputs] == ["%2"]


def test_parameters_of_the_wrong_kind_are_refused(program: Path) -> None:
    with pytest.raises(ModelError, match="none of the parameters given"):
        pipeline.read(program, params={"nothing": np.zeros(3)})
    with pytest.raises(ModelError, match=r"parameter 'scale' is float32\[3\], but .* has float32\[8\]"):
        pipeline.read(program, params={"scale": np.zeros(3, np.float32)})
    with pytest.raises(ModelError, match="holds no parameters"):
        pipeline.read(program, params=program)
