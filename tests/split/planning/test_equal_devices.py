"""Replicas over equal devices: cores of an NPU, sticks, GPUs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import boards
import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import decode, encode
from pipeline.prediction.predict import predict
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner

CPU = Device("cpu", cores=(0, 1), watts_idle=1.0, watts_busy=3.0)
SLOW, FAST = [4e-2] * 6, [2e-3] * 6


def board_of(kind: str, count: int, *, memories: bool = False, latency_s: float = 1e-5) -> Board:
    """Return a CPU beside equal devices, in one memory or each in its own."""
    names = [f"dev{number}" for number in range(count)]
    devices = [
        Device(
            name, kind, number, memory=name if memories else "dev", watts_busy=1.0, target={"options": {"core": name}}
        )
        for number, name in enumerate(names)
    ]
    links = tuple(
        Link(("host", memory), 1e9, latency_s) for memory in dict.fromkeys(device.memory for device in devices)
    )
    return Board("equal", (CPU, *devices), links)


def planner(graph: Graph, board: Board) -> Planner:
    times = {device.name: SLOW if device.cores else FAST for device in board.devices}
    return Planner(graph, board, times)


@pytest.mark.parametrize(
    ("board", "replica_devices"),
    [
        (board_of("simulated", 3), ("dev0", "dev1", "dev2")),
        (board_of("simulated", 2, memories=True), ("dev0", "dev1")),
        (board_of("vendor", 5), tuple(f"dev{number}" for number in range(5))),
        # Two replicas on each, so that one frame moves while another is computed.
        (board_of("cuda", 2, memories=True), ("dev0", "dev1", "dev0", "dev1")),
    ],
    ids=["NPU cores", "sticks", "many", "GPUs"],
)
def test_the_model_runs_on_each_of_them(chain: Graph, board: Board, replica_devices: tuple[str, ...]) -> None:
    own_planner = planner(chain, board)
    plan = own_planner.plan()
    (stage,) = plan.stages
    assert stage.replica_devices == replica_devices
    assert stage.cores == ()
    count = len(set(replica_devices))
    prediction = predict(plan)
    assert prediction.interval_s == pytest.approx(12e-3 / count, rel=0.03)
    assert prediction.latency_s < 13e-3
    assert prediction.joules == pytest.approx(12e-3, rel=0.05)
    assert decode(encode(plan), "test") == plan
    assert 1 / simulate(plan, frames=2000, overhead=0.0).frames_per_s == pytest.approx(prediction.interval_s, rel=0.02)
    explanation = explain(own_planner, plan)
    assert explanation.stages[0].devices == tuple(dict.fromkeys(replica_devices))
    assert explanation.verdict == "replicas"


def test_each_replica_uses_the_link_of_its_own_memory(chain: Graph) -> None:
    slow_links = planner(chain, board_of("simulated", 3, memories=True, latency_s=5e-3))
    plan = slow_links.plan()
    assert plan.stages[0].replicas == 3
    loads = predict(plan).loads
    # Each frame takes 5 ms to its device and 5 ms back, and there are three of them.
    assert [loads[f"link host - dev{number}"] for number in range(3)] == pytest.approx([10.1e-3 / 3] * 3, rel=0.02)
    shared = planner(chain, board_of("simulated", 3, latency_s=5e-3)).plan()
    assert predict(shared).interval_s >= 10e-3 > predict(plan).interval_s


def test_a_stage_of_several_runs_on_each_of_them(chain: Graph) -> None:
    own_planner = planner(chain, board_of("simulated", 2))
    pinned = dataclasses.replace(own_planner, refusals={f"dev{number}": {0: "no such operator"} for number in (0, 1)})
    pinned = dataclasses.replace(pinned, isolated={"cpu": [1e-3] + [4e-2] * 5, "dev0": FAST, "dev1": FAST})
    stages = pinned.plan(heterogeneous=False).stages
    assert [stage.device for stage in stages] == ["cpu", "dev0"]
    assert stages[1].replica_devices == ("dev0", "dev1")


def test_what_one_of_them_refuses_is_not_spread(chain: Graph) -> None:
    own_planner = dataclasses.replace(planner(chain, board_of("simulated", 2)), refusals={"dev1": {3: "no"}})
    assert not any(stage.replica_devices for stage in own_planner.plan().stages)


@pytest.mark.parametrize("fields", [{"flops": 1e9}, {"kind": "null"}, {"memory_bytes": 7}, {"at_once": 2}])
def test_unlike_devices_are_not_spread_over(chain: Graph, fields: dict[str, object]) -> None:
    board = board_of("simulated", 2)
    unlike = dataclasses.replace(board.devices[2], **fields)  # type: ignore[arg-type]
    plan = planner(chain, dataclasses.replace(board, devices=(*board.devices[:2], unlike))).plan()
    assert not any(stage.replica_devices for stage in plan.stages)


@pytest.mark.parametrize("options", [{"replicas": False}, {"stages": 2}, {"devices": ["dev0"]}])
def test_requests_of_one_worker_are_kept(chain: Graph, options: dict[str, object]) -> None:
    plan = planner(chain, board_of("simulated", 3)).plan(**options)  # type: ignore[arg-type]
    assert all(stage.replicas == 1 and not stage.replica_devices for stage in plan.stages)


def test_memories_of_their_own_hold_one_copy_each(chain: Graph) -> None:
    """Two copies of the weights do not fit into the memory of one stick, but one fits into that of each."""
    board = board_of("simulated", 2, memories=True)

    def of_size(nbytes: int) -> Board:
        devices = [dataclasses.replace(device, memory_bytes=nbytes) for device in board.devices[1:]]
        return dataclasses.replace(board, devices=(CPU, *devices))

    plan = planner(chain, board).plan()
    needed = explain(planner(chain, board), plan).stages[0].memory_bytes
    assert planner(chain, of_size(needed)).plan().stages[0].replicas == 2
    assert not planner(chain, of_size(needed // 3)).plan().stages[0].replica_devices


def test_the_cores_of_a_board_s_npu_are_equal() -> None:
    """Figures for the first one alone would leave two to share the frames."""
    npus = [device for device in boards.get("rk3588").devices if not device.cores]
    assert len({device.likeness for device in npus}) == 1
    assert len({device.accuracy for device in npus}) == 1


def test_a_board_with_three_equal_cores_of_an_npu(digits_onnx: Path) -> None:
    board = boards.get("rk3588")
    # A CPU of little use, whatever its figures.
    cpu = dataclasses.replace(board.devices[0], flops=1e6, int8_flops=1e6)
    plan = Planner(pipeline.read(digits_onnx), dataclasses.replace(board, devices=(cpu, *board.devices[1:]))).plan()
    # Two are enough where the link's 0.2 ms per copy set the pace.
    assert plan.stages[0].replica_devices[:2] == ("npu0", "npu1")
