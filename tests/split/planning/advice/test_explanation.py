"""The explanation of a plan is true."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import boards
import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.prediction.contention import WAKING_S
from pipeline.prediction.predict import predict
from pipeline.simulation import simulate
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.split.planning.planner import Planner
from tests.support.small_plans import host

pytestmark = pytest.mark.thorough

EQUAL = [1e-2] * 6


def planner(graph: Graph, *cores: int, seconds: list[float] | None = None, **options: float) -> Planner:
    return Planner(graph, host(*cores, **options), seconds or EQUAL)


def test_the_times_are_those_of_the_plan(chain: Graph) -> None:
    own_planner = planner(chain, 0, 1, 2, memory_bytes=1_000_000)
    plan = own_planner.plan(cuts=[2, 3])
    explanation = explain(own_planner, plan)
    assert [stage.seconds for stage in explanation.stages] == pytest.approx([stage.seconds for stage in plan.stages])
    assert [stage.operators for stage in explanation.stages] == [stage.operators for stage in plan.stages]
    assert explanation.interval_s == pytest.approx(predict(plan).interval_s)
    assert explanation.latency_s == pytest.approx(sum(stage.seconds + WAKING_S for stage in plan.stages))
    assert explanation.bottleneck == "stage2"
    assert explanation.stages[2].slowest_share == pytest.approx(1 / 3)
    # One tensor of 16 kB is read, one is made, and two frames wait.
    assert [stage.memory_bytes for stage in explanation.stages] == [4 * 64 * 64 * 4] * 3
    assert explanation.stages[0].memory_share == pytest.approx(0.065536)
    assert explanation.joules is None
    assert explanation.measured


@pytest.mark.parametrize("name", ["jetson-nano", "jetson-orin-nano"])
def test_plan_explanation_and_simulation_of_a_gpu_agree(digits_onnx: Path, name: str) -> None:
    own_planner = Planner(pipeline.read(digits_onnx), boards.get(name))
    solution = own_planner.solve()
    plan = own_planner.build(solution)
    assert "gpu" in {stage.device for stage in plan.stages}
    assert explain(own_planner, plan).interval_s == pytest.approx(solution.interval)
    assert predict(plan).interval_s == pytest.approx(solution.interval)
    assert 1 / simulate(plan, frames=2000).frames_per_s == pytest.approx(solution.interval, rel=0.01)


def test_a_queue_that_is_too_short_says_what_it_costs(chain: Graph) -> None:
    board, wavering = Board("b", (Device("cpu", cores=(0, 1)),)), 0.5
    shallow, automatic = (Planner(chain, board, EQUAL, depth, wavering) for depth in (1, "auto"))
    explanation, better = explain(shallow, shallow.plan(stages=2)), explain(automatic, automatic.plan(stages=2))
    assert [(stage.queue_depth, stage.queue_cost) for stage in explanation.stages] == [
        (1, 0.0),
        (1, pytest.approx(0.125, rel=1e-3)),
    ]
    assert better.stages[1].queue_depth > 10
    assert better.stages[1].queue_cost <= 0.015
    assert (explanation.cv, better.cv) == (0.5, 0.5)


def test_the_bound_is_proved_and_the_gap_is_to_it(chain: Graph) -> None:
    own_planner = planner(chain, 0, 1)
    best = explain(own_planner, own_planner.plan())
    assert best.gap == pytest.approx(0, abs=1e-9)
    assert best.bound_s == pytest.approx(3e-2 + WAKING_S / 2)
    worse = explain(own_planner, own_planner.plan(cuts=[1]))
    assert worse.bound_s == pytest.approx(best.bound_s)
    assert worse.gap == pytest.approx(2 / 3, rel=2e-3)
    assert worse.relaxed_s <= worse.bound_s


def test_each_verdict(chain: Graph) -> None:
    own_planner = planner(chain, 0, 1)
    uneven = planner(chain, 0, 1, seconds=[1.05e-2, 1.05e-2, 1.05e-2, 9.5e-3, 9.5e-3, 9.5e-3])
    for case_planner, plan, kind, reason in (
        (
            own_planner,
            own_planner.plan(),
            "replicas",
            "Replicate instead of pipelining: 2 replicas of the whole model give 33.31",
        ),
        (
            own_planner,
            own_planner.plan(cuts=[1]),
            "replicate instead",
            "Replicate instead: 2 replicas of the whole model give 33.31 frames/s with 60.1 ms, these stages 19.98, ",
        ),
        (
            own_planner,
            own_planner.plan(stages=1),
            "one stage",
            "Do not pipeline: one stage, nothing is pipelined, 27.69 frames/s.",
        ),
        (
            uneven,
            uneven.plan(stages=2),
            "replicate instead",
            "Replicate instead: 2 replicas of the whole model give 33",
        ),
        (
            planner(chain, 0),
            planner(chain, 0).plan(cuts=[1]),
            "do not pipeline",
            "Do not pipeline: the unsplit model gives 16.65 frames/s with 60.1 ms, these stages 16.66, 1.00 times",
        ),
    ):
        explanation = explain(case_planner, plan)
        assert (explanation.verdict, explanation.reason[: len(reason)]) == (kind, reason)
    board = Board("far", (Device("cpu"), Device("npu", "simulated", memory="npu")), (Link(("host", "npu"), 1e9),))
    two_devices = Planner(chain, board, {"cpu": EQUAL, "npu": EQUAL})
    assert explain(two_devices, two_devices.plan()).verdict == "pipeline"


def test_another_goal_than_the_rate_is_judged_by_itself(chain: Graph) -> None:
    """Such plans were told not to pipeline, since replicas would have given more frames per second."""
    case = planner(chain, 0, 1, 2, seconds=[1e-2] * 6, watts_idle=1.0, watts_busy=4.0)
    for options, kind, reason in (
        ({"objective": "latency"}, "least latency", "Planned for the least latency: "),
        ({"fps": 40}, "least latency", "Planned for the least latency that keeps up with 40 frames/s: "),
        ({"objective": "energy"}, "least energy", "Planned for the least energy: 60 mJ per frame above rest, at "),
    ):
        explanation = explain(case, case.plan(**options), **options)
        assert (explanation.verdict, explanation.reason[: len(reason)]) == (kind, reason)
        assert "the fastest way gives 49.96 with 60.1" in explanation.reason
        assert not any("by the planner" in line for line in explanation.help)


def test_all_ways_are_considered(chain: Graph) -> None:
    own_planner = planner(chain, 0, 1)
    ways = {each.name: each for each in explain(own_planner, own_planner.plan()).alternatives}
    assert list(ways) == ["unsplit, one core or device", "unsplit, several cores", "replicas of the whole", "stages"]
    assert ways["unsplit, one core or device"].frames_per_s == pytest.approx(1 / (6e-2 + WAKING_S))
    assert ways["replicas of the whole"].frames_per_s == pytest.approx(2 / (6e-2 + WAKING_S))
    assert ways["replicas of the whole"].latency_s == pytest.approx(6e-2 + WAKING_S)
    assert ways["stages"].frames_per_s == pytest.approx(1 / 3e-2, rel=3e-3)
    assert ways["stages"].stages == 2


def test_what_would_help_is_planned_again(chain: Graph) -> None:
    own_planner = planner(chain, 0, 1)
    assert (
        explain(own_planner, own_planner.plan(cuts=[1]))
        .help[0]
        .startswith("cuts, devices and replicas by the planner: 1.67")
    )
    slow = Board("far", (Device("cpu"), Device("npu", "simulated", memory="npu")), (Link(("host", "npu"), 2e6),))
    explanation = explain(slow_planner := Planner(chain, slow, {"cpu": EQUAL, "npu": [1e-3] * 6}), slow_planner.plan())
    assert any(each.startswith("transfers that cost nothing: ") for each in explanation.help)
    peak = planner(chain, seconds=[1e-3, 1e-3, 5e-2, 1e-3, 1e-3, 1e-3])
    assert explain(peak, peak.plan()).help[0] == "'n2' in half its time: 1.83 times the frames per second"


def test_energy_where_the_power_is_known(chain: Graph) -> None:
    own_planner = planner(chain, 0, 1, watts_idle=1.0, watts_busy=5.0)
    plan = own_planner.plan(stages=2)
    assert explain(own_planner, plan).joules == pytest.approx(sum(stage.seconds for stage in plan.stages) * 4 / 2)


def test_a_trained_network_on_a_board_that_is_not_here(digits_onnx: Path) -> None:
    board = boards.get("rk3588")
    big, little = board.devices[0].clusters
    # The board's own figures are estimates that change.
    cpu = replace(board.devices[0], flops=2.5e10, int8_flops=6e10, clusters=(big, replace(little, speed=0.29)))
    own_planner = Planner(pipeline.read(digits_onnx), replace(board, devices=(cpu, *board.devices[1:])))
    explanation = explain(own_planner, own_planner.plan())
    assert explanation.joules
    assert explanation.joules > 0
    # By up to 20 % it may be slower than the fastest plan, if that has more than twice the latency.
    assert explanation.frames_per_s * 1.2 >= explanation.trade_offs[0].frames_per_s
    # What stages that borrow would reach if nobody waited is a loose bound, and said to be.
    assert 0 <= explanation.gap <= explanation.open_gap * 1.2 + 0.2


@pytest.mark.parametrize(("seconds", "is_short"), [(1e-4, True), (1e-2, False)])
def test_short_stages_are_said_to_wait_for_each_other_s_threads(chain: Graph, seconds: float, is_short: bool) -> None:
    own_planner = planner(chain, 0, 1, seconds=[seconds] * 6)
    notes = explain(own_planner, own_planner.plan(stages=2)).help
    assert any("handing frames on, about 50 us each" in note for note in notes) == is_short


def test_stages_shorter_than_a_hop_are_advised_against(chain: Graph) -> None:
    own_planner = planner(chain, 0, 1, seconds=[1e-6] * 6)
    notes = {count: explain(own_planner, own_planner.plan(stages=count)).help for count in (1, 2)}
    advice = "stages are shorter than a hop of 50 us; one stage is faster"
    assert advice in notes[2]
    assert advice not in notes[1]


def test_the_unsplit_model_is_not_slowed_by_cores_that_rest(chain: Graph) -> None:
    calm = planner(chain, 0, 1)
    explanation = explain(contended := replace(calm, contended={"cpu": [1.3e-2] * 6}), contended.plan())
    rates = {each.name: each.frames_per_s for each in explanation.alternatives}
    assert rates["unsplit, one core or device"] == pytest.approx(1 / 6e-2, rel=0.01)
    assert rates["replicas of the whole"] == pytest.approx(2 / 7.8e-2, rel=0.01)
    assert explanation.frames_per_s == pytest.approx(rates["replicas of the whole"], rel=0.01)
