"""Networks of published figures have the multiply-adds that their authors count."""

from __future__ import annotations

import pytest

pytest.importorskip("onnx")

from published_models import NETWORKS, graph

from pipeline.model.operators import operator_family
from pipeline.split.planning.problem.group_work import group_works

SLOW_FROM = 0.5
"""Billions of multiply-adds from which a network takes long to write."""

_HEAVY = ("convolution", "depthwise", "matmul")
_COUNTED = [
    pytest.param(name, marks=[pytest.mark.slow] if network.operations > SLOW_FROM else [])
    for name, network in NETWORKS.items()
    if network.operations
]


def multiply_adds(model: str, precision: str = "float32") -> float:
    """Count billions of multiply-adds in convolutions and products."""
    operators = graph(model, None, precision).operators
    return sum(each.flops for each in operators if operator_family(each.kind) in _HEAVY) / 2e9


@pytest.mark.parametrize("model", _COUNTED)
def test_the_count_is_the_known_one(model: str) -> None:
    assert multiply_adds(model) == pytest.approx(NETWORKS[model].operations, rel=0.03)


@pytest.mark.parametrize("model", ["squeezenet", "mobilenet_v2", "shufflenet_v2", "yolox_nano"])
@pytest.mark.one_in(2)
def test_int8_has_the_same_kernels(model: str) -> None:
    plain, quantized = graph(model), graph(model, None, "int8")
    assert multiply_adds(model, "int8") == pytest.approx(multiply_adds(model), rel=0.05)
    assert {spec.dtype for spec in (*quantized.inputs, *quantized.outputs)} == {"int8"}
    assert quantized.parameter_bytes < 0.35 * plain.parameter_bytes
    heavy = [[work.family for work in group_works(each) if work.family in _HEAVY] for each in (plain, quantized)]
    assert heavy[0] == heavy[1]
    assert all(work.reads_bytes for work in group_works(quantized) if work.family in _HEAVY)


def test_another_size_has_its_own_count() -> None:
    counts = [sum(work.flops for work in group_works(graph("mobilenet_v1", size))) for size in (224, 112)]
    assert counts[0] / counts[1] == pytest.approx(4, rel=0.06)
