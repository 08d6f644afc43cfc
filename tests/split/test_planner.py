"""From a graph and a board to a plan: how many stages, where, on which cores."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.board import Board, Cluster, Device, Link
from pipeline.errors import BoardError, PlanError
from pipeline.plans import Plan, decode, encode
from pipeline.simulation import simulate
from pipeline.split.costs import estimate
from pipeline.split.cuts import crossing_bytes
from pipeline.split.graph import Graph
from pipeline.split.planner import Planner, make_plan
from pipeline.split.resources import PARALLEL
from tests.onnx_models import node, save


def board(*cores: int, **options: Any) -> Board:
    return Board("test", (Device("cpu", cores=cores, **options),))


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Six operators that do not fuse, all alike."""
    nodes = [node("Softmax", f"t{number}", f"t{number + 1}", f"n{number}") for number in range(6)]
    path = save(tmp_path_factory.mktemp("chain") / "m.onnx", nodes, {"t0": (64, 64)}, ["t6"])
    return pipeline.read(path)


def last_operators(plan: Plan) -> list[str]:
    return [stage.operators[1] for stage in plan.stages]


def test_a_plan_says_everything(chain: Graph) -> None:
    plan = make_plan(chain, board(0, 1), stages=2, queue_depth=5)
    assert (plan.model, plan.digest) == (chain.name, chain.digest)
    assert (plan.inputs, plan.outputs) == (chain.inputs, chain.outputs)
    assert [stage.name for stage in plan.stages] == ["stage0", "stage1"]
    assert [stage.operators for stage in plan.stages] == [("n0", "n2"), ("n3", "n5")]
    assert [[spec.name for spec in stage.inputs] for stage in plan.stages] == [["t0"], ["t3"]]
    assert [[spec.name for spec in stage.outputs] for stage in plan.stages] == [["t3"], ["t6"]]
    assert [stage.cores for stage in plan.stages] == [(0,), (1,)]
    assert [stage.queue_depth for stage in plan.stages] == [5, 5]
    assert not plan.measured
    assert decode(encode(plan), "here") == plan


def test_predicted_times_are_compute_and_crossing(chain: Graph) -> None:
    where = board(0, 1)
    plan = make_plan(chain, where, stages=2)
    groups, crossing = estimate(chain, where.devices[0]), crossing_bytes(chain)[2] / where.devices[0].bytes_per_s
    assert plan.unsplit_seconds == pytest.approx(sum(groups))
    assert [stage.seconds for stage in plan.stages] == pytest.approx(
        [sum(groups[:3]), sum(groups[3:]) + crossing]  # the reader's caches fetch it
    )
    assert plan.speedup == pytest.approx(sum(groups) / (sum(groups[3:]) + crossing))


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 6])
def test_no_other_cuts_make_the_slowest_stage_faster(chain: Graph, stages: int) -> None:
    generator = np.random.default_rng(stages)
    seconds = generator.exponential(1e-4, 6).tolist()
    where = board(*range(8))
    found = make_plan(chain, where, stages=stages, seconds=seconds)
    others = [
        make_plan(chain, where, cuts=list(cuts), seconds=seconds)
        for cuts in itertools.combinations(range(1, 6), stages - 1)
    ]
    assert found.measured
    assert max(stage.seconds for stage in found.stages) == pytest.approx(
        min(max(stage.seconds for stage in plan.stages) for plan in others)
    )


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        (0, "stages is 0; it must be a whole number of at least 1, or 'auto'"),
        (-3, "stages is -3"),
        ("two", "stages is 'two'"),
        ("2", "stages is '2'"),
        (True, "stages is True"),
        (2.0, "stages is 2.0"),
        (None, "stages is None"),
        (7, r"7 stages need 6 cuts, but 'm' has 5 legal ones: at most 6 stages"),
    ],
)
def test_wrong_numbers_of_stages_are_refused(chain: Graph, stages: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(chain, board(0, 1), stages=stages)


def test_as_many_stages_as_legal(chain: Graph) -> None:
    assert last_operators(make_plan(chain, board(0, 1), stages=6)) == [f"n{number}" for number in range(6)]


# Automatic.


def test_auto_replicates_where_cores_are_alike(chain: Graph) -> None:
    """No cut balances as well as whole frames do."""
    plan = make_plan(chain, board(0, 1, 2), seconds=[1e-2] * 6)
    assert [(stage.replicas, stage.cores) for stage in plan.stages] == [(3, (0, 1, 2))]
    assert plan.slowest == pytest.approx(2e-2)


def test_auto_without_replicas_takes_a_stage_for_each_core(chain: Graph) -> None:
    assert len(make_plan(chain, board(0, 1), seconds=[1e-2] * 6, replicas=False).stages) == 2
    assert len(make_plan(chain, board(0, 1, 2), seconds=[1e-2] * 6, replicas=False).stages) == 3


def test_auto_takes_one_stage_on_one_core(chain: Graph) -> None:
    assert len(make_plan(chain, board(0)).stages) == 1
    assert len(make_plan(chain, board()).stages) == 1


def test_auto_takes_one_stage_where_pipelining_does_not_help(chain: Graph) -> None:
    """One operator takes nearly all the time: wherever the cut is, the slowest stage is as slow as the whole."""
    plan = make_plan(chain, board(0, 1), seconds=[1e-6, 1e-6, 1.0, 1e-6, 1e-6, 1e-6], replicas=False)
    assert [stage.cores for stage in plan.stages] == [(0, 1)], "two threads do"
    assert plan.speedup == pytest.approx(1 / (1 - PARALLEL / 2), rel=1e-3)


def test_auto_takes_no_stage_more_than_is_worth_it(chain: Graph) -> None:
    """With four cores a third and a fourth stage would not make the slowest one faster."""
    times = [0, 0, 1e-2, 1e-2, 0, 0]
    assert len(make_plan(chain, board(0, 1), seconds=times, replicas=False).stages) == 2
    assert len(make_plan(chain, board(0, 1, 2, 3), seconds=times, replicas=False).stages) == 2


def test_auto_with_devices_makes_one_stage_for_each(chain: Graph) -> None:
    where = Board("two", (Device("a", cores=(0,)), Device("b", cores=(1,), flops=4e9, bytes_per_s=16e9, launch_s=5e-7)))
    plan = make_plan(chain, where, devices=["a", "b"])
    assert [stage.device for stage in plan.stages] == ["a", "b"]
    assert last_operators(plan) == ["n1", "n5"], "the device that is twice as fast gets twice the work"


def test_auto_without_legal_cuts(tmp_path: Path) -> None:
    graph = pipeline.read(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (2,)}, ["y"]))
    assert len(make_plan(graph, board(0, 1)).stages) == 1
    with pytest.raises(PlanError, match="'m' has 0 legal ones: at most 1 stages"):
        make_plan(graph, board(0, 1), stages=2)


# Cuts and devices.


def test_given_cuts(chain: Graph) -> None:
    assert last_operators(make_plan(chain, board(0, 1), cuts=["n4", 1])) == ["n0", "n4", "n5"]
    assert len(make_plan(chain, board(0, 1), cuts=[]).stages) == 1
    assert last_operators(make_plan(chain, board(0, 1), cuts=["t2"], stages=2)) == ["n1", "n5"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cuts": ["t2"], "stages": 3}, "1 cuts make 2 stages, not 3"),
        ({"cuts": ["t22"]}, "unknown cut 't22'"),
        ({"devices": ["cpu"], "stages": 2}, "1 devices for 2 stages; give one for each stage"),
        ({"devices": ["cpu"] * 3, "cuts": [2]}, "3 devices for 2 stages"),
        ({"devices": []}, "stages is 0"),
        ({"queue_depth": 0, "stages": 2}, "queue_depth is 0"),
    ],
    ids=str,
)
def test_what_disagrees_is_refused(chain: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(chain, board(0, 1), **options)


def test_an_unknown_device_is_refused(chain: Graph) -> None:
    with pytest.raises(BoardError, match="no device 'gpu'; it has cpu"):
        make_plan(chain, board(0, 1), devices=["cpu", "gpu"])


def test_a_missing_link_is_refused(chain: Graph) -> None:
    where = Board("far", (Device("cpu", cores=(0,)), Device("far", memory="far")))
    with pytest.raises(BoardError, match=r"no link between .(far|host). .* and .(far|host)."):
        make_plan(chain, where, devices=["cpu", "far"])
    assert {stage.device for stage in make_plan(chain, where).stages} == {"cpu"}, "the planner does without it"


def test_a_slow_link_costs_the_side_away_from_the_caller(chain: Graph) -> None:
    devices = (Device("cpu", cores=(0,)), Device("far", memory="far"))
    where = Board("far", devices, (Link(("far", "host"), 1e6, 0.5),))
    plan = make_plan(chain, where, devices=["cpu", "far"])
    transfer = 0.5 + 64 * 64 * 4 / 1e6
    there_and_back, at_home = 2 * transfer, 0.0
    for stage, expected in zip(plan.stages, (at_home, there_and_back), strict=True):
        assert expected < stage.seconds < expected + 0.01


# Cores.


@pytest.mark.parametrize(
    ("cores", "stages", "expected"),
    [
        ((0, 1, 2, 3), 2, [(0, 1), (2, 3)]),
        ((4, 6, 9), 2, [(4, 6), (9,)]),
        ((0, 1, 2, 3, 4), 3, [(0, 1), (2, 3), (4,)]),
        ((0, 1, 2), 3, [(0,), (1,), (2,)]),
        ((5,), 1, [(5,)]),
        ((), 2, [(), ()]),
    ],
)
def test_cores_are_divided_evenly(
    chain: Graph, cores: tuple[int, ...], stages: int, expected: list[tuple[int, ...]]
) -> None:
    assert [stage.cores for stage in make_plan(chain, board(*cores), stages=stages).stages] == expected


def test_more_stages_than_cores_share_them_by_their_work(chain: Graph) -> None:
    plan = make_plan(chain, board(0, 1), cuts=[1, 2, 3], seconds=[5e-2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2])
    assert [stage.cores for stage in plan.stages] == [(0,), (1,), (1,), (1,)]
    assert plan.slowest == pytest.approx(5e-2, rel=0.01), "of the core with the most work"


def test_a_core_with_several_stages_bounds_the_pace(chain: Graph) -> None:
    plan = make_plan(chain, board(0), cuts=[3], seconds=[1e-2] * 6)
    assert [stage.cores for stage in plan.stages] == [(0,), (0,)]
    assert plan.slowest == pytest.approx(6e-2, rel=0.01)
    assert plan.speedup <= 1


def test_each_device_divides_its_own_cores(chain: Graph) -> None:
    where = Board("two", (Device("big", cores=(2, 3)), Device("little", cores=(0, 1)), Device("side")))
    plan = make_plan(chain, where, devices=["little", "big", "little", "side"])
    assert [stage.cores for stage in plan.stages] == [(0,), (2, 3), (1,), ()]


def test_a_long_chain_is_planned_at_once(tmp_path: Path) -> None:
    """All parts of planning follow the length of the chain; a quadratic one would meet the test's time limit."""
    count = 2_000
    nodes = [node("Softmax", f"t{number}", f"t{number + 1}") for number in range(count)]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"t0": (1, 4)}, [f"t{count}"]))
    plan = make_plan(graph, board(*range(16)), stages=16)
    assert len(plan.stages) == 16
    assert [stage.operators[1] for stage in plan.stages][7] == f"t{count // 2}"


# Unlike devices.


def test_what_a_device_cannot_run_goes_elsewhere(chain: Graph) -> None:
    where = accelerated()
    times = {"cpu": [1e-2] * 6, "npu": [math.inf, 1e-3, 1e-3, math.inf, 1e-3, 1e-3]}
    plan = make_plan(chain, where, seconds=times)
    assert plan.measured
    for stage in plan.stages:
        begin, end = (int(name[1:]) for name in stage.operators)
        assert math.isfinite(sum(times[stage.device][begin : end + 1]))
    assert [stage.device for stage in plan.stages] == ["cpu", "npu"]
    with pytest.raises(PlanError, match=r"device 'npu' cannot run 'n0' \(softmax\); cut in front of it"):
        make_plan(chain, where, devices=["npu", "cpu"], cuts=[3], seconds=times)
    with pytest.raises(PlanError, match="cannot run on npu, cpu in this order"):
        make_plan(chain, where, devices=["npu", "cpu"], seconds=times)
    with pytest.raises(PlanError, match=r"no device of board 'npu' \(npu\) can run 'n0' \(softmax\)"):
        make_plan(chain, Board("npu", where.devices[1:]), seconds={"npu": times["npu"]})


def test_devices_in_a_given_order_avoid_what_they_cannot_run(chain: Graph) -> None:
    times = {"cpu": [1e-2] * 6, "npu": [math.inf, 1e-3, 1e-3, math.inf, 1e-3, 1e-3]}
    plan = make_plan(chain, accelerated(), devices=["cpu", "npu", "cpu"], seconds=times)
    assert last_operators(plan)[1:] == ["n2", "n5"]


def test_a_number_of_stages_chooses_devices(chain: Graph) -> None:
    times = {"cpu": [1e-2] * 6, "npu": [1e-2] * 6}
    plan = make_plan(chain, accelerated(), stages=2, seconds=times)
    assert sorted(stage.device for stage in plan.stages) == ["cpu", "npu"]
    assert all(stage.replicas == 1 for stage in plan.stages)


def accelerated() -> Board:
    devices = (Device("cpu", cores=(0, 1)), Device("npu", "simulated", memory="npu"))
    return Board("npu", devices, (Link(("host", "npu"), 1e9, 1e-5),))


def test_replicas_use_unlike_cores(chain: Graph) -> None:
    cpu = Device("cpu", clusters=(Cluster("big", (2, 3)), Cluster("little", (0, 1), 0.5)))
    plan = make_plan(chain, Board("two kinds", (cpu,)), seconds=[1e-2] * 6)
    (stage,) = plan.stages
    assert (stage.replicas, stage.cores) == (4, (2, 3, 0, 1))
    assert plan.slowest == pytest.approx(6e-2 / (2 * 1 + 2 * 0.5)), "the sum of their rates"


def test_latency_at_a_rate(chain: Graph) -> None:
    where, times = board(0, 1, 2, 3), [1e-2] * 6
    quick = make_plan(chain, where, seconds=times, objective="latency")
    assert [stage.cores for stage in quick.stages] == [(0, 1, 2, 3)], "all cores work on one frame"
    busy = make_plan(chain, where, seconds=times, fps=1 / 2e-2)
    assert busy.slowest <= 2e-2
    assert sum(stage.seconds for stage in quick.stages) < sum(stage.seconds for stage in busy.stages)
    with pytest.raises(PlanError, match=r"'m' reaches 66\.67 frames/s on 'test', not 100"):
        make_plan(chain, where, seconds=times, fps=100)


def test_energy_takes_the_frugal_device_where_it_keeps_up(chain: Graph) -> None:
    devices = (Device("cpu", cores=(0,), watts_busy=4.0), Device("dsp", "simulated", watts_busy=0.5))
    times = {"cpu": [1e-2] * 6, "dsp": [2e-2] * 6}
    where = Board("frugal", devices)
    assert [stage.device for stage in make_plan(chain, where, seconds=times, objective="energy").stages] == ["dsp"]
    both = make_plan(chain, where, seconds=times, objective="energy", fps=20)
    assert {stage.device for stage in both.stages} == {"cpu", "dsp"}


def test_memory_limits_what_a_device_gets(chain: Graph) -> None:
    tensor = 64 * 64 * 4
    devices = (Device("cpu", cores=(0, 1)), Device("npu", "simulated", memory="npu", memory_bytes=3 * tensor))
    links = (Link(("host", "npu"), 1e9),)
    times = {"cpu": [1e-2] * 6, "npu": [1e-4] * 6}
    # Working on a frame takes two tensors, and waiting frames one each.
    where = Board("b", devices, links)
    little, much = (make_plan(chain, where, seconds=times, queue_depth=depth).stages for depth in (1, 2))
    assert "npu" in {stage.device for stage in little}
    assert "npu" not in {stage.device for stage in much}
    chosen = make_plan(chain, where, seconds=times)
    assert chosen.stages == tuple(replace(stage, queue_depth=2 - (stage.device == "npu")) for stage in little)


def test_queues_are_as_deep_as_times_vary_for_given_and_for_chosen_cuts(chain: Graph) -> None:
    where, times = board(0, 1, 2), [1e-2] * 6
    for options in ({"cuts": [2, 4]}, {"stages": 3}, {"stages": 3, "devices": ["cpu"] * 3}, {"replicas": False}):
        steady, varying = (make_plan(chain, where, seconds=times, variance=each, **options) for each in (0.1, 0.3))
        assert [stage.queue_depth for stage in steady.stages] == [2, 2, 2]
        assert [stage.queue_depth for stage in varying.stages] == [2, 5, 5]
    assert simulate(varying, variance=0.3).frames_per_s > 1.02 * simulate(steady, variance=0.3).frames_per_s


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"objective": "speed"}, "objective is 'speed'; it must be one of throughput, latency, energy"),
        ({"fps": 0}, "fps is 0; it must be above 0"),
        ({"fps": math.inf}, "fps is inf"),
        ({"queue_depth": "deep"}, "queue_depth is 'deep'; it must be at least 1, or 'auto'"),
        ({"variance": -0.1}, "variance is -0.1; it must be a share of a stage's time, 0 to 1"),
    ],
    ids=str,
)
def test_wrong_goals_are_refused(chain: Graph, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_plan(chain, board(0, 1), **options)


def test_a_stage_on_another_machine_overlaps_its_transfers(chain: Graph) -> None:
    """Two replicas, which do not divide the time that its one device takes, and none of this machine's cores."""
    near = Device("near", cores=(0,), flops=1e9)
    far = Device("far", "remote", cores=(0, 1), memory="far", flops=1e12, address="remote://127.0.0.1:9/cpu")
    two = Board("two machines", (near, far), (Link(("host", "far"), 1e9),))
    plan = make_plan(chain, two, stages=2, devices=["near", "far"])
    stage = plan.stages[1]
    assert (stage.replicas, stage.cores) == (2, ())
    assert stage.moving == pytest.approx(2 * 16384 / 1e9)
    assert plan.slowest == max(plan.stages[0].seconds, stage.seconds - stage.moving, stage.seconds / 2)


# Cores that slow each other.

ALONE, CROWDED = [1e-3] * 6, {"cpu": [1.5e-3] * 6}


def test_stages_and_replicas_take_what_groups_take_while_other_cores_are_busy(chain: Graph) -> None:
    given = Planner(chain, board(0, 1), ALONE, crowded=CROWDED)
    for plan in (given.plan(stages=2), given.plan(stages="auto")):
        assert sum(stage.seconds for stage in plan.stages) == pytest.approx(9e-3, rel=0.01)
        assert plan.unsplit_seconds == pytest.approx(6e-3)


def test_a_device_with_one_core_is_slowed_by_nobody(chain: Graph) -> None:
    (stage,) = Planner(chain, board(0), ALONE, crowded=CROWDED).plan(stages=1).stages
    assert stage.seconds == pytest.approx(6e-3, rel=0.01)


def test_the_better_way_is_chosen_by_what_cores_lose(chain: Graph) -> None:
    far = Device("npu", memory="npu")
    where = Board("both", (*board(0, 1).devices, far), (Link(("host", "npu"), 1e12),))

    def devices(factor: float) -> set[str]:
        given = {"cpu": [1e-2] * 6, "npu": [0.8e-2] * 6}
        return {
            stage.device for stage in Planner(chain, where, given, crowded={"cpu": [factor * 1e-2] * 6}).plan().stages
        }

    assert "cpu" in devices(1.1)
    assert devices(60.0) == {"npu"}
