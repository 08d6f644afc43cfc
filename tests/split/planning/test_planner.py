"""From a graph and a board to a plan: how many stages, where, on which cores."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.board.transfer_costs import LAYOUT
from pipeline.core.plan.plan import decode, encode
from pipeline.errors import BoardError, PlanError
from pipeline.prediction.contention import WAKING_S
from pipeline.prediction.predict import predict
from pipeline.split.cuts import crossing_bytes
from pipeline.split.graph import Graph
from pipeline.split.planning.planner import Planner
from pipeline.split.planning.problem.costs import PARALLEL, estimate
from tests.support.onnx_models import node, save
from tests.support.planning import plan_with_times
from tests.support.small_plans import host, last_operators


def test_a_plan_says_everything(chain: Graph) -> None:
    plan = plan_with_times(chain, host(0, 1), stages=2, queue_depth=5)
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
    board = host(0, 1)
    plan = plan_with_times(chain, board, stages=2)
    groups, crossing_s = estimate(chain, board.devices[0]), crossing_bytes(chain)[2] / board.devices[0].bytes_per_s
    assert plan.unsplit_seconds == pytest.approx(sum(groups))
    assert [stage.seconds for stage in plan.stages] == pytest.approx(
        # The reader's caches fetch it, and both change its layout.
        [sum(groups[:3]) + LAYOUT * crossing_s, sum(groups[3:]) + (1 + LAYOUT) * crossing_s]
    )
    assert plan.unsplit_seconds * predict(plan).frames_per_s == pytest.approx(
        sum(groups) / (plan.stages[1].seconds + WAKING_S)
    )


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 6])
def test_no_other_cuts_make_the_slowest_stage_faster(chain: Graph, stages: int) -> None:
    generator = np.random.default_rng(stages)
    seconds = generator.exponential(1e-4, 6).tolist()
    board = host(*range(8))
    plan = plan_with_times(chain, board, stages=stages, seconds=seconds)
    alternatives = [
        plan_with_times(chain, board, cuts=list(cuts), seconds=seconds)
        for cuts in itertools.combinations(range(1, 6), stages - 1)
    ]
    assert plan.measured
    assert max(stage.seconds for stage in plan.stages) == pytest.approx(
        min(max(stage.seconds for stage in plan.stages) for plan in alternatives)
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
        plan_with_times(chain, host(0, 1), stages=stages)


def test_as_many_stages_as_legal(chain: Graph) -> None:
    assert last_operators(plan_with_times(chain, host(0, 1), stages=6)) == [f"n{number}" for number in range(6)]


# Automatic.


def test_auto_replicates_where_cores_are_alike(chain: Graph) -> None:
    """No cut balances as well as whole frames do."""
    plan = plan_with_times(chain, host(0, 1, 2), seconds=[1e-2] * 6)
    assert [(stage.replicas, stage.cores) for stage in plan.stages] == [(3, (0, 1, 2))]
    assert predict(plan).interval_s == pytest.approx(2e-2 + WAKING_S / 3)


def test_auto_without_replicas_takes_a_stage_for_each_core(chain: Graph) -> None:
    assert len(plan_with_times(chain, host(0, 1), seconds=[1e-2] * 6, replicas=False).stages) == 2
    assert len(plan_with_times(chain, host(0, 1, 2), seconds=[1e-2] * 6, replicas=False).stages) == 3


def test_auto_takes_one_stage_on_one_core(chain: Graph) -> None:
    assert len(plan_with_times(chain, host(0)).stages) == 1
    assert len(plan_with_times(chain, host()).stages) == 1


def test_auto_takes_one_stage_where_pipelining_does_not_help(chain: Graph) -> None:
    """One operator takes nearly all the time: wherever the cut is, the slowest stage is as slow as the whole."""
    plan = plan_with_times(chain, host(0, 1), seconds=[1e-6, 1e-6, 1.0, 1e-6, 1e-6, 1e-6], replicas=False)
    assert [stage.cores for stage in plan.stages] == [(0, 1)], "two threads do"
    assert plan.unsplit_seconds * predict(plan).frames_per_s == pytest.approx(1 / (1 - PARALLEL / 2), rel=1e-3)


def test_auto_takes_no_stage_more_than_is_worth_it(chain: Graph) -> None:
    """With four cores a third and a fourth stage would not make the slowest one faster."""
    times = [0, 0, 1e-2, 1e-2, 0, 0]
    assert len(plan_with_times(chain, host(0, 1), seconds=times, replicas=False).stages) == 2
    assert len(plan_with_times(chain, host(0, 1, 2, 3), seconds=times, replicas=False).stages) == 2


def test_auto_with_devices_makes_one_stage_for_each(chain: Graph) -> None:
    board = Board("two", (Device("a", cores=(0,)), Device("b", cores=(1,), flops=4e9, bytes_per_s=16e9, launch_s=5e-7)))
    plan = plan_with_times(chain, board, devices=["a", "b"])
    assert [stage.device for stage in plan.stages] == ["a", "b"]
    assert last_operators(plan) == ["n1", "n5"], "the device that is twice as fast gets twice the work"


def test_auto_without_legal_cuts(tmp_path: Path) -> None:
    graph = pipeline.read(save(tmp_path / "m.onnx", [node("Relu", "x", "y")], {"x": (2,)}, ["y"]))
    assert len(plan_with_times(graph, host(0, 1)).stages) == 1
    with pytest.raises(PlanError, match="'m' has 0 legal ones: at most 1 stages"):
        plan_with_times(graph, host(0, 1), stages=2)


# Cuts and devices.


def test_given_cuts(chain: Graph) -> None:
    assert last_operators(plan_with_times(chain, host(0, 1), cuts=["n4", 1])) == ["n0", "n4", "n5"]
    assert len(plan_with_times(chain, host(0, 1), cuts=[]).stages) == 1
    assert last_operators(plan_with_times(chain, host(0, 1), cuts=["t2"], stages=2)) == ["n1", "n5"]


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
        plan_with_times(chain, host(0, 1), **options)


def test_an_unknown_device_is_refused(chain: Graph) -> None:
    with pytest.raises(BoardError, match="no device 'gpu'; it has cpu"):
        plan_with_times(chain, host(0, 1), devices=["cpu", "gpu"])


def test_a_missing_link_is_refused(chain: Graph) -> None:
    board = Board("far", (Device("cpu", cores=(0,)), Device("far", memory="far")))
    with pytest.raises(BoardError, match=r"no link between .(far|host). .* and .(far|host)."):
        plan_with_times(chain, board, devices=["cpu", "far"])
    assert {stage.device for stage in plan_with_times(chain, board).stages} == {"cpu"}, "the planner does without it"


def test_a_slow_link_costs_the_side_away_from_the_caller(chain: Graph) -> None:
    devices = (Device("cpu", cores=(0,)), Device("far", memory="far"))
    board = Board("far", devices, (Link(("far", "host"), 1e6, 0.5),))
    plan = plan_with_times(chain, board, devices=["cpu", "far"])
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
        ((0, 1, 2, 3, 4), 3, [(0, 1), (2,), (3, 4)]),
        ((0, 1, 2), 3, [(0,), (1,), (2,)]),
        ((5,), 1, [(5,)]),
        ((), 2, [(), ()]),
    ],
)
def test_cores_are_divided_as_evenly_as_the_work(
    chain: Graph, cores: tuple[int, ...], stages: int, expected: list[tuple[int, ...]]
) -> None:
    plan = plan_with_times(chain, host(*cores), stages=stages, seconds=[1e-2] * 6)
    assert [stage.cores for stage in plan.stages] == expected


def test_a_stage_gets_no_cores_that_would_slow_it_down(chain: Graph) -> None:
    """Threads wait for each other at the end of each operator, which takes longer than these do."""
    plan = plan_with_times(chain, host(0, 1, 2, 3), stages=2, seconds=[1e-6] * 6)
    assert [stage.cores for stage in plan.stages] == [(0,), (1,)]


def test_the_stage_with_the_most_work_gets_the_most_cores(chain: Graph) -> None:
    plan = plan_with_times(chain, host(0, 1, 2, 3), cuts=[1], seconds=[6e-2, *[1e-2] * 5])
    assert [len(stage.cores) for stage in plan.stages] == [2, 2]
    plan = plan_with_times(chain, host(0, 1, 2, 3), cuts=[1], seconds=[2e-1, *[1e-2] * 5])
    assert [len(stage.cores) for stage in plan.stages] == [3, 1]


def test_more_stages_than_cores_share_them_by_their_work(chain: Graph) -> None:
    plan = plan_with_times(chain, host(0, 1), cuts=[1, 2, 3], seconds=[5e-2, 1e-2, 1e-2, 1e-2, 1e-2, 1e-2])
    assert [stage.cores for stage in plan.stages] == [(0,), (1,), (1,), (1,)]
    assert predict(plan).interval_s == pytest.approx(5e-2, rel=0.01), "of the core with the most work"


def test_a_core_with_several_stages_bounds_the_pace(chain: Graph) -> None:
    plan = plan_with_times(chain, host(0), cuts=[3], seconds=[1e-2] * 6)
    assert [stage.cores for stage in plan.stages] == [(0,), (0,)]
    assert predict(plan).interval_s == pytest.approx(6e-2, rel=0.01)
    assert plan.unsplit_seconds * predict(plan).frames_per_s <= 1


def test_each_device_divides_its_own_cores(chain: Graph) -> None:
    board = Board("two", (Device("big", cores=(2, 3)), Device("little", cores=(0, 1)), Device("side")))
    times = {device.name: [1e-2] * 6 for device in board.devices}
    plan = plan_with_times(chain, board, devices=["little", "big", "little", "side"], seconds=times)
    assert [stage.cores for stage in plan.stages] == [(0,), (2, 3), (1,), ()]


def test_a_long_chain_is_planned_at_once(tmp_path: Path) -> None:
    """Planning follows the length of the chain; a quadratic one would meet the test's time limit."""
    count = 2_000
    nodes = [node("Softmax", f"t{number}", f"t{number + 1}") for number in range(count)]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"t0": (1, 4)}, [f"t{count}"]))
    plan = plan_with_times(graph, host(*range(16)), stages=16)
    assert len(plan.stages) == 16
    assert [stage.operators[1] for stage in plan.stages][7] == f"t{count // 2}"


ISOLATED, CONTENDED = [1e-3] * 6, {"cpu": [1.5e-3] * 6}


def test_stages_and_replicas_take_what_groups_take_while_other_cores_are_busy(chain: Graph) -> None:
    planner = Planner(chain, host(0, 1), ISOLATED, contended=CONTENDED)
    for plan in (planner.plan(stages=2), planner.plan(stages="auto")):
        assert sum(stage.seconds for stage in plan.stages) == pytest.approx(9e-3, rel=0.01)
        assert plan.unsplit_seconds == pytest.approx(6e-3)


def test_a_device_with_one_core_is_slowed_by_nobody(chain: Graph) -> None:
    (stage,) = Planner(chain, host(0), ISOLATED, contended=CONTENDED).plan(stages=1).stages
    assert stage.seconds == pytest.approx(6e-3, rel=0.01)


def test_the_better_way_is_chosen_by_what_cores_lose(chain: Graph) -> None:
    npu = Device("npu", memory="npu")
    board = Board("both", (*host(0, 1).devices, npu), (Link(("host", "npu"), 1e12),))

    def devices(factor: float) -> set[str]:
        seconds = {"cpu": [1e-2] * 6, "npu": [0.8e-2] * 6}
        return {
            stage.device
            for stage in Planner(chain, board, seconds, contended={"cpu": [factor * 1e-2] * 6}).plan().stages
        }

    assert "cpu" in devices(1.1)
    assert devices(60.0) == {"npu"}
