"""Plans on boards with unlike devices, cores and links, under goals and limits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from pipeline.core.board.board import Board, Cluster, Device, Link
from pipeline.core.plan.plan import Plan, TensorSpec
from pipeline.errors import PlanError
from pipeline.prediction.contention import WAKING_S
from pipeline.prediction.predict import predict
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from pipeline.split.model_operators import Operator
from pipeline.split.planning.planner import Planner
from tests.support.planning import plan_with_times
from tests.support.small_plans import host, last_operators


def test_what_a_device_cannot_run_goes_elsewhere(chain: Graph) -> None:
    board = accelerator_board()
    times = {"cpu": [1e-2] * 6, "npu": [math.inf, 1e-3, 1e-3, math.inf, 1e-3, 1e-3]}
    plan = plan_with_times(chain, board, seconds=times)
    assert plan.measured
    for stage in plan.stages:
        begin, end = (int(name[1:]) for name in stage.operators)
        assert math.isfinite(sum(times[stage.device][begin : end + 1]))
    assert [stage.device for stage in plan.stages] == ["cpu", "npu"]
    with pytest.raises(PlanError, match=r"device 'npu' cannot run 'n0' \(softmax\); cut in front of it"):
        plan_with_times(chain, board, devices=["npu", "cpu"], cuts=[3], seconds=times)
    with pytest.raises(PlanError, match="cannot run on npu, cpu in this order"):
        plan_with_times(chain, board, devices=["npu", "cpu"], seconds=times)
    with pytest.raises(PlanError, match=r"no device of board 'npu' \(npu\) can run 'n0' \(softmax\)"):
        plan_with_times(chain, Board("npu", board.devices[1:]), seconds={"npu": times["npu"]})


def test_devices_in_a_given_order_avoid_what_they_cannot_run(chain: Graph) -> None:
    times = {"cpu": [1e-2] * 6, "npu": [math.inf, 1e-3, 1e-3, math.inf, 1e-3, 1e-3]}
    plan = plan_with_times(chain, accelerator_board(), devices=["cpu", "npu", "cpu"], seconds=times)
    assert last_operators(plan)[1:] == ["n2", "n5"]


def test_a_number_of_stages_chooses_devices(chain: Graph) -> None:
    times = {"cpu": [1e-2] * 6, "npu": [1e-2] * 6}
    plan = plan_with_times(chain, accelerator_board(), stages=2, seconds=times)
    assert sorted(stage.device for stage in plan.stages) == ["cpu", "npu"]
    assert all(stage.replicas == 1 for stage in plan.stages)


def accelerator_board() -> Board:
    devices = (Device("cpu", cores=(0, 1)), Device("npu", "simulated", memory="npu"))
    return Board("npu", devices, (Link(("host", "npu"), 1e9, 1e-5),))


def test_replicas_use_unlike_cores(chain: Graph) -> None:
    cpu = Device("cpu", clusters=(Cluster("big", (2, 3)), Cluster("little", (0, 1), 0.5)))
    plan = plan_with_times(chain, Board("two kinds", (cpu,)), seconds=[1e-2] * 6)
    (stage,) = plan.stages
    assert (stage.replicas, stage.cores) == (4, (2, 3, 0, 1))
    rate = 2 / (6e-2 + WAKING_S) + 2 / (12e-2 + WAKING_S)
    assert predict(plan).interval_s == pytest.approx(1 / rate), "the sum of their rates"


def test_latency_at_a_rate(chain: Graph) -> None:
    board, times = host(0, 1, 2, 3), [1e-2] * 6
    quick = plan_with_times(chain, board, seconds=times, objective="latency")
    assert [stage.cores for stage in quick.stages] == [(0, 1, 2, 3)], "all cores work on one frame"
    busy = plan_with_times(chain, board, seconds=times, fps=1 / 2e-2)
    assert predict(busy).interval_s <= 2e-2
    assert sum(stage.seconds for stage in quick.stages) < sum(stage.seconds for stage in busy.stages)
    with pytest.raises(PlanError, match=r"'m' reaches 66\.61 frames/s on 'test', not 100"):
        plan_with_times(chain, board, seconds=times, fps=100)


def test_energy_takes_the_frugal_device_where_it_keeps_up(chain: Graph) -> None:
    devices = (Device("cpu", cores=(0,), watts_busy=4.0), Device("dsp", "simulated", watts_busy=0.5))
    times = {"cpu": [1e-2] * 6, "dsp": [2e-2] * 6}
    board = Board("frugal", devices)
    assert [stage.device for stage in plan_with_times(chain, board, seconds=times, objective="energy").stages] == [
        "dsp"
    ]
    plan = plan_with_times(chain, board, seconds=times, objective="energy", fps=20)
    assert {stage.device for stage in plan.stages} == {"cpu", "dsp"}


def test_energy_without_power_is_refused(chain: Graph) -> None:
    devices = (Device("cpu", cores=(0,)), Device("dsp", "simulated", watts_busy=0.5), Device("npu", "simulated"))
    board, times = Board("silent", devices), {name: [1e-2] * 6 for name in ("cpu", "dsp", "npu")}
    message = "board 'silent' has none of 'cpu', 'npu': give 'watts_idle' and 'watts_busy' in its file"
    with pytest.raises(PlanError, match=message):
        plan_with_times(chain, board, seconds=times, objective="energy")
    # Others are not asked for.
    plan = plan_with_times(chain, board, seconds=times, objective="energy", devices=["dsp"])
    assert [stage.device for stage in plan.stages] == ["dsp"]


def test_memory_limits_what_a_device_gets(chain: Graph) -> None:
    tensor = 64 * 64 * 4
    devices = (Device("cpu", cores=(0, 1)), Device("npu", "simulated", memory="npu", memory_bytes=3 * tensor))
    links = (Link(("host", "npu"), 1e9),)
    times = {"cpu": [1e-2] * 6, "npu": [1e-4] * 6}
    # Working on a frame takes two tensors, and waiting frames one each.
    board = Board("b", devices, links)
    little, much = (plan_with_times(chain, board, seconds=times, queue_depth=depth).stages for depth in (1, 2))
    assert "npu" in {stage.device for stage in little}
    assert "npu" not in {stage.device for stage in much}
    automatic = plan_with_times(chain, board, seconds=times)
    assert automatic.stages == tuple(replace(stage, queue_depth=2 - (stage.device == "npu")) for stage in little)


def npu_board(cpu_bytes: int, npu_bytes: int) -> Board:
    cpu = Device("cpu", cores=(0, 1), memory_bytes=cpu_bytes)
    npu = Device("npu", "simulated", memory="npu", memory_bytes=npu_bytes)
    return Board("b", (cpu, npu), (Link(("host", "npu"), 1e9),))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"cuts": ["t2"], "devices": ["cpu", "npu"]},
            r"the memory 'npu' of board 'b' has 0.0001 MB, and these stages need 0.0492 MB of it: stage1 on npu",
        ),
        ({"cuts": ["t2"], "devices": ["npu", "cpu"]}, "the memory 'npu' .* stage0 on npu 0.0492 MB; cut elsewhere"),
        ({"stages": 2, "devices": ["cpu", "npu"]}, "the memories of board 'b' are too small for it: 'npu' 0.0001 MB"),
    ],
)
def test_fixed_stages_are_held_against_each_memory(chain: Graph, options: dict[str, Any], message: str) -> None:
    times = {"cpu": [1e-2] * 6, "npu": [1e-4] * 6}
    with pytest.raises(PlanError, match=f"^'m' cannot run: {message}"):
        plan_with_times(chain, npu_board(0, 100), seconds=times, **options)
    plan = plan_with_times(chain, npu_board(0, 49_152), seconds=times, **options)
    assert {stage.device for stage in plan.stages} == {"cpu", "npu"}


def test_stages_of_one_memory_are_held_against_it_together(chain: Graph) -> None:
    # Each needs three tensors of 16,384 bytes: two that are alive, and one that waits.
    times = {"cpu": [1e-2] * 6, "npu": [1e-4] * 6}
    message = "need 0.0983 MB of it: stage0 on cpu 0.0492 MB, stage1 on cpu 0.0492 MB"
    with pytest.raises(PlanError, match=message):
        plan_with_times(chain, npu_board(98_303, 0), seconds=times, cuts=["t3"])
    assert len(plan_with_times(chain, npu_board(98_304, 0), seconds=times, cuts=["t3"]).stages) == 2
    with pytest.raises(PlanError, match=r"9\.83 MB are for frames that wait: ask for shorter queues"):
        plan_with_times(chain, npu_board(98_304, 0), seconds=times, cuts=["t3"], queue_depth=300)
    with pytest.raises(PlanError, match="its weights alone take 0 MB, and tensors and queues come on top"):
        plan_with_times(chain, npu_board(100, 100), seconds=times)


def test_queues_are_as_deep_as_times_vary_for_given_and_for_chosen_cuts(chain: Graph) -> None:
    board, times = host(0, 1, 2), [1e-2] * 6
    for options in ({"cuts": [2, 4]}, {"stages": 3}, {"stages": 3, "devices": ["cpu"] * 3}, {"replicas": False}):
        steady, varying = (plan_with_times(chain, board, seconds=times, cv=each, **options) for each in (0.1, 0.3))
        assert [stage.queue_depth for stage in steady.stages] == [2, 2, 2]
        assert [stage.queue_depth for stage in varying.stages] == [2, 5, 5]
    assert simulate(varying, cv=0.3).frames_per_s > 1.02 * simulate(steady, cv=0.3).frames_per_s


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "speed"}, "objective is 'speed'; it must be one of throughput, latency, energy"),
        ({"fps": 0}, "fps is 0; it must be a number above 0"),
        ({"fps": math.inf}, "fps is inf"),
        ({"fps": "30"}, "fps is '30'; it must be a number above 0"),
        ({"cuts": "n1"}, r"cuts is 'n1'; give a list, such as \['n1'\]"),
        ({"stages": 1, "devices": "cpu"}, r"devices is 'cpu'; give a list, such as \['cpu'\]"),
        ({"queue_depth": "deep"}, "queue_depth is 'deep'; it must be at least 1, or 'auto'"),
        ({"cv": -0.1}, "cv is -0.1; the coefficient of variation of a stage's time is 0 to 1"),
    ],
    ids=str,
)
def test_wrong_goals_are_refused(chain: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan_with_times(chain, host(0, 1), **options)


def test_stages_share_the_cores_that_other_devices_leave_too_few(chain: Graph) -> None:
    devices = (Device("cpu", cores=(0,)), Device("npu", "simulated", memory="npu"))
    board = Board("b", devices, (Link(("host", "npu"), 1e9),))
    times = {"cpu": [1e-2] * 6, "npu": [2e-3] * 6}
    for stages in (3, 4):
        plan = Planner(chain, board, times).plan(stages=stages)
        assert [stage.device for stage in plan.stages].count("npu") == 1
        assert {stage.cores for stage in plan.stages if stage.device == "cpu"} == {(0,)}


def test_what_takes_no_time_is_planned(chain: Graph) -> None:
    devices = (Device("cpu", cores=(0, 1)), Device("npu", "vta", memory="npu", at_once=2))
    board = Board("b", devices, (Link(("host", "npu"), 1e30),))
    planner = Planner(chain, board, {"cpu": [0.0] * 6, "npu": [0.0] * 6})
    for options in ({}, {"stages": 2}, {"fps": 30}, {"objective": "latency"}):
        assert predict(planner.plan(**options)).interval_s == pytest.approx(0, abs=1e-4)


def test_a_rate_is_kept_by_the_plan_as_it_is_predicted() -> None:
    """A tensor that passes by a stage is copied to the accelerator by another worker than the solver thinks."""
    sizes = {"x": 1000, "t0": 1_000_000, "t1": 1000, "t2": 1000, "t3": 1000}
    specs = {name: TensorSpec(name, (size,), "uint8") for name, size in sizes.items()}
    reads = (("x",), ("t0",), ("t1",), ("t0", "t2"))
    operators = tuple(
        Operator(f"n{number}", "softmax", inputs, (f"t{number}",), 1, 0, number) for number, inputs in enumerate(reads)
    )
    graph = Graph("skip", operators, specs, (specs["x"],), (specs["t3"],))
    devices = (Device("cpu", cores=(0, 1)), Device("npu", "vta", memory="npu", at_once=2))
    board = Board("b", devices, (Link(("host", "npu"), 5e8),))
    planner = Planner(graph, board, {"cpu": [4e-3, 9e-3, 9e-3, 9e-3], "npu": [9e-3, 1e-3, 1e-3, 2e-3]})
    fastest = predict(planner.plan(objective="throughput", heterogeneous=False)).frames_per_s
    for share in (0.5, 0.8, 0.9, 0.95, 0.999):
        assert predict(planner.plan(fps=share * fastest, heterogeneous=False)).frames_per_s >= share * fastest


def test_a_stage_on_another_machine_overlaps_its_transfers(chain: Graph) -> None:
    """Two replicas, which do not divide the time that its one device takes, and none of this machine's cores."""
    local = Device("near", cores=(0,), flops=1e9)
    remote = Device("far", "remote", memory="far", flops=1e12, address="remote://127.0.0.1:9/cpu")
    two = Board("two machines", (local, remote), (Link(("host", "far"), 1e9),))
    plan = plan_with_times(chain, two, stages=2, devices=["near", "far"])
    stage = plan.stages[1]
    assert (stage.replicas, stage.cores) == (2, ())
    assert stage.transfer_s == pytest.approx(2 * 16384 / 1e9)
    compute_s = stage.seconds - stage.transfer_s
    # The link carries one tensor at a time.
    assert predict(plan).interval_s == max(
        plan.stages[0].seconds + WAKING_S, compute_s, (stage.seconds + WAKING_S) / 2, stage.transfer_s
    )


@pytest.mark.parametrize("known", [{"cores": (0, 1, 2, 3)}, {"slots": 4}, {"cores": (4, 5), "slots": 4}])
def test_slots_of_a_server_are_replicas_that_overlap_their_transfers(chain: Graph, known: dict[str, Any]) -> None:
    """A server shares its cores out itself: plans for it give them to nobody, and count frames instead."""
    local = Device("near", cores=(0,), flops=1e9)
    link = (Link(("host", "far"), 1e12),)

    def make_plan(**options: Any) -> Plan:
        far = Device("far", "remote", memory="far", flops=1e9, address="remote://127.0.0.1:9/cpu", **options)
        return plan_with_times(chain, Board("two machines", (local, far), link))

    plan, of_one = make_plan(**known), make_plan()
    stage = next(stage for stage in plan.stages if stage.device == "far")
    assert (stage.replicas, stage.cores) == (8, ())
    # The board's own core computes as well; its share is no multiple of an operator.
    assert predict(plan).interval_s < predict(of_one).interval_s / 2
    assert predict(plan).interval_s >= (stage.seconds - stage.transfer_s) / 4
    assert simulate(plan, frames=400, overhead=0).frames_per_s == pytest.approx(predict(plan).frames_per_s, rel=0.02)


# Cores that slow each other.


def test_a_graph_without_operators_is_refused(chain: Graph) -> None:
    empty = replace(chain, operators=(), outputs=chain.inputs)
    with pytest.raises(PlanError, match="'m' has no operators, so that there is nothing to plan"):
        plan_with_times(empty, host(0, 1))
