"""Estimates follow operations, bytes and families, and say what a device cannot run."""

from __future__ import annotations

import dataclasses
import math

import pytest

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.board.board_checks import FAMILIES
from pipeline.core.board.device_kinds import ARM_EFFICIENCY, CPU_EFFICIENCY
from pipeline.core.plan.plan import TensorSpec
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.split.planning.problem import costs, group_work
from tests.support.onnx_models import node, save, weights

DEVICE = Device("cpu", flops=1e9, bytes_per_s=1e9, launch_s=0.0)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    nodes = [
        node("Conv", "x w", "a", "dense", pads=[1] * 4),
        node("Relu", "a", "b", "relu"),
        node("Conv", "b d", "c", "deep", pads=[1] * 4, group=8),
        node("MaxPool", "c", "e", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Softmax", "e", "f", "norm"),
        node("Flatten", "f", "g", "flat"),
        node("Gemm", "g m", "h", "gemm"),
        node("ReduceMean", "h", "y", "mean", axes=[1], keepdims=0),
    ]
    constants = {"w": weights(8, 8, 3, 3), "d": weights(8, 1, 3, 3), "m": weights(128, 10)}
    path = save(tmp_path_factory.mktemp("costs") / "m.onnx", nodes, {"x": (1, 8, 8, 8)}, ["y"], constants)
    return pipeline.read(path)


def names(graph: Graph) -> list[str]:
    return [group_work.group_family(group) for group in group_work.groups(graph)]


def test_each_group_has_the_family_of_its_heaviest_operator(graph: Graph) -> None:
    families = names(graph)
    assert families[0] == "convolution"
    assert group_work.group_families(group_work.groups(graph)[0]) == {"convolution", "elementwise"}
    assert families[1] == "depthwise"
    assert [name for name in families if name not in ("movement", "elementwise")] == [
        "convolution", "depthwise", "pooling", "normalization", "matmul", "reduction",
    ]  # fmt: skip


def test_the_larger_of_arithmetic_and_traffic_counts(graph: Graph) -> None:
    device = dataclasses.replace(DEVICE, efficiency=dict.fromkeys(("convolution", "matmul"), 1.0))
    arithmetic, traffic = 2 * 8 * 64 * 8 * 9 + 8 * 64, (2 * 8 * 64 + 8 * 8 * 9) * 4
    assert costs.estimate(graph, device)[0] == pytest.approx(arithmetic / 1e9)
    slow = dataclasses.replace(device, bytes_per_s=1e6, launch_s=0.5)
    assert costs.estimate(graph, slow)[0] == pytest.approx(0.5 + traffic / 1e6)
    assert group_work.group_works(graph)[0].traffic == traffic


def test_a_share_of_the_device_goes_before_the_usual_one(graph: Graph) -> None:
    usual = costs.estimate(graph, DEVICE)
    slower = costs.estimate(
        graph, dataclasses.replace(DEVICE, efficiency={"depthwise": CPU_EFFICIENCY["depthwise"] / 2})
    )
    assert [new / old for old, new in zip(usual, slower, strict=True)] == pytest.approx(
        [2.0 if name == "depthwise" else 1.0 for name in names(graph)]
    )
    gpu = costs.estimate(graph, dataclasses.replace(DEVICE, kind="cuda"))
    assert gpu[1] != usual[1]


def test_shares_are_of_known_families() -> None:
    assert {*CPU_EFFICIENCY, *ARM_EFFICIENCY} <= set(FAMILIES)
    assert min(*CPU_EFFICIENCY.values(), *ARM_EFFICIENCY.values()) > 0


def test_what_a_device_cannot_run_takes_for_ever(graph: Graph) -> None:
    device = dataclasses.replace(DEVICE, families=("convolution", "elementwise"))
    assert costs.runs(graph, device) == [name in ("convolution", "elementwise") for name in names(graph)]
    assert [math.isfinite(each) for each in costs.estimate(graph, device)] == costs.runs(graph, device)
    # The convolution alone is not enough: its group ends in a rectifier.
    assert not costs.runs(graph, dataclasses.replace(DEVICE, families=("convolution",)))[0]
    assert not any(costs.runs(graph, dataclasses.replace(DEVICE, dtypes=("int8",))))
    assert all(costs.runs(graph, dataclasses.replace(DEVICE, dtypes=("int8", "float32"))))


def test_integers_have_a_rate_of_their_own() -> None:
    tensors = {name: TensorSpec(name, (4,), kind) for name, kind in [("x", "int8"), ("a", "int8"), ("y", "float32")]}
    operators = (
        Operator("one", "matmul", ("x",), ("a",), 1000, 0, group=0),
        Operator("two", "matmul", ("a",), ("y",), 1000, 0, group=1),
        Operator("three", "matmul", ("y",), ("z",), 1000, 0, group=2),
    )
    tensors["z"] = TensorSpec("z", (4,))
    graph = Graph("m", operators, tensors, (tensors["x"],), (tensors["z"],))
    fast = dataclasses.replace(DEVICE, int8_flops=4e9)
    assert [costs.rates(work, DEVICE)[0] for work in group_work.group_works(graph)] == pytest.approx([1e-6] * 3)
    assert [costs.rates(work, fast)[0] for work in group_work.group_works(graph)] == pytest.approx(
        [2.5e-7, 2.5e-7, 1e-6]
    )
