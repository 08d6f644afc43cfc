"""Estimates follow operations, bytes and families, and say what a device cannot run."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.board.board_checks import FAMILIES
from pipeline.core.board.device_kinds import ARM_EFFICIENCY, CPU_EFFICIENCY
from pipeline.core.plan.plan import TensorSpec
from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.split.planning.problem import costs, group_work
from pipeline.split.planning.problem.group_work import GroupWork, WorkTable
from tests.support.onnx_models import node, save, weights

X86, ARM = {"mtriple": "x86_64-linux-gnu"}, {"mtriple": "aarch64-linux-gnu"}
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


def test_arithmetic_and_traffic_add_up(graph: Graph) -> None:
    device = dataclasses.replace(DEVICE, efficiency=dict.fromkeys(("convolution", "matmul"), 1.0))
    arithmetic, traffic = 2 * 8 * 64 * 8 * 9 + 8 * 64, (2 * 8 * 64 + 8 * 8 * 9) * 4
    assert costs.estimate(graph, device)[0] == pytest.approx((arithmetic + traffic) / 1e9)
    slow = dataclasses.replace(device, bytes_per_s=1e6, launch_s=0.5)
    assert costs.estimate(graph, slow)[0] == pytest.approx(0.5 + arithmetic / 1e9 + traffic / 1e6)
    assert group_work.group_works(graph)[0].traffic == traffic


def test_a_share_of_the_device_goes_before_the_usual_one(graph: Graph) -> None:
    fast = dataclasses.replace(DEVICE, target=X86, bytes_per_s=1e15)
    shares = {"depthwise": CPU_EFFICIENCY["depthwise"] / 2}
    usual, slower = (costs.estimate(graph, dataclasses.replace(fast, efficiency=own)) for own in (None, shares))
    ratios = [new / old for old, new in zip(usual, slower, strict=True)]
    assert ratios == pytest.approx([2.0 if name == "depthwise" else 1.0 for name in names(graph)], rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "target", "depthwise"),
    [
        ("cpu", X86, CPU_EFFICIENCY["depthwise"]),
        ("cpu", ARM, ARM_EFFICIENCY["depthwise"]),
        ("cpu", {"mtriple": "armv7l-linux-gnueabihf"}, ARM_EFFICIENCY["depthwise"]),
        # Rates of accelerators are those of networks.
        ("vendor", None, 1.0),
        ("litert", {"delegate": "libedgetpu.so.1"}, 1.0),
        ("cuda", None, 1.0),
    ],
)
def test_depthwise_convolutions_reach_the_share_of_their_processor(
    kind: str, target: dict[str, str] | None, depthwise: float
) -> None:
    cores = (0,) if kind == "cpu" else ()
    device = dataclasses.replace(DEVICE, kind=kind, target=target, cores=cores, flops=4e9)
    assert device.family_efficiency.get("depthwise", 1.0) == depthwise
    if cores:
        runtime = dataclasses.replace(device, runtimes=("tvm", "litert")).with_runtime("litert")
        assert runtime.family_efficiency["depthwise"] == depthwise


def work(**changes: Any) -> WorkTable:
    fields: dict[str, Any] = {"flops": 4000, "traffic": 800, "families": frozenset({"convolution"}),
                              "family": "convolution", "dtypes": frozenset({"float32"}), "reads_bytes": False,
                              "has_islands": False, "parameters": 400, "results": 100, "float_share": 1.0}  # fmt: skip
    return WorkTable.of([GroupWork(**(fields | changes))])


HALF, TRANSFORMED = StageOptions("float16"), StageOptions("float32")
SUITED = {"winograd_flops": 4000, "winograd_bytes": 400}


@pytest.mark.parametrize(
    ("group", "device", "options", "arithmetic", "traffic"),
    [
        ({}, {}, NO_OPTIONS, 4000, 800),
        ({}, {"result_flops": 30}, NO_OPTIONS, 7000, 800),
        # Bytes of results are scaled at the rate of floats.
        ({"reads_bytes": True, "float_share": 0.0}, {"result_flops": 30, "int8_flops": 4e9}, NO_OPTIONS, 4000, 800),
        ({}, {"float16_flops": 2e9}, HALF, 2000, 400),
        ({}, {}, HALF, 4000, 800),
        ({}, {"element_bytes": 1}, NO_OPTIONS, 4000, 200),
        ({"float_share": 0.5}, {"element_bytes": 2}, NO_OPTIONS, 4000, 600),
        (SUITED, {}, TRANSFORMED, 4000 / costs.WINOGRAD_GAIN, 800 + 3 * 400),
        # More bytes than it saves in products: the build stays with the direct form.
        (SUITED | {"winograd_bytes": 4000}, {}, TRANSFORMED, 4000, 800),
        (SUITED, {"kind": "vendor"}, TRANSFORMED, 4000, 800),
        (SUITED | {"reads_bytes": True}, {}, TRANSFORMED, 4000, 800),
        ({}, {"resident_bytes": 400, "refill_bytes_per_s": 1e8}, NO_OPTIONS, 4000, 800),
        ({}, {"resident_bytes": 300, "refill_bytes_per_s": 1e8}, NO_OPTIONS, 4000, 800 + 100 * 10),
        ({}, {"resident_bytes": 300, "refill_bytes_per_s": 1e8, "dataflow": True}, NO_OPTIONS, 4000, 800 + 400 * 10),
    ],
)
def test_work_takes_the_rates_of_its_numbers(
    group: dict[str, Any], device: dict[str, Any], options: StageOptions, arithmetic: float, traffic: float
) -> None:
    seconds = costs.rates(work(**group), dataclasses.replace(DEVICE, **device), options)
    assert [float(column[0]) for column in seconds] == pytest.approx([arithmetic / 1e9, traffic / 1e9])
    assert seconds[0].shape == seconds[1].shape == (1,)


@pytest.mark.parametrize(
    ("memory", "threads", "seconds"),
    [
        # Nothing is known of the memory: waiting for it is in the serial share.
        (0.0, 4, (1 - costs.PARALLEL + costs.PARALLEL / 4) * 2e-3),
        (1e9, 4, (1 - costs.PARALLEL_ARITHMETIC + costs.PARALLEL_ARITHMETIC / 4) * 1e-3 + 1e-3),
        (2e9, 4, (1 - costs.PARALLEL_ARITHMETIC + costs.PARALLEL_ARITHMETIC / 4) * 1e-3 + 0.5e-3),
        (9e9, 2, (1 - costs.PARALLEL_ARITHMETIC + costs.PARALLEL_ARITHMETIC / 2) * 1e-3 + 0.5e-3),
    ],
)
def test_threads_share_the_memory(graph: Graph, memory: float, threads: int, seconds: float) -> None:
    device = dataclasses.replace(DEVICE, cores=(0, 1, 2, 3), memory_bytes_per_s=memory)
    works = [GroupWork(10**6, 10**6, frozenset(), "convolution", frozenset(), False, False)]
    assert costs.estimate_works(works, device, threads=1) == pytest.approx([2e-3])
    assert costs.estimate_works(works, device, threads=threads) == pytest.approx([seconds + costs.BARRIER_S])


def test_a_chip_of_layers_in_parts_moves_tensors_beside_computing() -> None:
    device = dataclasses.replace(DEVICE, kind="vendor", dataflow=True)
    assert device.overlaps
    assert not dataclasses.replace(device, dataflow=False).overlaps


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
