"""TFLite models, whose images have their channels last: every operator has a kernel, and computes what LiteRT does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pipeline
from tests.frontends.tflite.test_tflite import SAME, VALID, Writer, classifier
from tests.support.onnx_models import weights


def general(path: Path) -> list[str]:
    """Build a model, compare it with LiteRT, and return the kinds of operators without a kernel of their own."""
    graph = pipeline.read(path)
    assert pipeline.verify(graph, path).relative < 1e-5
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    return [each.kind for stage in bundle.general for each in stage.operators]


def test_a_classifier(tmp_path: Path) -> None:
    assert general(classifier(tmp_path / "net.tflite")) == []


@pytest.mark.parametrize("multiplier", [2, 20])
@pytest.mark.parametrize("channels", [1, 5])
def test_several_kernels_for_each_channel(tmp_path: Path, channels: int, multiplier: int) -> None:
    writer = Writer(1, 9, 8, channels)
    kernel = writer.constant("kernel", weights(1, 3, 3, channels * multiplier))
    bias = writer.constant("bias", weights(channels * multiplier))
    output = writer.add(
        "DEPTHWISE_CONV_2D", [0, kernel, bias], writer.tensor("y", (1, 5, 4, channels * multiplier)),
        options="DepthwiseConv2DOptions", padding=SAME, strideW=2, strideH=2, depthMultiplier=multiplier,
        dilationWFactor=1, dilationHFactor=1,
    )  # fmt: skip
    assert general(writer.save(tmp_path / "net.tflite", output)) == []


@pytest.mark.parametrize("size", [2, 3])
def test_a_transposed_convolution(tmp_path: Path, size: int) -> None:
    writer = Writer(1, 5, 4, 6)
    shape = (1, 8 + size, 6 + size, 7)
    inputs = [writer.constant("shape", np.array(shape, np.int32)), writer.constant("kernel", weights(7, size, size, 6))]
    output = writer.add(
        "TRANSPOSE_CONV", [*inputs, 0], writer.tensor("y", shape), options="TransposeConvOptions", padding=VALID,
        strideW=2, strideH=2,
    )  # fmt: skip
    assert general(writer.save(tmp_path / "net.tflite", output)) == []
